"""Who counts protected rows where they are: an engine describes a relation, counts it, writes into one. DuckDB is the first."""
