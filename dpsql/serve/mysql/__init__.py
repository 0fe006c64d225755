"""The door for clients of MySQL: the wire, their SQL in DuckDB's, and what they ask of the catalogue. It holds no policy."""
