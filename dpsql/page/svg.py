"""Charts as inline SVG: text stays text, colours follow the page (light, dark, print), and a table stands behind each.

Why not a plotting library: its SVG draws every letter as a path (30 to 60 KB a chart), knows no dark page and no screen reader.
"""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np

from dpsql.numerics.arrays import FloatArray
from dpsql.page.figures import Column
from dpsql.page.markup import number, text
from dpsql.page.scales import Axis, axis_of, fitting, reference, ticks

WIDTH = 360
MOST_ROWS = 12
"""Lines of a chart of categories: about as high as a chart of bins."""
_ROW = 16
_WIDEST_LABEL = 165
TOP, PLOT, BOTTOM = 8, 150, 20
_SIZE = 11.0  # of letters
# Widths of letters of 1 px in DejaVu Sans, the widest of the usual fonts of systems.
_WIDTHS = {**dict.fromkeys("ijlI|!.,:;'", 0.34), **dict.fromkeys("ftr()[]-/ \"", 0.41), **dict.fromkeys("mwMW@%", 0.99)}


def width_of(label: str, size: float = _SIZE) -> float:
    """Return how wide a text is at most, about.

    Examples
    --------
    >>> width_of("ill", 10.0) < width_of("abc", 10.0) < width_of("ABC", 10.0) < width_of("統計局", 10.0)
    True
    """
    wide = 0.0
    for letter in label:
        if letter in _WIDTHS:
            wide += _WIDTHS[letter]
        elif unicodedata.combining(letter):
            continue
        elif ord(letter) > 0x2000 or unicodedata.east_asian_width(letter) in "WF":
            wide += 1.05
        else:
            wide += 0.79 if letter.isupper() or letter in "+<>=~#" else 0.64
    return wide * size


def fitted(label: str, room: float, size: float = _SIZE) -> str:
    """Cut a label to the room that there is.

    Examples
    --------
    >>> fitted("abcdefgh", 40.0), fitted("abc", 40.0)
    ('abcd…', 'abc')
    """
    if width_of(label, size) <= room:
        return label
    kept = label[:80]
    while kept and width_of(f"{kept}…", size) > room:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def _extent(*series: FloatArray | None) -> tuple[float, float]:
    """Return the least (or 0) and the largest of all numbers."""
    known = [s for s in series if s is not None and s.size]
    high = max((float(s.max()) for s in known), default=1.0)
    low = min(0.0, min((float(s.min()) for s in known), default=0.0))
    return low, high if high > low else low + 1.0


def _plus(values: FloatArray | None, more: FloatArray | None) -> FloatArray | None:
    return None if values is None or more is None else values + more


def describe(column: Column) -> str:
    """Return what a chart shows, in one sentence, for those who do not see it."""
    main = column.main
    if main is None or not main.size:
        return f"{column.name}: no counts."
    single = main.copy()
    # The bar of all other values is no value: it is not the largest.
    if column.others:
        single[len(main) - column.special - 1] = -np.inf
    top = int(np.argmax(single))
    kind = "released" if column.released is not None else "synthetic"
    band = "" if column.half_width is None else f", plus or minus {number(float(column.half_width[top]))} in 95 % of cases"
    return (
        f"Distribution of {column.name} over {len(column.labels)} values; the largest {kind} count is {number(float(main[top]))} "
        f"({column.labels[top]}){band}. All numbers are in the table below the chart."
    )


def chart(column: Column) -> str:
    """Return the chart of a column: upright for bins, lying for categories."""
    return _upright(column) if column.edges else _lying(column)


def height_of(column: Column) -> int:
    """Return the height of a chart."""
    if column.edges:
        return TOP + PLOT + BOTTOM
    shown, together = ranked(column)
    return len(shown) * _ROW + (_ROW + 2 if together else 0) + 2


def note(column: Column) -> str:
    """Return what to know to read the chart: where bins differ in width, what heights and the axis are."""
    if not column.edges:
        return ""
    axis = axis_of(column.edges)
    same = reference(np.diff(axis.edges))
    if same is None:
        return axis.note
    said = f"Bins are drawn to scale: areas are counts, and the scale at the left is that of bins as wide as {column.labels[same]}."
    return f"{said} {axis.note}".rstrip()


def frame(height: float, body: str, label: str) -> str:
    """Return an SVG with what it shows in words."""
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(label)}" class="chart">{body}</svg>'


def label_at(x: float, y: float, shown: str, anchor: str, kind: str = "tick") -> str:
    """Return a text of a chart."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{place}>{text(shown)}</text>'


def _marks(column: Column, i: int) -> tuple[float | None, float | None, float, float | None]:
    """Return bar (synthetic, else released), point (released where there is a bar of its own), half band, and raw count."""
    released = None if column.released is None else float(column.released[i])
    bar = released if column.synthetic is None else float(column.synthetic[i])
    band = 0.0 if column.half_width is None else float(column.half_width[i])
    return bar, released, band, None if column.raw is None else float(column.raw[i])


def _upright(column: Column) -> str:
    """Return bars over an axis, to scale; NULL and the like stand apart at the right, as wide as a usual bin."""
    axis = axis_of(column.edges)
    widths = np.diff(axis.edges)
    same = reference(widths)
    usual = float(widths[same]) if same is not None else float(widths.mean())
    special = column.labels[len(widths) :]
    # Areas are counts, so a bin of another width than the usual one is drawn lower or higher.
    factors = np.append(usual / widths if same is not None else np.ones(len(widths)), np.ones(len(special)))
    low, high = _extent(
        *(None if s is None else s * factors
          for s in (column.released, _plus(column.released, column.half_width), column.synthetic, column.raw))
    )
    steps = [(value, number(value)) for value in ticks(high, low)]
    left = max(width_of(shown) for _, shown in steps) + 8
    needed = [width_of(label) + 8 for label in special]
    wide = min((WIDTH - left - 4 - 10 * len(special)) / (1 + usual * len(special)), WIDTH - left - 4 - sum(needed))

    def y(value: float) -> float:
        return round(TOP + PLOT * (high - min(max(value, low), high)) / (high - low), 1)

    parts = []
    for at, shown in steps:
        parts.append(f'<line class="grid" x1="{left:.1f}" x2="{WIDTH - 2}" y1="{y(at)}" y2="{y(at)}"/>')
        parts.append(label_at(left - 5, y(at) + 3.5, shown, "end"))
    base, place = TOP + PLOT + 14, left + wide
    spans = [(left + wide * a, left + wide * b) for a, b in itertools.pairwise(axis.edges.tolist())]
    # NULL and the like have no place on the axis: each has a slot behind it.
    for room, label in zip(needed, special, strict=True):
        slot = max(room, usual * wide + 10)
        centre = place + (slot + 4) / 2
        parts.append(label_at(centre, base, label, "middle"))
        spans.append((centre - usual * wide / 2, centre + usual * wide / 2))
        place += slot
    kind = "bar" if column.synthetic is not None else "bar own"
    for i, (start, end) in enumerate(spans):
        bar, point, band, raw = (None if v is None else v * float(factors[i]) for v in _marks(column, i))
        gap, middle = min(0.1 * (end - start), 2.0), f"{(start + end) / 2:.1f}"
        if bar is not None:
            top, bottom = sorted((y(bar), y(0.0)))
            size = f'width="{max(end - start - 2 * gap, 0.4):.1f}" height="{bottom - top:.1f}"'
            parts.append(f'<rect class="{kind}" x="{start + gap:.1f}" y="{top}" {size}/>')
        if point is not None and band:
            parts.append(f'<line class="band" x1="{middle}" x2="{middle}" y1="{y(point - band)}" y2="{y(point + band)}"/>')
        if point is not None and column.synthetic is not None:
            parts.append(f'<circle class="point" cx="{middle}" cy="{y(point)}" r="{min(3.0, max(1.2, (end - start) * 0.3)):.1f}"/>')
        if raw is not None:
            parts.append(f'<line class="raw" x1="{start:.1f}" x2="{end:.1f}" y1="{y(raw)}" y2="{y(raw)}"/>')
    parts.append(f'<line class="axis" x1="{left:.1f}" x2="{WIDTH - 2}" y1="{y(0.0)}" y2="{y(0.0)}"/>')
    parts += axis_labels(axis, left, wide, base, WIDTH if not special else left + wide + 2)
    return frame(height_of(column), "".join(parts), describe(column))


def axis_labels(axis: Axis, left: float, wide: float, base: float, end: float) -> list[str]:
    """Return the texts under an axis: of the choices the first that fits, or what fits of the last."""
    lines: list[str] = []
    for choice in axis.ticks:
        spans = []
        for place, shown in choice:
            size = width_of(shown)
            start = min(max(left + place * wide - size / 2, 0.0), end - size)
            spans.append((start, start + size))
        stay = fitting(spans, 8.0)
        lines = [label_at(sum(spans[i]) / 2, base, choice[i][1], "middle") for i in stay]
        lines += [
            f'<line class="axis" x1="{x}" x2="{x}" y1="{TOP + PLOT}" y2="{TOP + PLOT + 3}"/>'
            for x in (f"{left + choice[i][0] * wide:.1f}" for i in stay)
        ]
        if len(stay) == len(choice):
            break
    return lines


def ranked(column: Column) -> tuple[list[int], list[int]]:
    """Return which labels of categories a chart shows one by one, the largest first and special ones last, and which in one line.

    Examples
    --------
    >>> ranked(Column("c", "", ["a", "b", "(3 other values)", "NULL"], np.array([1.0, 2.0, 9.0, 5.0]), others=3, special=1))
    ([1, 0, 3], [2])
    """
    count = len(column.labels) - column.special
    single = count - (column.others > 0)
    order = list(range(single))
    if column.main is not None and not column.in_order:
        order = np.argsort(-column.main[:single], kind="stable").tolist()
    together = list(range(single, count))
    room = MOST_ROWS - column.special
    if single + len(together) > room:
        order, together = order[: max(1, room - 1)], [*order[max(1, room - 1) :], *together]
    return [*order, *range(count, len(column.labels))], together


def _lying(column: Column) -> str:
    """Return one bar a line; the sum of values that are not shown is a number without a bar, and so sets no scale."""
    shown, together = ranked(column)

    def some(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[shown]

    # Bands count for the scale as well.
    low, high = _extent(
        some(column.released), _plus(some(column.released), some(column.half_width)), some(column.synthetic), some(column.raw)
    )
    counts = [_marks(column, i) for i in shown]
    numbers = [number(point if point is not None else bar) for bar, point, _, _ in counts]
    rest, more = "", 0
    # One of them may be a group already, of so many values.
    if together:
        more = column.others + len(together) - (column.others > 0)
        rest = number(float(column.main[together].sum())) if column.main is not None else "–"
    labels = [fitted(column.labels[i], _WIDEST_LABEL) for i in shown]
    left = max((width_of(label) for label in labels), default=0.0) + 6
    right = max((width_of(n) for n in (*numbers, rest)), default=0.0) + 8
    wide = WIDTH - left - right

    def x(value: float) -> float:
        return round(left + wide * (min(max(value, low), high) - low) / (high - low), 1)

    parts = []
    kind = "bar" if column.synthetic is not None else "bar own"
    for line, (label, (bar, point, band, raw)) in enumerate(zip(labels, counts, strict=True)):
        top, middle = line * _ROW + 2, line * _ROW + _ROW / 2
        parts.append(label_at(left - 6, middle + 4, label, "end", "label"))
        if bar is not None:
            start, end = sorted((x(bar), x(0.0)))
            parts.append(f'<rect class="{kind}" x="{start}" y="{top}" width="{end - start:.1f}" height="{_ROW - 4}"/>')
        if point is not None and band:
            parts.append(f'<line class="band" y1="{middle:g}" y2="{middle:g}" x1="{x(point - band)}" x2="{x(point + band)}"/>')
        if point is not None and column.synthetic is not None:
            parts.append(f'<circle class="point" cx="{x(point)}" cy="{middle:g}" r="3"/>')
        if raw is not None:
            parts.append(f'<line class="raw" x1="{x(raw)}" x2="{x(raw)}" y1="{top - 1}" y2="{top + _ROW - 3}"/>')
        parts.append(label_at(WIDTH - 1, middle + 4, numbers[line], "end"))
    height = len(labels) * _ROW
    parts.append(f'<line class="axis" x1="{x(0.0)}" x2="{x(0.0)}" y1="0" y2="{height}"/>')
    if together:
        parts.append(label_at(left, height + _ROW / 2 + 5, f"{more:,} other values, together", "start"))
        parts.append(label_at(WIDTH - 1, height + _ROW / 2 + 5, rest, "end"))
    return frame(height_of(column), "".join(parts), describe(column))
