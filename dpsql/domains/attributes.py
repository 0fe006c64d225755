"""Public domains: what values an attribute may take, and what code stands for which value.

Nothing in here has seen data. An attribute has ``size`` codes: its declared values or bins first (0, 1, ...), then the
'other' code if values outside the domain are kept apart, then NULL if the attribute is nullable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dpsql.domains import sqltypes
from dpsql.errors import DomainError

OUTSIDE = ("clamp", "other", "drop")
OTHER_LABEL = "(other)"

FINE = 1 << 16
"""Steps of the fixed-point scale between the bounds of a numeric attribute, for methods that sum values."""


@dataclass(frozen=True)
class Attribute:
    """One attribute of a source with its public finite domain.

    Parameters
    ----------
    name : str
        Column name, as in the source.
    sql_type : str
        DuckDB type of the column, as DuckDB spells it; the synthetic column gets the same type.
    kind : {'categorical', 'numeric', 'temporal'}
    categories : tuple of str
        Categorical: the values, as DuckDB casts them to VARCHAR; distinct, in the declared order.
    edges : tuple of float or of str
        Numeric: strictly increasing bin edges, length bins + 1. Temporal: the same as ISO texts.
        Bin i is [edges[i], edges[i + 1]); the last one includes its right edge.
    nullable : bool
        Whether NULL is a value of its own. If not, NULL is treated as a value outside the domain.
    outside : {'clamp', 'other', 'drop'}
        What becomes of values outside the domain. 'clamp': to the nearest bin; where there is no nearest value
        (a category, NULL or NaN) to NULL if nullable, else to code 0. 'other': a code of its own. 'drop': the row is left out.
    automatic : bool
        Whether the bins are bought with a release: `edges` then say the bounds, and how many bins there are at most
        (`dpsql.tables.cutting`). False in the domain of a release that was measured.
    """

    name: str
    sql_type: str
    kind: str
    categories: tuple[str, ...] = ()
    edges: tuple[float, ...] | tuple[str, ...] = ()
    nullable: bool = True
    outside: str = "clamp"
    automatic: bool = False

    @property
    def values(self) -> int:
        """Number of declared values or bins, without 'other' and NULL."""
        return len(self.categories) if self.kind == "categorical" else len(self.edges) - 1

    @property
    def bounded(self) -> Attribute:
        """The attribute with one bin between its bounds."""
        return replace(self, edges=(self.edges[0], self.edges[-1]), automatic=False)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """Return what ``Domain.from_json`` reads back; what an older dpsql did not have is there only where it is used."""
        return {name: value for name, value in asdict(self).items() if name != "automatic" or value}

    @property
    def other_code(self) -> int | None:
        """Code of a value outside the domain, if it has one of its own."""
        return self.values if self.outside == "other" else None

    @property
    def null_code(self) -> int | None:
        """Code of NULL, if NULL is a value of its own."""
        return self.values + (self.outside == "other") if self.nullable else None

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.values + (self.outside == "other") + self.nullable

    def labels(self) -> tuple[str | None, ...]:
        """Return one text per code: the category, the bin as ``[a, b)``, '(other)', or None for NULL."""
        if self.kind == "categorical":
            texts: list[str | None] = list(self.categories)
        else:
            parsed = sqltypes.parse(self.sql_type)
            shown = [sqltypes.edge_text(parsed, edge) for edge in self.edges]
            texts = [f"[{a}, {b})" for a, b in zip(shown[:-1], shown[1:], strict=True)]
            # The last bin has its upper end.
            texts[-1] = f"[{shown[-2]}, {shown[-1]}]"
        if self.outside == "other":
            texts.append(OTHER_LABEL)
        if self.nullable:
            texts.append(None)
        return tuple(texts)


def open_attribute(name: str, sql_type: str) -> Attribute:
    """Return the attribute of a column whose values are not known beforehand: no categories, NULL is left out."""
    return Attribute(name, sql_type, "categorical", (), (), nullable=False, outside="drop")


@dataclass(frozen=True)
class Domain:
    """The attributes of a source, in column order."""

    attributes: tuple[Attribute, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute."""
        return tuple(a.size for a in self.attributes)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(a.name for a in self.attributes)

    def cells(self, clique: Iterable[int]) -> int:
        """Return the number of cells of the contingency table over the attributes at these positions."""
        return math.prod(self.sizes[i] for i in clique)

    def select(self, names: Sequence[str]) -> Domain:
        """Return the domain of these columns, in the order given."""
        by_name = {a.name: a for a in self.attributes}
        missing = [n for n in names if n not in by_name]
        if missing:
            raise DomainError(
                f"columns = {list(names)!r}: {missing[0]!r} has no declared domain; declared are {list(by_name)!r}; "
                f"CALL dp_declare(source, '{missing[0]}', ...) declares it"
            )
        return Domain(tuple(by_name[n] for n in names))

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain lists and dicts that ``from_json`` reads back."""
        return [a.to_json() for a in self.attributes]

    @classmethod
    def from_json(cls, items: Iterable[Mapping[str, Any]]) -> Domain:
        """Read what ``to_json`` wrote."""
        return cls(tuple(Attribute(**{**i, "categories": tuple(i["categories"]), "edges": tuple(i["edges"])}) for i in items))
