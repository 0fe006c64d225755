"""An adversary against the whole filter: it buys Gaussian noise, pure events and selections, each chosen from what it saw.

It stands for one of two neighbours and knows both. Its best strategy is found by dynamic programming over what was bought
and the privacy loss so far, on a grid of losses that all its mechanisms hit exactly; what it reaches is a delta that the
filter admits, so it has to stay below the budget's. Wrong rules are broken by the same adversary.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpsql import accounting as acc
from dpsql.accounting import rules
from dpsql.accounting.cost import Cost, sum_of

STEP = Fraction(1, 32)  # of the grid of losses
Moves = list[tuple[np.ndarray, np.ndarray, float]]  # loss in steps, its probability, probability of certainty
Admits = Callable[[Cost, Decimal, Decimal], bool]


def _ratio(low: float, high: float, mu: float) -> float:
    """Return log P/Q of an interval, P = N(mu, 1), Q = N(0, 1); on the right, where the tails are computed well."""
    return float(np.log((norm.sf(low - mu) - norm.sf(high - mu)) / (norm.sf(low) - norm.sf(high))))


def gaussian_move(mu: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return losses and probabilities of N(mu, 1) against N(0, 1), merged into cells whose losses are on the grid.

    Merging is post-processing: this is a mu-GDP mechanism. Cells are cut from the right, and mirrored.
    """
    h = float(STEP)
    k, high, cells = math.floor((mu * (mu + 4.5) - mu * mu / 2) / h), math.inf, []
    while k >= 1 and _ratio(mu / 2, high, mu) <= k * h:
        end = min(high, mu + 9)
        low = brentq(lambda z, right=high, target=k * h: _ratio(z, right, mu) - target, mu / 2, end - 1e-9, xtol=1e-14)
        cells.append((k, norm.sf(low - mu) - norm.sf(high - mu), norm.sf(low) - norm.sf(high)))
        k, high = math.ceil((mu * low - mu * mu / 2) / h) - 1, low
    middle = norm.sf(mu - high - mu) - norm.sf(high - mu)
    losses = [k for k, _, _ in cells] + [0] + [-k for k, _, _ in cells]
    found = np.array([p for _, p, _ in cells] + [middle] + [q for _, _, q in cells])
    assert abs(found.sum() - 1) < 1e-9 and found.min() > 0
    assert np.allclose(found[: len(cells)], [q * math.exp(k * h) for k, _, q in cells], rtol=1e-6)
    return np.array(losses), found, 0.0


def pure_move(epsilon: Fraction, delta: float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
    """Return randomised response; with a delta, each neighbour has an output of this probability that gives it away."""
    steps, odd = divmod(epsilon, STEP)
    assert odd == 0
    yes = 1 / (1 + math.exp(-float(epsilon)))
    return np.array([int(steps), -int(steps)]), np.array([yes, 1 - yes]) * (1 - delta), delta


def range_moves(epsilon: Fraction) -> Moves:
    """Return pairs of two outputs whose losses differ by epsilon: the symmetric one, and one that leans to each side."""
    steps, odd = divmod(epsilon, STEP)
    assert odd == 0 and steps % 4 == 0
    found: Moves = []
    for upper in (int(steps) // 4, int(steps) // 2, 3 * int(steps) // 4):
        top, low = math.exp(upper * float(STEP)), math.exp((upper - int(steps)) * float(STEP))
        p = top * (1 - low) / (top - low)  # of the first output; p / top + (1 - p) / low = 1
        found.append((np.array([upper, upper - int(steps)]), np.array([p, 1 - p]), 0.0))
    return found


def moves_of(event: acc.Event) -> Moves:
    """Return what the adversary may do with an event."""
    if isinstance(event, acc.GaussianEvent):
        return [gaussian_move(math.sqrt(2 * float(event.rho)))]
    if isinstance(event, acc.SelectionEvent):
        return [pure_move(event.epsilon, float(event.delta))]
    if isinstance(event, acc.ThresholdEvent):
        return [(np.array([0]), np.array([1 - float(event.delta)]), float(event.delta))]
    return range_moves(event.epsilon) if isinstance(event, acc.RangeEvent) else [pure_move(event.epsilon)]


def best_attack(budget: acc.Budget, events: list[acc.Event], most: list[int], admits: Admits) -> float:
    """Return the largest E[(1 - exp(epsilon - loss))_+] of an adversary who buys at most ``most`` of each event."""
    moves = [moves_of(event) for event in events]
    costs = [acc.charge_for([e], delta=budget.delta, accountant="zcdp").cost for e in events]
    reach = 600
    margin = max(int(np.abs(losses).max()) for ways in moves for losses, _, _ in ways)
    grid = np.arange(-reach, reach + 1) * float(STEP)
    stop = np.maximum(0.0, -np.expm1(float(budget.epsilon) - np.maximum(grid, float(budget.epsilon))))
    value: dict[tuple[int, ...], np.ndarray] = {}
    for bought in itertools.product(*(range(n, -1, -1) for n in most)):  # from what ends the interaction to its start
        cost = sum_of(c for c, n in zip(costs, bought, strict=True) for _ in range(n))
        if not admits(cost, budget.epsilon, budget.delta):
            continue
        best = stop
        for i, (losses, chances, certain) in ((i, way) for i, ways in enumerate(moves) for way in ways):
            after = value.get((*bought[:i], bought[i] + 1, *bought[i + 1 :]))
            if after is not None:
                padded = np.pad(after, margin, mode="edge")
                size = after.size
                # losses beyond the grid are taken for its last point: less than they are
                mean = certain + sum(p * padded[margin + k : margin + k + size] for k, p in zip(losses, chances, strict=True))
                best = np.maximum(best, mean)
        value[bought] = best
    return float(value[(0,) * len(events)][reach])


def _gaussian_part(budget: acc.Budget, pieces: int) -> acc.GaussianEvent:
    """Return an event of which ``pieces`` are a whole Gaussian budget."""
    whole = acc.calibrate(mechanism="gaussian", tables=pieces, epsilon=budget.epsilon, delta=budget.delta, neighbors="add_remove")
    return acc.GaussianEvent(whole.scales[0])


@pytest.fixture
def even_shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Split delta evenly: the theorem holds for any split, and what M, H and S admit is then large enough to be seen."""
    cached = (rules.rho_limit, rules._split_limit)
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(rules, "shares", lambda delta: rules.Shares(delta / 4, delta / 4, delta / 60))
    monkeypatch.setattr(rules, "_SELECTION_SHARE", Fraction(1, 4))
    yield
    for function in cached:
        function.cache_clear()


def _events(budget: acc.Budget, delta: Fraction) -> list[acc.Event]:
    sixteenth = Fraction(budget.epsilon) / 16
    pure = [acc.PureEvent(sixteenth * 2), acc.PureEvent(sixteenth * 7)]
    return [_gaussian_part(budget, 16), *pure, acc.SelectionEvent(sixteenth, delta)]


MOST = [16, 8, 2, 2]
BUDGETS = [(1.0, 0.01), (2.0, 0.05), (4.0, 0.01)]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_no_strategy_beats_the_filter(epsilon: float, delta: float) -> None:
    budget = acc.Budget(epsilon, delta)
    events = _events(budget, Fraction(acc.selection_delta(delta, 2)))
    found = best_attack(budget, events, MOST, rules.allows)
    assert 0.85 * delta < found <= delta


@pytest.mark.usefixtures("even_shares")
@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (1.0, 0.3)])
def test_no_strategy_beats_the_filter_if_its_rules_share_delta_evenly(epsilon: float, delta: float) -> None:
    budget = acc.Budget(epsilon, delta)
    events = _events(budget, Fraction(acc.selection_delta(delta, 2)))
    found = best_attack(budget, events, MOST, rules.allows)
    unselected, alone = (best_attack(budget, events[:n], MOST[:n], rules.allows) for n in (3, 1))
    assert alone <= delta / 4 and alone <= unselected <= 3 * delta / 4
    assert 1.4 * alone < found <= delta  # the split of delta covers what switching between the rules gains


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_no_strategy_with_thresholds_and_bounded_ranges_beats_the_filter(epsilon: float, delta: float) -> None:
    """The whole share of selections as two thresholds; more of it, or a range charged like a quarter of it, is noticed."""
    budget = acc.Budget(epsilon, delta)
    ranged = acc.RangeEvent(Fraction(budget.epsilon) / 4)
    events = [_gaussian_part(budget, 16), ranged, acc.ThresholdEvent(Fraction(acc.selection_delta(delta, 2)))]
    most = [16, 12, 2]
    found = best_attack(budget, events, most, rules.allows)
    assert 0.85 * delta < found <= delta

    def cheap(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
        """A rule G alone, in which a range costs a quarter of its rho."""
        part = Fraction(cost.gaussian_rho) + (Fraction(cost.gdp_rho) - Fraction(cost.gaussian_rho)) / 4
        return part <= Fraction(acc.rho_limit(float(epsilon), float(delta), gaussian=True))

    assert best_attack(budget, events[:2], most[:2], cheap) > 1.02 * delta
    uncounted = [events[0], acc.ThresholdEvent(Fraction(delta) / 20)]
    assert best_attack(budget, uncounted, most[::2], _selections_uncounted) > 1.02 * delta


Law = list[Fraction]


def _parts(one: Law, two: Law, e: Fraction, d: Fraction) -> tuple[Law, Law]:
    """Return (1 - d) K* and (1 - d) L* of the lemma in ``dpsql.accounting.rules``; e stands for exp(epsilon)."""
    cut_one = [min(a, e * b) for a, b in zip(one, two, strict=True)]
    cut_two = [min(b, e * a) for a, b in zip(one, two, strict=True)]
    if sum(cut_one) > sum(cut_two):
        cut_two, cut_one = _reduced(cut_two, cut_one, e, d)
        return cut_one, cut_two
    return _reduced(cut_one, cut_two, e, d)


def _reduced(less: Law, more: Law, e: Fraction, d: Fraction) -> tuple[Law, Law]:
    low = sum(less) / e
    share = (sum(more) - sum(less)) / (sum(more) - low) if sum(more) > low else Fraction(0)
    mixed = [(1 - share) * b + share * a / e for a, b in zip(less, more, strict=True)]
    scale = (1 - d) / sum(less)
    return [a * scale for a in less], [b * scale for b in mixed]


def test_the_lemma_on_selections_holds_exactly() -> None:
    """Random pairs of laws, with the smallest delta that they have at some epsilon: what is left of them is pure, and of one mass."""
    rng, tried = np.random.default_rng(9), 0
    for _ in range(300):
        size = int(rng.integers(2, 7))
        weights = [[Fraction(int(x)) for x in rng.integers(0, 12, size)] for _ in range(2)]
        if not all(sum(w) for w in weights):
            continue
        one, two = ([x / sum(w) for x in w] for w in weights)
        e = Fraction(int(rng.integers(10, 40)), 10)
        d = max(sum(max(a - e * b, Fraction(0)) for a, b in zip(x, y, strict=True)) for x, y in ((one, two), (two, one)))
        d = d if rng.random() < 0.5 else (d + 1) / 2
        if not 0 < d < 1:
            continue
        tried += 1
        pure_one, pure_two = _parts(one, two, e, d)
        assert sum(pure_one) == sum(pure_two) == 1 - d
        assert all(0 <= p <= w for p, w in zip([*pure_one, *pure_two], [*one, *two], strict=True))
        assert all(a <= e * b and b <= e * a for a, b in zip(pure_one, pure_two, strict=True))
    assert tried > 200


def _rho_of_all_by_the_gaussian_limit(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
    return cost.rho <= acc.rho_limit(float(epsilon), float(delta), gaussian=True) and cost.selection_delta == 0


def _side_by_side(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
    gaussian = acc.rho_limit(float(epsilon), float(delta), gaussian=True)
    return cost.gaussian_rho <= gaussian and cost.pure_epsilon <= epsilon and cost.selection_delta == 0


def _split_without_sharing(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
    """Rule H in which every j has all of delta, next to G with all of it."""
    if cost.selection_delta > 0:
        return False
    part = math.ceil(Fraction(cost.pure_epsilon) * 16 / Fraction(epsilon))
    rest = float(epsilon) * (16 - part) / 16
    return rest > 0 and float(cost.gaussian_rho) <= acc.gaussian_mu(rest, float(delta)) ** 2 / 2


def _selections_uncounted(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
    return rules.allows(cost._replace(selection_delta=Decimal(0)), epsilon, delta)


@pytest.mark.parametrize("wrong", [_side_by_side, _rho_of_all_by_the_gaussian_limit, _split_without_sharing, _selections_uncounted])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_adversary_breaks_wrong_rules(wrong: Admits, epsilon: float, delta: float) -> None:
    budget = acc.Budget(epsilon, delta)
    events = _events(budget, Fraction(delta) / 2)
    found = best_attack(budget, events, MOST, wrong)
    assert found > 1.02 * delta
