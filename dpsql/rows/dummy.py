"""Made-up rows of a public domain: to try queries on before anything is bought. No row and no release is looked at.

Each column is drawn by itself, uniform over its declared categories or bins, and within a bin uniform; NULL once in twenty where
the domain has it. Rows obey the rules as those of a synthetic table do (`dpsql.rows.obeying`). Rows of a unit stand together.

Privacy: None: a function of public declarations and a seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.books.entries import canonical_json
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import DomainError, ReleaseError
from dpsql.rows.decoding import write_rows
from dpsql.rows.obeying import mender
from dpsql.text.relation import identifier, parquet

_FORM = 1
"""Changes whenever the same seed gives other rows."""
_NULLS = 0.05
_SPARE_ROWS = 1 << 14
_MOST_OF_A_UNIT = 10
_UNIT = "__dp_unit"


@dataclass(frozen=True)
class Column:
    """A column of the relation that the rows stand for.

    Parameters
    ----------
    name, sql_type : str
    unit : bool
        Whether it says whose row it is.
    """

    name: str
    sql_type: str
    unit: bool = False


@dataclass(frozen=True)
class Dummy:
    """Which rows are made up.

    Parameters
    ----------
    domain : Domain
        Of the declared columns.
    rules : sequence of str
        As `dpsql.rules.grammar.stored` reads them.
    rows : int
    seed : int
    most_of_a_unit : int or None
        max_contributions; None: every row is a unit.
    """

    domain: Domain
    rules: Sequence[str]
    rows: int
    seed: int
    most_of_a_unit: int | None = None

    @property
    def drawn(self) -> Domain:
        """The domain of what is drawn: declared values alone, and between its bounds wherever bins are automatic."""
        own = [replace(a, outside="clamp") if a.outside != "clamp" else a for a in self.domain.attributes]
        return Domain(tuple(a.bounded if a.automatic else a for a in own))

    @property
    def name(self) -> str:
        """What tells these rows from any other made-up ones, for the name of a file."""
        about = [_FORM, self.drawn.to_json(), list(self.rules), self.rows, self.seed, self.most_of_a_unit]
        return f"dummy-{hashlib.sha256(canonical_json(about).encode()).hexdigest()[:32]}"

    def write(self, cursor: duckdb.DuckDBPyConnection, path: Path) -> None:
        """Write the rows to a Parquet file.

        Parameters
        ----------
        cursor : DuckDB cursor
            No table is read on it.

        Raises
        ------
        DomainError
            No row is found that obeys the rules.
        """
        domain, rng = self.drawn, np.random.default_rng([self.seed, int(self.name[-16:], 16)])
        codes = _codes(domain, self.rows, rng)
        spare = _codes(domain, _SPARE_ROWS, rng)
        if self.most_of_a_unit is not None:
            units = _units(self.rows, self.most_of_a_unit, rng)
            numbered = Attribute(_UNIT, "BIGINT", "numeric", edges=tuple(map(float, range(self.rows + 2))), nullable=False)
            domain = Domain((*domain.attributes, numbered))
            codes = np.column_stack([codes, units])
            spare = np.column_stack([spare, np.zeros(len(spare), np.int32)])
        mending = mender(cursor, domain, self.rules, lambda: spare, "dummy") if self.rules else None
        try:
            write_rows(cursor, [codes], domain, rng, path, self.rows, None if mending is None else mending.mended)
        except ReleaseError:
            raise DomainError(
                "source: no row was found that obeys its rules (FROM dp_domain(...) lists them); take one back (dp_rule with "
                "remove := true), or declare wider domains"
            ) from None


def relation(made: Dummy, columns: Sequence[Column], path: Path) -> str:
    """Return made-up rows in the columns and types of the source: NULL in a column without a domain, a number for a unit."""
    held = set(made.domain.names)
    listed = []
    for column in columns:
        value = identifier(column.name) if column.name in held else "NULL"
        if column.unit and column.name not in held and made.most_of_a_unit is not None:
            value = _whose(column.sql_type)
        listed.append(f"CAST({value} AS {column.sql_type}) AS {identifier(column.name)}")
    return f"(SELECT {', '.join(listed)} FROM {parquet(path)})"  # noqa: S608 -- quoted


def _codes(domain: Domain, rows: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Return uniform codes of declared values, shape (rows, m), and NULL now and then."""
    found = np.empty((rows, len(domain.attributes)), np.int32)
    for place, attribute in enumerate(domain.attributes):
        null = attribute.null_code
        values = max(attribute.values, 1)
        found[:, place] = rng.integers(0, values, rows)
        nulls = rng.random(rows) < _NULLS
        if null is not None:
            found[nulls | (attribute.values == 0), place] = null
    return found


def _units(rows: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Return whose row each row is, from 1 on: units have one row, or several, at random."""
    largest = min(max(most, 2), _MOST_OF_A_UNIT)
    sizes = rng.integers(1, largest + 1, rows)
    return np.repeat(np.arange(1, rows + 1, dtype=np.int32), sizes)[:rows]


def _whose(sql_type: str) -> str:
    """Return the SQL that makes a value of a unit's column out of the unit's number, distinct where the type has so many."""
    number, parsed = identifier(_UNIT), sqltypes.parse(sql_type)
    if parsed.family == "integer":
        return f"(1 + ({number} - 1) % {min(parsed.high, 1 << 40)})"
    if parsed.family == "text":
        return f"('unit ' || {number})"
    if parsed.family == "uuid":
        return f"system.main.md5('unit ' || {number})"
    if sql_type == "DATE" or sql_type.startswith("TIMESTAMP"):
        return f"(DATE '1900-01-01' + CAST({number} AS INTEGER))"
    if parsed.family in ("decimal", "float"):
        return f"TRY_CAST({number} AS {sql_type})"
    return "NULL"
