"""The simulation studies of [Bowen & Liu 2020, section 4]: bias, RMSE and coverage of several synthesizers.

    python tests/benchmarks/synthesis_studies.py --study bernoulli|normal|mixed [--repetitions 5000] [--plot FILE]

Every repetition draws a table, makes m = 10 synthetic tables of n rows each (epsilon split equally), analyses each, and combines
[Reiter 2003]. Printed for each method and setting: bias and RMSE of the combined estimate, coverage of the 95 % interval. The last
paragraph computes which of the published findings came out. Simulated with numpy; noise scales are those of dpsql, prior counts and
weights of smoothing the published formulas. Needs nothing but dpsql; plots need matplotlib. `poisson_gamma`, which the source does not have, expects a share of 0.3.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context

import numpy as np
from scipy import special, stats
from tqdm import tqdm

from dpsql.answers.combine import combine
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.mechanisms import moments
from dpsql.mechanisms.moments import TOP
from dpsql.mechanisms.poisson_gamma import relative_strength
from dpsql.methods.base import Contract
from dpsql.methods.modips.cells import cell_rows, fit_cells
from dpsql.methods.modips.fine_values import fine_values
from dpsql.methods.modips.method import Modips
from dpsql.methods.modips.posterior import PRIOR, SMALLEST_VARIANCE, truncated_normal
from dpsql.tables.statistics import Statistics

SETS, LEVEL = 10, 0.95
PUBLIC = Contract("replace_one", 1, True)
BLOCK = 2_000_000  # synthetic rows at once
EXPECTED = np.array([0.7, 0.3])  # public expectation of poisson_gamma, right for none of the shares that are drawn from
Sets = tuple[np.ndarray, np.ndarray]  # estimates and their variances, shape (repetitions, SETS)


@dataclass(frozen=True)
class Result:
    method: str
    quantity: str
    rows: int
    setting: str
    log_epsilon: float | None
    bias: float
    rmse: float
    coverage: float


def combined(estimates: np.ndarray, variances: np.ndarray, truth: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return error and coverage of each repetition: `dpsql.answers.combine.combine` on every row at once."""
    mean, within, between = estimates.mean(1), variances.mean(1), estimates.var(1, ddof=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        df = np.where(between > 0, (SETS - 1) * (1 + SETS * within / between) ** 2, np.inf)
    half = -special.stdtrit(np.minimum(df, 1e15), (1 - LEVEL) / 2) * np.sqrt(between / SETS + within)
    for i in range(0, len(mean), max(1, len(mean) // 3)):
        known = combine(estimates[i], variances[i], LEVEL)
        assert np.isclose(known.estimate, mean[i])
        assert np.isclose(known.upper - known.estimate, half[i], rtol=1e-6, atol=1e-9)
    return mean - truth, np.abs(mean - truth) <= half


def result(name: str, quantity: str, n: int, setting: str, at: float | None, found: tuple[np.ndarray, np.ndarray]) -> Result:
    error, covered = found
    return Result(name, quantity, n, setting, at, float(error.mean()), float(np.sqrt((error**2).mean())), float(covered.mean()))


def laplace(scale: Fraction | float, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Discrete Laplace noise: the difference of two geometric numbers."""
    stop = -np.expm1(-1 / float(scale))
    return rng.geometric(stop, size).astype(np.float64) - rng.geometric(stop, size)


def shares_of(weights: np.ndarray) -> np.ndarray:
    """Negatives to 0, then shares; uniform where nothing is left."""
    kept = np.maximum(weights, 0.0)
    total = kept.sum(-1, keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), 1 / weights.shape[-1])


# ---- 1. Bernoulli


def inverse_expm1(exponent: float) -> float:
    """Return 1 / (e^x - 1), also where e^x overflows."""
    return math.exp(-exponent) / -math.expm1(-exponent)


def bernoulli_methods(y: np.ndarray, n: int, epsilon: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the shares of ones of SETS synthetic tables, shape (repetitions, SETS), by method."""
    share, size = epsilon / SETS, (len(y), SETS)
    counts = np.stack([n - y, y], axis=-1)[:, None, :].astype(np.float64)
    flag = Domain((Attribute("x", "BOOLEAN", "categorical", ("false", "true"), nullable=False),))
    price = Modips().price(flag, PUBLIC, Fraction(epsilon), {"sets": SETS})
    noisy = np.clip(y[:, None] + laplace(Fraction(price.parameters["scales"][0]), size, rng), 0, n)
    alpha, fixed = n * inverse_expm1(share), inverse_expm1(share / n)  # of multinomial_dirichlet and dp_prior
    tiny = 1e-300  # a prior count that has underflowed
    strength = relative_strength(share, EXPECTED, n) * n
    kept = EXPECTED * n / (EXPECTED * n + strength)
    rates = rng.beta(y[:, None] + strength + tiny, n - y[:, None] + strength + tiny, size)
    return {
        "laplace_sanitizer": rng.binomial(n, shares_of(counts + laplace(2 / share, (*size, 2), rng))[..., 1]) / n,
        "multinomial_dirichlet": rng.binomial(n, rng.beta(y[:, None] + alpha + tiny, n - y[:, None] + alpha + tiny, size)) / n,
        "poisson_gamma": rng.binomial(n, kept[1] * rates / (kept[1] * rates + kept[0] * (1 - rates))) / n,
        "dp_prior": rng.binomial(n, np.broadcast_to(((y + fixed) / (n + 2 * fixed))[:, None], size)) / n,
        "modips": rng.binomial(n, rng.beta(PRIOR + noisy, PRIOR + n - noisy)) / n,
    }


def bernoulli(repetitions: int, rng: np.random.Generator) -> list[Result]:
    settings = [(n, p) for n in (40, 100, 1000) for p in (0.15, 0.25, 0.5)]
    epsilons = range(-10, 11, 2)
    found = []
    with tqdm(total=len(settings) * len(epsilons), desc="bernoulli") as bar:
        for n, p in settings:
            y = rng.binomial(n, p, repetitions)
            error, half = y / n - p, 1.959964 * np.sqrt(y * (n - y) / n**3)
            found.append(result("not private", "share", n, f"p = {p}", None, (error, np.abs(error) <= half)))
            for at in epsilons:
                for name, q in bernoulli_methods(y, n, float(np.exp(at)), rng).items():
                    found.append(result(name, "share", n, f"p = {p}", at, combined(q, q * (1 - q) / n, p)))
                bar.update()
    return found


def bernoulli_findings(found: list[Result]) -> list[str]:
    last = max(r.log_epsilon for r in found if r.log_epsilon is not None)
    plain = {(r.rows, r.setting): r for r in found if r.log_epsilon is None}
    lines = []
    names = [n for n in dict.fromkeys(r.method for r in found) if n != "not private"]
    for name in names:
        ends = [r for r in found if r.method == name and r.log_epsilon == last]
        ratio = max(r.rmse / plain[r.rows, r.setting].rmse for r in ends)
        gap = max(plain[r.rows, r.setting].coverage - r.coverage for r in ends)
        low = [r.log_epsilon for r in found if r.method == name and r.log_epsilon is not None and r.coverage < 0.9]
        lines.append(
            f"{name}: at ln eps = {last:g} RMSE at most {ratio:.2f} times that without privacy, coverage at most {max(gap, 0):.3f} below; "
            + (f"coverage is below 0.9 in some setting up to ln eps = {max(low):g}" if low else "coverage is never below 0.9")
        )
        if name != "poisson_gamma":
            lines.append(verdict("approaches the result without privacy as epsilon grows", name != "dp_prior", ratio < 1.2 and gap < 0.03, name))
    for name in names:
        biases = {
            n: np.mean([abs(r.bias) for r in found if r.method == name and r.rows == n and r.setting != "p = 0.5" and r.log_epsilon in (0, 2)])
            for n in (40, 1000)
        }
        stays = biases[1000] > 0.8 * biases[40]
        lines.append(f"{name}: mean |bias| for ln eps = 0 and 2, p < 0.5: {biases[40]:.4f} at n = 40, {biases[1000]:.4f} at n = 1000")
        if name != "poisson_gamma":
            lines.append(verdict("stays biased however large n is", name in ("multinomial_dirichlet", "dp_prior"), stays, name))
    return lines


def verdict(what: str, published: bool, here: bool, name: str) -> str:
    """Say whether a published statement came out."""
    agreement = "CAME OUT" if published == here else "DID NOT COME OUT"
    return f"  {agreement}: {name} {what}: published {'yes' if published else 'no'}, here {'yes' if here else 'no'}"


# ---- 2. Normal between public bounds

LOWER, UPPER = -4.0, 5.0  # not symmetric, so that a uniform answer is a wrong one
TRUTH = stats.truncnorm(LOWER, UPPER)


def bins_for(n: int) -> int:
    """Scott's rule for a public standard deviation of 1."""
    return int(np.ceil((UPPER - LOWER) * n ** (1 / 3) / 3.49))


def binned(x: np.ndarray, n: int, kind: str, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return rows of SETS perturbed or smoothed histograms, shape (repetitions, SETS, n)."""
    cells, r = bins_for(n), len(x)
    codes = np.minimum(((x - LOWER) * (cells / (UPPER - LOWER))).astype(np.int64), cells - 1)
    counts = np.bincount((codes + cells * np.arange(r)[:, None]).ravel(), minlength=r * cells).reshape(r, 1, cells)
    if kind == "perturbed_histogram":
        weights = shares_of(counts + laplace(2 / share, (r, SETS, cells), rng))
    else:
        prior = cells * inverse_expm1(share / n)
        weight = prior / (n + prior)
        weights = np.broadcast_to((1 - weight) * counts / n + weight / cells, (r, SETS, cells))
    drawn = rng.multinomial(n, weights)
    rows = np.repeat(np.tile(np.arange(cells, dtype=np.float64), r * SETS), drawn.ravel()).reshape(r, SETS, n)
    rows += rng.random(rows.shape)
    return LOWER + rows * ((UPPER - LOWER) / cells)


def normal_domain() -> Domain:
    return Domain((Attribute("x", "DOUBLE", "numeric", edges=(LOWER, UPPER), nullable=False),))


def modips_normal(x: np.ndarray, n: int, budget: str, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Return rows of SETS tables by modips; the same steps as `Modips`, for all repetitions at once."""
    domain, options = normal_domain(), {"sets": SETS, "budget": budget}
    price = Modips().price(domain, PUBLIC, Fraction(epsilon), options)
    on_sum, on_variance = (Fraction(s) for s in price.parameters["scales"])
    z = np.clip(np.floor((x - LOWER) / (UPPER - LOWER) * FINE), 0, TOP)
    total, size = z.sum(1)[:, None], (len(x), SETS)
    steps = np.floor(z.var(1, ddof=1) * FINE * n / TOP**2)[:, None]
    sums, variances = total + laplace(on_sum, size, rng), steps + laplace(on_variance, size, rng)
    mean = np.clip((sums / n + 0.5) / FINE, 0, 1)
    s2 = np.clip((variances + 0.5) / (FINE * n) * (TOP / FINE) ** 2, 0, (n // 2) * ((n + 1) // 2) / (n * (n - 1)))
    blocks = tuple(np.array([v], dtype=np.int64) for pair in zip(sums[0], variances[0], strict=True) for v in pair)
    model = Modips().fit(Statistics((), {}, {}, "laplace", n, blocks, domain, price.parameters), options)
    assert np.allclose(model.statistics, np.stack((mean[0], s2[0]), axis=1))
    half = (n - 1) / 2
    sigma2 = np.clip(half * s2 / rng.gamma(half, 1.0, size), SMALLEST_VARIANCE, 1e12)
    mu = mean + np.sqrt(sigma2 / n) * rng.standard_normal(size)
    shape = (*size, n)
    centre, deviation = (np.broadcast_to(v[..., None], shape).ravel() for v in (mu, np.sqrt(sigma2)))
    t = truncated_normal(centre, deviation, 0.0, 1.0, centre.size, rng)
    return LOWER + (UPPER - LOWER) * t.reshape(shape)


def normal(repetitions: int, rng: np.random.Generator) -> list[Result]:
    methods: dict[str, Callable[[np.ndarray, int, float], np.ndarray]] = {
        "perturbed_histogram": lambda x, n, e: binned(x, n, "perturbed_histogram", e / SETS, rng),
        "smoothed_histogram": lambda x, n, e: binned(x, n, "smoothed_histogram", e / SETS, rng),
        "modips, split": lambda x, n, e: modips_normal(x, n, "split", e, rng),
        "modips, joint": lambda x, n, e: modips_normal(x, n, "joint", e, rng),
    }
    sizes, epsilons, found = (40, 100, 1000), range(-4, 9, 2), []
    with tqdm(total=sum(sizes) * len(epsilons) * len(methods), desc="normal") as bar:
        for n in sizes:
            x = TRUTH.ppf(rng.random((repetitions, n)))
            error, half = x.mean(1) - TRUTH.mean(), special.stdtrit(n - 1, 0.975) * x.std(1, ddof=1) / n**0.5
            found.append(result("not private", "mean", n, "", None, (error, np.abs(error) <= half)))
            s2 = x.var(1, ddof=1)
            error, half = s2 - TRUTH.var(), special.stdtrit(n - 1, 0.975) * s2 * (2 / (n - 1)) ** 0.5
            found.append(result("not private", "variance", n, "", None, (error, np.abs(error) <= half)))
            for at in epsilons:
                for name, method in methods.items():
                    pieces = np.array_split(x, max(1, repetitions * SETS * n // BLOCK))
                    rows = [_mean_and_variance(method(piece, n, float(np.exp(at)))) for piece in pieces]
                    mean, s2 = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
                    found.append(result(name, "mean", n, "", at, combined(mean, s2 / n, TRUTH.mean())))
                    found.append(result(name, "variance", n, "", at, combined(s2, 2 * s2**2 / (n - 1), TRUTH.var())))
                    bar.update(n)
    return found


def _mean_and_variance(rows: np.ndarray) -> Sets:
    return rows.mean(2), rows.var(2, ddof=1)


def normal_findings(found: list[Result]) -> list[str]:
    lines = []
    for quantity in ("mean", "variance"):
        for name in [n for n in dict.fromkeys(r.method for r in found) if n != "not private"]:
            error = {
                n: np.mean([r.rmse for r in found if (r.method, r.quantity, r.rows) == (name, quantity, n) and r.log_epsilon in (0, 2, 4)])
                for n in (40, 100, 1000)
            }
            worse = bool(error[40] < error[100] < error[1000])
            lines.append(
                f"{name}, {quantity}: mean RMSE for ln eps = 0, 2, 4: " + ", ".join(f"{e:.3f} (n = {n})" for n, e in error.items())
            )
            lines.append(verdict(f"gets worse with n ({quantity})", name == "smoothed_histogram", worse, name))
        low = min(r.coverage for r in found if (r.method, r.quantity) == ("perturbed_histogram", quantity) and (r.log_epsilon or 0) < 0)
        lines.append(f"perturbed_histogram, {quantity}: least coverage for ln eps < 0: {low:.3f}")
        lines.append(verdict(f"undercovers for small epsilon ({quantity})", True, low < 0.9, "perturbed_histogram"))
    return lines


# ---- 3. Three categorical columns and two numeric ones

SHAPE, BINS, ROWS = (2, 3, 4), 12, 2000  # bins: n^(1/3) of each numeric column [Wasserman & Zhou 2010]
CELLS = 24
_LEVELS = [np.array([0.6, 0.4]), np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1])]
CELL_SHARES = np.einsum("i,j,k->ijk", *_LEVELS).ravel()
_INDEX = np.stack(np.unravel_index(np.arange(CELLS), SHAPE), axis=1)
MIDDLE = 0.35  # of all rows; not 0.5, so that a uniform answer is a wrong one
CENTRES = MIDDLE + np.stack((_INDEX @ [0.06, 0.03, -0.02], _INDEX @ [-0.04, 0.02, 0.03]), axis=1)
CENTRES -= CELL_SHARES @ CENTRES - MIDDLE
WITHIN = np.array([[0.0100, 0.0054], [0.0054, 0.0081]])  # correlation 0.6
MARGINS = np.concatenate([np.eye(size)[_INDEX[:, i]] for i, size in enumerate(SHAPE)], axis=1)


def mixed_domain() -> Domain:
    columns = [Attribute(f"c{i}", "INTEGER", "categorical", tuple(map(str, range(s))), nullable=False) for i, s in enumerate(SHAPE)]
    columns += [Attribute(name, "DOUBLE", "numeric", edges=(0.0, 1.0), nullable=False) for name in ("x", "y")]
    return Domain(tuple(columns))


def analyse(cell: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 9 margins, 48 cell means and 3 pooled (co)variances, and the variance of each.

    The mean of a cell with fewer than two rows is that of the table, with the variance of a single row.
    """
    n = len(cell)
    counts = np.bincount(cell, minlength=CELLS)
    shares = counts @ MARGINS / n
    held, size = counts >= 2, np.maximum(counts, 1)[:, None]
    means = np.stack([np.bincount(cell, column, CELLS) for column in values.T], axis=1) / size
    left = values - means[cell]
    squares = np.stack([np.bincount(cell, column**2, CELLS) for column in left.T], axis=1)
    spread = np.where(held[:, None], squares / np.maximum(size - 1, 1) / size, values.var(0))
    means = np.where(held[:, None], means, values.mean(0))
    df = max(n - np.count_nonzero(counts), 1)
    pooled = left.T @ left / df
    a, b, c = pooled[0, 0], pooled[0, 1], pooled[1, 1]
    found = np.concatenate((shares, means.ravel(), [a, b, c]))
    return found, np.concatenate((shares * (1 - shares) / n, spread.ravel(), [2 * a * a / df, (a * c + b * b) / df, 2 * c * c / df]))


def perturbed_rows(cell: np.ndarray, values: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return cells and values of one perturbed histogram over all columns."""
    place = np.minimum((values * BINS).astype(np.int64), BINS - 1)
    index = (cell * BINS + place[:, 0]) * BINS + place[:, 1]
    counts = np.bincount(index, minlength=CELLS * BINS**2)
    drawn = np.repeat(np.arange(counts.size), rng.multinomial(len(cell), shares_of(counts + laplace(2 / share, counts.shape, rng))))
    place = np.stack((drawn // BINS % BINS, drawn % BINS), axis=1)
    return drawn // BINS**2, (place + rng.random(place.shape)) / BINS


def one_table(epsilons: Sequence[float], seed: np.random.SeedSequence) -> np.ndarray:
    """Return one repetition: shape (epsilon and method, 2, SETS, quantities), the table itself first."""
    rng = np.random.default_rng(seed)
    cell = rng.choice(CELLS, ROWS, p=CELL_SHARES)
    values = np.clip(CENTRES[cell] + rng.standard_normal((ROWS, 2)) @ np.linalg.cholesky(WITHIN).T, 0, 1)
    own = np.stack(analyse(cell, values))
    found = [np.repeat(own[:, None], SETS, axis=1)]
    z = np.minimum(np.floor(values * FINE), TOP).astype(np.int64)
    sums = np.stack([np.bincount(cell, column, CELLS) for column in z.T], axis=1).astype(np.int64)
    products = [int(z[:, i] @ z[:, j]) for i, j in ((0, 0), (0, 1), (1, 1))]
    exact = moments.mixed_statistics(np.bincount(cell, minlength=CELLS), sums, products)
    domain = mixed_domain()
    fine = [fine_values(attribute) for attribute in domain.attributes[3:]]
    for at in epsilons:
        price = Modips().price(domain, PUBLIC, Fraction(float(np.exp(at))), {"sets": SETS})
        scales = [Fraction(s) for s in price.parameters["scales"]]
        noisy = [
            [part + laplace(s, part.shape, rng).astype(np.int64) for part, s in zip(exact, scales, strict=True)] for _ in range(SETS)
        ]
        ours, binned_ones = [], []
        for cells in fit_cells(noisy, [float(s) for s in scales], CELLS, ROWS, fine):
            codes = cell_rows(cells, SHAPE, fine, rng)(ROWS)
            ours.append(analyse(np.ravel_multi_index(codes[:, :3].T, SHAPE), (codes[:, 3:] + 0.5) / FINE))
            binned_ones.append(analyse(*perturbed_rows(cell, values, float(np.exp(at)) / SETS, rng)))
        found += [np.swapaxes(np.array(ours), 0, 1), np.swapaxes(np.array(binned_ones), 0, 1)]
    return np.array(found)


def mixed(repetitions: int, rng: np.random.Generator) -> list[Result]:
    epsilons = (-2, 0, 2, 4, 6)
    seeds = np.random.SeedSequence(int(rng.integers(2**32))).spawn(repetitions)
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        work = pool.map(partial(one_table, epsilons), seeds, chunksize=20)
        tables = np.array([*tqdm(work, total=repetitions, desc="mixed")])
    truth = np.concatenate((CELL_SHARES @ MARGINS, CENTRES.ravel(), WITHIN[np.triu_indices(2)]))
    groups = {"margins": slice(0, 9), "cell means": slice(9, 57), "covariance": slice(57, 60)}
    names = ["not private"] + [name for _ in epsilons for name in ("modips", "perturbed_histogram")]
    at = [None] + [e for e in epsilons for _ in range(2)]
    found = []
    for i, name in enumerate(names):
        for quantity, where in groups.items():
            pairs = [combined(tables[:, i, 0, :, q], tables[:, i, 1, :, q], truth[q]) for q in range(where.start, where.stop)]
            errors, covered = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
            bias = float(np.abs(errors.mean(1)).mean())
            found.append(Result(name, quantity, ROWS, "24 cells", at[i], bias, float(np.sqrt((errors**2).mean())), float(covered.mean())))
    return found


def mixed_findings(found: list[Result]) -> list[str]:
    lines = []
    for quantity, winner in (("margins", "perturbed_histogram"), ("cell means", "modips"), ("covariance", "modips")):
        ratio = {}
        for at in sorted({r.log_epsilon for r in found if r.log_epsilon is not None}):
            pair = {r.method: r.rmse for r in found if r.log_epsilon == at and r.quantity == quantity}
            ratio[at] = pair["modips"] / pair["perturbed_histogram"]
        wins = [at for at, value in ratio.items() if (value < 1) == (winner == "modips")]
        lines.append(f"{quantity}: RMSE of modips over that of perturbed_histogram: " + ", ".join(f"{v:.2f} (ln eps = {a:g})" for a, v in ratio.items()))
        lines.append(verdict(f"wins on {quantity} at most of these epsilons", True, 2 * len(wins) > len(ratio), winner))
    return lines


# ---- printing

STUDIES = {"bernoulli": (bernoulli, bernoulli_findings), "normal": (normal, normal_findings), "mixed": (mixed, mixed_findings)}


def show(found: list[Result]) -> None:
    print(f"{'method':22} {'quantity':11} {'n':>5} {'setting':9} {'ln eps':>7} {'bias':>10} {'RMSE':>10} {'coverage':>9}")
    for r in sorted(found, key=lambda r: (r.quantity, r.rows, r.setting, r.method != "not private")):
        at = "" if r.log_epsilon is None else f"{r.log_epsilon:g}"
        print(f"{r.method:22} {r.quantity:11} {r.rows:>5} {r.setting:9} {at:>7} {r.bias:>10.5f} {r.rmse:>10.5f} {r.coverage:>9.3f}")


def plot(found: list[Result], path: str) -> None:
    """Draw bias, RMSE and coverage over ln epsilon, one row of panels for each quantity, n and setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = sorted({(r.quantity, r.rows, r.setting) for r in found})
    figure, axes = pyplot.subplots(len(groups), 3, figsize=(12, 2.6 * len(groups)), squeeze=False)
    for panels, group in zip(axes, groups, strict=True):
        some = [r for r in found if (r.quantity, r.rows, r.setting) == group]
        for panel, measure in zip(panels, ("bias", "rmse", "coverage"), strict=True):
            for name in dict.fromkeys(r.method for r in some):
                line = [(r.log_epsilon, getattr(r, measure)) for r in some if r.method == name]
                if line[0][0] is None:
                    panel.axhline(line[0][1], color="black", linestyle=":", label=name)
                else:
                    panel.plot(*zip(*line, strict=True), marker=".", label=name)
            panel.set_title(f"{measure}: {group[0]}, n = {group[1]} {group[2]}", fontsize=9)
    axes[0][0].legend(fontsize=7)
    axes[-1][1].set_xlabel("ln epsilon")
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=[*STUDIES], required=True)
    parser.add_argument("--repetitions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    started = time.perf_counter()
    run, findings = STUDIES[chosen.study]
    found = run(chosen.repetitions, np.random.default_rng(chosen.seed))
    show(found)
    print(f"\n{chosen.study}: {chosen.repetitions} repetitions, {SETS} sets, {time.perf_counter() - started:.0f} s")
    print("\n".join(findings(found)))
    if chosen.plot:
        plot(found, chosen.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
