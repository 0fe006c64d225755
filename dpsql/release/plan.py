"""What a release measures: decided before a row is read, stored with the charge and in the release's file.

`dpsql.release.checking` checks it when it is read.

Privacy: None: plans are public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import Clique, FloatArray, IntArray
from dpsql.release.linked import LinkedPlan
from dpsql.release.queried import QueryPlan
from dpsql.tables import coarse
from dpsql.tables.flat import AllCliques, by_order, cell_counts

MAX_TABLES = 100_000_000
MAX_CELLS = 1_000_000_000


@dataclass(frozen=True)
class FineColumn:
    """A column whose fine histogram is measured before the tables, see `dpsql.tables.fine`.

    Parameters
    ----------
    position : int
        Of the attribute.
    scales : tuple of Fraction
        Noise scale of each level of its grid; their number is that of the levels.
    mechanism : str
        'gaussian' or 'laplace'.
    """

    position: int
    scales: tuple[Fraction, ...]
    mechanism: str


@dataclass(frozen=True)
class Plan:
    """What a release measures: decided before a row is read, stored with the charge, never changed afterwards.

    Parameters
    ----------
    domain : Domain
        The public domain of the measured columns, in column order.
    cliques : sequence of cliques
        Positions of attributes, ascending.
    scales : tuple of Fraction
        Noise scale of each table, then of each coarse table: sigma of the discrete Gaussian, or b of the discrete Laplace.
    mechanism : str
        'gaussian' or 'laplace' noise on the tables, or what a method that draws its release itself calls its mechanism.
    public_total : bool
        Whether the number of rows is public (replace_one over a whole table).
    method : str or None
        Method that will be fitted, None for plain tables.
    options : mapping
        Options of the method, with defaults filled in.
    blocks : tuple of int or None
        Lengths of what a method draws itself; None where noisy tables are released.
    parameters : mapping
        What is drawn with, as priced.
    open : bool
        Whether the released values are part of the release, because no domain lists them. The domain then has one column
        without categories.
    sparse : bool
        Whether only some cells of the tables are released: which ones was decided by what was released before them.
    coarse : tuple of cliques
        Pairs among `cliques` whose coarse tables are released after the tables, see `dpsql.tables.coarse`.
    units : bool
        Whether privacy units are counted, by their number of rows, and not rows, see `dpsql.domains.unit_rows`.
    fine : tuple of FineColumn
        Columns with bounds whose fine histograms are released before the tables. The bins of an automatic attribute are cut from
        them: until then its domain has as many bins as there can be, see `dpsql.release.refined`.
    rules : tuple of str
        Rules that every row of the release obeys, in the canonical text of `dpsql.rules.grammar`.
    query : QueryPlan or None
        What is measured of a query; the domain and the tables are empty then. ``scales``: one for each of its blocks.
    linked : LinkedPlan or None
        What is measured of linked tables: they have domains of their own, and ``domain`` and ``cliques`` are empty. ``blocks`` and
        ``scales``: one for each of its blocks.
    """

    domain: Domain
    cliques: Sequence[Clique]
    scales: tuple[Fraction, ...]
    mechanism: str
    public_total: bool
    method: str | None
    options: Mapping[str, Any]
    blocks: tuple[int, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False
    sparse: bool = False
    coarse: tuple[Clique, ...] = ()
    units: bool = False
    fine: tuple[FineColumn, ...] = ()
    rules: tuple[str, ...] = ()
    query: QueryPlan | None = None
    linked: LinkedPlan | None = None

    @property
    def listed(self) -> bool:
        """Whether a release lists what it holds, since that is not known beforehand."""
        return self.open or self.sparse or self.query is not None

    @property
    def valued(self) -> bool:
        """Whether a release holds texts beside its integers: released values, or the keys of groups."""
        return self.open or self.query is not None

    @cached_property
    def lengths(self) -> IntArray:
        """Length of each table, then each coarse table, or of each block; none is known beforehand where a release lists them."""
        if self.listed:
            return np.zeros(0, np.int64)
        if self.blocks is not None:
            return np.asarray(self.blocks, np.int64)
        groups = np.asarray([math.prod(coarse.shape(self.domain, pair)) for pair in self.coarse], np.int64)
        return np.concatenate([self.table_lengths, groups])

    @cached_property
    def orders(self) -> list[tuple[IntArray, IntArray]]:
        """The cliques of each length: places among all, and an array of them."""
        return by_order(self.cliques)

    @cached_property
    def table_lengths(self) -> IntArray:
        """Length of each noisy table of the first round."""
        return cell_counts(self.domain.sizes, self.cliques)

    @property
    def cells(self) -> int:
        """Number of released integers over all tables or blocks; of sparse tables the most that there can be."""
        if self.query is not None:
            return (self.query.groups or 0) * sum(self.query.blocks)
        return sum(self.domain.cells(clique) for clique in self.cliques) if self.sparse else int(self.lengths.sum())

    @cached_property
    def scale_runs(self) -> list[tuple[Fraction, int]]:
        """Equal scales that follow each other, written once, with their number."""
        return [(scale, len(list(run))) for scale, run in itertools.groupby(self.scales)]

    @property
    def scale_numbers(self) -> FloatArray:
        """The scales as floats."""
        return np.repeat([float(scale) for scale, _ in self.scale_runs], [count for _, count in self.scale_runs])

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and dicts; runs of equal scales and full sets of tables are written short."""
        runs = [[str(scale), count] for scale, count in self.scale_runs]
        drawn = {} if self.blocks is None and not self.open else {
            "blocks": None if self.blocks is None else list(self.blocks), "parameters": dict(self.parameters), "open": self.open,
        }
        # What a release does not have is left out: plans of older versions stay the texts that the ledger knows.
        return {
            **drawn,
            **({"sparse": True, "parameters": dict(self.parameters)} if self.sparse else {}),
            **({"coarse": [list(pair) for pair in self.coarse]} if self.coarse else {}),
            **({"units": True} if self.units else {}),
            **({"fine": [[c.position, c.mechanism, [str(s) for s in c.scales]] for c in self.fine]} if self.fine else {}),
            **({"rules": list(self.rules)} if self.rules else {}),
            **({"query": self.query.to_json()} if self.query is not None else {}),
            **({"linked": self.linked.to_json()} if self.linked is not None else {}),
            "domain": self.domain.to_json(),
            "tables": _short(self.cliques, len(self.domain.attributes)),
            "scales": runs,
            "mechanism": self.mechanism,
            "public_total": self.public_total,
            "method": self.method,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Plan:
        """Read what ``to_json`` wrote."""
        domain = Domain.from_json(item["domain"])
        return cls(
            domain=domain,
            cliques=_long(item["tables"], len(domain.attributes)),
            scales=tuple(itertools.chain.from_iterable(itertools.repeat(Fraction(text), count) for text, count in item["scales"])),
            mechanism=item["mechanism"],
            public_total=item["public_total"],
            method=item["method"],
            options=item["options"],
            blocks=None if item.get("blocks") is None else tuple(item["blocks"]),
            parameters=item.get("parameters", {}),
            open=item.get("open", False),
            sparse=item.get("sparse", False),
            coarse=tuple(tuple(pair) for pair in item.get("coarse", ())),
            units=item.get("units", False),
            fine=tuple(FineColumn(i, tuple(map(Fraction, scales)), name) for i, name, scales in item.get("fine", ())),
            rules=tuple(item.get("rules", ())),
            query=QueryPlan.from_json(item["query"]) if "query" in item else None,
            linked=LinkedPlan.from_json(item["linked"]) if "linked" in item else None,
        )


def _short(cliques: Sequence[Clique], attributes: int) -> dict[str, Any]:
    every = isinstance(cliques, AllCliques) and cliques.attributes == attributes
    orders = sorted(set(cliques.orders if isinstance(cliques, AllCliques) and every else map(len, cliques)))
    if AllCliques(attributes, orders) == cliques:
        return {"all_of_order": orders}
    return {"cliques": [list(clique) for clique in cliques]}


def _long(item: Mapping[str, Any], attributes: int) -> Sequence[Clique]:
    if "all_of_order" in item:
        cliques = AllCliques(attributes, item["all_of_order"])
        if len(cliques) > MAX_TABLES:
            raise ValueError("more tables than were ever measured")
        return cliques
    return tuple(tuple(clique) for clique in item["cliques"])
