"""GROUP BY and windows inside of one privacy unit, as layers: what is computed below, what is combined, what is computed above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.algebra.aggregates import INSIDE, WINDOWS
from dpsql.algebra.pieces import try_cast
from dpsql.source.aggregates import Combined, combined, is_aggregate, whole
from dpsql.source.expressions import Rewriter
from dpsql.source.layers import (
    COMBINING,
    GATHERED,
    Layer,
    Rows,
    canonical,
    combine_inside,
    comparable,
    outermost,
    own,
    plain,
    signature,
    substituted,
)
from dpsql.source.limits import limit, repeated
from dpsql.source.model import Column, identifier, refuse
from dpsql.source.parse import used
from dpsql.source.scope import Scope

_NO_VALUES = exp.Identifier | exp.Literal | exp.DataType | exp.Star | exp.Ordered | exp.Order | exp.Where | exp.WindowSpec
"""Parts of an expression that are none; an order of x is written as x is."""


def _name(column: Column) -> exp.Column:
    return exp.Column(this=identifier(column.ref))


def _finder(known: dict[str, exp.Expression], scope: Scope) -> Callable[[exp.Expression], exp.Expression | None]:
    def find(node: exp.Expression) -> exp.Expression | None:
        if isinstance(node, _NO_VALUES):
            return None
        return known.get(signature(node, scope))

    return find


def is_unit(node: exp.Expression, scope: Scope) -> bool:
    """Return whether an expression is the privacy unit of its row."""
    resolved = plain(node, scope)
    return resolved is not None and resolved[1].unit


def orphaned(node: exp.Expression, scope: Scope) -> bool:
    """Return whether rows of the unit NULL may have several values of a column."""
    resolved = plain(node, scope)
    return resolved is not None and resolved[1].orphans


def tells_unit(node: exp.Expression, scope: Scope) -> bool:
    """Return whether rows with one value of an expression are rows of one unit: the unit itself, or a key that is never NULL."""
    resolved = plain(node, scope)
    return resolved is not None and resolved[1].tells_unit


def same_key(left: Column, right: Column) -> bool:
    """Return whether rows in which two columns are equal, and not NULL, are rows of one unit: both hold one unique key."""
    return bool(left.keys & right.keys)


def grouped(
    rows: Rows, keys: Sequence[exp.Expression], trees: Sequence[exp.Expression], where: str
) -> tuple[Rows, list[exp.Expression]]:
    """Group rows by keys, and inside of privacy units.

    Parameters
    ----------
    rows : Rows
    keys : sequence of expressions
        After GROUP BY, written out.
    trees : sequence of expressions
        What is to be computed of the groups.

    Returns
    -------
    rows : Rows
        One for each unit and key.
    trees : list
        With columns in the place of keys and aggregates.
    """
    if rows.unit is not None and not any(tells_unit(key, rows.scope) for key in keys):
        at = keys[0] if keys else trees[0] if trees else None
        refuse("GROUP BY" if keys else "an aggregate", combine_inside(rows.scope, "GROUP BY {}, ..."), at, where)
    below = Layer(rows)
    known: dict[str, exp.Expression] = {}
    columns: list[Column] = []
    for key in keys:
        mark = signature(key, rows.scope)
        if mark not in known:
            columns.append(below.key(key, "GROUP BY"))
            known[mark] = _name(columns[-1])
    calls: dict[str, Combined] = {}
    for tree in trees:
        for node in outermost(tree, is_aggregate):
            mark = signature(node, rows.scope)
            if mark not in calls:
                calls[mark] = combined(node, below)
    # grouped by the unit alone, a unit is one row; where orphans are kept, that of NULL may be several
    alone = rows.unit is not None and all(c.unit and not c.orphans for c in columns)
    over = below.close(one=rows.unit is not None and alone)
    # above: keys and aggregates of columns, which cannot fail
    group = Layer(over)
    for column in columns:
        group.listed.append((replace(column, unique=column.unique or len(columns) == 1), group.reference(column, over), None))
    combinations = {m: group.add(c.written(lambda column: group.reference(column, over))) for m, c in calls.items()}
    select = group.select()
    by = [group.reference(column, over) for column in columns]
    if over.unit is not None:
        # the unit is a key whatever the text says: a group holds rows of one person
        by = [over.unit.copy(), *by]
    if by:
        select.set("group", exp.Group(expressions=by))
    elif not calls:
        refuse("GROUP BY", "it has no key", trees[0] if trees else None, where)
    select.meta[COMBINING] = True
    select.meta[GATHERED] = rows.most
    out = group.close(select)
    # what is computed of an aggregate can fail again, and gets its layer
    out, combinations = _after(out, {m: (combinations[m], calls[m]) for m in combinations})
    known |= {m: _name(c) for m, c in combinations.items()}
    outputs = [substituted(tree, _finder(known, rows.scope)) for tree in trees]
    for tree in outputs:
        for column in tree.find_all(exp.Column):
            if not own(column):
                refuse(f"column {column.name!r}", "it has to stand after GROUP BY or inside of an aggregate", column, where)
    return out, outputs


def _after(rows: Rows, combinations: dict[str, tuple[Column, Combined]]) -> tuple[Rows, dict[str, Column]]:
    """Compute what follows an aggregate, in a layer of its own: it stands in a TRY there."""
    plain_ones = {mark: column for mark, (column, _) in combinations.items()}
    if all(call.after is None for _, call in combinations.values()):
        return rows, plain_ones
    layer = Layer(rows)
    replaced = {column.ref: call.after for column, call in combinations.values() if call.after is not None}
    for item in rows.scope.items:
        for column in item.columns:
            value: exp.Expression = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
            after = replaced.get(column.ref)
            if after is None:
                layer.listed.append((column, value, item))
            else:
                value = after(value)
                column = Column(column.name, column.ref, rows.scope.type_of(value), None)
                layer.listed.append((column, value, item))
                plain_ones = {m: column if c.ref == column.ref else c for m, c in plain_ones.items()}
    return layer.close(), plain_ones


# -- windows --------------------------------------------------------------------------------------------------------------


@dataclass
class Window:
    """A window in a layer: the function and its columns, partitions and orders."""

    function: str
    call: Combined
    partition: list[Column]
    order: list[tuple[Column, exp.Ordered]]
    spec: exp.WindowSpec | None
    ties: bool
    offset: list[exp.Expression] = field(default_factory=list)


def is_window(node: exp.Expression) -> bool:
    """Whether a part of an expression is a window function."""
    return isinstance(node, exp.Window)


def windowed(
    rows: Rows, trees: Sequence[exp.Expression], named: dict[str, exp.Window], where: str
) -> tuple[Rows, list[exp.Expression]]:
    """Compute windows over rows; the parameters are those of :func:`grouped`, ``named`` are the windows after WINDOW."""
    nodes: dict[str, exp.Window] = {}
    below = Layer(rows)
    for tree in trees:
        for node in outermost(tree, is_window):
            nodes.setdefault(signature(node, rows.scope), node)
    # columns beside the windows have to pass through the layer
    marks = set(nodes)
    for tree in trees:
        rest = substituted(tree, lambda n: exp.true() if isinstance(n, exp.Window) else None)
        for column in rest.find_all(exp.Column):
            item, kept, _ = rows.scope.resolve(column)
            below.keep(item, kept)
    windows = {mark: _window(nodes[mark], below, named, where) for mark in sorted(marks, key=list(nodes).index)}
    # a list for each row grows with the square of the rows: once these are limited, all is computed anew
    if any(window.call.name == "list" for window in windows.values()) and limit(rows):
        return windowed(rows, trees, named, where)
    over = below.close()
    names = {column.ref: below.reference(column, over) for column, _, _ in below.listed}
    # rows that tie in all columns of the layer are the same row, so their order shows nothing
    tied = [column for column, _, _ in below.listed]
    above = Layer(over)
    for item in over.scope.items:
        for column in item.columns:
            above.listed.append((column, names[column.ref].copy(), item))
    combinations: dict[str, tuple[Column, Combined]] = {}
    for mark, window in windows.items():
        if window.ties and (odd := next((c for c in tied if not comparable(c.sql_type)), None)) is not None:
            advice = f"rows that tie are told apart by all columns in use, which {odd.sql_type} can't do; leave {odd.name!r} out"
            refuse(f"{window.function}() OVER", advice, nodes[mark], where)
        combinations[mark] = (above.add(_over(window, over, names, tied)), window.call)
    select = above.select()
    select.meta[COMBINING] = True
    out, columns = _after(above.close(select), combinations)
    known: dict[str, exp.Expression] = {m: _name(c) for m, c in columns.items()}
    return out, [substituted(tree, _finder(known, rows.scope)) for tree in trees]


def _over(window: Window, over: Rows, names: dict[str, exp.Column], tied: Sequence[Column]) -> exp.Window:
    """Return a window of the layer: partitioned by the unit, with ties broken by all columns where order matters."""
    partition: list[exp.Expression] = [names[c.ref].copy() for c in window.partition]
    if over.unit is not None:
        partition = [over.unit.copy(), *partition]
    order = [
        exp.Ordered(this=names[c.ref].copy(), desc=bool(o.args.get("desc")), nulls_first=bool(o.args.get("nulls_first")))
        for c, o in window.order
    ]
    if window.ties:
        ordered_by = {c.ref for c, _ in window.order}
        order += [exp.Ordered(this=names[c.ref].copy(), desc=False, nulls_first=False) for c in tied if c.ref not in ordered_by]
    if window.function in INSIDE:
        function = window.call.written(lambda column: names[column.ref].copy())
    else:
        columns = [names[c.ref].copy() for c in window.call.columns]
        arguments = [*columns[:1], *(o.copy() for o in window.offset), *columns[1:]]
        function = exp.Anonymous(this=window.function, expressions=arguments)
    parts = {"order": exp.Order(expressions=order)} if order else {}
    if partition:
        parts["partition_by"] = partition
    if window.spec is not None:
        parts["spec"] = window.spec.copy()
    return exp.Window(this=function, over="OVER", **parts)


def _window(node: exp.Window, layer: Layer, named: dict[str, exp.Window], where: str) -> Window:
    """Check a window and compute what it needs in a layer."""
    scope = layer.rows.scope
    extra = set(used(node)) - {"this", "partition_by", "order", "spec", "alias", "over"}
    if extra:
        refuse(f"OVER with {min(extra).upper()}", "not allowed in a source", node, where)
    # what stands in the window itself goes before what stands after WINDOW
    base = _named(node, named, where)
    partition = node.args.get("partition_by") or (base.args.get("partition_by") if base else None) or []
    order = node.args.get("order") or (base.args.get("order") if base else None)
    spec = node.args.get("spec") or (base.args.get("spec") if base else None)
    if layer.rows.unit is not None and not any(tells_unit(part, scope) for part in partition):
        refuse("a window function", combine_inside(scope, "PARTITION BY {}"), node, where)
    inner = node.this.this if isinstance(node.this, exp.Filter) else node.this
    function = str(inner.this).lower() if isinstance(inner, exp.Anonymous) else inner.key
    columns = [layer.key(part, "PARTITION BY") for part in partition]
    orders = [(layer.key(o.this, "ORDER BY"), o) for o in (order.expressions if order is not None else [])]
    frame = _frame(spec, where)
    if function in INSIDE:
        # which of two rows that tie comes first matters where a frame counts rows
        ties = frame == "ROWS"
        call = combined(_detached(node.this), layer, repeated=layer.rows.unit is not None)
        return Window(function, call, columns, orders, spec, ties)
    if function not in WINDOWS or isinstance(node.this, exp.Filter):
        refuse(f"{function}() OVER", "not on the list of windows inside of a privacy unit", node, where)
    known = WINDOWS[function]
    call, offset = _arguments(function, inner, layer, where)
    if known.peers and not orders:
        refuse(f"{function}() OVER", "say in which order: OVER (PARTITION BY ... ORDER BY x ASC)", node, where)
    if frame and (not known.frame or frame == "GROUPS"):
        refuse(f"{frame} in {function}() OVER", "leave the frame out", node, where)
    return Window(known.name, call, columns, orders, spec, not known.peers, offset)


def _detached(node: exp.Expression) -> exp.Expression:
    """Return a copy that stands in no window."""
    return node.copy()


def _named(node: exp.Window, named: dict[str, exp.Window], where: str) -> exp.Window | None:
    alias = node.args.get("alias")
    if alias is None:
        return None
    window = named.get(alias.name.lower())
    if window is None or window.args.get("alias") is not None:
        refuse(f"OVER {alias.name}", "no such window after WINDOW", node, where)
    return window


def _frame(spec: exp.WindowSpec | None, where: str) -> str:
    """Return ROWS, RANGE or GROUPS; '' without a frame. Refuse frames that are not of constant size."""
    if spec is None:
        return ""
    kind = str(spec.args.get("kind") or "").upper()
    if set(used(spec)) - {"kind", "start", "start_side", "end", "end_side"}:
        refuse("EXCLUDE", "not allowed in a source", spec, where)
    for side in ("start", "end"):
        bound = spec.args.get(side)
        if isinstance(bound, exp.Expression):
            if kind == "RANGE":
                refuse("RANGE BETWEEN", "only UNBOUNDED and CURRENT ROW, or ROWS BETWEEN", spec, where)
            whole(bound, f"{kind} BETWEEN", 0, spec, where)
    return kind


def _repeated(node: exp.Expression, layer: Layer) -> Column:
    """Add the argument of a window that gives one row's value to many."""
    scope, resolved = layer.rows.scope, plain(node, layer.rows.scope)
    value = Rewriter(scope)(node)
    kind = resolved[1].sql_type if resolved else scope.type_of(value)
    return layer.add(canonical(repeated(value, kind, node, scope.where), kind), resolved[1] if resolved else None)


def _arguments(function: str, node: exp.Anonymous, layer: Layer, where: str) -> tuple[Combined, list[exp.Expression]]:
    """Return the arguments of a window function that is no aggregate: columns, and constants that stand after the first."""
    arguments = node.expressions
    least, most = WINDOWS[function].least, WINDOWS[function].most
    if set(used(node)) - {"this", "expressions"} or not least <= len(arguments) <= most:
        refuse(f"{function}()", f"takes {least} to {most} arguments here", node, where)
    if any(isinstance(g, exp.Distinct | exp.Order | exp.Star | exp.IgnoreNulls | exp.RespectNulls) for g in arguments):
        refuse(f"{function}()", "takes plain arguments here", node, where)
    if function == "ntile":
        return Combined(function), [whole(arguments[0], "ntile()", 1, node, where)]
    if not arguments:
        return Combined(function), []
    plainly = function in ("lag", "lead") or layer.rows.unit is None
    columns = [layer.compute(arguments[0]) if plainly else _repeated(arguments[0], layer)]
    offset = [whole(arguments[1], f"{function}()", 1 if function == "nth_value" else 0, node, where)] if len(arguments) > 1 else []
    if len(arguments) == 3:
        value = Rewriter(layer.rows.scope)(arguments[2])
        kind = layer.rows.scope.type_of(value)
        columns.append(layer.add(value if kind == columns[0].sql_type else try_cast(value, columns[0].sql_type)))
    return Combined(function, tuple(columns)), offset
