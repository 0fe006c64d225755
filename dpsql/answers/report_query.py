"""What the report says about a query's release: the answer with intervals, charts, and how it came about. Post-processing."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dpsql.algebra.aggregates import AGGREGATES, LINEAR
from dpsql.answers import answered, cells, explaining, intervals, query_words
from dpsql.answers.held import of_release
from dpsql.domains import sqltypes
from dpsql.errors import DpsqlError
from dpsql.page.content import Answer, Chart, Listing
from dpsql.page.markup import number
from dpsql.protected.source import ProtectedSource
from dpsql.queries import stored
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED
from dpsql.queries.typing import types_of
from dpsql.release.store import Release
from dpsql.session.instance import Context
from dpsql.text import readable

LEVEL = 0.95
MOST_SHOWN = 1_000
"""Groups in the table."""
_NUMBERS = ("integer", "decimal", "float")
_NOTE = "Noise is discrete {}, integer and independent, on every counter of every group, on those of empty ones too."
_MIDNIGHT = r"\d{4,6}-\d\d-\d\d 00:00:00"
_TYPES = {"count_units": "BIGINT", **{one.answers: one.sql_type for one in AGGREGATES.values()}}


def answer(context: Context, bought: Release) -> Answer:
    """Return the answer that a release holds."""
    held = of_release(context, bought)
    estimates, unit = held.estimates, bought.manifest.get("privacy_unit")
    # what an older release's text no longer tells is left out
    aggregates = [aggregate for aggregate in stored.wanted(held.question) if estimates.find(aggregate)]
    protected = explaining.source(context, bought)
    types = _types(context, aggregates, protected)
    names = [readable.aggregate(aggregate.text, unit) for aggregate in aggregates]
    typed = zip(aggregates, types, strict=True)
    factors = [1.0 if protected is None else cells.factor(aggregate, protected, kind) for aggregate, kind in typed]
    columns, charts = [], []
    groups = _dated(held.numbers.groups)
    labels = [", ".join("NULL" if key is None else key for key in keys) for keys in groups]
    named = {f"a{i}": kind for i, kind in enumerate(types)}
    sides = intervals.between(intervals.Shown(held, estimates, aggregates, named, factors, LEVEL))
    for aggregate, name, kind, factor, pair in zip(aggregates, names, types, factors, sides, strict=True):
        shown = answered.value_texts(estimates, aggregate, kind, factor)
        ends = [None if end is None else end * factor for end in pair]
        low, high = (intervals.texts(end, kind) or [None] * len(shown) for end in ends)
        columns.append([_cell(*texts, kind) for texts in zip(shown, low, high, strict=True)])
        value = None if aggregate.function in LISTED else np.asarray(estimates.value(aggregate), dtype=np.float64)
        # numbers by group make a chart; texts, lists and single numbers do not
        if value is not None and value.ndim == 1 and len(labels) > 1 and sqltypes.parse(kind).family in _NUMBERS:
            first, last = (np.asarray(end, dtype=np.float64) for end in ends)
            charts.append(Chart(name, labels, value * factor, first, last, from_zero=aggregate.function in LINEAR))
    asked = [readable.expression(str(text)) for text in held.question.get("keys", ())]
    question = ", ".join(names) + (f" by {', '.join(asked)}" if asked else "")
    listing = _listing(asked, names, groups, columns)
    return Answer(question, explaining.rows_asked(held.question), listing, charts, explaining.rows(context, bought), len(labels))


def _dated(groups: Sequence[tuple[str | None, ...]]) -> list[tuple[str | None, ...]]:
    """Return the groups, with dates where all times of a key are midnight."""
    columns = []
    for values in zip(*groups, strict=True):
        dates = all(value is None or re.fullmatch(_MIDNIGHT, value) for value in values)
        columns.append([value[: -len(" 00:00:00")] if dates and value is not None else value for value in values])
    return list(zip(*columns, strict=True)) if columns else list(groups)


def _listing(
    keys: Sequence[str], names: Sequence[str], groups: Sequence[tuple[str | None, ...]], columns: Sequence[list[str]]
) -> Listing:
    note = "Beside each number: between which numbers it lies without its noise, with 95 %, each for itself."
    if not keys:
        return Listing("", ["", "answer"], [(name, column[0]) for name, column in zip(names, columns, strict=True)], (1,), note)
    rows = [(*("NULL" if key is None else key for key in group), *cells_) for group, *cells_ in zip(groups, *columns, strict=True)]
    if len(rows) > MOST_SHOWN:
        note += f" The first {MOST_SHOWN:,} of {len(rows):,} groups are shown."
    return Listing("", [*keys, *names], rows[:MOST_SHOWN], tuple(range(len(keys), len(keys) + len(names))), note)


def _cell(value: str | None, low: str | None, high: str | None, kind: str) -> str:
    if value is None:
        return "NULL"
    if low is None or high is None:
        return _short(value, kind)
    return f"{_short(value, kind)} ({_short(low, kind)} to {_short(high, kind)})"


def _short(text: str, kind: str) -> str:
    if kind.startswith("MAP("):
        return ", ".join(f"{item['k']}: {item['v']:,}" for item in ast.literal_eval(text))
    return number(float(text), 5) if sqltypes.parse(kind).family in _NUMBERS else text


def _types(context: Context, aggregates: Sequence[Wanted], protected: ProtectedSource | None) -> list[str]:
    if protected is not None:
        with suppress(DpsqlError):
            return types_of(context.cursor, aggregates, {c.name: c.sql_type for c in protected.source.columns})
    return [_TYPES.get(aggregate.function) or ("DOUBLE[]" if aggregate.listed else "DOUBLE") for aggregate in aggregates]


def measurements(context: Context, bought: Release) -> Listing:
    """Return the noise on what was measured."""
    rows = [(text,) for text in query_words.noise(bought.plan, explaining.texts(context, bought))]
    return Listing("Measurements", ["noise"], rows, note=_NOTE.format(bought.plan.mechanism.title()))
