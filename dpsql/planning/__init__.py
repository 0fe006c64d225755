"""From a call to what would be measured, with which noise, at what price. No row is read."""
