"""Columns that hold several values at once, as text with a delimiter: one column for each value, which holds it or is empty.

'theft;fraud' in a column ``offences`` with the declared categories 'theft', 'fraud' and 'arson' is read as three columns, of
which two have a value. Values that were not declared are ignored. Rows are written back in the form that they had.

Privacy: a function of one row's value alone; names and values come from the declared domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.text.names import fold
from dpsql.text.relation import identifier, literal

OPTION = "multi_value_columns"
_SEPARATOR = ": "


def expanded(domain: Domain, options: Mapping[str, Any]) -> Domain:
    """Return the domain with one attribute for each value of a column with several.

    Raises
    ------
    ArgumentError
        The option is not a struct of columns and delimiters, or a column is not a text column with declared categories.
    """
    delimiter_of = delimiters(options)
    known = {fold(name) for name in domain.names}
    missing = [name for name in delimiter_of if name not in known]
    if missing:
        listed = list(domain.names)
        raise ArgumentError(OPTION, options.get(OPTION), f"{missing[0]!r} is not a column with a domain; there are {listed!r}")
    attributes: list[Attribute] = []
    for attribute in domain.attributes:
        delimiter = delimiter_of.get(fold(attribute.name))
        attributes += [attribute] if delimiter is None else _values(attribute, delimiter)
    # A column and a value of it are named apart, which could give a name that is there already.
    names = [fold(attribute.name) for attribute in attributes]
    if len(set(names)) < len(names):
        raise ArgumentError(OPTION, options.get(OPTION), "another column has the name of a column and one of its values; rename it")
    return Domain(tuple(attributes))


def delimiters(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the delimiter of each column, by its name as DuckDB compares it."""
    columns = options.get(OPTION) or {}
    if not isinstance(columns, Mapping) or not all(isinstance(d, str) and d for d in columns.values()):
        raise ArgumentError(OPTION, columns, "a struct of columns and delimiters is required, e.g. {'offences': ';'}")
    return {fold(str(name)): str(delimiter) for name, delimiter in columns.items()}


def _values(attribute: Attribute, delimiter: str) -> list[Attribute]:
    if sqltypes.parse(attribute.sql_type).family != "text" or not attribute.categories:
        raise ArgumentError(
            OPTION, attribute.name, "a VARCHAR column with declared categories is required: its single values, without delimiters"
        )
    containing = [value for value in attribute.categories if delimiter in value]
    if containing:
        raise ArgumentError(OPTION, attribute.name, f"its declared category {containing[0]!r} holds the delimiter {delimiter!r}")
    return [Attribute(attribute.name + _SEPARATOR + v, "VARCHAR", "categorical", (v,), nullable=True) for v in attribute.categories]


def origins(domain: Domain, options: Mapping[str, Any]) -> list[str]:
    """Return the column that each attribute of an expanded domain comes from.

    Examples
    --------
    >>> split = Attribute("tags: a", "VARCHAR", "categorical", ("a",))
    >>> origins(Domain((split,)), {"multi_value_columns": {"Tags": ","}}), origins(Domain((split,)), {})
    (['tags'], ['tags: a'])
    """
    delimiter_of = delimiters(options)
    columns = []
    for a in domain.attributes:
        end = _SEPARATOR + a.categories[0] if len(a.categories) == 1 else ""
        name = a.name.removesuffix(end) if end else a.name
        columns.append(name if name != a.name and fold(name) in delimiter_of else a.name)
    return columns


def split(domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of the attributes that are one of several values of a column."""
    return tuple(i for i, (name, origin) in enumerate(zip(domain.names, origins(domain, options), strict=True)) if name != origin)


def split_sql(source_sql: str, domain: Domain, options: Mapping[str, Any]) -> str:
    """Return a SELECT of the source with a column for each value: that value where the row has it, else NULL."""
    places = split(domain, options)
    if not places:
        return source_sql
    delimiter_of, names = delimiters(options), origins(domain, options)
    columns = []
    for i in places:
        value = literal(domain.attributes[i].categories[0])
        parts = f"string_split({identifier(names[i])}::VARCHAR, {literal(delimiter_of[fold(names[i])])})"
        columns.append(f"CASE WHEN list_contains({parts}, {value}) THEN {value} END AS {identifier(domain.names[i])}")
    return f"SELECT *, {', '.join(columns)} FROM (\n{source_sql}\n)"  # noqa: S608 -- quoted


def joined_sql(rows_sql: str, domain: Domain, options: Mapping[str, Any]) -> str:
    """Return a SELECT of drawn rows with the values of a column in one text again, NULL where there is none."""
    if not split(domain, options):
        return rows_sql
    delimiter_of = delimiters(options)
    columns = []
    for origin, group in groupby(zip(origins(domain, options), domain.names, strict=True), key=lambda pair: pair[0]):
        names = [name for _, name in group]
        columns.append(_column(origin, names, delimiter_of.get(fold(origin), "")))
    return f"SELECT {', '.join(columns)} FROM ({rows_sql})"  # noqa: S608 -- quoted


def _column(origin: str, names: Sequence[str], delimiter: str) -> str:
    if list(names) == [origin]:
        return identifier(origin)
    values = ", ".join(map(identifier, names))
    return f"nullif(concat_ws({literal(delimiter)}, {values}), '') AS {identifier(origin)}"
