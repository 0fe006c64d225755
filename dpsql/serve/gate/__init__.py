"""Everything between the text of an analyst and what is run: DuckDB's parser, an allowlist over its tree, names resolved."""
