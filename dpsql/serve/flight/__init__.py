"""The door for clients of Arrow Flight SQL: ADBC, and what stands on it."""
