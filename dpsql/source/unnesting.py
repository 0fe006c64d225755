"""UNNEST of lists in unit-local relations: a row becomes as many rows as its list has values, all of them the same person's.

The list is computed in a layer, where it stands in a TRY; the layer above has only columns and ``unnest`` of columns. An empty list
and NULL give no row, as in DuckDB. How many rows one person gets is not bounded here, as nowhere in a unit-local source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.source.expressions import Rewriter
from dpsql.source.functions import call
from dpsql.source.layers import COMBINING, Layer, Rows, substituted
from dpsql.source.model import Column, fold, identifier, refuse
from dpsql.source.parse import used
from dpsql.source.scope import Item

_ADVICE = "write FROM t, UNNEST(t.list) AS u(value), or SELECT unnest(list) AS value in a subquery"


def is_unnest(node: exp.Expression) -> bool:
    """Whether a part of an expression is a call of ``unnest``."""
    return isinstance(node, exp.Anonymous) and isinstance(node.this, str) and fold(node.this) == "unnest"


def unnested(rows: Rows, trees: Sequence[exp.Expression], where: str) -> tuple[Rows, list[exp.Expression]]:
    """Return rows with the values of lists that a list after SELECT unnests, one row for each, and the trees over them.

    Lists of one SELECT are gone through side by side; the shorter ones are filled up with NULL, as DuckDB does.
    """
    calls = [node for tree in trees for node in tree.find_all(exp.Anonymous) if is_unnest(node)]
    if not calls:
        return rows, list(trees)
    if any(call_.find_ancestor(exp.Query) is not None and not _own(call_, trees) for call_ in calls):
        refuse("unnest()", _ADVICE, calls[0], where)
    below = Layer(rows)
    below.keep_all()
    lists = {id(node): _list(node, _argument(node, where), below, where) for node in calls}
    made, out = _rows_of(below, list(lists.values()))
    names = {key: exp.Column(this=identifier(made[column.ref].ref)) for key, column in lists.items()}
    return out, [substituted(tree, lambda node: names.get(id(node))) for tree in trees]


@dataclass
class Unnest:
    """One UNNEST after FROM: the list, and the names of the relation and of its column."""

    value: exp.Expression
    name: str
    column: str
    conditions: Sequence[exp.Expression] = ()

    def join(self, rows: Rows, where: str) -> Rows:
        """Return rows with the values of a list beside each."""
        below = Layer(rows)
        below.keep_all()
        source = _list(self.value, self.value, below, where)
        made, out = _rows_of(below, [source])
        last = out.scope.items[-1]
        column = replace(made[source.ref], name=self.column)
        out.scope.items[-1] = Item(self.name, last.alias, last.node, [column], protected=rows.unit is not None)
        for condition in self.conditions:
            out.restrict(Rewriter(out.scope)(condition))
        return out


def of_from(join: exp.Join, name: str, where: str) -> Unnest | None:
    """Return what an item of FROM unnests of the rows before it; None if it does not."""
    node = join.this
    side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
    if not isinstance(node, exp.Unnest | exp.Lateral):
        return None
    construct = "LATERAL" if isinstance(node, exp.Lateral) else "UNNEST"
    if side or kind not in ("", "INNER", "CROSS") or join.args.get("using") or join.args.get("method"):
        refuse(f"{side} {kind} JOIN {construct}".replace("  ", " "), f"it keeps only rows with a value; {_ADVICE}", join, where)
    on = join.args.get("on")
    conditions = [] if on is None or (isinstance(on, exp.Boolean) and on.this) else [on]
    alias = node.args.get("alias")
    table = alias.name if isinstance(alias, exp.TableAlias) else ""
    names = [c.name for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    if isinstance(node, exp.Unnest):
        if node.args.get("offset") or len(node.expressions) != 1 or len(names) > 1:
            refuse("UNNEST", "one list, and one name for its values", node, where)
        return Unnest(node.expressions[0], table or "unnest", names[0] if names else "unnest", conditions)
    value, column = _lateral(node, where)
    return Unnest(value, table or name, names[0] if names else column, conditions)


def _lateral(node: exp.Lateral, where: str) -> tuple[exp.Expression, str]:
    """Return the list of ``LATERAL (SELECT unnest(list) AS value)``, and the name."""
    inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    plain = isinstance(inner, exp.Select) and set(used(inner)) == {"expressions"} and len(inner.expressions) == 1
    value = inner.expressions[0].unalias() if plain else None
    if value is None or not is_unnest(value):
        refuse("LATERAL", "only LATERAL (SELECT unnest(t.list) AS value) here; join a table or a subquery", node, where)
    return _argument(value, where), inner.expressions[0].alias or "unnest"


def _own(node: exp.Expression, trees: Sequence[exp.Expression]) -> bool:
    """Whether a call stands in one of the trees themselves, and not in a subquery inside of it."""
    roots = {id(tree) for tree in trees}
    at: exp.Expression | None = node
    while at is not None and id(at) not in roots:
        if isinstance(at, exp.Query):
            return False
        at = at.parent
    return at is not None


def _argument(node: exp.Expression, where: str) -> exp.Expression:
    if len(node.expressions) != 1:
        refuse("unnest()", "one list; of lists in lists, unnest the inner ones in a subquery around it", node, where)
    argument: exp.Expression = node.expressions[0]
    return argument


def _list(at: exp.Expression, node: exp.Expression, below: Layer, where: str) -> Column:
    """Compute a list in a layer."""
    column = below.compute(node)
    if column.sql_type.startswith("STRUCT(") and not column.sql_type.endswith("]"):
        refuse("unnest()", "of a struct, name the fields: s.a, s.b", at, where)
    if not column.sql_type.endswith("[]"):
        refuse("unnest()", f"takes a list, not {column.sql_type}", at, where)
    return column


def _rows_of(below: Layer, lists: Sequence[Column]) -> tuple[dict[str, Column], Rows]:
    """Return the columns that lists become, and the rows over the layer."""
    over = below.close()
    above = Layer(over)
    refs = {column.ref for column in lists}
    for item in over.scope.items:
        for column in item.columns:
            if column.ref not in refs:
                value = exp.Column(this=identifier(column.ref), table=identifier(item.alias))
                above.listed.append((column, value, item))
    made: dict[str, Column] = {}
    for column in lists:
        if column.ref not in made:
            name = over.fresh("c")
            kind = column.sql_type.removesuffix("[]")
            made[column.ref] = Column(name, name, kind, None)
            value = call("unnest", exp.Column(this=identifier(column.ref), table=identifier(over.scope.items[-1].alias)))
            above.listed.append((made[column.ref], value, None))
    select = above.select()
    select.meta[COMBINING] = True
    return made, above.close(select, one=False)
