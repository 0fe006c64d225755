"""dp_rule through SQL: declared, listed, refused, taken back; rows that obey; tables as close as without; CHECKs and foreign keys."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from pairwise import WHOLE
from prepared import copied

import dpsql
from dpsql.rows import decoding
from dpsql.running import blocks

pytestmark = pytest.mark.any_duckdb

VISITS = """
CREATE TABLE visits AS
WITH h AS (SELECT i, hash(i * 7) AS a, hash(i * 11) AS b, hash(i * 13) AS c, hash(i * 17) AS d, hash(i * 19) AS e FROM range({rows}) t(i))
SELECT CASE WHEN a % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
    CASE WHEN a % 2 = 0 AND b % 4 = 0 THEN 'maternity' WHEN b % 50 = 7 THEN NULL ELSE ['icu', 'er', 'gp'][(1 + b % 3)::INT] END AS ward,
    DATE '1930-01-01' + (c % 32000)::INT AS "born at",
    least(DATE '2023-12-31', DATE '1930-01-01' + (c % 32000)::INT + (d % 9000)::INT) AS seen,
    (d % 40)::INT AS "odd ""n", (d % 40 + e % 30)::INT AS los, CASE WHEN e % 9 > 0 THEN (e % 1000) / 10.0 END::DOUBLE AS price
FROM h
"""
DECLARED = {
    "sex": "categories := ['F', 'M'], nullable := false",
    "ward": "categories := ['icu', 'er', 'gp', 'maternity']",
    "born at": "lower := '1930-01-01', upper := '2024-01-01', nullable := false",
    "seen": "lower := '1930-01-01', upper := '2024-01-01', nullable := false",
    'odd "n': "lower := 0, upper := 40, bins := 8, nullable := false",
    "los": "lower := 0, upper := 70, bins := 7, nullable := false",
    "price": "lower := 0, upper := 100, bins := 10",
}
FAST = "options := {'classes': 6, 'steps': 40}"
RULES = [
    'seen >= "born at"',
    "ward <> 'maternity' OR sex = 'F'",
    'los >= "odd ""n"',
    "price IS NULL OR price < 99.95",
]


def table(folder: Path, rows: int = 20_000, more: str = "") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(folder / "v.duckdb"))
    dpsql.load(con, progress=False)
    con.execute(VISITS.format(rows=rows))
    con.execute(f"CALL dp_protect('visits', epsilon := 50, delta := 1e-9{more})")
    for column, said in DECLARED.items():
        con.execute(f"FROM dp_declare('visits', ?, {said})", [column])
    return con


@pytest.fixture(scope="module")
def five_thousand(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    table(folder, 5000).close()
    return folder / "v.duckdb"


@pytest.fixture
def visits(five_thousand, tmp_path):
    with copied(five_thousand, tmp_path, progress=False) as con:
        yield con


def broken(con: duckdb.DuckDBPyConnection, name: str, rules: list[str]) -> list[int]:
    return [con.execute(f"SELECT count(*) FROM {name} WHERE NOT ({rule})").fetchone()[0] for rule in rules]


def declare(con: duckdb.DuckDBPyConnection, rules: list[str], source: str = "visits") -> None:
    for rule in rules:
        con.execute("FROM dp_rule(?, ?)", [source, rule])


def far(con: duckdb.DuckDBPyConnection, name: str) -> dict[int, float]:
    return dict(con.execute(f"SELECT k, tvd FROM dp_evaluate('visits', '{name}', max_k := 2)").fetchall())


def told(con: duckdb.DuckDBPyConnection, call: str, *values: object) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(call, list(values))
    return str(caught.value).splitlines()[0]


def test_no_row_breaks_a_rule_and_tables_stay_as_close(tmp_path):
    """Two releases of the same epsilon; the margin is many times the spread between two of them."""
    visits = table(tmp_path)
    visits.execute("CREATE TABLE without AS FROM dp_synthesize('visits', epsilon := 2, release := 'without')")
    assert all(count > 0 for count in broken(visits, "without", RULES))
    declare(visits, RULES)
    visits.execute("CREATE TABLE made AS FROM dp_synthesize('visits', epsilon := 2, release := 'with')")
    assert broken(visits, "made", RULES) == [0] * len(RULES)
    before, after = far(visits, "without"), far(visits, "made")
    assert after[1] < before[1] + 0.01
    assert after[2] < before[2] + 0.01
    kinds = [row[1] for row in visits.execute("DESCRIBE made").fetchall()]
    assert kinds == [row[1] for row in visits.execute("DESCRIBE visits").fetchall()]
    assert visits.execute("SELECT count(*) FILTER (WHERE ward IS NULL) > 0, count(*) FILTER (WHERE price IS NULL) > 0 FROM made").fetchone() == (True, True)
    visits.close()


@pytest.mark.parametrize("method", ["gaussian_copula", "modips", "perturbed_histogram", "aggregate_seeded"])
def test_every_method_obeys(tmp_path, method):
    con = table(tmp_path, 3000, ", neighbors := 'replace_one'")
    declare(con, RULES)
    columns, rules = ["sex", "ward", 'odd "n', "los"], [RULES[1], RULES[2]]
    options = ", options := {'sets': 2}" if method == "perturbed_histogram" else ""
    con.execute(f"CREATE TABLE made AS FROM dp_synthesize('visits', columns := ?, method := '{method}', epsilon := 2{options})", [columns])
    assert broken(con, "made", rules) == [0, 0]
    assert con.execute("SELECT count(*) FROM made").fetchone()[0] > 100
    con.close()


def test_into_and_file_and_threads_give_the_same_rows(visits, monkeypatch):
    declare(visits, RULES)
    monkeypatch.setattr(decoding, "_ROW_GROUP", 3000)
    call = f"FROM dp_synthesize('visits', epsilon := 1, {FAST}, rows := 10_000, seed := 5"
    file = visits.execute(f"{call})").fetchall()
    visits.execute(f"{call}, into_table := 'made')")
    assert Counter(visits.execute("FROM made").fetchall()) == Counter(file)
    for width in (1, 3):
        for module in (blocks, decoding):
            monkeypatch.setattr(module, "threads", lambda width=width: width)
        visits.execute(f"FROM dp_synthesize('visits', epsilon := 1, {FAST}, rows := 9_000, seed := 6, into_table := 'made{width}')")
    assert Counter(visits.execute("FROM made1").fetchall()) == Counter(visits.execute("FROM made3").fetchall())
    assert broken(visits, "made1", RULES) == [0] * len(RULES)


@pytest.mark.parametrize("rows", [0, 1, 2, 50])
def test_few_rows_obey_too(visits, rows):
    declare(visits, [*RULES, "los > 60", "sex = 'F' AND ward = 'maternity'"])  # which hardly any row of the model obeys
    for seed in range(8 if WHOLE else 2):
        made = f"made{seed}"
        visits.execute(f"CREATE TABLE {made} AS FROM dp_synthesize('visits', epsilon := 1, {FAST}, rows := {rows}, seed := {seed})")
        assert visits.execute(f"SELECT count(*) FROM {made}").fetchone() == (rows,)
        assert broken(visits, made, [*RULES, "los > 60", "sex = 'F' AND ward = 'maternity'"]) == [0] * 6


def test_one_hot_rows_that_hold_one_value_each_obey(visits):
    declare(visits, RULES[1:2])
    hot = "SELECT * FROM dp_synthesize('visits', columns := ['sex', 'ward', 'los'], method := 'gaussian_copula', epsilon := 1, release := '{}', options := {{'output': 'one_hot'}}, rows := 20000)"
    bad = """SELECT count(*) FROM made WHERE "ward=maternity" = 1 AND "sex=M" = 1 AND "sex=F" = 0
        AND "ward=icu" + "ward=er" + "ward=gp" + "ward=NULL" = 0"""
    visits.execute(f"CREATE TABLE made AS {hot.format('with')}")
    assert visits.execute(bad).fetchone() == (0,)
    assert visits.execute('SELECT count(*) FROM made WHERE "ward=maternity" = 1 AND "sex=F" = 1').fetchone()[0] > 1000
    visits.execute("FROM dp_rule('visits', ?, remove := true)", RULES[1:2])
    visits.execute(f"CREATE OR REPLACE TABLE made AS {hot.format('without')}")
    assert visits.execute(bad).fetchone()[0] > 0


def test_rules_are_listed_planned_and_taken_back(visits):
    declare(visits, [*RULES, "sex IN ('M', 'F')"])
    listed = visits.execute("SELECT column_name, kind, labels, status FROM dp_domain('visits') WHERE kind = 'rule'").fetchall()
    assert listed[0] == ("seen, born at", "rule", '"seen" >= "born at"', "declared")
    assert len(listed) == 5
    (notes,) = visits.execute("SELECT notes FROM dp_plan('visits', epsilon := 1)").fetchone()
    said = "\n".join(notes)
    assert 'shape tables (impossible cells are zero before the fit) and rows: "seen" >= "born at"; "ward" <> \'maternity\'' in said
    assert 'shape rows alone (those that break one are repaired): "price" IS NULL OR "price" < 99.95' in said
    assert 'keeps by itself: "sex" IN (\'M\', \'F\')' in said
    (notes,) = visits.execute("SELECT notes FROM dp_plan('visits', columns := ['sex', 'los'], epsilon := 1)").fetchone()
    assert any("leaves out or splits a column of theirs" in note and "maternity" in note for note in notes)
    (notes,) = visits.execute("SELECT notes FROM dp_plan('visits', columns := ['sex', 'los'], k := 2, epsilon := 1)").fetchone()
    assert not any("rules" in note for note in notes)
    taken = visits.execute("FROM dp_rule('visits', 'SEX in (''M'', ''F'') -- again', remove := true)").fetchone()
    assert taken == ("main.visits", "\"sex\" IN ('M', 'F')", ["sex"], "nothing", "taken back")
    assert visits.execute("SELECT change FROM dp_rule('visits', 'sex = ''F''', remove := true)").fetchone() == ("was not declared",)
    assert visits.execute("SELECT count(*) FROM dp_domain('visits') WHERE kind = 'rule'").fetchone() == (4,)
    assert visits.execute("SELECT DISTINCT rule FROM dpsql.rules").fetchall()


def test_a_plan_forecasts_the_repair_of_rows(visits):
    def stages(given: str = "") -> dict[str, float]:
        call = f"SELECT estimated_stages, estimated_seconds FROM dp_plan('visits', epsilon := 1{given})"
        ((found, seconds),) = visits.execute(call).fetchall()
        assert seconds == pytest.approx(sum(found.values()), rel=0.01, abs=0.02)
        return found

    name, without = "repair by rules", stages()
    declare(visits, ["sex IN ('M', 'F')"])
    assert stages() == without and name not in without  # no row can break it
    declare(visits, [RULES[1]])
    categories = stages()
    assert {stage: seconds for stage, seconds in categories.items() if stage != name} == without
    assert list(categories)[-1] == name and 0 < categories[name] < 0.2
    declare(visits, RULES)
    every = stages()[name]
    assert every > 3 * categories[name]  # values inside bins break rules more often
    assert stages(", rows := 10000000")[name] > 50 * every
    assert name not in stages(", columns := ['sex', 'los'], k := 2")


def test_a_release_keeps_the_rules_of_then(visits):
    call = f"FROM dp_synthesize('visits', epsilon := 1, {FAST})"
    first = visits.execute(call).fetchall()
    declare(visits, RULES[:1])
    assert visits.execute(call).fetchall() == first
    (notes,) = visits.execute(f"SELECT notes FROM dp_plan('visits', epsilon := 1, {FAST})").fetchone()
    assert any("rules were declared or taken back since" in note for note in notes)
    assert visits.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)


@pytest.fixture(scope="module")
def ruled(five_thousand, tmp_path_factory):
    """The table with all rules, for what changes nothing."""
    with copied(five_thousand, tmp_path_factory.mktemp("ruled"), progress=False) as con:
        declare(con, RULES)
        yield con


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("los", "is INTEGER, not BOOLEAN"),
        ("nobody > 3", "'nobody' is not a column of the source"),
        ("sex > 3", "check names and types"),
        ("los > (SELECT count(*) FROM visits)", "a subquery: its value depends on other rows"),
        ("count(*) > 3", "function 'count': not on the list"),
        ("random() < los", "function 'random'"),
        ("los > 5) OR (true", "is not understood as one SQL expression"),
        ("los > 70", "no value of the declared domain obeys it"),
        ('los < "odd ""n"', 'contradicts the rule "los" >= "odd ""n": no row can obey both; remove := true takes a rule back'),
        ("ward = 'maternity' AND sex = 'M'", "contradicts the rule \"ward\" <> 'maternity' OR \"sex\" = 'F'"),
        ("regexp_matches(ward, '[')", "DuckDB does not accept its constants"),
    ],
)
def test_what_is_refused(ruled, rule, words):
    assert words in told(ruled, "FROM dp_rule('visits', ?)", rule)
    assert ruled.execute("SELECT count(*) FROM dpsql.rules").fetchone() == (4,)


def test_columns_without_a_domain_and_the_privacy_unit_are_refused(tmp_path):
    con = duckdb.connect(str(tmp_path / "u.duckdb"))
    dpsql.load(con, progress=False)
    con.execute("CREATE TABLE t AS SELECT i % 9 AS person, i % 5 AS a, i % 3 AS b, i % 2 = 0 AS c FROM range(99) t(i)")
    con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9, privacy_unit := 'person', max_contributions := 20)")
    con.execute("CALL dp_declare('t', 'a', lower := 0, upper := 5, nullable := false)")
    assert "'b' has no declared domain: CALL dp_declare('t', 'b'" in told(con, "FROM dp_rule('t', 'a >= b')")
    assert "'person' is the privacy unit" in told(con, "FROM dp_rule('t', 'person > 3 OR c')")
    con.execute("FROM dp_rule('t', 'a > 1')")
    con.execute("CALL dp_declare('t', 'a', lower := 0, upper := 1, nullable := false)")
    assert "no value of the declared domain obeys it" in told(con, "FROM dp_synthesize('t', epsilon := 1)")
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (0,)
    con.close()


def test_a_view_has_the_rules_of_the_columns_that_it_copies(visits):
    visits.execute("CREATE VIEW v AS SELECT seen AS s, \"born at\" AS b, sex, lower(ward) AS ward, los FROM visits WHERE los > 3")
    declare(visits, RULES[:2])
    listed = "SELECT labels FROM dp_domain(?) WHERE kind = 'rule' ORDER BY 1"
    assert visits.execute(listed, ["v"]).fetchall() == [('"s" >= "b"',)]
    visits.execute("FROM dp_rule('v', 'los > 3')")
    assert visits.execute(listed, ["v"]).fetchall() == [('"los" > 3',), ('"s" >= "b"',)]
    assert visits.execute(listed, ["SELECT los AS l, sex FROM v"]).fetchall() == [('"l" > 3',)]
    assert len(visits.execute(listed, ["visits"]).fetchall()) == 2
    visits.execute(f"CREATE TABLE made AS FROM dp_synthesize('v', columns := ['s', 'b', 'los', 'sex'], epsilon := 1, {FAST})")
    assert broken(visits, "made", ["s >= b", "los > 3"]) == [0, 0]


def test_a_bought_list_of_values_obeys(tmp_path):
    con = duckdb.connect(str(tmp_path / "o.duckdb"))
    dpsql.load(con, progress=False)
    con.execute("CREATE TABLE t AS SELECT ['cook', 'nurse', 'clerk'][1 + i % 3] AS job FROM range(9000) t(i)")
    con.execute("CALL dp_protect('t', epsilon := 9, delta := 1e-9)")
    con.execute("CALL dp_declare('t', 'job', categories := ['cook', 'nurse', 'clerk'], nullable := false)")
    con.execute("FROM dp_rule('t', 'job <> ''cook''')")
    call = "FROM dp_synthesize('t', columns := ['job'], method := 'stable_selection', epsilon := 2, rows := 500)"
    assert {job for (job,) in con.execute(call).fetchall()} == {"nurse", "clerk"}
    con.close()


# -- releases from elsewhere -----------------------------------------------------------------------------------------------------


def exported(con: duckdb.DuckDBPyConnection, folder: Path) -> tuple[str, Path]:
    con.execute(f"FROM dp_synthesize('visits', columns := ['sex', 'ward', 'seen', 'born at'], epsilon := 1, release := 'r', {FAST})").fetchone()
    (name,) = con.execute("SELECT release FROM dp_releases()").fetchone()
    con.execute("FROM dp_export(?, path := ?)", [name, str(folder / "r.release")])
    return name, folder / "r.release"


def rewritten(path: Path, target: Path, rules: object) -> Path:
    """The same counts under other rules: what everybody can write who has the file."""
    frame = duckdb.connect().execute(f"FROM read_parquet('{path}')").df()
    ((text,),) = duckdb.connect().execute(f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'").fetchall()
    manifest = json.loads(text)
    manifest["plan"]["rules"] = rules
    quoted = json.dumps(manifest).replace("'", "''")
    with duckdb.connect() as con:
        con.register("frame", frame)
        con.execute(f"COPY (SELECT * FROM frame) TO '{target}' (FORMAT parquet, KV_METADATA {{dpsql: '{quoted}'}})")
    return target


def test_rules_travel_with_a_release_and_edited_ones_are_refused(visits, tmp_path):
    declare(visits, RULES[:2])
    name, path = exported(visits, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    con = duckdb.connect()
    dpsql.load(con, store=elsewhere, progress=False)
    con.execute("CREATE TABLE secret AS SELECT 1 AS x")
    con.execute("FROM dp_import(?)", [str(path)])
    con.execute("CREATE TABLE made AS FROM dp_sample(?, rows := 5000)", [name])
    assert broken(con, "made", RULES[:2]) == [0, 0]
    bad: list[object] = [
        ["(SELECT count(*) FROM secret) > 0"], ['"sex" = (SELECT max(x)::VARCHAR FROM secret)'], ["read_text('/etc/passwd') <> \"sex\""],
        ["sex = 'F'"], ['"sex"'], ['"seen" > 3'], ['"nobody" > 3'], ["true) OR (true"], "x", [3], [None], {"a": 1}, ['"sex" = \'F\''] * 500,
        ['"sex" = \'' + "x" * 5000 + "'"], ["getenv('HOME') = \"sex\""], ['"born at" > current_date'],
    ]
    for number, rules in enumerate(bad):
        file = rewritten(path, tmp_path / f"bad{number}.release", rules)
        assert "damaged or was edited" in told(con, "FROM dp_import(?)", str(file)), rules
    fine = rewritten(path, tmp_path / "fine.release", ['"sex" = \'F\' OR "ward" = \'{braces}\''])
    other = duckdb.connect()
    dpsql.load(other, store=tmp_path / "other", progress=False)
    other.execute("FROM dp_import(?)", [str(fine)])
    assert other.execute("SELECT DISTINCT sex FROM dp_sample(?, rows := 3000) WHERE ward IS NOT NULL", [name]).fetchall() == [("F",)]
    never = rewritten(path, tmp_path / "never.release", ['length("sex") > 5 AND "ward" = \'er\' AND "seen" < DATE \'1940-01-01\''.replace("length", "LENGTH").replace("DATE '1940-01-01'", "CAST('1940-01-01' AS DATE)")])
    last = duckdb.connect()
    dpsql.load(last, store=tmp_path / "last", progress=False)
    last.execute("FROM dp_import(?)", [str(never)])
    assert "no row was found that obeys the rules" in told(last, "FROM dp_sample(?, rows := 10)", name)
    for connection in (con, other, last):
        connection.close()


def test_a_bought_release_with_edited_rules_is_not_shown(visits, tmp_path):
    declare(visits, RULES[:2])
    name, _ = exported(visits, tmp_path)
    (stored,) = (tmp_path / "v.duckdb.dpsql").glob("*.release.parquet")
    rewritten(tmp_path / "r.release", stored, [])
    assert "its plan was edited" in told(visits, "FROM dp_sample(?, rows := 10)", name)


def test_an_edited_book_of_rules_says_so(visits):
    visits.execute("INSERT INTO dpsql.rules VALUES ('main.visits', '(SELECT count(*) FROM visits) > los', now()::TIMESTAMP, 'me')")
    for call in ("FROM dp_domain('visits')", "FROM dp_synthesize('visits', epsilon := 1)", "FROM dp_plan('visits', epsilon := 1)"):
        assert "the books of main.visits were edited: a rule in them is none" in told(visits, call)


# -- what the schema says --------------------------------------------------------------------------------------------------------

SCHEMA = """
CREATE TABLE wards (code VARCHAR PRIMARY KEY, beds INTEGER);
INSERT INTO wards VALUES ('icu', 3), ('er', 9), ('maternity', 4), ('it''s', 1);
CREATE TABLE staff (id INTEGER PRIMARY KEY, name VARCHAR);
INSERT INTO staff SELECT i, 'person ' || i FROM range(50) t(i);
CREATE TABLE stays (
    sex VARCHAR NOT NULL CHECK (sex IN ('F', 'M')),
    ward VARCHAR REFERENCES wards(code),
    doctor INTEGER REFERENCES staff(id),
    "odd ""n" INTEGER NOT NULL CHECK ("odd ""n" BETWEEN 0 AND 60),
    price DECIMAL(6, 2) CHECK (price > 0 AND price <= 99.5),
    born DATE NOT NULL CHECK (born >= DATE '1900-01-01'), CHECK (DATE '2024-01-01' > born),
    seen DATE NOT NULL CHECK (seen BETWEEN '1900-01-01' AND '2024-01-01'),
    free INTEGER CHECK (free < 10), CHECK (seen >= born), CHECK (ward <> 'maternity' OR sex = 'F'), CHECK (free IS NULL OR free <> 3),
    level INTEGER CHECK (level IS NULL OR level IN (1, 2, 3)), CHECK (length(ward) + 0 * hash(sex) >= 0)
);
INSERT INTO stays SELECT CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END, CASE WHEN i % 4 = 0 THEN 'maternity' ELSE 'icu' END, i % 50, i % 61,
    (i % 99) + 0.5, DATE '1950-01-01' + (i % 9000)::INT, DATE '1980-01-01' + (i % 9000)::INT, i % 3, 1 + i % 3 FROM range(4000) t(i);
"""


@pytest.fixture(scope="module")
def stays_there(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "stays.duckdb"
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        con.execute(SCHEMA)
        con.execute("CALL dp_protect('staff', epsilon := 1, delta := 1e-9)")
        con.execute("CALL dp_protect('stays', epsilon := 20, delta := 1e-9)")
    return path


@pytest.fixture
def stays(stays_there, tmp_path):
    with copied(stays_there, tmp_path, progress=False) as con:
        yield con


PUBLIC_WARDS = """CALL dp_declare('stays', 'ward', categories_from := '"wards"."code"')"""


def test_checks_and_foreign_keys_are_domains_and_rules(stays):
    rows = stays.execute("SELECT column_name, kind, codes, labels, nullable, status FROM dp_domain('stays')").fetchall()
    by_name = {row[0]: row[1:] for row in rows if row[1] != "rule"}
    check = "by a CHECK constraint"
    assert by_name["sex"] == ("categorical", 2, "'F', 'M'", False, check)
    # What a foreign key points to may list people, with a budget or without: nothing is read, the declaration is named.
    public = "left out: no domain declared; if the key of {} is public: categories_from := '{}'"
    assert by_name["ward"] == (None, None, None, None, public.format("wards", '"wards"."code"'))
    assert by_name["doctor"] == (None, None, None, None, "left out: no domain declared"), "staff has a budget: its keys are people"
    assert by_name['odd "n'][1:] == (24, "automatic bins (at most 24) from 0 to 60", False, check)
    assert by_name["price"][2:] == ("automatic bins (at most 24) from 0 to 99.5, NULL", True, check)
    assert by_name["born"][2:] == ("automatic bins (at most 24) from 1900-01-01 to 2024-01-01", False, check)
    assert by_name["seen"][2:] == ("automatic bins (at most 24) from 1900-01-01 to 2024-01-01", False, check)
    assert by_name["free"][4] == "left out: no domain declared"
    assert by_name["level"][:3] == ("categorical", 4, "'1', '2', '3', NULL")
    rules = {row[3]: row[5] for row in rows if row[1] == "rule"}
    assert rules['"seen" >= "born"'] == rules["\"ward\" <> 'maternity' OR \"sex\" = 'F'"] == "CHECK constraint"
    assert [text for text, status in rules.items() if status == "CHECK constraint that is no rule"] != []
    columns = ["sex", "ward", 'odd "n', "price", "born", "seen", "level"]
    assert "no column was declared" in told(stays, "FROM dp_synthesize('stays', epsilon := 2)")
    assert stays.execute(PUBLIC_WARDS).fetchone()[4] == "'er', 'icu', 'it''s', 'maternity', NULL"
    stays.execute(f"CREATE TABLE made AS FROM dp_synthesize('stays', columns := ?, epsilon := 2, {FAST})", [columns])
    assert broken(stays, "made", ["seen >= born", "ward <> 'maternity' OR sex = 'F'", "price > 0"]) == [0, 0, 0]
    assert [row[0] for row in stays.execute("DESCRIBE made").fetchall()] == columns
    assert "is a CHECK constraint of the table" in told(stays, "FROM dp_rule('stays', 'seen >= born', remove := true)")
    assert 'contradicts the CHECK constraint "seen" >= "born"' in told(stays, "FROM dp_rule('stays', 'born > seen')")
    stays.execute("CALL dp_declare('stays', 'ward', categories := ['icu', 'maternity'])")
    assert stays.execute("SELECT status FROM dp_domain('stays') WHERE column_name = 'ward'").fetchone() == ("declared",)


def test_synthetic_rows_fit_into_a_table_of_the_same_schema(stays):
    """What the constraints say holds: DuckDB itself takes every row."""
    names = ["sex", "ward", 'odd "n', "price", "born", "seen", "level"]
    stays.execute(PUBLIC_WARDS)
    stays.execute(f"CREATE TABLE copy AS FROM dp_synthesize('stays', columns := ?, epsilon := 2, {FAST})", [names])
    columns = 'sex, ward, "odd ""n", price, born, seen, level'
    stays.execute("CREATE TABLE again AS FROM stays LIMIT 0")
    made = SCHEMA.split("CREATE TABLE stays (")[1].split("INSERT INTO stays")[0].replace("doctor INTEGER REFERENCES staff(id)", "doctor INTEGER")
    stays.execute(f"DROP TABLE again; CREATE TABLE again ({made}")
    stays.execute(f"INSERT INTO again ({columns}) SELECT {columns} FROM copy")
    assert stays.execute("SELECT count(*) FROM again").fetchone()[0] > 3000


def test_no_row_is_read_through_a_foreign_key(stays, monkeypatch):
    from dpsql.protected import public

    monkeypatch.setattr(public, "listed", lambda *_: pytest.fail("a list was read"))
    stays.execute("FROM dp_domain('stays')")
    stays.execute("FROM dp_plan('stays', columns := ['sex', 'level'], epsilon := 1)")


def test_frames_are_found_where_a_session_forbids_variables(visits):
    declare(visits, RULES)
    visits.execute("SET python_enable_replacements = false")
    visits.execute(f"CREATE TABLE made AS FROM dp_synthesize('visits', epsilon := 1, {FAST}, rows := 2000)")
    assert broken(visits, "made", RULES) == [0] * len(RULES)


def test_rules_from_python(visits):
    frame = dpsql.rule(visits, "visits", RULES[0]).df()
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc[0, "shapes"] == "tables"
    assert np.asarray(frame.loc[0, "columns"]).tolist() == ["seen", "born at"]


def test_checks_of_whole_numbers_beyond_double_precision(tmp_path):
    con = duckdb.connect(str(tmp_path / "t.duckdb"))
    dpsql.load(con, progress=False)
    con.execute(
        "CREATE TABLE t(n BIGINT NOT NULL CHECK (n >= 9007199254740993 AND n > 9007199254740992 AND n <= 9223372036854775807), "
        "near BIGINT CHECK (near BETWEEN 9007199254740992 AND 9007199254740993), "
        f"far DOUBLE CHECK (far >= 0 AND far <= 1{'0' * 400}), vast HUGEINT CHECK (vast BETWEEN 0 AND 1{'0' * 400}))"
    )
    con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9)")
    found = {name: (labels, status) for name, kind, labels, status in con.execute("SELECT column_name, kind, labels, status FROM dp_domain('t')").fetchall() if kind != "rule"}
    assert found["n"] == ("automatic bins (at most 24) from 9007199254740992 to 9223372036854775807", "by a CHECK constraint, wider: as double precision holds bounds")
    assert found["near"] == ("automatic bins (at most 1) from 9007199254740992 to 9007199254740994, NULL", "by a CHECK constraint, wider: as double precision holds bounds")
    for name in ("far", "vast"):
        assert found[name] == (None, "left out: no domain declared")
    con.close()
