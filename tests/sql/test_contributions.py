"""Rows of one person: the bound is stated, chosen with help, and said wherever counts are."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from noisy import near_plan

import dpsql
from dpsql.domains import unit_rows
from dpsql.measure import noising, reading

pytestmark = pytest.mark.any_duckdb

PROTECT = "CALL dp_protect('visits', epsilon := 5, delta := 1e-9, privacy_unit := 'patient'"
BOUGHT, PLANNED = "FROM dp_contributions('visits', epsilon := 1)", "'visits', epsilon := 1, operation := 'contributions'"


def make_visits(connection: duckdb.DuckDBPyConnection, extra: str = "") -> None:
    """4,000 patients: 1,000 with one row, 1,000 with two, 1,000 with four, 1,000 with twelve; a row without a patient."""
    connection.execute(
        "CREATE TABLE visits AS SELECT (i * 4 + g)::INTEGER AS patient, g::INTEGER AS ward "
        "FROM range(1000) u(i), (VALUES (0, 1), (1, 2), (2, 4), (3, 12)) v(g, times), range(times) "
        "UNION ALL SELECT NULL, 0"
    )
    if extra:
        connection.execute(extra)


@pytest.fixture
def visits() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    make_visits(connection)
    dpsql.load(connection)
    yield connection
    connection.close()


def test_a_privacy_unit_needs_max_contributions_and_the_text_says_how_to_choose(visits):
    with pytest.raises(duckdb.Error, match=r"max_contributions is not given.*at most that many rows of each patient.*dp_contributions"):
        visits.execute(f"{PROTECT})")
    assert visits.execute("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'dpsql'").fetchone() == (0,)
    visits.execute(f"{PROTECT}, max_contributions := 1)")
    visits.execute("CALL dp_protect('visits', epsilon := 6)")
    visits.execute(f"{PROTECT})")  # it is stated already: what is left out stays
    with pytest.raises(duckdb.Error, match="max_contributions is not given"):
        visits.execute("CALL dp_protect('visits', epsilon := 6, privacy_unit := 'ward')")
    assert visits.execute("SELECT privacy_unit, max_contributions FROM dp_budget()").fetchall() == [("patient", 1)]


def test_the_histogram_counts_units_once_and_is_a_release_like_others(visits, monkeypatch):
    monkeypatch.setattr(unit_rows, "SURE", 1 - 1e-9)  # no empty bucket passes for units, with a false-alarm rate below 1e-8
    visits.execute(f"{PROTECT}, max_contributions := 2)")
    rows = visits.execute(BOUGHT).fetchall()
    assert [row[0] for row in rows][:5] == ["1", "2", "3-4", "5-9", "10-19"] and rows[-1][0] == "1000+"
    wanted = [1001, 1000, 1000, 0, 1000, *[0] * 6]
    assert near_plan(visits, PLANNED, [row[1] for row in rows], wanted)
    assert all(low < n < high and high - n == n - low for _, n, low, high, _, _ in rows)
    kept = {most: share for *_, most, share in rows}
    assert kept[1] == pytest.approx(4 / 19, abs=0.03) and kept[20] == 1.0
    assert sorted(kept.values()) == [kept[most] for most in unit_rows.LOWER]
    assert visits.execute(BOUGHT).fetchall() == rows
    assert visits.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)
    name, operation, status, notes = visits.execute("SELECT release, operation, status, notes FROM dp_releases()").fetchone()
    assert (operation, status) == ("contributions", "stored") and "counts are of units (patient)" in notes[0]
    with pytest.raises(duckdb.Error, match="release"):
        visits.execute(f"FROM dp_sample('{name}')")


def test_the_charge_is_that_of_one_row_per_unit_and_the_bound_may_change_until_another_purchase(visits):
    visits.execute(f"{PROTECT}, max_contributions := 50)")
    scale = "SELECT noise_scale, expected_error_1way FROM dp_plan('visits', operation := 'contributions', epsilon := 1)"
    first = visits.execute(scale).fetchone()
    visits.execute(BOUGHT)
    visits.execute("CALL dp_protect('visits', max_contributions := 4)")
    assert visits.execute(scale).fetchone() == first
    assert visits.execute(BOUGHT).fetchall()
    visits.execute("CALL dp_declare('visits', 'ward', categories := [0, 1, 2, 3], nullable := false)")
    visits.execute("FROM dp_marginals('visits', columns := ['ward'], epsilon := 1)")
    with pytest.raises(duckdb.Error, match="Only epsilon and delta can change"):
        visits.execute("CALL dp_protect('visits', max_contributions := 5)")
    assert visits.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)


def test_plans_and_releases_say_what_is_kept_and_what_other_bounds_cost(visits):
    visits.execute(f"{PROTECT}, max_contributions := 4)")
    visits.execute("CALL dp_declare('visits', 'ward', categories := [0, 1, 2, 3], nullable := false)")
    plan = "SELECT noise_by_contributions, noise_scale, notes FROM dp_plan('visits', k := 1, epsilon := 1)"
    scales, here, notes = visits.execute(plan).fetchone()
    assert list(scales) == [1, 2, 4, 5, 10, 20, 50]
    assert scales[4] == pytest.approx(here, rel=1e-5) and scales[50] == pytest.approx(50 * scales[1], rel=0.01)
    assert "at most 4 rows of each patient are kept" in " ".join(notes) and "dp_contributions" in " ".join(notes)
    visits.execute(BOUGHT)
    visits.execute("FROM dp_marginals('visits', k := 1, epsilon := 1)")
    said = visits.execute("SELECT notes FROM dp_releases() WHERE operation = 'marginals'").fetchone()[0]
    # 11 of 19 rows; the estimate takes 3-4 rows for 3.4 and 10-19 for 13.9
    assert "at most 4 rows of each patient are kept, at random: counts are of the kept rows, about 5" in said[0]
    assert "about 5" in " ".join(visits.execute(plan).fetchone()[2])


def test_without_a_unit_there_is_no_histogram(visits):
    visits.execute("CALL dp_protect('visits', epsilon := 5, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="has no privacy_unit: every row is a unit of its own"):
        visits.execute(BOUGHT)
    visits.execute("CALL dp_declare('visits', 'ward', categories := [0, 1, 2, 3], nullable := false)")
    assert visits.execute("SELECT noise_by_contributions FROM dp_plan('visits', k := 1, epsilon := 1)").fetchone() == (None,)


@pytest.mark.parametrize("extra", [
    "INSERT INTO visits SELECT -1, 0 FROM range(3000)",
    "INSERT INTO visits VALUES (-1, 3)",
    "DELETE FROM visits WHERE patient = 7",
    "DELETE FROM visits WHERE patient IS NULL",
    "DELETE FROM visits WHERE patient = 7; INSERT INTO visits SELECT 7, 1 FROM range(60)",
])
def test_one_unit_moves_the_exact_histogram_by_what_the_noise_covers(monkeypatch, extra):
    """With the noise off, whatever max_contributions is: L1 at most 1 for a unit more or fewer, at most 2 for one that changes."""
    monkeypatch.setattr(noising, "add_noise", lambda flat, lengths, scales, mechanism: flat)
    seen = []
    for change in ("", extra):
        con = duckdb.connect()
        make_visits(con, change)
        dpsql.load(con)
        con.execute(f"{PROTECT}, max_contributions := 3)")
        con.execute("CREATE TABLE wards (ward INTEGER PRIMARY KEY, name VARCHAR)")
        con.execute("INSERT INTO wards SELECT i, 'w' || i FROM range(10) t(i)")
        for source in ("visits", "SELECT visits.ward, wards.name FROM visits LEFT JOIN wards ON visits.ward = wards.ward"):
            found = con.execute(f"FROM dp_contributions('{source}', epsilon := 1)").fetchall()
            seen.append(np.array([row[1] for row in found]))
        con.close()
    limit = 2 if ";" in extra else 1
    assert 1 <= np.abs(seen[0] - seen[2]).sum() <= limit
    assert (seen[0] == seen[1]).all() and (seen[2] == seen[3]).all()


def test_evaluate_shows_the_shortfall(visits):
    visits.execute(f"{PROTECT}, max_contributions := 4)")
    visits.execute("CALL dp_declare('visits', 'ward', categories := [0, 1, 2, 3], nullable := false)")
    visits.execute("CREATE TABLE part AS FROM visits LIMIT 4751")
    row = visits.execute("SELECT rows, synthetic_rows, shortfall FROM dp_evaluate('visits', 'part', max_k := 1)").fetchone()
    assert row == (19001, 4751, pytest.approx(0.75, abs=1e-3))
    with pytest.raises(duckdb.Error, match=r"synthetic = 'nope': no such table"):
        visits.execute("FROM dp_evaluate('visits', 'nope')")


# -- rows per row of a table above ----------------------------------------------------------------------------------------------


LEVEL = "FROM dp_contributions('procedures', per := 'visits', epsilon := 1)"
VISITS = 4
"""Of a patient, in a release."""


def make_clinic(unit: str = "patient", orphans: str = "drop", change: str = "") -> duckdb.DuckDBPyConnection:
    """300 patients with three visits each, of one, two and six procedures; one with nine visits of 30; visits and procedures of nobody."""
    con = duckdb.connect()
    con.execute(
        f"""
        CREATE TABLE patients (patient INTEGER PRIMARY KEY, family INTEGER);
        CREATE TABLE visits (visit INTEGER UNIQUE, patient INTEGER);
        CREATE TABLE procedures (visit INTEGER);
        INSERT INTO patients SELECT i, i // 2 FROM range(301) t(i);
        INSERT INTO visits SELECT 10 * i + j, i FROM range(300) t(i), range(3) s(j) UNION ALL SELECT 10 * 300 + j, 300 FROM range(9) s(j);
        INSERT INTO procedures SELECT visit FROM visits, range([1, 2, 6][1 + visit % 10]) t(k) WHERE visit < 3000
            UNION ALL SELECT visit FROM visits, range(30) t(k) WHERE visit >= 3000;
        INSERT INTO visits VALUES (9001, NULL), (9002, 777);
        INSERT INTO procedures VALUES (9001), (9002), (9002), (NULL), (8000);
        {change}
        """
    )
    dpsql.load(con, progress=False)
    most = 1 if unit == "patient" else 2
    con.execute(f"CALL dp_protect('patients', epsilon := 1000, delta := 1e-9, privacy_unit := '{unit}', max_contributions := {most})")
    con.execute(f"CALL dp_link('visits', 'patient', parent := 'patients', max_rows := {VISITS // most}, orphans := '{orphans}')")
    con.execute(f"CALL dp_link('procedures', 'visit', parent := 'visits', parent_column := 'visit', max_rows := 5, orphans := '{orphans}')")
    return con


def histogram(con: duckdb.DuckDBPyConnection, call: str = LEVEL) -> np.ndarray:
    return np.array([row[1] for row in con.execute(call).fetchall()])


def test_rows_by_level(monkeypatch):
    monkeypatch.setattr(noising, "add_noise", lambda flat, lengths, scales, mechanism: flat)
    con = make_clinic()
    # visits by procedures: nine of 30 are bounded to four of the patient; of patients: three of 4 and all of 9 or 270
    assert histogram(con).tolist() == [300, 300, 0, 300, 0, 4, 0, 0, 0, 0, 0]
    for source, per, wanted in (("procedures", "patients", {"5-9": 300, "200-499": 1}), ("visits", "main.patients", {"3-4": 300, "5-9": 1})):
        found = con.execute(f"FROM dp_contributions('{source}', per := '{per}', epsilon := 1)").fetchall()
        assert {row[0]: row[1] for row in found if row[1]} == wanted
        whole = con.execute(f"FROM dp_contributions('{source}', epsilon := 1)").fetchall()  # here a patient is a unit
        assert [row[:2] for row in whole] == [row[:2] for row in found]
    families = make_clinic("family")
    found = families.execute("FROM dp_contributions('visits', per := 'patients', epsilon := 1)").fetchall()
    assert {row[0]: row[1] for row in found if row[1]} == {"3-4": 300, "5-9": 1}


def test_a_level_is_a_release_of_its_own_charged_to_the_root():
    con = make_clinic()
    [(scale, notes)] = con.execute("SELECT noise_scale, notes FROM dp_plan('procedures', epsilon := 1, operation := 'contributions', options := {'per': 'visits'})").fetchall()
    [(each,)] = con.execute("SELECT noise_scale FROM dp_plan('procedures', epsilon := 1, operation := 'contributions')").fetchall()
    assert scale == pytest.approx(VISITS * each, rel=1e-2)
    assert notes[0] == "counts rows of main.visits, at most 4 of each patient, by their number of rows linked to each"
    first = con.execute(LEVEL).fetchall()
    assert con.execute(LEVEL.replace("'visits'", "'main.visits'")).fetchall() == first
    assert con.execute("FROM dp_contributions('procedures', epsilon := 1)").fetchall() != first
    rows = con.execute("SELECT source, parameters ->> '$.per', parameters ->> '$.linked.tables' FROM dp_ledger('procedures') WHERE action = 'charge'").fetchall()
    assert rows == [("main.patients", per, '["main.patients","main.procedures","main.visits"]') for per in ("main.visits", None)]
    notes = [row[0] for row in con.execute("SELECT notes[1] FROM dp_releases() ORDER BY notes[1] ASC").fetchall()]
    assert notes == ["counts are of rows of main.visits, at most 4 of each patient, by their number of rows", "counts are of units (patient), each once, by their number of rows"]
    con.execute("CALL dp_declare('visits', 'visit', lower := 0, upper := 3000, bins := 2)")
    notes = con.execute("SELECT notes FROM dp_plan('SELECT visit FROM visits', k := 1, epsilon := 1)").fetchone()[0]
    assert "by release" not in " ".join(notes), "no histogram of rows per visit is taken for one of rows per patient"


def test_what_has_no_such_level_is_refused():
    con = make_clinic()
    for source, per, why in (
        ("patients", "visits", "is not the name of a linked table"), ("SELECT visit FROM procedures", "visits", "is not the name of a linked table"),
        ("visits", "procedures", "per := 'main.patients'"), ("procedures", "nothing", "per := 'main.visits' or per := 'main.patients'"),
    ):  # fmt: skip
        with pytest.raises(duckdb.Error, match=why):
            con.execute(f"FROM dp_contributions('{source}', per := '{per}', epsilon := 1)")
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (0,)


GONE = "DELETE FROM procedures WHERE visit IN (SELECT visit FROM visits WHERE patient IN ({0})); DELETE FROM visits WHERE patient IN ({0}); DELETE FROM patients WHERE patient IN ({0})"


@pytest.mark.parametrize(("unit", "orphans", "gone"), [
    ("patient", "drop", "300"), ("family", "drop", "6, 7"), ("family", "unit", "300"),
])  # fmt: skip
def test_a_unit_moves_the_rows_of_a_level_by_what_the_noise_covers(unit, orphans, gone, monkeypatch):
    """All rows of one unit in all tables left out: L1 at most four, whoever has how many visits; and a bound forgotten is found."""
    monkeypatch.setattr(noising, "add_noise", lambda flat, lengths, scales, mechanism: flat)
    monkeypatch.setattr(reading, "fresh_salt", lambda: "5" * 32)
    for planted in (False, True):
        if planted:
            bounding = reading.bounding
            monkeypatch.setattr(reading, "bounding", lambda protected, plain=bounding: {**plain(protected), "max_contributions": 100})
        one, other = (histogram(make_clinic(unit, orphans, change)) for change in ("", GONE.format(gone)))
        moved = np.abs(one - other).sum()
        most = 1000 if planted else VISITS
        assert 0 < moved <= most
        assert not planted or moved == (9 if gone == "300" else 6)
