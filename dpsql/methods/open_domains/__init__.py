"""The methods over one column whose values nobody has declared: which values are released, and how often each."""
