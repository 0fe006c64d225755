"""A query in two: *cores*, which are counted under privacy, and the *outer* statement over what they release.

A core is a SELECT with aggregates or groups over rows of a protected table, whose groups are not privacy units. What stands above
it (other items, HAVING, QUALIFY, ORDER BY, LIMIT, set operations, outer SELECTs) is post-processing: DuckDB runs it over the
released numbers. What stands below it is a source of rows, which `dpsql.source` checks as it does every source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

from sqlglot import exp

from dpsql.errors import UnsupportedQuery
from dpsql.queries import public_rows
from dpsql.queries.block import Block
from dpsql.queries.constant_rows import SERIES, Series, write_out
from dpsql.queries.names import shown_name, spreads
from dpsql.queries.taken import BESIDE, CORE, Core, Cte, Known, Leaf, Query, Relation
from dpsql.queries.trees import flat, joined, names_are_free, no_parameters, output, renamed, subqueries
from dpsql.source.model import fold, identifier, refuse


def split(
    tree: exp.Expression,
    facts: Callable[[exp.Table], Leaf],
    series: Series,
    named: Callable[[exp.Expression], str] = shown_name,
) -> Query:
    """Take a query apart.

    Parameters
    ----------
    tree : sqlglot expression
        Of a SELECT or set operation; it is changed into the outer statement.
    facts : callable
        What is publicly known of a table that the text names; raises where there is none.
    series : callable
        What evaluates series of constants (`dpsql.queries.constant_rows`).
    named : callable
        The name of an item that has none.

    Raises
    ------
    UnsupportedQuery
        It gives out rows, groups people, or needs one answer for another; says where and what to do.
    """
    splitter = _Splitter(facts, series, named)
    relation = splitter.relation(tree, {})
    # the two ways to ask for persons have words of their own
    if relation.kind == "rows" and any(tree.find_all(exp.Group)):
        keys = sorted(relation.keys - relation.units)
        what = f"GROUP BY {keys[0]}, a key or the column of a link," if keys and not relation.units else "GROUP BY the privacy unit"
        advice = "it gives out a row for each of them; aggregate these: SELECT avg(n) FROM (SELECT ...)"
        refuse(what, f"each value of it is one person's; {advice}" if what.endswith(",") else advice, tree)
    if relation.kind == "rows":
        advice = "only aggregates can be released: count(*), sum, avg, median, ... by groups; dp_synthesize gives rows"
        refuse("raw rows", advice, tree)
    if relation.kind == "public":
        raise UnsupportedQuery("the query", "no protected table is in it; DuckDB answers it without dp_query")
    splitter.clean(tree)
    return Query(tree, splitter.cores, splitter.public)


class _Splitter:
    def __init__(self, facts: Callable[[exp.Table], Leaf], series: Series, named: Callable[[exp.Expression], str]) -> None:
        self.facts, self.series, self.named = facts, series, named
        self.cores: list[Core] = []
        self._numbers = itertools.count()
        self.public: list[exp.Table] = []
        self._spent: list[exp.CTE] = []

    def clean(self, tree: exp.Expression) -> None:
        """Take out the CTEs of rows: they went with the cores that use them."""
        for cte in self._spent:
            clause = cte.parent
            if clause is not None:
                left = [sibling for sibling in clause.expressions if sibling is not cte]
                clause.set("expressions", left)
                if not left and clause.parent is not None:
                    clause.parent.set(clause.arg_key or "with_", None)

    # -- relations --------------------------------------------------------------------------------------------------------

    def relation(self, node: exp.Expression, known: Known) -> Relation:
        """Return what a relation is; cores below it are taken out."""
        if isinstance(node, exp.Select):
            return self._select(node, known)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, known)
        if isinstance(node, exp.Subquery):
            return renamed(node, self.relation(node.this, self._with(node, known)))
        if isinstance(node, exp.Table):
            return self._table(node, known)
        if isinstance(node, exp.Values | exp.Unnest):
            return renamed(node, Relation(self._inside(node, known)))
        if isinstance(node, exp.Pivot):
            return self._pivot(node, known)
        return refuse(node.key.upper(), "not a relation that a query may read", node)

    def _pivot(self, node: exp.Pivot, known: Known) -> Relation:
        """Return what a PIVOT or UNPIVOT of a relation is: of an answer, an answer."""
        inner = self.relation(node.this, known)
        if inner.kind == "rows":
            way = "pivot an answer: (SELECT a, b, count(*) AS n FROM t GROUP BY a, b) ON b IN ('x', 'y') USING sum(n)"
            refuse("UNPIVOT" if node.unpivot else "PIVOT", f"it is over rows of people; {way}", node.this)
        parts = [part for name, value in node.args.items() if name != "this" for part in flat([value])]
        if any(part.find(exp.Query) for part in parts):
            refuse("a subquery in PIVOT", "write values and columns: ON b IN ('x', 'y') USING sum(n)", node.this)
        return Relation(inner.kind)

    def _table(self, node: exp.Table, known: Known) -> Relation:
        if isinstance(node.this, exp.Identifier) and len(node.parts) == 1 and (cte := known.get(fold(node.name))):
            return renamed(node, cte.relation)
        if not isinstance(node.this, exp.Identifier):
            return self._function(node, known)
        return self._leaf(node)

    def _leaf(self, node: exp.Table) -> Relation:
        leaf = self.facts(node)
        if not leaf.protected:
            self.public.append(node)
        return renamed(node, Relation("rows" if leaf.protected else "public", leaf.columns, leaf.units, leaf.keys))

    def _inside(self, node: exp.Expression, known: Known) -> Literal["answer", "public"]:
        """Return what the arguments of a list or table function are made of."""
        kinds = {self.relation(inner, known).kind for inner in subqueries(node)}
        if "rows" in kinds:
            refuse("a subquery", "it gives out rows; aggregate in it", node)
        return "answer" if "answer" in kinds else "public"

    def _function(self, node: exp.Table, known: Known) -> Relation:
        call = node.this
        name = fold(str(call.this)) if isinstance(call, exp.Anonymous) else call.key
        if name in ("read_parquet", "parquet_scan", "unnest", *SERIES):
            return self._leaf(node) if name.startswith(("read", "parquet")) else renamed(node, Relation(self._inside(node, known)))
        return refuse(f"{name}()", "table functions and macros are not looked into; name a table, view or file", node)

    def _set_operation(self, node: exp.SetOperation, known: Known) -> Relation:
        inner = self._with(node, known)
        left, right = self.relation(node.this, inner), self.relation(node.expression, inner)
        if {left.kind, right.kind} >= {"rows", "answer"} or {left.kind, right.kind} == {"rows", "public"}:
            refuse(node.key.upper(), "one side has rows of people, the other has not; aggregate both sides", node)
        if left.kind == "rows":
            # a column tells the person only where it does so in both sides
            keys = left.telling if right.telling else frozenset()
            return Relation("rows", left.columns, left.units if right.units else frozenset(), keys)
        return Relation("answer" if "answer" in (left.kind, right.kind) else "public", left.columns)

    def _with(self, node: exp.Expression, known: Known) -> Known:
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return known
        if clause.args.get("recursive"):
            refuse("WITH RECURSIVE", "a query may not call itself", clause)
        scope = dict(known)
        named: set[str] = set()
        for cte in clause.expressions:
            if fold(cte.alias) in named:
                refuse(f"WITH {cte.alias}", "another relation of that name is used before it; give this one another name", cte)
            # a name that was read as a table must not become a CTE behind it
            named |= {fold(table.name) for table in cte.this.find_all(exp.Table) if fold(table.name) not in scope}
            relation = renamed(cte, self.relation(cte.this, scope))
            scope[fold(cte.alias)] = Cte(cte, relation, dict(scope))
            if relation.kind == "rows":
                self._spent.append(cte)
        return scope

    def _select(self, node: exp.Select, known: Known) -> Relation:
        known = self._with(node, known)
        names_are_free(node)
        node.set("expressions", [self._named(item) for item in node.expressions])
        items = self._items(node, known)
        kinds = {relation.kind for _, relation in items}
        # over answers and public tables it belongs to the outer statement, as it is
        if "rows" not in kinds:
            kinds |= {self.relation(inner, known).kind for inner in subqueries(node)}
            if "rows" in kinds:
                refuse("a subquery", "it gives out rows; aggregate in it", node)
            for part in (node.args.get("where"), *node.expressions):
                no_parameters(part)
            return Relation("answer" if "answer" in kinds else "public", output(node, items)[0])
        if "answer" in kinds:
            refuse("FROM", f"rows beside an aggregate of rows: {BESIDE}", node)
        columns, units, keys = output(node, items)
        block = Block(self, node, items, known)
        # groups that are persons are rows still: an aggregate further out has to put them together
        if not block.aggregated(units | keys) or block.by_unit():
            block.no_scalar_subqueries(alone=True)
            return Relation("rows", columns, units, keys)
        name = f"{CORE}{next(self._numbers)}"  # before cores inside of it are taken out
        self.cores.append(block.take_out(name))
        return Relation("answer", columns)

    def _named(self, item: exp.Expression) -> exp.Expression:
        """Return an item under the name that DuckDB gives it, which is lost where its text changes."""
        if isinstance(item, exp.Alias | exp.Column | exp.Star) or not isinstance(item, exp.Expression) or spreads(item):
            return item
        return exp.Alias(this=item, alias=identifier(self.named(item)))

    def _items(self, node: exp.Select, known: Known) -> list[tuple[str, Relation]]:
        """Return the relations after FROM, each with the name by which its columns may be qualified."""
        listed = _after_from(node)
        relations = [self.relation(item, known) for item in listed]
        if any(relation.kind == "rows" for relation in relations):
            public = [item for item, relation in zip(listed, relations, strict=True) if relation.kind != "rows"]
            inside = [part for item in [*public, *subqueries(node)] for part in _with_ctes(item, known)]
            write_out(node, inside, self.series)
            # what it has written out stands in the place of what was there
            listed = _after_from(node)
            of_people = [relation.kind == "rows" for relation in relations]
            public_rows.prepare(node, list(zip(listed, of_people, strict=True)))
        return [(fold(item.alias_or_name), relation) for item, relation in zip(listed, relations, strict=True)]


def _after_from(node: exp.Select) -> list[exp.Expression]:
    """Return the relations after FROM; none where there is no FROM."""
    clause = node.args.get("from_") or node.args.get("from")
    joins = node.args.get("joins") or []
    return [] if clause is None else [clause.this, *(join.this for join in joins), *joined(clause.this)]


def _with_ctes(item: exp.Expression, known: Known) -> list[exp.Expression]:
    """Return a relation and what the CTEs are that it uses."""
    out = [item]
    for table in item.find_all(exp.Table):
        cte = known.get(fold(table.name)) if isinstance(table.this, exp.Identifier) and len(table.parts) == 1 else None
        if cte is not None:
            out += _with_ctes(cte.node.this, cte.known)
    return out
