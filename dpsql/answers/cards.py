"""How answers show themselves in a notebook: the budget as a gauge, ledger, plans and explanations as cards.

What the calls return stays a DuckDB relation: `load` tells a running IPython how to show relations that have the columns of
`dp_budget`, `dp_ledger`, `dp_plan`, `dp_explain` or `dp_releases`, whether they come from Python or from
``con.sql("FROM dp_budget()")``, and the answers of `dpsql.query`, with which rows count and what they cost. Everything else is
shown as before. `show` does the same by hand.

Privacy: None: the books, plans and released answers are free to read.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.page.markup import number, table, text
from dpsql.text.relation import at_most

if TYPE_CHECKING:
    from dpsql.answers.combine import Combined  # which loads numpy

_MOST_ROWS = 40
_BUDGET = {"source", "epsilon_spent", "epsilon_left", "share_used", "releases", "chain_holds"}
_LEDGER = {"source", "entry", "action", "previous", "hash", "chain_holds"}
_PLAN = {"operation", "measures", "tables", "cells", "noise_scale", "affordable", "epsilon_left_after", "left_out", "notes"}
_EXPLAINED = {"about", "explanation"}
_RELEASES = {"release", "operation", "query", "filters", "status", "charged_at"}
# Colours that can be read on a light and on a dark page; style sheets do not survive where notebooks are shown elsewhere.
_SPENT, _LEFT, _BAD = "#3f74c4", "rgba(128,140,160,.28)", "#c6362c"
_MUTED = "opacity:.7;font-size:90%"
_MadeOf = tuple[duckdb.DuckDBPyConnection, tuple[str, ...]]
_answers: weakref.WeakKeyDictionary[duckdb.DuckDBPyRelation, _MadeOf] = weakref.WeakKeyDictionary()


class Shown:
    """A relation that shows itself: as a card in a notebook, as DuckDB's box elsewhere."""

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self.relation = relation

    def __repr__(self) -> str:
        """Return DuckDB's own text."""
        return str(self.relation)

    def _repr_html_(self) -> str:
        return html_of(self.relation) or f"<pre>{text(self.relation)}</pre>"


def show(relation: duckdb.DuckDBPyRelation) -> Shown:
    """Return what shows a relation of `dpsql` as a card, for ``display(dpsql.show(dpsql.budget(con)))``. Privacy: free."""
    return Shown(relation)


def register() -> None:
    """Tell a running IPython how to show relations of `dpsql`; nothing happens elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    formatter = getattr(getattr(shell, "display_formatter", None), "formatters", {}).get("text/html")
    if formatter is not None:
        from dpsql.answers.combine import Combined

        formatter.for_type(duckdb.DuckDBPyRelation, html_of)
        formatter.for_type(Combined, combined_html)


def note(relation: duckdb.DuckDBPyRelation, con: duckdb.DuckDBPyConnection, releases: Sequence[str]) -> None:
    """Remember that a relation is the answer of a query, and which releases it was made of."""
    _answers[relation] = con, tuple(releases)


def html_of(relation: duckdb.DuckDBPyRelation) -> str | None:
    """Return a relation as a card, or None if it is not one of dpsql's: then it is shown as it is without dpsql.

    Privacy: reads books and plans alone, which are recognised by their columns before a row is fetched.
    """
    columns = set(relation.columns)
    if columns == _EXPLAINED:
        return _card(_explained(relation.fetchall()), more=False)
    for needed, card in ((_BUDGET, _budget), (_LEDGER, _ledger), (_PLAN, _plan), (_RELEASES, _releases)):
        if needed <= columns:
            rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.limit(_MOST_ROWS + 1).fetchall()]
            return _card(card(rows[:_MOST_ROWS]), len(rows) > _MOST_ROWS)
    if relation in _answers:
        fetched = relation.limit(_MOST_ROWS + 1).fetchall()
        return _card(_answered(relation.columns, fetched[:_MOST_ROWS], *_answers[relation]), len(fetched) > _MOST_ROWS)
    own = getattr(type(relation), "_repr_html_", None)
    return str(own(relation)) if callable(own) else None


def combined_html(combined: Combined) -> str:
    """Return a combined estimate as a card."""
    rows = [(name.replace("_", " "), number(value, 5)) for name, value in asdict(combined).items()]
    return _card(table(["", ""], rows, label="combined estimate", numeric=(1,)), more=False)


def _card(body: str, more: bool) -> str:
    rest = f'<p style="{_MUTED}">The first {_MOST_ROWS} are shown.</p>' if more else ""
    return f'<div class="dpsql" style="max-width:60em">{body}{rest}</div>'


def gauge(share: float, label: str) -> str:
    """Return a bar: how much of a limit is spent, from 0 to 1."""
    colour = _BAD if share > 0.9 else _SPENT
    return (
        f'<svg viewBox="0 0 400 16" width="400" height="16" role="img" aria-label="{text(label)}" style="max-width:100%">'
        f'<title>{text(label)}</title><rect width="400" height="16" rx="4" fill="{_LEFT}"/>'
        f'<rect width="{400 * share:.1f}" height="16" rx="4" fill="{colour}"/></svg>'
    )


def _budget(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>No table is protected yet.</p>"
    return "".join(_one_budget(row) for row in rows)


def _one_budget(row: Mapping[str, Any]) -> str:
    if row["epsilon"] is None or row["epsilon_spent"] is None:  # the books were edited beyond reading
        why = text(row.get("books") or "the ledger was edited")
        name = f"<strong>{text(row['source'])}</strong>"
        return f'<div style="margin:.5em 0">{name} <strong style="color:{_BAD}">{why}</strong></div>'
    used = float(row["share_used"])
    share = at_most(100 * used)
    label = f"{number(share, 3)} % of the budget of {row['source']} is spent"
    condition = "the ledger was edited" if not row["chain_holds"] else row.get("books") or "intact"
    broken = "" if condition == "intact" else f' <strong style="color:{_BAD}">{text(condition)}</strong>'
    unit = "one row" if row.get("privacy_unit") is None else f"all rows of one {row['privacy_unit']}"
    line = (
        f"epsilon {number(row['epsilon_spent'], 5)} of {number(row['epsilon'], 5)} spent; "
        f"one more release can have {number(row['epsilon_left'], 5)}; "
        f"delta {number(row['delta'])}; {row['releases']} releases; unit: {unit}"
    )
    return (
        f'<div style="margin:.5em 0"><div><strong>{text(row["source"])}</strong> {number(share, 3)} % spent{broken}</div>'
        f'{gauge(used, label)}<div style="{_MUTED}">{text(line)}</div></div>'
    )


def _explained(rows: Sequence[tuple[str, str]]) -> str:
    """Return the explanation of an answer; what an explanation is about is said once."""
    before = ["", *(about for about, _ in rows)]
    shown = [("" if about == last else about, words) for (about, words), last in zip(rows, before, strict=False)]
    return table(["", ""], shown, label="explanation")


def _answered(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], con: duckdb.DuckDBPyConnection, releases: Sequence[str]
) -> str:
    """Return an answer with its intervals beside the numbers; under it, which rows count and what they cost."""
    places = {name: place for place, name in enumerate(columns)}
    bounded = [name for name in columns if {f"{name}_low", f"{name}_high"} <= places.keys()]
    ends = {name: (places[f"{name}_low"], places[f"{name}_high"]) for name in bounded}
    beside = {place for pair in ends.values() for place in pair}
    head = [name for place, name in enumerate(columns) if place not in beside]
    shown = []
    for row in rows:
        cells = []
        for name in head:
            low, high = (_value(row[place]) for place in ends[name]) if name in ends else ("", "")
            cells.append(f"{_value(row[places[name]])} ({low} to {high})" if name in ends else _value(row[places[name]]))
        shown.append(cells)
    numeric = [i for i, name in enumerate(head) if any(isinstance(row[places[name]], (int, float)) for row in rows)]
    sentences: dict[str, None] = {}
    for release in releases:
        with suppress(duckdb.Error):  # of a database that is no longer in use here
            explained = con.cursor().execute("FROM dp_explain(?)", [release]).fetchall()
            sentences.update(dict.fromkeys(str(said_) for about, said_ in explained if about in ("rows", "price")))
    lines = "".join(f"<div>{text(line)}</div>" for line in sentences)
    return table(head, shown, label="answer", numeric=numeric) + f'<div style="{_MUTED}">{lines}</div>'


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number(value, 5) if is_number else str(value)


def _moment(value: Any) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value or "")


def _figure(value: Any, digits: int = 4) -> str:
    return "" if value is None else number(float(value), digits)


def _ledger(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["source", "entry", "written at (UTC)", "action", "release", "epsilon", "delta", "hash", "chain holds"]
    shown = [
        (
            row["source"], row["entry"], _moment(row["written_at"]), row["action"] or "", row["release"] or "",
            "" if row["epsilon"] is None else number(at_most(float(row["epsilon"])), 5),
            "" if row["delta"] is None else number(float(row["delta"])),
            f"{(row['hash'] or '')[:12]}…", "yes" if row["chain_holds"] else "NO",
        )
        for row in rows
    ]
    return table(head, shown, label="ledger", numeric=(1, 5, 6))


def _releases(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["release", "operation", "source", "rows", "epsilon", "delta", "status", "charged at (UTC)"]
    shown = [
        (
            row["release"], row["operation"], row["source"], row["filters"] or "all", _figure(row["epsilon"], 5),
            _figure(row["delta"]), row["status"], _moment(row["charged_at"]),
        )
        for row in rows
    ]
    return table(head, shown, label="releases", numeric=(4, 5))


def _plan(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(_one_plan(row) for row in rows)


def _one_plan(row: Mapping[str, Any]) -> str:
    verdict = "bought already: free" if row["bought"] else "fits the budget" if row["affordable"] else "does NOT fit the budget"
    colour = "inherit" if row["affordable"] or row["bought"] else _BAD
    errors = ", ".join(
        f"{k}-way ± {number(row[f'expected_error_{k}way'], 3)}" for k in (1, 2, 3) if row[f"expected_error_{k}way"] is not None
    )
    what = f"{row['operation']}{' by ' + row['method'] if row['method'] else ''}"
    lines = [
        ("cost", f"epsilon {number(row['epsilon'], 5)}, delta {number(row['delta'])}, rho {number(row['rho'], 4)}"),
        ("left after it", f"epsilon {number(row['epsilon_left_after'], 5)}"),
        ("measures", row["measures"]),
        ("noise", f"{row['mechanism']}, scale {number(row['noise_scale'])}"),
    ]
    if row["operation"] == "query":  # how large the noise is on what is asked stands in the notes
        lines.append(("groups by", ", ".join(row["columns"] or []) or "none"))
    else:
        lines.append(("mean error of a count", errors or "–"))
        lines.append(("columns", ", ".join(row["columns"] or [])))
        lines.append(("left out", ", ".join(row["left_out"] or []) or "none"))
    notes = "".join(f"<li>{text(note)}</li>" for note in row["notes"] or [])
    return (
        f'<div><strong>{text(what)}</strong> <span style="color:{colour}">{text(verdict)}</span> '
        f'<span style="{_MUTED}">(a plan: nothing is charged)</span></div>{table(["", ""], lines, label="plan")}'
        + (f"<ul>{notes}</ul>" if notes else "")
    )
