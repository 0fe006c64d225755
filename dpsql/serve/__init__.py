"""Serving a database: analysts ask through doors, one room decides what they are answered."""
