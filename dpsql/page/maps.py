"""Dependence of pairs as charts: a map of all, and the strongest with their bands."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dpsql.numerics.arrays import FloatArray
from dpsql.page.markup import text
from dpsql.page.svg import WIDTH, fitted, frame, label_at, width_of

_MAX_NUMBERS = 14
_WIDEST_NAME = 92.0
_ROW = 18


def heat_map(values: FloatArray, names: Sequence[str], title: str) -> str:
    """Return a map of dependences from 0 to 1: the darker the stronger; NaN is a dot."""
    count = len(names)
    size = min(11.0, max(6.5, 200 / max(count, 1)))
    margin = min(_WIDEST_NAME, max((width_of(name, size) for name in names), default=0.0)) + 8
    cell = min(52.0, (WIDTH - margin - 2) / max(count, 1))
    style = f'class="label" style="font-size:{size:.1f}px"'
    parts = []
    for i, name in enumerate(names):
        middle = margin + (i + 0.5) * cell
        shown = text(fitted(name, _WIDEST_NAME, size))
        parts.append(f'<text {style} x="{margin - 4:.1f}" y="{middle + 3.5:.1f}" text-anchor="end">{shown}</text>')
        parts.append(f'<text {style} transform="translate({middle + 3.5:.1f} {margin - 4:.1f}) rotate(-90)">{shown}</text>')
    cells = [
        (float(values[i, j]), margin + j * cell, margin + i * cell) for i, j in itertools.permutations(range(count), 2)
    ]
    side = f"{cell - 1:.1f}"
    parts.append('<g class="heat">')
    parts += [
        f'<path d="M{x + 0.5:.1f} {y + 0.5:.1f}h{side}v{side}h-{side}z" fill-opacity="{min(1.0, 0.05 + 0.95 * value):.2f}"/>'
        for value, x, y in cells
        # NaN is not equal to itself: such a cell has no colour.
        if value == value
    ]
    parts.append('</g><g class="value">')
    for value, x, y in cells:
        if value != value:
            parts.append(f'<circle class="unknown" cx="{x + cell / 2:.1f}" cy="{y + cell / 2:.1f}" r="1.2"/>')
        # In a map of many columns there is no room for numbers.
        elif count <= _MAX_NUMBERS:
            strong = ' class="strong"' if value > 0.5 else ""
            parts.append(f'<text{strong} x="{x + cell / 2:.1f}" y="{y + cell / 2 + 3.5:.1f}">{_two_digits(value)}</text>')
    parts.append("</g>")
    known = [(values[i, j], i, j) for i, j in itertools.combinations(range(count), 2) if values[i, j] == values[i, j]]
    strongest = max(known, default=None)
    label = title
    if strongest is not None:
        label += f": the strongest of {len(known)} pairs is {names[strongest[1]]} and {names[strongest[2]]}, {strongest[0]:.2f}"
    return frame(margin + count * cell + 2, "".join(parts), label)


def _two_digits(value: float) -> str:
    """Return a number from 0 to 1 in as little room as there is.

    Examples
    --------
    >>> _two_digits(0.004), _two_digits(0.25), _two_digits(0.999)
    ('0', '.25', '1')
    """
    return "0" if value < 0.005 else "1" if value >= 0.995 else f"{value:.2f}"[1:]


def intervals(rows: Sequence[tuple[str, Sequence[float]]], title: str) -> str:
    """Return values with their bands on a scale from 0: (value, low, high, synthetic, raw) a line; NaN is left out."""
    labels = [fitted(label, 190.0) for label, _ in rows]
    left = max((width_of(label) for label in labels), default=0.0) + 8
    high = max((v for _, values in rows for v in values if v == v), default=1.0) or 1.0
    numbers = [f"{values[0]:.3f}" for _, values in rows]
    right = max((width_of(n) for n in numbers), default=0.0) + 8

    def x(value: float) -> float:
        return round(left + (WIDTH - left - right) * value / high, 1)

    parts = [f'<line class="axis" x1="{x(0.0)}" x2="{x(0.0)}" y1="0" y2="{len(rows) * _ROW}"/>']
    for line, (_, (value, least, most, synthetic, raw)) in enumerate(rows):
        middle = line * _ROW + _ROW / 2
        parts.append(label_at(left - 6, middle + 4, labels[line], "end", "label"))
        if synthetic == synthetic:
            parts.append(f'<rect class="bar" x="{x(0.0)}" y="{middle - 5:g}" width="{x(synthetic) - x(0.0):.1f}" height="10"/>')
        if least == least:
            parts.append(f'<line class="band" x1="{x(least)}" x2="{x(most)}" y1="{middle:g}" y2="{middle:g}"/>')
        parts.append(f'<circle class="point" cx="{x(value)}" cy="{middle:g}" r="3"/>')
        if raw == raw:
            parts.append(f'<line class="raw" x1="{x(raw)}" x2="{x(raw)}" y1="{middle - 7:g}" y2="{middle + 7:g}"/>')
        parts.append(label_at(WIDTH - 1, middle + 4, numbers[line], "end"))
    return frame(len(rows) * _ROW + 2, "".join(parts), title)
