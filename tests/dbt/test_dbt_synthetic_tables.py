"""Linked tables in dbt: links in schema.yml, and a model for each table of one release that is charged once."""

from __future__ import annotations

import pytest

pytest.importorskip("dbt.adapters.duckdb")

from dbt_projects import CHARGES, dbt, project

TABLES = """
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR, note VARCHAR);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id), cost INTEGER, day DATE);
CREATE TABLE procedures (procedure_id INTEGER PRIMARY KEY, visit_id INTEGER, urgent BOOLEAN);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2], 'n' || i FROM range(300) t(i);
INSERT INTO visits SELECT i, i // 3, i % 500, DATE '2024-01-01' + (i % 300)::INTEGER FROM range(900) t(i);
INSERT INTO procedures SELECT i, i // 2, i % 4 = 0 FROM range(1000) t(i);
"""
SCHEMA = """
sources:
  - name: raw
    schema: main
    tables:
      - name: procedures
        config: {meta: {dpsql: {link: {column: visit_id, parent: visits, max_rows: 3}}}}
      - name: visits
        config: {meta: {dpsql: {link: {max_rows: 5, order_by: %s}}}}
        columns:
          - {name: cost, config: {meta: {dpsql: {lower: 0, upper: 500, bins: 4, nullable: false}}}}
          - {name: day, config: {meta: {dpsql: {lower: '2024-01-01', upper: '2024-12-31', bins: 4, nullable: false}}}}
      - name: patients
        config:
          meta:
            dpsql:
              protect: {epsilon: 3, delta: 1e-9, privacy_unit: patient_id, max_contributions: 1}
              synthesize: {epsilon: %s, options: {effort: fast}}
        columns: [{name: sex, config: {meta: {dpsql: {categories: [f, m], nullable: false}}}}]
models:
  - name: synth_visits
    columns:
      - name: patient_id
        data_tests: [{relationships: {arguments: {to: ref('synth_patients'), field: patient_id}}}]
"""
MODEL = "{{ config(materialized='dp_synthetic_table') }} select %s from {{ source('raw', '%s') }}"
FILES = {
    "synth_patients.sql": MODEL % ("*", "patients"),
    "synth_visits.sql": MODEL % ("day, patient_id, cost", "visits"),
    "synth_procedures.sql": MODEL % ("*", "procedures"),
    "later.sql": "select count(*) as n from {{ ref('synth_visits') }} join {{ ref('synth_patients') }} using (patient_id)",
}
MODELS = ("synth_patients", "synth_visits", "synth_procedures")
ORPHANS = ["sql", """SELECT (SELECT count(*) FROM synth_visits WHERE patient_id NOT IN (SELECT patient_id FROM synth_patients)),
    (SELECT count(*) FROM synth_procedures WHERE visit_id NOT IN (SELECT visit_id FROM dpsql_main_patients.visits)),
    (SELECT count(*) FROM synth_visits) = (SELECT count(*) FROM dpsql_main_patients.visits),
    (SELECT count(*) FROM synth_procedures) > 0, (SELECT n FROM later) = (SELECT count(*) FROM synth_visits)"""]
COMMENTS = ["sql", "SELECT DISTINCT comment FROM duckdb_tables() WHERE schema_name = 'main' AND table_name LIKE 'synth%'"]
HASHES = ["sql", "SELECT (SELECT sum(hash(p)) FROM synth_patients p), (SELECT sum(hash(v)) FROM synth_visits v), (SELECT sum(hash(p)) FROM synth_procedures p)"]


def files(order: str = "day", epsilon: str = "1.5", **more: str) -> dict[str, str]:
    return {**FILES, "schema.yml": SCHEMA % (order, epsilon), **more}


WRONG = {
    "joined.sql": MODEL % ("*", "visits") + " join {{ source('raw', 'patients') }} using (patient_id)",
    "filtered.sql": MODEL % ("*", "visits") + " where cost > 3",
    "computed.sql": MODEL % ("cost + 1 as cost", "visits"),
    "nested.sql": "{{ config(materialized='dp_synthetic_table') }} select * from (select * from {{ source('raw', 'visits') }})",
    "unknown.sql": MODEL % ("note", "patients"),
    "own.sql": "{{ config(materialized='dp_synthetic_table', epsilon=1.0) }} select * from {{ source('raw', 'visits') }}",
}
BOOK = ["sql", "SELECT source, action FROM dpsql.ledger ORDER BY ALL"]


def test_all_models_are_of_one_release_that_is_charged_once(tmp_path):
    """One project from the first run to one that would cost too much: each run of dbt takes a second."""
    folder = project(tmp_path / "p", TABLES, files("''", **WRONG))
    names = [name.removesuffix(".sql") for name in WRONG]
    refused, book, missing, same_book, nothing, _, one, charged, built, orphans, ordered, hashes, charges, columns, *more = dbt(
        folder, ["run", "--select", *names], BOOK, ["run", "--select", "later"], BOOK, CHARGES,
        ["write", "models/schema.yml", files()["schema.yml"]],
        ["run", "--select", "synth_procedures"], CHARGES, ["build", "--exclude", *names], ORPHANS,
        ["sql", "SELECT count(*) FROM dpsql_main_patients.visits v JOIN dpsql_main_patients.visits w "
         "ON v.patient_id = w.patient_id AND w.visit_id = v.visit_id + 1 WHERE w.day < v.day"], HASHES, CHARGES,
        ["sql", "SELECT column_name FROM duckdb_columns() WHERE table_name LIKE 'synth%' ORDER BY table_name, column_index"],
        ["run", "--select", "synth_visits", "--full-refresh"], HASHES, COMMENTS,
        ["show", "--select", "synth_patients", "--limit", "2"], CHARGES,
        ["write", "models/schema.yml", files(epsilon="2.9, release: again")["schema.yml"]], ["run", "--select", *MODELS], CHARGES,
    )
    again, same, comments, shown, still, _, dear, after = more
    assert {name for name, (status, _) in refused["nodes"].items() if status == "error"} == set(names), refused
    for name in ("joined", "filtered", "computed", "nested"):
        assert "may only name columns of one linked table" in refused["nodes"][name][1], refused["nodes"][name]
    assert "'note' is no column of the synthetic patients" in refused["nodes"]["unknown"][1]
    assert "has no release of its own" in refused["nodes"]["own"][1]
    assert not missing["success"]  # synth_visits is not there yet
    assert ["main.patients", "link"] in book and book == same_book, "links are written once"
    assert nothing == []
    assert one["success"] and {name for name in one["nodes"] if not name.startswith("dpsql-on")} == {"synth_procedures"}, one
    assert len(charged) == 1 and charged[0][0].startswith("patients-synthesize_tables-patients_default-"), charged
    assert built["success"] and set(MODELS) <= set(built["nodes"]), built
    assert orphans == [[0, 0, True, True, True]]
    assert ordered == [[0]], "the order was declared by the second schema.yml"
    assert charges == charged == still == after
    assert [name for (name,) in columns] == [
        "patient_id", "sex", "procedure_id", "visit_id", "urgent", "day", "patient_id", "cost",
    ]
    assert again["success"] and same == hashes
    assert comments == [[f"dpsql release: {charged[0][0]}"]]
    assert shown["success"] and "patient_id" in shown["printed"], shown
    assert not dear["success"]
    assert all("budget" in dear["nodes"][name][1] for name in MODELS), dear["nodes"]


def test_odd_names(tmp_path):
    tables = """
        CREATE TABLE "Order" ("select" INTEGER PRIMARY KEY, "größe <b>" VARCHAR);
        CREATE TABLE "lí""ne" ("group" INTEGER, "select" INTEGER, x BOOLEAN);
        INSERT INTO "Order" SELECT i, ['a', 'b'][1 + i % 2] FROM range(200) t(i);
    """  # the child is empty
    schema = """
sources:
  - name: raw
    schema: main
    tables:
      - name: orders
        identifier: Order
        quoting: {identifier: true}
        config: {meta: {dpsql: {protect: {epsilon: 3, delta: 1e-9}, synthesize: {epsilon: 2, options: {effort: fast}, into_schema: 'My "copy"'}}}}
        columns: [{name: "größe <b>", config: {meta: {dpsql: {categories: [a, b]}}}}]
      - name: lines
        identifier: 'lí""ne'
        quoting: {identifier: true}
        config: {meta: {dpsql: {link: {column: select, parent: orders, max_rows: 3}}}}
"""
    folder = project(
        tmp_path / "p", tables,
        {"schema.yml": schema, "o.sql": MODEL % ('"größe <b>", "select"', "orders"), "l.sql": MODEL % ("*", "lines")},
    )
    built, rows, there, charges = dbt(
        folder, ["run"],
        ["sql", 'SELECT count(*) FROM l WHERE "select" NOT IN (SELECT "select" FROM o)'],
        ["sql", "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'My \"copy\"' ORDER BY ALL"], CHARGES,
    )
    assert built["success"], built
    assert rows == [[0]] and len(there) == 2 and len(charges) == 1


def test_dp_within_error_says_what_to_do_instead():
    import duckdb
    from dpsql.udfs import instance_of

    import dpsql
    from dpsql.dbt import models
    from dpsql.errors import ReleaseError
    from dpsql.session.instance import open_context

    with duckdb.connect() as con:
        con.execute("CREATE TABLE a (id INTEGER PRIMARY KEY, x BOOLEAN); CREATE TABLE b (id INTEGER, x BOOLEAN)")
        dpsql.load(con)
        con.execute("CALL dp_protect('a', epsilon := 3, delta := 1e-9); CALL dp_link('b', 'id', parent := 'a', max_rows := 2)")
        bought = con.execute("FROM dp_synthesize_tables('a', epsilon := 1, into_schema := 's', options := {effort: 'fast'})").fetchall()
        with open_context(instance_of(con), "memory", "main") as context, pytest.raises(ReleaseError, match="dp_report"):
            models.within_error(context, {"relation": "s.b", "max_tvd": 0.5, "release": bought[0][3]})
