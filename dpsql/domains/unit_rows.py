"""How many rows each privacy unit has: a noisy histogram of units, and what it says about max_contributions.

Every unit falls into one bucket, whatever its number of rows, so one unit more or fewer changes one count by one: the noise is that
of one row per unit, and does not depend on max_contributions, which it helps to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from sqlglot import exp

from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.encoding import ROW_COLUMN, SOURCE_NAME, UNIT_COLUMN
from dpsql.numerics.arrays import IntArray
from dpsql.numerics.products import multiplies
from dpsql.text.relation import identifier

LOWER = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
"""The least number of rows of each bucket; public, and the same for every table."""
OFFERED = (1, 2, 5, 10, 20, 50)
"""The values of max_contributions that a plan compares."""
NAME = "rows_per_unit"
_FINE = (1, 1.5, 2, 3, 5, 7)
"""Beginnings of finer buckets in each power of ten, but for those below 10."""
SURE = 0.9999
"""A count above this share of the noise is no noise, see `share_kept`."""


def finer(most: int) -> tuple[int, ...]:
    """Return the beginnings of finer buckets, none above ``most``, for a number that is chosen by them and shown to nobody.

    Examples
    --------
    >>> finer(1), finer(40), finer(10**7)[-3:]
    ((1,), (1, 2, 3, 4, 5, 7, 10, 15, 20, 30), (500000, 700000, 1000000))
    """
    decades = [int(step * 10**power) for power in range(1, 6) for step in _FINE]
    return tuple(low for low in (1, 2, 3, 4, 5, 7, *decades, 10**6) if low <= most)


def domain(lower: Sequence[int] = LOWER) -> Domain:
    """Return the public domain: one attribute, whose values are the buckets that begin there.

    Examples
    --------
    >>> domain().attributes[0].categories[:4], domain().attributes[0].categories[-1]
    (('1', '2', '3-4', '5-9'), '1000+')
    """
    labels = [str(low) if low + 1 == high else f"{low}-{high - 1}" for low, high in pairwise(lower)]
    return Domain((Attribute(NAME, "VARCHAR", "categorical", (*labels, f"{lower[-1]}+"), nullable=False),))


def lower_of(buckets: Domain) -> tuple[int, ...]:
    """Return the least number of rows of each bucket of a `domain`, or of `counted_domain`.

    Examples
    --------
    >>> lower_of(domain()) == lower_of(counted_domain()) == LOWER, lower_of(domain(finer(4)))
    (True, (1, 2, 3, 4))
    """
    [attribute] = buckets.attributes
    if attribute.edges:
        return tuple(int(edge) for edge in attribute.edges[:-1])
    return tuple(int(label.partition("-")[0].removesuffix("+")) for label in attribute.categories)


def counted_domain() -> Domain:
    """Return the same buckets as bins of a column of whole numbers, of a source that has the numbers of rows already.

    Examples
    --------
    >>> counted_domain().attributes[0].values == domain().attributes[0].values
    True
    """
    return Domain((Attribute(NAME, "BIGINT", "numeric", edges=(*map(float, LOWER), 2.0 * LOWER[-1]), nullable=False),))


def _rows(numbered: bool) -> exp.Expression:
    """Return the number of rows of a group: where a join may repeat a row, each counts once by its number."""
    if not numbered:
        return exp.Count(this=exp.Star())
    return exp.Count(this=exp.Distinct(expressions=[exp.column(ROW_COLUMN, quoted=True)]))


def statement(source_sql: str, lower: Sequence[int], numbered: bool = False) -> str:
    """Return the SELECT of one row per unit: c0, the bucket of its number of rows.

    Parameters
    ----------
    source_sql : str
        The checked SELECT, with the column `dpsql.domains.encoding.UNIT_COLUMN`.
    lower : sequence of int
        The beginnings of the buckets.
    numbered : bool
        Whether it has a join, and `dpsql.domains.encoding.ROW_COLUMN`.

    Notes
    -----
    Privacy: a unit gives one row, which depends on its own rows alone; units whose value is NULL are one, as in the bounding.
    """
    number = exp.column("n", quoted=True)
    bucket = exp.Case()
    for code, low in reversed(list(enumerate(lower))[1:]):
        bucket = bucket.when(number.copy() >= exp.Literal.number(low), exp.Literal.number(code))
    bucket = bucket.else_(exp.Literal.number(0))
    unit = exp.column(UNIT_COLUMN, quoted=True)
    counted = exp.select(exp.alias_(_rows(numbered), "n", quoted=True)).from_(exp.to_table(SOURCE_NAME)).group_by(unit)
    code = exp.alias_(exp.cast(bucket, "UTINYINT", dialect="duckdb"), "c0", quoted=True)
    coded = exp.select(code).from_(counted.subquery("units"))
    return f"WITH {identifier(SOURCE_NAME)} AS (\n{source_sql}\n) {coded.sql(dialect='duckdb')}"


def kept_sql(source_sql: str, most: int, numbered: bool = False) -> str:
    """Return a SELECT of one row: how many rows of a checked source stay where at most ``most`` of each unit do.

    Notes
    -----
    Privacy: NOT PRIVATE, an exact count.
    """
    unit = exp.column(UNIT_COLUMN, quoted=True)
    least = exp.Least(this=_rows(numbered), expressions=[exp.Literal.number(most)])
    counted = exp.select(exp.alias_(least, "n", quoted=True)).from_(exp.to_table(SOURCE_NAME)).group_by(unit)
    total = exp.Coalesce(this=exp.Sum(this=exp.column("n", quoted=True)), expressions=[exp.Literal.number(0)])
    query = exp.select(exp.cast(total, "BIGINT", dialect="duckdb")).from_(counted.subquery("units"))
    return f"WITH {identifier(SOURCE_NAME)} AS (\n{source_sql}\n) {query.sql(dialect='duckdb')}"


@multiplies
def share_kept(lower: Sequence[int], counts: IntArray, band: int, most: int) -> float | None:
    """Estimate the share of all rows that stay where at most ``most`` of each unit do; None where nothing can be told from noise.

    Parameters
    ----------
    lower : sequence of int
        The beginnings of the buckets.
    counts : int64 array of the same length
        Noisy numbers of units.
    band : int
        What a count has to be above to be no noise (`SURE`): the highest buckets that are not are taken as empty,
        since the noise of one would count as that many units with a thousand rows each.
    most : int

    Notes
    -----
    Inside a bucket the number of units is taken to fall or rise exponentially, as it does between the buckets beside it, or as
    1 / r where those cannot be told from empty ones; the highest bucket is taken to end at twice its beginning. A few units with
    very many rows cannot be told from noise: then the share is too high.

    Privacy: None: post-processing.

    Examples
    --------
    >>> shares = [share_kept(LOWER, np.array([100, 0, 0, 100, 0, 0, 0, 0, 0, 0, 30]), 40, most) for most in (1, 5, 10)]
    >>> [round(share, 3) for share in shares], share_kept(LOWER, np.zeros(11, np.int64), 3, 1)
    ([0.26, 0.779, 1.0], None)
    """
    above = np.flatnonzero(np.asarray(counts) > band)
    if not above.size:
        return None
    # Beyond the last band that is surely not noise nobody is counted.
    units = np.maximum(np.asarray(counts, dtype=np.float64), 0)
    units[above[-1] + 1 :] = 0
    ends = (*lower, 2 * lower[-1])
    center = (np.array(ends[:-1]) + np.array(ends[1:]) - 1) / 2
    density = units / np.diff(ends)
    rows, kept = np.zeros(len(lower)), np.zeros(len(lower))
    for i, (low, high) in enumerate(pairwise(ends)):
        r = np.arange(low, high, dtype=np.float64)
        # Within a band units thin out, as far as the bands beside it can tell.
        beside = [j for j in (i - 1, i, i + 1) if 0 <= j < len(lower) and counts[j] > band]
        if len(beside) > 1:
            first, last = beside[0], beside[-1]
            slope = np.log(density[last] / density[first]) / (center[last] - center[first])
            weights = np.exp(slope * (r - (low if slope < 0 else high - 1)))
        else:
            weights = 1 / r
        weights /= weights.sum()
        rows[i], kept[i] = weights @ r, weights @ np.minimum(r, most)
    return float(units @ kept / (units @ rows))


def capped(unit: str | None, most: int) -> str | None:
    """Return the sentence that says what is counted where rows of a unit are bounded; None where every row is a unit of its own.

    Examples
    --------
    >>> capped("patient", 5)
    'at most 5 rows of each patient are kept, at random: counts are of the kept rows'
    """
    if unit is None:
        return None
    rows = "row of each" if most == 1 else "rows of each"
    return f"at most {most} {rows} {unit} {'is' if most == 1 else 'are'} kept, at random: counts are of the kept rows"
