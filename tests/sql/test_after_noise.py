"""Nothing fails after noise was drawn: limits that noise can reach are cut off, and odd statistics have a model, rows and a report."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import duckdb
import numpy as np
import pytest
from made_once import in_memory
from pairwise import WHOLE

import dpsql
from dpsql.measure import candidates
from dpsql.mechanisms import kendall, moments, stable_selection, weak_domain
from dpsql.noise import discrete

pytestmark = pytest.mark.any_duckdb

FAR = 2**45
"""Beyond what noise of the largest scale reaches."""

PATTERNS: dict[str, Callable[[int], np.ndarray]] = {
    "all low": lambda size: np.full(size, -FAR),
    "one high": lambda size: FAR * (np.arange(size) == 0),
    "alternating": lambda size: np.where(np.arange(size) % 2, FAR, -FAR),
}
CALLS = [
    *(
        f"FROM dp_synthesize('t', method := '{method}', columns := {columns}, epsilon := 1, rows := 7{options and ', options := ' + options})"
        for method, columns, options in (
            ("latent_class", ["b", "x", "y", "c"], ""),
            ("gaussian_copula", ["b", "x", "y", "c"], ""),
            ("gaussian_copula", ["b", "x", "c"], "{'mechanism': 'laplace', 'consistency': 'none', 'shrinkage': 'none'}"),
            ("aggregate_seeded", ["b", "x", "c", "d"], "{'reporting_length': 3, 'empty': true}"),
            ("aggregate_seeded", ["b", "x", "c"], "{'reporting_length': 2, 'sampler': 'published'}"),
            ("aggregate_seeded", ["c", "d"], "{'reporting_length': 2, 'empty': true, 'sampler': 'published'}"),
            ("perturbed_histogram", ["b", "c"], "{'sets': 2}"),
            ("modips", ["b"], "{'threshold': 'truncate'}"),
            ("modips", ["x"], "{'budget': 'joint', 'sets': 2}"),
            ("modips", ["b", "x", "y", "c"], "{'sets': 2}"),
            ("dpcopula_kendall", ["b", "x", "y", "c"], ""),
            ("dpcopula_kendall", ["x", "c"], "{'correlation': 'sine'}"),
        )
    ),
    "FROM dp_aggregates('t', reporting_length := 2, epsilon := 1, columns := ['b', 'x', 'c'])",
    "FROM dp_marginals('t', k := 2, epsilon := 1)",
    "FROM dp_histogram('t', 'c', epsilon := 1, domain := 'w', domain_size := 100, rho := 0.9)",
    "FROM dp_synthesize('t', method := 'stable_selection', columns := ['d'], epsilon := 1, rows := 0)",
]


def world(rows: int) -> duckdb.DuckDBPyConnection:
    con = in_memory(protected, rows)
    dpsql.load(con, progress=False)
    return con


def protected(con: duckdb.DuckDBPyConnection, rows: int) -> None:
    dpsql.load(con, progress=False)
    con.execute(
        "CREATE TABLE t AS SELECT ['a', 'b'][1 + i % 2] AS b, (i * 7) % 10 AS x, (i % 13) * 1.5 AS y, "
        f"CASE WHEN i % 3 > 0 THEN 'u' END AS c, CASE WHEN i % 5 > 0 THEN 'k' END AS d FROM range({rows}) r(i)"
    )
    con.execute("CREATE TABLE w AS SELECT 'w' || i AS word FROM range(10) r(i)")
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('t', 'b', categories := ['a', 'b'], nullable := false)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 10, bins := 5, nullable := false)")
    con.execute("CALL dp_declare('t', 'y', lower := 0, upper := 20, bins := 4, nullable := false)")
    con.execute("CALL dp_declare('t', 'c', categories := ['u', 'v', 'w'])")
    con.execute("CALL dp_declare('t', 'd', categories := ['k'])")


@pytest.fixture(params=PATTERNS)
def far_noise(request, monkeypatch) -> str:
    def draw(scale: object, size: int | tuple[int, ...]) -> np.ndarray:
        shape = size if isinstance(size, tuple) else (size,)
        return PATTERNS[request.param](int(np.prod(shape))).astype(np.int64).reshape(shape)

    for module in (discrete, kendall, moments, weak_domain, stable_selection):
        monkeypatch.setattr(module, "discrete_laplace", draw)
    monkeypatch.setattr(discrete, "discrete_gaussian", draw)
    return str(request.param)


@pytest.mark.parametrize("rows", [0, 40])
def test_no_release_fails_whatever_the_noise(far_noise, rows) -> None:
    """Every call under every pattern, and on both tables: they take turns."""
    con = world(rows)
    made = CALLS if WHOLE else CALLS[(list(PATTERNS).index(far_noise) + (rows > 0)) % 2 :: 2]
    for number, call in enumerate(made):
        con.execute(f"{call[:-1]}, release := 'number {number}')").fetchall()
    assert con.execute("SELECT count(*) FROM dp_releases() WHERE status = 'stored'").fetchone() == (len(made),)
    con.close()


def candidates_cut(con: duckdb.DuckDBPyConnection, release: str) -> tuple[int, list[str]]:
    call = f"FROM dp_aggregates('t', reporting_length := 3, columns := ['b', 'x', 'y', 'c'], epsilon := 50, release := '{release}')"
    found = con.execute(call).fetchall()
    notes = con.execute(f"SELECT notes FROM dp_releases() WHERE release LIKE '%{release}%'").fetchone()
    assert con.execute(call).fetchall() == found  # bought once
    return len(found), notes[0]


def test_too_many_candidates_are_cut_and_said(monkeypatch) -> None:
    con = world(4000)
    everything, notes = candidates_cut(con, "whole")
    assert not any("largest counts" in note for note in notes)
    monkeypatch.setattr(candidates, "most_candidates", lambda k: 20)
    fewer, notes = candidates_cut(con, "cut")
    assert 0 < fewer < everything
    assert any(note.startswith("k = 2: of the ") and "no more than 20 are counted" in note for note in notes)
    monkeypatch.setattr(candidates, "most_candidates", lambda k: 0)
    none, notes = candidates_cut(con, "none")
    assert 0 < none < fewer  # single values
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (3,)
    rows = con.execute("FROM dp_sample('cut', rows := 50)").fetchall()
    assert len(rows) == 50
    con.close()


@pytest.mark.parametrize("options", [{}, {"empty": True}, {"accounting": "published"}, {"accounting": "published", "empty": True}])
def test_noise_beyond_what_is_drawn_is_refused_before_the_charge(options) -> None:
    con = world(100)
    call = "FROM dp_aggregates('t', reporting_length := 3, columns := ['b', 'x', 'y', 'c'], epsilon := {}, release := '{}'{})"
    given = ", options := " + json.dumps(options).replace('"', "'") if options else ""
    outcomes = []
    ends = [(1e-9, delta) for delta in (5e-7, 6e-8, 3e-8, 1e-8)], [(e, 1e-6) for e in (1e-3, 3e-6, 3e-7)]
    for place, (epsilon, delta) in enumerate(itertools.chain(*ends)):  # where the samplers' range ends
        con.execute(f"CALL dp_protect('t', delta := {delta})")
        try:
            con.execute(call.format(epsilon, place, given)).fetchall()
            outcomes.append("released")
        except duckdb.Error as error:
            assert "noise scale" in str(error) or "too small" in str(error)
            outcomes.append("refused")
    charged, stored = (con.execute(f"SELECT count(*) FROM dp_ledger() WHERE action = '{a}'").fetchone()[0] for a in ("charge", "store"))
    assert charged == stored == outcomes.count("released")
    assert set(outcomes) == {"released", "refused"}
    con.close()


@pytest.fixture(scope="module")
def tables_of_many_sizes() -> Iterator[duckdb.DuckDBPyConnection]:
    """It failed, or another law was drawn, from a certain number of rows on: 1000, 1384, 1107, 9224."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    for rows in (999, 1000, 1107, 1384, 9224):
        con.execute(f"CREATE TABLE t{rows} AS SELECT 'x' AS a, CASE WHEN i >= 0 THEN 'y' END AS b FROM range({rows}) r(i)")
        con.execute(f"CALL dp_protect('t{rows}', epsilon := 10, delta := 1e-6)")
        con.execute(f"CALL dp_declare('t{rows}', 'a', categories := ['x'])")
        con.execute(f"CALL dp_declare('t{rows}', 'b', categories := ['y'])")
    yield con
    con.close()


@pytest.mark.parametrize("percentage", ["92.23372036854781", "66.66666666666667", "33.333333333333336", "1e-13"])
def test_a_percentile_that_no_machine_integer_holds_is_drawn_whatever_the_number_of_rows(tables_of_many_sizes, percentage) -> None:
    for rows in (999, 1000, 1107, 1384, 9224):
        options = f"{{'empty': true, 'percentile_percentage': {percentage}}}"
        call = f"FROM dp_aggregates('t{rows}', reporting_length := 1, epsilon := 0.01, options := {options}, release := '{percentage}')"
        tables_of_many_sizes.execute(call).fetchall()
