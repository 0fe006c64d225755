"""Counting contingency tables from blocks of codes: which road is the shortest, and the roads."""
