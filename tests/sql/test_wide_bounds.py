"""Quantiles under generous bounds: as near as under tight ones, to the step of the type, whatever the bounds are."""

import datetime as dt
from decimal import Decimal

import duckdb
import pytest

import dpsql
from dpsql.measure import query as reading
from dpsql.measure.leaves import UnitRows

pytestmark = pytest.mark.any_duckdb

BOUNDS = {
    "number": ["[0, 140]", "[0, 1000]", "[0, 100000]", "[-1000000, 100000000]"],
    "whole": ["[0, 140]", "[0, 1000]", "[0, 100000]", "[-1000000, 100000000]"],
    "price": ["[0, 140]", "[0, 1000]", "[0, 100000]", "[-1000000, 100000000]"],
    "day": ["['2020-01-01', '2020-12-31']", "['0001-01-01', '9999-12-31']"],
    "moment": ["['2020-01-01', '2020-12-31']", "['1000-01-01', '9000-12-31']"],
}


@pytest.fixture(scope="module")
def wide():
    """20,000 people with values between 20 and 140, days and moments of 2020, and two columns in which most have one value."""
    con = duckdb.connect()
    con.execute(
        """
        CREATE TABLE people AS
        SELECT i AS person, ['a', 'b', 'c'][1 + i % 3] AS ward, 20 + (i * 7919 % 20000) * 0.006::DOUBLE AS number,
            (20 + i * 7919 % 121)::INTEGER AS whole, (20 + (i * 7919 % 12000) / 100)::DECIMAL(12, 2) AS price,
            DATE '2020-01-01' + (i * 7919 % 366)::INTEGER AS day, TIMESTAMP '2020-01-01' + to_seconds(i * 7919 % 20000 * 1581) AS moment,
            CASE WHEN i % 5 > 0 THEN 65000 ELSE i * 7919 % 500000 END::INTEGER AS tied,
            CASE WHEN i % 5 > 0 THEN 649.37 ELSE (i * 7919 % 500000) / 1.7 END::DOUBLE AS tied_real
        FROM range(20000) t(i)
        """
    )
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('people', epsilon := 1000, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    con.execute("CALL dp_declare('people', 'ward', categories := ['a', 'b', 'c'], nullable := false)")
    yield con
    con.close()


def asked(con, select, bounds, epsilon=2.0, more=""):
    quoted = select.replace("'", "''")
    return con.execute(f"FROM dp_query('{quoted}', epsilon := {epsilon}, bounds := {bounds}{more})").fetchall()


@pytest.mark.parametrize(("column", "bounds"), [(column, pair) for column, pairs in BOUNDS.items() for pair in pairs])
def test_a_quantile_is_where_it_is_whatever_the_bounds_are(wide, column, bounds):
    """Noise on a rank of some 60 of 20,000 rows, seeded: within a thirtieth of the range is more than ten deviations."""
    exact = wide.execute(f"SELECT quantile_cont({column}, 0.25), median({column}), quantile_disc({column}, 0.9), max({column}) - min({column}) FROM people").fetchone()
    select = f"SELECT quantile_cont({column}, 0.25) AS q, median({column}) AS m, quantile_disc({column}, 0.9) AS n FROM people"
    [found] = asked(wide, select, f"{{'{column}': {bounds}}}", more=", confidence := 0.9999")
    near = exact[3] / 30 if not isinstance(exact[3], int) or column != "day" else dt.timedelta(days=exact[3] / 30)
    for (value, low, high), truth in zip((found[:3], found[3:6], found[6:]), exact[:3], strict=True):
        assert type(value) is type(truth)
        assert abs(value - truth) <= near and low <= value <= high
        assert high - low <= 2 * near


@pytest.mark.parametrize("groups", ["public", "private"])
def test_every_group_has_its_own(wide, groups):
    exact = dict(wide.execute("SELECT ward, median(number + CASE ward WHEN 'b' THEN 3000 ELSE 0 END) FROM people GROUP BY ward").fetchall())
    select = "SELECT ward, median(number + CASE ward WHEN 'b' THEN 3000 ELSE 0 END) AS m FROM people GROUP BY ward"
    bounds = "{\"number + CASE ward WHEN 'b' THEN 3000 ELSE 0 END\": [0, 1000000]}".replace('"', "'").replace("'b'", "''b''")
    found = dict(asked(wide, select, bounds, more=f", groups := '{groups}'"))
    assert found.keys() == exact.keys()
    for ward, value in found.items():
        assert abs(value - exact[ward]) < 5


@pytest.mark.parametrize("upper", [500_000, 10**12])
def test_a_tie_is_answered_with_the_tied_value(wide, upper):
    select = "SELECT median(tied), median(tied_real), quantile_disc(tied, 0.6) FROM people"
    [found] = asked(wide, select, f"{{'tied': [0, {upper}], 'tied_real': [0, {upper}]}}", more=", confidence := 0.95")
    value, low, high = found[3:6]
    assert found[:3] + found[6:] == (65_000.0,) * 3 + (65_000,) * 3 and value == 649.37
    assert low <= value <= high and high - low <= (0 if upper < 10**9 else upper * 2**-48), "where a cell is wide, its ends are shown"


def test_summaries_hold_too(wide):
    wide.execute("CALL dp_declare('people', 'price', lower := 0, upper := 1000000, nullable := false)")
    rows = wide.execute("SELECT q25, q50, q75 FROM dp_summarize('people', epsilon := 6.0, columns := ['price'])").fetchall()
    [(low, middle, high)] = rows
    for value, truth in ((low, 50), (middle, 80), (high, 110)):
        assert abs(float(value) - truth) < 4


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_plan_says_so_and_charges_for_it(wide, mechanism):
    select = "SELECT median(least(greatest(number, 0), 1000000)) FROM people WHERE whole > 20"
    [(noise,)] = wide.execute(f"SELECT notes FROM dp_plan('{select}', epsilon := 2, mechanism := '{mechanism}')").fetchall()
    assert "of all groups together, which say where the rows are" in str(noise)
    [(value,)] = wide.execute(f"FROM dp_query('{select}', epsilon := 2, mechanism := '{mechanism}')").fetchall()
    assert abs(value - 80) < 8


def test_few_values_need_no_histograms_before(wide):
    [(noise,)] = wide.execute("SELECT notes FROM dp_plan('SELECT median(least(greatest(whole, 0), 140)) FROM people', epsilon := 2)").fetchall()
    assert "histograms of values from 0 to 140" in str(noise) and "say where the rows are" not in str(noise)


def test_an_answer_is_the_same_again_from_the_file(tmp_path):
    path = str(tmp_path / "kept.duckdb")
    answers = []
    for _ in range(2):
        con = duckdb.connect(path)
        con.execute("CREATE TABLE IF NOT EXISTS t AS SELECT i AS u, (i * 7919 % 5000) / 50 AS x FROM range(5000) r(i)")
        dpsql.load(con, progress=False)
        if not answers:
            con.execute("CALL dp_protect('t', epsilon := 10, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
        answers.append(asked(con, "SELECT median(x), quantile_cont(x, [0.1, 0.9]) FROM t", "{'x': [0, 1000000]}"))
        [(charges,)] = con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()
        assert charges == 1
        con.close()
    assert answers[0] == answers[1]
    assert abs(answers[0][0][0] - 50) < 3


def test_odd_values_fall_into_the_outermost_leaves():
    """NaN is missing, infinities count as the bounds, and nothing fails."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u, CASE i % 4 WHEN 0 THEN 'nan' WHEN 1 THEN '-inf' WHEN 2 THEN 'inf' ELSE '1e300' END::DOUBLE AS x, "
                "NULL::DECIMAL(38, 10) AS d, TIMESTAMP 'infinity' AS m FROM range(4000) r(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 100, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    [(low, high, nothing, _)] = asked(
        con, "SELECT quantile_cont(x, 0.1), quantile_cont(x, 0.9), median(d), median(m) FROM t",
        "{'x': [-1e9, 1e9], 'd': [-1e20, 1e20], 'm': ['0001-01-01', '9999-12-31']}", 20.0,
    )
    assert low == -1e9 and high == 1e9
    assert nothing is None or isinstance(nothing, Decimal | float)
    con.close()


def test_all_levels_are_read_from_one_state_of_the_table(tmp_path, monkeypatch):
    """A person whose rows are moved while a query reads counts once, not once for each statement."""
    con = duckdb.connect(str(tmp_path / "moving.duckdb"))
    con.execute("CREATE TABLE t AS SELECT i AS u, CASE WHEN i % 2 = 0 THEN 700.0 ELSE i * 7919 % 5000 END AS x FROM range(5000) r(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    asked(con, "SELECT median(x) FROM t WHERE u >= 0", "{'x': [0, 1000000]}", 100.0)  # rehearsed
    reads, totals, read = [], [], UnitRows._add
    mover = con.cursor()

    def moving(self, shift, regions):
        read(self, shift, regions)
        reads.append(shift)
        mover.execute(f"UPDATE t SET x = x + {1000 * len(reads)}")

    def summed(plan, found, released=reading.released):
        totals.append([int(block.sum()) for block in found.blocks])
        return released(plan, found)

    monkeypatch.setattr(UnitRows, "_add", moving)
    monkeypatch.setattr(reading, "released", summed)
    asked(con, "SELECT median(x) FROM t WHERE u >= 0", "{'x': [0, 1000000]}", 200.0)
    assert len(reads) >= 2 and totals == [[5000] * len(totals[0])]
    [(moved,)] = con.execute("SELECT max(x) FROM t").fetchall()
    assert moved > 6_000
    con.close()


@pytest.mark.parametrize(
    ("bounds", "more", "said"),
    [("[1e-320, 2e-320]", "", "too near to each other"), ("[0, 10]", ", options := {'weights': {'median(number)': 1e15}}", "below 1e6")],
)
def test_bounds_and_weights_that_no_double_holds_are_named(wide, bounds, more, said):
    with pytest.raises(duckdb.Error, match=said):
        asked(wide, "SELECT median(number) FROM people", f"{{'number': {bounds}}}", more=more)


@pytest.mark.parametrize("spelt", ["count(*)", "COUNT( * )", "count()", "median(number)", "Median( Number )"])
def test_weights_are_named_as_in_the_text(wide, spelt):
    text = "SELECT count(*), median(number) FROM people WHERE number BETWEEN 0 AND 1000"
    scale = f"SELECT noise_scale FROM dp_plan('{text}', epsilon := 1{{}})"
    even = wide.execute(scale.format("")).fetchall()
    assert wide.execute(scale.format(f", options := {{'weights': {{'{spelt}': 50}}}}")).fetchall() != even
    with pytest.raises(duckdb.Error, match=r"there are \['count\(\*\)', 'median"):
        wide.execute(scale.format(", options := {'weights': {'sum(number)': 50}}"))
