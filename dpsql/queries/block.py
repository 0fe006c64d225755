"""One SELECT over rows: its groups and aggregates, and how it is taken out of the text."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.queries import public_rows
from dpsql.queries.aggregates import Aggregate, aggregate_of, counts_if, is_aggregate
from dpsql.queries.names import canonical, is_star, spreads
from dpsql.queries.taken import SHOWN, Core, FirstAsked, Known, Reader, Relation
from dpsql.queries.trees import has_aggregate, inner_of, subqueries
from dpsql.source.aggregates import composed
from dpsql.source.model import fold, identifier, refuse
from dpsql.source.parse import used

MOST_SETS = 64


_CORRELATED = (
    "its answer would be another one for each row around it, so a correlated subquery is refused; group by what is compared in a "
    "subquery after FROM, and join its answer"
)


class Block:
    """One SELECT over rows: its groups and aggregates, and how it is taken out of the text."""

    def __init__(self, splitter: Reader, node: exp.Select, items: Sequence[tuple[str, Relation]], known: Known) -> None:
        self.splitter, self.node, self.items, self.known = splitter, node, items, known
        headers = [relation.columns for _, relation in items]
        self.columns = None if any(c is None for c in headers) else {name for c in headers for name in c or ()}
        self.units = frozenset(name for _, relation in items for name in relation.units)
        self.aliases = {fold(e.alias): e.this for e in node.expressions if isinstance(e, exp.Alias)}
        single = len(items) == 1
        self.canonical: Callable[[exp.Expression], str] = lambda expression: canonical(expression, unqualified=single)
        self.keys: list[exp.Expression] = []
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
            if any(map(is_star, node.expressions)):
                refuse("SELECT DISTINCT *", "name the columns whose values are asked for", node)
            self.keys = [self._unaliased(inner_of(e)) for e in node.expressions]
            self.sets = [tuple(range(len(self.keys)))]
            return True
        return False

    def by_unit(self) -> bool:
        """Return whether its groups are privacy units (with other keys): then it keeps people apart."""
        whole = {i for grouping in self.sets for i in grouping if all(i in each for each in self.sets)}
        return any(self._copies(self.keys[i], lambda relation: relation.telling) for i in whole)

    def _is_unit(self, node: exp.Expression) -> bool:
        return self._copies(node, lambda relation: relation.units)

    def _copies(self, node: exp.Expression, of: Callable[[Relation], frozenset[str]]) -> bool:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        table = fold(node.table)
        return any(fold(node.name) in of(relation) and table in ("", name) for name, relation in self.items)

    def _outputs(self) -> list[exp.Expression]:
        node = self.node
        outputs = list(node.expressions)
        outputs += [node.args[part] for part in ("having", "qualify", "order") if node.args.get(part) is not None]
        return outputs

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
        sets = [tuple(dict.fromkeys(itertools.chain(*combined))) for combined in itertools.product(*parts)]
        if len(sets) > MOST_SETS:
            limit = f"at most {MOST_SETS} grouping sets; name those that are needed: GROUPING SETS (...)"
            raise ArgumentError("sql", len(sets), limit)
        self.sets = sets

    def _sets_of(self, item: exp.Expression) -> list[tuple[int, ...]]:
        if isinstance(item, exp.GroupingSets):
            return [grouping for inner in item.expressions for grouping in self._sets_of(inner)]
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
        if any(is_aggregate(inner) or isinstance(inner, exp.Window) for inner in expression.walk()):
            refuse("GROUP BY", "an aggregate or window is no group; compute it in a subquery", node)
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
            is_column = self.columns is not None and name in self.columns
            if is_column or name not in self.aliases or has_aggregate(self.aliases[name]) or self.aliases[name] is inner:
                return inner
            return exp.Paren(this=self.aliases[name].copy())

        copy = node.copy()
        return copy.transform(written_out) if not isinstance(copy, exp.Column) else inner_of(written_out(copy))

    # -- taking it out ----------------------------------------------------------------------------------------------------

    def take_out(self, name: str) -> Core:
        """Make the SELECT one over the answer of a core, and return the core."""
        node = self.node
        self.no_scalar_subqueries()
        self._no_outer_columns()
        rows = self._rows()
        if not node.expressions:
            refuse("SELECT", "nothing is asked for", node)
        listed = []
        for item in node.expressions:
            inner = inner_of(item)
            if is_star(inner):
                refuse("*", "only group keys and aggregates can be given out; name them", item)
            if spreads(inner):
                way = "name the columns; around an answer it may stand: SELECT COLUMNS('n.*') FROM (SELECT ...)"
                refuse("COLUMNS(...)", way, item)
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
        node.set("where", None if condition is None else exp.Where(this=condition))
        return Core(name, rows, self.keys, self.aggregates, self.sets, self.canonical, self.units)

    def _post_part(self, part: exp.Expression, kind: str) -> exp.Expression | list[exp.Expression]:
        if kind == "qualify":
            return self._post(part.this, aliases=True)
        ordering: list[exp.Expression] = []
        for ordered in part.expressions:
            inner = ordered.this
            plain = isinstance(inner, exp.Literal | exp.Var) or (isinstance(inner, exp.Column) and fold(inner.name) == "all")
            # alone, the name of an item comes before that of a column; in an expression, the column does
            named = isinstance(inner, exp.Column) and not inner.table and fold(inner.name) in self.aliases
            ordered.set("this", inner if plain or named else self._post(inner, aliases=True))
            ordering.append(ordered)
        return ordering

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
        if (parts := composed(node)) is not None:
            return exp.Paren(this=self._post(parts, aliases=aliases))
        if is_aggregate(node):
            column = exp.Column(this=identifier(f"a{self._aggregate(node)}"))
            return exp.cast(column, "HUGEINT", dialect="duckdb") if counts_if(node) else column
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
            if isinstance(node, exp.In):
                node.set("this", self._post(node.this, aliases=aliases))
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
                arguments = (value.this if isinstance(value, exp.Filter) else value).expressions
                called.set("expressions", [e if isinstance(e, exp.Star) else self._post(e, aliases=aliases) for e in arguments])
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
        asked = aggregate_of(node)
        written = Aggregate(
            asked.function, tuple(map(self._unaliased, asked.arguments)),
            None if asked.condition is None else self._unaliased(asked.condition), asked.quantiles, asked.listed, asked.bounds,
        )
        if written.function == "count_distinct" and self._is_unit(written.arguments[0]):
            written = Aggregate("count_units", (), written.condition)
        text = written.key(self.canonical)
        if text not in self._places:
            self._places[text] = len(self.aggregates)
            self.aggregates.append(written)
        return self._places[text]

    def no_scalar_subqueries(self, *, alone: bool = False) -> None:
        """Refuse a value that is computed of other people's rows, in what is counted; ``alone``: unless it names a row outside."""
        where = self.node.args.get("where")
        for part in [*([where] if where is not None else []), *self.keys]:
            for inner in part.find_all(exp.Subquery):
                if isinstance(inner.parent, exp.In | exp.Exists) or not self._reads_rows(inner):
                    continue
                correlated = self._is_correlated(inner)
                known = self.columns is not None and len(list(inner.find_all(exp.Select))) == 1 and not any(
                    self._columns_of(table) is None for table in inner.find_all(exp.Table)
                )
                if correlated and not alone and known:
                    refuse("a correlated scalar subquery over protected rows", _CORRELATED, inner)
                if not (alone and correlated):
                    raise FirstAsked(inner, self._ctes(inner.this))

    def _is_correlated(self, query: exp.Expression) -> bool:
        """Return whether a subquery names columns of a SELECT around it, or may."""
        tables = [table for table in query.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
        names = {fold(item.alias_or_name) for item in [*tables, *query.find_all(exp.Subquery)]}
        headers = [self._columns_of(table) for table in tables]
        if self.columns is None or any(columns is None for columns in headers):
            return True
        known = {name for columns in headers for name in columns or ()}
        columns = [column for column in query.find_all(exp.Column) if not isinstance(column.this, exp.Star)]
        if any(fold(column.table) not in names | known for column in columns if column.table):  # x.y may be a field of x
            return True
        return any(not column.table and fold(column.name) in self.columns - known for column in columns)

    def _columns_of(self, table: exp.Table) -> tuple[str, ...] | None:
        cte = self.known.get(fold(table.name)) if len(table.parts) == 1 else None
        return cte.relation.columns if cte else self.splitter.facts(table).columns

    def _no_outer_columns(self) -> None:
        """Refuse columns of a query around this one: its answer would be another one for each of its rows."""
        if self.columns is None:
            return
        where = self.node.args.get("where")
        names = {name for name, _ in self.items} | self.columns
        for part in [*([where] if where is not None else []), *self.keys]:
            for column in public_rows.own_columns(part):
                table, name = fold(column.table), fold(column.name)
                if isinstance(column.this, exp.Star) or name in self.aliases or (table in names if table else name in self.columns):
                    continue
                reads = f"this SELECT reads {', '.join(sorted(self.columns)[:SHOWN])}"
                near = [] if column.table else difflib.get_close_matches(name, sorted(self.columns), 1, 0.6)
                if self._stands_around(column):
                    advice = f"Columns of a query around it can't be used: {_CORRELATED}"
                elif near:
                    advice = f"there is no such column; did you mean {near[0]}? ({reads})"
                elif self.node.find_ancestor(exp.Select) is None:
                    advice = f"there is no such column: {reads}"
                else:
                    advice = f"{reads}. Columns of a query around it can't be used: group by what is compared, and join the answer"
                refuse(f"column {column.sql(dialect='duckdb')}", advice, column)

    def _stands_around(self, column: exp.Column) -> bool:
        """Return whether a SELECT around this one reads a table that has a column."""
        around = self.node.find_ancestor(exp.Select)
        while around is not None:
            clause = around.args.get("from_") or around.args.get("from")
            relations = [part.this for part in (clause, *(around.args.get("joins") or [])) if part is not None]
            for table in relations:
                if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                    named = not column.table or fold(column.table) == fold(table.alias_or_name)
                    if named and fold(column.name) in (self._columns_of(table) or ()):
                        return True
            around = around.find_ancestor(exp.Select)
        return False

    def _reads_rows(self, node: exp.Expression) -> bool:
        for table in node.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier):
                cte = self.known.get(fold(table.name)) if len(table.parts) == 1 else None
                if (cte.relation.kind != "public") if cte else self.splitter.facts(table).protected:
                    return True
        return False

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
        if node.args.get("sample") is not None:
            around = "SELECT * FROM (SELECT ...) USING SAMPLE 5"
            refuse("USING SAMPLE", f"it picks rows of people before they are counted; put it around the answer: {around}", node)
        for part in used(node):
            if part not in ("expressions", "from", "from_", "joins", "where", "group", "having", "qualify", "order", "limit",
                            "offset",
                            "distinct", "with", "with_", "windows"):
                refuse(part.upper().replace("_", " ").removesuffix("S"), "not understood in a query over protected rows", node)
        public_rows.prune(rows)
        needed = self._ctes(rows)
        if needed:
            rows.set("with_", exp.With(expressions=[cte.copy() for cte in needed]))
            public_rows.prune(rows)
        return rows

    def _ctes(self, node: exp.Expression) -> list[exp.CTE]:
        """Return the CTEs that a relation uses, those first that others use."""
        ctes: dict[str, exp.CTE] = {}

        def visit(part: exp.Expression, known: Known) -> None:
            for table in part.find_all(exp.Table):
                cte = known.get(fold(table.name)) if isinstance(table.this, exp.Identifier) and len(table.parts) == 1 else None
                if cte is None or ctes.get(fold(table.name)) is cte.node:
                    continue
                if fold(table.name) in ctes:
                    refuse(f"WITH {table.name}", "two of that name are used together; rename one", cte.node)
                visit(cte.node.this, cte.known)
                ctes[fold(table.name)] = cte.node

        visit(node, self.known)
        return list(ctes.values())
