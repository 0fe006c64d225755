"""Random tables of people's rows, sources over them, and what taking one person out does to the rows of others.

Privacy status: test data alone.
"""

from __future__ import annotations

import functools
import random
import struct
from collections import Counter
from decimal import Decimal

import duckdb
from unit_local_statements import COLUMNS, PUBLIC

from dpsql.session.settings import pin
from dpsql.source.analysis import Source, analyse

UNITS = {
    "VARCHAR COLLATE NOCASE": ["A", "a", "é", "É", "b", "", None],
    "INTEGER": [1, 2, 3, None],
    "DOUBLE": [0.0, -0.0, 1.5, float("nan"), float("inf"), None],
}
VALUES = {
    "age": [0, 1, 7, 40, 60, 90, -2147483648, 2147483647, None],
    "cost": [0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1.7e308, -1.7e308, float("nan"), float("inf"), 1e150, None],
    "day": ["2020-01-01", "2020-02-29", "infinity", None],
    "kind": ["k0", "k1", "K0", None],
    "note": ["x", "X", "y", None],
    "ok": [True, False, None],
    "price": ["0.01", "9999999.99", "-1.50", None],
    "wide": ["9" * 38, "-" + "9" * 38, "1", None],
    "big": [str(2**127 - 1), str(-(2**127)), "5", None],
    "ts": ["2020-01-01 10:00:00", "infinity", None],
}


class Database:
    """A connection with the public tables, and sources that are analysed once: they depend on no row."""

    def __init__(self, kind: str) -> None:
        self.con = duckdb.connect(":memory:")
        self.kind = kind
        self.con.execute(f"CREATE TABLE visits(patient {kind}, {COLUMNS}); {PUBLIC}")
        self.cursor = self.con.cursor()
        pin(self.cursor)
        self.source = functools.cache(self._source)

    def _source(self, text: str) -> Source:
        unit = {"visits": "patient"}
        return analyse(
            self.cursor, text, database="memory", schema="main", local=True, protected=lambda t: t.name in unit, unit_column=lambda t: unit.get(t.name)
        )

    def fill(self, table: list[tuple]) -> None:
        self.con.execute("DELETE FROM visits")
        if table:
            self.con.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(table[0]))})", table)

    def rows(self, sql: str) -> Counter:
        return Counter(tuple(bits(v) for v in row) for row in self.cursor.execute(sql).fetchall())


def bits(value: object) -> object:
    """Return a value such that only the same bytes are equal."""
    return struct.pack("d", value) if isinstance(value, float) else value


def shown_as(value: object) -> object:
    """Return a value such that a number is the same in every type."""
    return float(value) if isinstance(value, (int, float, Decimal)) else str(value) if value is not None else None


def same_unit(kind: str, a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    return a == b


def random_table(rng: random.Random, kind: str, size: int) -> list[tuple]:
    return [(rng.choice(UNITS[kind]), *(rng.choice(v) for v in VALUES.values())) for _ in range(size)]


def violations(database: Database, table: list[tuple], texts, seed: int) -> list[str]:
    """Return the statements for which taking out one unit moves the rows of another, or leaves some of its own."""
    rng = random.Random(seed)
    units = list({repr(row[0]): row[0] for row in table}.values())
    gone = rng.choice(units)
    rest = [row for row in table if not same_unit(database.kind, row[0], gone)]
    rng.shuffle(rest)
    database.fill(table)
    before = {text: database.rows(database.source(text).sql) for text in texts}
    database.fill([row for row in table if same_unit(database.kind, row[0], gone)])
    alone = {text: database.rows(database.source(text).sql) for text in texts}
    database.fill(rest)
    after = {text: database.rows(database.source(text).sql) for text in texts}
    # the rows of the unit alone, and those of the others alone, are all that there is
    return [text for text in texts if before[text] != alone[text] + after[text]]
