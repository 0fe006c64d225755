"""The error tables against the reference scorer (where its folder is) and against a brute force in numpy."""

import importlib.util
import itertools
import json

import duckdb
import numpy as np
import pytest

from dpsql.custodian.evaluate import COLUMNS, best, chosen_cliques, evaluate
from dpsql.domains.attributes import Domain
from dpsql.domains.declare import declare
from dpsql.errors import ArgumentError, DomainError

SIZES = (3, 4, 2, 5)
DOMAIN = Domain(tuple(declare(f"x{i}", "INTEGER", nullable=False, categories=list(range(s))) for i, s in enumerate(SIZES)))


@pytest.fixture
def connection():
    with duckdb.connect() as found:
        yield found


def relation(connection, name, codes):
    connection.register("given", {f"x{i}": codes[:, i].astype(np.int32) for i in range(codes.shape[1])})
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
    connection.unregister("given")
    return f"SELECT * FROM {name}"


def draw(rows, seed):
    rng = np.random.default_rng(seed)
    return np.stack([np.minimum(rng.geometric(0.5, rows) - 1, s - 1) for s in SIZES], 1)


def brute_force(original, synthetic, k):
    errors, distances, n, scale = [], [], len(original), len(original) / len(synthetic)
    for clique in itertools.combinations(range(len(SIZES)), k):
        shape = [SIZES[i] for i in clique]
        tables = []
        for codes in (original, synthetic):
            flat = np.ravel_multi_index(tuple(codes[:, i] for i in clique), shape)
            tables.append(np.bincount(flat, minlength=int(np.prod(shape))))
        error = np.abs(tables[0] - scale * tables[1])
        errors.append(error)
        distances.append(error.sum() / 2 / n)
    cells = np.sort(np.concatenate(errors))
    figures = [len(distances), len(cells), np.mean(distances)]
    for share in (0.95, 0.99, 1.0):
        some = cells[: max(1, round(share * len(cells)))]
        figures += [some.mean(), some[-1]]
    return figures


@pytest.mark.parametrize(("n", "m"), [(1, 1), (50, 7), (7, 50), (400, 400), (1000, 333)])
def test_figures_are_those_of_a_brute_force(connection, n, m):
    original, synthetic = draw(n, 1), draw(m, 2)
    rows = evaluate(connection, relation(connection, "a", original), relation(connection, "b", synthetic), DOMAIN)
    assert [row[0] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row[1:10] == pytest.approx(brute_force(original, synthetic, row[0]), abs=1e-9)
        assert len(row) == len(COLUMNS)
        assert row[10:12] == (len(original), len(synthetic)) and row[12] == pytest.approx(1 - len(synthetic) / len(original))
        assert row[13] is False
        assert "not private" in row[14]


def test_the_same_table_has_no_error(connection):
    source = relation(connection, "a", draw(100, 1))
    for row in evaluate(connection, source, source, DOMAIN):
        assert row[3:10] == (0.0,) * 7


def test_empty_tables_have_defined_figures(connection):
    some, none = relation(connection, "a", draw(100, 1)), relation(connection, "b", draw(0, 1))
    for row in evaluate(connection, some, none, DOMAIN):
        assert row[3] == 1.0
        assert row[8] * row[2] == pytest.approx(100 * row[1])  # every row of the original is missing in every table
    for row in evaluate(connection, none, some, DOMAIN):
        assert row[3:10] == (1.0, *(0.0,) * 6)
    for row in evaluate(connection, none, none, DOMAIN):
        assert row[3:10] == (0.0,) * 7


def test_fewer_columns_than_k_give_no_row(connection):
    source = relation(connection, "a", draw(10, 1))
    assert [row[0] for row in evaluate(connection, source, source, Domain(DOMAIN.attributes[:1]))] == [1]
    assert [row[0] for row in evaluate(connection, source, source, DOMAIN, max_k=2)] == [1, 2]


def test_triples_are_sampled_as_the_scorer_does():
    cliques = list(itertools.combinations(range(9), 3))
    picked = np.random.default_rng(11).choice(len(cliques), 20, replace=False)
    assert chosen_cliques(9, 3, 20, 11) == [cliques[i] for i in picked]
    assert chosen_cliques(9, 3, 1000, 11) == chosen_cliques(9, 3, None, 11) == cliques
    assert len(chosen_cliques(9, 2, 5, 11)) == 36


def test_the_best_share_counts_cells_that_are_zero_in_both():
    assert best(np.array([]), np.array([], dtype=np.int64), 10, 1.0) == (0.0, 0.0)
    assert best(np.array([5.0]), np.array([1]), 100, 0.99) == (0.0, 0.0)
    assert best(np.array([5.0]), np.array([1]), 100, 1.0) == (0.05, 5.0)


def test_related_types_compare_and_others_are_named(connection):
    source = relation(connection, "a", draw(100, 1))
    wide = "SELECT x0::BIGINT AS x0, x1::UTINYINT AS x1, x2, x3::HUGEINT AS X3 FROM a"
    assert evaluate(connection, source, wide, DOMAIN)[2][9] == 0.0
    with pytest.raises(DomainError, match="synthetic: column 'x1' is VARCHAR, the original is INTEGER; CAST it"):
        evaluate(connection, source, "SELECT x0, x1::VARCHAR AS x1, x2, x3 FROM a", DOMAIN)
    with pytest.raises(DomainError, match=r"synthetic: column 'x1' is missing; it has \['x0'\] and needs"):
        evaluate(connection, source, "SELECT x0 FROM a", DOMAIN)
    number = Domain((declare("x0", "INTEGER", nullable=False, lower=0, upper=1000, bins=5),))
    assert evaluate(connection, "SELECT 3 AS x0", "SELECT 3::TINYINT AS x0", number)[0][3] == 0.0
    assert evaluate(connection, "SELECT 300 AS x0", "SELECT 300.5::DOUBLE AS x0", number)[0][3] == 0.0
    words = Domain((declare("x0", "ENUM('a', 'b')", nullable=False),))
    assert evaluate(connection, "SELECT 'b'::ENUM('a', 'b') AS x0", "SELECT 'b' AS x0", words)[0][3] == 0.0


def test_nothing_is_left_behind(connection):
    source = relation(connection, "a", draw(100, 1))
    evaluate(connection, source, source, DOMAIN)
    with pytest.raises(DomainError):
        evaluate(connection, source, "SELECT 1 AS x0", DOMAIN)
    assert connection.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"max_k": 4}, "max_k = 4"), ({"max_k": 0}, "max_k = 0"), ({"queries": 0}, "queries = 0"), ({"seed": -1}, "seed = -1")],
)
def test_wrong_arguments(connection, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        evaluate(connection, "SELECT 1 AS x0", "SELECT 1 AS x0", DOMAIN, **arguments)


def test_figures_are_those_of_the_reference_scorer(connection, shared):
    specification = importlib.util.spec_from_file_location("score", shared / "score.py")
    scorer = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(scorer)
    declared = json.loads((shared / "data" / "adult_domain14.json").read_text())
    connection.execute(f"CREATE TABLE adult AS FROM read_csv('{shared / 'data' / 'adult.csv'}')")
    rng = np.random.default_rng(0)
    connection.register("picked", {"row": rng.integers(0, 32561, 20000)})
    connection.execute(
        'CREATE TABLE synthetic AS SELECT adult.* REPLACE (age + 3 AS age, "hours-per-week" * 2 AS "hours-per-week") '
        "FROM picked JOIN adult ON adult.rowid = picked.row"
    )
    types = {row[0]: row[1] for row in connection.execute("DESCRIBE adult").fetchall()}
    domain = Domain(tuple(declare(name, types[name], nullable=False, **what) for name, what in declared.items()))
    codes = [scorer.encode(connection.execute(f"FROM {name}").df(), declared) for name in ("adult", "synthetic")]
    wanted = scorer.score(*codes, scorer.sizes(declared), 40, 5)
    found = evaluate(connection, "SELECT * FROM adult", "SELECT * FROM synthetic", domain, queries=40, seed=5)
    for row in found:
        entry = wanted[f"{row[0]}-way"]
        figures = [entry["tvd"], *(entry[share][figure] for share in ("95", "99", "100") for figure in ("average", "max"))]
        assert row[3:10] == pytest.approx(figures, abs=1e-9)
    assert found[2][1] == 40
