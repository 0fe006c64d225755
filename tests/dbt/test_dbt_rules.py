"""Rules in schema.yml: applied through dp_rule, written once, taken back by name, and obeyed by the rows of a model."""

from __future__ import annotations

import pytest

pytest.importorskip("dbt.adapters.duckdb")

from dbt_projects import CHARGES, dbt, project

TABLES = """CREATE TABLE t AS SELECT 20 + i % 50 AS start, 20 + i % 50 + i % 7 AS "end", i % 3 AS kind FROM range(3000) r(i)"""
SCHEMA = """
sources:
  - name: s
    schema: main
    tables:
      - name: t
        meta: {dpsql: {protect: {epsilon: 9, delta: 1e-9}, rules: [%s]}}
        columns:
          - {name: start, meta: {dpsql: {lower: 0, upper: 100, bins: 10, nullable: false}}}
          - {name: end, meta: {dpsql: {lower: 0, upper: 100, bins: 10, nullable: false}}}
          - {name: kind, meta: {dpsql: {categories: [0, 1, 2], nullable: false}}}
models:
  - name: above
    config: {meta: {dpsql: {rules: ['"double" >= 40', 'later or kind < 5']}}}
    columns: [{name: later, meta: {dpsql: {categories: [true, false], nullable: false}}}]
  - name: below
    columns: [{name: double, meta: {dpsql: {lower: 0, upper: 200, bins: 10, nullable: false}}}]
  - name: synth
    config: {meta: {dpsql: {epsilon: 1.0, rules: ['half <= 34']}}}
    columns: [{name: half, meta: {dpsql: {lower: 0, upper: 50, bins: 5, nullable: false}}}]
"""
FILES = {
    "below.sql": """select *, start * 2 as "double" from {{ source('s', 't') }}""",
    "above.sql": """select *, "end" > start as later from {{ ref('below') }}""",
    "synth.sql": """{{ config(materialized='dp_synthetic', rows=400, release=var('release', 'default')) }}
        select start, "end", "double", later, start // 2 as half, kind from {{ ref('above') }}""",
}
RULES = ["sql", "SELECT source LIKE '%half%', rule FROM dpsql.rules ORDER BY ALL"]
WRITTEN = ["sql", "SELECT rule, written_at FROM dpsql.rules ORDER BY ALL"]
BROKEN = ["sql", """SELECT count(*) FILTER ("end" < start), count(*) FILTER ("double" < 40), count(*) FILTER (half > 34), count(*) FROM synth"""]


def test_rules_are_written_once_and_taken_back_by_name(tmp_path):
    folder = project(tmp_path / "p", TABLES, {**FILES, "schema.yml": SCHEMA % """'"end" >= start', "kind < 9" """})
    without, back = (SCHEMA % rules for rules in ("""'"end" >= start'""", """'"end" >= start', {rule: kind < 9, remove: true}"""))
    first, rules, written, broken, second, again, charges, _, silent, still, _, third, left, _, wrong = dbt(
        folder, ["build"], RULES, WRITTEN, BROKEN, ["build"], WRITTEN, CHARGES, ["write", "models/schema.yml", without], ["build"], RULES,
        ["write", "models/schema.yml", back], ["build"], RULES,
        ["write", "models/schema.yml", SCHEMA % """'"end" >= start', '"end" < start'"""], ["build"],
    )
    assert first["success"], first
    # each rule once, where it was declared; what a model inherits from the table below it is not repeated
    assert len(rules) == 5 and sum(own for own, _ in rules) == 1, rules
    assert broken == [[0, 0, 0, 400]]
    assert second["success"] and again == written and len(charges) == 1
    # what is no longer in schema.yml stays, and dbt says so; remove: true takes it back, repeatedly
    assert silent["success"] and still == rules
    notice = 'source s.t: schema.yml has not the rule "kind" < 9, which was declared; it stays in force'
    assert notice in silent["printed"] and "schema.yml has not the rule" not in first["printed"] + third["printed"]
    assert third["success"] and left == [rule for rule in rules if rule[1] != '"kind" < 9']
    assert not wrong["success"]
    assert "schema.yml, source s.t: rule = " in wrong["printed"] + wrong["exception"]
    assert "contradicts the rule" in wrong["printed"] + wrong["exception"]


def test_rules_say_where_they_are_wrong():
    from dpsql.dbt.nodes import node
    from dpsql.errors import DpsqlError

    item = {"label": "model m", "relation": "m", "kind": "model", "columns": {}}
    for rules, expected in (
        ("a > 1", "model m: rules is 'a > 1', which is no list"),
        ([{"rule": "a > 1", "drop": True}], "model m, rules: meta dpsql has no key 'drop'; it takes rule, remove"),
        ([True], "model m: the rule True is no text; write it in quotes"),
        ([{"remove": True}], "model m: the rule None is no text"),
    ):
        with pytest.raises(DpsqlError, match=expected):
            node({**item, "meta": {"rules": rules}})
