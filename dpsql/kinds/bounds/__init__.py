"""Bounds of a numeric column about which nothing is known: one noisy histogram over powers of two."""
