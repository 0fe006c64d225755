"""Counts of k-tuples, level by level: which ones are counted is decided by what was released before."""
