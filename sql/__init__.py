"""The fixed SQL of dpsql, shipped as package data."""
