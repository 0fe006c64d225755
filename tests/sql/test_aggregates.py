"""dp_aggregates and the method aggregate_seeded through SQL: against brute force, charged once, names from the domain alone."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pytest
from noisy import near
from prepared import beside, copied

import dpsql
from dpsql.noise import discrete

pytestmark = pytest.mark.any_duckdb

SECRET = "Zaphod 1f9c"
METHOD = "method := 'aggregate_seeded'"


def no_noise(flat, mechanism, scale):
    return flat.copy()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with NULLs, an ENUM, a number and a value that is not in the domain; its budget covers several releases."""
    path = tmp_path_factory.mktemp("made") / "victims.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(
            f"""
            CREATE TABLE victims AS SELECT i % 150 AS person, CASE WHEN i % 11 = 0 THEN NULL WHEN i = 5 THEN '{SECRET}'
                ELSE ['north','south','west'][1 + (i * i % 7) % 3] END AS region,
                (18 + i * 7 % 60)::SMALLINT AS age, (CASE WHEN (i + i * i % 5) % 3 = 0 THEN 'f' ELSE 'm' END)::ENUM('f','m') AS sex,
                i % 5 = 0 AS minor FROM range(700) t(i)
            """
        )
        dpsql.load(con)
        con.execute("CALL dp_protect('victims', epsilon := 30, delta := 1e-9)")
        con.execute("CALL dp_declare('victims', 'region', categories := ['north', 'south', 'west', 'nowhere'])")
        con.execute("CALL dp_declare('victims', 'age', lower := 18, upper := 78, bins := 3, nullable := false)")
        con.execute("CALL dp_declare('victims', 'minor', categories := [true, false], nullable := false)")
        con.execute("CALL dp_declare('victims', 'sex', categories := ['f', 'm'], nullable := false)")
    return path


@pytest.fixture
def victims(made: Path, tmp_path: Path):
    with copied(made, tmp_path) as connection:
        yield connection


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def brute_force(con: duckdb.DuckDBPyConnection) -> list[dict[str, object]]:
    """Rows as labels of the public domain."""
    shown = []
    for region, age, sex, minor in con.execute("SELECT region, age, sex, minor FROM victims").fetchall():
        ages = ["[18, 38)", "[38, 58)", "[58, 78]"]
        shown.append(
            {
                "region": region if region in ("north", "south", "west") else None,
                "age": ages[min((age - 18) // 20, 2)],
                "sex": sex,
                "minor": str(minor).lower(),
            }
        )
    return shown


@pytest.mark.parametrize("thresholds", [[0, 0], [40, 9]])
def test_without_noise_it_is_the_count_of_every_tuple_whose_parts_were_kept(victims, monkeypatch, thresholds):
    monkeypatch.setattr(discrete, "add_noise", no_noise)
    options = f"options := {{'thresholds': {thresholds}}}"
    got = victims.execute(f"FROM dp_aggregates('victims', reporting_length := 3, epsilon := 1, {options})").fetchall()
    rows = brute_force(victims)
    # Columns in the order of the table, as dp_domain lists them
    names = ["region", "age", "sex", "minor"]
    expected = {}
    for k, threshold in zip((1, 2, 3), (0, *thresholds), strict=True):
        for columns in itertools.combinations(names, k):
            for values, n in Counter(tuple(row[c] for c in columns) for row in rows).items():
                parts = [(c, v) for c, v in zip(itertools.combinations(columns, k - 1), itertools.combinations(values, k - 1), strict=True)]
                if n > threshold and all(k == 1 or part in expected for part in parts):
                    expected[columns, values] = n
    assert {(tuple(c), tuple(v)): n for c, v, n in got} == expected
    assert len(got) == len(expected)
    # 'nowhere' is in the domain, and nobody is there; so is NULL, and somebody is
    shown = {v for c, v in expected if c == ("region",)}
    assert shown == {("north",), ("south",), ("west",), (None,)}


def test_every_candidate_gets_noise_the_empty_ones_too(victims, monkeypatch):
    sizes = []

    def spy(flat, mechanism, scale):
        sizes.append((flat.copy(), mechanism, float(scale)))
        return flat.copy()

    monkeypatch.setattr(discrete, "add_noise", spy)
    victims.execute("FROM dp_aggregates('victims', reporting_length := 2, epsilon := 1, fabrication := 'uncontrolled')")
    assert [mechanism for _, mechanism, _ in sizes] == ["gaussian", "gaussian"]
    assert len(sizes[0][0]) == 5 + 3 + 2 + 2  # every attribute of the domain, 'nowhere' and NULL among them
    kept = [4, 3, 2, 2]  # all but 'nowhere'
    assert len(sizes[1][0]) == sum(a * b for a, b in itertools.combinations(kept, 2))
    assert (sizes[0][0] == 0).sum() == 1
    # sigma_k sqrt(C(4, k)), p = 1, 1/2: sqrt(4) to sqrt(6) / 2
    assert sizes[0][2] / sizes[1][2] == pytest.approx(2 / (6**0.5 / 2), rel=0.01)


def test_planned_charged_once_released_drawn_exported(victims, tmp_path):
    call = f"dp_synthesize('victims', {METHOD}, epsilon := 2, options := {{'reporting_length': 2}})"
    plan = victims.execute(
        f"SELECT method, tables, cells, affordable, epsilon, notes, release, expected_error_1way, expected_error_2way FROM dp_plan('victims', {METHOD}, epsilon := 2, options := {{'reporting_length': 2}})"
    ).fetchone()
    assert plan[:4] == ("aggregate_seeded", 10, 12 + 51, True)
    assert 1.99 < plan[4] <= 2.0
    assert "larger by a factor of 1." in plan[5][0]  # what published accounting would do
    assert "reported if above" in plan[5][1]
    assert charges(victims) == 0
    victims.execute(f"CREATE TABLE synth AS FROM {call}")
    assert charges(victims) == 1
    assert victims.execute(f"FROM {call}").fetchall() == victims.execute("FROM synth").fetchall()
    assert charges(victims) == 1
    types = victims.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'synth' ORDER BY column_index").fetchall()
    assert types == [("region", "VARCHAR"), ("age", "SMALLINT"), ("sex", "ENUM('f', 'm')"), ("minor", "BOOLEAN")]
    rows, blank = victims.execute("SELECT count(*), count(*) FILTER (age IS NULL OR sex IS NULL OR minor IS NULL) FROM synth").fetchone()
    (scale,) = victims.execute(f"SELECT noise_scale FROM dp_plan('victims', {METHOD}, epsilon := 2, options := {{'reporting_length': 2}})").fetchone()
    assert near(rows, 700, scale)
    assert blank == 0
    name, notes = victims.execute("SELECT release, notes FROM dp_releases()").fetchone()
    assert name == plan[6]
    assert notes[0].startswith("k = 1: ")
    assert "expected to be tuples that nobody has" in notes[1]
    assert victims.execute(f"SELECT count(*) FROM dp_sample('{name}', rows := 1234, seed := 3)").fetchone() == (1234,)
    target = tmp_path / "copy.release.parquet"
    victims.execute(f"CALL dp_export('{name}', '{target}')")
    other = duckdb.connect()
    dpsql.load(other)
    other.execute(f"CALL dp_import('{target}')")
    assert other.execute(f"FROM dp_sample('{name}', rows := 50, seed := 3)").fetchall() == victims.execute(
        f"FROM dp_sample('{name}', rows := 50, seed := 3)"
    ).fetchall()
    other.close()


def test_rows_can_be_drawn_from_bought_aggregates(victims):
    victims.execute("CREATE TABLE a AS FROM dp_aggregates('victims', reporting_length := 2, epsilon := 5, release := 'agg')")
    assert victims.execute("SELECT count(*) FROM dp_sample('agg', rows := 300)").fetchone() == (300,)
    assert charges(victims) == 1
    assert victims.execute("SELECT min(n) > 0, max(len(columns)), bool_and(len(columns) = len(values)) FROM a").fetchone() == (True, 2, True)
    with pytest.raises(duckdb.Error, match="reporting_length"):
        victims.execute("FROM dp_aggregates('victims', reporting_length := 3, epsilon := 5, release := 'agg')")
    # the same call says the same, whatever happened to the table
    before = victims.execute("FROM a").fetchall()
    victims.execute("DELETE FROM victims")
    assert victims.execute("FROM dp_aggregates('victims', reporting_length := 2, epsilon := 5, release := 'agg')").fetchall() == before


def test_a_value_of_one_person_appears_nowhere(victims):
    """Not in names, order, plans, files, ledger or errors: with and without the person the same tuples can be reported."""
    victims.execute("CREATE TABLE a AS FROM dp_aggregates('victims', reporting_length := 3, epsilon := 9, fabrication := 'uncontrolled')")
    victims.execute(f"CREATE TABLE s AS FROM dp_synthesize('victims', {METHOD}, epsilon := 2, options := {{'reporting_length': 2, 'sampler': 'published'}})")
    texts = [str(victims.execute(f"FROM {relation}").fetchall()) for relation in ("a", "s", "dp_ledger()", "dp_releases()", f"dp_plan('victims', {METHOD}, epsilon := 1)")]
    store = next(Path(path) for path in [victims.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchone()[0] + ".dpsql"])
    files = list(store.rglob("*.parquet"))
    assert files
    assert not any(SECRET in text for text in texts)
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    # reported in the order of the public domain
    order = [tuple(c) for (c,) in victims.execute("SELECT columns FROM a").fetchall()]
    names = ["region", "age", "sex", "minor"]
    wanted = [c for k in (1, 2, 3) for c in itertools.combinations(names, k)]
    assert [wanted.index(c) for c in order] == sorted(wanted.index(c) for c in order)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("unit", [None, ("person", 3)])
def test_events_are_those_of_complete_tables(tmp_path, neighbors, unit):
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT i % 40 AS person, i % 2 = 0 AS a, i % 3 = 0 AS b, i % 5 = 0 AS c FROM range(100) r(i)")
    given = f", privacy_unit := '{unit[0]}', max_contributions := {unit[1]}" if unit else ""
    con.execute(f"CALL dp_protect('t', epsilon := 5, delta := 1e-6, neighbors := '{neighbors}'{given})")
    for name in "abc":
        con.execute(f"CALL dp_declare('t', '{name}', categories := [true, false], nullable := false)")
    con.execute("CREATE TABLE x AS FROM dp_aggregates('t', reporting_length := 3, epsilon := 1)")
    (events,) = con.execute("SELECT events FROM dpsql.ledger WHERE action = 'charge'").fetchone()
    found = [(e["event"], e["l2_sensitivity"], e["count"]) for e in json.loads(events)]
    l2 = (unit[1] if unit else 1) * (1 if neighbors == "add_remove" else 2**0.5)
    # The scales of levels 1 ... 3 fall; events come by scale.
    assert sorted(count for _, _, count in found) == [1, 3, 3]
    assert all(kind == "gaussian" and value == pytest.approx(l2) and value >= l2 * (1 - 1e-15) for kind, value, _ in found)
    assert con.execute("SELECT epsilon <= 1 FROM dp_releases()").fetchone() == (True,)
    con.close()


def test_published_accounting_costs_less_than_it_says(victims):
    options = "options := {'reporting_length': 2, 'accounting': 'published'}"
    plan = victims.execute(f"SELECT epsilon, calibration, noise_scale FROM dp_plan('victims', {METHOD}, epsilon := 1, {options})").fetchone()
    exact = victims.execute(f"SELECT noise_scale FROM dp_plan('victims', {METHOD}, epsilon := 1, options := {{'reporting_length': 2}})").fetchone()
    assert plan[1] == "published"
    assert plan[0] < 0.85
    assert plan[2] > 1.2 * exact[0]
    victims.execute(f"CREATE TABLE p AS FROM dp_synthesize('victims', {METHOD}, epsilon := 1, {options})")
    assert victims.execute("SELECT epsilon < 0.85 FROM dp_releases()").fetchone() == (True,)


def test_the_published_sampler_can_leave_cells_empty(victims):
    call = f"'victims', {METHOD}, epsilon := 9, options := {{'reporting_length': 2, 'sampler': 'published'}}"
    (sigma,) = victims.execute(f"SELECT noise_scale FROM dp_plan({call})").fetchone()
    victims.execute(f"CREATE TABLE s AS FROM dp_synthesize({call}, rows := 700)")
    rows, ages = victims.execute("SELECT count(*), count(age) FROM s").fetchone()
    assert 600 < rows < 1000
    assert ages <= rows
    assert near(ages, 700, sigma * 3**0.5, also=10)  # three bins; without noise up to 3 rows are off


def test_bad_input_is_refused_before_anything_is_charged(victims):
    for arguments, match in (
        ("reporting_length := 0, epsilon := 1", "reporting_length"),
        ("epsilon := 0", "epsilon"),
        ("epsilon := 1, delta := 0", "delta"),
        ("epsilon := 1, delta := 1e-300", "delta"),
        ("epsilon := 1, fabrication := 'none'", "fabrication"),
        ("epsilon := 1, fabrication := 'minimize', options := {'fabrication_mode': 'balanced'}", "leave one of them out"),
        ("epsilon := 1, options := {'sampling': 1}", "no such option"),
        ("epsilon := 100", "budget"),
        ("epsilon := 1, columns := ['nothing']", "nothing"),
    ):
        with pytest.raises(duckdb.Error, match=match):
            victims.execute(f"FROM dp_aggregates('victims', {arguments})")
    assert charges(victims) == 0


@pytest.mark.parametrize("options", ["", ", options := {'accounting': 'published'}", ", options := {'sigma_proportions': [1, 2, 3], 'thresholds': [9, 9]}"])
def test_combinations_are_no_longer_than_there_are_columns(victims, options):
    """The default of three was refused of two columns, once their domains were declared."""
    columns = [name for (name,) in victims.execute("SELECT column_name FROM dp_domain('victims') WHERE kind IS NOT NULL LIMIT 2").fetchall()]
    call = f"dp_aggregates('victims', columns := {columns!r}, epsilon := 1{options})"
    found = victims.execute(f"SELECT DISTINCT len(columns) FROM {call} ORDER BY ALL ASC").fetchall()
    assert found[-1] == (2,) and charges(victims) == 1
    notes = victims.execute(f"SELECT notes FROM dp_plan('victims', {METHOD}, columns := {columns!r}, epsilon := 1{options})").fetchone()[0]
    assert "k = 1 to 2" in notes[0]
    assert victims.execute(f"SELECT count(*) FROM dp_synthesize('victims', {METHOD}, columns := {columns!r}, rows := 50, epsilon := 1{options})").fetchone() == (50,)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_rows(tmp_path, rows):
    con = duckdb.connect()
    dpsql.load(con)
    con.execute(f"CREATE TABLE t AS SELECT i % 2 = 0 AS a, 'x' AS b FROM range({rows}) r(i)")
    con.execute("CALL dp_protect('t', epsilon := 5, delta := 1e-6)")
    con.execute("CALL dp_declare('t', 'a', categories := [true, false], nullable := false)")
    con.execute("CALL dp_declare('t', 'b', categories := ['x'], nullable := false)")
    con.execute("CREATE TABLE x AS FROM dp_aggregates('t', reporting_length := 2, epsilon := 1)")
    con.execute(f"CREATE TABLE s AS FROM dp_synthesize('t', {METHOD}, epsilon := 1, options := {{'reporting_length': 2}})")
    assert con.execute("SELECT count(*) < 60, count(*) = count(a) FROM s").fetchone() == (True, True)
    name = con.execute("SELECT release FROM dp_releases() WHERE operation = 'synthesize'").fetchone()[0]
    assert con.execute(f"SELECT count(*), count(DISTINCT b) FROM dp_sample('{name}', rows := 9)").fetchone() == (9, 1)
    con.close()


def test_python_has_the_same_names(victims):
    got = dpsql.aggregates(victims, "victims", reporting_length=2, epsilon=1, fabrication="minimize").fetchall()
    same = victims.execute("FROM dp_aggregates('victims', reporting_length := 2, epsilon := 1, fabrication := 'minimize')").fetchall()
    assert got == same
    assert charges(victims) == 1


def test_five_columns_and_long_tuples(monkeypatch):
    """Level 4 and 5 join their candidates too."""
    monkeypatch.setattr(discrete, "add_noise", no_noise)
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT " + ", ".join(f"hash(i * 10 + {c}) % 3 AS c{c}" for c in range(5)) + " FROM range(300) r(i)")
    con.execute("CALL dp_protect('t', epsilon := 50, delta := 1e-6)")
    for c in range(5):
        con.execute(f"CALL dp_declare('t', 'c{c}', categories := [0, 1, 2], nullable := false)")
    got = con.execute("FROM dp_aggregates('t', reporting_length := 5, epsilon := 1, options := {'thresholds': [30, 11, 3, 1]})").fetchall()
    rows = np.asarray(con.execute("FROM t").fetchall())
    kept: dict = {}
    for k, threshold in zip(range(1, 6), (0, 30, 11, 3, 1), strict=True):
        for columns in itertools.combinations(range(5), k):
            for values, n in Counter(map(tuple, rows[:, list(columns)].tolist())).items():
                parts = zip(itertools.combinations(columns, k - 1), itertools.combinations(values, k - 1), strict=True)
                if n > threshold and (k == 1 or all(part in kept for part in parts)):
                    kept[columns, values] = n
    assert {(tuple(int(c[1:]) for c in columns), tuple(map(int, values))): n for columns, values, n in got} == kept
    assert {len(columns) for columns, _ in kept} == {1, 2, 3, 4, 5}
    con.close()


def test_a_list_column_is_prepared_in_a_view(tmp_path):
    con = duckdb.connect(str(tmp_path / "lists.duckdb"))
    con.execute("CREATE TABLE cases AS SELECT i AS id, i % 2 = 0 AS adult, CASE WHEN i % 4 > 0 THEN [['home'], ['home', 'street'], ['work']][1 + i % 3] END AS places FROM range(6000) t(i)")
    places = ", ".join(f"CASE WHEN list_contains(places, '{p}') THEN '{p}' END AS {p}" for p in ("home", "street", "work"))
    con.execute(f"CREATE VIEW prepared AS SELECT adult, {places} FROM cases")
    dpsql.load(con)
    con.execute("CALL dp_protect('cases', epsilon := 8, delta := 1e-9)")
    for place in ("home", "street", "work"):
        con.execute(f"CALL dp_declare('prepared', '{place}', categories := ['{place}'])")
    call = "dp_aggregates('prepared', columns := ['home', 'street', 'work'], reporting_length := 2, epsilon := 2.0, options := {'empty': true})"
    found = {tuple(values): n for _, values, n in con.execute(f"FROM {call}").fetchall()}
    same = f"'prepared', {METHOD}, columns := ['home', 'street', 'work'], epsilon := 2.0, options := {{'reporting_length': 2, 'empty': true}}"
    (largest,) = con.execute(f"SELECT noise_scale FROM dp_plan({same})").fetchone()
    assert near([found["home",], found["street",], found["work",]], [3000, 1500, 1500], largest)
    assert near(found["home", "street"], 1500, largest)
    assert ("home", "work") not in found or near(found["home", "work"], 0, largest)
    con.close()
