"""What becomes of a statement of an analyst: the SQL that is run in its place and the calls that it is made of, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from dpsql.queries.reading import is_aggregate_query
from dpsql.serve.gate import clock, parameters
from dpsql.serve.gate.calls import Call, Calls, by_place, check_protected
from dpsql.serve.gate.plainer import plainer
from dpsql.serve.gate.reasons import refuse
from dpsql.serve.gate.sizes import number, plain
from dpsql.serve.gate.view import View
from dpsql.serve.gate.walk import ANSWER, Walk, parsed, written
from dpsql.source.parse import nodes

Node = dict[str, Any]


@dataclass(frozen=True)
class Accepted:
    """What is run instead of a statement.

    Parameters
    ----------
    sql : str
        Over public tables by their full names, and over the answers of ``calls``, called ``__dpsql_answer_<number>``.
    calls : tuple of Call
        For `dpsql.door.dispatch.run`, in the order of their numbers.
    own : str
        The statement itself, with all names in full; over protected tables it may only be run where these have no row.
    probe : bool
        It gives the same over tables without rows.
    views : bool
        It reads a view: errors may name what is in its text.
    fixed : bool
        It is made of the answers of calls alone, and the text that was judged will be another one at no other hour.
    """

    sql: str
    calls: tuple[Call, ...]
    own: str
    probe: bool = False
    views: bool = False
    fixed: bool = False

    @property
    def whole(self) -> bool:
        """Whether one call's answer is all of it."""
        return self.sql == ANSWERED

    def over(self, answers: Sequence[str]) -> str:
        """Return the statement over the answers of its calls, which are relations."""
        if self.whole:
            return f"FROM {answers[0]}"
        named = ", ".join(f'"{ANSWER}{number}" AS (FROM {text})' for number, text in enumerate(answers))
        if not named:
            return self.sql
        start = next(word for word in ("WITH RECURSIVE ", "WITH ", "") if self.sql.startswith(word))  # DuckDB has written it
        return f"{start or 'WITH '}{named}{', ' if start else ' '}{self.sql[len(start):]}"


ANSWERED = f'FROM "{ANSWER}0"'


def decide(text: str, view: View, values: Sequence[Any] = (), *, attached: bool = False) -> Accepted:
    """Return what is run for a statement of an analyst.

    Parameters
    ----------
    text : str
    view : View
        What she may see.
    values : sequence
        Of its parameters.
    attached : bool
        Whether it may come from a client that scans tables of a database which it has attached: a refusal says what to do then.

    Raises
    ------
    Refusal

    Notes
    -----
    Privacy: free. DuckDB parses the text and nothing of it is bound or run, but for constant arguments of calls; the texts of
    refusals depend on what she may see, and on nothing else.
    """
    try:
        return _decided(text, view, values, attached)
    except RecursionError:
        refuse("deep")


def places(cursor: duckdb.DuckDBPyConnection, text: str) -> int:
    """Return how many values a statement takes for its parameters; it is parsed, and nothing else.

    Raises
    ------
    Refusal
    """
    try:
        return parameters.count(parsed(cursor, text))
    except RecursionError:
        refuse("deep")


def _decided(text: str, view: View, values: Sequence[Any], attached: bool) -> Accepted:
    tree = parsed(view.cursor, text)
    parameters.fill(view.cursor, tree, values)
    calls = Calls(view)
    walk = Walk(view, schema="main", call=calls)
    probe = is_probe(tree["statements"][0]["node"])
    walk.query(tree["statements"][0]["node"], {})
    # a macro or function of somebody's by that name would be run in DuckDB's place
    changed = view.functions.changed(view.cursor, view.names)
    if changed is not None:
        refuse("function", changed)
    views = view.reads_views
    # nothing protected is read: it is run as it stands, with names in full
    if not walk.granted:
        sql = written(view.cursor, tree)
        return Accepted(sql, tuple(calls.listed), sql, probe, views, bool(calls.listed) and not walk.read and not walk.catalogue)
    # one table with a budget is read from here on: the question is bought, or refused
    if calls.listed or walk.catalogue:
        refuse("mixed")
    check_protected(walk)
    by_place(tree)
    # the clock stands still for the text that is bought, or the same question would be another one each time
    running, tree = tree, clock.stopped(tree, walk.columns, lambda text: parsed(view.cursor, text))
    (key,) = walk.granted
    sql = written(view.cursor, tree)
    if is_aggregate_query(sql):
        asked = Call("query", {"sql": plainer(view.cursor, sql), "epsilon": view.grants[key]}, walk.granted)
        return Accepted(ANSWERED, (asked,), sql, probe, views, tree == running)
    # rows themselves are for nobody, but a probe is answered where the tables have none
    if not probe:
        table = next(entry.name for entry in walk.read if key in entry.reads)
        refuse(*(("scan", table, table, view.shown) if attached else ("rows", table, table)))
    return Accepted(sql, (), sql, probe, views)


# -- probes: statements whose answer follows from no row, LIMIT 0 and WHERE 1 = 0, by which clients learn names and types --------


def is_probe(node: Node) -> bool:
    """Return whether a query gives the same whatever rows its tables have, or none: then empty ones answer it.

    Parameters
    ----------
    node : dict
        A query node of DuckDB's parser, before it is checked.
    """
    if any(_none(modifier.get("limit")) for modifier in node.get("modifiers") or [] if modifier.get("type") == "LIMIT_MODIFIER"):
        return True
    if node.get("type") != "SELECT_NODE":
        return False
    where = node.get("where_clause")
    if isinstance(where, dict) and _never(where):  # what stands in the list may read other tables, and have a row of its own
        return not any(one.get("class") == "SUBQUERY" for one in nodes([node.get("select_list"), node.get("having")]))
    table = node.get("from_table") or {}
    alone = table.get("type") == "SUBQUERY" and not any(one.get("class") == "SUBQUERY" for one in nodes(_without(node)))
    return alone and is_probe(_inner(table))


def _without(node: Node) -> list[Any]:
    return [part for name, part in node.items() if name != "from_table"]


def _none(limit: Node | None) -> bool:
    return isinstance(limit, dict) and number(limit) == 0


def _never(where: Node) -> bool:
    """Whether a condition is false by itself: ``false``, ``1 = 0``."""
    if where.get("type") == "CONJUNCTION_AND":
        return any(map(_never, where.get("children") or []))
    if where.get("type") == "COMPARE_EQUAL":
        sides = number(where["left"]), number(where["right"])
        return None not in sides and sides[0] != sides[1]
    if where.get("class") == "CAST":  # how DuckDB 1.x reads false
        return (where.get("cast_type") or {}).get("id") == "BOOLEAN" and plain(where["child"]) in ("f", "false")
    literal: Node = where.get("literal") or {}
    return literal.get("kind") == "BOOLEAN" and str(literal.get("text")).lower() == "false"


def _inner(table: Node) -> Node:
    subquery: Node = table.get("subquery") or {}
    query: Node = subquery.get("node") or subquery
    return query
