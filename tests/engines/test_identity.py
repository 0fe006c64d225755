"""A random typed table behind a server: each integer that it gives is DuckDB's, for every method and aggregate that is supported."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import sail

import dpsql
from dpsql import methods
from dpsql.engines.duckdb.reader import DuckReader
from dpsql.engines.spark.reader import SparkCodes, SparkReader, SparkWidths

pytestmark = pytest.mark.any_duckdb
ROWS, MOST = 300, 3
COLUMNS = {
    "person": "BIGINT", "age": "INTEGER", "level": "TINYINT", "income": "DOUBLE", "share": "FLOAT", "price": "DECIMAL(12,2)", "sex": "VARCHAR",
    "ok": "BOOLEAN", "day": "DATE", "moment": "TIMESTAMP", "note": "VARCHAR",
}  # fmt: skip
ODD = {
    "age": ["-2147483648", "2147483647", "0"], "level": ["-128", "127"], "income": ["'nan'", "'inf'", "'-inf'", "-0.0", "1e308", "2.5", "3.5"],
    "share": ["'nan'", "'-inf'", "0.1"], "price": ["-9999999999.99", "9999999999.99", "0.005"], "sex": ["''", "'F'", "'é'"], "ok": ["NULL"],
    "day": ["'0001-01-01'", "'9999-12-31'"], "moment": ["'0001-01-01'", "'9999-12-31 23:59:59.999999'"], "note": ["'a''b'", "'😀'", "''"],
}  # fmt: skip


def row(rng: random.Random, place: int) -> str:
    usual = {
        "age": str(rng.randint(0, 99)), "level": str(rng.randint(0, 4)), "income": repr(rng.uniform(0, 1e5)), "share": repr(rng.random()),
        "price": f"{rng.randint(0, 99999) / 100}", "sex": rng.choice(["'f'", "'m'"]), "ok": rng.choice(["true", "false"]),
        "day": f"'{rng.randint(1990, 2020)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}'",
        "moment": f"'20{rng.randint(10, 20)}-03-0{rng.randint(1, 9)} 1{rng.randint(0, 9)}:30:00.5'", "note": f"'n{rng.randint(0, 9)}'",
    }  # fmt: skip
    listed = [str(place // MOST)]
    for name, value in usual.items():
        way = rng.random()
        listed.append("NULL" if way < 0.06 else rng.choice(ODD[name]) if way < 0.15 else value)
    return f"({', '.join(f'CAST({value} AS {kind})' for value, kind in zip(listed, COLUMNS.values(), strict=True))})"


@dataclass
class Twin:
    """The same rows in DuckDB under the same name, and what was counted over the server's."""

    con: duckdb.DuckDBPyConnection
    found: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)

    def check(self) -> list[str]:
        """Compare what was counted since the last time; return what it was."""
        seen = []
        reader = DuckReader(self.con)
        for name, given, result in self.found:
            seen.append(name)
            if name == "groups":
                self.con.execute(f"CREATE TEMP TABLE IF NOT EXISTS {given[1]} AS {given[0]}")
            elif name == "frame":
                assert rows(reader.frame(*given)) == rows(result), given[0]
            elif name.startswith("codes."):
                with reader.codes(given[0]) as codes:
                    same(getattr(codes, name.removeprefix("codes."))(*given[1:]), result)
            elif name == "widths":
                with reader.codes(given[0]) as codes, codes.widths(*given[1:]) as widths:
                    same(widths.histogram, result)
            else:
                same(getattr(reader, name)(*given), result)
        self.found.clear()
        return seen


def rows(frame: Any) -> list[tuple[str, ...]]:
    """Return the rows of a frame in some order."""
    columns = [[None if value is np.ma.masked else value for value in np.ma.asarray(column).tolist()] for column in frame.values()]
    return sorted(tuple(map(repr, each)) for each in zip(*columns, strict=True))


def same(one: Any, other: Any) -> None:
    if isinstance(one, tuple | list):
        if one and isinstance(one[0], list) and one[0] and isinstance(one[0][0], str):  # texts in any order, with their counts
            assert dict(zip(*one, strict=True)) == dict(zip(*other, strict=True))
            return
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
        return
    np.testing.assert_array_equal(getattr(one, "flat", one), getattr(other, "flat", other))


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Twin]]:
    folder, rng = tmp_path_factory.mktemp("identity"), random.Random(7)
    twin = duckdb.connect(":memory:people")
    twin.execute(f"CREATE TABLE people ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
    twin.execute(f"INSERT INTO people VALUES {', '.join(row(rng, place) for place in range(ROWS))}")
    (folder / "people").mkdir()
    twin.execute(f"COPY people TO '{folder / 'people' / 'people.parquet'}' (FORMAT parquet)")
    con = sail.remote(Path(":memory:people_remote"), "people", folder / "people", privacy_unit="person", max_contributions=MOST)
    for name, given in {
        "age": {"lower": 0, "upper": 99}, "level": {"lower": 0, "upper": 4, "outside": "drop"}, "income": {"lower": 0, "upper": 100_000},
        "share": {"lower": 0, "upper": 1, "bins": 4}, "price": {"lower": 0, "upper": 1000, "bins": 8}, "sex": {"categories": ["f", "m", "é"], "outside": "other"},
        "day": {"lower": "1990-01-01", "upper": "2020-12-31", "bins": 6}, "moment": {"lower": "2010-01-01", "upper": "2020-12-31"},
    }.items():  # fmt: skip
        dpsql.declare(con, "people", name, **given)
    (folder / "counts").mkdir()
    twin.execute("CREATE TABLE counts AS SELECT i * 7 % 10 AS x, i % 5 AS y, i % 3 = 0 AS ok FROM range(200) t(i)")
    twin.execute(f"COPY counts TO '{folder / 'counts' / 'counts.parquet'}' (FORMAT parquet)")
    dpsql.remote(con, "counts", engine="spark", url=sail.url(), relation=f"parquet:{folder / 'counts'}")
    dpsql.protect(con, "counts", epsilon=1000, delta=1e-9, neighbors="replace_one")
    dpsql.declare(con, "counts", "x", lower=0, upper=9, nullable=False)
    dpsql.declare(con, "counts", "y", lower=0, upper=4, nullable=False)
    dpsql.declare(con, "counts", "ok", categories=[False, True], nullable=False)
    yield con, Twin(twin)
    con.close()
    twin.close()


@pytest.fixture(autouse=True)
def spied(databases: tuple[duckdb.DuckDBPyConnection, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the server is asked and answers."""
    _, twin = databases
    there = {name: getattr(SparkReader, name) for name in ("frame", "tables", "fine", "groups", "codes")}
    statement = {"text": ""}

    def local(text: str) -> str:
        return text.replace('"people_remote"."main"', '"people"."main"')

    def keep(name: str) -> Any:
        def call(reader: SparkReader, select: str, *given: Any) -> Any:
            result = there[name](reader, select, *given)
            twin.found.append((name, (local(select), *given), result))
            return result

        return call

    @contextmanager
    def groups(reader: SparkReader, select: str, *, inline: bool) -> Iterator[str]:
        with there["groups"](reader, select, inline=inline) as name:
            twin.found.append(("groups", (select, name), None))
            yield name

    @contextmanager
    def codes(reader: SparkReader, select: str) -> Iterator[SparkCodes]:
        statement["text"] = local(select)
        with there["codes"](reader, select) as found:
            yield found

    for name in ("frame", "tables", "fine"):
        monkeypatch.setattr(SparkReader, name, keep(name))
    monkeypatch.setattr(SparkReader, "groups", groups)
    monkeypatch.setattr(SparkReader, "codes", codes)

    def kept(name: str) -> Any:
        own = getattr(SparkCodes, name)

        def call(found: SparkCodes, *given: Any) -> Any:
            result = own(found, *given)
            twin.found.append((f"codes.{name}", (statement["text"], *given), result))
            return result

        return call

    for name in ("total", "tables", "moments", "values", "tuples"):
        monkeypatch.setattr(SparkCodes, name, kept(name))
    histogram = SparkWidths.histogram.func

    def widths(found: SparkWidths) -> Any:
        result = histogram(found)
        twin.found.append(("widths", (statement["text"], found._index, found._k, found._keys, found._empty), result))
        return result

    monkeypatch.setattr(SparkWidths, "histogram", property(widths))


CALLS = {
    "FROM dp_marginals('people', columns := ['sex', 'ok', 'day'], epsilon := 5)": {"tables"},
    "FROM dp_marginals('people', columns := ['age'], epsilon := 5)": {"tables"},
    "FROM dp_marginals('people', columns := ['income', 'moment'], epsilon := 5)": {"fine", "tables"},
    "FROM dp_contributions('people', epsilon := 5)": {"tables"},
    "FROM dp_histogram('people', 'note', epsilon := 5)": {"codes.values"},
    "FROM dp_histogram('people', 'day', epsilon := 5)": {"codes.values"},
    "FROM dp_aggregates('people', columns := ['sex', 'ok', 'level'], epsilon := 20)": {"codes.total"},
    "FROM dp_summarize('people', epsilon := 20)": set(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call(call: str, databases: tuple[duckdb.DuckDBPyConnection, Twin]) -> None:
    con, twin = databases
    con.execute(call).fetchall()
    seen = twin.check()
    assert seen and set(seen) >= CALLS[call]


PUBLIC_TOTAL = {"beta_binomial": "['ok']", "empirical_cdf": "['x']", "modips": "['x', 'y']", "dpcopula_kendall": "['x', 'y']"}
"""Columns of `counts` for methods that ask for one, for numbers or for two values; others have two of it."""


@pytest.mark.parametrize("method", [name for name in methods.names() if not methods.is_open(methods.get(name))])
def test_a_method(method: str, databases: tuple[duckdb.DuckDBPyConnection, Twin]) -> None:
    con, twin = databases
    drawn = methods.is_drawn(methods.get(method))
    source, columns = ("counts", PUBLIC_TOTAL.get(method, "['x', 'ok']")) if drawn else ("people", "['sex', 'ok', 'level', 'age']")
    con.execute(f"FROM dp_synthesize('{source}', columns := {columns}, method := '{method}', epsilon := 9, release := '{method}', rows := 5)").fetchall()
    assert twin.check()


QUERIES = (
    "SELECT sex, count(*), avg(income), sum(price), count(DISTINCT person) FROM people GROUP BY sex",
    "SELECT count(*), sum(level), avg(price) FILTER (WHERE age > 20), median(income) FROM people",
    "SELECT level, min(income), max(age), quantile_cont(income, 0.9) FROM people WHERE age < 50 GROUP BY level",
    "SELECT year(day) AS y, count(*), variance(income), corr(income, age) FROM people WHERE day >= DATE '2015-01-01' GROUP BY y",
    "SELECT note, count(*), count(person) FROM people GROUP BY note",
    "SELECT upper(sex) AS s, count(DISTINCT sex), mode(sex) FROM people GROUP BY s",
    "SELECT share, moment, count(*) FROM people GROUP BY share, moment",
    "SELECT ok, sum(CASE WHEN ok THEN price ELSE 0 END), avg(age * 2 + level), max(moment), min(day) FROM people GROUP BY ok",
    "SELECT date_trunc('year', moment) AS y, count(*) FROM people WHERE note LIKE 'n%' OR age // 7 > 3 GROUP BY y",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query(query: str, databases: tuple[duckdb.DuckDBPyConnection, Twin]) -> None:
    con, twin = databases
    con.execute("FROM dp_query(?, epsilon := 5)", [query]).fetchall()
    assert "frame" in twin.check()
