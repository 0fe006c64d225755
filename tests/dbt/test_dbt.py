"""Real dbt projects: one charge per release whatever dbt does, readable refusals, nothing raw on the screen."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dbt.adapters.duckdb")

from dbt_projects import CHARGES, dbt, project

from dpsql.cli.commands import main
from dpsql.dbt.project import init

EXAMPLE = Path(__file__).parents[2] / "examples" / "dbt"
ENTRIES = ["sql", "SELECT source, action, count(*) FROM dpsql.ledger GROUP BY ALL ORDER BY ALL"]


def states(done: dict[str, Any]) -> dict[str, str]:
    return {name: status for name, (status, _) in done["nodes"].items()}


def test_the_example_is_charged_once_per_release(tmp_path, monkeypatch):
    folder = tmp_path / "people"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("target", "dbt_packages", "logs", "*.duckdb*", "dpsql_package"))
    profile = folder / "profiles.yml"
    profile.write_text(profile.read_text().replace("people.duckdb", "project.duckdb"))
    monkeypatch.chdir(folder)
    assert main(["run", "load_people.sql", "--database", "project.duckdb"]) == 0
    assert main(["dbt", "init"]) == 0
    rows = ["sql", "SELECT * FROM people_synth ORDER BY ALL"]
    deps, first, once, before, second, *others = dbt(
        folder, ["deps"], ["build"], ENTRIES, rows, ["build"], ["run", "--full-refresh"], ["compile"], ["docs", "generate"], ["test"],
        ["retry"], ["show", "-s", "people_synth", "--limit", "9", "--output", "json"], rows, ENTRIES,
        ["sql", "SELECT age, sex, income_k FROM people_synth LIMIT 9"],
        ["build", "--vars", "release: again"], rows, CHARGES, ["sql", "SELECT bool_and(holds) FROM dpsql.chain"], alone=True,
    )
    assert deps["success"], deps
    assert first["success"], first
    assert set(states(first).values()) == {"success", "pass"}
    assert once == [["raw.people", "charge", 2], ["raw.people", "protect", 1], ["raw.people", "store", 2]]
    assert second["success"], second
    refreshed, compiled, docs, tested, _, shown, after, entries, head, bought, anew, charges, chain = others
    assert all(done["success"] for done in (refreshed, compiled, docs, tested, bought)), others
    assert (entries, after) == (once, before), "a rerun charged or changed something"
    assert before != anew and len(before) > 2500
    assert [charge.rsplit("-", 1)[0] for (charge,) in charges] == [
        "people-marginals-status_by_sex", "people-synthesize-people_synth_again", "people-synthesize-people_synth_default",
    ]
    assert chain == [[True]]
    text = shown["printed"]
    printed = json.loads(text[text.index("{\n") : text.rindex("}") + 1])["show"]
    assert [[row["age"], row["sex"], str(row["income_k"])] for row in printed] == [[a, s, str(i)] for a, s, i in head]


ODD_TABLES = """
CREATE SCHEMA "r w";
CREATE TABLE "r w"."Größe '1' order" AS SELECT i AS "order", (i * 7919) % 70 AS "it's", i % 2 = 0 AS "select",
    CASE i % 3 WHEN 0 THEN 'ä"b' WHEN 1 THEN 'c''d' ELSE '<script>' END AS "naïve Größe" FROM range(2000) t(i);
CREATE TABLE arrivals AS SELECT i % 500 AS patient, i % 4 AS ward, 'no' AS flag, i AS secret FROM range(2000) t(i);
"""
ODD_SCHEMA = """
sources:
  - name: s
    schema: r w
    tables:
      - name: g
        identifier: "Größe '1' order"
        meta: {dpsql: {protect: {epsilon: 2, delta: 1e-9}}}
        columns:
          - {name: "it's", meta: {dpsql: {lower: 0, upper: 70, bins: 7}}}
          - {name: "naïve Größe", meta: {dpsql: {categories: ['ä"b', "c'd", <script>]}}}
  - name: e
    schema: main
    tables: [{name: arrivals}]
models:
  - name: odd
    columns:
      - {name: group by, config: {meta: {dpsql: {lower: 0, upper: 7e1, bins: 10, nullable: true}}}}
    data_tests:
      - dpsql.dp_within_error: {name: wide, arguments: {max_tvd: 0.9}}
      - dpsql.dp_within_error: {name: narrow, arguments: {max_tvd: 0.0001}}
      - dpsql.dp_within_error: {name: raw_narrow, arguments: {max_tvd: 0.000001, against: raw}}
  - name: visits
    meta: {dpsql: {protect: {epsilon: 1.5, delta: 1e-9, privacy_unit: patient, max_contributions: 4}}}
  - name: stg
    columns:
      - {name: ward1, config: {meta: {dpsql: {categories: [1, 2, 3, 4], nullable: false}}}}
      - {name: flag, meta: {dpsql: {categories: ['yes', 'no']}}}
    data_tests:
      - dpsql.dp_budget_remaining: {name: enough, arguments: {min_epsilon: 1.0}}
"""
ODD = """-- 'quotes' and "names";
{{ config(materialized='dp_synthetic', epsilon=0.5, release="it's üb", options={'mechanism': 'laplace'}, seed=3, rows=500) }}
/* block */ with x as (select "it's", "naïve Größe" as "from", "select", "order" from {{ source('s', 'g') }})
select "it's", "from", "select", "it's" + 1 as "group by" from x where "order" >= 0
"""
BUY = """{{ config(materialized='dp_synthetic', epsilon=0.5, delta=0, method='perturbed_histogram', meta={'dpsql': {'rows': 50}}) }}
select ward1 from {{ ref('stg') }} where ward1 < 9"""


def test_odd_names_four_threads_and_a_budget_for_three(tmp_path):
    buys = {f"buy_{i}.sql": f"{BUY}{i}" for i in range(1, 5)}
    after = {f"after_{i}.sql": f"select * from {{{{ ref('buy_{i}') }}}}" for i in range(1, 5)}
    folder = project(
        tmp_path / "p",
        ODD_TABLES,
        {
            **buys,
            **after,
            "schema.yml": ODD_SCHEMA,
            "odd.sql": ODD,
            "visits.sql": "{{ config(materialized='table') }} select * exclude (secret) from {{ source('e', 'arrivals') }} where patient >= 0",
            "stg.sql": "select patient, ward + 1 as ward1, flag from {{ ref('visits') }}",
        },
    )
    budget = ["sql", "SELECT source, epsilon, privacy_unit, max_contributions FROM dpsql.budgets ORDER BY 1"]
    empty, none, first, charges, budgets, retried, rebuilt, again, budgets_again, odd = dbt(
        folder, ["run", "--empty"], CHARGES, ["build"], CHARGES, budget, ["retry"], ["run", "-s", "+stg+1"], CHARGES, budget,
        ["sql", """SELECT count(*), count(DISTINCT "from"), min("group by") FROM odd"""],
    )
    assert empty["success"] and none == [], empty
    found = states(first)
    assert [found[name] for name in ("odd", "wide", "narrow", "raw_narrow", "enough")] == ["success", "pass", "fail", "fail", "pass"]
    told = [line.split("dp_within_error of ")[1] for line in first["printed"].splitlines() if "dp_within_error of" in line]
    narrow, raw = ([line for line in told if ("not private" in line) == private] for private in (False, True))
    assert {line.split(": ")[1] for line in narrow} == {"it's", "from", "select", "group by"}, told  # each column, and once
    assert len(narrow) == 4 and all(re.search(r"up to 0\.\d{3} from the raw table .*; max_tvd is 0.0001$", line) for line in narrow), told
    assert len(raw) == 1 and raw[0].endswith(": not private: 1-way tables are farther from the raw ones than max_tvd = 1e-06"), told
    failed = [f"buy_{i}" for i in range(1, 5) if found[f"buy_{i}"] == "error"]
    assert len(failed) == 1 and len(charges) == 4, first
    message = first["nodes"][failed[0]][1]
    assert "BudgetExceeded: privacy budget of main.visits exceeded: the call costs epsilon = 0.5, 0 is left" in message
    assert "secret" not in message and "Traceback" not in message
    skipped = [name for name, status in found.items() if status == "skipped"]
    assert skipped == [failed[0].replace("buy", "after")]
    # visits was dropped and made anew: its budget is the old one, and everything bought is bought
    assert states(retried)[failed[0]] == "error" and "visits" not in states(retried)
    assert states(rebuilt)["visits"] == "success" and states(rebuilt)[failed[0]] == "error"
    assert (again, budgets_again) == (charges, budgets)
    assert budgets == [['"r w"."größe \'1\' order"', "2.000000000000000000000000", None, 1],
                       ["main.visits", "1.500000000000000000000000", "patient", 4]]
    assert odd[0][0] == 500 and 1 <= odd[0][1] <= 4


def test_what_is_refused_and_what_a_killed_run_leaves(tmp_path):
    schema = """
sources:
  - name: s
    schema: main
    tables:
      - name: t
        meta: {dpsql: {protect: {epsilon: 3, delta: 1e-9}}}
        columns:
          - {name: a, meta: {dpsql: {lower: 0, upper: 10}}}
          - {name: b, meta: {dpsql: {categories: [%s]}}}
models:
  - name: copy
    columns: [{name: typo, meta: {dpsql: {lower: 0, upper: 1}}}]
"""
    config = "{{ config(materialized='dp_synthetic', epsilon=1) }}"
    select = "select a, b from {{ source('s', 't') }} where c >= {{ var('least', 0) }}"
    files = {
        "schema.yml": schema % "'yes', 'no'",
        "m.sql": f"{config} {select}",
        "wide.sql": f"{config} select a, b, c from {{{{ source('s', 't') }}}}",
        "copy.sql": "select a, b from {{ source('s', 't') }}",
    }
    tables = "CREATE TABLE t AS SELECT i % 10 AS a, 'yes' AS b, i AS c FROM range(1000) r(i)"
    folder = project(tmp_path / "p", tables, files)
    killed = dbt(folder, ["run", "-s", "m"], more={"KILL": "after the charge"})
    assert killed[0] == 9, killed
    statuses = ["sql", "SELECT status FROM dpsql.releases"]
    left, done, stored, changed, charges, _, truths = dbt(
        folder, statuses, ["run"], statuses, ["run", "-s", "m", "--vars", "least: 5"], CHARGES,
        ["write", "models/schema.yml", schema % "yes, no"], ["run", "-s", "m"],
    )
    assert (left, stored) == ([["charged"]], [["stored"]])
    found = states(done)
    assert (found["m"], found["wide"], found["copy"]) == ("success", "error", "success")
    assert "the column 'c' has no declared domain" in done["nodes"]["wide"][1]
    assert "model copy: it has no column 'typo' to declare" in done["printed"]
    assert "was bought for other SQL" in changed["nodes"]["m"][1]  # the same release name does not buy another SELECT silently
    assert len(charges) == 1
    assert not truths["success"]
    assert "YAML reads yes, no, on and off as true and false" in truths["printed"] + truths["exception"]


def test_declarations_say_where_they_are_wrong(tmp_path):
    from dpsql.dbt.nodes import node
    from dpsql.errors import DpsqlError

    item = {"label": "source s.t", "relation": "t", "kind": "source", "meta": {}, "columns": {}}
    for changed, expected in (
        ({"meta": {"protected": {}}}, "source s.t: meta dpsql has no key 'protected'; it takes protect"),
        ({"meta": {"protect": {"eps": 1}}}, "source s.t, protect: meta dpsql has no key 'eps'; it takes epsilon"),
        ({"meta": {"protect": 3}}, "source s.t, protect: 3 is not a mapping"),
        ({"columns": {"a": {"low": 1}}}, "source s.t, column a: meta dpsql has no key 'low'"),
        ({"columns": {"a": {"discover": True}}}, "use a pre-hook"),
    ):
        with pytest.raises(DpsqlError, match=expected.replace("(", r"\(")):
            node({**item, **changed})


def test_init_adds_to_what_is_there(tmp_path):
    from dpsql.errors import DpsqlError

    with pytest.raises(DpsqlError, match="has no dbt_project.yml"):
        init(tmp_path)
    (tmp_path / "dbt_project.yml").write_text("name: x")
    (tmp_path / "packages.yml").write_text("# ours\npackages:\n    - package: a/b\n      version: 1.0.0\n")
    for _ in range(2):
        init(tmp_path)
    expected = "# ours\npackages:\n    - local: dpsql_package\n    - package: a/b\n      version: 1.0.0\n"
    assert (tmp_path / "packages.yml").read_text() == expected
    assert (tmp_path / "dpsql_package" / "macros" / "dp_synthetic.sql").is_file()
    shutil.rmtree(tmp_path / "dpsql_package")
    (tmp_path / "dpsql_package").mkdir()
    with pytest.raises(DpsqlError, match="is not a copy of this package"):
        init(tmp_path)


def test_the_noise_bound_holds():
    """Over draws of the noise, the bound of dp_within_error is at least the true distance in 99 % of the cases."""
    import numpy as np

    from dpsql.dbt.models import bound
    from dpsql.tables.statistics import Statistics

    rng = np.random.default_rng(5)
    for cells, scale in ((2, 20.0), (30, 5.0)):
        raw = rng.multinomial(3000, np.full(cells, 1 / cells))
        synthetic = rng.multinomial(500, np.full(cells, 1 / cells))
        true = np.abs(raw / raw.sum() - synthetic / synthetic.sum()).sum() / 2
        held = 0
        for _ in range(2000):
            noisy = raw + np.rint(rng.normal(0, scale, cells)).astype(np.int64)
            held += sum(bound(Statistics((cells,), {(0,): noisy}, {(0,): scale}), (0,), synthetic)) >= true
        assert held >= 1980
