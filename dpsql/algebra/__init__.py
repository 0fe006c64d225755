"""What is known of SQL's functions, aggregates and parts of dates: one table of each, and the arithmetic on ranges of values."""
