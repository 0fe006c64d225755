"""The table of aggregates, and that of window functions: all that is known of each. An aggregate: here, and nowhere else.

What a query calls it and is answered with, or why it is refused; what it is calculated as among the rows of one privacy unit; which
measure gives it; bounds of its values. Every set of names elsewhere is made of these tables (`tests/unit/test_algebra.py`).

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from dpsql.algebra import aggregate_rules as rules
from dpsql.algebra.aggregate_rules import Rule
from dpsql.algebra.pieces import call

Others = Callable[[str], exp.Expression]
"""The name of an aggregate -> a call of it, of the same argument and rows."""


@dataclass(frozen=True)
class AggregateFunction:
    """What is known of an aggregate.

    Parameters
    ----------
    answers, refused : str
        What a query that is answered privately calls it; else why it is refused.
    inside, instead : str
        What it is calculated as among the rows of one unit (`dpsql.source.aggregates`); else what to write.
    arguments, fraction
        How many it takes, and whether the second one says which quantile.
    measured : {'', 'count', 'first', 'second', 'pair', 'ranked', 'listed'}
        What gives it: counts; sums of values, or of their squares; of two variables and their products; a tree of counts; counts
        of listed values.
    linear : bool
        Whether it is linear in the counters, and so shown without a bias; of pairs, whether no squares are needed.
    mean : int, optional
        Of a mean: the number of the variable.
    range : callable, optional
        Range of its values from those of its argument, where a source may call it.
    picks, counts, idempotent : bool
        Whether it gives one of the values, or NULL; is a number of rows or values, never NULL; is the same of distinct values.
    sql_type : str
        Of what answers it, where no source is there to tell; a DOUBLE, or a list of them, where left out.
    bound : tuple of str, optional
        Families of the first argument with which generated SQL calls an aggregate of this name: '' is any, 'comparable' stands for
        the comparable ones (`dpsql.source.kernel`); None: it does not.
    listing : bool
        Whether it is calculated of a sorted list.
    composed : callable, optional
        What it is, made of other aggregates; ``of``: the function that its argument stands in.
    """

    answers: str = ""
    refused: str = ""
    inside: str = ""
    instead: str = "not on the list of aggregates inside of a privacy unit"
    arguments: int = 1
    fraction: bool = False
    measured: Literal["", "count", "first", "second", "pair", "ranked", "listed"] = ""
    linear: bool = False
    mean: int | None = None
    range: Rule | None = None
    picks: bool = False
    counts: bool = False
    idempotent: bool = False
    sql_type: str = ""
    bound: tuple[str, ...] | None = None
    listing: bool = False
    composed: Callable[[Others], exp.Expression] | None = None
    of: str = ""


@dataclass(frozen=True)
class WindowFunction:
    """What is known of a window function that is no aggregate.

    It takes from ``least`` to ``most`` arguments; rows which tie are given the same by those of ``peers``, for all others ties are
    broken; with ``frame`` it may have one. The rest is as for an aggregate.
    """

    name: str
    least: int
    most: int
    peers: bool = False
    range: Rule | None = None
    picks: bool = False
    counts: bool = False
    frame: bool = False


_VALUE_OF_A_ROW = "it gives out the value of one row. min and max answer with extreme quantiles; median with the middle"
_LIST_OF_ROWS = "it lists rows. histogram(x) counts the declared values of a column"
_POWERS = "noise hides third and fourth powers of all but huge tables"
_NO_LIST = "a list of many rows is no value of a source; use count, min, max or mode"
_NO_TEXT = "a text of many rows has no bound; use count, min or max"
_SAMPLE = "it depends on which rows a sample picks; quantile_cont(x, 0.5) does not"


def _of(names: str, **known: object) -> dict[str, AggregateFunction]:
    return dict.fromkeys(names.split(), AggregateFunction(**known))  # type: ignore[arg-type]


def _pairs(names: str, *, linear: bool, mean: int | None = None) -> dict[str, AggregateFunction]:
    return {name: AggregateFunction(name, arguments=2, measured="pair", linear=linear, mean=mean) for name in names.split()}


def _spread(names: str, rule: Rule) -> dict[str, AggregateFunction]:
    name = names.split()[0]
    return _of(names, answers=name, inside=name, measured="second", range=rule, listing=True)


_COUNT = {"answers": "count", "inside": "count", "measured": "count", "linear": True, "range": rules.count, "counts": True,
          "sql_type": "BIGINT"}
_QUANTILE = {"arguments": 2, "fraction": True, "measured": "ranked"}
_EXTREME = {"measured": "ranked", "range": rules.same, "picks": True, "idempotent": True,
            "bound": ("comparable", "STRUCT")}
_TRUTH = {"measured": "listed", "range": rules.TRUTH, "idempotent": True, "sql_type": "BOOLEAN", "bound": ("BOOLEAN",)}
_PICKED = {"refused": _VALUE_OF_A_ROW, "range": rules.same, "picks": True}

AGGREGATES: dict[str, AggregateFunction] = {
    **_of("count", **_COUNT, bound=("",)),
    **_of("count_star", **_COUNT, bound=()),
    **_of("count_if countif", answers="count_if", inside="count_if", measured="count", range=rules.NUMBER_OF, counts=True),
    **_of("approx_count_distinct", answers="count_distinct", inside="count_distinct", measured="count", linear=True,
          range=rules.NUMBER_OF, counts=True, sql_type="BIGINT"),
    **_of("sum fsum sumkahan kahan_sum", answers="sum", inside="sum", measured="first", linear=True, range=rules.total,
          bound=("BIGINT", "DECIMAL"), listing=True),
    **_of("avg mean favg", answers="avg", inside="avg", measured="first", mean=0, range=rules.middle, bound=("BIGINT",),
          listing=True),
    **_spread("var_pop", rules.spread(0.25, root=False)),
    **_spread("var_samp variance", rules.spread(0.5, root=False)),
    **_spread("stddev_pop", rules.spread(0.25, root=True)),
    **_spread("stddev_samp stddev", rules.spread(0.5, root=True)),
    **_pairs("covar_pop covar_samp regr_count regr_sxy", linear=True),
    **_pairs("regr_avgy", linear=True, mean=0),
    **_pairs("regr_avgx", linear=True, mean=1),
    **_pairs("corr regr_slope regr_intercept regr_r2 regr_sxx regr_syy", linear=False),
    **_of("median", answers="median", inside="median", range=rules.middle),
    **_of("quantile_cont", **_QUANTILE, answers="quantile_cont", inside="quantile_cont", range=rules.middle, bound=("DOUBLE",)),
    **_of("quantile_disc quantile approx_quantile", **_QUANTILE, answers="quantile_disc", inside="quantile_disc", range=rules.same,
          picks=True, bound=("comparable",)),
    **_of("percentile_cont", **_QUANTILE, answers="quantile_cont"),
    **_of("percentile_disc", **_QUANTILE, answers="quantile_disc"),
    **_of("min", **_EXTREME, answers="min", inside="min"),
    **_of("max", **_EXTREME, answers="max", inside="max"),
    **_of("bool_and", **_TRUTH, answers="bool_and", inside="bool_and"),
    **_of("bool_or", **_TRUTH, answers="bool_or", inside="bool_or"),
    **_of("mode", answers="mode", inside="mode", measured="listed", range=rules.same, picks=True, sql_type="VARCHAR", listing=True),
    **_of("histogram", answers="histogram", measured="listed", sql_type="MAP(VARCHAR, BIGINT)", instead=_NO_LIST),
    # composed of others; NULL of no row, as DuckDB's, and a number of rows that noise has made negative has no root
    **_of("geomean geometric_mean", composed=lambda other: call("exp", other("avg")), of="ln", range=rules.middle),
    **_of("sem", composed=lambda other: exp.Div(
        this=other("stddev_pop"), expression=call("sqrt", call("greatest", other("count"), exp.Literal.number(1))))),
    # of one unit's rows alone
    **_of("any_value arbitrary first", **_PICKED, inside="min"),
    **_of("last", **_PICKED, inside="max"),
    **_of("arg_min argmin min_by", **_PICKED, arguments=2, inside="arg_min"),
    **_of("arg_max argmax max_by", **_PICKED, arguments=2, inside="arg_max"),
    # refused
    **_of("first_value arg_min_null arg_max_null arg_min_nulls_last arg_max_nulls_last", refused=_VALUE_OF_A_ROW),
    **_of("list", refused=_LIST_OF_ROWS, instead=_NO_LIST, bound=("comparable",)),
    **_of("array_agg", refused=_LIST_OF_ROWS, instead=_NO_LIST),
    **_of("string_agg group_concat listagg", refused=_LIST_OF_ROWS, instead=_NO_TEXT),
    **_of("json_group_array json_group_object json_group_structure map_agg histogram_exact approx_top_k", refused=_LIST_OF_ROWS),
    **_of("bit_and bit_or bit_xor bitstring_agg", refused="it depends on single bits of every row"),
    **_of("product", refused="a product of many rows has no bounds; of numbers above 0 sum(ln(x)) is its logarithm, geomean(x) the "
          "mean factor"),
    **_of("skewness", refused=f"{_POWERS}; quantile_cont(x, [0.1, 0.5, 0.9]) shows on which side the long tail is"),
    **_of("kurtosis kurtosis_pop", refused=f"{_POWERS}; quantile_cont(x, [0.01, 0.25, 0.75, 0.99]) shows the tails"),
    **_of("mad", refused="it needs the median first: ask for median(x), and write the released number m into median(abs(x - m))"),
    **_of("entropy", refused="it is biased by noise on every value; histogram(x) gives the counts of declared values"),
    **_of("reservoir_quantile", refused=_SAMPLE, instead="write quantile_cont(x, 0.5)"),
}  # fmt: skip
"""Name -> what is known of it, of every aggregate, whether it is answered or not."""

WINDOWS: dict[str, WindowFunction] = {
    "row_number": WindowFunction("row_number", 0, 0, range=rules.PLACE, counts=True),
    "rank": WindowFunction("rank", 0, 0, peers=True, range=rules.PLACE, counts=True),
    **dict.fromkeys(("dense_rank", "rank_dense"), WindowFunction("dense_rank", 0, 0, peers=True, range=rules.PLACE, counts=True)),
    "percent_rank": WindowFunction("percent_rank", 0, 0, peers=True, range=rules.SHARE),
    "cume_dist": WindowFunction("cume_dist", 0, 0, peers=True, range=rules.SHARE),
    "ntile": WindowFunction("ntile", 1, 1, range=rules.parts, counts=True),
    "lag": WindowFunction("lag", 1, 3, range=rules.neighbour, picks=True),
    "lead": WindowFunction("lead", 1, 3, range=rules.neighbour, picks=True),
    "first_value": WindowFunction("first_value", 1, 1, range=rules.same, picks=True, frame=True),
    "last_value": WindowFunction("last_value", 1, 1, range=rules.same, picks=True, frame=True),
    "nth_value": WindowFunction("nth_value", 2, 2, range=rules.same, picks=True, frame=True),
}
"""Name -> what is known of it, of every window function that a source may call."""


def measured(*kinds: str) -> frozenset[str]:
    """Return what queries call the aggregates that measures of these kinds give."""
    return frozenset(one.answers for one in AGGREGATES.values() if one.answers and one.measured in kinds)


INSIDE = {name: one.inside for name, one in AGGREGATES.items() if one.inside}
"""Aggregates that a source may call -> what they are calculated as."""
SPELLINGS = {name: one.answers for name, one in AGGREGATES.items() if one.answers}
"""What DuckDB calls an aggregate -> what a query calls it."""
FIRST, SECOND, PAIRS, RANKED = (measured(kind) for kind in ("first", "second", "pair", "ranked"))
LINEAR = frozenset({one.answers for one in AGGREGATES.values() if one.linear and one.measured != "pair"} | {"count_units"})
"""What is linear in the counters, and shown without a bias."""
SQUARED = SECOND | frozenset(name for name in PAIRS if not AGGREGATES[name].linear)
"""What needs sums of squares."""
QUANTILES = frozenset(one.answers for one in AGGREGATES.values() if one.fraction)
"""Aggregates whose second argument says which quantile."""
EXTREMES = RANKED - QUANTILES
DISTINCT = {f"{name}_distinct": name for name in dict.fromkeys(SPELLINGS.values()) if name in FIRST | SECOND}
"""Aggregates of distinct values, which have to be listed, but for their number -> the aggregate."""
OF_EQUAL_ROWS = frozenset({"count_units", "count_distinct"}) | DISTINCT.keys() | frozenset(
    one.answers for one in AGGREGATES.values() if one.answers and one.idempotent and one.measured == "listed"
)
"""What is the same of rows of one unit that are equal, however many they are."""
PICKS = frozenset(name for table in (AGGREGATES, WINDOWS) for name, one in table.items() if one.picks)
"""Aggregates and window functions that give one of the values, or NULL."""
COUNTS = frozenset(name for table in (AGGREGATES, WINDOWS) for name, one in table.items() if one.counts)
