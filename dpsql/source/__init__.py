"""The source of a call: SQL over one protected table, checked and rewritten so that no row decides whether it fails."""
