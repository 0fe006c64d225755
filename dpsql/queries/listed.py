"""Texts that a query compares with a declared column, none of whose values they are: a misspelling that would be paid for.

Privacy: none; declarations and the text of the query alone.
"""

from __future__ import annotations

import difflib

from sqlglot import exp

from dpsql.domains.attributes import Attribute
from dpsql.errors import ArgumentError
from dpsql.queries.leaves import Facts
from dpsql.queries.lineage import Leaf, Lineage

_SHOWN = 12
_LISTED = ("VARCHAR", "ENUM")


def check_listed(select: exp.Select, lineage: Lineage, facts: Facts) -> None:
    """Refuse a comparison of a column with a text that is not in its list.

    Raises
    ------
    ArgumentError
        Names the nearest values.
    """
    for node in select.find_all(exp.EQ, exp.NEQ, exp.In):
        if node.find_ancestor(exp.Select) not in (None, select):
            continue
        pairs = [(node.this, e) for e in node.expressions] if isinstance(node, exp.In) else [
            (node.this, node.expression), (node.expression, node.this)
        ]
        for column, text in pairs:
            if isinstance(column, exp.Column) and isinstance(text, exp.Literal) and text.is_string:
                _check(column, text.name, lineage, facts)


def _check(column: exp.Column, text: str, lineage: Lineage, facts: Facts) -> None:
    origin = lineage.origin(column)
    listed: list[str] = []
    for part in origin or ():
        attribute = facts.column(part.relation, part.name) if isinstance(part, Leaf) and facts(part.relation).protected else None
        if not isinstance(attribute, Attribute) or attribute.kind != "categorical" or attribute.outside == "other":
            return
        if attribute.sql_type.partition("(")[0] not in _LISTED:
            return
        listed += map(str, attribute.categories)
    if not listed or not text or text in listed:  # tools ask for the empty text beside NULL: no typing error
        return
    # a misspelt value is shown what it may have been; else the first ones
    near = difflib.get_close_matches(text.lower(), [value.lower() for value in listed], 3, 0.6)
    known = [value for value in listed if value.lower() in near] or listed[:_SHOWN]
    more = "" if len(known) < _SHOWN or len(listed) <= _SHOWN else ", ..."
    raise ArgumentError(
        "sql", f"{column.name} = {text!r}",
        f"{text!r} is not among the declared values of {column.name}: {', '.join(map(repr, known))}{more}. Nothing was charged; "
        "if it is a value, declare it",
    )
