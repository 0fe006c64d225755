"""Rows that DuckDB reads itself, but not from a table of its own: Postgres, DuckLake, folders of Parquet files."""
