"""Methods that draw their private output themselves, from exact counts."""
