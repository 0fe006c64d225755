"""Privacy units by their number of rows: one table, in which every unit counts once."""
