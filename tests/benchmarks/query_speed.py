"""Seconds of private answers to TPC-H queries, beside DuckDB's own for the same query without privacy.

python tests/benchmarks/query_speed.py [--scale 1] [--folder FOLDER] [--repeat 3] [--only 1,6,count]

The privacy unit is the customer: orders' and customers' columns are joined into lineitem beforehand, one protected table
``lineitems``; part, supplier and nation are public. Tables are made by DuckDB's tpch extension (package duckdb-extension-tpch), or
read from --folder (lineitem1.parquet, part1.parquet, ... for scale 1), where a first run with the extension keeps them.

``ratio`` is the least time of a new release over the least time of the plain query, of all repeats, and the same of CPU time, which
other programs disturb less; last the geometric means. DuckDB answers a plain count from its statistics. Parsing, checking, planning, two entries of the ledger and the answer are part of it, in a database in memory.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable
from pathlib import Path

import duckdb

import dpsql

LINEITEMS = """
SELECT l.*, o.o_custkey, o.o_orderstatus, o.o_totalprice, o.o_orderdate, o.o_orderpriority, o.o_shippriority, c.c_mktsegment,
    c.c_nationkey, c.c_acctbal
FROM lineitem l JOIN orders o ON l_orderkey = o_orderkey JOIN customer c ON o_custkey = c_custkey
"""
PUBLIC = ("part", "supplier", "nation")
QUERIES = {
    "1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
        avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitems WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2""",
    "4": """SELECT o_orderpriority, count(*) AS order_count FROM (SELECT DISTINCT o_custkey, l_orderkey, o_orderpriority FROM lineitems
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY 1""",
    "5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitems JOIN supplier ON l_suppkey = s_suppkey
        JOIN nation ON s_nationkey = n_nationkey WHERE c_nationkey = s_nationkey AND o_orderdate >= DATE '1994-01-01'
        AND o_orderdate < DATE '1995-01-01' GROUP BY n_name ORDER BY revenue DESC""",
    "6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitems WHERE l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "7": """SELECT n_name, year(l_shipdate) AS l_year, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitems
        JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
        WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' GROUP BY n_name, year(l_shipdate) ORDER BY 1, 2""",
    "12": """SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high,
        sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low FROM lineitems
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01' GROUP BY l_shipmode ORDER BY 1""",
    "14": """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitems JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    "19": """SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitems JOIN part ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON' AND ((p_brand = 'Brand#12'
        AND l_quantity BETWEEN 1 AND 11) OR (p_brand = 'Brand#23' AND l_quantity BETWEEN 10 AND 20))""",
}
SIMPLE = {
    "count": "SELECT count(*) FROM lineitems",
    "filtered": "SELECT count(*) FROM lineitems WHERE l_shipdate <= DATE '1998-09-02'",
    "month": "SELECT date_trunc('month', l_shipdate) AS m, sum(l_quantity) FROM lineitems GROUP BY m",
    "median": "SELECT l_shipmode, median(l_extendedprice) FROM lineitems GROUP BY l_shipmode",
    "units": "SELECT l_shipmode, count(DISTINCT o_custkey) FROM lineitems GROUP BY l_shipmode",
    "per unit": "SELECT avg(total) FROM (SELECT o_custkey, sum(l_quantity) AS total FROM lineitems GROUP BY o_custkey)",
    "commas": "SELECT count(*) FROM lineitems, supplier, nation WHERE l_suppkey = s_suppkey AND s_nationkey = n_nationkey",
}
"""Shorter questions, by what they take: all rows, a key that is computed, leaves of a tree, units, rows of each unit, joins by commas."""
BOUNDS = {"per unit": ", bounds := {'total': [0, 10000]}"}
DECLARED = {
    "l_returnflag": "categories := ['A', 'N', 'R'], nullable := false",
    "l_linestatus": "categories := ['F', 'O'], nullable := false",
    "o_orderpriority": "categories := ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'], nullable := false",
    "l_shipmode": "categories := ['AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'], nullable := false",
    "l_quantity": "lower := 1, upper := 50, nullable := false",
    "l_extendedprice": "lower := 0, upper := 110000, nullable := false",
    "l_discount": "lower := 0, upper := 0.1, nullable := false",
    "l_tax": "lower := 0, upper := 0.08, nullable := false",
    "l_shipdate": "lower := '1992-01-01', upper := '1998-12-31', nullable := false",
}


def load(con: duckdb.DuckDBPyConnection, scale: float, folder: Path | None) -> None:
    """Make the tables, from files or with the extension."""
    name = f"{scale:g}"
    if folder is not None and (folder / f"lineitem{name}.parquet").is_file():
        con.execute(f"CREATE TABLE lineitems AS FROM read_parquet('{folder}/lineitem{name}.parquet')")
        for table in PUBLIC:
            con.execute(f"CREATE TABLE {table} AS FROM read_parquet('{folder}/{table}{name}.parquet')")
    else:
        import duckdb_extension_tpch  # a package of the extension, where DuckDB has one

        found = next(Path(duckdb_extension_tpch.__file__).parent.rglob("*.duckdb_extension"))
        con.execute(f"LOAD '{found}'")
        con.execute(f"CALL dbgen(sf = {scale})")
        con.execute(f"CREATE TABLE lineitems AS {LINEITEMS}")
        for table in ("lineitem", "orders", "customer"):
            con.execute(f"DROP TABLE {table}")
    for table in PUBLIC:
        con.execute(f"CREATE UNIQUE INDEX {table}_key ON {table}({table[0]}_{table}key)".replace("s_supplierkey", "s_suppkey"))


def seconds(con: duckdb.DuckDBPyConnection, text: str) -> tuple[float, float]:
    """Return how long a statement takes, and how long all cores together work for it: the second hardly depends on other programs."""
    start, busy = time.perf_counter(), time.process_time()
    con.execute(text).fetchall()
    return time.perf_counter() - start, time.process_time() - busy


def least(times: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the least of both of several."""
    first, second = zip(*times, strict=True)
    return min(first), min(second)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", type=int, default=150, help="max_contributions: lines of one customer that count")
    parser.add_argument("--only", help="names of queries, with commas between")
    given = parser.parse_args()
    con = duckdb.connect()
    load(con, given.scale, given.folder)
    dpsql.load(con)
    con.execute(
        f"CALL dp_protect('lineitems', epsilon := 1000, delta := 1e-9, privacy_unit := 'o_custkey', max_contributions := {given.rows})"
    )
    for column, said in DECLARED.items():
        con.execute(f"CALL dp_declare('lineitems', '{column}', {said})")
    ratios = []
    print(f"{'query':>9} {'plain s':>9} {'private s':>10} {'ratio':>7} {'of cpu time':>12}")
    for name, text in {**SIMPLE, **QUERIES}.items():
        if given.only and name not in given.only.split(","):
            continue
        plain = least(seconds(con, text) for _ in range(given.repeat))
        private = least(
            seconds(con, f"FROM dp_query($${text}$$, epsilon := 0.5, release := '{name}-{i}'{BOUNDS.get(name, '')})") for i in range(given.repeat)
        )
        ratios.append((private[0] / plain[0], private[1] / plain[1]))
        print(f"{name:>9} {plain[0]:9.3f} {private[0]:10.3f} {ratios[-1][0]:7.1f} {ratios[-1][1]:12.1f}", flush=True)
    means = [math.exp(sum(map(math.log, found)) / len(found)) for found in zip(*ratios, strict=True)]
    print(f"geometric mean {means[0]:.2f}, of CPU time {means[1]:.2f}")


if __name__ == "__main__":
    main()
