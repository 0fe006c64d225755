"""Rules of a source, held against the kernel: boolean expressions over its columns, of the functions that a source may compute.

There is no rehearsal on extreme values, as sources have: a rule is evaluated on synthetic rows alone, whose values lie in the
declared domain, and is NULL where it would raise (`dpsql.rules.evaluating`).

Privacy: free. Names and types are looked at, no row.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from dpsql.errors import ArgumentError, DpsqlError
from dpsql.source.analysis import OutputColumn
from dpsql.source.catalog import Catalog
from dpsql.source.expressions import Rewriter
from dpsql.source.model import Column, identifier
from dpsql.source.parse import agree, render
from dpsql.source.scope import Item, Scope

_ALIAS = "__dp_s0"


def check_expression(cursor: duckdb.DuckDBPyConnection, text: str, tree: exp.Expression, columns: Sequence[OutputColumn]) -> None:
    """Refuse a rule that the kernel of sources does not accept over these columns, or that is not boolean.

    Parameters
    ----------
    cursor : DuckDB cursor
    text : str
        As it was given.
    tree : sqlglot expression
        What was read from it.
    columns : sequence of OutputColumn

    Raises
    ------
    ArgumentError
    """
    known = [Column(c.name, c.name, c.sql_type, None) for c in columns]
    relation = exp.Table(this=identifier("__dp_rows"), alias=exp.TableAlias(this=identifier(_ALIAS)))
    scope = Scope(Catalog(cursor), [Item(_ALIAS, _ALIAS, relation, known)], [])
    try:
        agree(cursor, f"SELECT {render(tree)}", exp.Select(expressions=[tree.copy()]))
        total = Rewriter(scope)(tree)
        kind = scope.type_of(total)
    except ArgumentError as error:
        raise ArgumentError("rule", text, f"{error.expected} ({error.value})") from None
    except RecursionError:
        raise ArgumentError("rule", text, "is nested too deeply; write several rules") from None
    except DpsqlError as error:
        raise ArgumentError("rule", text, str(error).removeprefix("source refused at ")) from None
    if kind != "BOOLEAN":
        raise ArgumentError("rule", text, f"is {kind}, not BOOLEAN: write what holds for every row, e.g. 'a <= b'")
