"""What can be asked: one declaration a call, its arguments parsed once into a frozen type."""
