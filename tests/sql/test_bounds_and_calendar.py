"""dp_declare: bounds of numbers that are bought, bins of the calendar; what must never be charged without an answer."""

from __future__ import annotations

import itertools
import json

import duckdb
import numpy as np
import pytest
from pairwise import in_turn

import dpsql
from dpsql.domains import bounds, calendar, sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.release.checking import check_readable
from dpsql.release.plan import Plan
from dpsql.tables.counting.fold import FoldCounter
from dpsql.tables.counting.roads import Fold
from dpsql.tables.flat import FlatTables


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(str(tmp_path / "t.duckdb"))
    dpsql.load(con, progress=False)
    con.execute(
        "CREATE TABLE t AS SELECT (i % 80)::INTEGER AS age, (i % 1000)::DECIMAL(10, 2) AS cost, (i % 900 - 200)::DOUBLE AS d, "
        "-(i % 9)::HUGEINT * 1000000000000000 AS h, DATE '2020-01-01' + (i % 700)::INTEGER AS seen, i % 2 = 0 AS flag, "
        "TIMESTAMP '2020-01-01' + to_minutes((i * 7)::INTEGER) AS at_ FROM range(20000) t(i)"
    )
    con.execute("CALL dp_protect('t', epsilon := 100, delta := 1e-6)")
    yield con
    con.close()


def charges(con):
    return con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone()[0]


def edges(con, column):
    text = con.execute('SELECT attribute FROM dpsql.domains WHERE "column" = ?', [column]).fetchone()[0]
    return Domain.from_json([json.loads(text)]).attributes[0].edges


@pytest.mark.parametrize(
    ("column", "low", "high"), [("age", 0.0, 127.0), ("cost", 0.0, 1024.0), ("d", -256.0, 1024.0), ("h", -9007199254740992.0, 0.0)]
)
def test_bounds_of_numbers_are_bought_as_powers_of_two(con, column, low, high):
    call = f"CALL dp_declare('t', '{column}', discover := true, epsilon := 10, nullable := false)"
    row = con.execute(call).fetchone()
    assert (row[2], row[7]) == ("numeric", "declared")
    found = edges(con, column)
    assert (found[0], found[-1]) == (low, high)
    assert con.execute(call).fetchone() == row
    assert charges(con) == 1
    assert con.execute("SELECT operation FROM dp_releases()").fetchone() == ("discover",)


def test_bounds_that_are_a_guess_say_so_and_are_no_error(con):
    con.execute("CREATE TABLE empty (x DOUBLE); CALL dp_protect('empty', epsilon := 9, delta := 1e-6)")
    row = con.execute("CALL dp_declare('empty', 'x', discover := true, epsilon := 0.1)").fetchone()
    assert "are a guess" in row[7] or row[7] == "declared"  # by noise alone, once in a hundred times
    assert con.execute("FROM dp_synthesize('empty', epsilon := 1, rows := 3)").fetchall() != []


def test_a_list_of_numbers_is_bought_by_its_name(con):
    row = con.execute("CALL dp_declare('t', 'age', discover := 'values', epsilon := 50)").fetchone()
    assert row[2] == "categorical"
    with pytest.raises(duckdb.Error, match="true, false or 'values'"):
        con.execute("CALL dp_declare('t', 'cost', discover := 'bounds', epsilon := 1)")
    with pytest.raises(duckdb.Error, match="leave it out where discover"):
        con.execute("CALL dp_declare('t', 'cost', discover := true, epsilon := 1, calendar := 'month')")
    assert charges(con) == 1


def test_bounds_of_the_basic_accountant_are_bought_with_laplace_noise(con):
    con.execute("CREATE TABLE b AS SELECT i % 50 AS x FROM range(5000) t(i)")
    con.execute("CALL dp_protect('b', epsilon := 9, delta := 1e-9, accountant := 'basic')")
    con.execute("CALL dp_declare('b', 'x', discover := true, epsilon := 5)")
    assert con.execute("SELECT delta FROM dp_ledger('b') WHERE action = 'charge'").fetchone()[0] in (0, None)
    assert edges(con, "x")[-1] == 63.0


def test_cells_end_at_powers_of_two_for_all_types():
    for text in ("TINYINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL(18,4)", "DECIMAL(38,38)", "FLOAT", "DOUBLE"):
        attribute = bounds.magnitudes("x", text, nullable=True)
        assert all(a < b for a, b in itertools.pairwise(attribute.edges))
        inner = np.abs(np.asarray(attribute.edges[1:-1]))
        assert np.all(np.log2(inner[inner > 0]) % 1 == 0)
        counts = np.zeros(attribute.size, np.int64)
        low, high, sure = bounds.bounds_of(attribute, counts, 10.0, "gaussian")
        assert low < high
        assert not sure
        counts[attribute.values // 2] = 1000
        assert bounds.bounds_of(attribute, counts, 10.0, "gaussian")[2]


@pytest.mark.parametrize(("name", "first", "count"), [
    ("year", "2021-01-01", 4), ("quarter", "2020-04-01", 13), ("month", "2020-03-01", 38), ("week", "2020-03-02", 158), ("day", "2020-03-01", 1097),
])
def test_bins_of_dates_end_where_the_calendar_s_do(con, name, first, count):
    con.execute(
        "CALL dp_declare('t', 'seen', lower := '2020-02-29', upper := '2023-03-02', calendar := ?, nullable := false)", [name]
    )
    found = edges(con, "seen")
    assert (found[0], found[1], found[-1], len(found) - 1) == ("2020-02-29", first, "2023-03-02", count)
    synthetic = con.execute("SELECT min(seen), max(seen) FROM dp_synthesize('t', columns := ['seen'], epsilon := 5)").fetchone()
    assert "2020-02-29" <= str(synthetic[0]) <= str(synthetic[1]) <= "2023-03-02"


def test_the_calendar_of_timestamps_and_its_errors(con):
    con.execute("CALL dp_declare('t', 'at_', lower := '2020-01-01 00:30:00', upper := '2020-01-02', calendar := 'hour')")
    assert len(edges(con, "at_")) - 1 == 24
    for more, said in (
        ("calendar := 'hour', lower := '2020-01-01', upper := '2021-01-01'", "a DATE has no bins of that kind"),
        ("calendar := 'month'", "name these two"), ("calendar := 'decade', lower := '2020-01-01', upper := '2021-01-01'", "must be one of"),
        ("calendar := 'month', lower := '2020-01-01', upper := '2021-01-01', bins := 3", "no bins or edges"),
        ("calendar := 'day', lower := '1900-01-01', upper := '2021-01-01'", "more than 10,000 bins"),
        ("calendar := 'day', lower := '2021-01-01', upper := '2020-01-01'", "must be before"),
    ):
        with pytest.raises(duckdb.Error, match=said):
            con.execute(f"CALL dp_declare('t', 'seen', {more})")
    date = sqltypes.parse("DATE")
    low, high = sqltypes.steps_of(date, "0001-01-01"), sqltypes.steps_of(date, "9999-12-31")
    assert len(calendar.calendar_marks(date, low, high, "year", 20_000)) == 9999


def test_methods_that_use_numbers_without_bins_take_automatic_ones(con):
    con.execute("CREATE TABLE s AS SELECT i % 1000 AS income FROM range(3000) t(i)")
    con.execute("CALL dp_protect('s', epsilon := 9, delta := 1e-6, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('s', 'income', lower := 0, upper := 1000, nullable := false)")
    assert con.execute("SELECT count(*) FROM dp_synthesize('s', method := 'modips', epsilon := 2)").fetchone() == (3000,)
    assert "histogram" not in str(con.execute("SELECT notes FROM dp_plan('s', method := 'modips', epsilon := 2)").fetchone())


def test_many_columns_of_one_bin_are_counted():
    """Noise may leave automatic columns a single bin: an array has at most 64 axes, a table of 98 columns of one value has none."""
    sizes = [1] * 98 + [3]
    tables = FlatTables(sizes, [(0, 98), (98,), (5,)], np.zeros(7, np.int64))
    counter = FoldCounter(tables, [Fold((tuple(range(99)),), (0, 1, 2))])
    codes = [np.zeros(10, np.uint8)] * 98 + [np.arange(10, dtype=np.uint8) % 3]
    counter.add(codes)
    counter.finish()
    assert tables.flat.tolist() == [4, 3, 3, 4, 3, 3, 10]


def test_a_plan_that_could_not_be_read_again_is_refused_before_the_charge():
    domain = Domain((Attribute("x", "DOUBLE", "numeric", edges=(0.0, float("inf"))),))
    plan = Plan(domain, ((0,),), (), "gaussian", False, None, {})
    with pytest.raises(dpsql.DpsqlError, match="nothing was charged"):
        check_readable(plan)


@pytest.fixture(scope="module")
def open_dates():
    """People from or until dates that mean 'unknown' and 'open' to many, as DATE, TIMESTAMP and TIMESTAMPTZ; a tenth is infinite."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(
        "CREATE TABLE stays AS SELECT i AS person, CASE WHEN i % 10 < 3 THEN '0001-01-01' WHEN i % 10 < 6 THEN '9999-12-31' WHEN i % 10 < 7 THEN 'infinity' "
        "WHEN i % 10 < 8 THEN '0044-03-15 (BC)' ELSE '2024-02-29' END::DATE AS d, d::TIMESTAMP AS s, d::TIMESTAMPTZ AS z FROM range(20000) t(i)"
    )
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('stays', epsilon := 1000, delta := 1e-6, privacy_unit := 'person', max_contributions := 1)")
    yield con
    con.close()


OF_OPEN_DATES = (
    "year({0})", "month({0})", "extract(century FROM {0})", "date_trunc('month', {0})", "strftime({0}, '%Y-%m')", "date_diff('day', {0}, {0} - INTERVAL 1 DAY)",
    "date_diff('year', {0}, TIMESTAMP '2024-01-01')", "{0} - INTERVAL 1 YEAR", "{0} + INTERVAL 1 DAY", "last_day({0})", "dayname({0})", "{0}::DATE",
)  # fmt: skip


@pytest.mark.parametrize(("call", "column"), in_turn(OF_OPEN_DATES, "dsz"))
def test_dates_that_mean_open_or_unknown_are_computed_with(open_dates, call, column):
    """They became NULL in every date function. A group is one of DuckDB's own, with as many rows, in dp_query and in dp_query_exact."""
    if column == "z":
        call = call.replace("TIMESTAMP '2024-01-01'", "TIMESTAMPTZ '2024-01-01 00:00:00+00'")
    call = call.format(column)
    select = f"SELECT ({call})::VARCHAR AS k, count(*) AS n FROM stays GROUP BY k"
    exact = dict(open_dates.execute(select).fetchall())
    quoted = select.replace("'", "''")
    assert {k: n for k, n in open_dates.execute(f"FROM dp_query_exact('{quoted}')").fetchall() if n} == exact
    found = dict(open_dates.execute(f"FROM dp_query('{quoted}', epsilon := 8)").fetchall())
    assert found.keys() >= exact.keys()
    assert all(abs(found[k] - exact.get(k, 0)) < 30 for k in found)


@pytest.mark.parametrize("column", ["d", "s", "z"])
def test_bounds_at_the_ends_of_the_calendar_bound_what_is_computed(open_dates, column):
    """Values are between the bounds that follow from '0001-01-01' to '9999-12-31', the least and the largest themselves."""
    bounds = f"bounds := {{'{column}': ['0001-01-01', '9999-12-31']}}"
    select = f"SELECT min(year({column})) AS a, max(year({column})) AS b, max(date_diff(''year'', {column}, {column} - INTERVAL 3 YEAR)) AS c FROM stays WHERE year({column}) >= 1"
    [exact] = open_dates.execute(f"FROM dp_query_exact('{select}', {bounds})").fetchall()
    assert exact == (1, 9999, -3)
    [found] = open_dates.execute(f"FROM dp_query('{select}', epsilon := 20, {bounds})").fetchall()
    assert found == (1, 9999, -3)


def test_a_new_declaration_says_what_keeps_the_earlier_one() -> None:
    """Bought answers stay as they are: the declaration names them, and how to buy anew."""
    con = duckdb.connect()
    con.execute("CREATE TABLE visits AS SELECT i AS patient, i % 90 AS \"Age\", i % 7 AS plan, i % 3 AS other FROM range(300) r(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('visits', epsilon := 100, delta := 1e-9, privacy_unit := 'patient', max_contributions := 1)")

    def declared(column: str, upper: int) -> str:
        return str(con.execute(f"CALL dp_declare('visits', '{column}', lower := 0, upper := {upper})").fetchall()[0][-1])

    assert [declared(column, 200) for column in ("age", "plan", "other")] == ["declared"] * 3
    assert declared("age", 190) == "declared"  # nothing was bought
    for text, name in (("avg(age)", "mean"), ("count(*)", "all"), ("count(*) FILTER (WHERE plan > 2)", "some")):
        con.execute(f"FROM dp_query('SELECT {text} FROM visits', epsilon := 1, release := '{name}')").fetchall()
    con.execute("FROM dp_marginals('visits', columns := ['age', 'other'], epsilon := 1, release := 'table')").fetchall()
    assert declared("age", 190) == "declared"  # nothing has changed
    said = declared("age", 100)
    assert "'another name'" in said and "query-mean" in said and "marginals-table" in said and "all" not in said.replace("all by", "")
    assert said.index("marginals-table") < said.index("query-mean"), "the latest first"
    assert "query-some" in declared("plan", 100) and "table" not in declared("plan", 101)
    assert "marginals-table" in declared("other", 100) and "query" not in declared("other", 101)
    before = con.execute("FROM dp_query('SELECT avg(age) FROM visits', epsilon := 1)").fetchall()
    assert con.execute("FROM dp_query('SELECT avg(age) FROM visits', epsilon := 1, release := 'mean')").fetchall() == before
