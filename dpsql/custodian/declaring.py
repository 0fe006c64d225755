"""dp_declare and dp_domain: public domains of columns. The protected table is not read."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dpsql.calls.custody import DeclareCall, DomainCall
from dpsql.calls.values import BoundsCall, DiscoverCall
from dpsql.domains import bounds, encoding, sqltypes
from dpsql.domains.attributes import OTHER_LABEL, Attribute
from dpsql.domains.declare import MAX_VALUES, self_declared
from dpsql.domains.declare import declare as build_attribute
from dpsql.errors import ArgumentError, DomainError, DpsqlError
from dpsql.protected import public
from dpsql.protected.ruled import across_of, counted_of, rules_of
from dpsql.protected.source import ProtectedSource, columns_of, protection_of, resolve
from dpsql.purchase import buying
from dpsql.release import identity
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.source.analysis import OutputColumn
from dpsql.text.relation import identifier, inline, literal

_MOST_SHOWN, _WIDEST, _MOST_NAMED = 12, 60, 5
_UNSURE = "declared, but nothing rose above the noise: these bounds are a guess; name them, or buy with a larger epsilon"
ATTRIBUTE_COLUMNS = {
    "column_name": "VARCHAR",
    "type": "VARCHAR",
    "kind": "VARCHAR",
    "codes": "INTEGER",
    "labels": "VARCHAR",
    "nullable": "BOOLEAN",
    "outside": "VARCHAR",
    "status": "VARCHAR",
}




def declare(context: Context, call: DeclareCall) -> str:
    """Declare the public domain of a column, or buy the list of its values (``discover``) and declare that."""
    if not call.discover:
        for name in ("epsilon", "delta", "release"):
            if getattr(call, name) is not None:
                raise ArgumentError(name, getattr(call, name), "a declaration costs nothing; it belongs to discover := true")
        return _declared(context, call)
    check_discoverable(context, call)
    if finds_bounds(context, call):
        return _with_bounds(context, call)
    purchase = DiscoverCall(call.source, call.column, call.epsilon, call.delta, call.release)
    with Progress("dp_declare", show=context.progress) as progress:
        bought = buying.buy(context, purchase, progress)
    released = bought.statistics(context.cursor)
    # the most frequent ones that a declaration has room for, in the order of the list
    most = sorted(np.argsort(-released.blocks[0], kind="stable")[:MAX_VALUES].tolist())
    values = _declarable(context, call, [released.values[place] for place in most])
    if not values:
        raise DomainError(
            f"column {call.column!r}: the bought list of values (release {bought.identifier!r}) is empty, so there is nothing "
            "to declare; the charge stands. Buy another one with a larger epsilon and release := 'another name', or list the values"
        )
    _, column, _, outside = declarable(context, call)
    text = sqltypes.parse(column.sql_type).family == "text"
    others = f"are '{OTHER_LABEL}'" if text else "have a code of their own in tables and no group in dp_query"
    status = "declared" if outside != "other" else (
        f"declared; other values {others}, dp_query(..., groups := 'private') finds those that enough units have"
    )
    return _declared(context, replace(call, categories=values), status)


def _declarable(context: Context, call: DeclareCall, values: list[str]) -> list[str]:
    """Return the bought values that a declaration can list; the others are outside of it, as all that were not bought."""
    _, column, _, outside = declarable(context, call)
    if outside == "other":
        values = [value for value in values if value != OTHER_LABEL]
    with suppress(DpsqlError):
        encoding.canonical_categories(context.cursor, column.sql_type, values)
        return values
    listable = []
    # one that is no value of the type does not cost the others
    for value in values:
        with suppress(DpsqlError):
            encoding.canonical_categories(context.cursor, column.sql_type, [value])
            listable.append(value)
    return listable


def finds_bounds(context: Context, call: DeclareCall) -> bool:
    """Return whether the bounds of a column are bought, and not the list of its values."""
    column = resolve(context, call.source).column(call.column)
    return call.discover is True and sqltypes.parse(column.sql_type).family in ("integer", "decimal", "float")


def _with_bounds(context: Context, call: DeclareCall) -> str:
    """Buy between which powers of two the values of a number lie, and declare these bounds, with automatic bins."""
    purchase = BoundsCall(call.source, call.column, call.epsilon, call.delta, call.release)
    with Progress("dp_declare", show=context.progress) as progress:
        bought = buying.buy(context, purchase, progress)
    released = bought.statistics(context.cursor)
    (attribute,), scale = bought.plan.domain.attributes, released.scales[0,]
    lower, upper, sure = bounds.bounds_of(attribute, released.tables[0,], scale, released.mechanism)
    status = "declared" if sure else _UNSURE
    return _declared(context, replace(call, lower=lower, upper=upper, discover=False), status)


def _declared(context: Context, call: DeclareCall, status: str = "declared") -> str:
    """Declare the public domain of a column. Returns a relation of one row.

    Privacy
    -------
    Free: the protected table is not read. What is declared must be public knowledge.
    """
    protected, column, nullable, outside = declarable(context, call)
    categories = _categories(context, call, column.sql_type)
    attribute = build_attribute(
        column.name,
        column.sql_type,
        nullable=nullable,
        lower=call.lower,
        upper=call.upper,
        bins=call.bins,
        edges=call.edges,
        categories=categories,
        outside=outside,
        calendar=call.calendar,
    )
    before = protected.declarations().get(column.name)
    protected.books.declare(protected.query, attribute, context.user)
    if before is not None and before != attribute:
        status += _kept(protected, column.name)
        # beside an answer that was bought before it is said what is declared otherwise since
        context.instance.remembered.pop("answers", None)
    return inline(ATTRIBUTE_COLUMNS, [_shown(attribute, status)])


def _kept(protected: ProtectedSource, column: str) -> str:
    """Return which releases stay as they were bought, and how the same is bought by what is declared now."""
    releases = protected.ledger.naming(column)
    if not releases:
        return ""
    named = identity.listed(releases, most=_MOST_NAMED)
    return f"; what was bought before keeps the earlier domain ({named}): release := 'another name' buys it anew"


def declarable(context: Context, call: DeclareCall) -> tuple[ProtectedSource, OutputColumn, bool, str]:
    """Check what every declaration says; return source, column, nullable and outside, with defaults filled in."""
    protected = columns_of(context, call.source)
    column = protected.column(call.column)
    if protected.is_unit(column):
        expected = f"{protected.unit_is}: it says whose row this is and cannot be data at the same time"
        raise ArgumentError("column", call.column, expected)
    listed = call.discover and not finds_bounds(context, call)
    outside = call.outside or ("other" if listed else "clamp")
    return protected, column, column.nullable if call.nullable is None else call.nullable, outside


def check_discoverable(context: Context, call: DeclareCall) -> None:
    """Refuse, before anything is bought, a column whose bought values could not be declared."""
    for name in ("lower", "upper", "bins", "edges", "categories", "categories_from", "calendar"):
        if getattr(call, name) is not None:
            raise ArgumentError(name, getattr(call, name), "leave it out where discover := true buys the domain")
    _, column, _, _ = declarable(context, call)
    if sqltypes.parse(column.sql_type).family in ("enum", "boolean"):
        expected = f"is {column.sql_type}: its values are public by its type, nothing need be bought"
        raise ArgumentError("column", call.column, expected)
    encoding.canonical_categories(context.cursor, column.sql_type, [])


def _categories(context: Context, call: DeclareCall, sql_type: str) -> list[str] | None:
    listed, column = call.categories, call.categories_from
    if listed is not None and column is not None:
        raise ArgumentError("categories_from", column, "give categories or categories_from, not both")
    if column is not None:
        listed = public.column_values(context, "categories_from", column, MAX_VALUES)
    if listed is None:
        return None
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise ArgumentError("categories", listed, "a list is required, e.g. ['Female', 'Male']")
    return encoding.canonical_categories(context.cursor, sql_type, listed)


def domain(context: Context, call: DomainCall) -> str:
    """List the declared attributes of a source, the columns that are left out, and the rules. Free: no row is read."""
    protected = resolve(context, call.source)
    declared, left_out = protected.attributes()
    own = protected.declarations().keys()
    others = [column for column in protected.source.columns if column.name not in own]
    # a domain may follow from a CHECK, which nobody has declared here
    by_constraint = {c.name for c in others if protected.by_constraint(c) is not None}
    widened = {name for constraint in protected.constraints.values() for name in constraint.widened}
    by_name = {a.name: _shown(a, _status(a, own, by_constraint, widened)) for a in declared.attributes}
    for column in left_out:
        out = f"left out: no domain declared{_referring(context, protected, column)}"
        status = "the privacy unit" if protected.is_unit(column) else out
        by_name[column.name] = (column.name, column.sql_type, None, None, None, None, None, status)
    return inline(ATTRIBUTE_COLUMNS, [*(by_name[c.name] for c in protected.source.columns), *_rules(protected)])


def _referring(context: Context, protected: ProtectedSource, column: OutputColumn) -> str:
    """Return how a column that refers to a list is declared, if that list may be public: a protected or linked table is not."""
    reference = protected.refers_to(column)
    if reference is None:
        return ""
    table, key = reference
    if protection_of(context, table)[1] is not None:
        return ""
    return f"; if the key of {table.name} is public: categories_from := {literal(f'{identifier(table.name)}.{identifier(key)}')}"


def _rules(protected: ProtectedSource) -> list[tuple[Any, ...]]:
    """Return a row per rule, and per CHECK constraint that says what no rule may say."""
    known = [(", ".join(declared.rule.columns), declared.rule.text, declared.status) for declared in rules_of(protected)]
    # rules that look at tables above, and those that count rows of a parent
    known += [(", ".join(declared.shown()), declared.text, "declared") for declared in across_of(protected)]
    known += [(", ".join(declared.columns), declared.text, "declared") for declared in counted_of(protected)]
    if protected.source.bare:
        others = [text for constraint in protected.constraints.values() for text in constraint.others]
        known += [(None, text, "CHECK constraint that is no rule") for text in others]  # type: ignore[misc]
    return [(columns, None, "rule", None, text, None, None, status) for columns, text, status in known]


def _status(attribute: Attribute, own: Set[str], by_constraint: Set[str], widened: Set[str]) -> str:
    if attribute.name in own:
        return "declared"
    by_type = self_declared(attribute.name, attribute.sql_type, attribute.nullable)
    if by_type is not None:
        return "by its type"
    if attribute.name not in by_constraint:
        return "declared"
    return "by a CHECK constraint" + (", wider: as double precision holds bounds" if attribute.name in widened else "")


def _shown(attribute: Attribute, status: str) -> tuple[Any, ...]:
    return (
        attribute.name, attribute.sql_type, attribute.kind, attribute.size, labels_text(attribute),
        attribute.nullable, attribute.outside, status,
    )


def labels_text(attribute: Attribute) -> str:
    """Return what values an attribute may take, on one line.

    Examples
    --------
    >>> labels_text(Attribute("sex", "VARCHAR", "categorical", ("f", "m")))
    "'f', 'm', NULL"
    >>> labels_text(Attribute("age", "INTEGER", "numeric", edges=(0.0, 5.0, 10.0), outside="other", nullable=False))
    '2 bins from 0 to 10, others'
    """
    if attribute.kind == "categorical":
        parts = [literal(text) for text in attribute.categories[:_MOST_SHOWN]]
        while len(parts) > 1 and len(", ".join(parts)) > _WIDEST:
            parts.pop()
        if len(parts) < attribute.values:
            parts.append(f"... ({attribute.values:,} values)")
    else:
        parsed = sqltypes.parse(attribute.sql_type)
        first, last = (sqltypes.edge_text(parsed, edge) for edge in (attribute.edges[0], attribute.edges[-1]))
        bins = f"{attribute.values:,} bin{'' if attribute.values == 1 else 's'}"
        parts = [f"{f'automatic bins (at most {attribute.values:,})' if attribute.automatic else bins} from {first} to {last}"]
    parts += ["others"] if attribute.outside == "other" else []
    parts += ["NULL"] if attribute.nullable else []
    return ", ".join(parts)


