"""What the released counters of a private query say: measures and their sensitivity, estimates of aggregates, intervals."""
