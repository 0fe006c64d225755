"""Intervals of a query's answer: what the released numbers may have been before the noise. Post-processing.

The noise of every counter is known, so numbers are drawn as the counters may have been without it, and every aggregate, and every
expression over aggregates, is computed of each draw. The interval holds the middle of these. It tells of noise alone: rows that
were left out and values that were moved to a bound are told by dp_explain.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from sqlglot import exp

from dpsql.answers import listed_intervals
from dpsql.answers.cells import cell_text
from dpsql.answers.held import Held, Part
from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED, RANKED
from dpsql.queries.reading import Read
from dpsql.queries.taken import CORE
from dpsql.release.queried import Numbers
from dpsql.session.instance import Context
from dpsql.source.model import identifier as name_of
from dpsql.source.parse import render
from dpsql.text.relation import identifier

DRAWS = 1000
_AT_ONCE = 20_000_000
"""Numbers that are drawn together, at most."""


def add(outer: exp.Expression, found: Read) -> dict[str, exp.Expression]:
    """Add <name>_low and <name>_high after each item with aggregates; return the expressions that have to be drawn.

    Raises
    ------
    ArgumentError
        The outermost SELECT is not the one with the aggregates.
    """
    clause = outer.args.get("from_") if isinstance(outer, exp.Select) else None
    name = clause.this.name if clause is not None and isinstance(clause.this, exp.Table) else ""
    if not isinstance(outer, exp.Select) or not name.startswith(CORE) or outer.args.get("joins"):
        raise ArgumentError(
            "confidence", found.call.confidence,
            "intervals are given where the outermost SELECT is the one with the aggregates; ask for that, which costs nothing more",
        )  # fmt: skip
    derived: dict[str, exp.Expression] = {}
    items: list[exp.Expression] = []
    for item in outer.expressions:
        items.append(item)
        inner, shown = item.this, item.alias
        names = {column.name for column in inner.find_all(exp.Column) if column.name[:1] == "a"}
        if not names or any(inner.find_all(exp.Window, exp.Subquery, exp.Select)):
            continue
        base = inner.name if isinstance(inner, exp.Column) else f"d{len(derived) // 2}"
        for end in ("low", "high"):
            if not isinstance(inner, exp.Column):
                derived[f"{base}_{end}"] = inner
            items.append(exp.Alias(this=exp.Column(this=name_of(f"{base}_{end}")), alias=name_of(f"{shown}_{end}")))
    outer.set("expressions", items)
    return derived


def type_of(name: str, types: Mapping[str, str]) -> str:
    """Return the type of a bound of an interval: the aggregate's own; a number of an expression."""
    base = name.rsplit("_", 1)[0]
    return types.get(base, "DOUBLE")


def ends(
    context: Context, part: Part, wanted: Sequence[Wanted], held: Numbers, types: Mapping[str, str], confidence: float,
    derived: Mapping[str, exp.Expression], factors: Sequence[float],
) -> dict[str, list[str | None]]:
    """Return the bounds of the intervals of all aggregates and derived expressions, as texts."""
    drawn = [None if one is None else one * factor for one, factor in zip(draws(part.held, wanted), factors, strict=True)]
    probabilities = [(1 - confidence) / 2, (1 + confidence) / 2]
    found: dict[str, list[str | None]] = {}
    estimates = part.held.estimates()
    for i, one in enumerate(wanted):
        if one.function in LISTED:
            found[f"a{i}_low"], found[f"a{i}_high"] = listed_intervals.ends(estimates, one, types[f"a{i}"], confidence)
            continue
        for end, numbers in zip(("low", "high"), middle(drawn[i], probabilities), strict=True):
            found[f"a{i}_{end}"] = texts(numbers, types[f"a{i}"])
    if derived:
        found |= _derived(context, part, held, drawn, types, probabilities, derived)
    return found


def draws(of: Held, wanted: Sequence[Wanted]) -> list[np.ndarray | None]:
    """Return each aggregate of each draw: shape (draws, groups) or (draws, groups, quantiles); None for those of listed values."""
    held = of.numbers
    seed = int.from_bytes(hashlib.sha256(of.seed.encode()).digest()[:8], "big")
    rng = np.random.default_rng(seed)
    size = max(1, sum(block.size for block in held.blocks))
    at_once = max(1, min(DRAWS, _AT_ONCE // size))
    parts: list[list[np.ndarray]] = [[] for _ in wanted]
    released = of.estimates()
    done = 0
    while done < DRAWS:
        count = min(at_once, DRAWS - done)
        blocks = [block[None] - noise for block, noise in zip(held.blocks, of.noise(rng, count), strict=True)]
        estimates = of.estimates(blocks)
        for i, one in enumerate(wanted):
            if one.function not in LISTED:
                places = released.find(one) if one.function in RANKED else []
                value = released.shifted(places[0], one, blocks) if places else None
                value = estimates.value(one) if value is None else value
                parts[i].append(np.full_like(value, np.nan) if estimates.drawn(one) else value)
        done += count
    return [np.concatenate(found) if found else None for found in parts]


def middle(drawn: np.ndarray | None, probabilities: Sequence[float]) -> list[np.ndarray | None]:
    """Return the ends of the middle of the draws."""
    if drawn is None:
        return [None for _ in probabilities]
    if not drawn.size:
        return [drawn[0], drawn[0]]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NULL in all draws: there is no interval
        return list(np.nanquantile(drawn, probabilities, axis=0, method="linear"))


def texts(numbers: np.ndarray | None, sql_type: str) -> list[str | None]:
    """Return ends of intervals as texts of values of a type; none where there are no intervals."""
    if numbers is None:
        return []
    if numbers.ndim == 2:
        inner = sql_type.removesuffix("[]")
        if not sql_type.endswith("[]"):
            return [cell_text(float(row[0]), sql_type) for row in numbers]
        return ["[" + ", ".join(cell_text(float(v), inner) or "NULL" for v in row) + "]" for row in numbers]
    return [cell_text(float(v), sql_type) for v in numbers]


def _derived(
    context: Context, part: Part, held: Numbers, drawn: Sequence[np.ndarray | None], types: Mapping[str, str],
    probabilities: Sequence[float], derived: Mapping[str, exp.Expression],
) -> dict[str, list[str | None]]:
    """Return the intervals of expressions over aggregates: DuckDB computes them of every draw."""
    import pandas as pd  # loaded when needed: pandas takes .3 s

    groups = len(held.groups)
    frame: dict[str, object] = {"r": np.tile(np.arange(groups), DRAWS)}
    for i, found in enumerate(drawn):
        if found is not None and found.ndim == 2:
            frame[f"a{i}"] = found.reshape(-1)
    for place, key in enumerate(part.asked.places):
        frame[f"k{key}"] = pd.Series([keys[place] for keys in held.groups] * DRAWS, dtype=object)
    name = f"dpsql_draws_{hashlib.sha256(part.held.release.encode()).hexdigest()[:12]}"
    casts = ", ".join(
        f"CAST({identifier(column)} AS {types[column]}) AS {identifier(column)}" if column in types and column[0] == "k"
        else "CASE WHEN isnan({0}) THEN NULL ELSE {0} END AS {0}".format(identifier(column)) if column[0] == "a"
        else identifier(column) for column in frame
    )  # fmt: skip
    listed, names = [], []
    for column, expression in derived.items():
        place = 0 if column.endswith("_low") else 1
        listed.append(f"quantile_cont(TRY_CAST({render(expression)} AS DOUBLE), {probabilities[place]!r})")
        names.append(column)
    context.cursor.register(name, pd.DataFrame(frame))
    try:
        rows = context.cursor.execute(
            f"SELECT r, {', '.join(listed)} FROM (SELECT {casts} FROM {name}) GROUP BY r ORDER BY r ASC"  # noqa: S608
        ).fetchall()
    finally:
        context.cursor.unregister(name)
    return {column: [None if row[i + 1] is None else repr(float(row[i + 1])) for row in rows] for i, column in enumerate(names)}


__all__ = ["DRAWS", "add", "draws", "ends", "middle", "sqltypes", "texts", "type_of"]
