"""The second round of a release: what it may depend on, and what it costs."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import duckdb
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from prepared import beside, copied

import dpsql
from dpsql.accounting.gaussian import effective_variance
from dpsql.domains.attributes import Attribute, Domain
from dpsql.measure import noising
from dpsql.noise import discrete
from dpsql.release.contents import as_statistics
from dpsql.release.plan import Plan
from dpsql.tables import coarse

EDGES = tuple(map(float, range(13)))
DOMAIN = Domain((Attribute("a", "DOUBLE", "numeric", edges=EDGES, outside="other"), Attribute("b", "DOUBLE", "numeric", edges=EDGES)))
PLAN = Plan(DOMAIN, ((0,), (1,), (0, 1)), (Fraction(3),) * 4, "gaussian", False, "latent_class", {}, coarse=((0, 1),))
CODES = st.tuples(st.integers(0, DOMAIN.sizes[0] - 1), st.integers(0, DOMAIN.sizes[1] - 1))


def tables_of(rows):
    pair = np.zeros(DOMAIN.sizes, np.int64)
    for row in rows:
        pair[row] += 1
    return {(0,): pair.sum(1), (1,): pair.sum(0), (0, 1): pair}


@given(rows=st.lists(CODES, max_size=30), extra=CODES, noisy=st.lists(st.integers(-50, 50), min_size=14, max_size=14))
def test_a_row_is_in_one_cell_of_a_coarse_table_whatever_was_released(rows, extra, noisy):
    released = {(0,): np.asarray(noisy, np.int64), (1,): np.asarray(noisy[:13], np.int64)}
    groups, shape = coarse.groups(DOMAIN, released, [0, 1]), coarse.shape(DOMAIN, (0, 1))
    one, other = (coarse.coarsened(tables_of(r)[0, 1], (0, 1), groups, shape) for r in (rows, [*rows, extra]))
    change = (other - one).ravel()
    assert change.min() >= 0
    assert change.sum() == 1


@given(rows=st.lists(CODES, min_size=1, max_size=30))
def test_with_noise_that_ignores_the_counts_both_rounds_ignore_them(rows):
    kept = discrete.add_noise
    discrete.add_noise = lambda counts, mechanism, scale: np.arange(counts.size, dtype=np.int64) % 5
    try:
        flats = [noising.released(PLAN, tables_of(held)) for held in (rows, rows[1:])]
    finally:
        discrete.add_noise = kept
    assert (flats[0] == flats[1]).all()
    groups = [as_statistics(PLAN, flat, None).coarse.groups for flat in flats]
    assert all((groups[0][i] == groups[1][i]).all() for i in (0, 1))


def test_the_blinded_comparison_can_fail(monkeypatch):
    """With noise in the first round only, the second one must show the row."""
    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts if counts.size == 16 else counts * 0 + 1)
    rows = [(0, 0), (5, 5)]
    assert (noising.released(PLAN, tables_of(rows)) != noising.released(PLAN, tables_of(rows[1:]))).any()


def test_every_coarse_cell_has_its_noise(monkeypatch):
    """Also the cells of groups without a code, which would otherwise show nothing but zeros."""
    plan = Plan(DOMAIN, PLAN.cliques, (Fraction(3), Fraction(3), Fraction(3), Fraction(40)), "gaussian", False, None, {}, coarse=((0, 1),))
    drawn = np.stack([noising.released(plan, tables_of([]))[-16:] for _ in range(400)])
    assert drawn.std(0) == pytest.approx(np.full(16, 40.0), rel=0.25)
    assert np.abs(drawn.mean(0)).max() < 5 * 40 / 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "t.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t AS SELECT (i * 7919 % 1000)::DOUBLE AS a, (i * 104729 % 977)::INTEGER AS b, i % 3 = 0 AS c FROM range(800) r(i)")
        dpsql.load(con)
        con.execute("CALL dp_protect('t', epsilon := 20, delta := 1e-9)")
        con.execute("CALL dp_declare('t', 'a', lower := 0, upper := 1000, bins := 20)")
        con.execute("CALL dp_declare('t', 'b', lower := 0, upper := 1000, bins := 16, nullable := false)")
        con.execute("CALL dp_declare('t', 'c', categories := [true, false], nullable := false)")
    return path


@pytest.fixture
def con(made: Path, tmp_path: Path):
    with copied(made, tmp_path) as connection:
        yield connection


def plan_of(con):
    text = beside(con).execute("SELECT plan FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry DESC LIMIT 1").fetchone()[0]
    return Plan.from_json(json.loads(text))


def test_the_plan_counts_and_charges_coarse_tables(con):
    said = con.execute("SELECT tables, cells, rho, affordable FROM dp_plan('t', epsilon := 1)").fetchone()
    assert said[0] == 3 + 3 + 1
    assert said[1] == (21 + 16 + 2) + (21 * 16 + 21 * 2 + 16 * 2) + 4 * 3
    con.execute("FROM dp_synthesize('t', epsilon := 1, options := {'classes': 8, 'steps': 20})").fetchall()
    plan = plan_of(con)
    assert plan.coarse == ((0, 1),)
    assert len(plan.scales) == 7
    tables, levels = plan.scales, [scale for column in plan.fine for scale in column.scales]
    spent = [1 / (2 * effective_variance(scale**2)) for scale in (*levels, *tables)]
    assert float(sum(spent)) <= said[2] <= float(sum(spent)) * 1.001
    assert float(spent[-1]) < 0.1 * float(sum(spent))
    assert con.execute("SELECT rho FROM dp_ledger() WHERE rho IS NOT NULL").fetchone()[0] == pytest.approx(said[2], rel=1e-4)


def test_under_laplace_noise_there_is_no_second_round(con):
    con.execute("FROM dp_synthesize('t', epsilon := 2, options := {'mechanism': 'laplace', 'classes': 8, 'steps': 20})").fetchall()
    plan = plan_of(con)
    assert plan.coarse == ()
    assert len(plan.scales) == len(plan.cliques) == 6


def test_marginals_have_no_second_round(con):
    con.execute("FROM dp_marginals('t', k := 2, epsilon := 1)").fetchall()
    assert plan_of(con).coarse == ()


def test_a_release_with_coarse_tables_opens_elsewhere(con, tmp_path):
    con.execute("FROM dp_synthesize('t', epsilon := 1, options := {'classes': 8, 'steps': 20})").fetchall()
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    con.execute(f"FROM dp_export('{name}', '{tmp_path / 'r.parquet'}')")
    rows = con.execute(f"FROM dp_sample('{name}', rows := 60, seed := 4)").fetchall()
    other = duckdb.connect()
    dpsql.load(other, store=tmp_path / "elsewhere")
    other.execute(f"FROM dp_import('{tmp_path / 'r.parquet'}')")
    assert other.execute(f"FROM dp_sample('{name}', rows := 60, seed := 4)").fetchall() == rows
    other.close()


@pytest.mark.parametrize("pairs", ["[[0, 1], [0, 9]]", "[[0]]", "[[1, 0]]", "7"])
def test_an_edited_plan_is_refused(con, tmp_path, pairs):
    con.execute("FROM dp_synthesize('t', epsilon := 1, options := {'classes': 8, 'steps': 20})").fetchall()
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    con.execute(f"FROM dp_export('{name}', '{tmp_path / 'r.parquet'}')")
    query = f"SELECT decode(value) FROM parquet_kv_metadata('{tmp_path / 'r.parquet'}') WHERE decode(key) = 'dpsql'"
    manifest = con.execute(query).fetchone()[0]
    evil = manifest.replace('"coarse": [[0, 1]]', f'"coarse": {pairs}')
    assert evil != manifest
    quoted = evil.replace("'", "''")
    con.execute(f"COPY (FROM '{tmp_path / 'r.parquet'}') TO '{tmp_path / 'e.parquet'}' (FORMAT parquet, KV_METADATA {{dpsql: '{quoted}'}})")
    with pytest.raises(duckdb.Error, match="damaged or was edited"):
        con.execute(f"FROM dp_import('{tmp_path / 'e.parquet'}')")
