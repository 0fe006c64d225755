"""The method `modips`: sanitised sufficient statistics, their posterior, rows from it."""
