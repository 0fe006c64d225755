"""How true answers of dp_query and numbers of dp_synthesize are: under generous bounds, in small groups, added up.

python tests/benchmarks/query_truth.py [--draws 40] [--only quantiles|groups|sums|means|synthetic|ranks]

*quantiles*: 20,000 values between 20 and 140 at epsilon 2, median and 90 % quantile; bounds from tight ones to a million times the
spread, one group and ten. Mean absolute error as a multiple of that under the tightest bounds, and how often the interval of 95 %
holds the truth. Then 80 % of values at 65,000 between 0 and 500,000: how often the answer is 65,000.

*groups*: groups of n rows among others of 50 at epsilon .5, one row a unit, values 0 to 100 with the mean given: how often the interval
of 95 % holds the truth of the group, and how often there is NULL instead of a number.

*sums*: groups of 0 to 5 rows: mean error of a sum in standard deviations of its noise, the total over all groups; the quotient of two
sums and a share of rows of groups of 20 rows: how many of them are no numbers, or outside of what is possible.

*means*: mean costs by ward of 200,000 visits of 40,000 patients, at most five of each, upper bounds from 10,000 to 10,000,000; then values that
fill their bounds. Root mean squared error of declared bounds, of which wide ones are narrowed, and of the same bounds taken as they are (named in
the call): in % of the mean, as a multiple of each other; how often the intervals of 95 % hold the mean of the values as they were moved to the
bounds, and of all values.

*synthetic*: synthetic rows at epsilon 1, numbers with bounds alone. 60,000 visits with a long tail of costs, one or four of a patient,
upper bounds from 10,000 to 10,000,000: mean and median over the truth, how many means are too high, rows above 20,000. 20,000 moments, days and numbers of one
quarter under absurd bounds: distinct values, and quantiles (0, .05, .5, .95, 1). 20,000 times the value 7.

*ranks*: by how much the rank of a quantile is off, drawn by the exponential mechanism and read from histograms alone.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.estimates import picks

EPSILON = 0.5


def protected(table: str, most: int = 1) -> duckdb.DuckDBPyConnection:
    """Return a database with a table ``t`` of so many rows a unit, made by a SELECT."""
    con = duckdb.connect()
    con.execute("SELECT setseed(0.31)")
    con.execute(f"CREATE TABLE t AS {table}")
    dpsql.load(con, progress=False)
    con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := {most})")
    return con


def asked(con: duckdb.DuckDBPyConnection, sql: str, epsilon: float, more: str, draw: int) -> list[tuple[Any, ...]]:
    """Buy an answer of its own."""
    quoted = sql.replace("'", "''")
    return con.execute(f"FROM dp_query('{quoted}', epsilon := {epsilon}, release := '{named(sql, more, draw)}'{more})").fetchall()


def named(sql: str, more: str, draw: int) -> str:
    """Return the name of the release that `asked` buys."""
    return f"r{draw}-{abs(hash((sql, more))):x}"


def quantiles(draws: int) -> None:
    """Print errors and coverage of quantiles by bounds."""
    print("median and 90 % quantile, 20,000 values between 20 and 140, epsilon 2")
    tight: dict[str, float] = {}
    for name, key in (("one group", ""), ("ten groups", "g, ")):
        for upper in (140, 1_200, 12_000, 1_200_000, 120_000_000):
            con = protected("SELECT i AS u, i % 10 AS g, 20 + 40 * (random() + random() + random()) AS x FROM range(20000) r(i)")
            con.execute("CALL dp_declare('t', 'g', lower := 0, upper := 9, nullable := false)")
            by = " GROUP BY g ORDER BY g" if key else ""
            truth = np.asarray(con.execute(f"SELECT {key}median(x), quantile_cont(x, 0.9) FROM t{by}").fetchall())[:, -2:].astype(float)
            errors, hits = [], []
            for draw in range(draws):
                sql = f"SELECT {key}median(x) AS m, quantile_cont(x, 0.9) AS q FROM t{by}"
                rows = np.asarray(asked(con, sql, 2.0, f", confidence := 0.95, bounds := {{'x': [{20 if upper == 140 else 0}, {upper}]}}", draw))
                found = rows[:, -6:].astype(float)
                errors.append(np.abs(found[:, [0, 3]] - truth).mean())
                hits.append(((found[:, [1, 4]] <= truth) & (truth <= found[:, [2, 5]])).mean())
            tight.setdefault(name, float(np.mean(errors)))
            print(f"  {name}, upper bound {upper:>11,}: error {np.mean(errors):.3f}, {np.mean(errors) / tight[name]:.2f} of tight; "
                  f"covered {100 * np.mean(hits):.1f} %", flush=True)
            con.close()
    con = protected("SELECT i AS u, CASE WHEN random() < 0.8 THEN 65000 ELSE (random() * 500000)::INTEGER END AS x FROM range(20000) r(i)")
    same = [asked(con, "SELECT median(x) FROM t", 2.0, ", bounds := {'x': [0, 500000]}", draw)[0][0] == 65_000 for draw in range(draws)]
    print(f"  80 % of values at 65,000: answered with 65,000 in {100 * np.mean(same):.0f} %")


def ranks(draws: int) -> None:
    """Print by how much the rank of a quantile is off, with and without the draws of the exponential mechanism."""
    print("rank of quantiles of 20,000 rows, 6 a unit, delta 1e-9: root mean squared error, median error, width of the interval (in % of the rows), covered")
    table = (
        "SELECT (i // 6)::INTEGER AS u, (20 + random() * 120)::DOUBLE AS x, (i % 5)::INTEGER AS g, exp(3 + 2 * random() + 2 * random() + random()) AS cost "
        "FROM range(20000) r(i)"
    )
    asked_for = [("x", 0.5, ""), ("x", 0.9, ""), ("cost", 0.5, ""), ("x", 0.5, "g"), ("cost", 0.5, "g")]
    for mechanism, epsilon, (column, share, key) in itertools.product(("gaussian", "laplace"), (0.1, 0.5), asked_for):
        shown = []
        for drawn in (True, False):
            con = protected(table, 6)
            con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 200)")
            con.execute("CALL dp_declare('t', 'cost', lower := 0, upper := 10000000)")
            con.execute("CALL dp_declare('t', 'g', categories := [0, 1, 2, 3, 4], nullable := false)")
            held: dict[int, list[float]] = {}
            for group, value in con.execute(f"SELECT {key or 0}, {column} FROM t ORDER BY 2").fetchall():
                held.setdefault(group, []).append(value)
            sql = f"SELECT {f'{key}, ' if key else ''}quantile_cont({column}, {share}) AS q FROM t{f' GROUP BY {key}' if key else ''}"
            errors, widths, hits = [], [], []
            with pytest.MonkeyPatch.context() as patch:
                if not drawn:
                    patch.setattr(picks, "worth", lambda *given: False)
                for draw in range(draws):
                    for row in asked(con, sql, epsilon, f", confidence := 0.95, mechanism := '{mechanism}'", draw):
                        rows = np.asarray(held[row[0] if key else 0])
                        at, low, high = (np.searchsorted(rows, float(end)) / rows.size for end in row[-3:])
                        errors.append(at - share)
                        widths.append(high - low)
                        hits.append(low <= share <= high)
            con.close()
            figures = (np.sqrt(np.mean(np.square(errors))), np.median(np.abs(errors)), np.mean(widths))
            shown.append(", ".join(f"{100 * figure:.2f}" for figure in figures) + f", {100 * np.mean(hits):.0f} %")
        print(f"  {mechanism}, epsilon {epsilon}, {sql}: {shown[0]}; read from histograms: {shown[1]}", flush=True)


SIZES = (1, 2, 3, 5, 20, 50, 1_000)
AGGREGATES = ("avg(x)", "median(x)", "quantile_cont(x, 0.9)", "var_samp(x)", "stddev_pop(x)", "corr(x, y)", "sum(x) / count(*)")


def groups(draws: int) -> None:
    """Print how often intervals of small groups hold what is true of the group, and how often there is NULL."""
    each = 20
    print("groups of n rows at epsilon .5 beside groups of 50 rows with values about 20: covered, NULL (in %)")
    for kind, mean in (("alike", 20), ("unlike", 90)):
        places = ", ".join(f"({g}, {n}, {mean})" for g, n in enumerate(n for n in SIZES for _ in range(each)))
        others = ", ".join(f"({g}, 50, 20)" for g in range(1_000, 1_060))
        con = protected(
            f"SELECT row_number() OVER () AS u, g, least(greatest(m + 30 * (random() + random() - 1), 0), 100) AS x, 100 * random() AS y "
            f"FROM (VALUES {places}, {others}) AS sizes(g, n, m), range(1000) r(i) WHERE i < n"
        )
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100, nullable := false)")
        con.execute("CALL dp_declare('t', 'y', lower := 0, upper := 100, nullable := false)")
        con.execute(f"CALL dp_declare('t', 'g', categories := [{', '.join(map(str, [*range(len(SIZES) * each), *range(1_000, 1_060)]))}], nullable := false)")
        for aggregate in AGGREGATES:
            truth = dict(con.execute(f"SELECT g, {aggregate} FROM t WHERE g < 1000 GROUP BY g").fetchall())
            hits, nulls = np.zeros(len(SIZES)), np.zeros(len(SIZES))
            for draw in range(draws):
                for g, value, low, high in asked(con, f"SELECT g, {aggregate} AS a FROM t GROUP BY g", EPSILON, ", confidence := 0.95", draw):
                    place = int(g) // each
                    if int(g) >= 1_000:
                        continue
                    true = truth[int(g)]
                    if true is None or true != true:  # of one row
                        hits[place] += 1
                        continue
                    nulls[place] += value is None
                    hits[place] += value is None or (low <= true + 1e-9 and true - 1e-9 <= high)
            shown = "  ".join(f"{n}: {100 * h / each / draws:.0f}, {100 * v / each / draws:.0f}" for n, h, v in zip(SIZES, hits, nulls, strict=True))
            print(f"  {kind}, {aggregate}: {shown}", flush=True)
        con.close()


def sums(draws: int) -> None:
    """Print how sums of small groups add up, and what becomes of quotients."""
    count = 3_000
    con = protected(f"SELECT i AS u, i % {count} AS g, 100 * random() AS v, 10 * random() AS w FROM range({count * 5 // 2}) r(i)")
    con.execute("CALL dp_declare('t', 'v', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('t', 'w', lower := 0, upper := 10)")
    con.execute(f"CALL dp_declare('t', 'g', lower := 0, upper := {count - 1}, nullable := false)")
    exact = dict(con.execute("SELECT g, sum(v) FROM t GROUP BY g").fetchall())
    errors, totals, held = [], [], 0
    for draw in range(draws):
        rows = asked(con, "SELECT g, sum(v) AS s FROM t GROUP BY g", EPSILON, ", confidence := 0.95", draw)
        errors += [s - exact.get(int(g), 0.0) for g, s, _, _ in rows]
        totals.append(sum(s for _, s, _, _ in rows) - sum(exact.values()))
        held += sum(low <= exact.get(int(g), 0.0) <= high for g, _, low, high in rows)
    deviation = float(np.std(errors))
    print(f"sums of {count:,} groups of 2 or 3 rows: bias {np.mean(errors) / deviation:+.3f} deviations of {deviation:.0f}; covered "
          f"{100 * held / len(errors):.1f} %; the total is {np.mean(totals) / deviation / count**0.5:+.2f} of its deviations off")
    con.close()
    con = protected("SELECT i AS u, i % 50 AS g, 100 * random() AS v, 10 * random() AS w FROM range(1000) r(i)")
    con.execute("CALL dp_declare('t', 'v', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('t', 'w', lower := 0, upper := 10)")
    con.execute("CALL dp_declare('t', 'g', lower := 0, upper := 49, nullable := false)")
    odd, outside, many = 0, 0, 0
    for draw in range(draws):
        for _, ratio, share in asked(con, "SELECT g, sum(v) / sum(w) AS r, count(*) FILTER (WHERE v > 30) / count(*) AS c FROM t GROUP BY g", EPSILON, "", draw):
            many += 1
            odd += ratio is None or not np.isfinite(ratio)
            outside += share is None or not 0 <= share <= 1
    print(f"quotients of groups of 20 rows: {odd} of {many} are no numbers; {outside} of {many} shares are outside of [0, 1]")


def means(draws: int) -> None:
    """Print how true means are whose bounds are wide, and what narrowing costs where they fit."""
    print("mean of 200,000 rows by 8 groups, at most 5 rows a unit, epsilon .5")
    tail = "exp({} + 0.15 * g + {} * sqrt(-2 * ln(random() + 1e-12)) * cos(2 * pi() * random()))"
    cases = [
        *(("costs", tail.format(6, 1), upper) for upper in (10_000, 100_000, 10_000_000)),
        ("longer tails", tail.format(6, 1.5), 10_000_000),
        ("values to 2,000", "2000 * random()", 10_000_000),
        ("all over the bounds", "1e7 * random()", 10_000_000),
        ("about the middle", "5e6 + 1e6 * sqrt(-2 * ln(random() + 1e-12)) * cos(2 * pi() * random())", 10_000_000),
        ("most at the upper bound", "CASE WHEN random() < 0.9 THEN 1e7 ELSE 1e7 * random() END", 10_000_000),
    ]
    for mechanism, (name, value, upper) in itertools.product(("gaussian", "laplace"), cases):
        con = protected(f"SELECT i // 5 AS u, g, {value} AS x FROM (SELECT i, (i * 7919 % 8)::INTEGER AS g FROM range(200000) r(i))", 5)
        con.execute("CALL dp_declare('t', 'g', lower := 0, upper := 7, nullable := false)")
        con.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := {upper}, nullable := false)")
        truth = np.asarray(con.execute(f"SELECT avg(least(x, {upper})) FROM t GROUP BY g ORDER BY g").fetchall())[:, 0]
        shown, clipped = [], {}
        for bounds in ("", f", bounds := {{'x': [0, {upper}]}}"):
            errors, inside, all_ = [], [], []
            for draw in range(draws):
                more = f", confidence := 0.95, mechanism := '{mechanism}'{bounds}"
                sql = "SELECT g, avg(x) AS m FROM t GROUP BY g ORDER BY g"
                rows = np.asarray(asked(con, sql, EPSILON, more, draw), float)[:, -3:]
                explained = con.execute(f"FROM dp_explain('{named(sql, more, draw)}')").fetchall()
                said = " ".join(text for about, text in explained if about == "bounds")
                bound = float(said.split("values above ")[1].split(" ")[0])
                if bound not in clipped:
                    clipped[bound] = np.asarray(con.execute(f"SELECT avg(least(x, {bound})) FROM t GROUP BY g ORDER BY g").fetchall())[:, 0]
                errors.append(rows[:, 0] - truth)
                inside.append((rows[:, 1] <= clipped[bound] * (1 + 1e-5)) & (clipped[bound] * (1 - 1e-5) <= rows[:, 2]))
                all_.append((rows[:, 1] <= truth) & (truth <= rows[:, 2]))
            shown.append((float(np.sqrt(np.mean(np.square(errors)))), 100 * np.mean(inside), 100 * np.mean(all_)))
        (error, within, held), (plain, _, before) = shown
        print(f"  {mechanism}, {name} (mean {truth.mean():,.0f}), upper bound {upper:,}: {100 * error / truth.mean():.2f} % off, {100 * plain / truth.mean():.2f} % as they "
              f"are: {error / plain:.3f}; covered {within:.1f} % (of all values {held:.1f} %), {before:.1f} %", flush=True)
        con.close()


def synthetic(draws: int) -> None:
    """Print how true synthetic numbers are whose bounds are wide."""
    print("costs of 60,000 visits, epsilon 1: mean and median over the truth, rows above 20,000")
    for most, upper in itertools.product((1, 4), (10_000, 100_000, 10_000_000)):
        con = protected(
            f"SELECT i // {most} AS u, i % 7 AS ward, (20 + 70 * random())::INTEGER AS age, 1 + (12 * random() * random())::INTEGER AS days, random() < 0.3 AS urgent, "
            "round(exp(6.5 + 1.08 * sqrt(-2 * ln(random() + 1e-12)) * cos(2 * pi() * random())), 2)::DOUBLE AS cost FROM range(60000) r(i)",
            most,
        )
        con.execute("CALL dp_declare('t', 'ward', categories := [0, 1, 2, 3, 4, 5, 6], nullable := false)")
        con.execute("CALL dp_declare('t', 'age', lower := 0, upper := 120, nullable := false)")
        con.execute("CALL dp_declare('t', 'days', lower := 0, upper := 100, nullable := false)")
        con.execute("CALL dp_declare('t', 'urgent', nullable := false)")
        con.execute(f"CALL dp_declare('t', 'cost', lower := 0, upper := {upper}, nullable := false)")
        measured = f"SELECT avg(least(cost, {upper})), median(cost), count(*) FILTER (WHERE cost > 20000) FROM "
        truth = np.asarray(con.execute(f"{measured} t").fetchone(), float)
        found = np.asarray([con.execute(f"{measured} dp_synthesize('t', epsilon := 1.0, release := 's{draw}')").fetchone() for draw in range(draws)], float)
        mean, middle = (found[:, :2] / truth[:2] - 1).T
        print(f"  {most} a patient, upper bound {upper:>10,}: truth {truth[0]:,.0f}; mean {100 * mean.mean():+.1f} % ({100 * mean.min():+.1f} to {100 * mean.max():+.1f}, off by "
              f"{100 * np.abs(mean).mean():.1f}), {(mean > 0).sum()} of {draws} too high; median {100 * middle.mean():+.2f} % (off by {100 * np.abs(middle).mean():.2f}); "
              f"rows above 20,000: {found[:, 2].min():.0f} to {found[:, 2].max():.0f}, truth {truth[2]:.0f}", flush=True)
        con.close()
    moment = "TIMESTAMP '2020-01-01' + to_microseconds((random() * 91 * 86400e6)::BIGINT)"
    absurd = {
        "TIMESTAMP": (moment, "'0001-01-01'", "'9999-12-31'", "epoch(x)"),
        "DATE": (f"({moment})::DATE", "'0001-01-01'", "'9999-12-31'", "epoch(x)"),
        "BIGINT": (f"epoch({moment})::BIGINT", "0", "9999999999", "x"),
    }
    print("20,000 values of a quarter under bounds from the year 1 to 9999, 0 to 9,999,999,999: distinct values, quantiles in days since it began")
    shares = ", ".join(f"(quantile_cont({{0}}, {q}) - 1577836800) / 86400" for q in (0.0, 0.05, 0.5, 0.95, 1.0))
    for name, (value, lower, upper_, number) in absurd.items():
        con = protected(f"SELECT i AS u, i % 7 AS ward, {value} AS x FROM range(20000) r(i)")
        con.execute("CALL dp_declare('t', 'ward', categories := [0, 1, 2, 3, 4, 5, 6], nullable := false)")
        con.execute(f"CALL dp_declare('t', 'x', lower := {lower}, upper := {upper_}, nullable := false)")
        measured = f"SELECT count(DISTINCT x), {shares.format(number)} FROM "
        rows = [con.execute(f"{measured} t").fetchall()[0]]
        rows += [con.execute(f"{measured} dp_synthesize('t', epsilon := 1.0, release := 's{draw}')").fetchall()[0] for draw in range(min(draws, 4))]
        for row, what in zip(rows, ["truth", *["synthetic"] * (len(rows) - 1)], strict=True):
            print(f"  {name}, {what}: {row[0]:,} values; " + ", ".join(f"{day:,.2f}" for day in row[1:]), flush=True)
        con.close()
    con = protected("SELECT i AS u, i % 7 AS ward, 7 AS x FROM range(20000) r(i)")
    con.execute("CALL dp_declare('t', 'ward', categories := [0, 1, 2, 3, 4, 5, 6], nullable := false)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 1000, nullable := false)")
    for draw in range(min(draws, 4)):
        rows = con.execute(f"SELECT x, count(*) FROM dp_synthesize('t', epsilon := 1.0, release := 's{draw}') GROUP BY x ORDER BY x").fetchall()
        print("  7 alone: " + ", ".join(f"{x} ({count:,})" for x, count in rows), flush=True)


MAIN: dict[str, Callable[[int], None]] = {"quantiles": quantiles, "groups": groups, "sums": sums, "means": means, "synthetic": synthetic, "ranks": ranks}


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--only", choices=sorted(MAIN))
    given = parser.parse_args()
    for name, run in MAIN.items():
        if given.only in (None, name):
            run(given.draws)


if __name__ == "__main__":
    main()
