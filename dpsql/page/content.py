"""What a report says, as plain values: gathered from a release and its books, written as HTML by `dpsql.page.document`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.numerics.arrays import FloatArray
from dpsql.page.crosstab import CrossTable
from dpsql.page.figures import Column
from dpsql.page.fine import Fine


@dataclass(frozen=True)
class Listing:
    """A table of the page: title, header, rows, and what to know about it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numeric: Sequence[int] = ()
    note: str = ""


@dataclass(frozen=True)
class Maps:
    """Dependence of pairs over the shown columns: matrices of V, NaN where a pair is not known.

    ``low`` and ``high`` are the ends of the 95 % bands of the released ones.
    """

    names: Sequence[str]
    released: FloatArray | None = None
    synthetic: FloatArray | None = None
    raw: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    left_out: int = 0
    below_noise: int = 0
    pairs: int = 0

    @property
    def which(self) -> str:
        """Say which columns are shown where not all are."""
        return "that depend most on others" if self.released is not None else "that come first"


@dataclass(frozen=True)
class Comparison:
    """What the custodian sees beside a release. NOT PRIVATE."""

    listings: Sequence[Listing] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """An aggregate by groups.

    Parameters
    ----------
    name : str
        The aggregate, as in SQL.
    labels : list of str
        The groups.
    values, low, high : float arrays, shape (groups,)
        NaN where there is no number.
    from_zero : bool
        Whether values are amounts, whose bars begin at zero; else points.
    """

    name: str
    labels: Sequence[str]
    values: FloatArray
    low: FloatArray
    high: FloatArray
    from_zero: bool


@dataclass(frozen=True)
class Answer:
    """What a query's release says: what was asked; all groups with intervals; charts; how it came about; number of groups.

    Parameters
    ----------
    question : str
        The aggregates and their groups, as in SQL.
    rows : str
        Which rows they are of: FROM and WHERE.
    explained : list of (about what, text)
    """

    question: str
    rows: str
    listing: Listing
    charts: Sequence[Chart]
    explained: Sequence[tuple[str, str]]
    groups: int = 1


@dataclass(frozen=True)
class LinkedTable:
    """What the page says of one of several linked tables: texts about it, errors, rules, charts of columns, dependence of pairs."""

    name: str
    about: Sequence[str]
    errors: Listing
    rules: Sequence[str] = ()
    columns: Sequence[Column] = ()
    left_out: Sequence[str] = ()
    maps: Maps | None = None


@dataclass(frozen=True)
class Link:
    """What the page says of a table below another one.

    Parameters
    ----------
    title : str
    about : texts
    fan_out : Column
        Rows of the parent by their number of children.
    listings : tables
        Means by the parent's columns; dependence of pairs of columns of a row and one above it, of siblings, of neighbours.
    ordered : charts
        Of the first row of each parent, and how far the next one is.
    """

    title: str
    about: Sequence[str]
    fan_out: Column
    listings: Sequence[Listing] = ()
    ordered: Sequence[Column] = ()


@dataclass(frozen=True)
class LinkedTables:
    """What the page says of a release of linked tables, parents first; ``listing``: the tables, and rows of the synthetic ones.

    ``independent``: they were measured each by itself, in numbers of rows.
    """

    listing: Listing
    about: Sequence[str]
    tables: Sequence[LinkedTable]
    links: Sequence[Link]
    independent: bool = False


@dataclass(frozen=True)
class Content:
    """Everything on the page.

    Parameters
    ----------
    manifest : mapping
        Provenance of the release, as stored.
    method : str or None
    budget : (epsilon, delta) or None
        In force for the whole table; None where the books are not here.
    rows : float or None
        Number of rows, as released or public.
    counted : str or None
        What counts are of, where not every row was counted.
    synthetic_rows : int or None
        Of the table it is compared with; None where there is none.
    sets : int
        Number of synthetic tables.
    measured, domain, ledger, listings : tables
    rules : Listing or None
        What every synthetic row obeys; None where nothing was declared.
    columns : charts; ``columns_left_out``: names of those without one
    fine : charts of values inside bins
    tables : released cross-tables
    maps : Maps or None
    notes : texts about the release
    answer : Answer or None
        Of a query's release.
    comparison : Comparison or None
        NOT PRIVATE where given.
    linked : LinkedTables or None
        Of a release of linked tables.
    """

    manifest: Mapping[str, Any]
    method: str | None
    budget: tuple[float, float] | None
    rows: float | None
    public_total: bool
    measured: Listing
    domain: Listing
    ledger: Listing | None
    chain_holds: bool | None = None
    counted: str | None = None
    synthetic_rows: int | None = None
    sets: int = 1
    columns: Sequence[Column] = ()
    columns_left_out: Sequence[str] = ()
    fine: Sequence[Fine] = ()
    listings: Sequence[Listing] = ()
    tables: Sequence[CrossTable] = ()
    maps: Maps | None = None
    rules: Listing | None = None
    notes: Sequence[str] = field(default=())
    answer: Answer | None = None
    comparison: Comparison | None = None
    linked: LinkedTables | None = None
