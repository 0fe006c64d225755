"""One form of questions that are the same: a chart that another tool writes otherwise is not bought again.

Conditions in one order, listed values too (``a = 1 OR a = 2`` is ``a IN (1, 2)``), whole numbers compared in one way, dates and
moments written in one way, ``count(1)`` as ``count(*)``, a table for the subquery that selects all of it. Each change keeps the
rows, their values and the names of what comes out.

Privacy: none; the text of a call, and types.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.algebra.functions import called
from dpsql.algebra.parts import PARTS
from dpsql.queries.names import canonical, keeping_names
from dpsql.source.joins import conjuncts
from dpsql.source.kernel import INTEGERS, NUMBERS, TEXT, family
from dpsql.source.model import fold
from dpsql.source.parse import used

_MOST = 2**31
_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
_WRITTEN_AS = {"DATE": re.compile(r"\d{4}-\d\d-\d\d"), "TIMESTAMP": _WRITTEN}
TypeOf = Callable[[exp.Table, str], str | None]
"""A table and a name -> the type of its column, None where it has none."""
Kinds = Callable[[exp.Expression], frozenset[str]]
"""An operand -> its types, in all tables that it may be a column of."""


def one_form(
    tree: exp.Expression, named: Callable[[exp.Expression], str], type_of: TypeOf, alternatives: bool = True
) -> exp.Expression:
    """Return a query in the form that all spellings of it have.

    Parameters
    ----------
    tree : sqlglot expression
        It is changed.
    named : callable
        The name of an item that has none: it is kept where the item changes.
    type_of : callable
        `TypeOf`.
    alternatives : bool
        Whether OR and IN are put into one form too. Releases of before they were are found without.
    """
    return keeping_names(tree, named, lambda tree: _in_one_form(tree, type_of, alternatives))


def _in_one_form(tree: exp.Expression, type_of: TypeOf, alternatives: bool) -> exp.Expression:
    selects = list(tree.find_all(exp.Select))
    kinds = _kinds(tree, type_of)
    # of what is asked the text stays: bounds and weights are given by it
    conditions = [where for where in tree.find_all(exp.Where) if not isinstance(where.parent, exp.Filter)]
    inside = {id(node) for where in conditions for node in where.walk()}
    for node in reversed(list(tree.walk(bfs=False))):  # the parts of a node before itself
        form = _condition(node, kinds) if id(node) in inside else node
        if alternatives and id(node) in inside:
            form = _alternatives(form, kinds)
        form = _changed(form)
        if form is not node:
            node.replace(form)
        above = form.parent
        listed = type(node) is exp.Or and type(form) in (exp.In, exp.EQ)
        if listed and isinstance(above, exp.Paren) and isinstance(above.parent, exp.Not):
            above.replace(form)
    for select in selects:
        _without_alias(select)
    for where in conditions:
        _ordered(where)
    return tree


def _kinds(tree: exp.Expression, type_of: TypeOf) -> Kinds:
    """Return what tells the types that a column has in the tables that have one of that name; none of other operands."""
    tables = list(tree.find_all(exp.Table))
    if any(not isinstance(table.this, exp.Identifier) for table in tables) or tree.find(exp.Unnest, exp.Values, exp.Lateral):
        return lambda node: frozenset()
    aliases = {fold(alias.alias) for alias in tree.find_all(exp.Alias)}
    aliases |= {fold(name.name) for alias in tree.find_all(exp.TableAlias) for name in alias.args.get("columns") or []}
    relations = {"", *(fold(table.alias_or_name) for table in tables)}
    relations |= {fold(alias.name) for alias in tree.find_all(exp.TableAlias)}
    known: dict[str, frozenset[str]] = {}

    def of(node: exp.Expression) -> frozenset[str]:
        # of a struct's field nothing is known: what stands before a name has to be a relation
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or fold(node.table) not in relations or node.db:
            return frozenset()
        name = fold(node.name)
        if name not in known:
            types = frozenset(kind for table in tables if (kind := type_of(table, node.name)) is not None)
            known[name] = frozenset() if name in aliases else types
        return known[name]

    return of


def _changed(node: exp.Expression) -> exp.Expression:
    """Return the one form of a count, or of a table."""
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "count" and len(node.expressions) == 1:
        argument = node.expressions[0]
        if isinstance(argument, exp.Literal | exp.Boolean):
            return exp.Anonymous(this=node.this, expressions=[exp.Star()])
    return _table(node) if isinstance(node, exp.Subquery) else node


def _condition(node: exp.Expression, kinds: Kinds) -> exp.Expression:
    """Return the one form of a part of a condition whose parts have theirs."""
    if isinstance(node, exp.Literal) and node.is_string and node.parent is not None:
        return _typed(node, node.parent, kinds)
    if isinstance(node, exp.Cast) and type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        text = _moment(node.this.name, node.to)
        return node if text in (None, node.this.name) else exp.Cast(this=exp.Literal.string(text), to=node.to)
    if type(node) in _FLIPPED:
        return _compared(node, kinds)
    return node


def _alternatives(node: exp.Expression, kinds: Kinds) -> exp.Expression:
    """Return alternatives in one order, each once; those of one expression that equals constants as one IN."""
    if type(node) is exp.In:
        return _listed(node, kinds)
    if type(node) is exp.EQ and _is_constant(node.this) and not _is_constant(node.expression):
        return exp.EQ(this=node.expression, expression=node.this)
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    if type(node) is not exp.Or or isinstance(above, exp.Or):  # the outermost one has them all
        return node
    others: list[exp.Expression] = []
    equalities: dict[tuple[str, str], tuple[exp.Expression, list[exp.Expression]]] = {}
    for part in _disjuncts(node):
        subject, constants = _equalities(part)
        kind = None if subject is None else _kind(subject, constants, kinds)
        if subject is None or kind is None or not _compares_alike(subject, kind, kinds):
            others.append(_joined(_in_order(part)) if isinstance(part, exp.And) else part)
            continue
        equalities.setdefault((canonical(subject), kind), (subject, []))[1].extend(constants)
    parts = [*others, *(_equal(subject, constants) for subject, constants in equalities.values())]
    return _joined([parts[i] for i in _order(parts)], exp.Or)


def _disjuncts(node: exp.Expression) -> list[exp.Expression]:
    """Return the conditions that OR connects."""
    conditions, left = [], [node]
    while left:
        part = left.pop()
        while isinstance(part, exp.Paren):
            part = part.this
        if type(part) is exp.Or:
            left += [part.expression, part.this]
        else:
            conditions.append(part)
    return conditions


def _listed(node: exp.In, kinds: Kinds) -> exp.Expression:
    """Return a list of constants in one order, each once."""
    subject, constants = _equalities(node)
    kind = None if subject is None else _kind(subject, constants, kinds)
    if subject is None or kind is None:
        return node
    equal = _equal(subject, constants)
    return equal if isinstance(equal, exp.In) or _compares_alike(subject, kind, kinds) else node


def _equalities(node: exp.Expression) -> tuple[exp.Expression | None, list[exp.Expression]]:
    """Return what a condition says to be equal to one of these; nothing, if it says something else."""
    if type(node) is exp.EQ:
        sides = (node.this, node.expression) if not _is_constant(node.this) else (node.expression, node.this)
        return sides[0], [sides[1]]
    if type(node) is exp.In and not set(used(node)) - {"this", "expressions"}:
        return node.this, list(node.expressions)
    return None, []


def _kind(subject: exp.Expression, constants: Sequence[exp.Expression], kinds: Kinds) -> str | None:
    """Return what constants are alike in, such that their order in a list does not matter; None if they are not."""
    if not constants or _is_constant(subject):
        return None
    if all(_integer(constant) is not None for constant in constants):
        return "number"
    if all(isinstance(constant, exp.Literal) and constant.is_string for constant in constants):
        return "text"
    casts = [constant for constant in constants if type(constant) is exp.Cast and isinstance(constant.this, exp.Literal)]
    types = {constant.to.sql(dialect="duckdb") for constant in casts} if len(casts) == len(constants) else set()
    return next((kind for kind in _WRITTEN_AS if types == {kind} == kinds(subject)), None)


def _compares_alike(subject: exp.Expression, kind: str, kinds: Kinds) -> bool:
    """Whether something compares with one constant of a kind as with a list of them: its type is known to be that of the kind."""
    types = kinds(subject)
    if kind == "number":
        field = isinstance(subject, exp.Extract) or (isinstance(subject, exp.Anonymous) and str(subject.this).lower() in PARTS)
        return field or (bool(types) and all(family(sql_type) in NUMBERS for sql_type in types))
    if kind == "text":
        function = called(subject)
        return types == {TEXT} or (function is not None and function.text)
    return True


def _equal(subject: exp.Expression, constants: Sequence[exp.Expression]) -> exp.Expression:
    """Return that something is one of these constants: an equality where there is one."""
    kept = [constants[i].copy() for i in _order(constants)]
    if len(kept) == 1:
        return exp.EQ(this=subject.copy(), expression=kept[0])
    return exp.In(this=subject.copy(), expressions=kept)


def _typed(node: exp.Literal, above: exp.Expression, kinds: Kinds) -> exp.Expression:
    """Return a text that a column of dates or timestamps is compared with as what DuckDB casts it to."""
    others = [part for key, part in above.args.items() if part is not node and key in ("this", "expression")]
    if type(above) not in (exp.EQ, exp.NEQ, *_FLIPPED, exp.Between) or len(others) != 1:
        return node
    kind = next((word for word in _WRITTEN_AS if kinds(others[0]) == {word}), None)
    if kind is None or _WRITTEN_AS[kind].fullmatch(node.name) is None:
        return node
    try:
        moment = dt.datetime.fromisoformat(node.name)
    except ValueError:
        return node
    text = node.name if kind == "DATE" else moment.isoformat(" ")
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect="duckdb"))


_FLIPPED: dict[type[exp.Expression], type[exp.Expression]] = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}
_WIDER: dict[type[exp.Expression], tuple[type[exp.Expression], int]] = {exp.GT: (exp.GTE, 1), exp.LT: (exp.LTE, -1)}


def _compared(node: exp.Expression, kinds: Kinds) -> exp.Expression:
    """Return a comparison with a constant with the column first; of whole numbers, with the bound included."""
    kind, left, right = type(node), node.this, node.expression
    number = None
    if _is_constant(left) and not _is_constant(right):
        kind, left, right = _FLIPPED[kind], right, left
    number = _integer(right)
    if kind in _WIDER and number is not None and kinds(left) and kinds(left) <= set(INTEGERS):
        kind, step = _WIDER[kind]
        number += step
        right = exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))
    return node if type(node) is kind else kind(this=left, expression=right)


def _is_constant(node: exp.Expression) -> bool:
    return not any(True for _ in node.find_all(exp.Column, exp.Anonymous, exp.Query, exp.Placeholder, exp.Parameter))


def _integer(node: exp.Expression) -> int | None:
    sign = -1 if isinstance(node, exp.Neg) else 1
    inner = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inner, exp.Literal) or inner.is_string or not inner.name.isdecimal() or int(inner.name) >= _MOST:
        return None
    return sign * int(inner.name)


def _moment(text: str, to: exp.DataType) -> str | None:
    """Return a timestamp with its time of day, without a fraction that is zero; None for other constants."""
    if to.this not in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ) or _WRITTEN.fullmatch(text.strip()) is None:
        return None
    try:
        return dt.datetime.fromisoformat(text.strip()).isoformat(" ")
    except ValueError:
        return None


def _table(node: exp.Subquery) -> exp.Expression:
    """Return the table that a subquery is which selects all of it."""
    inner, bare = node.this, {"this", "db", "catalog", "alias"}
    if set(used(node)) - bare or not isinstance(inner, exp.Select) or set(used(inner)) - {"expressions", "from", "from_"}:
        return node
    start = inner.args.get("from_") or inner.args.get("from")
    table = start.this if start is not None else None
    star = inner.expressions[0] if len(inner.expressions) == 1 else None
    if type(star) is not exp.Star or used(star) or not isinstance(table, exp.Table) or set(used(table)) - bare:
        return node
    alias = node.args.get("alias")
    if not isinstance(node.parent, exp.From | exp.Join) or (alias is not None and alias.args.get("columns")):
        return node
    if alias is None and not (isinstance(node.parent, exp.From) and _is_alone(node.parent.parent)):
        return node  # its name could be another relation's
    out = table.copy()
    out.set("alias", None if alias is None else alias.copy())
    return out


def _is_alone(select: exp.Select) -> bool:
    """Whether the names in a SELECT are of its one relation: no joins, no subqueries, and it is in no expression of another."""
    if select.args.get("joins") or sum(1 for _ in select.find_all(exp.Select)) > 1 + _selects_after_from(select):
        return False
    node: exp.Expression = select
    while node.parent is not None:
        above = node.parent
        relation = isinstance(above, exp.From | exp.CTE | exp.With | exp.SetOperation) or (
            isinstance(above, exp.Join | exp.Subquery) and node.arg_key == "this"
        )
        if not relation and not (isinstance(above, exp.Select) and isinstance(node, exp.From | exp.Join | exp.With)):
            return False
        node = above
    return True


def _selects_after_from(select: exp.Select) -> int:
    start = select.args.get("from_") or select.args.get("from")
    return 0 if start is None else sum(1 for _ in start.find_all(exp.Select))


def _without_alias(select: exp.Select) -> None:
    """Take away another name of the one table of a SELECT; its columns are named by the table's own."""
    start = select.args.get("from_") or select.args.get("from")
    table = start.this if start is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or not table.alias:
        return
    if table.args["alias"].args.get("columns"):
        return
    if table.args.get("joins") or not _is_alone(select):
        return
    for column in select.find_all(exp.Column):
        if fold(column.table) == fold(table.alias):
            column.set("table", table.this.copy())
    table.set("alias", None)


def _ordered(where: exp.Where) -> None:
    """Put the conditions that AND connects into one order, each once; ranges as their two ends."""
    parts = _in_order(where.this)
    if len(parts) > 1 or len(conjuncts(where.this)) > 1:
        where.set("this", _joined(parts))


def _in_order(condition: exp.Expression) -> list[exp.Expression]:
    """Return the conditions that AND connects in one order, each once; ranges as their two ends."""
    parts: list[exp.Expression] = []
    for part in conjuncts(condition):
        between = part.unnest()
        if type(between) is exp.Between and not set(used(between)) - {"this", "low", "high"}:
            parts.append(exp.GTE(this=between.this, expression=between.args["low"]))
            parts.append(exp.LTE(this=between.this.copy(), expression=between.args["high"]))
        else:
            parts.append(part)
    return [parts[i] for i in _order(parts)]


def _order(parts: Sequence[exp.Expression]) -> list[int]:
    texts = [canonical(part) for part in parts]
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    return [first[text] for text in sorted(first)]


def _joined(parts: Sequence[exp.Expression], by: type[exp.Connector] = exp.And) -> exp.Expression:
    out, *rest = [exp.Paren(this=part) if isinstance(part, exp.Connector) else part for part in parts]
    for part in rest:
        out = by(this=out, expression=part)
    return out
