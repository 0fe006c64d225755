"""Automatic bins through SQL: declared, bought with a release, stored with it, the same again, nowhere else and by nobody changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from noisy import near, planned_noise
from pairwise import WHOLE, in_turn
from prepared import beside, copied

import dpsql
from dpsql.rows import models

pytestmark = pytest.mark.any_duckdb

SMALL = "options := {'classes': 4, 'steps': 10}"

TYPES: dict[str, tuple[str, str, str]] = {
    "TINYINT": ("(i % 100)::TINYINT", "0", "100"),
    "SMALLINT": ("(i * 7 % 5000)::SMALLINT", "-10", "5000"),
    "INTEGER": ("(i * i % 90001)::INTEGER", "0", "100000"),
    "UBIGINT": ("(i * 999983)::UBIGINT", "0", "18446744073709551615"),
    "BIGINT": ("(i * 999983 - 10000000)::BIGINT", "-9223372036854775808", "9223372036854775807"),
    "HUGEINT": ("(i * 999983)::HUGEINT", "-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"),
    "DECIMAL(10,2)": ("(i * 1.25)::DECIMAL(10,2)", "0", "1000000"),
    "DECIMAL(38,37)": ("(i / 100)::DECIMAL(38,37)", "-9.5", "9.5"),
    "FLOAT": ("(i / 7)::FLOAT", "0", "1000"),
    "DOUBLE": ("CASE WHEN i % 2 = 0 THEN 0 ELSE exp(i % 11) END::DOUBLE", "0", "100000"),
    "DATE": ("DATE '2015-01-01' + (i * 13 % 3000)::INTEGER", "'1900-01-01'", "'2030-12-31'"),
    "TIME": ("TIME '08:00:00' + to_minutes(i % 600)", "'00:00:00'", "'23:59:59.999999'"),
    "TIMESTAMP": ("TIMESTAMP '2020-01-01' + to_hours(i * 7)", "'2000-01-01'", "'2040-01-01'"),
    "TIMESTAMP_S": ("(TIMESTAMP '2020-01-01' + to_hours(i * 7))::TIMESTAMP_S", "'2000-01-01'", "'2040-01-01'"),
    "TIMESTAMP_MS": ("(TIMESTAMP '2020-01-01' + to_hours(i * 7))::TIMESTAMP_MS", "'2000-01-01'", "'2040-01-01'"),
    "TIMESTAMP_NS": ("(TIMESTAMP '2020-01-01' + to_hours(i * 7))::TIMESTAMP_NS", "'2000-01-01'", "'2040-01-01'"),
    "TIMESTAMP WITH TIME ZONE": ("(TIMESTAMP '2020-01-01' + to_hours(i * 7))::TIMESTAMPTZ", "'2000-01-01'", "'2040-01-01'"),
}


def opened(path: Path | str = ":memory:") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    return con


def protected(select: str, declare: str = "'x', lower := 0, upper := 100000", path: Path | str = ":memory:", more: str = "") -> duckdb.DuckDBPyConnection:
    con = opened(path)
    con.execute(f"CREATE TABLE t AS {select}")
    con.execute(f"CALL dp_protect('t', epsilon := 100, delta := 1e-9{more})")
    con.execute(f"CALL dp_declare('t', {declare})")
    return con


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table with a column of automatic bins, one of declared bins and one of categories."""
    path = tmp_path_factory.mktemp("made") / "t.duckdb"
    select = "SELECT CASE WHEN i % 3 = 0 THEN NULL WHEN i % 3 = 1 THEN 0 ELSE exp(i % 10) END::DOUBLE AS x, (i % 90)::INTEGER AS age, i % 2 = 0 AS c, i % 40 AS who FROM range(600) r(i)"
    with protected(select, path=path) as connection:
        connection.execute("CALL dp_declare('t', 'age', lower := 0, upper := 99, bins := 10, nullable := false)")
    return path


@pytest.fixture
def con(made, tmp_path):
    with copied(made, tmp_path, progress=False) as connection:
        yield connection


def charges(con: duckdb.DuckDBPyConnection) -> int:
    return beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def edges_of(con: duckdb.DuckDBPyConnection, name: str, column: str = "x") -> list[Any]:
    """Where the bins of a column of marginals end."""
    (kind,) = con.execute(f"SELECT any_value(typeof({column}_lower)) FROM ({name})").fetchone()
    cast = "::VARCHAR" if "ZONE" in kind else ""  # older versions need pytz for these
    rows = con.execute(f"SELECT DISTINCT {column}_lower{cast}, {column}_upper{cast} FROM ({name}) WHERE {column}_lower IS NOT NULL ORDER BY 1").fetchall()
    assert all(a[1] == b[0] for a, b in zip(rows, rows[1:], strict=False))
    return [row[0] for row in rows] + [rows[-1][1]]


def files(con: duckdb.DuckDBPyConnection, folder: Path) -> list[dict[str, Any]]:
    """The manifests of all releases of a store."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        query = f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'"
        found.append(json.loads(beside(con).execute(query).fetchone()[0]))
    return found


@pytest.mark.parametrize("sql_type", TYPES)
def test_every_type(sql_type):
    value, lower, upper = TYPES[sql_type]
    select = f"SELECT CASE WHEN i % 9 > 0 THEN {value} END AS x, i % 2 = 0 AS c FROM range(700) r(i)"
    with protected(select, f"'x', lower := {lower}, upper := {upper}") as con:
        assert con.execute("SELECT typeof(x) FROM t LIMIT 1").fetchone()[0] == sql_type
        con.execute("CREATE TEMP TABLE counts AS FROM dp_marginals('t', columns := ['x'], epsilon := 5)")
        assert 2 <= len(edges_of(con, "FROM counts")) <= 25
        total, nulls = con.execute("SELECT sum(n), sum(n) FILTER (x_lower IS NULL) FROM counts").fetchone()
        assert 500 < total < 900
        assert 30 < nulls < 130
        kind = "" if lower[0] != "'" else f"::{sql_type}"
        inside = f"bool_and(x >= {lower}{kind} AND x <= {upper}{kind})"
        rows = con.execute(f"SELECT count(*), count(x), any_value(typeof(x)), {inside} FROM dp_synthesize('t', epsilon := 5, rows := 500, {SMALL})").fetchone()
        assert rows[0] == 500
        assert 380 < rows[1] < 490
        assert rows[2:] == (sql_type, True)


@pytest.mark.parametrize(
    "call",
    [
        f"dp_synthesize('t', epsilon := 2, {SMALL})",
        "dp_synthesize('t', method := 'gaussian_copula', epsilon := 2)",
        "dp_synthesize('t', epsilon := 2, options := {'classes': 4, 'steps': 10, 'mechanism': 'laplace'})",
        "dp_synthesize('t', columns := ['x', 'c'], method := 'laplace_sanitizer', epsilon := 2)",
        "dp_synthesize('t', columns := ['x', 'c'], method := 'perturbed_histogram', epsilon := 2)",
        "dp_marginals('t', k := 2, epsilon := 2)",
        "dp_marginals('t', columns := ['x', 'age'], epsilon := 2)",
        "dp_aggregates('t', reporting_length := 2, epsilon := 2)",
        "dp_aggregates('t', reporting_length := 2, epsilon := 2, options := {'empty': true})",
    ],
)
def test_every_call_buys_them_once(con, call):
    if "dp_synthesize" in call:
        (notes,) = con.execute(f"SELECT notes FROM {call.replace('dp_synthesize', 'dp_plan')}").fetchone()
        assert "bins of x are cut" in " ".join(notes)
    before = charges(con)
    rows = con.execute(f"FROM {call}").fetchall()
    assert rows
    assert charges(con) == before + 1
    again = con.execute(f"FROM {call}").fetchall()
    assert charges(con) == before + 1
    if "dp_synthesize" not in call:
        assert again == rows


def test_the_same_call_has_the_same_bins_in_another_session(con, tmp_path):
    call = "FROM dp_marginals('t', columns := ['x', 'c'], epsilon := 3)"
    rows, ends = con.execute(call).fetchall(), edges_of(con, call)
    assert ends[0] == 0.0
    assert ends[-1] == 100_000.0
    con.execute(f"FROM dp_synthesize('t', epsilon := 3, {SMALL}, release := 'r')").fetchall()
    drawn = con.execute("FROM dp_sample('r', rows := 50, seed := 3)").fetchall()
    assert con.execute(call).fetchall() == rows
    con.close()
    again = opened(tmp_path / "t.duckdb")
    assert again.execute(call).fetchall() == rows
    assert edges_of(again, call) == ends
    assert again.execute("FROM dp_sample('r', rows := 50, seed := 3)").fetchall() == drawn
    assert charges(again) == 2
    again.close()


def test_zeros_and_values_are_drawn_as_they_are(con):
    (zeros, nulls, large) = con.execute(f"SELECT avg((x = 0)::INTEGER), avg((x IS NULL)::INTEGER), avg((x > 10000)::INTEGER) FROM dp_synthesize('t', epsilon := 50, rows := 6000, {SMALL})").fetchone()
    assert nulls == pytest.approx(1 / 3, abs=0.05)
    assert zeros == pytest.approx(0.5, abs=0.05)  # of those that have a value
    assert large < 0.02


def test_declared_bins_get_a_fine_histogram_where_rows_are_drawn(tmp_path):
    """Zeros in a bin of 5,000: with the histogram they are zeros, without it spread over the bin."""
    select = "SELECT CASE WHEN i % 2 = 0 THEN 0 ELSE i * 7 % 10000 END::DOUBLE AS x, i % 2 = 0 AS c FROM range(2000) r(i)"
    with protected(select, "'x', lower := 0, upper := 10000, bins := 2, nullable := false", tmp_path / "t.duckdb") as con:
        share = "SELECT avg((x = 0)::INTEGER) FROM dp_synthesize('t', epsilon := 20, rows := 4000, release := '{}', options := {{'classes': 4, 'steps': 10{}}})"
        assert con.execute(share.format("with", "")).fetchone()[0] == pytest.approx(0.5, abs=0.08)
        assert con.execute(share.format("without", ", 'fine': 0")).fetchone()[0] < 0.01
        one, other = sorted(files(con, tmp_path / "t.duckdb.dpsql"), key=lambda m: "fine" in m)
        assert "fine" not in one
        assert other["fine"]["edges"] == [None]
        con.execute("FROM dp_marginals('t', columns := ['x'], epsilon := 1)").fetchall()  # draws no values: needs none
        assert sum("fine" in m for m in files(con, tmp_path / "t.duckdb.dpsql")) == 1


ODD = {
    "nobody": "SELECT 1.0::DOUBLE AS x, true AS c WHERE false",
    "one row": "SELECT 17.0::DOUBLE AS x, true AS c",
    "one value": "SELECT 17.0::DOUBLE AS x, true AS c FROM range(500)",
    "all above": "SELECT 1e9::DOUBLE AS x, true AS c FROM range(500)",
    "all below": "SELECT '-inf'::DOUBLE AS x, true AS c FROM range(500)",
    "all NULL": "SELECT NULL::DOUBLE AS x, true AS c FROM range(500)",
    "all NaN": "SELECT 'nan'::DOUBLE AS x, true AS c FROM range(500)",
}
WAYS = ["'clamp', nullable := true", "'clamp', nullable := false", "'other', nullable := true", "'drop', nullable := false"]


@pytest.mark.parametrize(("what", "way"), in_turn([*ODD], WAYS, 2))
def test_odd_tables(what, way):
    """Every table with two ways to declare it and with two calls; all three with all ways when thorough."""
    place, other = list(ODD).index(what), WAYS.index(way)
    with protected(ODD[what], f"'x', lower := 0, upper := 100000, outside := {way}") as con:
        calls = (
            f"dp_synthesize('t', epsilon := 2, {SMALL}, rows := 20)", "dp_marginals('t', columns := ['x'], epsilon := 2)",
            "dp_synthesize('t', method := 'laplace_sanitizer', epsilon := 2, rows := 20, release := 'drawn')",
        )
        for call in calls if WHOLE else [calls[(place + other // 2) % 3]]:
            found = con.execute(f"FROM {call}").fetchall()
            assert len(found) == 20 or "marginals" in call
        assert con.execute("SELECT bool_and(status = 'stored') FROM dp_releases()").fetchone() == (True,)


@pytest.mark.parametrize("outside", ["clamp", "other", "drop"])
def test_outside_values_and_the_bins(outside):
    select = "SELECT CASE WHEN i % 4 = 0 THEN 5000000 WHEN i % 4 = 1 THEN -3 ELSE 20 + i % 5 END::DOUBLE AS x, i % 2 = 0 AS c FROM range(2000) r(i)"
    with protected(select, f"'x', lower := 0, upper := 100000, outside := '{outside}', nullable := false") as con:
        call = "dp_marginals('t', columns := ['x'], epsilon := 20)"
        total, cells = con.execute(f"SELECT sum(n), count(*) FROM {call}").fetchone()
        sigma, mechanism = planned_noise(con, "'t', columns := ['x'], k := 1, epsilon := 20")
        assert near(total, 1000 if outside == "drop" else 2000, sigma * cells**0.5, mechanism)
        ends = edges_of(con, f"FROM {call}")
        assert sum(15 <= end <= 30 for end in ends) >= 2  # bins are where the rows are
        (other,) = con.execute(f"SELECT sum(n) FROM {call} WHERE x_lower IS NULL").fetchone()
        assert near(other or 0, 1000 if outside == "other" else 0, sigma, mechanism)


def test_a_unit_with_many_rows(tmp_path):
    select = "SELECT (i % 60)::DOUBLE AS x, i % 2 = 0 AS c, (i % 50)::INTEGER AS who FROM range(2000) r(i)"
    with protected(select, path=tmp_path / "t.duckdb", more=", privacy_unit := 'who', max_contributions := 4") as con:
        total, cells = con.execute("SELECT sum(n), count(*) FROM dp_marginals('t', columns := ['x'], epsilon := 20)").fetchone()
        sigma, mechanism = planned_noise(con, "'t', columns := ['x'], k := 1, epsilon := 20")
        assert near(total, 200, sigma * cells**0.5, mechanism)
        assert con.execute(f"SELECT count(*) FROM dp_synthesize('t', epsilon := 20, {SMALL}, rows := 10)").fetchone() == (10,)
        counts = [sum(manifest["fine"]["counts"][0][:30]) for manifest in files(con, tmp_path / "t.duckdb.dpsql")]
        assert all(100 < n < 300 for n in counts)  # 50 units of four rows each


def test_views_and_joined_sources(con):
    con.execute("CREATE VIEW v AS SELECT x, age, c FROM t WHERE age > 20")
    con.execute("CREATE TABLE names(age INTEGER PRIMARY KEY, band INTEGER)")
    con.execute("INSERT INTO names SELECT i, i % 5 FROM range(100) r(i)")
    total, cells = con.execute("SELECT sum(n), count(*) FROM dp_marginals('v', columns := ['x'], epsilon := 10)").fetchone()
    (exact,) = con.execute("SELECT count(*) FROM v").fetchone()
    sigma, mechanism = planned_noise(con, "'v', columns := ['x'], k := 1, epsilon := 10")
    assert near(total, exact, sigma * cells**0.5, mechanism)
    joined = "SELECT t.x, n.band FROM t JOIN names AS n ON t.age = n.age"
    con.execute("CALL dp_declare('t', 'age', lower := 0, upper := 99, bins := 10, nullable := false)")
    rows = con.execute(f"FROM dp_marginals('{joined}', columns := ['x'], epsilon := 10)").fetchall()
    (exact,) = con.execute(f"SELECT count(*) FROM ({joined})").fetchone()
    sigma, mechanism = planned_noise(con, f"'{joined}', columns := ['x'], k := 1, epsilon := 10")
    assert near(sum(row[-3] for row in rows), exact, sigma * len(rows) ** 0.5, mechanism)
    computed = "SELECT x + 1 AS x, c FROM t"
    assert con.execute(f"FROM dp_marginals('{computed}', columns := ['c'], epsilon := 1)").fetchall()


@pytest.mark.parametrize("value", ["0.6", "-0.1", "1", "'much'", "true", "NULL"])
def test_an_option_out_of_range_is_told_and_nothing_is_charged(con, value):
    with pytest.raises(duckdb.Error, match=r"fine"):
        con.execute(f"FROM dp_synthesize('t', epsilon := 1, options := {{'fine': {value}}})")
    assert charges(con) == 0


def test_automatic_bins_cannot_do_without(con):
    with pytest.raises(duckdb.Error, match=r"fine = 0: column 'x' has automatic bins.*bins := \.\.\. or edges"):
        con.execute("FROM dp_synthesize('t', epsilon := 1, options := {'fine': 0})")
    assert charges(con) == 0
    assert con.execute("SELECT count(*) FROM dp_releases()").fetchone() == (0,)
    found = con.execute("FROM dp_synthesize('t', columns := ['age', 'c'], epsilon := 1, options := {'fine': 0, 'classes': 4, 'steps': 10})").fetchall()
    assert found
    with pytest.raises(duckdb.Error, match="no such option"):
        con.execute("FROM dp_synthesize('t', columns := ['c'], method := 'dp_prior', epsilon := 1, options := {'fine': 0.1})")
    assert charges(con) == 1


def test_the_plan_says_what_is_bought_beforehand(con):
    notes, rho = con.execute("SELECT notes, rho FROM dp_plan('t', epsilon := 1)").fetchone()
    told = " ".join(notes)
    assert "fine histograms of x, age are bought with the release, for" in told
    assert "bins of x are cut from them, at most 24 each" in told
    assert charges(con) == 0
    con.execute(f"FROM dp_synthesize('t', epsilon := 1, {SMALL})").fetchall()
    assert con.execute("SELECT rho FROM dp_ledger() WHERE rho IS NOT NULL").fetchone()[0] == pytest.approx(rho, rel=1e-4)
    assert con.execute("SELECT epsilon_spent FROM dp_budget('t')").fetchone()[0] <= 1.0
    bare = " ".join(con.execute("SELECT notes FROM dp_plan('t', columns := ['c'], epsilon := 1)").fetchone()[0])
    assert "fine" not in bare


def test_a_declaration_shows_that_bins_are_automatic(con):
    text = str(con.execute("FROM dp_domain('t')").fetchall())
    assert "100000" in text


def exported(con: duckdb.DuckDBPyConnection, folder: Path) -> tuple[str, Path]:
    con.execute(f"FROM dp_synthesize('t', epsilon := 4, {SMALL}, release := 'r')").fetchall()
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    con.execute(f"FROM dp_export('{name}', '{folder / 'r.parquet'}')")
    return name, folder / "r.parquet"


def test_a_release_opens_elsewhere(con, tmp_path):
    name, path = exported(con, tmp_path)
    rows = con.execute(f"FROM dp_sample('{name}', rows := 60, seed := 4)").fetchall()
    other = duckdb.connect()
    dpsql.load(other, store=tmp_path / "elsewhere")
    other.execute(f"FROM dp_import('{path}')")
    assert other.execute(f"FROM dp_sample('{name}', rows := 60, seed := 4)").fetchall() == rows
    page = Path(other.execute(f"SELECT path FROM dp_report('{name}', path := '{tmp_path / 'r.html'}')").fetchone()[0]).read_text(encoding="utf-8")
    assert ">x<" in page
    assert "nan" not in page.lower().replace("nan ", "").split("<svg", 1)[1].split("</svg>")[0]
    other.close()


def edited(manifest: dict[str, Any], what: str) -> None:
    fine = manifest["fine"]
    cut = next(i for i, edges in enumerate(fine["edges"]) if edges is not None)
    if what == "a count":
        fine["counts"][cut][0] += 1
    elif what == "a count too few":
        fine["counts"][cut].pop()
    elif what == "a count too many":
        fine["counts"][cut].append(0)
    elif what == "a count that opens a cell":
        fine["counts"][cut][1] = 10**6
    elif what == "no number":
        fine["counts"][cut][0] = 1.5
    elif what == "a huge number":
        fine["counts"][cut][0] = 2**63
    elif what == "an edge":
        fine["edges"][cut][1] += 0.25
    elif what == "an edge less":
        del fine["edges"][cut][1]
    elif what == "other bounds":
        fine["edges"][cut][-1] = 200_000.0
    elif what == "edges that fall":
        fine["edges"][cut][1] = fine["edges"][cut][2]
    elif what == "a text":
        fine["edges"][cut][1] = "0); DROP TABLE t; --"
    elif what == "too many edges":
        fine["edges"][cut] = [*(k / 10 for k in range(40)), 100_000.0]
    elif what == "edges of declared bins":
        fine["edges"][1 - cut] = [0.0, 50.0, 99.0]
    elif what == "none of them":
        del manifest["fine"]
    elif what == "no cut":
        fine["edges"][cut] = None
    elif what == "the plan without them":
        manifest["plan"].pop("fine")
    elif what == "the plan with less noise":
        manifest["plan"]["fine"][cut][2][0] = "1/1000"


EDITS = [
    "a count", "a count too few", "a count too many", "a count that opens a cell", "no number", "a huge number", "an edge", "an edge less", "other bounds",
    "edges that fall", "a text", "too many edges", "edges of declared bins", "none of them", "no cut", "the plan without them",
]


def rewritten(con: duckdb.DuckDBPyConnection, path: Path, target: Path, what: str) -> None:
    query = f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'"
    text = con.execute(query).fetchone()[0]
    manifest = json.loads(text)
    edited(manifest, what)
    evil = json.dumps(manifest)
    assert json.loads(evil) != json.loads(text), what
    quoted = evil.replace("'", "''")
    con.execute(f"COPY (FROM '{path}') TO '{target}' (FORMAT parquet, KV_METADATA {{dpsql: '{quoted}'}})")


def test_edited_files_are_refused(con, tmp_path):
    name, path = exported(con, tmp_path)
    for place, what in enumerate(EDITS):
        other = duckdb.connect()
        dpsql.load(other, store=tmp_path / f"elsewhere{place}", progress=False)
        rewritten(con, path, tmp_path / f"e{place}.parquet", what)
        with pytest.raises(duckdb.Error, match="damaged or was edited"):
            other.execute(f"FROM dp_import('{tmp_path / f'e{place}.parquet'}')").fetchall()
            other.execute(f"FROM dp_sample('{name}', rows := 5)").fetchall()
        other.close()


@pytest.mark.parametrize("what", ["a count", "an edge", "the plan with less noise"])
def test_an_edited_store_is_refused(con, tmp_path, what):
    exported(con, tmp_path)
    con.close()
    (path,) = (tmp_path / "t.duckdb.dpsql").glob("*.parquet")
    plain = duckdb.connect()
    rewritten(plain, path, tmp_path / "e.parquet", what)
    plain.close()
    (tmp_path / "e.parquet").replace(path)
    models._models.clear()  # as in another process
    again = opened(tmp_path / "t.duckdb")
    for call in ("dp_sample('r', rows := 7, seed := 9)", f"dp_synthesize('t', epsilon := 4, {SMALL}, release := 'r', rows := 8, seed := 9)"):
        with pytest.raises(duckdb.Error, match="edited"):
            again.execute(f"FROM {call}").fetchall()
    assert charges(again) == 1
    again.close()


def test_a_release_without_the_option_is_found_by_the_same_call(con):
    """What an older dpsql bought has no option that came later: not asked for, it is the default; asked for otherwise, it is another call."""
    call = "FROM dp_synthesize('t', columns := ['age', 'c'], epsilon := 1, release := 'old', options := {'classes': 4, 'steps': 10"
    con.execute(f"{call}}})").fetchall()
    from dpsql.books.ledger import Ledger

    real = Ledger.purchase

    def older(self: Ledger, name: str) -> Any:
        found = real(self, name)
        if found is not None:
            found.parameters["options"].pop("fine", None)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "purchase", older)
        assert con.execute(f"{call}}})").fetchall()
        assert "would fail" not in str(con.execute("SELECT notes FROM dp_plan('t', columns := ['age', 'c'], epsilon := 1, release := 'old', options := {'classes': 4, 'steps': 10})").fetchall())
        assert con.execute(f"{call}, 'fine': 'auto'}})").fetchall()
        with pytest.raises(duckdb.Error, match="was bought with options"):
            con.execute(f"{call}, 'fine': 0.1}})")
    assert charges(con) == 1


def test_a_column_declared_anew_does_not_change_what_was_bought(con):
    call = "FROM dp_marginals('t', columns := ['x'], epsilon := 3)"
    rows = con.execute(call).fetchall()
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 10, bins := 2)")
    assert con.execute(call).fetchall() == rows
    new = con.execute("FROM dp_marginals('t', columns := ['x'], epsilon := 3, release := 'anew')").fetchall()
    assert len(new) == 3


def test_moments_of_a_quarter_under_absurd_bounds_and_a_constant():
    """All moments were one, 2020-01-01 00:00:00; the constant had values beside it, from noise of cells that hold nobody."""
    select = "SELECT TIMESTAMP '2020-01-01' + to_seconds(i * 393) AS x, 7 AS y FROM range(20000) r(i)"
    with protected(select, "'x', lower := '0001-01-01', upper := '9999-12-31', nullable := false") as con:
        con.execute("CALL dp_declare('t', 'y', lower := 0, upper := 1000, nullable := false)")
        values, first, middle, last, constant = con.execute(
            "SELECT count(DISTINCT x), quantile_cont(x, 0.02), median(x), quantile_cont(x, 0.98), count(DISTINCT y) FROM dp_synthesize('t', epsilon := 2.0)"
        ).fetchone()
    assert values > 10_000
    assert str(first) >= "2019-12-01"
    assert "2020-02-01" < str(middle) < "2020-03-01"
    assert str(last) < "2020-05-01"
    assert constant <= 2
