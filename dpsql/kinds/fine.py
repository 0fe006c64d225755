"""Which columns of a release get a fine histogram before its tables, how many levels each, and what part of the loss they take.

Columns with automatic bins always do: their bins are cut from it. Columns whose bins were declared do where rows are drawn and a
bin holds more than one value, so that values inside a bin can be placed.

Privacy: decided from the public domain and the call alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpsql.accounting import LaplaceEvent, sensitivities
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.edges import has_inside
from dpsql.domains.grid import DEEPEST, grid_of
from dpsql.errors import ArgumentError
from dpsql.noise.discrete import scale_grid
from dpsql.release.plan import FineColumn

SHARE, CUTTING_SHARE = 0.04, 0.1
"""Part of the loss of a release of many tables that its fine histograms take: where they place values inside declared bins, and
where automatic bins are cut from them. Measured by ``tests/benchmarks/values.py``."""

_LEAST_WEIGHT, _LARGEST_SHARE = 0.25, 0.2
"""Where tables are few a level takes up to this part of a two-way table's loss, and all levels at most this part of the whole."""

PURE_SHARE = Fraction(1, 10)
"""Part of a pure epsilon that fine histograms take, where the rest is drawn with."""

_FAR = 2.5
"""Noise scales up to which a few rows far from all others are taken for noise (`dpsql.tables.tails`)."""

_LAPLACE_SHARE = 0.25
"""Levels under Laplace noise, which knows no weights, relative to the number of tables, at most."""


@dataclass(frozen=True)
class FineWanted:
    """The fine histograms of a release.

    Parameters
    ----------
    positions : tuple of int
        Attributes, ascending.
    levels : tuple of int
        Levels of each.
    cuts : bool
        Whether bins of any of them are automatic.
    """

    positions: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    cuts: bool = False

    @property
    def count(self) -> int:
        """Number of levels of all."""
        return sum(self.levels)

    def columns(self, scales: Sequence[Fraction], mechanism: str) -> tuple[FineColumn, ...]:
        """Return the columns of a plan, with the scale of every level in order."""
        columns, start = [], 0
        for position, levels in zip(self.positions, self.levels, strict=True):
            columns.append(FineColumn(position, tuple(scales[start : start + levels]), mechanism))
            start += levels
        return tuple(columns)


def fine_wanted(domain: Domain, option: Any, *, rows: bool, unbinned: Collection[int] = ()) -> FineWanted:
    """Return the fine histograms of a call under Gaussian noise.

    Parameters
    ----------
    option : 'auto' or number in [0, 0.5]
        The option `fine`.
    rows : bool
        Whether rows are drawn, so that values inside declared bins matter.
    unbinned : collection of int
        Attributes whose values are used as they are, without bins.

    Raises
    ------
    ArgumentError
        The option is out of range, or 0 although bins are automatic.
    """
    if option != "auto" and (isinstance(option, bool) or not isinstance(option, int | float) or not 0 <= option <= 0.5):
        raise ArgumentError("fine", option, "'auto', or the part of the loss that fine histograms take, from 0 to 0.5")
    automatic = [i for i, attribute in enumerate(domain.attributes) if attribute.automatic]
    if option == 0 and automatic:
        name = domain.attributes[automatic[0]].name
        raise ArgumentError("fine", option, f"column {name!r} has automatic bins, which are cut from its fine histogram: "
                            "declare it with bins := ... or edges := [...], or leave fine out")
    is_fine = [a.automatic or (rows and option != 0 and _inside(a)) for a in domain.attributes]
    positions = [i for i, is_wanted in enumerate(is_fine) if is_wanted and i not in unbinned]
    levels = tuple(len(grid_of(domain.attributes[i]).levels) for i in positions)
    return FineWanted(tuple(positions), levels, any(domain.attributes[i].automatic for i in positions))


def without_automatic(domain: Domain, unbinned: Collection[int]) -> Domain:
    """Return the domain whose attributes at these positions, the bins of which nobody looks at, are plain ones."""
    attributes = enumerate(domain.attributes)
    return Domain(tuple(replace(a, automatic=False) if i in unbinned else a for i, a in attributes))


def shallow(histograms: FineWanted, tables: int) -> FineWanted:
    """Return the same columns with as many levels as noise of one scale for all tables and levels can bear."""
    each = max(int(_LAPLACE_SHARE * tables / max(len(histograms.positions), 1)), 1)
    return replace(histograms, levels=tuple(min(levels, each, DEEPEST) for levels in histograms.levels))


def level_weight(tables: float, histograms: FineWanted, option: Any) -> float:
    """Return the weight of one level, where the tables' weights (of two-way tables: 1) add up to ``tables``."""
    if not histograms.count:
        return 0.0
    if option != "auto":
        return float(option) / (1.0 - float(option)) * tables / histograms.count
    share = CUTTING_SHARE if histograms.cuts else SHARE
    usual = share / (1.0 - share) * tables / histograms.count
    few = min(_LEAST_WEIGHT, _LARGEST_SHARE / (1.0 - _LARGEST_SHARE) * tables / histograms.count)
    return max(usual, few)


def pure_share(
    epsilon: Fraction, histograms: FineWanted, neighbors: str, max_contributions: int
) -> tuple[Fraction, LaplaceEvent | None]:
    """Return what is left of a pure epsilon after fine histograms, and their event; all of it and None where there are none.

    Privacy: the levels are `LaplaceEvent.count` tables of an adaptive composition, of PURE_SHARE times epsilon together.
    """
    if not histograms.count:
        return epsilon, None
    l1, _ = sensitivities(neighbors, max_contributions)
    scale = scale_grid(Fraction(l1) * histograms.count / (PURE_SHARE * epsilon))
    return epsilon - PURE_SHARE * epsilon, LaplaceEvent(scale, l1, histograms.count)


def notes(domain: Domain, histograms: FineWanted, share: float, scale: float | None = None) -> tuple[str, ...]:
    """Return what ``dp_plan`` says of fine histograms; ``scale``: noise of the tables' cells, where it is known."""
    if not histograms.positions:
        return ()
    automatic = [domain.attributes[i].name for i in histograms.positions if domain.attributes[i].automatic]
    sentences = [
        f"fine histograms of {_listed([domain.attributes[i].name for i in histograms.positions])} are bought with the release, for "
        f"{100 * share:.2g} % of its loss; values inside a bin follow them"
    ]
    if automatic:
        most = f"at most {_most(domain)} each, before tables are counted"
        sentences.append(f"automatic bins of {_listed(automatic)} are cut from them, {most}")
        if scale is not None:
            sentences.append(
                f"fewer than about {round(_FAR * scale):,} rows far from all others are within the noise: means and maxima that so "
                "few rows make up are not kept; bounds as near as can be defended help"
            )
    else:
        sentences.append("options := {'fine': 0} leaves them out: values are then uniform inside their bins")
    return tuple(sentences)


def _most(domain: Domain) -> int:
    return max(attribute.values for attribute in domain.attributes if attribute.automatic)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _inside(attribute: Attribute) -> bool:
    return attribute.kind != "categorical" and has_inside(sqltypes.parse(attribute.sql_type), attribute.edges)


def option_of(parameters: Mapping[str, Any]) -> Any:
    """Return the option `fine` of a call; 'auto' where it has none."""
    return parameters.get("options", {}).get("fine", "auto")
