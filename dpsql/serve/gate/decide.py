"""What becomes of a statement of an analyst: the SQL that is run in its place and the calls that it is made of, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsql.serve.gate import clause
from dpsql.serve.gate.calls import Call, Calls, by_place, check_protected
from dpsql.serve.gate.reasons import REASONS, Refusal, refuse
from dpsql.serve.gate.view import View
from dpsql.serve.gate.walk import ANSWER, Node, Walk, parsed, written


@dataclass(frozen=True)
class Accepted:
    """What is run instead of a statement.

    Parameters
    ----------
    sql : str
        Over public tables by their full names, and over the answers of ``calls``: temporary views ``__dpsql_answer_<number>``.
    calls : tuple of Call
        For `dpsql.door.dispatch.run`, in the order of their numbers.
    """

    sql: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Refused:
    """Why a statement is not answered: one line of a closed list (`dpsql.serve.gate.reasons`); ``kind``: its name there."""

    reason: str
    kind: str


def decide(text: str, view: View) -> Accepted | Refused:
    """Return what is run for a statement of an analyst, or why it is not.

    Parameters
    ----------
    text : str
    view : View
        What she may see (`view_of`).

    Returns
    -------
    Accepted or Refused

    Notes
    -----
    Privacy: free. DuckDB parses the text and nothing of it is bound or run, but for constant arguments of calls; the texts of
    refusals depend on what she may see, and on nothing else.
    """
    try:
        return _decided(text, view)
    except Refusal as refusal:
        return Refused(refusal.reason, refusal.kind)
    except RecursionError:
        return Refused(REASONS["deep"], "deep")


def _decided(text: str, view: View) -> Accepted:
    tree, options = _read(text, view)
    calls = Calls(view)
    walk = Walk(view, schema=view.schema, call=calls)
    walk.query(tree["statements"][0]["node"], {})
    if options is not None and not walk.granted:
        refuse("clause")
    if not walk.granted:
        return Accepted(written(view.cursor, tree), tuple(calls.found))
    if calls.found or walk.catalogue:
        refuse("mixed")
    check_protected(walk)
    by_place(tree)
    (key,) = walk.granted
    arguments = {"sql": written(view.cursor, tree), "epsilon": view.grants[key].default_epsilon} | (options or {})
    return Accepted(f'FROM temp.main."{ANSWER}0"', (Call("query", arguments),))


def _read(text: str, view: View) -> tuple[Node, dict[str, Any] | None]:
    """Return the tree of a statement, and the options of its clause WITH DIFFERENTIAL_PRIVACY, None where it has none."""
    try:
        return parsed(view.cursor, text), None
    except Refusal as refusal:
        if refusal.kind == "statement" and clause.has(text, "pivot"):
            refuse("pivot")
        if refusal.kind != "syntax" or not clause.has(text):
            raise
    left, options = clause.cut(text)
    return parsed(view.cursor, left), options
