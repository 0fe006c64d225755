"""What DuckDB's binder says: types of expressions over typed NULLs, values of constants. No row is read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal

import duckdb
from sqlglot import exp

from dpsql.engines.spark.translate.literals import constant
from dpsql.engines.spark.translate.types import NULL, TEMPORAL, TEXT, ZONED, Typed, refuse
from dpsql.source.parse import render
from dpsql.text.relation import literal

_LETTERS: dict[tuple[str, str], tuple[str, ...]] = {}
_EXPONENT = re.compile(r"\d+\.\d+e[+-]\d+")
_YEARS = re.compile(r"\d{4}-[^B]*$")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Binder:
    """Types and constants, each asked for once.

    Parameters
    ----------
    cursor : DuckDB cursor
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._types: dict[str, str] = {}
        self._constants: dict[str, Typed] = {}

    def columns(self, query: str) -> list[tuple[str, str]]:
        """Return names and types of the columns of a query."""
        return [(str(row[0]), str(row[1])) for row in self._cursor.execute(f"DESCRIBE {query}").fetchall()]

    def type_of(self, template: str, *values: Typed) -> str:
        """Return the type that DuckDB gives an expression, with {} for each value."""
        text = template.format(*(value.probe for value in values))
        kind = self._types.get(text)
        if kind is None:
            try:
                [(_, kind)] = self.columns(f"SELECT {text} AS v")
            except duckdb.Error:
                refuse(template.replace("{}", "..."), "DuckDB does not bind it")
            self._types[text] = kind
        return kind

    def common(self, values: Sequence[Typed]) -> str:
        """Return the type in which DuckDB compares values, or returns one of several."""
        kinds = {value.type for value in values} - {NULL}
        if len(kinds) == 1:
            return kinds.pop()
        if not kinds:
            return "INTEGER"
        return self.type_of("[" + ", ".join(["{}"] * len(values)) + "]", *values).removesuffix("[]")

    def constant(self, node: exp.Expression) -> Typed:
        """Return the value of an expression without columns: DuckDB computes it."""
        if type(node) is exp.Literal:
            known = _plain(node)
            if known is not None:
                return known
        written = render(node)
        computed = self._constants.get(written)
        if computed is None:
            computed = self._constants[written] = self._computed(written, bare=isinstance(node, exp.Literal))
        return computed

    def _computed(self, written: str, *, bare: bool) -> Typed:
        kind = self.type_of(written.replace("{", "{{").replace("}", "}}"))
        read = f"system.main.epoch_us({written})" if kind == ZONED else written
        try:
            row = self._cursor.execute(f"SELECT {read}, CAST({written} AS VARCHAR)").fetchone()
        except duckdb.Error:
            refuse(written[:60], "DuckDB does not compute this constant")
        value, shown = row if row else (None, None)
        if kind in TEMPORAL and value is not None and not _YEARS.match(shown):  # Python's dates stop there, without a word
            refuse(shown, "years 1 to 9999 alone are dates on Spark")
        if kind == ZONED and value is not None:
            value = _EPOCH + dt.timedelta(microseconds=value)
        if value is None and kind in ("NULL", '"NULL"'):
            kind = NULL
        computed = constant(value, kind)
        # A number that is written out has no type of its own in DuckDB: it takes that of what stands next to it.
        return Typed(computed.sql, computed.type, written, computed.value, constant=True) if bare else computed

    @staticmethod
    def text(value: str) -> Typed:
        """Return a text as a constant."""
        return constant(value, TEXT)

    def cast_text(self, value: str, sql_type: str) -> Typed:
        """Return a text that is written out as a constant of another type."""
        return self._constant(f"CAST({literal(value)} AS {sql_type})")

    def cast_decimal(self, value: Decimal, source: str, sql_type: str) -> Typed:
        """Return a DECIMAL that is written out as a constant of another type: DuckDB rounds it, however many digits it has."""
        return self._constant(f"CAST(CAST('{value:f}' AS {source}) AS {sql_type})")

    def _constant(self, written: str) -> Typed:
        computed = self._constants.get(written)
        if computed is None:
            computed = self._constants[written] = self._computed(written, bare=False)
        return computed

    def letters(self, function: str) -> tuple[str, str]:
        """Return the letters that lower() or upper() changes, and what it makes of them."""
        known = _LETTERS.get((duckdb.__version__, function))
        if known is None:
            code = "CASE WHEN i BETWEEN 55296 AND 57343 THEN 1 ELSE i END"  # surrogates are no letters
            every = f"SELECT chr(({code})::INTEGER) AS c FROM range(1, 1114112) AS t(i)"  # noqa: S608 -- fixed text
            query = f"SELECT c, {function}(c) FROM ({every}) WHERE {function}(c) <> c ORDER BY c ASC"  # noqa: S608 -- fixed names
            rows = self._cursor.execute(query).fetchall()
            if any(len(after) != 1 for _, after in rows):
                refuse(f"{function}()", "it makes several letters of one")
            known = _LETTERS[duckdb.__version__, function] = tuple("".join(part) for part in zip(*rows, strict=True))
        return known[0], known[1]

    def rows(self, query: str) -> tuple[list[tuple[str, str]], list[list[Typed]]]:
        """Return columns and rows of a query that reads no table."""
        columns = self.columns(query)
        if any(kind in TEMPORAL for _, kind in columns):
            return columns, self._temporal(query, columns)
        rows = self._cursor.execute(query).fetchall()
        return columns, [[constant(value, kind) for value, (_, kind) in zip(row, columns, strict=True)] for row in rows]

    def _temporal(self, query: str, columns: Sequence[tuple[str, str]]) -> list[list[Typed]]:
        """Return rows with dates, each of which is computed like a constant, from its text."""
        names = [f"c{i}" for i in range(len(columns))]
        shown = [f"CAST({n} AS VARCHAR)" if kind in TEMPORAL else n for n, (_, kind) in zip(names, columns, strict=True)]
        rows = self._cursor.execute(f"SELECT {', '.join(shown)} FROM ({query}) AS t({', '.join(names)})").fetchall()  # noqa: S608
        typed_rows = []
        for row in rows:
            cells = []
            for value, (_, kind) in zip(row, columns, strict=True):
                if kind in TEMPORAL and value is not None:
                    cells.append(self._computed(f"CAST({literal(value)} AS {kind})", bare=False))
                else:
                    cells.append(constant(value, kind))
            typed_rows.append(cells)
        return typed_rows


def _plain(node: exp.Literal) -> Typed | None:
    """Return a text, whole number or number with an exponent without asking DuckDB; None for other literals."""
    written = node.name
    if node.is_string:
        typed = constant(written, TEXT)
        return Typed(typed.sql, TEXT, render(node), written, constant=True)
    if written.isascii() and written.isdigit() and int(written) < 1 << 63:
        number = int(written)
        kind = "INTEGER" if number < 1 << 31 else "BIGINT"
        return Typed(constant(number, kind).sql, kind, written, number, constant=True)
    if _EXPONENT.fullmatch(written):
        return constant(float(written), "DOUBLE")
    return None
