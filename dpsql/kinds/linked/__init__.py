"""Linked tables: shares of units by families of rows, measured together; every table keeps its place below its parent."""
