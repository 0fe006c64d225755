"""One SELECT over rows: its groups and aggregates, and how it is taken out of the text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.queries import public_rows
from dpsql.queries.aggregates import Aggregate, aggregate_of, is_aggregate, outside_queries
from dpsql.queries.around import Around
from dpsql.queries.correlated import may_be_correlated, of_one_row, split_where
from dpsql.queries.names import comparable
from dpsql.queries.taken import Core, Known, Reader, Relation
from dpsql.queries.trees import has_aggregate, inner_of, subqueries
from dpsql.source.model import fold, identifier, refuse
from dpsql.source.parse import used

MOST_SETS = 64


class Block(Around):
    """One SELECT over rows: its groups and aggregates, and how it is taken out of the text."""

    def __init__(self, splitter: Reader, node: exp.Select, items: Sequence[tuple[str, Relation]], known: Known) -> None:
        super().__init__(splitter, node, items, known)
        self.units = frozenset(name for _, relation in items for name in relation.units)
        single = len(items) == 1
        self.canonical: Callable[[exp.Expression], str] = lambda expression: comparable(expression, unqualified=single)
        self.sets: list[tuple[int, ...]] = [()]
        self.aggregates: list[Aggregate] = []
        self._places: dict[str, int] = {}

    # -- what it is -------------------------------------------------------------------------------------------------------

    def aggregated(self, keys: frozenset[str]) -> bool:
        """Return whether it merges rows of different people. ``keys``: the columns of its answer that tell the privacy unit."""
        node = self.node
        if node.args.get("group") is not None or any(has_aggregate(e) for e in self._outputs()):
            self._read_groups()
            return True
        if node.args.get("distinct") is not None and not keys:
            if node.args["distinct"].args.get("on") is not None:
                advice = "it gives out one row of several people; DISTINCT ON the privacy unit keeps one of each"
                refuse("DISTINCT ON", advice, node)
            if any(isinstance(e, exp.Star) or isinstance(e, exp.Column) and isinstance(e.this, exp.Star) for e in node.expressions):
                refuse("SELECT DISTINCT *", "name the columns whose values are asked for", node)
            self.keys = [self._unaliased(inner_of(e)) for e in node.expressions]
            self.sets = [tuple(range(len(self.keys)))]
            return True
        return False

    def by_unit(self) -> bool:
        """Return whether its groups are privacy units (with other keys): then it keeps people apart."""
        whole = {i for one in self.sets for i in one if all(i in other for other in self.sets)}
        return any(self._copies(self.keys[i], lambda relation: relation.keys) for i in whole)

    def _is_unit(self, node: exp.Expression) -> bool:
        return self._copies(node, lambda relation: relation.units)

    def _copies(self, node: exp.Expression, of: Callable[[Relation], frozenset[str]]) -> bool:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        table = fold(node.table)
        return any(fold(node.name) in of(relation) and table in ("", name) for name, relation in self.items)

    def _outputs(self) -> list[exp.Expression]:
        node = self.node
        found = list(node.expressions)
        found += [node.args[part] for part in ("having", "qualify", "order") if node.args.get(part) is not None]
        return found

    # -- groups -----------------------------------------------------------------------------------------------------------

    def _read_groups(self) -> None:
        group = self.node.args.get("group")
        if group is None:
            return
        unknown = set(used(group)) - {"expressions", "all", "grouping_sets", "rollup", "cube"}
        if unknown:
            refuse("GROUP BY", f"{unknown.pop()} is not understood", group)
        if group.args.get("all"):
            listed = [inner_of(e) for e in self.node.expressions if not has_aggregate(e)]
            self.sets = [tuple(self._key(e) for e in listed)]
            return
        parts: list[list[tuple[int, ...]]] = []
        extra = [*(group.args.get("grouping_sets") or []), *(group.args.get("rollup") or []), *(group.args.get("cube") or [])]
        for item in [*group.expressions, *extra]:
            parts.append(self._sets_of(item))
        found = [tuple(dict.fromkeys(itertools.chain(*combined))) for combined in itertools.product(*parts)]
        if len(found) > MOST_SETS:
            said = f"at most {MOST_SETS} grouping sets; name those that are needed: GROUPING SETS (...)"
            raise ArgumentError("sql", len(found), said)
        self.sets = found

    def _sets_of(self, item: exp.Expression) -> list[tuple[int, ...]]:
        if isinstance(item, exp.GroupingSets):
            return [one for inner in item.expressions for one in self._sets_of(inner)]
        if isinstance(item, exp.Rollup | exp.Cube):
            each = [tuple(itertools.chain(*self._sets_of(inner))) for inner in item.expressions]
            if isinstance(item, exp.Rollup):
                return [tuple(itertools.chain(*each[:n])) for n in range(len(each), -1, -1)]
            return [tuple(itertools.chain(*chosen)) for n in range(len(each), -1, -1) for chosen in itertools.combinations(each, n)]
        if isinstance(item, exp.Tuple):
            return [tuple(self._key(inner) for inner in item.expressions)]
        if isinstance(item, exp.Paren) and isinstance(item.this, exp.Column):
            return [(self._key(item.this),)]
        return [(self._key(item),)]

    def _key(self, node: exp.Expression) -> int:
        """Return the place of a group key, which may be written as a number or as the name of an item."""
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            place = int(node.name) - 1
            if not 0 <= place < len(self.node.expressions):
                raise ArgumentError("sql", f"GROUP BY {node.name}", f"there are {len(self.node.expressions)} items after SELECT")
            node = inner_of(self.node.expressions[place])
        expression = self._unaliased(node)
        if any(is_aggregate(inner) or isinstance(inner, exp.Window) for inner in outside_queries(expression)):
            refuse("GROUP BY", "an aggregate or window is no group; compute it in a subquery", node)
        _no_unnest([expression])
        text = self.canonical(expression)
        for place, key in enumerate(self.keys):
            if self.canonical(key) == text:
                return place
        self.keys.append(expression)
        return len(self.keys) - 1

    def _unaliased(self, node: exp.Expression) -> exp.Expression:
        """Return an expression over the rows: names of items that are no columns are written out."""

        def written_out(inner: exp.Expression) -> exp.Expression:
            if not isinstance(inner, exp.Column) or inner.table or isinstance(inner.this, exp.Star):
                return inner
            name = fold(inner.name)
            there = self.columns is not None and name in self.columns
            if there or name not in self.aliases or has_aggregate(self.aliases[name]) or self.aliases[name] is inner:
                return inner
            return exp.Paren(this=self.aliases[name].copy())

        copy = node.copy()
        return copy.transform(written_out) if not isinstance(copy, exp.Column) else inner_of(written_out(copy))

    # -- taking it out ----------------------------------------------------------------------------------------------------

    def take_out(self, name: str) -> Core:
        """Make the SELECT one over the answer of a core, and return the core."""
        node = self.node
        self.no_scalar_subqueries()
        single, outside = not self.keys, self._outer_equalities()
        self._no_outer_columns()
        rows = self._rows()
        if not node.expressions:
            refuse("SELECT", "nothing is asked for", node)
        listed = []
        for item in node.expressions:
            inner = inner_of(item)
            if isinstance(inner, exp.Star) or isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                refuse("*", "only group keys and aggregates can be given out; name them", item)
            shown = item.alias if isinstance(item, exp.Alias) else inner.name
            listed.append((shown, inner))
        items = [exp.Alias(this=self._post(inner), alias=identifier(shown)) for shown, inner in listed]
        having = node.args.get("having")
        condition = None if having is None else self._post(having.this, aliases=True)
        for part in ("limit", "offset"):
            for inner in subqueries(node.args[part]) if node.args.get(part) is not None else []:
                if self.splitter.relation(inner, self.known).kind == "rows":
                    refuse("a subquery", "it gives out rows; aggregate in it", inner)
        for part in ("qualify", "order"):
            if node.args.get(part) is not None:
                node.args[part].set("expressions" if part == "order" else "this", self._post_part(node.args[part], part))
        node.set("expressions", items)
        for part in ("group", "having", "joins", "with_", "with"):
            if part not in ("with_", "with") or not node.args.get(part):
                node.set(part, None)
        node.set("from_" if "from_" in node.args else "from", exp.From(this=exp.Table(this=identifier(name))))
        if outside:
            self._looked_up(outside, condition, single=single)
        else:
            node.set("where", None if condition is None else exp.Where(this=condition))
        return Core(name, rows, self.keys, self.aggregates, self.sets, self.canonical, self.units)

    def _outer_equalities(self) -> list[tuple[int, exp.Expression]]:
        """Make what is equal to columns of a query around this one group keys; return these with the columns."""
        where, known = self.node.args.get("where"), self.columns
        if where is None or known is None or not may_be_correlated(self.node):
            return []
        names = {name for name, _ in self.items} | known
        found, kept = split_where(where.this, lambda c: fold(c.table) in names if c.table else fold(c.name) in known)
        if not found:
            return []
        self.node.set("where", None if kept is None else exp.Where(this=kept))
        places = [(self._key(inside), outside) for inside, outside in found]
        self.sets = [tuple(dict.fromkeys([*one, *(place for place, _ in places)])) for one in self.sets]
        return places

    def _looked_up(self, outside: list[tuple[int, exp.Expression]], condition: exp.Expression | None, *, single: bool) -> None:
        """Ask the answer for the groups of the row around it; ``single``: an aggregate of all rows has a value of none, too."""
        node = self.node
        same: list[exp.Expression] = [
            exp.EQ(this=exp.Column(this=identifier(f"k{place}"), table=None), expression=value.copy()) for place, value in outside
        ]
        if not single:
            node.set("where", exp.Where(this=exp.and_(*same, *([] if condition is None else [condition]), copy=False)))
            return
        node.set("where", exp.Where(this=exp.and_(*same, copy=False)))
        node.set("expressions", [of_one_row(item, self.aggregates) for item in node.expressions])
        node.set("having", None if condition is None else exp.Having(this=of_one_row(condition, self.aggregates)))
        if node.args.get("qualify") is not None or not self.aggregates:
            refuse("a subquery", "it names columns of a query around it: write count(*), sum(x), ... and HAVING alone", node)

    def _post_part(self, part: exp.Expression, kind: str) -> exp.Expression | list[exp.Expression]:
        if kind == "qualify":
            return self._post(part.this, aliases=True)
        found: list[exp.Expression] = []
        for ordered in part.expressions:
            inner = ordered.this
            plain = isinstance(inner, exp.Literal | exp.Var) or (isinstance(inner, exp.Column) and fold(inner.name) == "all")
            ordered.set("this", inner if plain else self._post(inner, aliases=True))
            found.append(ordered)
        return found

    def _post(self, node: exp.Expression, *, aliases: bool = False) -> exp.Expression:
        """Return an expression over the answer: keys and aggregates are columns of it.

        ``aliases``: whether names of items may stand in it, as after HAVING, QUALIFY and ORDER BY.
        """
        key = self._place_of(node)
        if key is not None:
            return exp.Column(this=identifier(f"k{key}"))
        if isinstance(node, exp.Window):
            return self._post_window(node, aliases=aliases)
        if isinstance(node, exp.Anonymous) and fold(str(node.this)) in ("grouping", "grouping_id"):
            return self._grouping(node)
        if is_aggregate(node):
            return exp.Column(this=identifier(f"a{self._aggregate(node)}"))
        if isinstance(node, exp.Column):
            if aliases and not node.table and fold(node.name) in self.aliases:
                return node.copy()
            if not aliases and not node.table and fold(node.name) in self.aliases and not self._is_column(node):
                return self._post(self.aliases[fold(node.name)])  # an item that names another one
            refuse(f"column {node.sql(dialect='duckdb')}", "it is neither a group key nor inside an aggregate: a row's value", node)
        if isinstance(node, exp.Subquery | exp.Exists) or isinstance(node, exp.In) and node.args.get("query"):
            for inner in subqueries(node):
                if self.splitter.relation(inner, self.known).kind == "rows":
                    refuse("a subquery", "it gives out rows; aggregate in it", inner)
            return node
        out = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expression):
                out.set(name, self._post(value, aliases=aliases))
            elif isinstance(value, list):
                out.set(name, [self._post(v, aliases=aliases) if isinstance(v, exp.Expression) else v for v in value])
        return out

    def _is_column(self, node: exp.Column) -> bool:
        return self.columns is not None and fold(node.name) in self.columns

    def _place_of(self, node: exp.Expression) -> int | None:
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean):
            return None
        texts = {self.canonical(node), self.canonical(self._unaliased(node))}
        return next((i for i, key in enumerate(self.keys) if self.canonical(key) in texts), None)

    def _post_window(self, node: exp.Window, *, aliases: bool) -> exp.Expression:
        out = node.copy()
        for name, value in node.args.items():
            if name == "this":
                inner = value.copy()
                called = inner.this if isinstance(inner, exp.Filter) else inner
                given = (value.this if isinstance(value, exp.Filter) else value).expressions
                called.set("expressions", [e if isinstance(e, exp.Star) else self._post(e, aliases=aliases) for e in given])
                out.set("this", inner)
            elif isinstance(value, exp.Expression) and not isinstance(value, exp.WindowSpec):
                out.set(name, self._post(value, aliases=aliases))
            elif isinstance(value, list):
                out.set(name, [self._post(v, aliases=aliases) for v in value])
        return out

    def _grouping(self, node: exp.Anonymous) -> exp.Expression:
        """Return GROUPING(a, b): a bit for each key, 1 where the row's grouping set leaves it out."""
        bits: list[exp.Expression] = []
        for argument in node.expressions:
            place = self._place_of(argument)
            if place is None:
                raise ArgumentError("sql", argument.sql(dialect="duckdb"), "GROUPING() takes group keys")
            bits.append(exp.Column(this=identifier(f"g{place}")))
        total: exp.Expression = bits[0]
        for bit in bits[1:]:
            total = exp.Add(this=exp.Mul(this=exp.Paren(this=total), expression=exp.Literal.number(2)), expression=bit)
        return exp.Paren(this=total)

    def _aggregate(self, node: exp.Expression) -> int:
        """Return the place of an aggregate, which is noted where it is a new one."""
        found = aggregate_of(node)
        parts = [*found.arguments, *([] if found.condition is None else [found.condition])]
        _no_unnest(parts)
        for part in parts:
            self._first_asked(part)
        written = Aggregate(
            found.function, tuple(map(self._unaliased, found.arguments)),
            None if found.condition is None else self._unaliased(found.condition), found.quantiles, found.listed, found.bounds,
        )  # fmt: skip
        if written.function == "count_distinct" and self._is_unit(written.arguments[0]):
            written = Aggregate("count_units", (), written.condition)
        text = written.key(self.canonical)
        if text not in self._places:
            self._places[text] = len(self.aggregates)
            self.aggregates.append(written)
        return self._places[text]

    def _rows(self) -> exp.Select:
        """Return FROM and WHERE of the rows, with the CTEs that they use."""
        node = self.node
        rows = exp.Select()
        clause = node.args.get("from_") or node.args.get("from")
        rows.set("from_", clause.copy())
        if node.args.get("joins"):
            rows.set("joins", [join.copy() for join in node.args["joins"]])
        where = node.args.get("where")
        if where is not None:
            rows.set("where", exp.Where(this=self._unaliased(where.this)))
        for part in used(node):
            if part not in ("expressions", "from", "from_", "joins", "where", "group", "having", "qualify", "order", "limit",
                            "offset",
                            "distinct", "with", "with_", "windows"):  # fmt: skip
                refuse(part.upper().replace("_", " ").removesuffix("S"), "not understood in a query over protected rows", node)
        public_rows.prune(rows)
        needed = self._ctes(rows)
        if needed:
            rows.set("with_", exp.With(expressions=[cte.copy() for cte in needed]))
            public_rows.prune(rows)
        return rows


def _no_unnest(parts: Sequence[exp.Expression]) -> None:
    """Refuse a list that is unnested where groups are made, or inside of an aggregate: versions of DuckDB differ in it."""
    for call in (inner for part in parts for inner in outside_queries(part) if isinstance(inner, exp.Anonymous)):
        if isinstance(call.this, str) and fold(call.this) in ("unnest", "unlist"):
            refuse("unnest()", "unnest the list in FROM: FROM t, UNNEST(t.list) AS u(value), and group by value", call)
