"""A linked table in every role of every call: it is never read as if it were public.

Each statement is made over two databases of one schema whose linked tables have no row in common. Either it charges the root, and
its entry names the linked table; or it is free or refused, and says the same over both, letter by letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.calls.declaration import NOT_PRIVATE
from dpsql.calls.registry import WHERE, declaration

pytestmark = pytest.mark.any_duckdb

SCHEMA = """
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER);
CREATE TABLE visits (visit_id BIGINT UNIQUE, patient_id INTEGER, cost INTEGER, note VARCHAR);
CREATE TABLE procedures (visit_id BIGINT UNIQUE, code VARCHAR UNIQUE, weight INTEGER);
CREATE TABLE codes (code VARCHAR);
CREATE TABLE doctors (doctor_id INTEGER PRIMARY KEY, visit_id BIGINT REFERENCES visits (visit_id), rank VARCHAR, cost INTEGER);
CREATE TABLE wards (ward VARCHAR PRIMARY KEY, cost INTEGER UNIQUE);
CREATE VIEW seen AS SELECT * FROM visits;
CREATE VIEW narrow AS SELECT code FROM codes;
INSERT INTO patients SELECT i, CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END, 20 + i % 60 FROM range(20) t(i);
INSERT INTO wards SELECT 'w' || i, i FROM range(5) t(i);
INSERT INTO visits SELECT {0} + i, i % 20, {0} + i % 7, 'note' || ({0} + i) FROM range({1}) t(i);
INSERT INTO procedures SELECT {0} + i, 'code' || ({0} + i), {0} + i FROM range({1}) t(i);
INSERT INTO codes SELECT 'code' || ({0} + i % 3) FROM range({1}) t(i);
INSERT INTO doctors SELECT i, NULL, 'r' || i % 3, i % 5 FROM range(20) t(i);
"""
DECLARED = """
CALL dp_protect('patients', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient_id');
CALL dp_protect('doctors', epsilon := 1000, delta := 1e-9, privacy_unit := 'doctor_id');
CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 5);
CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 2);
CALL dp_link('codes', 'code', parent := 'procedures', parent_column := 'code', max_rows := 2);
CALL dp_declare('patients', 'sex', categories := ['f', 'm'], nullable := false);
FROM dp_query('SELECT count(*) FROM doctors', epsilon := 1);
CALL dp_declare('doctors', 'rank', categories := ['r0', 'r1', 'r2'], nullable := false);
CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4);
CALL dp_declare('visits', 'note', categories := ['a', 'b']);
CALL dp_declare('procedures', 'code', categories := ['a', 'b']);
"""
CHARGED = {
    "marginals": ["FROM dp_marginals('visits', columns := ['cost'], epsilon := 1)", "FROM dp_marginals('seen', columns := ['note'], epsilon := 1)"],
    "aggregates": ["FROM dp_aggregates('visits', reporting_length := 1, columns := ['note'], epsilon := 1, delta := 1e-12)"],
    "histogram": ["FROM dp_histogram('visits', column_name := 'note', epsilon := 1, domain := ['a', 'b'])"],
    "contributions": ["FROM dp_contributions('procedures', epsilon := 1)"],
    "query": [
        "FROM dp_query('SELECT count(*) FROM visits', epsilon := 1)",
        "FROM dp_query('SELECT note, count(*) FROM visits GROUP BY note', epsilon := 1, groups := 'public')",
        "FROM dp_query('SELECT sex, count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id) "
        "GROUP BY sex', epsilon := 1)",
        "FROM dp_query('SELECT count(*) FROM visits v JOIN wards w ON v.cost = w.cost', epsilon := 1)",
        "FROM dp_query('SELECT w.ward, count(*) FROM visits v JOIN wards w ON v.cost = w.cost GROUP BY w.ward', epsilon := 1)",
        "FROM dp_query('SELECT w.ward, count(v.visit_id) FROM wards w LEFT JOIN visits v ON v.cost = w.cost GROUP BY w.ward', epsilon := 1)",
        "FROM dp_query('SELECT count(*) FROM procedures WHERE visit_id IN (SELECT visit_id FROM seen WHERE cost > 3)', epsilon := 1)",
        "FROM dp_query('SELECT avg(p.age) FROM patients p LEFT JOIN visits v USING (patient_id)', epsilon := 1, bounds := {'age': [0, 99]})",
    ],
    "summarize": ["FROM dp_summarize('visits', columns := ['cost'], epsilon := 1)"],
    "synthesize": ["FROM dp_synthesize('visits', columns := ['note'], epsilon := 1, seed := 1)"],
    "synthesize_tables": ["FROM dp_synthesize_tables('patients', epsilon := 1, into_schema := 'synth', units := 5, seed := 1, options := {'effort': 'fast'})"],
    "declare": ["FROM dp_declare('procedures', 'weight', discover := true, epsilon := 1)"],
}
"""What is answered and charged, by call."""
FREE = {
    "protect": [
        "CALL dp_protect('visits', epsilon := 5, delta := 1e-9)", "CALL dp_protect('seen', epsilon := 5)", "CALL dp_protect('codes', resume := true)",
    ],
    "link": [
        "CALL dp_link('patients', 'patient_id', parent := 'visits', parent_column := 'visit_id', max_rows := 1)",
        "CALL dp_link('visits', 'patient_id', parent := 'doctors', max_rows := 1)", "CALL dp_link('visits', 'cost', parent := 'wards', parent_column := 'cost')",
        "CALL dp_link('doctors', 'visit_id', parent := 'visits', max_rows := 1)", "CALL dp_link('seen', 'patient_id', parent := 'patients', max_rows := 1)",
    ],
    "unlink": ["CALL dp_unlink('visits')", "CALL dp_unlink('patients')", "CALL dp_unlink('codes')", "CALL dp_unlink('seen')"],
    "grant": [
        "CALL dp_grant('visits', analyst := 'alice', epsilon := 1)", "CALL dp_grant('seen', analyst := 'alice', epsilon := 1)",
        "FROM dp_grant('codes')", "FROM dp_grant()", "SELECT * FROM dp_grant('doctors', analyst := 'alice', epsilon := 1, columns := ['rank'])",
    ],
    "remote": [
        f"CALL dp_remote('{name}', engine := 'spark', url := 'sc://127.0.0.1:1', relation := 'lake.people')" for name in ("visits", "patients", "seen")
    ],
    "links": ["FROM dp_links()", "FROM dp_links('visits')"],
    "declare": [
        "CALL dp_declare('{}', '{}', categories_from := '{}')".format(*place, taken)
        for place in (("doctors", "rank"), ("patients", "sex"), ("visits", "note"))
        for taken in ("visits.note", "main.visits.note", "memory.main.VISITS.note", "codes.code", "procedures.code", "seen.note", "narrow.code")
    ],
    "rule": ["CALL dp_rule('visits', 'cost >= 0')", "CALL dp_rule('doctors', 'rank IN (SELECT note FROM visits)')"],
    "domain": ["FROM dp_domain('visits')", "FROM dp_domain('doctors')", "FROM dp_domain('seen')"],
    "dummy": ["FROM dp_dummy('visits')", "FROM dp_dummy('seen', rows := 5)"],
    "plan": [
        "SELECT * EXCLUDE (release, bought) FROM dp_plan('visits', columns := ['note'], epsilon := 1, k := 1)",
        "FROM dp_plan('SELECT note, count(*) FROM visits GROUP BY note HAVING count(*) > 9', epsilon := 1)",
        "FROM dp_plan('SELECT d.rank, count(*) FROM doctors d, visits GROUP BY 1', epsilon := 1)",
    ],
    "histogram": [
        f"FROM dp_histogram('{source}', column_name := '{column}', epsilon := 1, domain := '{taken}')"
        for source, column in (("doctors", "rank"), ("patients", "sex"))
        for taken in ("visits.note", "codes", "codes.code", "main.codes", "narrow", "seen.note")
    ],
    "marginals": [
        "FROM dp_marginals('SELECT d.rank, v.cost FROM doctors d JOIN visits v USING (cost)', k := 1, epsilon := 1)",
        "FROM dp_marginals('SELECT p.sex FROM patients p JOIN visits v ON p.age = v.cost', k := 1, epsilon := 1)",
    ],
    "synthesize_tables": [
        "FROM dp_synthesize_tables('visits', epsilon := 1, into_schema := 'synth')", "FROM dp_synthesize_tables('seen', epsilon := 1)",
        "FROM dp_synthesize_tables('doctors', epsilon := 1, into_schema := 'synth')", "FROM dp_synthesize_tables('wards', epsilon := 1)",
    ],
    "synthesize": ["FROM dp_synthesize('SELECT d.rank FROM doctors d WHERE d.cost IN (SELECT cost FROM visits)', epsilon := 1)"],
    "query": [
        f"FROM dp_query('{text}', epsilon := 1{more})"
        for more in ("", ", adaptive := true")
        for text in (
            "SELECT count(*) FROM doctors d JOIN visits v USING (visit_id)",
            "SELECT count(*) FROM doctors d LEFT JOIN codes c ON c.code = d.rank",
            "SELECT count(*) FROM doctors WHERE rank IN (SELECT note FROM seen)",
            "SELECT count(*) FROM doctors d WHERE EXISTS (SELECT 1 FROM visits v WHERE v.visit_id = d.visit_id)",
            "SELECT rank, count(*) FROM doctors GROUP BY rank UNION ALL SELECT note, cost FROM visits",
            "SELECT count(*) FROM (SELECT rank FROM doctors UNION ALL SELECT note FROM visits)",
            "SELECT count(*) FROM (SELECT cost FROM wards UNION ALL SELECT cost FROM visits)",
            "WITH n AS (SELECT count(*) AS n FROM patients) SELECT n, v.note FROM n, visits v",
            "WITH n AS (SELECT count(*) AS n FROM doctors) SELECT n FROM n WHERE n IN (SELECT cost FROM visits)",
            "SELECT note FROM visits", "FROM codes", "SELECT cost, count(*) FROM seen GROUP BY note, cost HAVING max(note) > note",
            "SELECT count(*) FROM patients p JOIN visits v ON p.age = v.cost",
            "SELECT count(*) FROM visits v, procedures q", "SELECT visit_id, count(*) FROM procedures GROUP BY visit_id",
            "SELECT count(*) FROM doctors d SEMI JOIN narrow c ON c.code = d.rank",
        )
    ],
    "summarize": ["FROM dp_summarize('SELECT d.* FROM doctors d JOIN visits USING (visit_id)', epsilon := 1)"],
    "contributions": ["FROM dp_contributions('SELECT v.note FROM visits v JOIN doctors d USING (cost)', epsilon := 1)"],
    "aggregates": ["FROM dp_aggregates('SELECT rank, note FROM doctors, visits', reporting_length := 1, epsilon := 1, delta := 1e-12)"],
    "ledger": ["SELECT source FROM dp_ledger('visits') WHERE action = 'protect'"],
    "budget": ["SELECT source, epsilon FROM dp_budget('visits')", "SELECT source FROM dp_budget()"],
    "releases": ["SELECT count(*) FROM dp_releases('nothing')"],
    "explain": ["FROM dp_explain('visits')"],
    "sample": ["FROM dp_sample('visits')"],
    "export": ["FROM dp_export('visits', path := 'nowhere')"],
    "import": ["FROM dp_import('visits')"],
    "report": ["FROM dp_report('visits', path := 'nowhere')"],
}
"""What is free or refused, by call."""
EXACT = {"query_exact", "evaluate"}
"""For the custodian alone, and said to be."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[duckdb.DuckDBPyConnection]]:
    """Two databases whose linked tables have other rows, and another number of them."""
    found = []
    for first, rows in ((0, 40), (7_000_000, 9)):
        con = duckdb.connect(str(tmp_path_factory.mktemp("clinic") / "memory.duckdb"))
        con.execute(SCHEMA.format(first, rows))
        dpsql.load(con, user="tester", progress=False)
        for statement in DECLARED.strip().splitlines():
            con.execute(statement)
        found.append(con)
    yield found
    for con in found:
        con.close()


def outcome(con: duckdb.DuckDBPyConnection, statement: str) -> tuple[str, object, list[tuple[str, str, set[str]]]]:
    """Return whether a statement is answered or refused, with what, and what it charges: on whose ledger, and which tables it names."""
    query = "SELECT source, query, parameters FROM dpsql.ledger WHERE action = 'charge' ORDER BY written_at"
    before = len(con.execute(query).fetchall())
    try:
        said: tuple[str, object] = ("answered", con.execute(statement).fetchall())
    except duckdb.Error as error:
        said = ("refused", str(error).splitlines()[0])
    rows = con.execute(query).fetchall()[before:]
    return *said, [(source, text, set(json.loads(given).get("linked", {}).get("tables", ()))) for source, text, given in rows]


def listed(calls: dict[str, list[str]]) -> list[object]:
    return [pytest.param(text, id=f"{name} {i}") for name, texts in calls.items() for i, text in enumerate(texts)]


@pytest.mark.parametrize("statement", listed(CHARGED))
def test_what_reads_a_linked_table_charges_its_root_and_says_so(both, statement):
    for con in both:
        kind, said, charged = outcome(con, statement)
        assert kind == "answered" and charged, said
        for source, _, tables in charged:
            assert source == "main.patients" and tables & {"main.visits", "main.procedures"}, (source, tables)


@pytest.mark.parametrize("statement", listed(FREE))
def test_what_is_free_or_refused_does_not_depend_on_a_row_of_a_linked_table(both, statement):
    (kind, said, charged), other = (outcome(con, statement) for con in both)
    assert (kind, said, charged) == other and not charged
    assert "7000" not in str(said) and "code0" not in str(said) and "note0" not in str(said)


def test_every_call_is_walked_through():
    assert set(CHARGED) | set(FREE) | EXACT == set(WHERE)
    assert all(declaration(name).privacy == NOT_PRIVATE for name in EXACT)
