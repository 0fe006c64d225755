"""The method `aggregate_seeded`: counts of k-tuples, and rows that have them."""
