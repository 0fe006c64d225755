"""Mechanisms that draw a private output themselves: exact, from the operating system's entropy, without a seed."""
