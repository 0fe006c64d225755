"""What one person's rows make a query cost: seconds and memory beside a table in which that person has one row.

python tests/benchmarks/heavy_units.py [--units 100000] [--heavy 1 1000 100000 1000000] [--repeat 3] [--only window]

Every construct that reads a unit's rows together, through `dp_query`, over so many units of three rows and one unit of 1, 10^3,
10^5 and 10^6. Each is a process of its own: ``MB`` is the highest resident memory above that of the loaded database, seconds the
least of --repeat first answers (a release of its own each). ``rows`` is how many times more rows the table has. Work that is linear
in a unit's rows grows as the rows do; what meets a unit's rows with its rows keeps so many of a unit that it does not grow beyond.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import duckdb

import dpsql

CONSTRUCTS = {
    "count": "SELECT count(*) AS n FROM visits",
    "sum by group": "SELECT kind, sum(cost) AS s FROM visits GROUP BY kind",
    "count(DISTINCT)": "SELECT count(DISTINCT kind) AS n FROM visits",
    "median": "SELECT median(cost) AS m FROM visits",
    "per unit": "SELECT count(*) AS n FROM (SELECT patient, count(*) AS k FROM visits GROUP BY patient) WHERE k > 2",
    "DISTINCT": "SELECT count(*) AS n FROM (SELECT DISTINCT patient, kind FROM visits)",
    "window": "SELECT count(*) AS n FROM (SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY day, id) AS k FROM visits) WHERE k = 1",
    "window, running": "SELECT count(*) AS n FROM (SELECT patient, sum(cost) OVER (PARTITION BY patient ORDER BY day, id) AS k FROM visits) WHERE k > 20",
    "join with itself": "SELECT count(*) AS n FROM visits a JOIN visits b USING (patient) WHERE a.cost > b.cost",
    "three joins": "SELECT count(*) AS n FROM visits a JOIN visits b USING (patient) JOIN visits c USING (patient) JOIN visits d USING (patient)",
    "EXISTS": "SELECT count(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day)",
    "IN": "SELECT count(*) AS n FROM visits WHERE patient IN (SELECT patient FROM visits WHERE cost > 90)",
    "UNION ALL": "SELECT count(*) AS n FROM (SELECT patient, kind FROM visits UNION ALL SELECT patient, kind FROM visits)",
    "public join": "SELECT label, count(*) AS n FROM visits JOIN kinds USING (kind) GROUP BY label",
}
TABLE = """
CREATE TABLE visits AS
SELECT i AS id, patient, 'k' || i % 5 AS kind, i * 7 % 100 AS cost, DATE '2024-01-01' + CAST(i % 300 AS INTEGER) AS day
FROM (SELECT i, i // 3 + 1 AS patient FROM range(3 * $units) AS many(i) UNION ALL SELECT i, 0 FROM range($heavy) AS one(i));
"""
DECLARED = (
    "CALL dp_protect('visits', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3)",
    "CALL dp_declare('visits', 'kind', categories := ['k0', 'k1', 'k2', 'k3', 'k4'], nullable := false)",
    "CALL dp_declare('visits', 'cost', lower := 0, upper := 99, nullable := false)",
    "CALL dp_declare('visits', 'day', lower := DATE '2024-01-01', upper := DATE '2024-12-31', nullable := false)",
)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(construct: str, units: int, heavy: int, repeat: int) -> dict[str, float]:
    """Answer a query in this process; return its least seconds and the memory that it took beyond the loaded table."""
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        con.execute("SET threads = 2")
        con.execute(TABLE.replace("$units", str(units)).replace("$heavy", str(heavy)))
        con.execute("CREATE TABLE kinds AS SELECT 'k' || i AS kind, 'label ' || i % 2 AS label FROM range(5) AS numbers(i)")
        for statement in DECLARED:
            con.execute(statement)
        con.execute("FROM dp_query('SELECT count(*) AS warm FROM visits WHERE cost > 1', epsilon := 0.01)").fetchall()
        before, seconds = peak(), []
        for number in range(repeat):
            begun = time.perf_counter()
            con.execute("FROM dp_query($1, epsilon := 0.1, release := $2)", [CONSTRUCTS[construct], f"bench{number}"]).fetchall()
            seconds.append(time.perf_counter() - begun)
        return {"seconds": min(seconds), "megabytes": peak() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--heavy", type=int, nargs="+", default=[1, 1_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(one(given.child[0], given.units, int(given.child[1]), given.repeat)))
        return
    header = "".join(f"{f'{heavy:,} rows':>24}" for heavy in given.heavy)
    print(f"{'construct':18}{header}\n{'':18}" + "".join(f"{'s':>8}{'MB':>7}{'ratio':>9}" for _ in given.heavy))
    for construct in CONSTRUCTS:
        if given.only and given.only not in construct:
            continue
        first, line = 0.0, f"{construct:18}"
        for heavy in given.heavy:
            command = [sys.executable, __file__, "--units", str(given.units), "--repeat", str(given.repeat), "--child", construct, str(heavy)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            first = first or found["seconds"]
            line += f"{found['seconds']:8.2f}{found['megabytes']:7.0f}{found['seconds'] / first:9.2f}"
        print(line, flush=True)
    rows = [(3 * given.units + heavy) / (3 * given.units + given.heavy[0]) for heavy in given.heavy]
    print(f"{'rows, as a ratio':18}" + "".join(f"{ratio:24.2f}" for ratio in rows))


if __name__ == "__main__":
    main()
