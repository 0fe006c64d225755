"""Served databases over DuckDB's own protocol, Quack: its extensions, and the client of a custodian's or analyst's Python."""
