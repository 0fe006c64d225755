"""Parts of the page: tables, charts with their legend and numbers, cross-tables, dependence of pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dpsql.numerics.arrays import FloatArray
from dpsql.page import maps, svg
from dpsql.page.content import Listing, Maps
from dpsql.page.crosstab import CrossTable, breakable
from dpsql.page.figures import Column
from dpsql.page.markup import details, number, paragraphs, table, text

_STRONGEST = 12
_IN_NUMBERS = 40
_AROUND, _PLACE = 75, 290  # pixels of a chart's caption and notes, and of a place that several may share
_DARKEST = 0.42  # of the accent, under text


def listing(of: Listing) -> str:
    """Return a table with its heading and note."""
    title = f"<h3>{text(of.title)}</h3>" if of.title else ""
    return title + table(of.head, of.rows, numeric=of.numeric, label=of.title) + paragraphs(of.note)


def items(texts: Sequence[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{text(t)}</li>" for t in texts) + "</ul>"


def legend(columns: Sequence[Column]) -> str:
    """Return what the marks of the charts mean."""
    synthetic, released, banded, raw = (
        any(getattr(column, name) is not None for column in columns) for name in ("synthetic", "released", "half_width", "raw")
    )
    return keys(synthetic=synthetic, released=released, banded=banded, raw=raw, what="count")


def keys(*, synthetic: bool, released: bool, banded: bool, raw: bool, what: str, bar: bool = True) -> str:
    """Return a legend; ``bar`` says whether released figures are bars where there is no synthetic table."""
    entries = []
    if synthetic:
        entries.append(_key('<rect class="bar" x="4" y="1" width="14" height="12"/>') + "synthetic table")
    if released:
        mark = '<circle class="point" cx="11" cy="7" r="3.2"/>'
        if bar and not synthetic:
            mark = '<rect class="bar own" x="4" y="1" width="14" height="12"/>'
        entries.append(_key(mark) + f"released {what}")
    if banded:
        entries.append(_key('<line class="band" x1="2" x2="20" y1="7" y2="7"/>') + "95 % band of the noise")
    if raw:
        entries.append(_key('<line class="raw" x1="2" x2="20" y1="7" y2="7"/>') + "protected table (not private)")
    return '<ul class="legend">' + "".join(f"<li>{item}</li>" for item in entries) + "</ul>"


def _key(mark: str) -> str:
    return f'<svg viewBox="0 0 22 14" aria-hidden="true" class="chart">{mark}</svg>'


def figure(column: Column) -> str:
    """Return the chart of a column, and the numbers behind it."""
    names, series = ["value"], []
    for name, values in (
        ("released", column.released),
        ("± 95 %", column.half_width),
        ("synthetic", column.synthetic),
        ("raw, not private", column.raw),
    ):
        if values is not None:
            names.append(name)
            series.append([number(float(v)) for v in values])
    rows = [(label, *(s[i] for s in series)) for i, label in enumerate(column.labels)]
    numbers = details("Numbers", table(names, rows, numeric=range(1, len(names))))
    return (
        f"<figure><figcaption>{text(column.name)}<span>{text(column.about)}</span></figcaption>{svg.chart(column)}"
        f"{paragraphs(svg.note(column), column.note)}{numbers}</figure>"
    )


def figures(columns: Sequence[Column]) -> str:
    """Return the charts of columns, in their order; low ones that follow each other stand below each other in one place."""
    places: list[tuple[int, list[str]]] = []
    for column in columns:
        height = svg.height_of(column) + _AROUND
        if places and places[-1][0] + height <= _PLACE:
            places[-1] = (places[-1][0] + height, [*places[-1][1], figure(column)])
        else:
            places.append((height, [figure(column)]))
    return '<div class="charts">' + "".join(f"<div>{''.join(below)}</div>" for _, below in places) + "</div>"


def cross_table(of: CrossTable) -> str:
    """Return a cross-table, and beside a release of the custodian's the exact one."""
    shown = f"<h3>{text(of.title)}</h3>{paragraphs(of.note)}{_crossed(of, of.counts)}"
    if of.raw is not None:
        shown += f"<h3>{text(of.title)}: the protected table, not private</h3>{_crossed(of, of.raw)}"
    return shown


def _crossed(of: CrossTable, counts: FloatArray) -> str:
    """Return cells whose colour goes by their counts; each carries its names, for pages too narrow for the table."""
    # Cells that stand for several values would make all others pale.
    most = max(float(counts[of.single].max(initial=0.0)), 1e-9)
    heads = "".join(f'<th scope="col" class="n">{_head(head)}</th>' for head in of.heads)
    names = "".join(f'<th scope="col" rowspan="2">{text(name)}</th>' for name in of.rows)
    lines: list[str] = []
    before: tuple[str, ...] = ()
    for labels, line, single in zip(of.labels, counts, of.single, strict=True):
        first = "".join(f'<th scope="row"{_again(labels, before, i)}>{text(label)}</th>' for i, label in enumerate(labels))
        cells = "".join(
            f'<td class="n" data-of="{text(head)}"{_shade(value / most) if alone else ""}>{number(float(value))}</td>'
            for head, value, alone in zip(of.heads, line, single, strict=True)
        )
        lines.append(f"<tr>{first}{cells}</tr>")
        before = labels
    return (
        f'<div class="scroll crossed" tabindex="0" role="group" aria-label="{text(of.title)}"><table><thead>'
        f'<tr>{names}<th colspan="{len(of.heads)}" class="over">{text(of.across)}</th></tr><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _head(head: str) -> str:
    return " ".join("<wbr>".join(map(text, pieces)) for pieces in breakable(head))


def _shade(share: float) -> str:
    return f' style="--c:{share * _DARKEST:.0%}"' if share * _DARKEST >= 0.005 else ""


def _again(labels: tuple[str, ...], before: tuple[str, ...], place: int) -> str:
    """Return the mark of a label that is the one of the line above."""
    return ' class="again"' if place < len(labels) - 1 and labels[: place + 1] == before[: place + 1] else ""


def pairs(of: Maps) -> str:
    """Return maps of all pairs, and the strongest with their bands."""
    about = (
        "Cramér's V of every pair of columns: 0 where they are independent, 1 where one follows from the other. What the noise "
        "adds on average is subtracted. "
    )
    if of.released is not None:
        if of.pairs > 1:
            about += f"{of.below_noise} of {of.pairs} released pairs cannot be told from independent columns under this noise, "
            about += "and are shown as 0. "
        elif of.below_noise:
            about += "The pair cannot be told from independent columns under this noise, and is shown as 0. "
    if of.left_out:
        about += f"Shown are the {len(of.names)} columns {of.which}; {of.left_out} are left out. "
    if of.low is not None:
        about += (
            "The band of a pair holds the V of the exact table in about 95 of 100 cases. It is computed from the released table "
            "and the known law of the noise (by inverting a noncentral chi-square law). That the rows may be a sample "
            "themselves is not in it."
        )
    drawn = []
    # Of two columns a map would say no more than the line below.
    if len(of.names) > 2:
        for title, values in (
            ("Released tables", of.released), ("Synthetic table", of.synthetic), ("Protected table, not private", of.raw),
        ):
            if values is not None:
                drawn.append(f"<figure><figcaption>{text(title)}</figcaption>{maps.heat_map(values, of.names, title)}</figure>")
    ranked = _ranked(of)
    strongest = _strongest(of, ranked[:_STRONGEST])
    numbers = details("The strongest pairs in numbers", _in_numbers(of, ranked))
    return f'{paragraphs(about)}<div class="maps">{"".join(drawn)}{strongest}</div>{numbers}'


def _ranked(of: Maps) -> list[tuple[int, int]]:
    """Return the pairs that are known, the strongest first."""
    first = of.released if of.released is not None else of.synthetic
    if first is None:
        return []
    known = [pair for pair in itertools.combinations(range(len(of.names)), 2) if first[pair] == first[pair]]
    return sorted(known, key=lambda pair: -first[pair])


def _strongest(of: Maps, ranked: Sequence[tuple[int, int]]) -> str:
    if of.released is None or not ranked:
        return ""
    unknown = np.full(of.released.shape, np.nan)
    low, high = (unknown if end is None else end for end in (of.low, of.high))
    series = (of.released, low, high, of.synthetic, of.raw)
    rows = [(_pair(of, pair), [math.nan if v is None else float(v[pair]) for v in series]) for pair in ranked]
    title = "The pair" if len(ranked) == 1 else f"The {len(ranked)} strongest pairs" if len(ranked) == _STRONGEST else "The pairs"
    banded = bool(np.isfinite(low).any())
    shown = keys(synthetic=of.synthetic is not None, released=True, banded=banded, raw=of.raw is not None, what="V", bar=False)
    drawn = maps.intervals(rows, f"{title}: V with its band; the numbers are below")
    return f'<figure class="strongest"><figcaption>{title}</figcaption>{shown}{drawn}</figure>'


def _pair(of: Maps, pair: tuple[int, int]) -> str:
    return f"{of.names[pair[0]]} × {of.names[pair[1]]}"


def _in_numbers(of: Maps, ranked: Sequence[tuple[int, int]]) -> str:
    head, series = ["columns"], []
    for title, values in (("released", of.released), ("synthetic", of.synthetic), ("raw, not private", of.raw)):
        if values is None:
            continue
        head.append(title)
        series.append([f"{values[pair]:.3f}" if values[pair] == values[pair] else "–" for pair in ranked])
        if values is of.released and of.low is not None and of.high is not None:
            head.append("95 % band")
            series.append([_band(float(of.low[pair]), float(of.high[pair])) for pair in ranked])
    rows = [(_pair(of, pair), *(s[k] for s in series)) for k, pair in enumerate(ranked[:_IN_NUMBERS])]
    return table(head, rows, numeric=range(1, len(head)))


def _band(low: float, high: float) -> str:
    return "–" if low != low else f"{low:.3f} to {high:.3f}"
