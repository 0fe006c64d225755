"""DuckDB counts rows of its own: in SQL, or in one pass over blocks of codes where many tables are asked for."""
