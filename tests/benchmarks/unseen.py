"""Synthetic databases of schemas that the model was not tuned on, through SQL alone, with answers that an analyst would compare.

python tests/benchmarks/unseen.py [clinic | tpch | wide | alike | rare] [--scale 1] [--epsilon 1] [--seeds 1] [--seeded] [--independent]

- clinic: `clinic.py`, 150,000 patients a unit of scale, three tables below two of them. tpch: customer, orders, lineitem of DuckDB's
  tpch extension (package duckdb-extension-tpch), all columns that can be declared, bounds alone for numbers and dates.
- wide: two tables of 15 columns each, 100,000 units. alike: all children of a row are the same. rare: one unit in 200 has children.

delta = 1e-9. Counts: conjunctions of two to four random predicates over one table, a row and its parent, three levels, two rows of one parent,
rows of two child tables of one parent; those whose answer is 50 or more; median relative error, and 90 % quantile. Means: of numbers by
categories, of a row and of its parents, over the groups of 50 or more. --independent: ``independent := true``.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import clinic
import duckdb
import numpy as np
import pandas as pd
from planted_data import pick

import dpsql
from dpsql.noise import entropy

sys.path.append(str(Path(__file__).parents[1]))
from seeded_entropy import Streams

LEAST = 50


@dataclass(frozen=True)
class Made:
    """A database: its root and privacy unit, links (child, column, parent, key, max_rows), declarations, more statements."""

    root: str
    unit: str
    links: list[tuple[str, str, str, str, int]]
    declared: dict[str, dict[str, str]]
    more: tuple[str, ...] = ()

    def up(self, table: str) -> tuple[str, str, str, str, int] | None:
        return next((link for link in self.links if link[0] == table), None)


def make_clinic(con: duckdb.DuckDBPyConnection, scale: float) -> Made:
    clinic.create(con, round(150_000 * scale))
    links = [
        ("visits", "patient_id", "patients", "patient_id", clinic.VISITS),
        ("procedures", "visit_id", "visits", "visit_id", clinic.PROCEDURES),
        ("prescriptions", "patient_id", "patients", "patient_id", clinic.PRESCRIPTIONS),
    ]
    more = ("FROM dp_rule('visits', 'paid <= cost')", "FROM dp_link('visits', order_by := 'visit_at')")
    return Made("patients", "patient_id", links, clinic.DECLARED, more)


def make_tpch(con: duckdb.DuckDBPyConnection, scale: float) -> Made:
    import duckdb_extension_tpch

    con.execute(f"LOAD '{next(Path(duckdb_extension_tpch.__file__).parent.rglob('*.duckdb_extension'))}'")
    con.execute(f"CALL dbgen(sf = {scale}); CREATE UNIQUE INDEX c ON customer (c_custkey); CREATE UNIQUE INDEX o ON orders (o_orderkey)")
    days = "lower := '1992-01-01', upper := '1998-12-31'"

    def known(table: str, column: str) -> str:
        return f"categories := {[row[0] for row in con.execute(f'SELECT DISTINCT {column}::VARCHAR FROM {table} ORDER BY ALL ASC').fetchall()]}"

    listed = {
        "customer": ["c_mktsegment", "c_nationkey"], "orders": ["o_orderstatus", "o_orderpriority"],
        "lineitem": ["l_linenumber", "l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipinstruct", "l_shipmode"],
    }  # fmt: skip
    declared = {table: {column: known(table, column) for column in columns} for table, columns in listed.items()}
    declared["customer"]["c_acctbal"] = "lower := -1000, upper := 10000"
    declared["orders"] |= {"o_totalprice": "lower := 0, upper := 600000", "o_orderdate": days}
    declared["lineitem"] |= {"l_quantity": "lower := 0, upper := 51", "l_extendedprice": "lower := 0, upper := 110000"}
    declared["lineitem"] |= dict.fromkeys(("l_shipdate", "l_commitdate", "l_receiptdate"), days)
    links = [("orders", "o_custkey", "customer", "c_custkey", 32), ("lineitem", "l_orderkey", "orders", "o_orderkey", 7)]
    return Made("customer", "c_custkey", links, declared)


def _two(con: duckdb.DuckDBPyConnection, units: pd.DataFrame, rows: pd.DataFrame, most: int) -> Made:
    """Load two tables whose columns are all categories."""
    con.execute("CREATE TABLE units AS SELECT row_number() OVER () AS id, * FROM units; CREATE UNIQUE INDEX k ON units (id)")
    con.execute("CREATE TABLE things AS FROM rows")
    declared = {
        "units": {name: f"categories := {sorted(set(units[name].tolist()))}" for name in units},
        "things": {name: f"categories := {sorted(set(rows[name].tolist()))}" for name in rows if name != "up"},
    }
    return Made("units", "id", [("things", "up", "units", "id", most)], declared)


def make_wide(con: duckdb.DuckDBPyConnection, scale: float) -> Made:
    """Fifteen columns of each of two tables, those of a table in a chain, those of the other after them."""
    rng, n = np.random.default_rng(3), round(100_000 * scale)
    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    parent = np.repeat(np.arange(n), np.minimum(rng.poisson(1 + 1.5 * kind), 10))

    def chain(first: np.ndarray) -> np.ndarray:
        columns = [first]
        for i in range(14):
            size = 3 + i % 6
            columns.append(np.where(rng.random(first.size) < 0.6, columns[-1] % size, rng.integers(0, size, first.size)))
        return np.stack(columns, 1)

    above = chain(np.where(rng.random(n) < 0.7, kind, rng.integers(0, 4, n)))
    own = chain(np.where(rng.random(parent.size) < 0.6, above[parent, 7] % 5, rng.integers(0, 5, parent.size)))
    rows = pd.DataFrame(own, columns=[f"b{i}" for i in range(15)]).assign(up=parent + 1)
    return _two(con, pd.DataFrame(above, columns=[f"a{i}" for i in range(15)]), rows, 10)


def _small(con: duckdb.DuckDBPyConnection, scale: float, alike: bool) -> Made:
    rng, n = np.random.default_rng(4), round(100_000 * scale)
    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    having = np.ones(n, bool) if alike else rng.random(n) < 0.005
    parent = np.repeat(np.arange(n), np.where(having, 1 + np.minimum(rng.poisson(kind), 9), 0))
    who = np.arange(n) if alike else np.arange(parent.size)
    of = kind if alike else kind[parent]
    values = np.stack([np.minimum(rng.poisson(1 + of), 7), pick(np.eye(4)[of] + 0.2, rng), rng.integers(0, 3, who.size)], 1)
    values = values[parent] if alike else values
    units = pd.DataFrame({"kind": np.where(rng.random(n) < 0.8, kind, rng.integers(0, 4, n)), "other": rng.integers(0, 5, n)})
    return _two(con, units, pd.DataFrame(values, columns=["x", "y", "z"]).assign(up=parent + 1), 10)


MAKERS: dict[str, Callable[[duckdb.DuckDBPyConnection, float], Made]] = {
    "clinic": make_clinic, "tpch": make_tpch, "wide": make_wide, "alike": lambda con, scale: _small(con, scale, True),
    "rare": lambda con, scale: _small(con, scale, False),
}  # fmt: skip


def protect(con: duckdb.DuckDBPyConnection, made: Made) -> None:
    con.execute(f"CALL dp_protect('{made.root}', epsilon := 100, delta := 1e-9, privacy_unit := '{made.unit}', max_contributions := 1)")
    for child, column, parent, key, most in made.links:
        con.execute(f"CALL dp_link('{child}', '{column}', parent := '{parent}', parent_column := '{key}', max_rows := {most})")
    for table, columns in made.declared.items():
        for column, said in columns.items():
            con.execute(f"CALL dp_declare('{table}', '{column}', {said})")
    for statement in made.more:
        con.execute(statement)


class Asked:
    """Random counts and means: the same statements of any schema."""

    def __init__(self, con: duckdb.DuckDBPyConnection, made: Made, count: int = 150) -> None:
        self._con, self._made, self._rng = con, made, np.random.default_rng(123)
        self._kinds = {
            table: {row[0]: row[1] for row in con.execute(f"DESCRIBE {table}").fetchall() if row[0] in columns}
            for table, columns in made.declared.items()
        }
        self._values = {
            (table, column): con.execute(
                f"SELECT {column}::VARCHAR AS v FROM {table} WHERE {column} IS NOT NULL USING SAMPLE 2000 ROWS (reservoir, 7)"
            ).fetchnumpy()["v"] for table, columns in self._kinds.items() for column in columns
        }  # fmt: skip
        self.counts: dict[str, list[tuple[str, list[str]]]] = {}
        per = max(count // 3, 20)
        for table in made.declared:
            self._add("0 hops", f"{{s}}.{table} a", [("a", table, 2, 3)], per)
            up = made.up(table)
            if up is None:
                continue
            one = f"{{s}}.{table} a JOIN {{s}}.{up[2]} b ON a.{up[1]} = b.{up[3]}"
            self._add("1 hop", one, [("a", table, 1, 2), ("b", up[2], 1, 2)], per)
            two = f"{{s}}.{table} a JOIN {{s}}.{table} b ON a.{up[1]} = b.{up[1]} AND a.rowid <> b.rowid"
            self._add("siblings", two, [("a", table, 1, 2), ("b", table, 1, 1)], per)
            top = made.up(up[2])
            if top is not None:
                three = f"{one} JOIN {{s}}.{top[2]} c ON b.{top[1]} = c.{top[3]}"
                self._add("2 hops", three, [("a", table, 1, 1), ("b", up[2], 0, 1), ("c", top[2], 1, 1)], per)
        for left, right in itertools.combinations(made.links, 2):
            if left[2] == right[2]:
                both = f"{{s}}.{left[0]} a JOIN {{s}}.{right[0]} b ON a.{left[1]} = b.{right[1]}"
                self._add("two children", both, [("a", left[0], 1, 1), ("b", right[0], 1, 1)], per)

    def _add(self, kind: str, source: str, parts: list[tuple[str, str, int, int]], count: int) -> None:
        listed = [" AND ".join(itertools.chain(*(self._some(*part) for part in parts))) for _ in range(count)]
        self.counts.setdefault(kind, []).append((source, listed))

    def _some(self, alias: str, table: str, low: int, high: int) -> list[str]:
        names, rng = list(self._kinds[table]), self._rng
        chosen = rng.permutation(len(names))[: rng.integers(low, high + 1)]
        return [self._predicate(alias, table, names[i]) for i in chosen]

    def _predicate(self, alias: str, table: str, column: str) -> str:
        values, rng, name = self._values[table, column], self._rng, f"{alias}.{column}"
        if "categories" in self._made.declared[table][column]:
            there = sorted(set(values.tolist()))
            some = [there[i] for i in rng.permutation(len(there))[: rng.integers(1, max(len(there) // 2, 1) + 1)]]
            return f"{name}::VARCHAR IN ({', '.join(repr(value) for value in some)})"
        kind = self._kinds[table][column]
        a, b = sorted(rng.choice(values, 2), key=lambda value: float(value) if kind not in ("DATE", "TIMESTAMP") else value)
        return f"{name} BETWEEN '{a}'::{kind} AND '{b}'::{kind}"

    def answers(self, schema: str) -> dict[str, np.ndarray]:
        found = {}
        for kind, asked in self.counts.items():
            numbers: list[float] = []
            for source, listed in asked:
                filters = ", ".join(f"count(*) FILTER (WHERE {text})" for text in listed)
                numbers += self._con.execute(f"SELECT {filters} FROM {source.format(s=schema)}").fetchone()
            found[kind] = np.array(numbers, float)
        return found

    def means(self, schema: str) -> dict[tuple[str, ...], tuple[float, int]]:
        """Return means of numbers and numbers of rows, by categories of the row and of the row above it."""
        found = {}
        for table, columns in self._made.declared.items():
            up = self._made.up(table)
            source = f"{schema}.{table} a" + ("" if up is None else f" JOIN {schema}.{up[2]} b ON a.{up[1]} = b.{up[3]}")
            groups = [("a", table, c) for c, said in columns.items() if "categories" in said]
            groups += [] if up is None else [("b", up[2], c) for c, said in self._made.declared[up[2]].items() if "categories" in said]
            numbers = [c for c, kind in self._kinds[table].items() if kind not in ("DATE", "TIMESTAMP", "VARCHAR", "BOOLEAN")]
            for (alias, of, group), number in itertools.product(groups, numbers):
                if (alias, group) != ("a", number):
                    sql = f"SELECT {alias}.{group}::VARCHAR, avg(a.{number}), count(a.{number}) FROM {source} GROUP BY 1"
                    for value, mean, rows in self._con.execute(sql).fetchall():
                        found[table, number, of, group, str(value)] = (float(mean or 0), rows)
        return found


def columns(con: duckdb.DuckDBPyConnection, made: Made, schema: str) -> pd.DataFrame:
    """Return shares of NULL, distinct values and the most frequent value of each column, in both schemas, and quantiles of numbers."""
    rows = []
    for table, declared in made.declared.items():
        kinds = {row[0]: row[1] for row in con.execute(f"DESCRIBE {table}").fetchall()}
        for column in declared:
            top = con.execute(f"SELECT mode({column})::VARCHAR FROM {table}").fetchone()[0]
            listed: list[str] = []
            for where in ("main", schema):
                source = f"{where}.{table}"
                nulls, spike = con.execute(
                    f"SELECT avg(({column} IS NULL)::INT), avg(({column}::VARCHAR = ?)::INT) FROM {source}", [top]
                ).fetchone()
                said = ""
                if kinds[column] not in ("VARCHAR", "BOOLEAN"):
                    value = f"epoch({column}) / 86400" if kinds[column] in ("DATE", "TIMESTAMP") else column
                    cut = con.execute(f"SELECT quantile_cont(({value})::DOUBLE, [0.05, 0.5, 0.95, 0.99]) FROM {source}").fetchone()[0]
                    said = " ".join(f"{number:.4g}" for number in cut or [])
                listed += [f"{nulls or 0:.3f}", f"{spike or 0:.3f}", said]
            same = {row[0]: row[1] for row in con.execute(f"DESCRIBE {schema}.{table}").fetchall()}.get(column) == kinds[column]
            rows.append([f"{table}.{column}", kinds[column] if same else f"NOT {kinds[column]}", top, *listed])
    names = ["column", "type", "top", "null", "top share", "5 50 95 99 %", "null'", "top'", "5 50 95 99 %'"]
    return pd.DataFrame(rows, columns=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=tuple(MAKERS), default="clinic")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--epsilon", type=float, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seeded", action="store_true")
    parser.add_argument("--independent", action="store_true")
    parser.add_argument("--columns", action="store_true", help="print each column beside the raw one")
    given = parser.parse_args()
    con = duckdb.connect()
    made = MAKERS[given.data](con, given.scale)
    sizes = [f"{con.execute(f'SELECT count(*) FROM {name}').fetchone()[0]:,} {name}" for name in made.declared]
    print(f"{given.data}: {', '.join(sizes)}; epsilon {given.epsilon:g}{', independent' if given.independent else ''}")
    dpsql.load(con, progress=False)
    protect(con, made)
    asked = Asked(con, made)
    raw, means = asked.answers("main"), asked.means("main")
    for seed in range(1, given.seeds + 1):
        if given.seeded:
            entropy._source = Streams(f"k{seed}")
        wall, cpu = time.perf_counter(), time.process_time()
        con.execute(
            f"FROM dp_synthesize_tables('{made.root}', epsilon := {given.epsilon}, delta := 1e-9, into_schema := 's', release := 's{seed}', "
            f"seed := {seed}, independent := {given.independent})"
        ).fetchall()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"seed {seed}: {time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} s of CPU, {memory:.0f} MB with loading")
        figures = con.execute(f"FROM dp_evaluate('{made.root}', 's') WHERE level = 'summary'").fetchall()
        print("  " + "; ".join(f"{row[1]} {row[9]:.4f}" + (f" ({row[11]:.4f})" if row[11] is not None else "") for row in figures))
        for kind, exact in raw.items():
            got = asked.answers("s")[kind]
            errors = (np.abs(got - exact) / np.maximum(exact, 1))[exact >= LEAST]
            print(f"  {kind}: median {np.median(errors):.3f}, 90 % {np.quantile(errors, 0.9):.3f}, of {errors.size}")
        found = asked.means("s")
        spread = [
            abs(found.get(key, (0.0, 0))[0] - mean) / abs(mean) for key, (mean, rows) in means.items() if rows >= LEAST and abs(mean) > 1e-9
        ]
        print(f"  means: median {np.median(spread):.3f}, 90 % {np.quantile(spread, 0.9):.3f}, of {len(spread)}")
        if given.columns:
            print(columns(con, made, "s").to_string(index=False))


if __name__ == "__main__":
    main()
