"""Intervals of a query's answer: what the released numbers may have been before the noise. Post-processing.

Counts, sums, means and quantiles, and quotients of counts and sums, have confidence sets by the law of the noise
(`dpsql.estimates.certain`). Of others numbers are drawn as the counters may have been without the noise, and every aggregate, and
every expression over several aggregates, is computed of each draw: the interval holds the middle of these. It tells of noise alone:
rows that were left out and values that were moved to a bound are told by dp_explain.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.algebra.aggregates import EXTREMES, LINEAR
from dpsql.answers.cells import cell_texts, list_texts
from dpsql.answers.held import Held, Part
from dpsql.answers.quotients import DENOMINATOR, HANDED, parted
from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.noise.entropy import BoolArray
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED
from dpsql.queries.estimating import Estimates
from dpsql.queries.names import is_star, spreads, star_of
from dpsql.queries.reading import Read
from dpsql.queries.taken import CORE
from dpsql.session.instance import Context
from dpsql.source.model import fold
from dpsql.source.model import identifier as name_of
from dpsql.source.parse import render
from dpsql.text.relation import identifier

DRAWS = 1000
_PLACES = 33
"""Of an interval, at which an expression over one aggregate is computed."""
_TREES = 250
"""Draws of a tree, which has thousands of counters."""
_AT_ONCE = 20_000_000
"""Numbers that are drawn together, at most."""
_ROUNDED_FROM = 16.0
"""Scale from which rounded numbers of the normal (Laplace) law have the variance of the noise within a part in 1,000."""


def add(outer: exp.Expression, read: Read) -> dict[str, exp.Expression]:
    """Add <name>_low and <name>_high after each item with aggregates; return the expressions that have to be drawn.

    Around the SELECT with the aggregates others may stand that read it alone, by subquery or WITH: a column that they hand on
    brings its interval along.

    Raises
    ------
    ArgumentError
        No column of an aggregate gets through to the answer.
    """
    selects = _chain(outer)
    derived: dict[str, exp.Expression] = {}
    known = _inner(selects[0], derived) if selects else set()
    for select in selects[1:]:
        known = _handed_on(select, known)
    if not known:
        raise ArgumentError(
            "confidence", read.call.confidence,
            "intervals are given where the SELECT with the aggregates is the outermost one, or others hand its columns on; "
            "ask for that, which costs nothing more",
        )
    return derived


def _chain(outer: exp.Expression) -> list[exp.Select]:
    """Return the SELECTs from the one with the aggregates outwards, each of which reads the one before alone; none else."""
    selects: list[exp.Select] = []
    ctes: dict[str, exp.Expression] = {}
    node: exp.Expression | None = outer
    while isinstance(node, exp.Select) and not node.args.get("joins"):
        selects.insert(0, node)
        with_ = node.args.get("with_")
        ctes |= {fold(cte.alias): cte.this for cte in (with_.expressions if with_ else ())}
        clause = node.args.get("from_")
        inner = clause.this if clause is not None else None
        if isinstance(inner, exp.Table) and inner.name.startswith(CORE):
            return selects
        # what is grouped anew is made of several numbers, not handed on
        if node.args.get("group") or node.args.get("laterals"):
            return []
        if isinstance(inner, exp.Subquery):
            node = inner.this
        else:
            node = ctes.get(fold(inner.name)) if isinstance(inner, exp.Table) else None
    return []


def _inner(select: exp.Select, derived: dict[str, exp.Expression]) -> set[str]:
    """Add columns to the SELECT with the aggregates; return the names of those that have an interval."""
    items: list[exp.Expression] = []
    known = set()
    for item in select.expressions:
        items.append(item)
        inner, shown = item.this, item.alias
        names = {column.name for column in inner.find_all(exp.Column) if column.name[:1] in ("a", DENOMINATOR)}
        if not names or shown.startswith(HANDED) or any(inner.find_all(exp.Window, exp.Subquery, exp.Select)):
            continue
        base = inner.name if isinstance(inner, exp.Column) else f"d{len(derived) // 2}"
        known.add(fold(shown))
        for end in ("low", "high"):
            if not isinstance(inner, exp.Column):
                derived[f"{base}_{end}"] = inner
            items.append(_named(f"{base}_{end}", f"{shown}_{end}"))
    select.set("expressions", items)
    return known


def _handed_on(select: exp.Select, known: set[str]) -> set[str]:
    """Add columns to a SELECT that reads others; return the names of those that have an interval."""
    items: list[exp.Expression] = []
    bounded: set[str] = set()
    for item in select.expressions:
        items.append(item)
        if is_star(item) or spreads(item):
            lost, renamed = _without_intervals(item, known)
            bounded |= known - lost | {fold(new) for new in renamed.values()}
            for name, new in renamed.items():
                items += [_named(f"{name}_{end}", f"{new}_{end}") for end in ("low", "high")]
            continue
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Column) and fold(inner.name) in known:
            bounded.add(fold(item.alias_or_name))
            items += [_named(f"{inner.name}_{end}", f"{item.alias_or_name}_{end}") for end in ("low", "high")]
    select.set("expressions", items)
    return bounded


def _without_intervals(item: exp.Expression, known: set[str]) -> tuple[set[str], dict[str, str]]:
    """Leave out of ``*`` the intervals of columns that it leaves out, replaces or renames; return these, and the new names."""
    star = star_of(item)
    if star is None:
        return set(), {}
    renamed = {fold(other.this.name): other.alias for other in star.args.get("rename") or []}
    changed = {*renamed, *(fold(name.name) for name in star.args.get("except_") or [])}
    changed |= {fold(other.alias) for other in star.args.get("replace") or []}
    ends = [f"{name}_{end}" for name in sorted(changed & known) for end in ("low", "high")]
    if ends:
        star.set("except_", [*(star.args.get("except_") or []), *map(name_of, ends)])
    return changed & known, {name: new for name, new in renamed.items() if name in known}


def _named(column: str, alias: str) -> exp.Alias:
    return exp.Alias(this=exp.Column(this=name_of(column)), alias=name_of(alias))


def type_of(name: str, types: Mapping[str, str]) -> str:
    """Return the type of a bound of an interval: the aggregate's own; a number of an expression."""
    base = name.rsplit("_", 1)[0]
    return types.get(base, "DOUBLE") if not types.get(base, "").startswith("MAP(") else "VARCHAR"


Ends = tuple[np.ndarray | None, np.ndarray | None]


@dataclass(frozen=True)
class Shown:
    """What one release shows: its numbers, the aggregates, their types and factors, the confidence asked for."""

    held: Held
    estimates: Estimates
    wanted: Sequence[Wanted]
    types: Mapping[str, str]
    factors: Sequence[float]
    confidence: float

    @property
    def probabilities(self) -> list[float]:
        """Between which the middle of draws lies."""
        return [(1 - self.confidence) / 2, (1 + self.confidence) / 2]


def ends(context: Context, part: Part, shown: Shown, derived: Mapping[str, exp.Expression]) -> dict[str, list[str | None]]:
    """Return the bounds of the intervals of all aggregates and derived expressions, as texts."""
    sides = between(shown)
    bounds: dict[str, list[str | None]] = {}
    for i, pair in enumerate(sides):
        for end, numbers in zip(("low", "high"), pair, strict=True):
            bounds[f"a{i}_{end}"] = texts(None if numbers is None else numbers * shown.factors[i], shown.types[f"a{i}"])
    return bounds | _derived(context, part, shown, sides, derived) if derived else bounds


def between(shown: Shown) -> list[Ends]:
    """Return the ends of the interval of each aggregate, its value between them, NaN where it is NULL; None where there are none.

    By the law of the noise where that says it (`dpsql.estimates.certain`), else from draws.
    """
    estimates, aggregates = shown.estimates, shown.wanted
    # linear ones, means and quantiles have ends by the law of the noise; the others are drawn again with noise
    exact = [None if aggregate.function in LISTED else estimates.interval(aggregate, shown.confidence) for aggregate in aggregates]
    rough = [i for i, aggregate in enumerate(aggregates) if aggregate.function not in LISTED and exact[i] is None]
    drawn = dict(zip(rough, draws(shown.held, [aggregates[i] for i in rough], _values_and_hidden), strict=True))
    pairs: list[Ends] = []
    for i, aggregate in enumerate(aggregates):
        values, ends_ = drawn.get(i), exact[i]
        if values is not None:
            low, high = middle(values[0], values[0], shown.probabilities)
        elif ends_ is not None:
            low, high = ends_
        else:
            pairs.append((None, None))
            continue
        farthest = estimates.farthest(aggregate)
        if values is not None and farthest is not None:  # all that there is, where noise hides a variance in too many draws
            unknown = values[1].mean(axis=0) > shown.probabilities[0]
            low, high = np.where(unknown, farthest[0], low), np.where(unknown, farthest[1], high)
        # where a group has rows enough, draws of the tree are nearer than what is certain of it
        crowded = estimates.crowded(aggregate)
        if crowded is not None and crowded.any():
            [some] = draws(shown.held, [aggregate], Estimates.ends, crowded, _TREES)
            if some is not None:
                low, high = low.copy(), high.copy()
                low[crowded], high[crowded] = middle(some[0], some[1], shown.probabilities)
        # an interval has its own number inside
        value = estimates.value(aggregate).reshape(low.shape)
        null = np.isnan(value)
        if aggregate.function in EXTREMES:
            lowest, highest = estimates.beyond(aggregate)
            low = low if lowest is None else np.full_like(low, lowest)
            high = high if highest is None else np.full_like(high, highest)
        # unbiased, so perhaps beyond what is possible, where the interval is not
        if aggregate.function in LINEAR and not estimates.values_counted(aggregate):
            pairs.append((np.where(null, np.nan, low), np.where(null, np.nan, high)))
            continue
        pairs.append((np.where(null, np.nan, np.fmin(low, value)), np.where(null, np.nan, np.fmax(high, value))))
    return pairs


def _values(estimates: Estimates, aggregate: Wanted) -> tuple[np.ndarray]:
    return (estimates.drawn(aggregate),)


def _values_and_hidden(estimates: Estimates, aggregate: Wanted) -> tuple[np.ndarray, ...]:
    """Return an aggregate of each draw, and, of a statistic of a pair, whether noise may hide a variance in it."""
    values = _values(estimates, aggregate)
    return values if estimates.farthest(aggregate) is None else (*values, estimates.hidden(aggregate))


def draws(
    of: Held, aggregates: Sequence[Wanted], read: Callable[[Estimates, Wanted], Sequence[np.ndarray]] = _values,
    groups: BoolArray | None = None, count: int | None = None,
) -> list[list[np.ndarray] | None]:
    """Return what is read of each aggregate of each draw, its value alone or other arrays, of shapes (draws, groups, ...).

    None for those of listed values. ``groups``: of which alone; ``count``: of draws.
    """
    if not aggregates:
        return []
    plan, numbers = of.plan, of.numbers
    # the same release has the same intervals each time
    seed = int.from_bytes(hashlib.sha256(of.seed.encode()).digest()[:8], "big")
    rng = np.random.default_rng(seed)
    kept = numbers.blocks if groups is None else [block[groups] for block in numbers.blocks]
    size = max(1, sum(block.size for block in kept))
    many = DRAWS if count is None else min(count, DRAWS)
    # as many draws together as a block of memory has room for
    at_once = max(1, min(many, _AT_ONCE // size))
    parts: list[list[Sequence[np.ndarray]]] = [[] for _ in aggregates]
    done = 0
    while done < many:
        together = min(at_once, many - done)
        blocks = [
            block[None] - _noise(rng, plan.mechanism, float(scale), (together, *block.shape))
            for block, scale in zip(kept, plan.scales, strict=True)
        ]
        estimates = Estimates(plan, blocks)
        for i, aggregate in enumerate(aggregates):
            if aggregate.function not in LISTED:
                parts[i].append(read(estimates, aggregate))
        done += together
    return [[np.concatenate(each) for each in zip(*part, strict=True)] if part else None for part in parts]


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


def middle(low: np.ndarray, high: np.ndarray, probabilities: Sequence[float]) -> list[np.ndarray]:
    """Return the ends of the middle of draws, of the least and of the largest that an aggregate may be, at two probabilities."""
    with np.errstate(all="ignore"):
        sides = zip((low, high), probabilities, strict=True)
        return [_quantile(side, p) if side.size else side[0] for side, p in sides]


def _quantile(draws: np.ndarray, probability: float) -> np.ndarray:
    """Return a quantile of the draws that are numbers; NaN where none is, which numpy would warn of."""
    none = np.isnan(draws).all(axis=0)
    quantile = np.nanquantile(np.where(none, 0.0, draws), probability, axis=0, method="linear")
    return np.asarray(np.where(none, np.nan, quantile))


def texts(numbers: np.ndarray | None, sql_type: str) -> list[str | None]:
    """Return ends of intervals as texts of values of a type; none where there are no intervals."""
    if numbers is None:
        return []
    if numbers.ndim == 2:
        inner = sql_type.removesuffix("[]")
        if not sql_type.endswith("[]"):
            return cell_texts(numbers[:, 0], sql_type)
        return list_texts(numbers, inner)
    return cell_texts(numbers, sql_type)


def _derived(
    context: Context, part: Part, shown: Shown, sides: Sequence[Ends], derived: Mapping[str, exp.Expression]
) -> dict[str, list[str | None]]:
    """Return the intervals of expressions over aggregates: DuckDB computes them.

    Of one aggregate: at many places of its own interval, the least and the largest. Of several: of every draw, the middle. Where
    DuckDB cannot (an aggregate of listed values has no draws; a draw is a DOUBLE whatever the aggregate's type), there is none.
    """
    out: dict[str, list[str | None]] = {column: [None] * len(shown.held.numbers.groups) for column in derived}
    single: dict[int, dict[str, exp.Expression]] = {}
    several: dict[str, exp.Expression] = {}
    for column, expression in derived.items():
        # a quotient of two linear numbers has ends of its own, as a share has
        exact = _quotient(shown, expression)
        if exact is not None:
            out[column] = cell_texts(exact[column.endswith("_high")], "DOUBLE")
            continue
        places = {int(c.name[1:]) for c in expression.find_all(exp.Column) if c.name[:1] in ("a", DENOMINATOR)}
        place = min(places)
        low, high = sides[place]
        # of one number: the extremes of the expression over the interval; of several: quantiles over the draws
        if len(places) == 1 and low is not None and low.ndim == 1:
            single.setdefault(place, {})[column] = expression
        else:
            several[column] = expression
    for place, expressions in single.items():
        low, high = sides[place]
        assert low is not None and high is not None  # noqa: S101
        weights = np.linspace(0.0, 1.0, _PLACES)[:, None]
        with np.errstate(invalid="ignore"):
            values = low * (1 - weights) + high * weights
        out |= _computed(context, part, shown, {place: values}, expressions, ("min", "max"))
    if several:
        columns = [c.name for e in several.values() for c in e.find_all(exp.Column)]
        needed = sorted({int(name[1:]) for name in columns if name[:1] in ("a", DENOMINATOR)})
        drawn = dict(zip(needed, draws(shown.held, [shown.wanted[i] for i in needed]), strict=True))
        values_ = {i: arrays[0] * shown.factors[i] for i, arrays in drawn.items() if arrays is not None and arrays[0].ndim == 2}
        low_, high_ = shown.probabilities
        out |= _computed(context, part, shown, values_, several, (f"quantile_cont:{low_!r}", f"quantile_cont:{high_!r}"))
    return out


def _quotient(shown: Shown, expression: exp.Expression) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the confidence set of a quotient of two counts or sums, perhaps times a number; None of other expressions."""
    parts = parted(expression)
    if parts is None:
        return None
    times, over, under, share = parts
    ends_ = shown.estimates.quotient(shown.wanted[over], shown.wanted[under], shown.confidence, share=share)
    if ends_ is None:
        return None
    low, high = ends_[0] * times, ends_[1] * times
    return (low, high) if times >= 0 else (high, low)


def _computed(
    context: Context, part: Part, shown: Shown, values: Mapping[int, np.ndarray], expressions: Mapping[str, exp.Expression],
    aggregates: tuple[str, str],
) -> dict[str, list[str | None]]:
    """Return an aggregate of expressions over values of aggregates, each of shape (times, groups), as texts."""
    import pandas as pd  # loaded when needed: pandas takes .3 s

    numbers, types = shown.held.numbers, shown.types
    groups, times = len(numbers.groups), max((len(each) for each in values.values()), default=1)
    frame: dict[str, object] = {"r": np.tile(np.arange(groups), times)}
    for i, drawn in values.items():
        frame[f"a{i}"] = drawn.reshape(-1)
        if shown.wanted[i].function in LINEAR:
            frame[f"{DENOMINATOR}{i}"] = shown.estimates.denominator(shown.wanted[i], drawn).reshape(-1)
    # an expression may name keys, and which of them are left out
    for place, key in enumerate(part.asked.places):
        frame[f"k{key}"] = pd.Series([keys[place] for keys in numbers.groups] * times, dtype=object)
    # NaN stands for NULL in the arrays, and for itself in DuckDB
    casts = ", ".join(
        f"CAST({identifier(column)} AS {types[column]}) AS {identifier(column)}" if column in types and column[0] == "k"
        else "CASE WHEN isnan({0}) THEN NULL ELSE {0} END AS {0}".format(identifier(column)) if column[0] in ("a", DENOMINATOR)
        else identifier(column) for column in frame
    )
    others = [column for column in types if column[0] in "kg" and column not in frame]  # of other grouping sets
    flags = {f"g{i}": 0 for i in part.asked.places}
    casts += "".join(f", CAST({'NULL' if c[0] == 'k' else flags.get(c, 1)} AS {types[c]}) AS {identifier(c)}" for c in others)
    asked: dict[str, str] = {}
    for column, expression in expressions.items():
        if all(c.name in frame or c.name in others for c in expression.find_all(exp.Column)):
            name, _, share = aggregates[0 if column.endswith("_low") else 1].partition(":")
            asked[column] = f"{name}(TRY_CAST({render(expression)} AS DOUBLE){', ' if share else ''}{share})"
    name = f"dpsql_draws_{hashlib.sha256(part.held.release.encode()).hexdigest()[:12]}"
    out: dict[str, list[str | None]] = {}
    context.cursor.register(name, pd.DataFrame(frame))
    try:
        draws_ = f"SELECT {casts} FROM {name}"  # noqa: S608 -- generated
        # one statement for all; where DuckDB refuses it, each by itself, so that one bad expression costs only its own
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
