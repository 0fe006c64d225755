# ruff: noqa: E501 -- statements, one after the other
"""The gate of a served database against an analyst who wants more than releases: every statement of the table is refused, with its
reason, and what is accepted of made-up ones reaches no hidden row.
"""

from __future__ import annotations

import functools

import duckdb
import pytest
from gate_places import Place
from hostile_statements import HOSTILE, SENTINEL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.serve.gate import Accepted, Refused, reasons, shapes, walk
from dpsql.serve.gate.functions import FUNCTIONS

CASES = [(kind, text) for kind, texts in HOSTILE.items() for text in texts]
OTHERWISE = ("SHOW secret", "SELECT NULL::main.mood", "WITH c AS MATERIALIZED (FROM raw) SELECT 1")
"""Refused for another reason by DuckDB 1.4 or 2.0, whose trees differ."""
DEEP = ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "FROM (" * 400 + "secret" + ")" * 400, "SELECT " + "-" * 5000 + "1")
EXPRESSIONS = (
    "SELECT {e} AS v FROM pub", "SELECT a FROM pub WHERE {e} IS NULL", "SELECT a FROM pub ORDER BY {e}", "SELECT max({e}) FROM pub",
    "SELECT a FROM pub LIMIT (SELECT 1 WHERE {e} IS NULL)", "SELECT list_transform([1], lambda q: {e})", "VALUES ({e})",
    "SELECT a FROM pub GROUP BY a HAVING max(a) IS DISTINCT FROM {e}", "SELECT sum(a) OVER (ORDER BY {e}) FROM pub",
    "SELECT CASE WHEN a = 1 THEN {e} END FROM pub", "WITH c AS (SELECT {e} AS v) FROM c", "SELECT a FROM pub JOIN pub p USING (a) WHERE {e} IS NULL",
    "SELECT DISTINCT ON ({e}) a FROM pub", "SELECT count(*) FILTER (WHERE {e} IS NULL) FROM pub", "SELECT coalesce(NULL, {e})",
    "FROM unnest([{e}])", "SELECT * REPLACE ({e} AS a) FROM pub", "SELECT a FROM pub QUALIFY {e} IS NULL",
)  # fmt: skip
RELATIONS = (
    "SELECT * FROM {r} AS k", "FROM pub, {r} AS k", "FROM pub LEFT JOIN {r} AS k ON true", "WITH c AS (FROM {r}) FROM c",
    "WITH c AS (FROM {r}) SELECT (SELECT count(*) FROM c)", "SELECT 1 FROM pub UNION ALL SELECT 2 FROM {r} AS k", "SUMMARIZE FROM {r}",
    "WITH pub AS (FROM {r}) FROM pub", "FROM pub WHERE a IN (SELECT 1 FROM {r} AS k)", "FROM (FROM (FROM {r}))",
    "SELECT EXISTS (FROM {r})", "WITH secret AS (FROM pub), raw AS (FROM secret) SELECT * FROM raw, {r} AS k",
)  # fmt: skip
BAD = ("secret", "raw", "main.secret", "memory.main.raw", "over_secret", "over_raw", "query('FROM secret')", "query_table('raw')",
       "leaks()", "duckdb_settings()", '"SECRET"', "(FROM raw)")  # fmt: skip
BAD_VALUES = ("leak()", "(SELECT max(x) FROM secret)", "stats(1)", "getvariable('x')", "current_setting('threads')",
              "(FROM raw)", "list_aggregate([1], 'max')", "main.leak()")  # fmt: skip
GOOD = ("pub", "main.pub", "over_pub", "(SELECT 1 AS a)", "range(3)", "secret_not")
GOOD_VALUES = ("1", "'x'", "(SELECT max(a) FROM pub)", "abs(-1)")


@functools.cache
def place() -> Place:
    """Return the database; nothing of these tests changes it."""
    return Place()


def seen(accepted: Accepted) -> str:
    """Return all that running what was accepted shows, as text; calls are not run: their sources were checked."""
    if accepted.calls:
        return repr(accepted.calls)
    try:
        return repr(place().con.cursor().execute(accepted.sql).fetchall())
    except duckdb.Error:
        return ""


def test_there_are_enough() -> None:
    """At least 200 statements, each once."""
    assert len({text for _, text in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize(("kind", "text"), CASES, ids=lambda value: repr(value)[:60])
def test_refused(kind: str, text: str) -> None:
    """Each is refused for the reason expected, on one line that shows no hidden value."""
    found = place().decide(text)
    assert isinstance(found, Refused), found
    assert found.kind == kind or (text in OTHERWISE and found.kind in ("show", "type", "syntax_part")), found
    assert "\n" not in found.reason and len(found.reason) < 300 and str(SENTINEL) not in found.reason


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_ones(text: str) -> None:
    """Nesting that no parser follows is refused, and kills nothing."""
    found = place().decide(text)
    assert isinstance(found, Refused) or str(SENTINEL) not in seen(found)


@pytest.mark.parametrize("name", ["secret", "raw", "over_secret", "dpsql.ledger", "other.pub", "over_call"])
def test_hidden_is_as_missing(name: str) -> None:
    """What exists and is hidden gives the text of what does not exist."""
    hidden, missing = place().decide(f"FROM {name}"), place().decide("FROM nothing_of_it")
    assert isinstance(hidden, Refused) and isinstance(missing, Refused)
    assert hidden.reason == missing.reason.replace("nothing_of_it", name)


@st.composite
def statements(draw: st.DrawFn, bad: bool) -> str:
    """Return a statement with a hostile part somewhere, or one without, nested at random."""
    relations = RELATIONS[:-1] if bad else RELATIONS  # the last one gives hidden names to public rows
    as_value = draw(st.booleans())
    if as_value:
        inner = draw(st.sampled_from(BAD_VALUES if bad else GOOD_VALUES))
        text = draw(st.sampled_from(EXPRESSIONS)).format(e=inner)
    else:
        text = draw(st.sampled_from(relations)).format(r=draw(st.sampled_from(BAD if bad else GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        if text.startswith("SUMMARIZE"):
            text = f"SELECT 1 FROM ({text})"
        if draw(st.booleans()):
            text = draw(st.sampled_from(relations)).format(r=f"({text})")
        else:
            text = draw(st.sampled_from(EXPRESSIONS)).format(e=f"(SELECT 1 WHERE EXISTS ({text}))")
    return text


QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@QUICK
@given(statements(bad=True))
def test_nested(text: str) -> None:
    """A hostile part in any place of any statement is found."""
    assert isinstance(place().decide(text), Refused), text


@QUICK
@given(statements(bad=False))
def test_nothing_hidden_in_what_is_accepted(text: str) -> None:
    """Statements without such a part show no hidden row, and most of them are accepted."""
    found = place().decide(text)
    if isinstance(found, Accepted):
        assert str(SENTINEL) not in seen(found)
    else:
        assert "secret_not" in text or found.kind in ("syntax", "read"), found


def _nested_finds() -> bool:
    """Return whether the table of statements finds a gate that lets one through."""
    return any(not isinstance(place().decide(text), Refused) for text in (*HOSTILE["function"], *HOSTILE["table"]))


def test_planted_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is taken off the deny side is noticed."""
    monkeypatch.setattr(walk, "FUNCTIONS", FUNCTIONS | {"current_setting"})
    assert _nested_finds()


def test_planted_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that skips what stands in ORDER BY is noticed."""
    monkeypatch.setitem(shapes.PARTS, "sort", shapes.PARTS["sort"] | {"expression": frozenset(())})
    monkeypatch.setattr(walk.Walk, "_part", _skipping(walk.Walk._part))
    assert _nested_finds()


def _skipping(part):  # type: ignore[no-untyped-def]
    def skipping(self, node, name, scope):  # type: ignore[no-untyped-def]
        if name not in ("order", "sort"):
            part(self, node, name, scope)

    return skipping


def test_unknown_fields() -> None:
    """A node or a field that nobody has looked at is refused."""
    tree = walk.parsed(place().cursor, "SELECT a FROM pub")["statements"][0]["node"]
    for where in (tree, tree["select_list"][0], tree["from_table"]):
        where["of_a_later_version"] = None
        with pytest.raises(reasons.Refusal) as refusal:
            view = place()
            from dpsql.serve.gate import view_of

            walk.Walk(view_of(view.cursor, "memory", "main", "alice", {}, ["main.pub"]), schema="main").query(tree, {})
        assert refusal.value.kind == "syntax_part"
        del where["of_a_later_version"]


@pytest.mark.parametrize("kind", sorted(reasons.REASONS))
def test_reasons_are_one_line(kind: str) -> None:
    """The analyst's words are cut and made printable."""
    holes = reasons.REASONS[kind].count("{}")
    reason = reasons.Refusal(kind, *["x\ny\x1b[0m" * 50] * holes).reason
    assert reason.isprintable() and len(reason) < 400
