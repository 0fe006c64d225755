"""dp_query on neighbouring tables: exact counters differ by at most what the plan claims, and nothing else differs, byte by byte.

The choice of rows is replayed by its salt, the noise by one that is fixed. The second table is read as it is; then its counters are
replaced by those of the first one, so whatever still differs (names, types, texts, plans, files, books) is a leak.
"""

from __future__ import annotations

import functools
import logging
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from pairwise import WHOLE
from query_readings import (
    NEIGHBOURS,
    Readings,
    ask,
    database,
    excess,
    excess_before,
    excess_picks,
    fixed,
    make_sales,
    moved,
    protect_sales,
    read_questions,
    remove,
    replayed,
)

import dpsql
from dpsql.estimates.measures import Measure
from dpsql.measure.query import Counted
from dpsql.measure.statement import Statement
from dpsql.noise import discrete

TOTALS = "WITH t AS (SELECT customer, region, sum(amount) AS total, count(*) AS n, max(day) AS last FROM sales GROUP BY customer, region) "
QUERIES: list[tuple[str, str]] = [
    ("SELECT count(*) AS n FROM sales", ""),
    ("SELECT count(amount), count(*), sum(amount), avg(amount) FROM sales", ""),
    ("SELECT sum(quantity), sum(\"größe 😀\") AS \"summe größe\", sum(price), sum(\"select\") AS \"from\" FROM sales", ""),
    ("SELECT count(DISTINCT customer), count(DISTINCT note), count(DISTINCT region), count(DISTINCT amount) FROM sales", ""),
    ("SELECT var_samp(amount), var_pop(price), stddev_samp(quantity), stddev_pop(\"select\") FROM sales", ""),
    ("SELECT corr(amount, price), covar_pop(amount, quantity), covar_samp(price, quantity), regr_slope(amount, price) FROM sales", ""),
    ("SELECT median(amount), quantile_cont(quantity, 0.9), quantile_disc(price, [0.1, 0.5]), min(amount), max(quantity) FROM sales", ""),
    ("SELECT median(amount), quantile_cont(quantity, [0.1, 0.9]) FILTER (WHERE gift) FROM sales", ""),
    ("SELECT region, median(day), quantile_disc(price, 0.75) FROM sales GROUP BY region", ""),
    ("SELECT region, quantile_cont(amount, 0.9), count(*) FROM sales GROUP BY region", "max_groups := 2, max_rows_per_group := 2, mechanism := 'laplace'"),
    ("SELECT median(day), min(day), max(moment), approx_quantile(amount, 0.5) FROM sales", ""),
    ("SELECT mode(region), histogram(region), bool_and(gift), bool_or(gift), count_if(gift) FROM sales", ""),
    ("SELECT region, count(*) AS n, avg(amount) AS \"äöü\" FROM sales GROUP BY region", ""),
    ("SELECT region, count(*), sum(amount), count(DISTINCT customer) FROM sales GROUP BY ALL", "max_groups := 2, max_rows_per_group := 1"),
    ("SELECT region, sum(amount), median(amount) FROM sales GROUP BY region", "max_groups := 1, max_rows_per_group := 5"),
    ("SELECT region, count(*) FILTER (WHERE amount > 50), sum(quantity) FILTER (WHERE gift), avg(price) FILTER (WHERE amount < 1e300) FROM sales GROUP BY region", ""),
    ("SELECT region, gift, count(*) FROM sales GROUP BY ROLLUP (region, gift)", ""),
    ("SELECT date_trunc('month', day) AS m, count(*), sum(amount) FROM sales GROUP BY m ORDER BY m", ""),
    ("SELECT extract(year FROM day) AS y, count(*) FROM sales GROUP BY y HAVING count(*) > 5 ORDER BY count(*) DESC LIMIT 1", ""),
    ("SELECT CASE WHEN amount > 50 THEN 'high' WHEN amount IS NULL THEN 'none' ELSE 'low' END AS c, count(*) FROM sales GROUP BY c", ""),
    ("SELECT \"order\", count(*), sum(\"größe 😀\") FROM sales GROUP BY \"order\" ORDER BY ALL", "groups := 'private'"),
    ("SELECT region, count(*) AS n FROM sales GROUP BY region QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1", ""),
    ("SELECT note, count(*) FROM sales GROUP BY note", ""),
    ("SELECT note, count(*) AS n, avg(amount), median(quantity), mode(region) FROM sales GROUP BY note ORDER BY n DESC, note", "min_units := 2"),
    ("SELECT note, count(DISTINCT customer), sum(amount) FROM sales GROUP BY note", "max_groups := 2, max_rows_per_group := 2, min_units := 3"),
    ("SELECT note FROM sales GROUP BY note", ""),
    ("SELECT DISTINCT note, region FROM sales", ""),
    ("SELECT note, region, sum(amount) / count(*) AS ratio FROM sales GROUP BY note, region ORDER BY count(*) DESC LIMIT 3", "max_groups := 3"),
    ("SELECT \"select\", count(*) FROM sales GROUP BY \"select\"", "groups := 'private'"),
    ("SELECT day, count(*) FROM sales GROUP BY day", "groups := 'private', max_groups := 2"),
    ("SELECT moment, max(amount) FROM sales GROUP BY moment", "groups := 'private'"),
    ("SELECT price, gift, count(*), sum(quantity) FROM sales GROUP BY price, gift", "groups := 'private', mechanism := 'laplace'"),
    (f"{TOTALS} SELECT avg(total), count(*) FROM t", "bounds := {'total': [0, 300]}"),
    (f"{TOTALS} SELECT region, sum(total), avg(n) FROM t GROUP BY region", "bounds := {'total': [0, 300], 'n': [0, 5]}"),
    (f"{TOTALS} SELECT n, count(*) FROM t GROUP BY n", ""),
    (f"{TOTALS} SELECT last, count(*) FROM t GROUP BY last", "groups := 'private'"),
    ("WITH t AS (SELECT customer, median(amount) AS m FROM sales GROUP BY customer) SELECT count(*), avg(m) FROM t", "bounds := {'m': [0, 100]}"),
    ("SELECT count(*) FROM (SELECT DISTINCT customer, region FROM sales)", ""),
    ("SELECT region, count(*), avg(amount) FROM (SELECT customer, region, amount, row_number() OVER (PARTITION BY customer ORDER BY amount, day) AS r FROM sales) WHERE r <= 2 GROUP BY region", ""),
    ("SELECT count(*), sum(s) FROM (SELECT customer, sum(quantity) OVER (PARTITION BY customer, region) AS s FROM sales)", "bounds := {'s': [-10, 50]}"),
    ("SELECT count(*) FROM (SELECT customer FROM sales WHERE gift UNION SELECT customer FROM sales WHERE amount > 50)", ""),
    ("SELECT note, count(*) FROM (SELECT customer, note FROM sales UNION ALL SELECT customer, region FROM sales) GROUP BY note", ""),
    ("SELECT count(*) FROM (SELECT customer, note FROM sales WHERE gift EXCEPT SELECT customer, note FROM sales WHERE amount > 50)", ""),
    ("SELECT count(*) FROM (SELECT customer, region FROM sales INTERSECT SELECT customer, region FROM sales WHERE NOT gift)", ""),
    ("SELECT count(*), sum(amount) FROM sales s WHERE EXISTS (SELECT 1 FROM sales o WHERE o.customer = s.customer AND o.gift)", ""),
    ("SELECT count(*) FROM sales s WHERE NOT EXISTS (SELECT 1 FROM sales o WHERE o.customer = s.customer AND o.amount > 60)", ""),
    ("SELECT count(*) FROM sales WHERE region IN (SELECT name FROM regions WHERE climate = 'warm')", ""),
    ("SELECT climate, count(*), sum(amount), avg(quantity) FROM sales JOIN regions ON region = name GROUP BY climate", ""),
    ("SELECT climate, place, count(*) FROM sales LEFT JOIN regions ON region = name GROUP BY climate, place", "groups := 'private', max_groups := 2"),
    ("SELECT a.region, count(*) FROM sales a JOIN (SELECT customer, max(amount) AS top FROM sales GROUP BY customer) b ON a.customer = b.customer WHERE a.amount = b.top GROUP BY a.region", ""),
    ("SELECT count(*), sum(a.amount) FROM sales a JOIN sales b ON a.customer = b.customer", ""),
    ("SELECT count(*) FROM sales WHERE day BETWEEN DATE '2020-01-01' AND DATE '2020-06-30' AND note LIKE 'note%'", ""),
    ("SELECT gift, count_if(amount > 20), avg(least(amount, 50)), sum(greatest(0, least(quantity, 3))) FROM sales GROUP BY gift", ""),
    ("SELECT region, sum(amount) AS s, avg(quantity) AS a, 2 * count(*) AS d FROM sales GROUP BY region", "confidence := 0.95, mechanism := 'laplace'"),
    ("SELECT note, avg(amount) AS s, stddev_samp(quantity) AS a FROM sales GROUP BY note", "confidence := 0.9"),
    ("SELECT count(*) FROM sales UNION ALL SELECT count(*) FROM sales WHERE gift", ""),
    ("SELECT region, n * 100.0 / sum(n) OVER () AS share FROM (SELECT region, count(*) AS n FROM sales GROUP BY region) ORDER BY share DESC", ""),
    ("SELECT length(note) AS l, count(*) FROM sales GROUP BY l", ""),
    ("SELECT lower(region) AS r, count(*) FROM sales GROUP BY r", "groups := 'private'"),
    ("SELECT region, count(DISTINCT customer), count(DISTINCT customer) FILTER (WHERE gift) FROM sales GROUP BY region", ""),
    ("SELECT note, count(DISTINCT customer) AS n FROM sales GROUP BY note ORDER BY n DESC, note", ""),
    ("SELECT region, count(DISTINCT amount), count(DISTINCT note) FILTER (WHERE amount > 20) FROM sales GROUP BY region", ""),
    ("SELECT region, count(*) FILTER (WHERE gift), avg(price) FILTER (WHERE amount < 50), count(quantity) FROM sales GROUP BY region", ""),
    ("SELECT climate, count(*), sum(amount) FROM sales CROSS JOIN regions GROUP BY climate", ""),
    ("SELECT climate, place, count(*) FROM sales JOIN regions ON region = name WHERE place > 1 GROUP BY ALL", ""),
    ("SELECT avg(n), count(*) FROM (SELECT customer, count(*) AS n FROM sales GROUP BY customer)", ""),
    ("SELECT count(*) FROM sales WHERE day < DATE '2020-06-30' - INTERVAL '2 months' AND quantity > 1", ""),
]
REFUSED: list[tuple[str, str]] = [
    ("SELECT customer, count(*) FROM sales GROUP BY customer", ""),
    ("SELECT amount FROM sales", ""),
    ("SELECT sum(CAST(note AS DOUBLE)) FROM sales", ""),
    ("SELECT count(*) FROM sales a, sales b", ""),
    ("SELECT count(*) FROM (SELECT * FROM sales ORDER BY amount LIMIT 3)", ""),
    ("SELECT note, count(*) FROM sales GROUP BY note", "groups := 'public'"),
    ("SELECT count(*) FROM sales", "epsilon := 1e9"),
    ("SELECT count(*), error('x') FROM sales", ""),
    ("SELECT count(*) FROM sales WHERE 1 / (amount - 50.5) > 0", ""),
]
ABOUT = [
    "SELECT * EXCLUDE (written_at, previous, hash) FROM dp_ledger()",
    "FROM dp_budget()",
    "SELECT * EXCLUDE (charged_at) FROM dp_releases()",
]


def named(path: Path) -> bytes:
    """Return a file without what holds the time."""
    return re.sub(rb'"(created|hash)": "[^"]*"', b"", path.read_bytes())


EVERY = [*enumerate([*QUERIES, *REFUSED])]
HALVES = EVERY[::2], EVERY[1::2]
"""What is asked of one database: books of half as many releases are read in half of the time."""
COMPARED = [(left_out, half) for half in (0, 1) for place, left_out in enumerate(NEIGHBOURS) if WHOLE or place in (0, half + 1)]
"""The first neighbour for all queries, each other one for one half of them; all for all when thorough."""


def observe(folder: Path, caplog: pytest.LogCaptureFixture, left_out: str | None, asked: list[tuple[int, tuple[str, str]]]) -> dict[str, Any]:
    """Ask these queries of a database; return all that anybody can see."""
    folder.mkdir()
    con = duckdb.connect(str(folder / "shop.duckdb"))
    make_sales(con)
    if left_out is not None:
        remove(con, left_out)
    dpsql.load(con, user="tester", progress=False)
    protect_sales(con)
    seen: dict[str, Any] = {}
    with caplog.at_level(logging.DEBUG):
        for number, (place, (sql, more)) in enumerate(asked):
            if number % 12 == 11:  # a choice of groups takes a sixteenth of what there is of delta
                con.execute(f"CALL dp_protect('sales', epsilon := 1000, delta := {1e-6 * 3 ** (number // 12 + 1)!r})")
            quoted = sql.replace("'", "''")
            given = more if "epsilon" in more else f"epsilon := 15{', ' if more else ''}{more}"
            calls = [f"FROM dp_query('{quoted}', {given}, release := 'q{place}')"]
            if number % 8 == 0:
                calls = [f"FROM dp_plan('{quoted}', epsilon := 15)", *calls, f"FROM dp_explain('q{place}')", f"EXPLAIN {calls[0]}"]
            for call in calls:
                seen[f"{place} {call}"] = answer(con, call)
        for call in ABOUT:
            seen[call] = answer(con, call)
    con.close()
    seen["log"] = caplog.text
    caplog.clear()
    for file in sorted((folder / "shop.duckdb.dpsql").rglob("*")):
        if file.is_file():
            seen[re.sub(r"\.([0-9a-f]{16}|[0-9a-f]{24})\.", ".charge.", file.name)] = named(file)
    return seen


def answer(con: duckdb.DuckDBPyConnection, call: str) -> Any:
    """Return names, types and rows of an answer, or what DuckDB says.

    Threads of DuckDB hand on released rows that no ORDER BY orders as they come to them; the order in which groups are released is
    that of the release's file, which is compared byte by byte.
    """
    try:
        found = con.execute(call)
        rows = found.fetchall()
        return [(name, str(kind)) for name, kind, *_ in found.description or []], rows if "ORDER BY" in call else sorted(rows, key=repr)
    except duckdb.Error as error:
        return str(error)


Seen = tuple[dict[str, Any], Readings]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Seen]:
    """What is seen of, and read from, the table with all units, for each half of the queries; made once."""
    return {}


def first(whole: dict[int, Seen], folder: Path, caplog: pytest.LogCaptureFixture, half: int) -> Seen:
    """Return it; the same line of code opens both databases."""
    if half not in whole:
        (folder / f"half{half}").mkdir()
        with pytest.MonkeyPatch.context() as patch, replayed(patch) as readings:
            patch.setattr(discrete, "add_noise", fixed)
            whole[half] = observe(folder / f"half{half}" / "one", caplog, None, HALVES[half]), readings
    return whole[half]


@pytest.mark.slow
@pytest.mark.parametrize(("left_out", "half"), COMPARED)
def test_counters_differ_by_what_is_charged_and_nothing_else_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], whole: dict[int, Seen],
    left_out: str, half: int,
) -> None:
    seen, read = first(whole, tmp_path, caplog, half)
    answered = sum(place < len(QUERIES) for place, _ in HALVES[half])
    capfd.readouterr()

    def swapped(place: int, found: Counted) -> Counted:
        return read.found[place][1]

    with replayed(monkeypatch, swapped, read) as other_read:
        monkeypatch.setattr(discrete, "add_noise", fixed)
        other = observe(tmp_path / "other", caplog, left_out, HALVES[half])
    assert capfd.readouterr().out == ""
    assert len(read.found) == len(other_read.found) >= answered
    differing = 0
    assert len(read.before) == len(other_read.before) >= 2
    for (plan, early), (other_plan, other_early) in zip(read.before, other_read.before, strict=True):
        assert plan == other_plan
        assert max(excess_before(plan, early, other_early), default=0) <= 1, plan.asked
    both = list(zip(read.before, other_read.before, strict=True))
    assert max(max(excess_before(plan, a, b), default=0) for (plan, a), (_, b) in both) >= (1, 0.6)[half]
    picks = [excess_picks(plan, a, b) for (plan, _), a, b in zip(read.before, read.ranks, other_read.ranks, strict=True)]
    assert 0.5 <= max(max(ratios, default=0) for ratios in picks) <= 1
    for (plan, exact), (other_plan, other_exact) in zip(read.found, other_read.found, strict=True):
        assert plan == other_plan
        if plan.public:
            assert exact.groups == other_exact.groups
        assert max(max(pair) for pair in excess(plan, exact, other_exact)) <= 1, plan.asked
        differing += any(not np.array_equal(a, b) for a, b in zip(exact.blocks, other_exact.blocks, strict=True))
    assert differing > answered // 2, "the unit is hardly in any answer"
    assert seen.keys() == other.keys()
    for name, value in seen.items():
        assert scrubbed(value) == scrubbed(other[name]), name


def scrubbed(value: Any) -> Any:
    """Remove the folder of the run."""
    if isinstance(value, bytes):
        return re.sub(rb"/[^\s\"]*/(one|other)/", b"", value)
    return re.sub(r"/\S*/(one|other)/", "", repr(value))


@pytest.mark.slow
def test_every_query_is_answered_or_refused_as_meant(tmp_path: Path, caplog: pytest.LogCaptureFixture, whole: dict[int, Seen]) -> None:
    """The list is of no use where it is refused; and bounds that are reached show that the sensitivity is not too large either."""
    both = [first(whole, tmp_path, caplog, half) for half in (0, 1)]
    seen, found = both[0][0] | both[1][0], [*both[0][1].found, *both[1][1].found]
    failed = [(name, value) for name, value in seen.items() if "FROM dp_query" in name and isinstance(value, str)]
    assert sorted(int(name.split()[0]) for name, _ in failed if "EXPLAIN" not in name) == [
        len(QUERIES) + place for place in range(len(REFUSED) - 1)
    ], [pair for pair in failed if int(pair[0].split()[0]) < len(QUERIES)]
    assert not [value for value in seen.values() if isinstance(value, str) and "Error: Python exception occurred while executing the UDF: Value" in value]
    assert {plan.public for plan, _ in found} == {True, False}
    assert {m.kind for plan, _ in found for m in plan.measures} == {"count", "moments", "scaled", "values", "tree", "units", "distinct"}


@pytest.mark.slow
def test_the_comparison_can_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, whole: dict[int, Seen]) -> None:
    """Without the counters replaced, the answers of two tables must differ."""
    seen, _ = first(whole, tmp_path, caplog, 1)
    with replayed(monkeypatch):
        monkeypatch.setattr(discrete, "add_noise", fixed)
        other = observe(tmp_path / "other", caplog, "extreme", HALVES[1][:12])
    different = [name for name, value in other.items() if scrubbed(value) != scrubbed(seen.get(name))]
    assert sum("FROM dp_query" in name for name in different) > 6
    assert any(name.endswith(".parquet") for name in different)


OTHERS = [  # values that no list has, NaN and dates at the ends of the calendar: what is counted of them
    "SELECT region, count(*), sum(amount) FROM sales GROUP BY region",
    "SELECT region, \"order\", count(*) FROM sales WHERE region <> 'north' GROUP BY region, \"order\"",
    "SELECT histogram(region), mode(region), count(DISTINCT region) FROM sales",
    "SELECT region, histogram(region) FROM sales GROUP BY region",
    "SELECT count(amount), count(*), avg(amount), var_pop(price), count(price) FROM sales",
    "SELECT region, count(amount) FILTER (WHERE gift), sum(amount) FILTER (WHERE gift) FROM sales GROUP BY region",
    "SELECT median(day), max(day), min(moment), count(*) FROM sales WHERE year(day) > 0",
]


def read_others(patch: pytest.MonkeyPatch, left_out: str | None, more: str = "", earlier: Readings | None = None) -> Readings:
    declaring = "CALL dp_declare('sales', 'region', categories := ['north'], outside := 'other')"
    return read_questions(patch, left_out, [(sql, more) for sql in OTHERS], earlier, declaring)


@functools.cache
def others_of_all(more: str) -> Readings:
    """Return what is read of the table with all units: once for all that are left out."""
    with pytest.MonkeyPatch.context() as patch:
        return read_others(patch, None, more)


@pytest.mark.parametrize("more", ["", "max_groups := 2, max_rows_per_group := 1"])
@pytest.mark.parametrize("left_out", NEIGHBOURS)
@pytest.mark.usefixtures("unrehearsed")
def test_rows_with_other_values_and_nan_count_once_each(monkeypatch: pytest.MonkeyPatch, left_out: str, more: str) -> None:
    """One unit moves the counters of '(other)', of NaN and of clipped infinities by no more than is charged; the plans are the same."""
    one = others_of_all(more)
    other = read_others(monkeypatch, left_out, more, one)
    assert len(one.found) == len(other.found) == len(OTHERS)
    assert any(plan.other for plan, _ in one.found)
    assert {(m.other, m.nans) for plan, _ in one.found for m in plan.measures} >= {(True, False), (False, True)}
    for (plan, exact), (other_plan, other_exact) in zip(one.found, other.found, strict=True):
        assert plan == other_plan and exact.groups == other_exact.groups
        assert max(max(pair) for pair in excess(plan, exact, other_exact)) <= 1, plan.asked
    assert max(max(pair) for pair in excess(*one.found[0], other.found[0][1])) > 0


def test_a_measure_of_nan_that_counts_a_row_twice_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a row with NaN that counts twice moves more than is charged."""
    made = Statement._sums_of

    def twice(statement: Statement, place: int, measure: Measure) -> list[str]:
        found = made(statement, place, measure)
        return [*found[:-1], f"2 * {found[-1]}"] if measure.nans else found

    found = {}
    for broken in (False, True):
        faults = {"_sums_of": twice} if broken else {}
        plan, found[broken] = moved(monkeypatch, faults, "SELECT count(amount), avg(amount) FROM sales WHERE isnan(amount)", "max_rows_per_group := 1")
        assert [m.nans for m in plan.measures] == [True]
    assert found == {False: 1.0, True: 2.0}


REUSED = [  # a name that means another column, and bounds with zero at an end: peers kept the old bound, or made a sensitivity of zero
    ("SELECT sum(amount) FROM (SELECT amount * 1000 AS amount FROM sales)", ""),
    ("SELECT sum(amount), avg(quantity) FROM (SELECT quantity AS amount, amount AS quantity FROM sales)", ""),
    ("WITH sales AS (SELECT 3 * amount AS amount FROM sales) SELECT sum(amount), max(amount) FROM sales", ""),
    ("SELECT sum(a) FROM (SELECT amount - 50 AS a FROM (SELECT amount + 1000 AS amount FROM sales))", ""),
    ("SELECT sum(-amount), avg(-amount) FROM sales", ""),
    ("SELECT sum(amount), avg(amount), var_pop(amount) FROM sales", "bounds := {'amount': [-100, 0]}"),
    ("SELECT sum(amount), avg(amount), var_pop(amount) FROM sales", "bounds := {'amount': [0, 50]}"),
    ("SELECT sum(0 * amount), count(*) FROM sales", ""),
    ("SELECT sum(amount), count(*) FROM sales", "bounds := {'amount': [-1e-9, 0]}"),
]


def read_reused(left_out: str | None, earlier: Readings | None = None) -> Readings:
    with pytest.MonkeyPatch.context() as patch:
        return read_questions(patch, left_out, REUSED, earlier)


@functools.cache
def reused_of_all() -> Readings:
    return read_reused(None)


@pytest.mark.parametrize("left_out", NEIGHBOURS)
@pytest.mark.usefixtures("unrehearsed")
def test_reused_names_and_bounds_at_zero(left_out: str) -> None:
    one = reused_of_all()
    other = read_reused(left_out, one)
    assert len(one.found) == len(other.found) == len(REUSED)
    moved = []
    for (plan, exact), (other_plan, other_exact) in zip(one.found, other.found, strict=True):
        assert plan == other_plan
        pairs = [value for pair in excess(plan, exact, other_exact) for value in pair]
        assert np.isfinite(pairs).all() and max(pairs) <= 1, plan.asked
        moved.append(max(pairs) > 0)
    assert sum(moved) >= len(REUSED) - 2


def test_bounds_at_zero_alone_are_refused() -> None:
    con = database()
    with pytest.raises(duckdb.Error, match="an upper bound above it"):
        ask(con, "SELECT sum(amount) FROM sales", "bounds := {'amount': [0, 0]}")
    con.close()
