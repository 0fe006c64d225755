"""Answers to aggregate queries: sums of bounded integers by group."""
