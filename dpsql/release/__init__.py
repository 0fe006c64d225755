"""A release: what it measures (plan), what it takes (costs), and the noisy statistics as one file (store)."""
