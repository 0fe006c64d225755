"""Rules on values: decoded rows are given to DuckDB, which says which of them obey. Synthetic or made-up rows only.

A row obeys a rule that is true or NULL of it, as with CHECK. Where an expression would raise on a value it is NULL, comparison by
comparison, as in a source (`dpsql.source.functions.caught`): so each part between AND, OR and NOT stands for itself.

Privacy: none; no table is read.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains.attributes import Attribute
from dpsql.domains.decoder import Columns, Decoder
from dpsql.rules.grammar import CONNECTIVES, Rule, render
from dpsql.text.relation import identifier

if TYPE_CHECKING:
    import pandas as pd

Verdicts = npt.NDArray[np.int8]
TRUE, FALSE, NULL = 1, 0, -1

_ROW = "__dp_at"


class Evaluator:
    """Evaluates expressions over some attributes on decoded rows.

    Parameters
    ----------
    cursor : DuckDB cursor
    attributes : sequence of Attribute
        Each is read from the arrays that its `Decoder` makes.
    expressions : sequence of sqlglot expression
        Boolean, over columns called as the attributes; what `dpsql.rules.grammar` has checked.
    names : sequence of str, optional
        Of the decoders; ``v0``, ``v1``, ... if left out.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        attributes: Sequence[Attribute],
        expressions: Sequence[exp.Expression],
        names: Sequence[str] | None = None,
    ) -> None:
        self._cursor = cursor
        prefixes = names or [f"v{i}" for i in range(len(attributes))]
        self.decoders = [Decoder(attribute, prefix) for attribute, prefix in zip(attributes, prefixes, strict=True)]
        called = {attribute.name: f"c{i}" for i, attribute in enumerate(attributes)}
        self._texts = [_guarded(expression, called) for expression in expressions]
        stored = [exp.alias_(d.expression(), f"s{i}", quoted=True).sql(dialect="duckdb") for i, d in enumerate(self.decoders)]
        typed = [f'CAST("s{i}" AS {a.sql_type}) AS "c{i}"' for i, a in enumerate(attributes)]  # DuckDB's own texts of types
        row = identifier(_ROW)
        self._inner = f"SELECT {', '.join([*typed, row])} FROM (SELECT {', '.join([*stored, row])} FROM "  # noqa: S608 -- quoted

    def decoded(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> Columns:
        """Return the arrays of codes, shape (rows, attributes)."""
        arrays: Columns = {}
        for i, decoder in enumerate(self.decoders):
            arrays.update(decoder.arrays(codes[:, i], rng))
        return arrays

    def check(self) -> None:
        """Bind the expressions over these types.

        Raises
        ------
        duckdb.Error
            One of them does not fit its types.
        ValueError
            One of them is not boolean.
        """
        columns = ", ".join(f'CAST(NULL AS {d.attribute.sql_type}) AS "c{i}"' for i, d in enumerate(self.decoders))
        listed = ", ".join(f"({text}) AS t{i}" for i, text in enumerate(self._texts))
        rows = self._cursor.execute(f"DESCRIBE SELECT {listed} FROM (SELECT {columns})").fetchall()  # noqa: S608 -- checked
        if any(row[1] not in ("BOOLEAN", '"NULL"') for row in rows):
            raise ValueError("not boolean")

    def obey(self, arrays: Columns, rows: int) -> npt.NDArray[np.bool_]:
        """Return which rows obey all expressions."""
        every = " AND ".join(f"(({text}) IS DISTINCT FROM false)" for text in self._texts) or "true"
        verdicts = self._run(arrays, rows, [f"({every})::TINYINT AS t0"])
        return np.asarray(verdicts[0] == TRUE)

    def verdicts(self, arrays: Columns, rows: int) -> list[Verdicts]:
        """Return what each expression is of each row: `TRUE`, `FALSE` or `NULL`."""
        return self._run(arrays, rows, [f"coalesce(({text})::TINYINT, {NULL}) AS t{i}" for i, text in enumerate(self._texts)])

    def _run(self, arrays: Columns, rows: int, texts: Sequence[str]) -> list[Verdicts]:
        import pandas as pd  # loaded when needed: pandas takes .3 s

        frame = pd.DataFrame({**arrays, _ROW: np.arange(rows, dtype=np.int64)}, copy=False)
        row = identifier(_ROW)
        before = f"SELECT {', '.join([*texts, row])} FROM ({self._inner}"  # noqa: S608 -- checked
        columns = fetched(self._cursor, before, "))", frame)
        order = np.asarray(columns[_ROW])
        verdicts = []
        for i in range(len(texts)):
            placed = np.empty(rows, np.int8)
            placed[order] = np.asarray(columns[f"t{i}"])
            verdicts.append(placed)
        return verdicts


def fetched(cursor: duckdb.DuckDBPyConnection, before: str, after: str, frame: pd.DataFrame) -> Mapping[str, Any]:
    """Run a statement in which the name of a frame stands between two texts, and return its columns.

    A frame that is registered inside a transaction stays in memory until its end, so it is found as a variable where the session
    lets DuckDB find variables.
    """
    allowed = cursor.execute("SELECT current_setting('python_enable_replacements')").fetchall()
    if allowed[0][0]:
        __dpsql_frame_0 = frame
        return cursor.execute(f"{before}__dpsql_frame_0{after}").fetchnumpy()
    name = f"dpsql_{secrets.token_hex(8)}"
    cursor.register(name, frame)
    try:
        return cursor.execute(f"{before}{name}{after}").fetchnumpy()
    finally:
        with suppress(duckdb.Error):
            cursor.unregister(name)


def _guarded(tree: exp.Expression, names: Mapping[str, str]) -> str:
    """Return an expression over generated names whose parts between the connectives are NULL where they would raise."""
    if type(tree) in CONNECTIVES:
        left = _guarded(tree.this, names)
        if type(tree) is exp.Paren:
            return left
        if type(tree) is exp.Not:
            return f"(NOT {left})"
        return f"({left} {'AND' if type(tree) is exp.And else 'OR'} {_guarded(tree.expression, names)})"
    if type(tree) is exp.Coalesce:  # of `dpsql.rules.counted` alone: false where it is NULL
        return f"({_guarded(tree.this, names)} IS NOT DISTINCT FROM true)"
    leaf = tree.copy()
    for column in list(leaf.find_all(exp.Column)):
        column.set("this", exp.to_identifier(names[column.name], quoted=True))
    return f"system.main.list_transform([0], lambda __dp_once: TRY({render(leaf)}))[1]"


def evaluator(
    cursor: duckdb.DuckDBPyConnection, attributes: Sequence[Attribute], rules: Sequence[Rule], names: Sequence[str] | None = None
) -> Evaluator:
    """Return the evaluator of rules."""
    return Evaluator(cursor, attributes, [rule.tree for rule in rules], names)
