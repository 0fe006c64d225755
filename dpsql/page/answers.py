"""The answer of a query on the page: a table of all groups, and a chart for each aggregate with its intervals.

Groups that follow each other in time are a line with a band, other ones bars or points with lines.

Privacy: None: post-processing of released numbers.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

from dpsql.page import parts, svg
from dpsql.page.content import Answer, Chart, Listing
from dpsql.page.markup import number, paragraphs, text
from dpsql.page.scales import axis_of, ticks

MOST_LINES = 60
"""Groups that a chart of bars or points shows."""
LONG = 12
"""Groups from which on the charts come before the table."""
_ROW, _AXIS = 16, 18
_LEAST_IN_TIME = 8
_DATED = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d(\.\d+)?)?)?")
_BEYOND = 3.0
"""Half widths of a usual interval, and spans of the values, that a chart shows beyond the values at most."""


def section(of: Answer) -> str:
    """Return table and charts."""
    shown = "".join(figure(chart) for chart in of.charts)
    charts = f'<div class="charts">{shown}</div>' if shown else ""
    return charts + parts.listing(of.listing) if of.groups > LONG else parts.listing(of.listing) + charts


def explanation(of: Answer) -> str:
    """Return how the answer came about."""
    return parts.listing(Listing("", ["About", "Explanation"], of.explained))


def figure(of: Chart) -> str:
    """Return a chart with its caption."""
    times = in_time(of)
    shown = len(of.labels) if times else min(len(of.labels), MOST_LINES)
    low, high = extent(of, shown)
    notes = [] if shown == len(of.labels) else [f"The first {shown} groups; {len(of.labels) - shown:,} more are in the table."]
    with np.errstate(invalid="ignore"):
        if bool(np.any(of.low[:shown] < low) or np.any(of.high[:shown] > high)):
            notes.append("Intervals that go beyond the chart are cut; the table has them.")
    drawn = _series(of, times, low, high) if times else _lines(of, shown, low, high)
    about = f"<span>{'band' if times else 'lines'}: 95 % intervals of the noise</span>"
    return f"<div><figure><figcaption>{text(of.name)}{about}</figcaption>{drawn}{paragraphs(*notes)}</figure></div>"


def in_time(of: Chart) -> list[int]:
    """Return the groups, NULL left out, where they are many moments in their order, else none."""
    known = [i for i, label in enumerate(of.labels) if label != "NULL"]
    labels = [of.labels[i] for i in known]
    if len(known) < _LEAST_IN_TIME or not all(_DATED.fullmatch(label) for label in labels):
        return []
    return known if all(a < b for a, b in itertools.pairwise(labels)) else []


def extent(of: Chart, shown: int) -> tuple[float, float]:
    """Return from where to where the axis goes: all values, and intervals as far as they leave something to be seen of those."""
    values = of.values[:shown][np.isfinite(of.values[:shown])]
    if not len(values):
        return 0.0, 1.0
    with np.errstate(invalid="ignore"):
        halves = (of.high[:shown] - of.low[:shown]) / 2
    usual = float(np.median(halves[np.isfinite(halves)])) if np.isfinite(halves).any() else 0.0
    low, high = float(values.min()), float(values.max())
    # A few wide intervals must not press all others together.
    beyond = _BEYOND * max(usual, high - low)
    ends = [end[:shown][np.isfinite(end[:shown])] for end in (of.low, of.high)]
    first = max(min([low, *ends[0].tolist()]), low - beyond)
    last = min(max([high, *ends[1].tolist()]), high + beyond)
    if of.from_zero:
        first, last = min(first, 0.0), max(last, 0.0)
    if last <= first:
        first, last = first - 0.5 * max(abs(first), 1.0), last + 0.5 * max(abs(last), 1.0)
    return first, last


def describe(of: Chart) -> str:
    """Return what a chart shows, in one sentence, for those who do not see it."""
    known = [i for i in range(len(of.labels)) if math.isfinite(of.values[i])]
    if not known:
        return f"{of.name}: no numbers."
    top = max(known, key=lambda i: float(of.values[i]))
    return (
        f"{of.name} of {len(of.labels)} groups; the largest is {number(float(of.values[top]))} ({of.labels[top]}), between "
        f"{number(float(of.low[top]))} and {number(float(of.high[top]))} in 95 % of cases. All numbers are in the table."
    )


def _series(of: Chart, groups: list[int], low: float, high: float) -> str:
    """Return a line over time with the band of its intervals; the line ends where there is no number."""
    axis = axis_of([of.labels[i] for i in groups])
    steps = [(at, number(at)) for at in ticks(high, low)]
    left = max(svg.width_of(shown) for _, shown in steps) + 8
    wide = svg.WIDTH - left - 6

    def y(value: float) -> float:
        return round(svg.TOP + svg.PLOT * (high - min(max(value, low), high)) / (high - low), 1)

    body = []
    for at, shown in steps:
        body.append(f'<line class="grid" x1="{left:.1f}" x2="{svg.WIDTH - 2}" y1="{y(at)}" y2="{y(at)}"/>')
        body.append(svg.label_at(left - 5, y(at) + 3.5, shown, "end"))
    # A group without a number, or without an interval, interrupts the line.
    known = [(left + wide * float(place), i) for place, i in zip(axis.edges, groups, strict=True)]
    finite = np.isfinite(of.values) & np.isfinite(of.low) & np.isfinite(of.high)
    for drawable, run in itertools.groupby(known, key=lambda one: bool(finite[one[1]])):
        points = list(run)
        if not drawable:
            continue
        above = [f"{x:.1f},{y(float(of.high[i]))}" for x, i in points]
        below = [f"{x:.1f},{y(float(of.low[i]))}" for x, i in reversed(points)]
        body.append(f'<polygon class="spread" points="{" ".join(above + below)}"/>')
        body.append(f'<polyline class="drawn" points="{" ".join(f"{x:.1f},{y(float(of.values[i]))}" for x, i in points)}"/>')
    body += svg.axis_labels(axis, left, wide, svg.TOP + svg.PLOT + 14, svg.WIDTH)
    return svg.frame(svg.TOP + svg.PLOT + svg.BOTTOM, "".join(body), describe(of))


def _lines(of: Chart, count: int, low: float, high: float) -> str:
    """Return a line for each group, with a bar or a point and its interval."""
    labels = [svg.fitted(label, 150.0) for label in of.labels[:count]]
    numbers = [number(float(v)) for v in of.values[:count]]
    left = max(svg.width_of(label) for label in labels) + 8
    wide = svg.WIDTH - left - max(svg.width_of(shown) for shown in numbers) - 12

    def x(value: float) -> float:
        return round(left + wide * (min(max(value, low), high) - low) / (high - low), 1)

    body, bottom = [], count * _ROW
    for at in ticks(high, low, 3):
        if low <= at <= high:
            body.append(f'<line class="grid" x1="{x(at)}" x2="{x(at)}" y1="0" y2="{bottom}"/>')
            body.append(svg.label_at(x(at), bottom + 13, number(at), "middle"))
    for line, (label, shown) in enumerate(zip(labels, numbers, strict=True)):
        value, first, last = (float(series[line]) for series in (of.values, of.low, of.high))
        top, middle = line * _ROW + 2, line * _ROW + _ROW / 2
        body.append(svg.label_at(left - 6, middle + 4, label, "end", "label"))
        body.append(svg.label_at(svg.WIDTH - 1, middle + 4, shown, "end"))
        if not math.isfinite(value):
            continue
        # Counts and sums begin at zero, and are bars; a mean has no zero to start from.
        if of.from_zero:
            start, end = sorted((x(0.0), x(value)))
            body.append(f'<rect class="bar own" x="{start}" y="{top}" width="{max(end - start, 0.4):.1f}" height="{_ROW - 4}"/>')
        else:
            body.append(f'<circle class="point" cx="{x(value)}" cy="{middle:g}" r="3"/>')
        if math.isfinite(first) and math.isfinite(last):
            body.append(f'<line class="band" x1="{x(first)}" x2="{x(last)}" y1="{middle:g}" y2="{middle:g}"/>')
    return svg.frame(bottom + _AXIS, "".join(body), describe(of))
