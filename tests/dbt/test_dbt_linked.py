"""Linked tables in dbt: links in schema.yml, models over linked tables that are charged to the root."""

from __future__ import annotations

import duckdb
import pytest

pytest.importorskip("dbt.adapters.duckdb")

from dbt_projects import dbt, project
from dpsql.udfs import instance_of

import dpsql
from dpsql.dbt import links
from dpsql.dbt.nodes import node
from dpsql.errors import DpsqlError
from dpsql.session.instance import open_context

TABLES = """
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id), cost INTEGER);
CREATE TABLE procedures (visit_id INTEGER, urgent BOOLEAN);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2] FROM range(300) t(i);
INSERT INTO visits SELECT i, i // 3, i % 500 FROM range(900) t(i);
INSERT INTO procedures SELECT i // 2, i % 4 = 0 FROM range(1000) t(i);
"""
SCHEMA = """
sources:
  - name: raw
    schema: main
    tables:
      - name: procedures
        config: {meta: {dpsql: {link: {column: visit_id, parent: visits, max_rows: 3}}}}
      - name: visits
        config: {meta: {dpsql: {link: {max_rows: 5}, rules: ['cost >= 0', 'count(*) FILTER (WHERE cost < 125) <= 1']}}}
        columns: [{name: cost, config: {meta: {dpsql: {lower: 0, upper: 500, bins: 4, nullable: false}}}}]
      - name: patients
        config: {meta: {dpsql: {protect: {epsilon: 3, delta: 1e-9, privacy_unit: patient_id}}}}
        columns: [{name: sex, config: {meta: {dpsql: {categories: [f, m], nullable: false}}}}]
"""
FILES = {
    "schema.yml": SCHEMA,
    "by_sex.sql": "{{ config(materialized='dp_query', epsilon=0.5) }} select p.sex, count(*) as n, avg(v.cost) as cost "
    "from {{ source('raw', 'visits') }} v join {{ source('raw', 'patients') }} p using (patient_id) group by p.sex",
    "copy.sql": "{{ config(materialized='dp_synthetic', epsilon=0.5, seed=1) }} select cost from {{ source('raw', 'visits') }}",
    "urgent.sql": "{{ config(materialized='dp_query', epsilon=0.5) }} select urgent, count(*) as n from {{ source('raw', 'procedures') }} "
    "group by urgent",
}
BOOK = ["sql", "SELECT count(*) FROM dpsql.ledger"]


def test_models_over_linked_tables_are_charged_to_the_root(tmp_path):
    folder = project(tmp_path / "p", TABLES, FILES)
    built, charged, linked, rules, book, again, same = dbt(
        folder, ["build"],
        ["sql", "SELECT source, parameters -> '$.linked.tables' FROM dpsql.ledger WHERE action = 'charge' ORDER BY ALL"],
        ["sql", "SELECT source, action FROM dpsql.ledger WHERE action IN ('link', 'linked') ORDER BY ALL"],
        ["sql", "SELECT rule FROM dpsql.rules ORDER BY ALL"], BOOK, ["build"], BOOK,
    )  # fmt: skip
    assert built["success"] and {"by_sex", "copy", "urgent"} <= set(built["nodes"]), built
    assert [source for source, _ in charged] == ["main.patients"] * 3
    assert sorted(tables for _, tables in charged)[0] == '["main.patients","main.procedures","main.visits"]'
    assert linked == [["main.patients", "link"]] * 2 + [["main.procedures", "linked"], ["main.visits", "linked"]]
    assert rules == [['"cost" >= 0'], ['count(*) FILTER (WHERE "cost" < 125) <= 1']]
    assert again["success"] and same == book, again


def test_links_say_where_they_are_wrong():
    item = {"label": "source raw.t", "relation": "t", "kind": "source", "columns": {}}
    for meta, expected in (
        ({"link": {"to": "a"}}, "source raw.t, link: meta dpsql has no key 'to'; it takes column, parent"),
        ({"link": "a"}, "source raw.t, link: 'a' is not a mapping"),
        ({"link": {}, "protect": {"epsilon": 1}}, "source raw.t: a linked table is under its root's budget"),
    ):
        with pytest.raises(DpsqlError, match=expected):
            node({**item, "meta": meta})


def test_a_circle_of_links_is_refused():
    nodes = [
        node({"label": name, "name": name, "group": "raw", "relation": name, "kind": "source", "meta": {"link": {"parent": parent}}})
        for name, parent in (("a", "b"), ("b", "a"))
    ]
    with pytest.raises(DpsqlError, match="circle"):
        links.apply(None, nodes, nodes)  # type: ignore[arg-type]


def test_a_link_waits_for_a_parent_that_the_run_makes():
    parent = node({"label": "model a", "name": "a", "group": "", "relation": "a", "kind": "model", "meta": {"protect": {"epsilon": 1}}})
    link = {"column": "id", "parent": "a", "max_rows": 2}
    child = node({"label": "model b", "name": "b", "group": "", "relation": "b", "kind": "model", "meta": {"link": link}})
    with duckdb.connect() as con:
        con.execute("CREATE TABLE b (id INTEGER)")
        dpsql.load(con)
        instance = instance_of(con)
        assert instance is not None
        with open_context(instance, "memory", "main") as context:
            assert links.apply(context, [child], [parent, child]) == {"model b": ["model b: its parent a is not there yet"]}
        con.execute("CREATE TABLE a (id INTEGER PRIMARY KEY); CALL dp_protect('a', epsilon := 1, delta := 1e-9)")
        with open_context(instance, "memory", "main") as context:
            assert links.apply(context, [child], [parent, child]) == {"model b": []}
        assert con.execute("SELECT parent, max_rows FROM dp_links()").fetchall() == [("main.a", 2)]
