"""Integer noise, drawn exactly from the operating system's entropy."""
