"""The methods over one table of all columns: counts with noise or from a private posterior, then rows in proportion."""
