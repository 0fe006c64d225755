"""Exact output distributions of the open-domain mechanisms, by running the real code over every choice that it can make."""

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpsql.mechanisms import stable_selection, weak_domain
from dpsql.mechanisms.words import Listed, Universe

MEMBERS = ("a", "b", "c")
MORE = 2  # weights t, t + 1, and "t + 2 or more": a tail in one piece, its probability exact


class Choices:
    """Replays one sequence of choices and notes the alternatives that were not taken."""

    def __init__(self, prefix: tuple[int, ...], todo: list[tuple[int, ...]]) -> None:
        self.prefix, self.todo = prefix, todo
        self.taken: tuple[int, ...] = ()
        self.probability = 1.0

    def choose(self, weighted: list[tuple[int, float]]) -> int:
        place = len(self.taken)
        if place < len(self.prefix):
            index = self.prefix[place]
        else:
            index = 0
            self.todo.extend((*self.taken, other) for other in range(1, len(weighted)))
        self.taken = (*self.taken, index)
        value, probability = weighted[index]
        self.probability *= probability
        return value


def distribution(program: Callable[[Choices], object]) -> dict[object, float]:
    """Return the probability of every result of a program that asks `Choices` for each of its random draws."""
    todo: list[tuple[int, ...]] = [()]
    found: dict[object, list[float]] = defaultdict(list)
    while todo:
        choices = Choices(todo.pop(), todo)
        found[program(choices)].append(choices.probability)
    result = {output: math.fsum(parts) for output, parts in found.items()}
    assert math.isclose(math.fsum(result.values()), 1, abs_tol=1e-12)
    return result


def laplace(q: float, low: int, high: int) -> list[tuple[int, float]]:
    """Integer Laplace noise on low ... high, low and high standing for both tails. low < 0 < high."""
    mass = (1 - q) / (1 + q)
    inner = [(x, mass * q ** abs(x)) for x in range(low + 1, high)]
    return [*inner, (low, q**-low / (1 + q)), (high, q**high / (1 + q))]


class Script:
    """The choices that the mechanisms take their draws from at the moment."""

    choices: Choices

    def draw(self, weighted: list[tuple[int, float]]) -> Callable[[object, int], np.ndarray]:
        return lambda _, n: np.array([self.choices.choose(weighted) for _ in range(n)], dtype=np.int64)


def scripted(patch: pytest.MonkeyPatch, scale: Fraction, t: int, most: int) -> Script:
    """Let weak_domain take its draws from a script. Draws at the ends stand for tails: no output tells them apart."""
    script, q = Script(), math.exp(-1 / scale)
    noise = laplace(q, min(-1, t - 1 - most), t + MORE)
    weights = [(j, (1 - q) * q**j) for j in range(MORE)] + [(MORE, q**MORE)]

    def binomial(trials: int, bounds: Callable[[int], tuple[int, int]]) -> int:
        low, high = bounds(60)
        assert high - low <= 1
        p = low / 2**60
        assert math.isclose(p, q**t / (1 + q), rel_tol=1e-12)
        return script.choices.choose([(k, math.comb(trials, k) * p**k * (1 - p) ** (trials - k)) for k in range(trials + 1)])

    patch.setattr(weak_domain, "discrete_laplace", script.draw(noise))
    patch.setattr(weak_domain, "geometric", script.draw(weights))
    patch.setattr(weak_domain, "binomial", binomial)
    patch.setattr(weak_domain, "integer_below", lambda bound: script.choices.choose([(i, 1 / bound) for i in range(bound)]))
    return script


Release = Callable[[dict[str, int], Universe, Fraction, int], list[tuple[str, int]]]


def outputs(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], size: int, scale: Fraction, t: int, release: Release = weak_domain.release
) -> dict[object, float]:
    universe = Universe([], Listed(MEMBERS[:size]))
    with monkeypatch.context() as patch:
        script = scripted(patch, scale, t, max(counts.values(), default=0))

        def program(choices: Choices) -> object:
            script.choices = choices
            return tuple((text, min(weight, t + MORE)) for text, weight in release(counts, universe, scale, t))

        return distribution(program)


def table(*counts: int) -> dict[str, int]:
    """Active values only: a value that does not occur is not in the table."""
    return {member: n for member, n in zip(MEMBERS, counts, strict=False) if n}


def loss(first: dict[object, float], second: dict[object, float]) -> float:
    """Return the largest absolute log ratio; infinite where only one of them has an output."""
    if first.keys() != second.keys():
        return math.inf
    return max(abs(math.log(first[o] / second[o])) for o in first)


def neighbours(size: int, highest: int, relation: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    tables = list(product(range(highest + 1), repeat=size))
    moves = {"add_remove": 1, "replace_one": 2}[relation]
    pairs = []
    for x, y in product(tables, repeat=2):
        difference = [b - a for a, b in zip(x, y, strict=True)]
        if sum(map(abs, difference)) == moves and x < y and (moves == 1 or sum(difference) == 0):
            pairs.append((x, y))
    return pairs


def worst(monkeypatch: pytest.MonkeyPatch, size: int, highest: int, relation: str, scale: Fraction, t: int, release: Release) -> float:
    pairs = neighbours(size, highest, relation)
    found = {x: outputs(monkeypatch, table(*x), size, scale, t, release) for x in {x for pair in pairs for x in pair}}
    return max(loss(found[x], found[y]) for x, y in pairs)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("epsilon", "t"), [(Fraction(1), 1), (Fraction(1), 2), (Fraction(1, 4), 2), (Fraction(2), 2)])
def test_weak_domain_is_private_and_tight(monkeypatch: pytest.MonkeyPatch, relation: str, epsilon: Fraction, t: int) -> None:
    scale = (1 if relation == "add_remove" else 2) / epsilon
    found = worst(monkeypatch, 2, t + 1, relation, scale, t, weak_domain.release)
    assert found <= float(epsilon) * (1 + 1e-9)
    assert found >= 0.9 * float(epsilon)


@pytest.mark.parametrize("pair", [((0, 0, 0), (1, 0, 0)), ((1, 0, 0), (1, 1, 0)), ((0, 1, 0), (0, 2, 0)), ((2, 0, 0), (3, 0, 0))])
def test_weak_domain_of_three(monkeypatch: pytest.MonkeyPatch, pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    found = loss(*(outputs(monkeypatch, table(*x), 3, Fraction(2), 2) for x in pair))
    assert 0.9 * 0.5 <= found <= 0.5 * (1 + 1e-9)


def test_weak_domain_is_noise_on_every_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof at the head of weak_domain: what the code gives is the product of independent noises on all members."""
    scale, t, counts = Fraction(3, 2), 2, (3, 0, 1)
    q = math.exp(-1 / scale)
    single = []
    for member, count in zip(MEMBERS, counts, strict=True):
        cell: dict[object, float] = defaultdict(float)
        for x, probability in laplace(q, t - 1 - 3, t + MORE):
            shown = ((member, min(count + x, t + MORE)),) if count + x >= t else ()
            cell[shown] += probability
        single.append(cell)
    wanted: dict[object, float] = {}
    for cells in product(*(cell.items() for cell in single)):
        wanted[tuple(item for shown, _ in cells for item in shown)] = math.prod(p for _, p in cells)
    found = outputs(monkeypatch, table(*counts), 3, scale, t)
    assert found.keys() == wanted.keys()
    assert all(math.isclose(found[o], wanted[o], rel_tol=1e-12) for o in wanted)


def test_values_outside_the_universe_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    without = outputs(monkeypatch, {"a": 1}, 2, Fraction(1), 1)
    outside = outputs(monkeypatch, {"a": 1, "z": 3}, 2, Fraction(1), 1)
    assert outside.keys() == without.keys()
    assert all(math.isclose(outside[o], without[o], rel_tol=1e-12) for o in without)


def _active(counts: dict[str, int], scale: Fraction, t: int) -> list[tuple[str, int]]:
    noise = weak_domain.discrete_laplace(scale, len(counts))
    noisy = [(text, int(count + x)) for (text, count), x in zip(counts.items(), noisy_list(noise), strict=True)]
    return [(text, weight) for text, weight in noisy if weight >= t]


def noisy_list(noise: np.ndarray) -> list[int]:
    return [int(x) for x in noise]


def k_fixed(counts: dict[str, int], universe: Universe, scale: Fraction, t: int) -> list[tuple[str, int]]:
    """Slip 4 of the source: k is its expectation."""
    inactive = [m for m in MEMBERS[: universe.size] if m not in counts]
    q = math.exp(-1 / scale)
    k = min(len(inactive), round(len(inactive) * q**t / (1 + q)))
    members = [inactive[i] for i in weak_domain._subset(k, len(inactive))]
    return sorted(_active(counts, scale, t) + [(m, t + j) for m, j in zip(members, noisy_list(weak_domain.geometric(scale, k)), strict=True)])


def whole_domain(counts: dict[str, int], universe: Universe, scale: Fraction, t: int) -> list[tuple[str, int]]:
    """The other slip: members of the whole domain are added, the active ones not taken out."""
    return sorted(_active(counts, scale, t) + weak_domain._lifted(universe, scale, t))


def whole_domain_once(counts: dict[str, int], universe: Universe, scale: Fraction, t: int) -> list[tuple[str, int]]:
    """The same, where the larger of two weights of a value is kept: nothing appears twice any more, and it is still wrong."""
    kept: dict[str, int] = {}
    for text, weight in whole_domain(counts, universe, scale, t):
        kept[text] = max(weight, kept.get(text, 0))
    return sorted(kept.items())


def outside_kept(counts: dict[str, int], universe: Universe, scale: Fraction, t: int) -> list[tuple[str, int]]:
    """The values that occur are shown whether the universe has them or not."""
    return sorted(_active(counts, scale, t) + [i for i in weak_domain._lifted(universe, scale, t) if i[0] not in counts])


@pytest.mark.parametrize("broken", [k_fixed, whole_domain, whole_domain_once])
def test_broken_mechanisms_are_caught(monkeypatch: pytest.MonkeyPatch, broken: Release) -> None:
    epsilon = Fraction(1)
    assert worst(monkeypatch, 2, 2, "add_remove", 1 / epsilon, 1, weak_domain.release) <= float(epsilon) * (1 + 1e-9)
    assert worst(monkeypatch, 2, 2, "add_remove", 1 / epsilon, 1, broken) > 1.05 * float(epsilon)


def test_k_at_its_expectation_has_no_finite_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worst(monkeypatch, 2, 1, "add_remove", Fraction(1), 1, k_fixed) == math.inf


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_half_the_scale_is_caught(monkeypatch: pytest.MonkeyPatch, relation: str) -> None:
    """Half the scale; under replace_one that is the scale of add_remove, slip 2."""
    scale = Fraction(1 if relation == "add_remove" else 2) / 2
    assert worst(monkeypatch, 2, 3, relation, scale, 2, weak_domain.release) > 1.9


def test_showing_values_outside_the_universe_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    without = outputs(monkeypatch, {"a": 1}, 2, Fraction(1), 1, outside_kept)
    assert loss(without, outputs(monkeypatch, {"a": 1, "z": 1}, 2, Fraction(1), 1, outside_kept)) == math.inf


# stable selection


def selected(monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], scale: Fraction, t: int) -> dict[object, float]:
    q, script = math.exp(-1 / scale), Script()
    noise = laplace(q, min(-1, t - max(counts.values(), default=0)), t + MORE)
    held = {text: n for text, n in counts.items() if n}
    with monkeypatch.context() as patch:
        patch.setattr(stable_selection, "discrete_laplace", script.draw(noise))

        def program(choices: Choices) -> object:
            script.choices = choices
            chosen = stable_selection.select(list(held), np.array(list(held.values()), dtype=np.int64), scale, t)
            return tuple((text, min(weight, t + MORE)) for text, weight in chosen)

        return distribution(program)


def divergence(first: dict[object, float], second: dict[object, float], epsilon: float) -> float:
    """Return the smallest delta with P(S) <= exp(epsilon) P'(S) + delta for all S, in both directions."""
    both = first.keys() | second.keys()

    def one(p: dict[object, float], r: dict[object, float]) -> float:
        return math.fsum(max(0.0, p.get(o, 0.0) - math.exp(epsilon) * r.get(o, 0.0)) for o in both)

    return max(one(first, second), one(second, first))


def held_by(units: list[str]) -> dict[str, int]:
    return {value: sum(value in unit for unit in units) for value in sorted(set("".join(units)))}


# the other units, then what the one unit holds in either table ('' is: it is not there)
PAIRS = {
    ("add_remove", 1): [([], "a", ""), (["a"], "a", ""), (["a", "b"], "a", ""), (["a", "a", "b"], "b", "")],
    ("add_remove", 2): [([], "ab", ""), (["a"], "ab", ""), (["ac"], "ab", ""), (["ab"], "ab", "")],
    ("replace_one", 1): [([], "a", "b"), (["a"], "a", "b"), (["a", "b"], "a", "b"), (["a", "a", "b"], "a", "c")],
    ("replace_one", 2): [([], "ab", "cd"), (["a"], "ab", "cd"), (["ac"], "ab", "cd"), (["cd"], "ab", "cd"), (["c"], "ab", "bc"), ([], "ab", "c")],
}


def largest(monkeypatch: pytest.MonkeyPatch, relation: str, values: int, epsilon: float, scale: Fraction, t: int) -> float:
    found = []
    for others, first, second in PAIRS[relation, values]:
        tables = (held_by([*others, unit]) if unit else held_by(others) for unit in (first, second))
        found.append(divergence(*(selected(monkeypatch, counts, scale, t) for counts in tables), epsilon))
    return max(found)


@pytest.mark.parametrize(("relation", "values"), PAIRS)
@pytest.mark.parametrize(("epsilon", "delta"), [(Fraction(1), Fraction(1, 10)), (Fraction(2), Fraction(1, 100)), (Fraction(3), Fraction(2, 5))])
def test_selection_is_private_and_tight(monkeypatch: pytest.MonkeyPatch, relation: str, values: int, epsilon: Fraction, delta: Fraction) -> None:
    scale, t = stable_selection.parameters(epsilon, delta, relation, values)
    assert largest(monkeypatch, relation, values, float(epsilon), scale, t) <= delta * (1 + 1e-9)
    if t > 1:  # one less, or >= in place of >, is too little
        assert largest(monkeypatch, relation, values, float(epsilon), scale, t - 1) > delta


@pytest.mark.parametrize(("relation", "values"), PAIRS)
def test_selection_of_half_the_scale_is_caught(monkeypatch: pytest.MonkeyPatch, relation: str, values: int) -> None:
    """Where other units hold the values too, delta has no part: it is epsilon that half the scale breaks."""
    epsilon, delta = Fraction(1), Fraction(1, 20)
    scale, _ = stable_selection.parameters(epsilon, delta, relation, values)
    t = stable_selection.threshold(scale / 2, values, delta)
    _, first, second = PAIRS[relation, values][0]
    others = [first + second] * (t + 1)
    monkeypatch.setitem(PAIRS, (relation, values), [(others, first, second)])
    assert largest(monkeypatch, relation, values, float(epsilon), scale, t) <= 1e-12
    assert largest(monkeypatch, relation, values, float(epsilon), scale / 2, t) > delta


def test_one_unit_of_more_values_than_said_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values a unit, charged as one: nearly twice the delta, where the threshold has no slack."""
    delta = Fraction(math.exp(-5) / (1 + math.exp(-1)) * (1 + 1e-9))
    scale, t = stable_selection.parameters(Fraction(1), delta, "add_remove", 1)
    assert t == 5
    assert largest(monkeypatch, "add_remove", 1, 1.0, scale, t) <= delta
    assert largest(monkeypatch, "add_remove", 2, 1.0, scale, t) > 1.9 * delta
