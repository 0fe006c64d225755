"""Seconds of keeping a privacy unit's rows to a bound, beside the plainest grouping of the same rows by unit.

python tests/benchmarks/bounding.py [--rows 5] [--memory 4GB] [--designs] [--repeat 3]

Tables of so many million rows (made in DuckDB, in memory unless --file), a fifth as many units: units with five rows on average;
one unit with a fifth of all rows; a unit of two columns; fifteen columns. ``group`` is ``GROUP BY`` the unit with ``count(*)``,
the others read the rows as a table of counts does: codes, bounded, folded. ``ratio`` is to ``group`` of the same table, least
seconds of all repeats. --designs also times the other ways that were considered.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb

from dpsql.domains.bounding import bounded_codes_sql, bounded_sql, light_first_sql

SALT = "0123456789abcdef" * 2
MOST = 5
SIZES = (7, 50, 3, *range(4, 16))
SHAPES = {
    "one column": (["u"], 3, ""),
    "a unit with a fifth of the rows": (["u"], 3, "CASE WHEN i % 5 = 0 THEN 0 ELSE u END"),
    "a unit of two columns": (["u", "v"], 3, ""),
    "fifteen columns": (["u"], 15, ""),
}


def table(con: duckdb.DuckDBPyConnection, rows: int, shape: str) -> tuple[list[str], list[str]]:
    """Make the table ``t``; return its unit columns and its columns of codes."""
    units, columns, skew = SHAPES[shape]
    number = max(rows // 5, 1)
    codes = ", ".join(f"(hash(i + {j * 99_991 + 1}) % {SIZES[j]})::UTINYINT AS c{j}" for j in range(columns))
    two = len(units) == 2
    unit = f"(hash(i * 7 + 1) % {number})::BIGINT AS u"
    split = ", ".join(["u // 1000 AS u", "u % 1000 AS v"] if two else [f"{skew or 'u'} AS u"])
    con.execute("DROP TABLE IF EXISTS t")
    names = [f"c{j}" for j in range(columns)]
    con.execute(f"CREATE TABLE t AS SELECT {split}, {', '.join(names)} FROM (SELECT i, {unit}, {codes} FROM range({rows}) r(i))")
    return units, names


def statements(units: list[str], names: list[str], designs: bool) -> dict[str, str]:
    """Return what is timed, by name."""
    unit, codes = ", ".join(units), ", ".join(names)
    folded = ", ".join(f"sum({name})" for name in names)
    bounded = bounded_codes_sql('"t"', units, names, SIZES[: len(names)], ["UTINYINT"] * len(names), [], MOST, SALT)
    groups = bounded_sql('"t"', units, names, MOST, SALT, groups=names[:1], max_groups=2)
    light = light_first_sql('"t"', units, names, MOST, SALT, groups=names[:1], max_groups=2)
    found = {
        "group": f"SELECT count(*) FROM (SELECT {unit}, count(*) AS n FROM t GROUP BY {unit} HAVING n > 0)",
        "bounded": f"SELECT {folded} FROM ({bounded})",
        "groups, then rows": f"SELECT {folded} FROM ({groups})",
        "groups, light units first": f"SELECT {folded} FROM ({light})",
    }
    if not designs:
        return found
    key = f"hash(hash('{SALT}', {unit}, {codes}))"
    copies = f"SELECT *, row_number() OVER (PARTITION BY {unit}, {codes}) AS copy FROM t"
    md5 = f"md5_number_lower(concat_ws(',', '{SALT}', {unit}, {codes}, copy))"
    first = f"WHERE place <= {MOST}"
    above = f"WITH b AS (SELECT {unit}, min({key}, {MOST})[{MOST}] AS x FROM t GROUP BY {unit} HAVING count(*) > {MOST})"

    def ranked(source: str, order: str) -> str:
        return f"SELECT {folded} FROM (SELECT *, row_number() OVER (PARTITION BY {unit} ORDER BY {order}) AS place FROM {source}) {first}"

    return found | {
        "md5 of each copy": ranked(f"({copies})", f"{md5}, {codes}, copy"),
        "hash of each copy": ranked(f"({copies})", f"hash(hash('{SALT}', {unit}, {codes}, copy)), {codes}, copy"),
        "row_number() <= bound": ranked("t", key),
        "thresholds, joined (ties stay)": f"{above} SELECT {folded} FROM t LEFT JOIN b USING ({unit}) WHERE x IS NULL OR {key} <= x",
        "arg_min of each unit": f"SELECT {', '.join(f'sum(x.{n})' for n in names)} FROM (SELECT unnest(arg_min("
        f"{{{', '.join(f'{n}: {n}' for n in names)}}}, {key}, {MOST})) AS x FROM t GROUP BY {unit})",
    }


def main() -> None:
    """Print a line for each table and statement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=5, help="millions of rows")
    parser.add_argument("--memory", default="4GB", help="DuckDB's memory_limit")
    parser.add_argument("--file", action="store_true", help="the table in a file: only what is computed counts as memory")
    parser.add_argument("--designs", action="store_true", help="also the other ways that were considered")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shape", choices=list(SHAPES), nargs="*", default=list(SHAPES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table.duckdb") if given.file else ":memory:"
        con = duckdb.connect(path, config={"memory_limit": given.memory, "threads": 2, "temp_directory": folder})
        print(f"DuckDB {duckdb.__version__}, {given.rows:g} million rows, {given.memory}, at most {MOST} rows a unit")
        for shape in given.shape:
            base = None
            for name, text in statements(*table(con, int(given.rows * 1e6), shape), given.designs).items():
                seconds, cpu = least(con, text, given.repeat)
                base = base or (seconds, cpu)
                ratios = f"{seconds / base[0]:6.1f} ratio {cpu / base[1]:6.1f} of CPU"
                print(f"{shape:34}{name:32}{seconds:8.2f} s {ratios} {peak_mb():7.0f} MB", flush=True)
        con.close()


def least(con: duckdb.DuckDBPyConnection, text: str, repeat: int) -> tuple[float, float]:
    """Return the least seconds, and the least seconds of CPU, of some runs."""
    times = []
    for _ in range(repeat):
        start, cpu = time.perf_counter(), time.process_time()
        con.execute(text).fetchall()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    return min(t for t, _ in times), min(c for _, c in times)


def peak_mb() -> float:
    """Return the largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
