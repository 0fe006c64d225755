"""The room against an analyst who wants more than releases: refused with the reason expected, or answered without what is hidden."""

from __future__ import annotations

import re

import pytest
from case_counts import cases
from hostile_statements import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_room import SENTINEL, Served

from dpsql.serve.gate import functions, reasons, shapes, walk
from dpsql.serve.passed import Refused

OTHERWISE = {
    "SHOW payroll": "table",
    "WITH c AS MATERIALIZED (FROM raw_notes) SELECT 1": "syntax_part",
    "RESET ALL": "syntax",
    "COPY (SELECT 1) TO PROGRAM 'sh'": "syntax",
}
"""Refused for another reason by DuckDB 1.4 or 2.0, whose trees differ."""
DEEP = (
    "SELECT " + "(" * 3000 + "1" + ")" * 3000, "FROM (" * 400 + "payroll" + ")" * 400, "SELECT " + "-" * 5000 + "1", "SELECT " + "(" * 50_000, "SELECT " + "- " * 40_000,
    "SELECT " + "-+" * 40_000, "SELECT " + "( /* ) */" * 9_000, "SELECT " + "(- " * 30_000, "SELECT " + "[{" * 40_000, "FROM wards WHERE " + "(')'||" * 9_000, "SELECT " + "- /**/" * 9_000 + "1",
    "SELECT " + "NOT (" * 9_000,
)  # fmt: skip
HARMLESS = {
    "SELECT 1 /*! FROM payroll */": [(1,)],
    "/*!50000 SELECT 1 */ SELECT 2": [(2,)],
    "SELECT 'FROM payroll'": [("FROM payroll",)],
    "SELECT $$; DROP TABLE wards$$": [("; DROP TABLE wards",)],
    "SELECT table_name FROM information_schema.tables WHERE table_name IN ('payroll', 'raw_notes', 'ledger')": [],
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'payroll'": [],
    "SELECT estimated_size, sql FROM duckdb_tables() WHERE table_name = 'visits'": [],
    "SELECT max(estimated_size) FROM duckdb_tables()": [(None,)],
    "SELECT count(*) FROM duckdb_columns() WHERE column_default IS NOT NULL": [(0,)],
    "SELECT view_name FROM duckdb_views() WHERE view_name LIKE '%payroll%'": [],
    "SELECT DISTINCT schema_name FROM duckdb_schemas() ORDER BY ALL": [("main",), ("other",)],
    "SELECT database_name, path FROM duckdb_databases()": [("census", None)],
    "SELECT name FROM (SHOW TABLES) WHERE name LIKE '%l%'": [],
    "SELECT source FROM dp_budget() ORDER BY ALL": [("main.visits",)],
    "SELECT anchor FROM dp_budget()": [(None,)],
    "FROM dp_ledger() WHERE who <> 'analyst alice'": [],
    "FROM dp_ledger() WHERE action = 'protect'": [],
    "FROM dp_releases() WHERE source = 'main.payroll'": [],
    "SELECT count(*), sum(cost), max(file) FROM visits WHERE 1 = 0": [(0, None, None)],
    "SELECT file FROM visits LIMIT 0": [],
    "SELECT * FROM over_visits WHERE false": [],
    "WITH payroll AS (SELECT 5 AS x) FROM payroll": [(5,)],
    "WITH visits AS (SELECT 5 AS x) SELECT x FROM visits": [(5,)],
    "SELECT number FROM over_notes": [(0,)],
}
"""Answered from names, types and public rows."""
PRICED = (
    "SELECT any_value(file) FROM visits", "SELECT first(file) FROM visits", "SELECT last(cost) FROM visits", "SELECT list(file) FROM visits",
    "SELECT string_agg(ward, ',') FROM visits", "SELECT arg_max(file, cost) FROM visits", "SELECT max(file) FROM visits",
    "SELECT min_by(file, cost) FROM visits", "SELECT histogram(file) FROM visits", "SELECT mode(file) FROM visits",
    "SELECT approx_count_distinct(file) FROM visits", "SELECT patient, count(*) FROM visits GROUP BY patient",
    "SELECT DISTINCT patient FROM visits", "SELECT DISTINCT file FROM visits", "SELECT file FROM visits WHERE cost > 5 GROUP BY file",
    "SELECT count(*) OVER () FROM visits", "SELECT row_number() OVER () FROM visits", "SELECT sum(cost) OVER (PARTITION BY ward) FROM visits",
    "SELECT cost, count(*) FROM visits GROUP BY ALL", "SELECT count(*), (SELECT max(file) FROM visits) FROM wards",
    "SELECT beds, (SELECT count(*) FROM visits v WHERE v.ward = w.ward) FROM wards w", "SELECT avg(CASE WHEN patient = 7 THEN cost END) FROM visits",
    "SELECT sum(cost) FILTER (WHERE file = 987654321) FROM visits", "SELECT count(*) FROM visits HAVING count(*) > 6000",
    "SELECT CASE WHEN count(*) > 6000 THEN file END FROM visits", "SELECT count(*) FROM visits WHERE file = 987654321",
    "SELECT bit_xor(file) FROM visits", "SELECT sum(hash(file)) FROM visits", "SELECT product(cost) FROM visits", "SELECT entropy(ward) FROM visits",
    "SELECT max(ward || file) FROM visits", "SELECT count(*) FROM visits WHERE 1 / (cost - 5) > 0", "SELECT sum(CAST(ward AS INTEGER)) FROM visits",
    "SELECT count(DISTINCT file) FROM visits WHERE cost > 5", "SELECT quantile_disc(file, 0.5) FROM visits", "SELECT max(struct_pack(a := file)) FROM visits",
    "SELECT count(*) FROM visits a JOIN visits b USING (patient)", "SELECT max(to_json(v)) FROM visits v", "SELECT count(*) FROM visits, visits v",
    "SELECT count(*) FROM visits UNION ALL SELECT file FROM visits", "SELECT ward FROM wards UNION ALL SELECT max(ward) FROM visits",
    "SELECT count(*) FROM visits ORDER BY (SELECT max(file) FROM visits)", "SELECT count(*) FROM visits LIMIT (SELECT max(file) FROM visits)",
)  # fmt: skip
"""Aggregates that show rows, or have to be noisy: refused, or charged."""
EXPRESSIONS = (
    "SELECT {e} AS v FROM wards", "SELECT beds FROM wards WHERE {e} IS NULL", "SELECT beds FROM wards ORDER BY {e}",
    "SELECT max({e}) FROM wards", "SELECT beds FROM wards LIMIT (SELECT 1 WHERE {e} IS NULL)", "SELECT list_transform([1], lambda q: {e})",
    "VALUES ({e})", "SELECT beds FROM wards GROUP BY beds HAVING max(beds) IS DISTINCT FROM {e}", "SELECT sum(beds) OVER (ORDER BY {e}) FROM wards",
    "SELECT CASE WHEN beds = 1 THEN {e} END FROM wards", "WITH c AS (SELECT {e} AS v) FROM c", "SELECT DISTINCT ON ({e}) beds FROM wards",
    "SELECT beds FROM wards JOIN wards p USING (beds) WHERE {e} IS NULL", "SELECT count(*) FILTER (WHERE {e} IS NULL) FROM wards",
    "SELECT coalesce(NULL, {e})", "FROM unnest([{e}])", "SELECT * REPLACE ({e} AS beds) FROM wards", "SELECT beds FROM wards QUALIFY {e} IS NULL",
)  # fmt: skip
RELATIONS = (
    "SELECT * FROM {r} AS k", "FROM wards, {r} AS k", "FROM wards LEFT JOIN {r} AS k ON true", "WITH c AS (FROM {r}) FROM c",
    "WITH c AS (FROM {r}) SELECT (SELECT count(*) FROM c)", "SELECT 1 FROM wards UNION ALL SELECT 2 FROM {r} AS k", "SUMMARIZE FROM {r}",
    "WITH wards AS (FROM {r}) FROM wards", "FROM wards WHERE beds IN (SELECT 1 FROM {r} AS k)", "FROM (FROM (FROM {r}))", "SELECT EXISTS (FROM {r})",
    "WITH payroll AS (FROM wards), raw_notes AS (FROM payroll) SELECT * FROM raw_notes, {r} AS k",
)  # fmt: skip
BAD = ("payroll", "raw_notes", "main.payroll", "hospital.main.raw_notes", "over_payroll", "query('FROM payroll')", "query_table('raw_notes')",
       "leaks()", "duckdb_settings()", '"PAYROLL"', "(FROM raw_notes)", "dpsql.ledger")  # fmt: skip
BAD_VALUES = ("leak()", "(SELECT max(x) FROM payroll)", "stats(1)", "getvariable('x')", "current_setting('threads')", "(FROM raw_notes)",
              "list_aggregate([1], 'max')", "main.leak()", "__dp_instance()")  # fmt: skip
GOOD = ("wards", "main.wards", "over_wards", "(SELECT 1 AS beds)", "range(3)")
GOOD_VALUES = ("1", "'x'", "(SELECT max(beds) FROM wards)", "abs(-1)")
QUICK = settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def test_there_are_enough() -> None:
    """At least 300 statements, each once."""
    listed = [text for texts in HOSTILE.values() for text in texts]
    assert len(set(listed)) == len(listed) >= 600


@pytest.mark.parametrize("reason", HOSTILE)
def test_refused(hospital: Served, reason: str) -> None:
    """Each is refused for the reason expected, on one line that shows no hidden value; nothing is changed or charged."""
    before, wrong = hospital.state(), []
    for text in HOSTILE[reason]:
        found = hospital.refused(text)
        expected = (reason, OTHERWISE.get(text))
        if not isinstance(found, reasons.Refusal) or found.reason not in expected:
            wrong.append((text, found.kind, found.text))
        assert "\n" not in found.text and len(found.text) < 400 and str(SENTINEL) not in found.text
    assert wrong == []
    assert hospital.state() == before


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_ones(hospital: Served, text: str) -> None:
    """Nesting that no parser follows is refused, and kills nothing."""
    assert str(SENTINEL) not in seen(hospital, text)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless(hospital: Served, text: str) -> None:
    """What sounds hostile and is answered, is from names, types and public rows; it costs nothing."""
    before = hospital.state()
    assert hospital.ask(text) == HARMLESS[text]
    assert hospital.state() == before


@pytest.mark.parametrize("text", PRICED)
def test_priced(hospital: Served, text: str) -> None:
    """Aggregates that come close to rows are refused for nothing, or charged, and show no row."""
    before = hospital.charges()
    try:
        rows = hospital.ask(text)
    except Refused as refused:
        assert hospital.charges() == before and "\n" not in refused.text
        shown = refused.text
    else:
        assert hospital.charges() > before
        shown = repr(rows)
    assert not re.search(r"98765(?:4[3-9]|5)\d{3}", shown.replace("file = 987654321", ""))  # 6,007 files in a row


@pytest.mark.parametrize("name", ["payroll", "raw_notes", "over_payroll", "dpsql.ledger", "other.wards", "over_call"])
def test_hidden_is_as_missing(hospital: Served, name: str) -> None:
    """What exists and is hidden gives the text of what does not exist."""
    assert hospital.refused(f"FROM {name}").text == hospital.refused("FROM nothing_of_it").text.replace("nothing_of_it", name)
    asked = "SELECT count(*) FROM {}"
    assert hospital.refused(asked.format(name)).text == hospital.refused(asked.format("nothing_of_it")).text.replace("nothing_of_it", name)


def test_without_grant_a_protected_table_is_not_there(hospital: Served) -> None:
    """An analyst without grants sees public tables alone."""
    assert hospital.refused("SELECT count(*) FROM visits", analyst="carol").kind == "no_table"
    assert hospital.refused("FROM over_visits", analyst="carol").kind == "no_table"
    assert hospital.ask("FROM dp_budget()", analyst="carol") == []
    assert {table.name for table in hospital.room.schema("carol")} == {"wards", "over_wards", "over_notes", "places"}
    assert hospital.ask("SELECT max(beds) FROM wards", analyst="carol") == [(2,)]


def test_one_protected_table_at_a_time(hospital: Served) -> None:
    """Who has two is asked to ask about one after the other."""
    for text in ("SELECT count(*) FROM visits, payroll", "SELECT count(*) FROM visits WHERE cost IN (SELECT x FROM payroll)"):
        assert hospital.refused(text, analyst="dora").reason == "two"  # type: ignore[attr-defined]
    assert hospital.ask("SELECT who FROM payroll LIMIT 0", analyst="dora") == []
    assert hospital.refused("FROM dp_query('SELECT count(*) FROM payroll', epsilon := 1.1)", analyst="dora").text.count("at most 1 here")


def test_schema(hospital: Served) -> None:
    """What an analyst may see, with types; rows of what is protected are not shown."""
    found = {table.name: table for table in hospital.room.schema("alice")}
    assert set(found) == {"wards", "over_wards", "over_visits", "over_notes", "visits", "places"}
    assert [name for name, table in found.items() if table.protected] == ["over_visits", "visits"]
    assert [name for name, table in found.items() if table.is_view] == ["over_notes", "over_visits", "over_wards"]
    assert [(c.name, c.type) for c in found["places"].columns] == [("place", "VARCHAR"), ("width", "DECIMAL(9,2)"), ("since", "DATE")]


def test_the_text_of_a_view_is_not_told(hospital: Served) -> None:
    """Refusals of a question about a view name nothing of its text."""
    for text in ("SELECT sum(nothing) FROM over_visits", "SELECT product(cost) FROM over_visits", "SELECT sum(cost) FROM over_visits, wards LIMIT x"):
        found = hospital.refused(text).text
        assert "file" not in found and str(SENTINEL) not in found


@st.composite
def statements(draw: st.DrawFn, bad: bool) -> str:
    """Return a statement with a hostile part somewhere, or one without, nested at random."""
    relations = RELATIONS[:-1] if bad else RELATIONS  # the last one gives hidden names to public rows
    if draw(st.booleans()):
        text = draw(st.sampled_from(EXPRESSIONS)).format(e=draw(st.sampled_from(BAD_VALUES if bad else GOOD_VALUES)))
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


def seen(hospital: Served, text: str) -> str:
    """Return all that an analyst reads of a statement."""
    try:
        return repr(hospital.ask(text))
    except Refused as refused:
        return refused.text


@QUICK
@given(text=statements(bad=True))
def test_nested(hospital: Served, text: str) -> None:
    """A hostile part in any place of any statement is found."""
    assert isinstance(hospital.refused(text), reasons.Refusal), text


@QUICK
@given(text=statements(bad=False))
def test_nothing_hidden_in_what_is_answered(hospital: Served, text: str) -> None:
    """Statements without such a part show no hidden row."""
    assert str(SENTINEL) not in seen(hospital, text)


def _found(hospital: Served) -> bool:
    """Return whether the statements find a gate that lets one through."""
    for text in (*HOSTILE["function"], *HOSTILE["table"]):
        try:
            hospital.room.ask("alice", text)
        except reasons.Refusal:
            continue
        except Refused:
            return True
        return True
    return False


def test_planted_function(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is taken off the deny side is noticed."""
    monkeypatch.setattr(walk, "FUNCTIONS", functions.FUNCTIONS | {"current_setting"})
    assert _found(hospital)


def test_planted_order(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that skips what stands in ORDER BY is noticed."""
    part = walk.Walk._part

    def skipping(self: walk.Walk, node: dict, name: str, scope: dict) -> None:
        if name not in ("order", "sort"):
            part(self, node, name, scope)

    monkeypatch.setattr(walk.Walk, "_part", skipping)
    assert _found(hospital)


@pytest.mark.parametrize("place", ["query", "expression", "relation"])
def test_unknown_fields(hospital: Served, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """A field that nobody has looked at is refused."""
    shape = {"query": (shapes.QUERIES, "SELECT_NODE"), "expression": (shapes.EXPRESSIONS, "COLUMN_REF"), "relation": (shapes.FROM, "BASE_TABLE")}
    where, name = shape[place]
    gone = {"query": "qualify", "expression": "column_names", "relation": "column_name_alias"}[place]
    monkeypatch.setitem(where, name, {key: rule for key, rule in where[name].items() if key != gone})
    assert hospital.refused("SELECT beds FROM wards").reason == "syntax_part"  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", sorted(reasons.REASONS))
def test_reasons_are_one_line(reason: str) -> None:
    """The analyst's words are cut and made printable."""
    holes = reasons.REASONS[reason][1].count("{}")
    text = reasons.Refusal(reason, *["x\ny\x1b[0m" * 50] * holes).text
    assert text.isprintable() and len(text) < 500
