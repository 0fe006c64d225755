"""Charts of fine histograms as steps: widths to scale, areas are shares of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dpsql.numerics.arrays import FloatArray
from dpsql.page.fine import Fine, densities, merged
from dpsql.page.markup import details, number, paragraphs, table, text
from dpsql.page.scales import ticks
from dpsql.page.svg import BOTTOM, PLOT, TOP, WIDTH, axis_labels, frame, label_at, width_of

_LINES = 24
_CUT = 3.0  # times the 90th percentile of steps: what is higher is cut


def height_of(series: Sequence[FloatArray | None]) -> float:
    """Return how high a chart is: as its highest step, unless a few steps tower above the others."""
    steps = np.concatenate([s[s > 0] for s in series if s is not None] or [np.ones(1)])
    return float(min(steps.max(), _CUT * np.quantile(steps, 0.9)))


def path(edges: FloatArray, heights: FloatArray) -> str:
    """Return the way along the steps from the left to the right end of an axis, in the units of both.

    Examples
    --------
    >>> path(np.array([0.0, 1.0, 3.0]), np.array([5.0, 2.0]))
    'M0.0 5.0H1.0V2.0H3.0'
    """
    # One decimal is a tenth of a pixel. A step as high as the one before needs no line of its own.
    parts, last = [f"M{edges[0]:.1f} {heights[0]:.1f}"], f"{heights[0]:.1f}"
    for place, height in zip(edges[1:-1], heights[1:], strict=True):
        shown = f"{height:.1f}"
        if shown != last:
            parts.append(f"H{place:.1f}V{shown}")
            last = shown
    return "".join([*parts, f"H{edges[-1]:.1f}"])


def _series(of: Fine) -> tuple[FloatArray | None, FloatArray | None, FloatArray | None]:
    """Return the heights of released bins, and of synthetic and raw fine ones."""
    released, synthetic, raw = (
        None if counts is None else densities(counts, edges)
        for counts, edges in ((of.released, of.cuts.bins), (of.synthetic, of.cuts.places), (of.raw, of.cuts.places))
    )
    return released, synthetic, raw


def chart(of: Fine) -> str:
    """Return the chart: released bins as an area, synthetic and raw rows as lines."""
    cut = of.cuts
    released, synthetic, raw = _series(of)
    high = height_of((released, synthetic, raw))
    marks = [(value, f"{number(100 * value, 3)} %") for value in ticks(high)]
    left = max(width_of(shown) for _, shown in marks) + 8
    wide = WIDTH - left - 6
    base = TOP + PLOT

    def y(values: FloatArray) -> FloatArray:
        heights: FloatArray = TOP + PLOT * (1 - np.clip(values / high, 0.0, 1.0))
        return heights

    parts = []
    for at, shown in marks:
        line = float(y(np.asarray([at]))[0])
        parts.append(f'<line class="grid" x1="{left:.1f}" x2="{WIDTH - 2}" y1="{line:.1f}" y2="{line:.1f}"/>')
        parts.append(label_at(left - 5, line + 3.5, shown, "end"))
    # Declared bins are an area, since what was released are these; fine bins are drawn over them as lines.
    if released is not None:
        bins = left + wide * cut.bins
        parts.append(f'<path class="bar" d="{path(bins, y(released))}V{base}H{bins[0]:.1f}Z"/>')
    for kind, series in (("raw", raw), ("drawn", synthetic)):
        if series is not None:
            parts.append(f'<path class="{kind}" d="{path(left + wide * cut.places, y(series))}"/>')
    parts.append(f'<line class="axis" x1="{left:.1f}" x2="{WIDTH - 2}" y1="{base}" y2="{base}"/>')
    parts += axis_labels(cut.axis, left, wide, base + 14, WIDTH)
    return frame(TOP + PLOT + BOTTOM, "".join(parts), describe(of))


def describe(of: Fine) -> str:
    """Return what a chart shows, in one sentence, for those who do not see it."""
    shares = of.synthetic / max(float(of.synthetic.sum()), 1.0)
    top = int(np.argmax(shares)) if len(shares) else 0
    return (
        f"Where values of {of.name} lie: {len(of.synthetic)} fine bins; the fullest of the synthetic table is "
        f"[{of.cuts.texts[top]}, {of.cuts.texts[top + 1]}) with {number(100 * float(shares[top]), 3)} % of its rows. "
        "Numbers are in the table below the chart."
    )


def note(of: Fine) -> str:
    """Return what to know to read a chart beyond its legend."""
    released, *lines = _series(of)
    high, widths = height_of((released, *lines)), np.diff(of.cuts.places) * 100
    over = max((float((widths * line)[line > high].max(initial=0.0)) for line in lines if line is not None), default=0.0)
    above = f"Steps above the chart are cut: one bin holds up to {number(100 * over, 3)} % of the rows." if over else ""
    return f"{above} {of.cuts.axis.note}".strip()


def figure(of: Fine) -> str:
    """Return the chart of a column, and numbers behind it."""
    head = ["value", "synthetic", *(["raw, not private"] if of.raw is not None else [])]
    rows = [
        (label, *("–" if share is None else f"{number(100 * share, 3)} %" for share in shares[: len(head) - 1]))
        for label, shares in merged(of, _LINES)
    ]
    numbers = details("Numbers", table(head, rows, numeric=range(1, len(head))))
    about = f"{len(of.cuts.texts) - 1} fine bins in {len(of.cuts.bins) - 1} declared"
    return (
        f"<figure><figcaption>{text(of.name)}<span>{text(about)}</span></figcaption>{chart(of)}"
        f"{paragraphs(note(of))}{numbers}</figure>"
    )


def legend(charts: Sequence[Fine]) -> str:
    """Return what the marks of the charts mean."""
    step = '<path class="{}" d="M2 10H9V4H20"/>'
    entries = [(step.format("drawn"), "synthetic rows")]
    if any(of.released is not None for of in charts):
        entries.append(('<rect class="bar" x="4" y="1" width="14" height="12"/>', "released counts of the declared bins"))
    if any(of.raw is not None for of in charts):
        entries.append((step.format("raw"), "protected table (not private)"))
    keys = (f'<svg viewBox="0 0 22 14" aria-hidden="true" class="chart">{mark}</svg>{words}' for mark, words in entries)
    return f'<ul class="legend">{"".join(f"<li>{key}</li>" for key in keys)}</ul>'


def section(charts: Sequence[Fine]) -> str:
    """Return legend and charts; nothing where there are none."""
    if not charts:
        return ""
    about = (
        "Counts of bins say nothing of where values lie inside a bin. Here each bin is cut into fine ones, with widths to scale: "
        "areas are shares of the rows that have a value, and the scale at the left is their share in a hundredth of the axis."
    )
    shown = itertools.chain.from_iterable(("<div>", figure(of), "</div>") for of in charts)
    return paragraphs(about) + legend(charts) + f'<div class="charts">{"".join(shown)}</div>'
