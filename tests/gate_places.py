"""A database that is served, for tests of the gate."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from hostile_statements import SCHEMA

import dpsql
from dpsql.serve.gate import Accepted, Refused, decide, view_of
from dpsql.source.listed import Functions

PUBLISHED = tuple(
    f"main.{name}"
    for name in ("pub", "over_pub", "over_adult", "over_secret", "over_view", "over_call", "of_settings", "of_tables")
)
"""The last five are hidden all the same: by what they read."""


@dataclass(frozen=True)
class Granted:
    """What the gate asks of a grant."""

    default_epsilon: float = 0.5
    columns: tuple[str, ...] | None = None


class Place:
    """A database with tables that are granted, protected, public and neither."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        dpsql.load(self.con)
        self.con.execute(SCHEMA)
        for table in ("adult", "secret"):
            self.con.execute(f"FROM dp_protect('{table}', epsilon := 5, delta := 1e-9)")
        self.cursor = self.con.cursor()
        self.functions = Functions()

    def decide(self, text: str, columns: tuple[str, ...] | None = None, schema: str = "main") -> Accepted | Refused:
        """Return what becomes of a statement of alice, who has a grant for adult."""
        grants = {"main.adult": Granted(columns=columns)}
        return decide(text, view_of(self.cursor, "memory", schema, "alice", grants, PUBLISHED, self.functions))
