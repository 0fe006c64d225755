"""An aggregate query taken apart: what it asks, of which rows, over which groups; no row is read."""
