"""What `modips` measures of a table: which statistics, the exact ones, the share of epsilon of each, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dpsql.domains.attributes import FINE, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import moments
from dpsql.methods.base import Counted
from dpsql.numerics.arrays import IntArray

SHARES = (0.25, 0.5, 0.25)
"""Of epsilon for counts, sums and moments: a sum is shared by the rows of one cell, a moment by all rows."""


def kind_of(domain: Domain) -> str:
    """Return 'binary', 'normal' or 'mixed'; see `dpsql.methods.modips.method`."""
    if len(domain.attributes) == 1:
        only = domain.attributes[0]
        if only.kind == "numeric":
            return "normal"
        if only.size == 2:
            return "binary"
    return "mixed"


def exact_statistics(counted: Counted, domain: Domain) -> list[IntArray]:
    """Return the exact parts of one set, before noise.

    Notes
    -----
    Privacy: secret. What one row can change: `dpsql.mechanisms.moments`.
    """
    table, kind = counted.tables[categorical_columns(domain)], kind_of(domain)
    if kind == "binary":
        return moments.binary_statistics(table)
    if kind == "mixed":
        return moments.mixed_statistics(table, counted.sums, counted.products)
    if counted.sums is None or counted.products is None:
        raise ArgumentError("counted", None, "sums and products of the numeric column are required")
    return moments.normal_statistics(counted.total, int(counted.sums.sum()), int(counted.products[0]))


def categorical_columns(domain: Domain) -> tuple[int, ...]:
    """Return the positions of the attributes that are no numbers."""
    return tuple(i for i, attribute in enumerate(domain.attributes) if attribute.kind != "numeric")


def numeric_columns(domain: Domain) -> tuple[int, ...]:
    """Return the positions of the attributes whose values are summed."""
    return tuple(i for i, attribute in enumerate(domain.attributes) if attribute.kind == "numeric")


def parts_of(domain: Domain) -> tuple[moments.Part, ...]:
    """Return the parts of what is released of a table."""
    return moments.parts(kind_of(domain), domain.cells(categorical_columns(domain)), len(numeric_columns(domain)))


def shares_of(domain: Domain, released: Sequence[moments.Part], chosen: Mapping[str, Any]) -> list[Fraction]:
    """Return the share of epsilon of each part, exact, with sum 1."""
    kind = kind_of(domain)
    if kind == "binary":
        return [Fraction(1)]
    if kind == "normal":
        if chosen["budget"] == "split":
            return [Fraction(1, 2)] * 2
        # One vector (mean, variance) in the column's units with L1 sensitivity (R + R^2) / n and noise (R + R^2) / (n epsilon) on
        # both: the mean, which changes by R / n, costs 1 / (1 + R) of epsilon, and the variance R / (1 + R).
        edges = domain.attributes[0].edges
        width = Fraction(float(edges[-1])) - Fraction(float(edges[0]))
        return [1 / (1 + width), width / (1 + width)]
    shares = SHARES if chosen["shares"] == "auto" else chosen["shares"]
    named = {name: Fraction(repr(float(share))) for name, share in zip(("counts", "sums", "moments"), shares, strict=True)}
    whole = sum((named[part.name] for part in released), Fraction(0))
    return [named[part.name] / whole for part in released]


def limits_of(kind: str, rows: int, scales: Sequence[float]) -> tuple[tuple[float, float, float], ...]:
    """Return the range of each number, and its noise scale."""
    if kind == "binary":
        return ((0.0, float(rows), scales[0]),)
    # s^2 is largest with half of the rows at each bound
    largest = (rows // 2) * ((rows + 1) // 2) / (rows * (rows - 1)) if rows > 1 else 0.25
    return (0.0, 1.0, scales[0] / (FINE * max(rows, 1))), (0.0, largest, scales[1] / (FINE * max(rows, 1)))


def numbers_of(kind: str, rows: int, block: Sequence[IntArray]) -> tuple[float, ...]:
    """Return the released numbers: a count, or mean and variance in units of the bounds' distance."""
    if kind == "binary":
        return (float(block[0][0]),)
    n = max(rows, 1)
    # The middle of each step. A step of the variance is TOP^2 / (FINE n) of z, which spans FINE.
    return (int(block[0][0]) / n + 0.5) / FINE, (int(block[1][0]) + 0.5) / (FINE * n) * (moments.TOP / FINE) ** 2


def clamped(numbers: tuple[float, ...], limits: Sequence[tuple[float, float, float]]) -> tuple[float, ...]:
    """Return each number, or the end of its range that it lies beyond."""
    return tuple(min(max(number, low), high) for number, (low, high, _) in zip(numbers, limits, strict=True))
