"""Plans, noise and releases of very many tables: the same numbers as one table after the other, and nothing that grows faster."""

import itertools
import json
import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from dpsql.accounting import expected_absolute_error
from dpsql.answers import forecast
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ReleaseError
from dpsql.measure import noising
from dpsql.methods.gaussian_copula.method import GaussianCopula
from dpsql.methods.latent_class import LatentClass
from dpsql.noise import discrete
from dpsql.release import contents, store
from dpsql.release.store import Plan, Release
from dpsql.tables import coarse
from dpsql.tables.flat import AllCliques, FlatTables
from dpsql.tables.statistics import Statistics


def domain(sizes: list[int]) -> Domain:
    return Domain(
        tuple(Attribute(f"a{i}", "VARCHAR", "categorical", tuple(map(str, range(n))), (), False) for i, n in enumerate(sizes))
    )


MIXED = domain([2, 3, 1, 4])
CLIQUES = ((0,), (1, 3), (0, 1, 3), (2,), (0, 3))
SCALES = (Fraction(2), Fraction(2), Fraction(7, 2), Fraction(2), Fraction(5))


def planned(cliques=CLIQUES, scales=SCALES, given=MIXED) -> Plan:
    return Plan(given, cliques, scales, "gaussian", False, None, {})


def test_lengths_and_scales() -> None:
    plan = planned()
    assert plan.lengths.tolist() == [2, 12, 24, 1, 8]
    assert plan.cells == 47
    assert plan.scale_runs == [(2, 2), (Fraction(7, 2), 1), (2, 1), (5, 1)]
    assert plan.scale_numbers.tolist() == [2.0, 2.0, 3.5, 2.0, 5.0]
    assert forecast.usual_scale(plan) == 2.0
    assert forecast.usual_scale(planned(CLIQUES[:2], (Fraction(2), Fraction(3)))) == 3.0
    assert forecast.usual_scale(planned((), ())) is None


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_expected_error_is_that_of_the_smallest_tables(k: int) -> None:
    wide = [(clique, scale) for clique, scale in zip(CLIQUES, SCALES, strict=True) if len(clique) >= k]
    found = forecast.expected_error(planned(), k)
    if not wide:
        assert found is None
        return
    order, errors = min(len(clique) for clique, _ in wide), []
    for clique, scale in wide:
        if len(clique) == order:
            sizes = sorted(MIXED.sizes[i] for i in clique)
            errors.append(expected_absolute_error("gaussian", scale) * math.sqrt(math.prod(sizes[: order - k])))
    assert found == pytest.approx(sum(errors) / len(errors), rel=1e-14)


@pytest.mark.parametrize(
    ("method", "options"),
    [(GaussianCopula(), {}), (GaussianCopula(), {"one_way_weight": 0}), (LatentClass(), {}), (LatentClass(), {"one_way_weight": 0})],
)
@pytest.mark.parametrize("attributes", [1, 2, 5])
def test_plans_of_methods(method, options, attributes: int) -> None:
    plan = method.plan(domain([2, 3, 1, 4, 2][:attributes]), options)
    singles = [(i,) for i in range(attributes)] if attributes == 1 or not options else []
    assert tuple(plan.cliques) == (*singles, *itertools.combinations(range(attributes), 2))
    assert len(plan.weights) == len(plan.cliques)


@pytest.mark.parametrize("cliques", [AllCliques(4, [1, 2]), AllCliques(4, [2]), CLIQUES, (*AllCliques(4, [1, 2]),), ((0, 1), (0,))])
def test_a_plan_is_read_as_it_was_written(cliques) -> None:
    plan = planned(cliques, tuple(itertools.islice(itertools.cycle(SCALES), len(cliques))))
    text = json.dumps(plan.to_json())
    again = Plan.from_json(json.loads(text))
    assert again == plan
    assert json.dumps(again.to_json()) == text
    assert ("all_of_order" in plan.to_json()["tables"]) is (cliques in (AllCliques(4, [1, 2]), AllCliques(4, [2])))


def test_all_of_other_attributes_is_not_all() -> None:
    assert planned(AllCliques(3, [2]), SCALES[:3]).to_json()["tables"] == {"cliques": [[0, 1], [0, 2], [1, 2]]}


@pytest.mark.parametrize(
    "tables",
    [
        {"all_of_order": [20]}, {"all_of_order": ["2"]}, {"all_of_order": [-1]}, {"all_of_order": 2},
        {"cliques": [[0, 40]]}, {"cliques": [[-1]]}, {"cliques": [["a"]]}, {},
    ],
)
def test_hostile_sets_of_tables(tables, tmp_path) -> None:
    item = json.loads(json.dumps(planned(AllCliques(40, [1]), (Fraction(2),) * 40, domain([2] * 40)).to_json()))
    manifest = {"release": "x", "source": "t", "operation": "measure", "query": "t", "sha256": "", "charge": {"hash": "0" * 64}, "total": None}
    found = Release(tmp_path / "x", {**manifest, "plan": {**item, "tables": tables}})
    with pytest.raises(ReleaseError, match="damaged or was edited"):
        store.check_plan(found)
    store.check_plan(Release(tmp_path / "x", {**manifest, "plan": item}))


def test_every_table_gets_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def recorded(counts, mechanism, scale):
        drawn.append((counts.size, scale))
        return counts + round(1000 * scale)

    monkeypatch.setattr(discrete, "add_noise", recorded)
    flat = np.arange(47)
    found = noising.add_noise(flat, planned().table_lengths, SCALES, "gaussian")
    assert (found - flat).tolist() == [2000] * 14 + [3500] * 24 + [2000] + [5000] * 8
    assert drawn == [(15, 2), (24, Fraction(7, 2)), (8, 5)]
    assert noising.add_noise(flat[:0], [], [], "gaussian").size == 0


@pytest.mark.parametrize(("lengths", "scales"), [([2, 3], SCALES[:1]), ([2], SCALES[:2]), ([2, 2], SCALES[:2]), ([4, 3], SCALES[:2])])
def test_noise_for_other_tables_is_refused(lengths, scales) -> None:
    with pytest.raises(ValueError, match="counts"):
        noising.add_noise(np.arange(5), lengths, scales, "gaussian")


def test_noise_of_every_cell_is_independent() -> None:
    found = noising.add_noise(np.zeros(60_000, np.int64), [20_000] * 3, (Fraction(8), Fraction(90), Fraction(8)), "gaussian")
    parts = found.reshape(3, -1)
    assert np.allclose(parts.std(1), [8, 90, 8], rtol=0.05)
    assert np.abs(np.corrcoef(parts) - np.eye(3)).max() < 0.05


@pytest.mark.parametrize("order", [list(CLIQUES), list(reversed(CLIQUES))])
def test_counts_come_in_any_order_and_form(order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
    plan, rng = planned(), np.random.default_rng(0)
    tables = {clique: rng.integers(0, 99, [MIXED.sizes[i] for i in clique]) for clique in order}
    expected = np.concatenate([tables[clique].ravel() for clique in CLIQUES])
    flat = FlatTables(MIXED.sizes, tuple(order), np.concatenate([tables[clique].ravel() for clique in order]))
    for given in (tables, flat):
        assert noising.released(plan, given).tolist() == expected.tolist()


def test_statistics_of_a_plan() -> None:
    found = contents.as_statistics(planned(), np.arange(47), 9)
    assert isinstance(found, Statistics)
    assert found.tables[0, 1, 3].tolist() == np.arange(14, 38).reshape(2, 3, 4).tolist()
    assert found.scales == dict(zip(CLIQUES, map(float, SCALES), strict=True))
    assert (found.total, found.sizes, found.coarse.tables) == (9, MIXED.sizes, {})


def test_coarse_groups_are_cut_by_the_smallest_table() -> None:
    rng = np.random.default_rng(2)
    ages = Domain(tuple(Attribute(f"a{i}", "INTEGER", "numeric", (), tuple(range(n + 1)), False) for i, n in enumerate([7, 5, 1, 5])))
    cliques = ((0, 1), (0, 2), (1, 3), (1, 2), (2, 3), (0, 3))
    tables = {clique: rng.integers(-5, 40, [ages.sizes[i] for i in clique]) for clique in cliques}
    found = coarse.groups(ages, tables, [3, 0, 1])
    assert sorted(found) == [0, 1, 3]
    for i, clique in ((0, (0, 2)), (1, (1, 2)), (3, (2, 3))):
        alone = coarse.groups(ages, {(i,): tables[clique].sum(axis=1 - clique.index(i))}, [i])
        assert found[i].tolist() == alone[i].tolist()


def test_two_hundred_thousand_tables_in_little_memory() -> None:
    many = domain([2] * 640)
    cliques = GaussianCopula().plan(many, {}).cliques
    tracemalloc.start()
    plan = Plan(many, cliques, (Fraction(500),) * len(cliques), "gaussian", False, "gaussian_copula", {})
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert forecast.expected_error(again, 2) == pytest.approx(expected_absolute_error("gaussian", 500))
    found = contents.as_statistics(again, np.zeros(again.cells, np.int64), None)
    assert found.tables.flat.size == 4 * 640 * 639 // 2 + 2 * 640
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * len(cliques)  # a tuple and an array for each table took more than 500 bytes
