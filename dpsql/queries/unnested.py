"""Elements of list columns, ``visits v, unnest(v.tags[:5]) AS t(tag)``, as a join with the numbers 1 to 5; ``unnest([v.a, v.b])``.

Of each row of the relation as many are made as its list has elements, 5 at most: the bound is in the text, so that everybody knows
how many rows one of a person can become. What the text becomes is checked and measured like any other (`dpsql.source`); lists
without a bound stay as they are, and are refused there. Privacy: none; the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.queries.constant_rows import free_name
from dpsql.queries.leaves import Facts
from dpsql.queries.names import star_of
from dpsql.source.limits import MOST_MET
from dpsql.source.model import fold, identifier, quoted, refuse
from dpsql.source.parse import parse, render

MOST_ELEMENTS = 100
"""Elements of one list that are made rows."""
BOUNDED = f"it makes as many rows of one as its list is long: say how many at most, unnest(l[:5]); up to {MOST_ELEMENTS}"


def unnested(tree: exp.Expression, facts: Facts, named: Callable[[exp.Expression], str]) -> exp.Expression:
    """Return a query with the elements of bounded lists as a join; it is changed.

    Raises
    ------
    UnsupportedQuery
        A list of a relation has no bound, or its elements have the name of another column.
    """
    for select in list(tree.find_all(exp.Select)):
        lists = [*_of_relations(select, facts), *_of_items(select, facts, named)]
        for at in {id(one.of): one.of for one in lists}.values():
            _with_elements(select, at, [one for one in lists if one.of is at], facts)
    return tree


@dataclass(frozen=True)
class _List:
    """A list whose elements become rows: the relation that it is a column of, its text, the name of an element."""

    of: exp.Expression
    value: exp.Expression
    element: str


def _is_call(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and fold(str(node.this)) == "unnest" and len(node.expressions) == 1


def _call(item: exp.Expression) -> exp.Unnest | None:
    """Return the UNNEST of one list that a relation is; None of any other relation."""
    node = item.this if isinstance(item, exp.Lateral) else item
    single = isinstance(node, exp.Unnest) and len(node.expressions) == 1 and not node.args.get("offset")
    return node if single else None


def _of_relations(select: exp.Select, facts: Facts) -> Iterator[_List]:
    """Take the lists of ``FROM r, unnest(r.l[:5]) AS t(x)`` out: x is a column of r from then on."""
    for join in list(select.args.get("joins") or []):
        call = _call(join.this)
        at = None if call is None else _relation(select, call, facts)
        if call is None or at is None:
            continue
        always = join.args.get("on")
        if join.side or (always is not None and always.unnest() != exp.true()) or join.args.get("using"):
            refuse("UNNEST", "join it with a comma or CROSS JOIN: a row without elements is not there", call)
        alias = join.this.args.get("alias")
        name = alias.name if isinstance(alias, exp.TableAlias) else ""
        listed = alias.args.get("columns") or [] if isinstance(alias, exp.TableAlias) else []
        used = {fold(column.name) for column in select.find_all(exp.Column)}
        element = listed[0].name if listed else (name if name and fold(name) in used else "unnest")
        select.set("joins", [other for other in select.args["joins"] if other is not join])
        for column in select.find_all(exp.Column):
            if name and fold(column.table) == fold(name):
                column.set("table", identifier(at.alias_or_name))
        yield _List(at, call.expressions[0], element)


def _of_items(select: exp.Select, facts: Facts, named: Callable[[exp.Expression], str]) -> Iterator[_List]:
    """Make ``SELECT unnest(l[:5]) FROM r`` a column of r; of several, rows would be made side by side.

    Windows beside it see the rows before they are multiplied, so then it stays.
    """
    items = [item for item in select.expressions if _is_call(item.unalias())]
    call = items[0].unalias() if len(items) == 1 and select.find(exp.Window) is None else None
    at = None if call is None else _relation(select, call, facts)
    if call is not None and at is not None:
        name, element = items[0].alias or named(items[0]), free_name(select, "element")
        for item in select.expressions:
            star = star_of(item)
            if star is not None and (item is star or fold(item.table) == fold(at.alias_or_name)):
                star.set("except_", [*(star.args.get("except_") or []), exp.to_identifier(element, quoted=True)])
        items[0].replace(exp.alias_(exp.column(element, table=at.alias_or_name, quoted=True), name, quoted=True))
        yield _List(at, call.expressions[0], element)


def _relation(select: exp.Select, call: exp.Expression, facts: Facts) -> exp.Expression | None:
    """Return the relation of a SELECT that a list is a column of; None where that is not to be told."""
    start = select.args.get("from_")
    joins = [join for join in select.args.get("joins") or [] if _call(join.this) is None]
    items = [] if start is None else [start.this, *(join.this for join in joins)]
    owners = {id(item): item for column in call.find_all(exp.Column) for item in _owners(items, column, facts)}
    if len(owners) != 1:
        return None
    [item] = owners.values()
    # a row that an outer join makes has no elements, and would keep standing there
    sides = {join.side for join in joins}
    outer = sides - {""} if item is not items[0] else sides - {"", "LEFT"}
    return None if outer or not isinstance(item, exp.Table | exp.Subquery) else item


def _owners(items: list[exp.Expression], column: exp.Column, facts: Facts) -> Iterator[exp.Expression]:
    parts = [fold(part.name) for part in column.parts]
    named = [item for item in items if fold(item.alias_or_name) in parts[:-1]]
    # without a relation before it, the first name is a column's, and further ones are fields of it
    yield from named or [item for item in items if len(items) == 1 or parts[0] in _names(item, facts)]


def _names(item: exp.Expression, facts: Facts) -> set[str]:
    """Return names that the columns of a relation may have."""
    ctes = {fold(cte.alias): cte.this for cte in item.root().find_all(exp.CTE)}
    names: set[str] = set()
    seen: set[str] = set()
    left = [item]
    while left:
        node = left.pop()
        names |= {fold(part.name) for part in node.find_all(exp.Identifier)}
        for table in node.find_all(exp.Table):
            own = fold(table.name)
            if own in ctes and len(table.parts) == 1:
                left += [] if own in seen else [ctes[own]]
                seen.add(own)
            elif isinstance(table.this, exp.Identifier):
                names |= set(facts.names(table))
    return names


def _with_elements(select: exp.Select, item: exp.Expression, lists: Sequence[_List], facts: Facts) -> None:
    """Put rows by element in the place of a relation."""
    name, taken = item.alias_or_name, _names(item, facts)
    inner, outer = item.copy(), quoted(name)
    if not item.alias:
        inner.set("alias", exp.TableAlias(this=identifier(name)))
    products = 1
    computed, made, numbers, within, helpers = list[str](), list[str](), list[str](), list[str](), list[str]()
    for one in lists:
        if fold(one.element) in taken:
            way = "give them another name"
            refuse("UNNEST", f"its elements are called {one.element!r}, as something of {name!r} is: {way}", one.value)
        taken.add(fold(one.element))
        (elements, number), mark = _elements(one.value), free_name(select, f"element_of_{len(made)}")
        place, count, *parts = (quoted(f"{mark}_{part}") for part in ("place", "count", *range(1, len(elements) + 1)))
        computed += [f"{render(value)} AS {name_}" for value, name_ in zip((number, *elements), (count, *parts), strict=True)]
        cases = "".join(f" WHEN {i} THEN {part}" for i, part in enumerate(parts[:-1], 1))
        made.append(f"{f'CASE {place}{cases} ELSE {parts[-1]} END' if cases else parts[-1]} AS {quoted(one.element)}")
        numbers.append(f"range(1, {len(elements) + 1}) AS {quoted(f'{mark}_places')}({place})")
        within.append(f"{place} <= {count}")
        helpers += [place, count, *parts]
        products *= len(elements)
    if products > MOST_MET:
        refuse("UNNEST", f"{products:,} rows are made of one: say fewer elements, {MOST_MET:,} rows at most", lists[0].value)
    # the conditions stand outside: a list of n has n rows, where a join on them is reckoned to meet one
    rows = (
        f"SELECT * EXCLUDE ({', '.join(helpers)}) FROM (SELECT *, {', '.join(made)} "  # noqa: S608 -- checked like the text
        f"FROM (SELECT *, {', '.join(computed)} FROM {render(inner)}) AS {outer}, {', '.join(numbers)}) AS {outer} "
        f"WHERE {' AND '.join(within)}"
    )
    item.replace(exp.Subquery(this=parse(rows), alias=exp.TableAlias(this=identifier(name))))


def _elements(value: exp.Expression) -> tuple[list[exp.Expression], exp.Expression]:
    """Return the elements of ``l[:5]``, ``l[1:5]`` or ``[a, b]`` that may be there, and how many are."""
    if isinstance(value, exp.Array) and 0 < len(value.expressions) <= MOST_ELEMENTS:
        return value.expressions, exp.Literal.number(len(value.expressions))
    part = value.expressions[0] if isinstance(value, exp.Bracket) and len(value.expressions) == 1 else None
    first, last = (part.this, part.expression) if isinstance(part, exp.Slice) and not part.args.get("step") else (None, None)
    most = int(last.name) if isinstance(last, exp.Literal) and not last.is_string and last.name.isdigit() else 0
    if not 0 < most <= MOST_ELEMENTS or (first is not None and first != exp.Literal.number(1)):
        refuse("UNNEST", BOUNDED, value)

    def call(name: str, *rest: exp.Expression) -> exp.Expression:
        return exp.Anonymous(this=name, expressions=[value.this.copy(), *rest])

    return [call("list_extract", exp.Literal.number(i)) for i in range(1, most + 1)], call("len")
