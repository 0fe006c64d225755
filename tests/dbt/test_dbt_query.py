"""Queries in dbt: models select from dp_query, or are the query; one charge, no raw row on the screen."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("dbt.adapters.duckdb")

from dbt_projects import CHARGES, dbt, project
from noisy import near

TABLES = """CREATE TABLE visits AS SELECT i % 500 AS patient, ['it''s', 'b'][1 + i % 2] AS ward, (i % 90)::INTEGER AS age,
    'secret' || i AS note FROM range(4000) t(i)"""
SCHEMA = """
sources:
  - name: s
    schema: main
    tables:
      - name: visits
        meta: {dpsql: {protect: {epsilon: 20, delta: 1e-9, privacy_unit: patient, max_contributions: 8}}}
        columns:
          - {name: ward, meta: {dpsql: {categories: ["it's", b], nullable: false}}}
          - {name: age, meta: {dpsql: {lower: 0, upper: 90, nullable: false}}}
models:
  - name: answer
    config: {meta: {dpsql: {epsilon: 2.0, bounds: {length(note): [0, 20]}, max_groups: 2}}}
    columns: [{name: ward, data_tests: [not_null, unique]}]
"""
ANSWER = """{{ config(materialized='dp_query', confidence=0.95) }}
    select ward, count(*) as n, avg(length(note)) as mean from {{ source('s', 'visits') }}
    where ward in ('it''s', 'b') group by ward order by n desc"""
FILES = {
    "answer.sql": ANSWER,
    "called.sql": """{{ config(materialized='table') }}
        select ward, n from dp_query($$ select ward, count(*) as n from {{ source('s', 'visits') }} where ward = 'it''s' group by ward $$,
            epsilon := 1.0)""",
    "below.sql": "select ward, n / sum(n) over () as share from {{ ref('answer') }}",
}
ROWS = ["sql", "SELECT * FROM answer ORDER BY ALL"]


def test_a_query_is_charged_once(tmp_path):
    folder = project(tmp_path / "p", TABLES, {**FILES, "schema.yml": SCHEMA})
    other = ANSWER.replace("order by n desc", "having n > 0 order by 1")
    changed = ANSWER.replace("where", "where age > 3 and")
    first, charges, rows, again, refreshed, shown, tested, same, _, free, _, refused, _, bought, after, left, _, another = dbt(
        folder, ["build"], CHARGES, ROWS, ["build"], ["run", "--full-refresh"],
        ["show", "-s", "answer", "--limit", "5", "--output", "json"], ["test"], ROWS,
        ["write", "models/answer.sql", other], ["build"], ["write", "models/answer.sql", changed], ["run", "-s", "answer"],
        ["write", "models/answer.sql", changed.replace("confidence", "release='v2', confidence")], ["run", "-s", "answer"], CHARGES, ROWS,
        ["write", "models/answer.sql", ANSWER.replace("avg(length", "median(length")], ["run", "-s", "answer"],
    )
    assert first["success"], first
    assert len(charges) == 2, charges
    assert re.search(r"model answer: visits-query-\S+: bought for epsilon = 2; one more release of main.visits may have epsilon = 1\d", first["printed"])
    assert "dp_query of visits: at most 2 groups of each patient" in first["printed"]
    assert "bought before, nothing is spent" in again["printed"] and "bought for" not in again["printed"]
    assert [row[0] for row in rows] == ["b", "it's"], rows
    assert near([row[1] for row in rows], [1000, 1000], (rows[0][3] - rows[0][2]) / 3.9, "gaussian"), rows  # intervals of 95 %
    assert all(row[2] <= row[1] <= row[3] for row in rows)
    assert again["success"] and refreshed["success"] and tested["success"] and free["success"], (again, refreshed, tested, free)
    assert same == rows
    assert shown["success"] and "secret" not in shown["printed"] and str(rows[0][1]) in shown["printed"]
    # another SELECT under the same name is refused; under another name it is bought
    assert not refused["success"], refused
    before = "was bought for other SQL: avg(length(note)), count(*) by ward FROM visits WHERE ward IN ('b', 'it''s')"
    told = refused["nodes"]["answer"][1]
    assert before in told and "Now it is: avg(length(note)), count(*) by ward FROM visits WHERE age > 3" in told.replace(">= 4", "> 3"), told
    assert "Now it is: count(*), median(length(note)) by ward FROM visits" in another["nodes"]["answer"][1].replace("quantile_cont(length(note), 0.5)", "median(length(note))"), another
    assert bought["success"] and len(after) == 3, (bought, after)
    assert left != rows


def test_what_cannot_be_answered_says_so(tmp_path):
    files = {
        "rows.sql": "{{ config(materialized='dp_query', epsilon=1.0) }} select note from {{ source('s', 'visits') }}",
        "dear.sql": "{{ config(materialized='dp_query', epsilon=50.0) }} select count(*) as n from {{ source('s', 'visits') }}",
        "empty.sql": "{{ config(materialized='dp_query') }} select count(*) as n from {{ source('s', 'visits') }} where age > 5",
        "after.sql": "select * from {{ ref('dear') }}",
    }
    folder = project(tmp_path / "p", TABLES, {**files, "schema.yml": SCHEMA.split("models:")[0]})
    built, charges, compiled, nothing, still = dbt(folder, ["build"], CHARGES, ["compile"], ["build", "--empty"], CHARGES)
    messages = {name: message for name, (_, message) in built["nodes"].items()}
    assert "only aggregates can be released" in messages["rows"] and "secret" not in str(built)
    assert "budget" in messages["dear"] and built["nodes"]["after"][0] == "skipped"
    assert "epsilon is not given" in messages["empty"]
    assert charges == [] == still and compiled["success"] and nothing["success"], nothing
