"""Text that comes and goes: SQL literals and identifiers, how names compare, JSON that somebody may have edited."""
