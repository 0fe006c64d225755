"""Model-based synthesis, `modips` [Bowen & Liu 2020]: sanitised sufficient statistics, a draw from their posterior, rows from it.

What is sanitised follows from the columns:

| columns | kind | statistics | posterior |
| --- | --- | --- | --- |
| one with two codes, not numeric | binary | count of code 1 | Beta(1/3 + s, 1/3 + n - s) |
| one numeric | normal | mean and variance | inverse gamma, normal |
| anything else | mixed | cell counts, sums, second moments | Dirichlet, inverse Wishart, normal: `dpsql.methods.modips.cells` |

Columns of dates and times are categorical here: their bins. Numeric columns are normal, and take part with their values, not with
their bins; their rows come back with fine bins (`dpsql.methods.modips.fine_values`).

Every one of m synthetic tables (option ``sets``) gets its own noise and 1/m of epsilon. Sensitivities are derived in
`dpsql.mechanisms.moments`; they hold where one row changes and the number of rows is public.

**Thresholding.** A noisy count below 0, say, is set to the bound ('clamp'), or redrawn ('truncate') from the law of the exact
number given that noise has pushed it out, which is post-processing. Drawing the noise itself again until the result lies inside
would not be: how often that takes more than one try depends on the secret number, and costs up to twice the epsilon.

References: Bowen & Liu (2020), arXiv:1602.01063 (Liu: modips); Reiter (2003), see `dpsql.answers.combine`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import moments
from dpsql.methods.base import Contract, Counted, MeasurementPlan, Price, with_sets
from dpsql.methods.modips.cells import Cells, cell_rows, fit_cells
from dpsql.methods.modips.fine_values import FineValues, fine_attribute, fine_values
from dpsql.methods.modips.posterior import RowSource, binary_rows, normal_rows, redrawn
from dpsql.methods.modips.statistics import (
    categorical_columns,
    clamped,
    exact_statistics,
    kind_of,
    limits_of,
    numbers_of,
    numeric_columns,
    parts_of,
    shares_of,
)
from dpsql.methods.options import check_choices, chosen_options, is_number, is_whole, row_count
from dpsql.methods.public_rows import HISTOGRAMS, PublicRows
from dpsql.numerics.arrays import CodeArray, IntArray
from dpsql.tables.statistics import Statistics

_BLOCK = 250_000
_BUDGETS = ("split", "joint")
_THRESHOLDS = ("clamp", "truncate")
_MAXIMUM_SETS = 1000


@dataclass(frozen=True)
class ModipsModel:
    """Thresholded statistics of every synthetic table.

    Parameters
    ----------
    kind : {'binary', 'normal', 'mixed'}
    rows : int
        n, public.
    sets : int
    columns : int
        Measured columns.
    categorical, numeric : tuple of int
        Their positions; codes of `sizes` and bins of `fine`.
    sizes : tuple of int
    fine : tuple of FineValues
    statistics : tuple, one entry a set
        binary: (count,); normal: (mean, variance) in units of the bounds' distance; mixed: `Cells`. With 'truncate' numbers may lie
        outside their limits: `sample` redraws them.
    limits : tuple of (low, high, noise scale), one for each number of binary and normal
    thresholded : tuple of str
        What lay outside its range or was adjusted, in how many sets.
    """

    kind: str
    rows: int
    sets: int
    columns: int
    categorical: tuple[int, ...]
    numeric: tuple[int, ...]
    sizes: tuple[int, ...]
    fine: tuple[FineValues, ...]
    statistics: tuple[tuple[float, ...] | Cells, ...]
    limits: tuple[tuple[float, float, float], ...]
    thresholded: tuple[str, ...]


class Modips:
    """The method `modips`.

    Attributes
    ----------
    name : str
    options : mapping
        sets : number of synthetic tables, 1 to 1000; epsilon is split equally.
        budget : of one numeric column: 'split' (half of epsilon for the mean, half for the variance) or 'joint' (one vector, whose
        noise has the summed sensitivity (c1 - c0) / n + (c1 - c0)^2 / n in the column's own units).
        threshold : of one column: 'clamp' or 'truncate'; see the head of this file.
        shares : of several columns: relative shares of epsilon for cell counts, sums and second moments; 'auto': 1/4, 1/2, 1/4.
        What is not released (no numeric column; no categorical one) leaves its share to the others.
    """

    name = "modips"
    public_rows = PublicRows("what one row changes depends on the number of rows", HISTOGRAMS)
    options: Mapping[str, Any] = MappingProxyType({"sets": 1, "budget": "split", "threshold": "clamp", "shares": "auto"})

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the cross-tabulation of the categorical columns; () where there is none.

        Raises
        ------
        ArgumentError
            An option is unknown or out of range, or a numeric column may be NULL or outside its bounds.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        chosen = self._checked(domain, options)
        kind = kind_of(domain)
        what = {
            "binary": "binary: a count, Beta posterior",
            "normal": "normal: mean and variance, kept inside the bounds",
            "mixed": "mixed: cells, and normal numeric columns within them",
        }[kind]
        return MeasurementPlan((categorical_columns(domain),), (1.0,), (f"modips, {what}; sets = {chosen['sets']}",))

    def values(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the positions of the numeric columns."""
        return numeric_columns(domain)

    def price(self, domain: Domain, contract: Contract, epsilon: Fraction, options: Mapping[str, Any]) -> Price:
        """Return the noise of every statistic and what it costs.

        Raises
        ------
        ArgumentError
            The number of rows is not public; an option or epsilon is out of range.

        Notes
        -----
        Privacy: the sensitivities (`dpsql.mechanisms.moments`) are those of one changed row with n public.
        """
        self.public_rows.require(self.name, contract)
        chosen = self._checked(domain, options)
        sets, released = int(chosen["sets"]), parts_of(domain)
        shares = shares_of(domain, released, chosen)
        scales = moments.scales(released, shares, Fraction(epsilon), sets)
        per_set = ", ".join(
            f"{part.name} {float(part.l1 * part.tables / scale):.6g}" for part, scale in zip(released, scales, strict=True)
        )
        note = f"epsilon of each of {sets} set{'s' * (sets > 1)}: {float(Fraction(epsilon) / sets):.6g} ({per_set})"
        parameters = {"kind": kind_of(domain), "sets": sets, "scales": [str(scale) for scale in scales]}
        return Price(
            moments.events(released, scales, sets), "laplace", scales[0] if len(scales) == 1 else None, parameters, (note,)
        )

    def lengths(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the lengths of the parts of one set (`dpsql.mechanisms.moments.parts`), repeated for every set."""
        return tuple(part.length for part in parts_of(domain)) * int(self._checked(domain, options)["sets"])

    def draw(self, counted: Counted, domain: Domain, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> list[IntArray]:
        """Return the noisy parts of the first set, then of the second, and so on.

        binary: the count of code 1. normal: the sum of z; the variance in its public steps. mixed: K counts (row-major; not for
        one cell with numeric columns); K x p centred sums; p (p + 1) / 2 moments in steps of FINE.

        Notes
        -----
        Privacy: adds to exact statistics the noise that `price` has charged. Entropy from the operating system.
        """
        scales = [Fraction(text) for text in parameters["scales"]]
        return moments.with_noise(exact_statistics(counted, domain), scales, int(parameters["sets"]))

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured columns, numeric ones with fine bins, and the number of the set if there are several."""
        sets = int(self._checked(domain, options)["sets"])
        attributes = tuple(fine_attribute(a) if a.kind == "numeric" else a for a in domain.attributes)
        return with_sets(Domain(attributes), sets)

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> ModipsModel:
        """Return the thresholded statistics. Deterministic.

        Parameters
        ----------
        statistics : Statistics
            With blocks, domain, total and parameters.

        Notes
        -----
        Privacy: post-processing.
        """
        domain, rows = statistics.domain, statistics.total
        if domain is None or rows is None or not statistics.blocks:
            raise ArgumentError("statistics", None, "a release of modips with its domain and number of rows is required")
        chosen = self._checked(domain, options)
        sets, scales = int(statistics.parameters["sets"]), [float(Fraction(s)) for s in statistics.parameters["scales"]]
        per_set = len(statistics.blocks) // sets
        blocks = [statistics.blocks[i * per_set : (i + 1) * per_set] for i in range(sets)]
        kind = kind_of(domain)
        fine = tuple(fine_values(domain.attributes[i]) for i in numeric_columns(domain))
        limits: tuple[tuple[float, float, float], ...] = ()
        parameters: list[tuple[float, ...] | Cells]
        if kind == "mixed":
            cells = domain.cells(categorical_columns(domain))
            fitted = fit_cells(blocks, scales, cells, rows, fine)
            notes = _cell_notes(fitted)
            parameters = [*fitted]
        else:
            limits = limits_of(kind, rows, scales)
            numbers = [numbers_of(kind, rows, block) for block in blocks]
            notes = _threshold_notes(kind, numbers, limits, chosen["threshold"])
            # What is truncated is redrawn by `sample`, set by set.
            parameters = [*numbers] if chosen["threshold"] == "truncate" else [clamped(n, limits) for n in numbers]
        categorical = categorical_columns(domain)
        sizes = tuple(domain.sizes[i] for i in categorical)
        columns = len(domain.attributes)
        numeric = numeric_columns(domain)
        return ModipsModel(kind, rows, sets, columns, categorical, numeric, sizes, fine, tuple(parameters), limits, notes)

    def report(self, model: ModipsModel) -> list[str]:
        """Return what was thresholded, one line a statistic; post-processing, so it may be shown."""
        return list(model.thresholded) or ["no statistic lay outside its range"]

    def total(self, model: ModipsModel) -> int:
        """Return n rows for every set."""
        return model.rows * model.sets

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take. Post-processing of public sizes."""
        cells = math.prod(size for size in sizes if size < FINE)
        return 0.2 + 2e-7 * rows * len(sizes), 50.0 + 1e-6 * _BLOCK * 60 * len(sizes) + 1e-4 * min(cells, 1_000_000)

    def sample(self, model: ModipsModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of rows: all of the first set, then of the second, as equally many as possible.

        Parameters are drawn once for each set.

        Raises
        ------
        ArgumentError
            ``rows`` is negative.

        Notes
        -----
        Privacy: post-processing.
        """
        return self._blocks(model, row_count(rows), rng)

    @staticmethod
    def _blocks(model: ModipsModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        order = np.argsort((*model.categorical, *model.numeric))
        for i in range(model.sets):
            size = rows // model.sets + (i < rows % model.sets)
            source = _source(model, i, rng)
            for start in range(0, size, _BLOCK):
                codes = source(min(_BLOCK, size - start))[:, order]
                if model.sets > 1:
                    codes = np.column_stack((codes, np.full(len(codes), i, dtype=np.int32)))
                yield np.ascontiguousarray(codes, dtype=np.int32)

    def _checked(self, domain: Domain, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values, and columns that have no model."""
        chosen = chosen_options(self.options, options)
        _check_values(chosen)
        if not domain.attributes:
            raise ArgumentError("columns", [], "at least one column with a domain is required")
        _check_columns(domain.attributes)
        kind = kind_of(domain)
        if chosen["budget"] != "split" and kind != "normal":
            raise ArgumentError("budget", chosen["budget"], "is for one numeric column; leave it out (several columns: shares)")
        if chosen["threshold"] != "clamp" and kind == "mixed":
            raise ArgumentError("threshold", chosen["threshold"], "is for one numeric column or one with two values; leave it out")
        if chosen["shares"] != "auto" and kind != "mixed":
            raise ArgumentError("shares", chosen["shares"], "is for several columns; leave it out")
        return chosen


def _check_values(chosen: Mapping[str, Any]) -> None:
    """Refuse an option that is none of those allowed."""
    sets = chosen["sets"]
    if not is_whole(sets, 1, _MAXIMUM_SETS):
        raise ArgumentError("sets", sets, f"a whole number from 1 to {_MAXIMUM_SETS} is required")
    check_choices(chosen, {"budget": _BUDGETS, "threshold": _THRESHOLDS})
    shares = chosen["shares"]
    if isinstance(shares, str) and shares == "auto":
        return
    expected = "'auto' or three numbers from 0.001 to 1000: relative shares of counts, sums and moments, e.g. [0.25, 0.5, 0.25]"
    if isinstance(shares, str) or not isinstance(shares, Sequence) or len(shares) != 3:
        raise ArgumentError("shares", shares, expected)
    if not all(is_number(share, 0.001, 1000) for share in shares):
        raise ArgumentError("shares", list(shares), expected)


def _check_columns(attributes: Sequence[Attribute]) -> None:
    """Refuse numeric columns that may hold something that is no number between the bounds: all of them at once."""
    numeric = [attribute for attribute in attributes if attribute.kind == "numeric"]
    empty = [attribute.name for attribute in numeric if attribute.nullable]
    beyond = [attribute.name for attribute in numeric if attribute.outside != "clamp"]
    faults = []
    if empty:
        faults.append(
            f"modips sums the values of numeric columns, and {', '.join(map(repr, empty))} may be NULL: dp_declare(..., "
            "nullable := false), which counts NULL as the lower bound; or fill it in a view"
        )
    if beyond:
        faults.append(
            f"modips needs numeric columns with outside := 'clamp', not so {', '.join(map(repr, beyond))}: "
            "dp_declare(..., outside := 'clamp')"
        )
    if faults:
        raise ArgumentError("columns", list(dict.fromkeys([*empty, *beyond])), "; ".join(faults))


def _threshold_notes(
    kind: str, numbers: Sequence[tuple[float, ...]], limits: Sequence[tuple[float, float, float]], threshold: str
) -> tuple[str, ...]:
    names = ("count",) if kind == "binary" else ("mean", "variance")
    action = "set to the bound" if threshold == "clamp" else "redrawn inside"
    notes = []
    for position, (name, (low, high, _)) in enumerate(zip(names, limits, strict=True)):
        outside = sum(not low <= own[position] <= high for own in numbers)
        if outside:
            notes.append(f"the noisy {name} lay outside its range in {outside} of {len(numbers)} sets and was {action}")
    return tuple(notes)


def _cell_notes(fitted: Sequence[Cells]) -> tuple[str, ...]:
    negative, adjusted = sum(c.negative for c in fitted), sum(c.adjusted for c in fitted)
    notes = []
    if negative:
        notes.append(f"noisy cell counts were negative in {negative} of {len(fitted)} sets and were projected to counts with sum n")
    if adjusted:
        notes.append(f"the noisy covariance was not one in {adjusted} of {len(fitted)} sets; the nearest allowed one was taken")
    return tuple(notes)


def _source(model: ModipsModel, i: int, rng: np.random.Generator) -> RowSource:
    """Draw the parameters of one set."""
    parameters = model.statistics[i]
    if isinstance(parameters, Cells):
        return cell_rows(parameters, model.sizes, model.fine, rng)
    inside = [redrawn(value, *limits, rng) for value, limits in zip(parameters, model.limits, strict=True)]
    if model.kind == "binary":
        return binary_rows(inside[0], model.rows, rng)
    return normal_rows(inside[0], inside[1], model.rows, model.fine[0], rng)
