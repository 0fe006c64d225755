"""What parameters mean that several calls share, written once."""

from __future__ import annotations

SOURCE = "The protected table, a view of it, or a SELECT over it that gives one row for each of its rows."
COLUMN = "The column (column_name in SQL, or the second argument; column is a reserved word)."
EPSILON = "What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it."
DELTA = "Its delta; under 'zcdp' the table's, if left out."
PURE_DELTA = "Its delta, for a selection alone; under 'zcdp' a share of the table's, if left out."
RELEASE = "Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought."
STORED = "Identifier of a stored release, as dp_releases shows it."
COLUMNS = "The columns; all declared ones, if left out."
DISCOVERED = "With discover: the {} of the purchase."
SCOPE = "One table; all, if left out."
SEED = "Seed of the drawing: the same rows again."
ROWS = "Number of synthetic rows; about as many as the source has, if left out."
INTO_SCHEMA = "The schema that the tables are put into, made where it is not there; 'name' or 'database.name'."
UNITS = "Number of synthetic units, rows of the first table; about as many as the source has, if left out."
OPTIONS = "Options of the method as a struct, e.g. {'mechanism': 'laplace'}."
