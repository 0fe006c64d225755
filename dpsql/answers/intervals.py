"""Intervals of a query's answer: what the released numbers may have been before the noise. Post-processing.

The noise of every counter is known, so numbers are drawn as the counters may have been without it, and every aggregate, and every
expression over aggregates, is computed of each draw. The interval holds the middle of these. It tells of noise alone: rows that
were left out and values that were moved to a bound are told by dp_explain.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.answers.cells import cell_text
from dpsql.answers.held import Held, Part
from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED
from dpsql.queries.estimating import Estimates
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
_ROUNDED_FROM = 16.0
"""Scale from which rounded numbers of the normal (Laplace) law have the variance of the noise within a part in 1,000."""


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
        )
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
    return types.get(base, "DOUBLE") if not types.get(base, "").startswith("MAP(") else "VARCHAR"


def ends(
    context: Context, part: Part, wanted: Sequence[Wanted], held: Numbers, types: Mapping[str, str], confidence: float,
    derived: Mapping[str, exp.Expression], factors: Sequence[float],
) -> dict[str, list[str | None]]:
    """Return the bounds of the intervals of all aggregates and derived expressions, as texts."""
    drawn = [None if one is None else one.times(factor) for one, factor in zip(draws(part.held, wanted), factors, strict=True)]
    probabilities = [(1 - confidence) / 2, (1 + confidence) / 2]
    found: dict[str, list[str | None]] = {}
    for i, _ in enumerate(wanted):
        for end, numbers in zip(("low", "high"), middle(drawn[i], probabilities), strict=True):
            found[f"a{i}_{end}"] = texts(numbers, types[f"a{i}"])
    if derived:
        found |= _derived(context, part, held, drawn, types, probabilities, derived)
    return found


@dataclass(frozen=True)
class Drawn:
    """An aggregate of each draw: arrays of shape (draws, groups) or (draws, groups, quantiles).

    Parameters
    ----------
    values : float array
    low, high : float arrays
        The least and the largest that it may be if the counters are those of the draw; most often what it is.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def times(self, factor: float) -> Drawn:
        """Return it in other units."""
        return self if factor == 1.0 else Drawn(self.values * factor, self.low * factor, self.high * factor)


def draws(of: Held, wanted: Sequence[Wanted]) -> list[Drawn | None]:
    """Return each aggregate of each draw; None for those of listed values."""
    plan, held = of.plan, of.numbers
    seed = int.from_bytes(hashlib.sha256(of.seed.encode()).digest()[:8], "big")
    rng = np.random.default_rng(seed)
    size = max(1, sum(block.size for block in held.blocks))
    at_once = max(1, min(DRAWS, _AT_ONCE // size))
    parts: list[list[tuple[np.ndarray, ...]]] = [[] for _ in wanted]
    done = 0
    while done < DRAWS:
        count = min(at_once, DRAWS - done)
        blocks = [
            block[None] - _noise(rng, plan.mechanism, float(scale), (count, *block.shape))
            for block, scale in zip(held.blocks, plan.scales, strict=True)
        ]
        estimates = Estimates(plan, blocks)
        for i, one in enumerate(wanted):
            if one.function not in LISTED:
                parts[i].append((estimates.value(one), *(estimates.ends(one) or ())))
        done += count
    return [_joined(found) if found else None for found in parts]


def _joined(parts: Sequence[tuple[np.ndarray, ...]]) -> Drawn:
    values, *ends = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Drawn(values, *ends) if ends else Drawn(values, values, values)


def _noise(rng: np.random.Generator, mechanism: str, scale: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return whole numbers of noise, of the law that a release draws from; of a large scale, rounded ones of the continuous law."""
    if scale >= _ROUNDED_FROM:
        return np.rint(rng.laplace(0.0, scale, shape) if mechanism == "laplace" else rng.normal(0.0, scale, shape))
    upto = _cumulated(mechanism, scale)
    return (np.searchsorted(upto, rng.uniform(0.0, upto[-1], shape), side="right") - upto.size // 2).astype(np.float64)


@lru_cache(maxsize=64)
def _cumulated(mechanism: str, scale: float) -> np.ndarray:
    """Return the cumulated weights of the whole numbers from -r to r, beyond which there is less than 1e-15 of the law."""
    reach = math.ceil((36 if mechanism == "laplace" else 9) * scale) + 1
    distance = np.abs(np.arange(-reach, reach + 1)) / scale
    return np.cumsum(np.exp(-distance if mechanism == "laplace" else -0.5 * distance**2))


def middle(drawn: Drawn | None, probabilities: Sequence[float]) -> list[np.ndarray | None]:
    """Return the ends of the middle of the draws, at two probabilities."""
    if drawn is None:
        return [None for _ in probabilities]
    sides = zip((drawn.low, drawn.high), probabilities, strict=True)
    with np.errstate(all="ignore"):
        return [np.nanquantile(side, p, axis=0, method="linear") if side.size else side[0] for side, p in sides]


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
    context: Context, part: Part, held: Numbers, drawn: Sequence[Drawn | None], types: Mapping[str, str],
    probabilities: Sequence[float], derived: Mapping[str, exp.Expression],
) -> dict[str, list[str | None]]:
    """Return the intervals of expressions over aggregates: DuckDB computes them of every draw.

    Where it cannot (an aggregate of listed values has no draws; a draw is a DOUBLE whatever the aggregate's type), there is none.
    """
    import pandas as pd  # loaded when needed: pandas takes .3 s

    groups = len(held.groups)
    frame: dict[str, object] = {"r": np.tile(np.arange(groups), DRAWS)}
    for i, found in enumerate(drawn):
        if found is not None and found.values.ndim == 2:
            frame[f"a{i}"] = found.values.reshape(-1)
    for place, key in enumerate(part.asked.places):
        frame[f"k{key}"] = pd.Series([keys[place] for keys in held.groups] * DRAWS, dtype=object)
    name = f"dpsql_draws_{hashlib.sha256(part.held.release.encode()).hexdigest()[:12]}"
    casts = ", ".join(
        f"CAST({identifier(column)} AS {types[column]}) AS {identifier(column)}" if column in types and column[0] == "k"
        else "CASE WHEN isnan({0}) THEN NULL ELSE {0} END AS {0}".format(identifier(column)) if column[0] == "a"
        else identifier(column) for column in frame
    )
    others = [column for column in types if column[0] in "kg" and column not in frame]  # of other grouping sets
    flags = {f"g{i}": 0 for i in part.asked.places}
    casts += "".join(f", CAST({'NULL' if c[0] == 'k' else flags.get(c, 1)} AS {types[c]}) AS {identifier(c)}" for c in others)
    out: dict[str, list[str | None]] = {column: [None] * groups for column in derived}
    asked: dict[str, str] = {}
    for column, expression in derived.items():
        if all(c.name in frame or c.name in others for c in expression.find_all(exp.Column)):
            place = 0 if column.endswith("_low") else 1
            asked[column] = f"quantile_cont(TRY_CAST({render(expression)} AS DOUBLE), {probabilities[place]!r})"
    context.cursor.register(name, pd.DataFrame(frame))
    try:
        draws_ = f"SELECT {casts} FROM {name}"  # noqa: S608 -- generated
        together = _quantiles(context, draws_, asked)
        for column, text in asked.items() if together is None else ():
            out |= _quantiles(context, draws_, {column: text}) or {}
        out |= together or {}
    finally:
        context.cursor.unregister(name)
    return out


def _quantiles(context: Context, draws: str, asked: Mapping[str, str]) -> dict[str, list[str | None]] | None:
    """Return what is asked of the draws of each group, as texts; None where DuckDB cannot compute it of some draw."""
    if not asked:
        return {}
    text = f"SELECT r, {', '.join(asked.values())} FROM ({draws}) GROUP BY r ORDER BY r ASC"  # noqa: S608 -- generated
    try:
        rows = context.cursor.execute(text).fetchall()
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException):
        return None
    return {column: [None if row[i] is None else repr(float(row[i])) for row in rows] for i, column in enumerate(asked, 1)}


__all__ = ["DRAWS", "add", "draws", "ends", "middle", "sqltypes", "texts", "type_of"]
