"""What the report says of linked tables: a part a table, and a part on their links. Post-processing of a release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from dpsql.answers import linked_words, report_figures, report_maps
from dpsql.answers.linked_figures import LinkedFigures, Measure, gather
from dpsql.domains.attributes import Attribute, Domain
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page import dependence, figures
from dpsql.page.content import Content, Link, LinkedTable, LinkedTables, Listing
from dpsql.page.figures import Column
from dpsql.page.markup import number
from dpsql.release.ordered import gap_edges
from dpsql.release.store import Release
from dpsql.running.progress import Progress
from dpsql.session.instance import Context

MOST_MAPPED, MOST_CHARTS, MOST_FIRST = 24, 40, 12
_BARS, _PAIRS, _MEANS, _VALUES = 12, 40, 6, 12
_SURE = 3.0  # times the noise: fewer units than that have no mean
_UNITS = (("µs", 1.0), ("s", 1e6), ("min", 6e7), ("h", 3.6e9), ("days", 8.64e10))
_ERRORS = (
    "What", "Tables", "Cells", "Noise scale", "Mean error", "95 % within\N{NO-BREAK SPACE}±", "Synthetic from released",
    "Noise alone",
)  # fmt: skip


def content(
    context: Context,
    bought: Release,
    progress: Progress,
    *,
    budget: tuple[float, float] | None,
    ledger: Listing | None,
    chain_holds: bool | None,
) -> Content:
    """Return what the page of a release says.

    Notes
    -----
    Privacy: post-processing; nothing but the release is read.
    """
    linked_figures = gather(context, bought, progress)
    plan, linked = linked_figures.plan, linked_figures.linked
    with progress.stage("dependence"):
        tables = [_table(linked_figures, place) for place in range(len(linked.tables))]
        links = [_link(linked_figures, place) for place in range(1, len(linked.tables))]
    named = Domain(
        tuple(replace(a, name=f"{table.name}.{a.name}") for table in linked.tables for a in table.domain.attributes)
    )
    bounding = linked_words.bounding(linked)
    return Content(
        manifest=bought.manifest,
        method=plan.method,
        budget=budget,
        rows=float(linked_figures.model.units),
        public_total=plan.public_total,
        counted="; ".join([f"{bounding[0][0].upper()}{bounding[0][1:]}", *bounding[1:]]) + ".",
        measured=_measured(linked_figures),
        domain=report_figures.domain_listing(named),
        ledger=ledger,
        chain_holds=chain_holds,
        synthetic_rows=round(sum(linked_figures.rows)),
        notes=[str(note) for note in bought.manifest.get("notes", [])],
        linked=LinkedTables(_overview(linked_figures), _about(linked_figures, bought), tables, links, linked.independent),
    )


# -- the whole


def _overview(linked_figures: LinkedFigures) -> Listing:
    rows = []
    for place, table in enumerate(linked_figures.linked.tables):
        parent = "–" if table.parent is None else linked_figures.linked.tables[table.parent].name
        link = "–" if table.parent is None else f"{table.link} = {table.referred}"
        columns = ", ".join(table.domain.names) or "–"
        rows.append((table.name, parent, link, "–" if place == 0 else f"{table.most:,}", table.order or "–", columns,
                     number(float(round(linked_figures.rows[place])))))  # fmt: skip
    head = ["Table", "Belongs to", "Link", "Rows of a parent, at most", "In the order of", "Measured columns", "Synthetic rows"]
    return Listing("", head, rows, (3, 6), "Rows are those of the synthetic database; no table of the source was counted for it.")


def _about(linked_figures: LinkedFigures, bought: Release) -> list[str]:
    sentences = [
        "The synthetic database on this page is the one that the release gives without a seed. Its rows are drawn from the "
        "released numbers alone, with new keys; every row's parent is there. Another one is free: "
        f"FROM dp_sample('{bought.identifier}', into_schema := 'another', seed := 1). A seed decides which rows are drawn, and the "
        "same one gives the same rows. The noise of the release has no seed: it came from the operating system's entropy."
    ]
    if linked_figures.drawn < linked_figures.model.units:
        sentences.append(f"For this page {linked_figures.drawn:,} of its units were drawn, and their numbers are scaled up.")
    return sentences


def _measured(linked_figures: LinkedFigures) -> Listing:
    """Return what was measured in all tables: a line for blocks of a kind with the same noise."""
    rows = _lines(linked_figures, list(linked_figures.measures.values()))
    counted = "rows" if linked_figures.linked.independent else "units"
    note = (
        f"Noise is discrete {linked_figures.plan.mechanism.title()}, integer and independent, on every cell, on empty ones too; "
        f"scales are those of numbers of {counted}. All of it was charged once, as one release."
    )
    return Listing("Measurements", _ERRORS[:6], [row[:6] for row in rows], (1, 2, 3, 4, 5), note)


def _lines(linked_figures: LinkedFigures, measures: Sequence[Measure]) -> list[tuple[str, ...]]:
    def kind(measure: Measure) -> tuple[int, float]:
        return list(linked_words.KINDS).index(measure.block.kind), measure.scale

    rows: list[tuple[str, ...]] = []
    for (place, scale), group in groupby(sorted(measures, key=kind), kind):
        some, what = list(group), list(linked_words.KINDS.values())[place]
        distances = [distance for table in some if (distance := linked_figures.distance(table)) is not None]
        alone = [linked_figures.noise_distance(table) for table in some if table.synthetic is not None]
        rows.append(
            (
                what if len(some) == 1 else linked_words.plural(what), f"{len(some):,}",
                f"{sum(table.released.size for table in some):,}", number(scale), number(linked_figures.mean_error(some[0]), 3),
                number(linked_figures.half_width(some[0]), 3), number(_mean(distances), 3), number(_mean(alone), 3),
            )  # fmt: skip
        )
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


# -- tables


def _table(linked_figures: LinkedFigures, place: int) -> LinkedTable:
    table, names = linked_figures.linked.tables[place], linked_figures.names(place)
    measures = [measure for block, measure in linked_figures.measures.items() if place == (block.right or block.left)[0]]
    measured, synthetic = linked_figures.of_table(place)
    strengths = dependence.released_strengths(measured, len(names))
    charted = dependence.most_dependent(strengths, len(names), MOST_CHARTS)
    mapped = dependence.most_dependent(strengths, len(names), MOST_MAPPED)
    own = [i for i in charted if i < len(table.domain.attributes)]
    pairs: dict[Clique, FloatArray] = {pair: counts for pair, counts in synthetic.items() if len(pair) == 2}
    missing = sum(measure.synthetic is None for measure in measures)
    counted = "rows" if linked_figures.linked.independent else "units"
    note = f"Distances are shares of {counted} in a wrong cell, in the mean over the tables of a line."
    if missing:
        note += f" {missing:,} tables were not compared with the synthetic rows."
    about = [] if measures else ["It has no declared columns: its keys and the number of its rows alone are in the copy."]
    errors = Listing("", [], [])
    if measures:
        errors = Listing("Errors", _ERRORS, _lines(linked_figures, measures), tuple(range(1, 8)), note)
    return LinkedTable(
        name=table.name,
        about=about,
        errors=errors,
        rules=(*table.rules, *table.across, *table.counted),
        columns=[_chart(linked_figures, table.domain, i, linked_figures.find("one", (place, i))) for i in own],
        left_out=[name for i, name in enumerate(table.domain.names) if i not in own],
        maps=report_maps.maps(names, mapped, strengths, measured, pairs, None) if pairs else None,
    )


def _chart(linked_figures: LinkedFigures, domain: Domain, i: int, measure: Measure | None, name: str | None = None) -> Column:
    column = figures.column_of(domain, i, linked_figures.one_way(measure), None if measure is None else measure.synthetic, None)
    return column if name is None else replace(column, name=name)


# -- links


def _link(linked_figures: LinkedFigures, child: int) -> Link:
    linked = linked_figures.linked
    table = linked.tables[child]
    above = table.parent or 0
    parent = linked.tables[above]
    listings = [
        _means(linked_figures, child),
        _pairs(linked_figures, f"{table.name} by columns of the rows above", "across", child),
        _pairs(linked_figures, f"Two different rows of {table.name} of one row of {parent.name}", "sibling", child),
        _pairs(linked_figures, f"A row of {table.name} and the next one, by {table.order}", "next", child),
    ]
    return Link(
        title=f"{table.name} of {parent.name}",
        about=_mean_words(linked_figures, child),
        fan_out=_fan_out(linked_figures, child),
        listings=[listing for listing in listings if listing is not None],
        ordered=_in_order(linked_figures, child),
    )


def _fan_out(linked_figures: LinkedFigures, child: int) -> Column:
    """Return the chart of the number of children: released and synthetic, with the band of the noise; large numbers together."""
    linked = linked_figures.linked
    above = linked.tables[child].parent or 0
    measure = linked_figures.find("one", (above, linked.shape.fan_out(child)))
    most = linked.tables[child].most
    step = math.ceil((most + 1) / _BARS) if most >= _BARS else 1
    starts = [0, *range(1, most + 1, step)]
    labels = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, [*(s - 1 for s in starts[1:]), most], strict=True)]
    about = f"at most {most:,} rows of {linked.tables[child].name}"
    name = linked_figures.fan_out(child)
    if measure is None:
        return Column(name, about, labels, in_order=True)
    width = _widths(linked_figures, measure, np.diff([*starts, most + 1]))
    synthetic = None if measure.synthetic is None else np.add.reduceat(measure.synthetic, starts)
    return Column(name, about, labels, np.add.reduceat(measure.released, starts), width, synthetic, in_order=True)


def _mean_words(linked_figures: LinkedFigures, child: int) -> list[str]:
    linked = linked_figures.linked
    table = linked.tables[child]
    above = table.parent or 0
    sentences = [f"{table.link} of {table.name} holds {table.referred} of {linked.tables[above].name}."]
    measure = linked_figures.find("one", (above, linked.shape.fan_out(child)))
    if measure is not None:
        mean, width = _ratio(measure.released, linked_figures.deviation(measure))
        drawn, _ = _ratio(measure.synthetic, 0.0) if measure.synthetic is not None else (None, None)
        within = "" if width is None else f" ± {number(width, 3)} (95 %)"
        sentences.append(f"Rows of {table.name} in the mean: released {number(mean, 4)}{within}, synthetic {number(drawn, 4)}.")
        distance = linked_figures.distance(measure)
        if distance is not None:
            alone = number(linked_figures.noise_distance(measure), 3)
            apart = number(distance, 3)
            sentences.append(f"The two distributions are {apart} apart; noise alone makes {alone} of the released one.")
    return sentences


def _ratio(counts: FloatArray, deviation: float) -> tuple[float | None, float | None]:
    """Return the mean number that a distribution over 0, 1, ... has, and half its 95 % band; None where noise hides it.

    Examples
    --------
    >>> _ratio(np.array([10.0, 0.0, 10.0]), 0.0)
    (1.0, None)
    """
    numbers, total = np.arange(counts.size), float(counts.sum())
    if total <= max(_SURE * deviation * math.sqrt(counts.size), 0.0):
        return None, None
    mean = min(max(float((numbers * counts).sum()) / total, 0.0), float(counts.size - 1))
    spread = deviation * math.sqrt(float(((numbers - mean) ** 2).sum())) / total  # of a ratio, to first order
    return mean, figures.NORMAL * spread if deviation else None


def _means(linked_figures: LinkedFigures, child: int) -> Listing | None:
    """Return mean numbers of children by values of the parent's columns, of those first that they depend on most."""
    linked = linked_figures.linked
    above = linked.tables[child].parent or 0
    domain, place = linked.tables[above].domain, linked.shape.fan_out(child)
    pairs = [(i, linked_figures.find("pair", (above, i), (above, place))) for i in range(len(domain.attributes))]
    measures = [(i, measure) for i, measure in pairs if measure]
    ranked = sorted(measures, key=lambda item: -_told(linked_figures, item[1]) if item[1].table.size <= dependence.LARGE else 1.0)
    rows: list[tuple[str, ...]] = []
    for i, measure in ranked[:_MEANS]:
        shown = figures.grouping(domain.attributes[i], measure.table.sum(1), _VALUES)
        for label, codes in zip(shown.labels, shown.codes, strict=True):
            mean, width = _ratio(measure.table[codes].sum(0), linked_figures.deviation_of_table(measure) * math.sqrt(len(codes)))
            drawn = None if measure.drawn is None else _ratio(measure.drawn[codes].sum(0), 0.0)[0]
            rows.append((domain.names[i], label, number(mean, 3), number(width, 2), number(drawn, 3)))
    if not rows:
        return None
    parent, name = linked.tables[above].name, linked.tables[child].name
    head = [f"Column of {parent}", "Value", "Released", "± 95 %", "Synthetic"]
    note = "Where noise hides how many units have a value, there is no released mean."
    return Listing(f"Rows of {name} in the mean, by columns of {parent}", head, rows, (2, 3, 4), note)


def _told(linked_figures: LinkedFigures, measure: Measure) -> float:
    strength, _ = linked_figures.strength(measure)
    return strength.value if strength.told_apart else 0.0


def _pairs(linked_figures: LinkedFigures, title: str, kind: str, child: int) -> Listing | None:
    """Return the strongest pairs of a kind, with their bands."""
    some = [
        measure for block, measure in linked_figures.measures.items()
        if block.kind == kind and (block.right or block.left)[0] == child and measure.synthetic is not None
    ]  # fmt: skip
    if not some:
        return None
    strengths = [linked_figures.strength(measure) for measure in some]
    low, high = dependence.bands([released for released, _ in strengths])
    order = sorted(range(len(some)), key=lambda i: -strengths[i][0].value if strengths[i][0].told_apart else 0.0)
    rows = []
    for i in order[:_PAIRS]:
        (released, synthetic), block = strengths[i], some[i].block
        band = "–" if low[i] != low[i] else f"{low[i]:.3f} to {high[i]:.3f}"
        value = released.value if released.told_apart else 0.0
        shown = "–" if synthetic is None else f"{synthetic.value:.3f}"
        right = block.right or block.left
        rows.append((
            _name(linked_figures, block.left), _name(linked_figures, right), f"{value:.3f}", band, shown,
            number(linked_figures.distance(some[i]), 3), number(linked_figures.noise_distance(some[i]), 3),
        ))  # fmt: skip
    note = (
        "Cramér's V: 0 where two columns are independent, 1 where one follows from the other; of pairs that cannot be told from "
        "independent ones under this noise 0 is shown."
    )
    if len(some) > _PAIRS:
        note += f" Shown are the {_PAIRS} strongest of {len(some):,}."
    head = ["Column", "With", "Released V", "95 % band", "Synthetic V", "Synthetic from released", "Noise alone"]
    return Listing(title, head, rows, (2, 3, 4, 5, 6), note)


def _name(linked_figures: LinkedFigures, place: tuple[int, int]) -> str:
    return f"{linked_figures.linked.tables[place[0]].name}.{linked_figures.names(place[0])[place[1]]}"


# -- order


def _in_order(linked_figures: LinkedFigures, child: int) -> list[Column]:
    """Return charts of the first rows, and of how far the next one is."""
    table = linked_figures.linked.tables[child]
    if table.order_place is None:
        return []
    charts = [
        _chart(linked_figures, table.domain, i, measure, f"{name} of the first row")
        for i, name in enumerate(table.domain.names[:MOST_FIRST])
        if (measure := linked_figures.find("first", (child, i))) is not None
    ]
    gaps = linked_figures.find("gap", (child, table.order_place))
    return [*charts, *([] if gaps is None else [_gaps(linked_figures, table.domain.attributes[table.order_place], gaps)])]


def _gaps(linked_figures: LinkedFigures, attribute: Attribute, measure: Measure) -> Column:
    """Return the chart of the time between rows; neighbouring cells are put together, three by three."""
    edges = gap_edges(attribute)
    starts = [0, *range(1, measure.released.size, 3)]
    texts = ["0", *(_far(attribute, float(edges[start - 1])) for start in starts[1:])]
    labels = [f"from {a} to {b}" for a, b in zip(texts, texts[1:], strict=False)] + [f"from {texts[-1]}"]
    width = _widths(linked_figures, measure, np.diff([*starts, measure.released.size]))
    synthetic = None if measure.synthetic is None else np.add.reduceat(measure.synthetic, starts)
    return Column(
        f"{attribute.name}: how far the next row is", "longer and longer steps", labels,
        np.add.reduceat(measure.released, starts), width, synthetic, in_order=True,
    )  # fmt: skip


def _widths(linked_figures: LinkedFigures, measure: Measure, cells: np.ndarray) -> np.ndarray:
    """Return half the width of the band of each bar, of which ``cells`` says how many cells it puts together."""
    alone, together = linked_figures.half_width(measure), figures.half_width(linked_figures.deviation(measure))
    return np.where(cells == 1, alone, together * np.sqrt(cells))


def _far(attribute: Attribute, distance: float) -> str:
    """Return a distance in words: days of dates, the fitting unit of times, and numbers as they are."""
    if attribute.kind != "temporal":
        return number(distance, 3)
    if attribute.sql_type == "DATE":
        return f"{number(distance, 3)} days"
    unit, size = next((pair for pair in reversed(_UNITS) if distance >= pair[1]), _UNITS[0])
    return f"{number(distance / size, 3)} {unit}"
