"""Thin adapters between DuckDB and dpsql: SQL types, side effects, errors."""
