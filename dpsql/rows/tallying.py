"""Counts of rows that were encoded with a public domain: one-way and two-way, in few statements.

Privacy: exact counts. Of synthetic rows that is post-processing; of a protected table it is NOT PRIVATE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.domains.encoding import encode, guarded
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.text.relation import identifier

_BATCH = 40


class Tally:
    """The codes of a relation in a TEMP table, which goes with the context.

    Parameters
    ----------
    cursor : DuckDB cursor
    sql : str
        A SELECT with the domain's columns, in their types.
    domain : Domain
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, sql: str, domain: Domain) -> None:
        self._cursor, self._sql, self._domain, self._name = cursor, sql, domain, ""

    def __enter__(self) -> Tally:
        self._name = encode(self._cursor, self._sql, self._domain)
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.execute(f"DROP TABLE IF EXISTS {identifier(self._name)}")

    def rows(self) -> int:
        """Return the number of rows."""
        row = guarded(self._cursor, f"SELECT count(*) FROM {identifier(self._name)}").fetchone()  # noqa: S608 -- quoted
        return int(row[0]) if row else 0

    def counts(self, cliques: Sequence[Clique]) -> Mapping[Clique, FloatArray]:
        """Return the contingency table of each clique, one axis per attribute."""
        sizes = self._domain.sizes
        tables: dict[Clique, FloatArray] = {clique: np.zeros([sizes[i] for i in clique]) for clique in cliques}
        for start in range(0, len(cliques), _BATCH):
            batch = cliques[start : start + _BATCH]
            # Many small tables in one statement cost one pass over the rows.
            queries = [self._query(position, clique) for position, clique in enumerate(batch)]
            union = exp.union(*queries, distinct=False, copy=False) if len(queries) > 1 else queries[0]
            fetched = guarded(self._cursor, union.sql(dialect="duckdb")).fetchnumpy()
            which, cell, n = (np.asarray(fetched[name], dtype=np.int64) for name in ("t", "cell", "n"))
            for position, clique in enumerate(batch):
                here = which == position
                tables[clique].ravel()[cell[here]] = n[here]
        return tables

    def _query(self, position: int, clique: Clique) -> exp.Select:
        """Return (position, number of the cell, row-major, count)."""
        sizes = self._domain.sizes
        terms: list[exp.Expression] = []
        for axis, attribute in enumerate(clique):
            code = exp.cast(exp.column(f"c{attribute}", quoted=True), "BIGINT", dialect="duckdb")
            terms.append(exp.Mul(this=code, expression=exp.Literal.number(math.prod(sizes[i] for i in clique[axis + 1 :]))))
        cell = terms[0]
        for term in terms[1:]:
            cell = exp.Add(this=cell, expression=term)
        table = exp.to_table(exp.to_identifier(self._name, quoted=True))
        return (
            exp.select(
                exp.alias_(exp.Literal.number(position), "t"), exp.alias_(cell, "cell"), exp.alias_(exp.Count(this=exp.Star()), "n")
            )
            .from_(table)
            .group_by(exp.Literal.number(2))
        )
