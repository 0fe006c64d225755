"""Contingency tables as arrays: their cells, how they are counted, and how noisy ones are made consistent."""
