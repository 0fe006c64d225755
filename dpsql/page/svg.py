"""Charts as inline SVG: text stays text, colours follow the page (light, dark, print), and a table stands behind each.

Why not a plotting library: its SVG draws every letter as a path (30 to 60 KB a chart), knows no dark page and no screen reader.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dpsql.page.figures import Column, FloatArray
from dpsql.page.markup import number, shortened, text

WIDTH = 360
_ROW = 20
_LEFT, _RIGHT = 126, 44
_TOP, _PLOT, _BOTTOM = 8, 150, 34
_LETTER = 6.2  # width of a letter of 11 px, about
_MAX_NUMBERS = 12


def ticks(high: float, low: float = 0.0, count: int = 4) -> list[float]:
    """Return round numbers from low to high.

    Examples
    --------
    >>> ticks(930.0), ticks(3.0, -1.0)
    ([0.0, 250.0, 500.0, 750.0], [-1.0, 0.0, 1.0, 2.0, 3.0])
    """
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * power >= raw * 0.999)
    return [round(i * step, 10) for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def _extent(column: Column) -> tuple[float, float]:
    series = [s for s in (column.released, column.synthetic, column.raw) if s is not None and s.size]
    high = max((float(s.max()) for s in series), default=1.0)
    low = min(0.0, min((float(s.min()) for s in series), default=0.0))
    if column.released is not None and column.half_width is not None and column.released.size:
        high = max(high, float((column.released + column.half_width).max()))
    return low, high if high > low else low + 1.0


def describe(column: Column) -> str:
    """Return what a chart shows, in one sentence, for those who do not see it."""
    main = column.released if column.released is not None else column.synthetic
    if main is None or not main.size:
        return f"{column.name}: no counts."
    top = int(np.argmax(main))
    kind = "released" if column.released is not None else "synthetic"
    band = "" if column.half_width is None else f", plus or minus {number(float(column.half_width[top]))} in 95 % of cases"
    return (
        f"Distribution of {column.name} over {len(column.labels)} values; the largest {kind} count is {number(float(main[top]))} "
        f"({column.labels[top]}){band}. All numbers are in the table below the chart."
    )


def chart(column: Column) -> str:
    """Return the chart of a column: upright for bins, lying for categories."""
    return _upright(column) if column.ordered else _lying(column)


def _frame(height: float, body: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(label)}" class="chart">'
        f"<title>{text(label)}</title>{body}</svg>"
    )


def _marks(column: Column, i: int) -> tuple[float | None, float | None, float, float | None]:
    """Return bar (synthetic, else released), point (released where there is a bar of its own), half band, and raw count."""
    released = None if column.released is None else float(column.released[i])
    bar = released if column.synthetic is None else float(column.synthetic[i])
    band = 0.0 if column.half_width is None else float(column.half_width[i])
    return bar, released, band, None if column.raw is None else float(column.raw[i])


def _upright(column: Column) -> str:
    low, high = _extent(column)
    left, count = 46, len(column.labels)
    step = (WIDTH - left - 6) / max(count, 1)

    def y(value: float) -> float:
        return round(_TOP + _PLOT * (high - min(max(value, low), high)) / (high - low), 1)

    parts = [
        f'<line class="grid" x1="{left}" x2="{WIDTH - 6}" y1="{y(t)}" y2="{y(t)}"/>'
        f'<text class="tick" x="{left - 5}" y="{y(t) + 3.5}" text-anchor="end">{number(t)}</text>'
        for t in ticks(high, low)
    ]
    kind = "bar" if column.synthetic is not None else "bar own"
    for i in range(count):
        bar, point, band, raw = _marks(column, i)
        x, middle = left + i * step, round(left + (i + 0.5) * step, 1)
        if bar is not None:
            top, bottom = sorted((y(bar), y(0.0)))
            parts.append(
                f'<rect class="{kind}" x="{x + step * 0.1:.1f}" y="{top}" width="{step * 0.8:.1f}" height="{bottom - top:.1f}"/>'
            )
        if point is not None:
            if band:
                parts.append(f'<line class="band" x1="{middle}" x2="{middle}" y1="{y(point - band)}" y2="{y(point + band)}"/>')
            if column.synthetic is not None:
                parts.append(f'<circle class="point" cx="{middle}" cy="{y(point)}" r="{min(3.2, max(1.4, step * 0.3)):.1f}"/>')
        if raw is not None:
            parts.append(f'<line class="raw" x1="{x:.1f}" x2="{x + step:.1f}" y1="{y(raw)}" y2="{y(raw)}"/>')
    base = _TOP + _PLOT + 14
    parts.append(f'<line class="axis" x1="{left}" x2="{WIDTH - 6}" y1="{y(0.0)}" y2="{y(0.0)}"/>')
    parts += _bin_labels(column, left, step, base)
    return _frame(_TOP + _PLOT + _BOTTOM, "".join(parts), describe(column))


def _bin_labels(column: Column, left: float, step: float, base: float) -> list[str]:
    """Return starts of bins below the axis, as many as there is room for; NULL and '(other)' at the right on a second line."""
    starts = [(i, label[1:].split(",")[0]) for i, label in enumerate(column.labels) if label[:1] == "["]
    if all(label.endswith("-01-01") for _, label in starts):
        starts = [(i, label.removesuffix("-01-01")) for i, label in starts]
    special = [(i, label) for i, label in enumerate(column.labels) if label[:1] != "["]
    widest = max((len(label) for _, label in starts), default=1) * _LETTER + 8
    every = max(1, math.ceil(widest / step))
    found = [
        f'<text class="tick" x="{left + i * step:.1f}" y="{base}" text-anchor="middle">{text(label)}</text>'
        for i, label in starts[::every]
        if left + i * step < WIDTH - widest / 2
    ]
    for i, label in special:
        end = left + (i + 1) * step
        found.append(f'<text class="tick" x="{end:.1f}" y="{base + 14}" text-anchor="end">{text(shortened(label))} ↑</text>')
    return found


def _lying(column: Column) -> str:
    low, high = _extent(column)
    wide = WIDTH - _LEFT - _RIGHT

    def x(value: float) -> float:
        return round(_LEFT + wide * (min(max(value, low), high) - low) / (high - low), 1)

    parts = []
    kind = "bar" if column.synthetic is not None else "bar own"
    for i, label in enumerate(column.labels):
        bar, point, band, raw = _marks(column, i)
        top, middle = i * _ROW + 3, i * _ROW + _ROW / 2 + 1
        shown = shortened(label, int(_LEFT / _LETTER) - 1)
        parts.append(f'<text class="label" x="{_LEFT - 6}" y="{middle + 4:g}" text-anchor="end">{text(shown)}</text>')
        if bar is not None:
            start, end = sorted((x(bar), x(0.0)))
            parts.append(f'<rect class="{kind}" x="{start}" y="{top}" width="{end - start:.1f}" height="{_ROW - 5}"/>')
        if point is not None:
            if band:
                parts.append(f'<line class="band" y1="{middle:g}" y2="{middle:g}" x1="{x(point - band)}" x2="{x(point + band)}"/>')
            if column.synthetic is not None:
                parts.append(f'<circle class="point" cx="{x(point)}" cy="{middle:g}" r="3.2"/>')
        if raw is not None:
            parts.append(f'<line class="raw" x1="{x(raw)}" x2="{x(raw)}" y1="{top - 2}" y2="{top + _ROW - 3}"/>')
        shown_count = point if point is not None else bar
        parts.append(f'<text class="tick" x="{WIDTH - 1}" y="{middle + 4:g}" text-anchor="end">{number(shown_count)}</text>')
    height = len(column.labels) * _ROW + 4
    parts.append(f'<line class="axis" x1="{x(0.0)}" x2="{x(0.0)}" y1="0" y2="{height}"/>')
    return _frame(height, "".join(parts), describe(column))


def heat_map(values: FloatArray, names: Sequence[str], title: str) -> str:
    """Return a map of dependences from 0 to 1: the darker the stronger; NaN is a dot."""
    count = len(names)
    longest = max((len(shortened(name, 14)) for name in names), default=1)
    margin = min(100.0, longest * _LETTER + 8)
    cell = min(52.0, (WIDTH - margin - 2) / max(count, 1))
    style = f'class="label" style="font-size:{min(11.0, max(6.5, cell * 0.8)):.1f}px"'
    parts = []
    for i, name in enumerate(names):
        middle = margin + (i + 0.5) * cell
        shown = text(shortened(name, 14))
        parts.append(f'<text {style} x="{margin - 4:.1f}" y="{middle + 3.5:.1f}" text-anchor="end">{shown}</text>')
        parts.append(f'<text {style} transform="translate({middle + 3.5:.1f} {margin - 4:.1f}) rotate(-90)">{shown}</text>')
    for i, j in itertools.product(range(count), repeat=2):
        if i != j:
            parts.append(_heat_cell(float(values[i, j]), margin + j * cell, margin + i * cell, cell, numbers=count <= _MAX_NUMBERS))
    known = [(values[i, j], i, j) for i, j in itertools.combinations(range(count), 2) if values[i, j] == values[i, j]]
    strongest = max(known, default=None)
    label = title
    if strongest is not None:
        label += f": the strongest of {len(known)} pairs is {names[strongest[1]]} and {names[strongest[2]]}, {strongest[0]:.2f}"
    return _frame(margin + count * cell + 2, "".join(parts), label)


def _heat_cell(value: float, x: float, y: float, cell: float, *, numbers: bool) -> str:
    at = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}"'
    if value != value:
        return f'<circle class="unknown" cx="{x + cell / 2:.1f}" cy="{y + cell / 2:.1f}" r="1.2"/>'
    shape = f'<rect class="heat" {at} fill-opacity="{min(1.0, 0.05 + 0.95 * value):.2f}"/>'
    if numbers:
        strong = " strong" if value > 0.5 else ""
        shown = f"{value:.2f}"[1:] if value < 0.995 else "1"
        if value < 0.005:
            shown = "0"
        shape += (
            f'<text class="value{strong}" x="{x + cell / 2:.1f}" y="{y + cell / 2 + 3.5:.1f}" text-anchor="middle">{shown}</text>'
        )
    return shape
