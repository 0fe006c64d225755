"""Methods that turn noisy statistics into synthetic rows, one file a method."""
