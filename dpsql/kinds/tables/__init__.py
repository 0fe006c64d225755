"""Noisy contingency tables: integer noise on every cell, scales fixed by the plan."""
