"""The answer of a query on the page: a table of all groups, and a chart for each aggregate with its intervals.

Privacy: None: post-processing of released numbers.
"""

from __future__ import annotations

import math

from dpsql.page import parts, svg
from dpsql.page.content import Answer, Chart, Listing
from dpsql.page.markup import number, paragraphs, text
from dpsql.page.scales import ticks

MOST_LINES = 60
"""Groups that a chart shows."""
_ROW, _AXIS = 16, 18


def section(of: Answer) -> str:
    """Return table and charts."""
    shown = "".join(figure(chart) for chart in of.charts)
    charts = f'<div class="charts">{shown}</div>' if shown else ""
    return parts.listing(of.listing) + charts


def explanation(of: Answer) -> str:
    """Return how the answer came about."""
    return parts.listing(Listing("", ["About", "Explanation"], of.explained))


def figure(of: Chart) -> str:
    """Return a chart with its caption."""
    left = len(of.labels) - MOST_LINES
    note = f"The first {MOST_LINES} groups; {left:,} more are in the table." if left > 0 else ""
    about = "<span>lines: 95 % intervals of the noise</span>"
    return f"<div><figure><figcaption>{text(of.name)}{about}</figcaption>{_drawn(of)}{paragraphs(note)}</figure></div>"


def describe(of: Chart) -> str:
    """Return what a chart shows, in one sentence, for those who do not see it."""
    known = [i for i in range(len(of.labels)) if math.isfinite(of.values[i])]
    if not known:
        return f"{of.name}: no numbers."
    top = max(known, key=lambda i: float(of.values[i]))
    return (
        f"{of.name} of {len(of.labels)} groups; the largest is {number(float(of.values[top]))} ({of.labels[top]}), between "
        f"{number(float(of.low[top]))} and {number(float(of.high[top]))} in 95 % of cases. All numbers are in the table above."
    )


def _drawn(of: Chart) -> str:
    count = min(len(of.labels), MOST_LINES)
    ends = [float(v) for series in (of.values, of.low, of.high) for v in series[:count] if math.isfinite(v)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if of.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high <= low:
        low, high = low - 0.5 * max(abs(low), 1.0), high + 0.5 * max(abs(high), 1.0)
    labels = [svg.fitted(label, 150.0) for label in of.labels[:count]]
    numbers = [number(float(v)) for v in of.values[:count]]
    left = max(svg.width_of(label) for label in labels) + 8
    wide = svg.WIDTH - left - max(svg.width_of(shown) for shown in numbers) - 12

    def x(value: float) -> float:
        return round(left + wide * (value - low) / (high - low), 1)

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
        if of.from_zero:
            start, end = sorted((x(0.0), x(value)))
            body.append(f'<rect class="bar own" x="{start}" y="{top}" width="{max(end - start, 0.4):.1f}" height="{_ROW - 4}"/>')
        else:
            body.append(f'<circle class="point" cx="{x(value)}" cy="{middle:g}" r="3"/>')
        if math.isfinite(first) and math.isfinite(last):
            body.append(f'<line class="band" x1="{x(first)}" x2="{x(last)}" y1="{middle:g}" y2="{middle:g}"/>')
    return svg.frame(bottom + _AXIS, "".join(body), describe(of))
