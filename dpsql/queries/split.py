"""A query in two: *cores*, which are counted under privacy, and the *outer* statement over what they release.

A core is a SELECT with aggregates or groups over rows of a protected table, whose groups are not privacy units. What stands above
it (other items, HAVING, QUALIFY, ORDER BY, LIMIT, set operations, outer SELECTs) is post-processing: DuckDB runs it over the released
numbers. What stands below it is a source of rows, which `dpsql.source` checks as it does every source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from sqlglot import exp

from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.queries import public_rows
from dpsql.queries.aggregates import Aggregate, aggregate_of, is_aggregate
from dpsql.queries.names import canonical, shown_name
from dpsql.source.model import RESERVED, fold, identifier, refuse
from dpsql.source.parse import render, used

CORE = f"{RESERVED}core"
"""Beginning of the name of the relation that a core's answer is, in the outer statement."""
MOST_SETS = 64
_SHOWN = 20
"""Columns that a message lists."""
_ADAPTIVE = (
    "it needs an answer about the rows before others of them are counted. Say adaptive := true (it is then a release of its own), or "
    "ask for it first, and write the number that it released into the text"
)
_BESIDE = (
    "it is needed before the rows are counted. Write it as a scalar subquery, WHERE x > (SELECT avg(x) FROM ...), and say "
    "adaptive := true; or ask for it first, and write the number that it released into the text"
)


@dataclass(frozen=True)
class Leaf:
    """What is publicly known of a table or view that a text names. ``columns``: folded names, in order."""

    protected: bool
    columns: tuple[str, ...]
    units: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Relation:
    """What a relation of the text is: rows of people, an answer (or made of answers), or public."""

    kind: Literal["rows", "answer", "public"]
    columns: tuple[str, ...] | None = None
    units: frozenset[str] = frozenset()


@dataclass
class Core:
    """One SELECT to be counted.

    Parameters
    ----------
    name : str
        Of the relation that stands for its answer: columns k0, k1, ... (keys), a0, a1, ... (aggregates), g0, ... (whether a key is
        left out of the grouping set).
    rows : sqlglot Select
        FROM, WHERE and WITH of its rows, with nothing selected.
    keys, aggregates
        Over the columns of these rows.
    sets : list of tuple of int
        Grouping sets: positions of keys.
    canonical : callable
        The text of an expression of it by which it is compared.
    """

    name: str
    rows: exp.Select
    keys: list[exp.Expression]
    aggregates: list[Aggregate]
    sets: list[tuple[int, ...]]
    canonical: Callable[[exp.Expression], str]
    units: frozenset[str] = frozenset()


@dataclass
class Query:
    """A query taken apart. ``public``: the tables that the outer statement reads besides answers."""

    outer: exp.Expression
    cores: list[Core]
    public: list[exp.Table]


class FirstAsked(Exception):
    """A scalar subquery over protected rows has to be answered before the rest can be asked.

    Attributes
    ----------
    node : sqlglot expression
        Where its number goes.
    text : str
        The subquery, with the CTEs that it uses.
    """

    def __init__(self, node: exp.Expression, ctes: Sequence[exp.CTE]) -> None:
        super().__init__()
        self.node = node
        inner = node.this.copy()
        if ctes:
            inner.set("with_", exp.With(expressions=[cte.copy() for cte in ctes]))
        self.text = render(inner)

    def refuse(self) -> NoReturn:
        """Say that it is not answered by itself."""
        refuse("a scalar subquery over protected rows", _ADAPTIVE, self.node)


_Known = Mapping[str, "_Cte"]


@dataclass
class _Cte:
    node: exp.CTE
    relation: Relation
    known: _Known




def split(
    tree: exp.Expression, facts: Callable[[exp.Table], Leaf], named: Callable[[exp.Expression], str] = shown_name
) -> Query:
    """Take a query apart.

    Parameters
    ----------
    tree : sqlglot expression
        Of a SELECT or set operation; it is changed into the outer statement.
    facts : callable
        What is publicly known of a table that the text names; raises where there is none.
    named : callable
        The name of an item that has none.

    Raises
    ------
    UnsupportedQuery
        It gives out rows, groups people, or needs one answer for another; says where and what to do.
    """
    splitter = _Splitter(facts, named)
    relation = splitter.relation(tree, {})
    if relation.kind == "rows" and any(tree.find_all(exp.Group)):
        refuse("GROUP BY the privacy unit", "it gives out a row for each of them; aggregate these: SELECT avg(n) FROM (SELECT ...)", tree)
    if relation.kind == "rows":
        refuse("raw rows", "only aggregates can be released: count(*), sum, avg, median, ... by groups; dp_synthesize gives rows", tree)
    if relation.kind == "public":
        raise UnsupportedQuery("the query", "no protected table is in it; DuckDB answers it without dp_query")
    splitter.clean(tree)
    return Query(tree, splitter.cores, splitter.public)


class _Splitter:
    def __init__(self, facts: Callable[[exp.Table], Leaf], named: Callable[[exp.Expression], str]) -> None:
        self.facts, self.named = facts, named
        self.cores: list[Core] = []
        self.public: list[exp.Table] = []
        self._spent: list[exp.CTE] = []

    def clean(self, tree: exp.Expression) -> None:
        """Take out the CTEs of rows: they went with the cores that use them."""
        for cte in self._spent:
            clause = cte.parent
            if clause is not None:
                left = [other for other in clause.expressions if other is not cte]
                clause.set("expressions", left)
                if not left and clause.parent is not None:
                    clause.parent.set(clause.arg_key or "with_", None)

    # -- relations --------------------------------------------------------------------------------------------------------

    def relation(self, node: exp.Expression, known: _Known) -> Relation:
        """Return what a relation is; cores below it are taken out."""
        if isinstance(node, exp.Select):
            return self._select(node, known)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, known)
        if isinstance(node, exp.Subquery):
            return _renamed(node, self.relation(node.this, self._with(node, known)))
        if isinstance(node, exp.Table):
            return self._table(node, known)
        if isinstance(node, exp.Values | exp.Unnest):
            return _renamed(node, Relation(self._inside(node, known)))
        return refuse(node.key.upper(), "not a relation that a query may read", node)

    def _table(self, node: exp.Table, known: _Known) -> Relation:
        if isinstance(node.this, exp.Identifier) and len(node.parts) == 1 and (cte := known.get(fold(node.name))):
            return _renamed(node, cte.relation)
        if not isinstance(node.this, exp.Identifier):
            return self._function(node, known)
        return self._leaf(node)

    def _leaf(self, node: exp.Table) -> Relation:
        leaf = self.facts(node)
        if not leaf.protected:
            self.public.append(node)
        return _renamed(node, Relation("rows" if leaf.protected else "public", leaf.columns, leaf.units))

    def _inside(self, node: exp.Expression, known: _Known) -> Literal["answer", "public"]:
        """Return what the arguments of a list or table function are made of."""
        kinds = {self.relation(inner, known).kind for inner in _subqueries(node)}
        if "rows" in kinds:
            refuse("a subquery", "it gives out rows; aggregate in it", node)
        return "answer" if "answer" in kinds else "public"

    def _function(self, node: exp.Table, known: _Known) -> Relation:
        call = node.this
        name = fold(str(call.this)) if isinstance(call, exp.Anonymous) else call.key
        if name in ("read_parquet", "parquet_scan", "range", "generate_series", "unnest"):
            return self._leaf(node) if name.startswith(("read", "parquet")) else _renamed(node, Relation(self._inside(node, known)))
        return refuse(f"{name}()", "table functions and macros are not looked into; name a table, view or file", node)

    def _set_operation(self, node: exp.SetOperation, known: _Known) -> Relation:
        inner = self._with(node, known)
        left, right = self.relation(node.this, inner), self.relation(node.expression, inner)
        if {left.kind, right.kind} >= {"rows", "answer"} or {left.kind, right.kind} == {"rows", "public"}:
            refuse(node.key.upper(), "one side has rows of people, the other has not; aggregate both sides", node)
        if left.kind == "rows":
            return Relation("rows", left.columns, left.units if right.units else frozenset())
        return Relation("answer" if "answer" in (left.kind, right.kind) else "public", left.columns)

    def _with(self, node: exp.Expression, known: _Known) -> _Known:
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return known
        if clause.args.get("recursive"):
            refuse("WITH RECURSIVE", "a query may not call itself", clause)
        found = dict(known)
        named: set[str] = set()
        for cte in clause.expressions:
            if fold(cte.alias) in named:
                refuse(f"WITH {cte.alias}", "another relation of that name is used before it; give this one another name", cte)
            named |= {fold(table.name) for table in cte.this.find_all(exp.Table) if fold(table.name) not in found}
            relation = _renamed(cte, self.relation(cte.this, found))
            found[fold(cte.alias)] = _Cte(cte, relation, dict(found))
            if relation.kind == "rows":
                self._spent.append(cte)
        return found

    def _select(self, node: exp.Select, known: _Known) -> Relation:
        known = self._with(node, known)
        _names_are_free(node)
        node.set("expressions", [self._named(item) for item in node.expressions])
        items = self._items(node, known)
        kinds = {relation.kind for _, relation in items}
        if "rows" not in kinds:
            kinds |= {self.relation(inner, known).kind for inner in _subqueries(node)}
            if "rows" in kinds:
                refuse("a subquery", "it gives out rows; aggregate in it", node)
            for part in (node.args.get("where"), *node.expressions):
                _no_files(part)
            return Relation("answer" if "answer" in kinds else "public", _output(node, items)[0])
        if "answer" in kinds:
            refuse("FROM", f"rows beside an aggregate of rows: {_BESIDE}", node)
        columns, units = _output(node, items)
        block = _Block(self, node, items, known)
        if not block.aggregated(units):
            return Relation("rows", columns, units)
        if block.by_unit():
            return Relation("rows", columns, units)
        self.cores.append(block.take_out(f"{CORE}{len(self.cores)}"))
        return Relation("answer", columns)

    def _named(self, item: exp.Expression) -> exp.Expression:
        """Return an item under the name that DuckDB gives it, which is lost where its text changes."""
        if isinstance(item, exp.Alias | exp.Column | exp.Star) or not isinstance(item, exp.Expression):
            return item
        return exp.Alias(this=item, alias=identifier(self.named(item)))

    def _items(self, node: exp.Select, known: _Known) -> list[tuple[str, Relation]]:
        """Return the relations after FROM, each with the name by which its columns may be qualified."""
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            return []
        listed = [clause.this, *(join.this for join in node.args.get("joins") or []), *_joined(clause.this)]
        found = [(item, self.relation(item, known)) for item in listed]
        if any(relation.kind == "rows" for _, relation in found):
            public_rows.prepare(node, [(item, relation.kind == "rows") for item, relation in found])
            listed = [clause.this, *(join.this for join in node.args.get("joins") or []), *_joined(clause.this)]
        return [(fold(item.alias_or_name), relation) for item, (_, relation) in zip(listed, found, strict=True)]


class _Block:
    """One SELECT over rows: its groups and aggregates, and how it is taken out of the text."""

    def __init__(self, splitter: _Splitter, node: exp.Select, items: Sequence[tuple[str, Relation]], known: _Known) -> None:
        self.splitter, self.node, self.items, self.known = splitter, node, items, known
        there = [relation.columns for _, relation in items]
        self.columns = None if any(c is None for c in there) else {name for c in there for name in c or ()}
        self.units = frozenset(name for _, relation in items for name in relation.units)
        self.aliases = {fold(e.alias): e.this for e in node.expressions if isinstance(e, exp.Alias)}
        single = len(items) == 1
        self.canonical: Callable[[exp.Expression], str] = lambda expression: canonical(expression, unqualified=single)
        self.keys: list[exp.Expression] = []
        self.sets: list[tuple[int, ...]] = [()]
        self.aggregates: list[Aggregate] = []
        self._places: dict[str, int] = {}

    # -- what it is -------------------------------------------------------------------------------------------------------

    def aggregated(self, units: frozenset[str]) -> bool:
        """Return whether it merges rows of different people. ``units``: the columns of its answer that are the privacy unit."""
        node = self.node
        if node.args.get("group") is not None or any(_has_aggregate(e) for e in self._outputs()):
            self._read_groups()
            return True
        if node.args.get("distinct") is not None and not units:
            if node.args["distinct"].args.get("on") is not None:
                refuse("DISTINCT ON", "it gives out one row of several people; DISTINCT ON the privacy unit keeps one of each", node)
            if any(isinstance(e, exp.Star) or isinstance(e, exp.Column) and isinstance(e.this, exp.Star) for e in node.expressions):
                refuse("SELECT DISTINCT *", "name the columns whose values are asked for", node)
            self.keys = [self._unaliased(_inner(e)) for e in node.expressions]
            self.sets = [tuple(range(len(self.keys)))]
            return True
        return False

    def by_unit(self) -> bool:
        """Return whether its groups are privacy units (with other keys): then it keeps people apart."""
        whole = {i for one in self.sets for i in one if all(i in other for other in self.sets)}
        return any(self._is_unit(self.keys[i]) for i in whole)

    def _is_unit(self, node: exp.Expression) -> bool:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        table = fold(node.table)
        return any(fold(node.name) in relation.units and table in ("", name) for name, relation in self.items)

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
            listed = [_inner(e) for e in self.node.expressions if not _has_aggregate(e)]
            self.sets = [tuple(self._key(e) for e in listed)]
            return
        parts: list[list[tuple[int, ...]]] = []
        extra = [*(group.args.get("grouping_sets") or []), *(group.args.get("rollup") or []), *(group.args.get("cube") or [])]
        for item in [*group.expressions, *extra]:
            parts.append(self._sets_of(item))
        found = [tuple(dict.fromkeys(itertools.chain(*combined))) for combined in itertools.product(*parts)]
        if len(found) > MOST_SETS:
            raise ArgumentError("sql", len(found), f"at most {MOST_SETS} grouping sets; name those that are needed: GROUPING SETS (...)")
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
            node = _inner(self.node.expressions[place])
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
            there = self.columns is not None and name in self.columns
            if there or name not in self.aliases or _has_aggregate(self.aliases[name]) or self.aliases[name] is inner:
                return inner
            return exp.Paren(this=self.aliases[name].copy())

        copy = node.copy()
        return copy.transform(written_out) if not isinstance(copy, exp.Column) else _inner(written_out(copy))

    # -- taking it out ----------------------------------------------------------------------------------------------------

    def take_out(self, name: str) -> Core:
        """Make the SELECT one over the answer of a core, and return the core."""
        node = self.node
        self._no_scalar_subqueries()
        self._no_outer_columns()
        rows = self._rows()
        if not node.expressions:
            refuse("SELECT", "nothing is asked for", node)
        listed = []
        for item in node.expressions:
            inner = _inner(item)
            if isinstance(inner, exp.Star) or isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                refuse("*", "only group keys and aggregates can be given out; name them", item)
            shown = item.alias if isinstance(item, exp.Alias) else inner.name
            listed.append((shown, inner))
        items = [exp.Alias(this=self._post(inner), alias=identifier(shown)) for shown, inner in listed]
        having = node.args.get("having")
        condition = None if having is None else self._post(having.this, aliases=True)
        for part in ("limit", "offset"):
            for inner in _subqueries(node.args[part]) if node.args.get(part) is not None else []:
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
            for inner in _subqueries(node):
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
                called.set("expressions", [self._post(e, aliases=aliases) if not isinstance(e, exp.Star) else e
                                           for e in (value.this if isinstance(value, exp.Filter) else value).expressions])  # fmt: skip
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

    def _no_scalar_subqueries(self) -> None:
        """Refuse a value that is computed of other people's rows, in what is counted."""
        where = self.node.args.get("where")
        for part in [*([where] if where is not None else []), *self.keys]:
            for inner in part.find_all(exp.Subquery):
                if not isinstance(inner.parent, exp.In | exp.Exists) and self._reads_rows(inner):
                    raise FirstAsked(inner, self._ctes(inner.this))

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
                refuse(
                    f"column {column.sql(dialect='duckdb')}",
                    f"this SELECT reads {', '.join(sorted(self.columns)[:_SHOWN])}. Columns of a query around it can't be used: "
                    "group by what is compared, and join the answer", column,
                )  # fmt: skip

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
        for part in used(node):
            if part not in ("expressions", "from", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "offset",
                            "distinct", "with", "with_", "windows"):  # fmt: skip
                refuse(part.upper().replace("_", " ").removesuffix("S"), "not understood in a query over protected rows", node)
        public_rows.prune(rows)
        needed = self._ctes(rows)
        if needed:
            rows.set("with_", exp.With(expressions=[cte.copy() for cte in needed]))
            public_rows.prune(rows)
        return rows

    def _ctes(self, node: exp.Expression) -> list[exp.CTE]:
        """Return the CTEs that a relation uses, those first that others use."""
        found: dict[str, exp.CTE] = {}

        def visit(part: exp.Expression, known: _Known) -> None:
            for table in part.find_all(exp.Table):
                cte = known.get(fold(table.name)) if isinstance(table.this, exp.Identifier) and len(table.parts) == 1 else None
                if cte is None or found.get(fold(table.name)) is cte.node:
                    continue
                if fold(table.name) in found:
                    refuse(f"WITH {table.name}", "two of that name are used together; rename one", cte.node)
                visit(cte.node.this, cte.known)
                found[fold(table.name)] = cte.node

        visit(node, self.known)
        return list(found.values())


# -- small parts ----------------------------------------------------------------------------------------------------------


def _inner(node: exp.Expression) -> exp.Expression:
    """Return an item without its name, an expression without its brackets."""
    while isinstance(node, exp.Alias | exp.Paren):
        node = node.this
    return node


def _has_aggregate(node: exp.Expression) -> bool:
    """Return whether an aggregate over rows is in an expression: not one that is a window itself, nor one of a subquery."""
    if isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        called = node.this.this if isinstance(node.this, exp.Filter) else node.this
        parts = [*called.expressions, *(v for k, v in node.args.items() if k != "this")]
        return any(_has_aggregate(part) for part in _flat(parts))
    return is_aggregate(node) or any(_has_aggregate(part) for part in _flat(node.args.values()))


def _flat(values: object) -> list[exp.Expression]:
    found: list[exp.Expression] = []
    for value in values if isinstance(values, list) else list(values):  # type: ignore[call-overload]
        if isinstance(value, exp.Expression):
            found.append(value)
        elif isinstance(value, list):
            found += [v for v in value if isinstance(v, exp.Expression)]
    return found


def _subqueries(node: exp.Expression) -> list[exp.Expression]:
    """Return the outermost queries inside the expressions of a SELECT (not those after FROM or WITH), or of an expression."""
    found: list[exp.Expression] = []
    skip = ("from", "from_", "joins", "with", "with_") if isinstance(node, exp.Select) else ()

    def visit(part: exp.Expression) -> None:
        for name, value in part.args.items():
            if part is node and name in skip:
                continue
            for inner in _flat([value]):
                if isinstance(inner, exp.Select | exp.SetOperation):
                    found.append(inner)
                else:
                    visit(inner)

    if isinstance(node, exp.Subquery | exp.Exists) and isinstance(node.this, exp.Select | exp.SetOperation):
        return [node.this]
    visit(node)
    for join in (node.args.get("joins") or []) if isinstance(node, exp.Select) else []:
        for part in _flat([join.args.get("on")]):
            visit(part)
    return found


def _joined(node: exp.Expression) -> list[exp.Expression]:
    """Return what is joined inside the brackets of a relation after FROM."""
    return [join.this for join in node.args.get("joins") or []]


def _no_files(part: exp.Expression | None) -> None:
    """Leave nothing in the outer statement that reads more than what is named: functions are checked where it is bound."""
    for node in [] if part is None else part.find_all(exp.Placeholder, exp.Parameter):
        refuse("a parameter", "write the value into the text", node)


def _names_are_free(node: exp.Select) -> None:
    for name in node.find_all(exp.Identifier):
        if fold(name.name).startswith(RESERVED) and not fold(name.name).startswith(CORE):
            refuse(repr(name.name), f"names that start with {RESERVED} are dpsql's own", name)


def _renamed(node: exp.Expression, relation: Relation) -> Relation:
    """Return a relation under the names of ``AS name(a, b)``."""
    alias = node.args.get("alias")
    names = [fold(c.name) for c in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return relation
    columns = relation.columns
    if columns is None or len(names) > len(columns):
        return Relation(relation.kind, (*names,) if columns is None else columns, relation.units - set(names))
    new = (*names, *columns[len(names) :])
    return Relation(relation.kind, new, frozenset(b for a, b in zip(columns, new, strict=True) if a in relation.units))


def _output(node: exp.Select, items: Sequence[tuple[str, Relation]]) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    """Return the columns that a SELECT gives, and which of them copy the privacy unit."""
    names: list[str] = []
    units: set[str] = set()
    known = True
    for item in node.expressions:
        inner = _inner(item)
        star = inner if isinstance(inner, exp.Star) else inner.this if isinstance(inner, exp.Column) else None
        if isinstance(star, exp.Star):
            table = fold(inner.table) if isinstance(inner, exp.Column) else ""
            left_out = {fold(e.name) for e in star.args.get("except_") or star.args.get("except") or []}
            for name, relation in items:
                if table in ("", name):
                    known &= relation.columns is not None
                    names += [c for c in relation.columns or () if c not in left_out]
                    units |= relation.units - left_out
            continue
        name = fold(item.alias) if isinstance(item, exp.Alias) else fold(shown_name(item))
        names.append(name)
        if isinstance(inner, exp.Column):
            table = fold(inner.table)
            if any(fold(inner.name) in relation.units and table in ("", other) for other, relation in items):
                units.add(name)
    return (tuple(names) if known else None), frozenset(units)
