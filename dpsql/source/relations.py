"""The relations of a source: views, CTEs, subqueries in FROM, and joins to public tables on their key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from dpsql.source.catalog import Entry
from dpsql.source.expressions import Rewriter
from dpsql.source.joins import chain, covered_key, key_pairs, one_row_a_key
from dpsql.source.keys import in_bytes, one_equality
from dpsql.source.leaves import Cte, Leaves, View, path_of
from dpsql.source.model import RESERVED, Column, fold, identifier, refuse
from dpsql.source.parse import LIST_WAY, agree, parse, render, tokens, used
from dpsql.source.rows import number_column
from dpsql.source.scope import Item, Scope, empty_relation, with_relations

DEEPEST = 24
"""Views, CTEs and subqueries may be nested this deep."""

_LISTS = f"it repeats rows; of a list, {LIST_WAY}"
_CLAUSES = {
    "distinct": ("DISTINCT", "it merges rows"),
    "group": ("GROUP BY", "it merges rows; FROM dp_marginals('table', columns := [the grouped columns], ...) counts by group"),
    "having": ("HAVING", "it merges rows"),
    "qualify": ("QUALIFY", "it picks rows by other rows"),
    "windows": ("WINDOW", "it depends on other rows"),
    "limit": ("LIMIT", "it picks rows by other rows"),
    "offset": ("OFFSET", "it picks rows by other rows"),
    "sample": ("SAMPLE", "it picks rows at random, so the same call would give other rows"),
    "laterals": ("LATERAL", "it repeats rows"),
    "pivots": ("PIVOT", "it merges rows"),
    "into": ("INTO", "a source is only read"),
}


@dataclass
class Relation:
    """A checked SELECT: its generated tree and what comes out of it. ``unnamed`` are the positions that need a name.

    ``protected``: whether its rows are people's; ``one``: whether no privacy unit has more than one of them; ``most``: how many a
    unit has at most that has as many in the protected table as are counted.
    """

    select: exp.Select
    columns: list[Column]
    unnamed: list[int] = field(default_factory=list)
    protected: bool = True
    one: bool = False
    most: int = 1


class Analysis(Leaves):
    """One pass over one source. Collects what it reached in ``table``, ``public``, ``filtered`` and ``leaves``."""

    queries: tuple[type[exp.Expression], ...] = (exp.Select,)
    """What may stand in brackets."""

    def query(self, node: exp.Expression, view: View) -> Relation:
        """Check a query, which is a SELECT here, and return its rewriting."""
        if not isinstance(node, exp.Select):
            refuse(node.key.upper(), "only plain SELECTs", node, view.where)
        return self.select(node, view)

    def text(self, text: str, where: str = "") -> exp.Expression:
        """Return the tree of a text or of a view's."""
        return parse(text, where)

    def select(self, node: exp.Select, view: View) -> Relation:
        """Check a SELECT and return its rewriting."""
        if view.depth > DEEPEST:
            refuse("the nesting", f"deeper than {DEEPEST} views, CTEs and subqueries", node, view.where)
        self._clauses(node, view)
        for name in (i for i in node.find_all(exp.Identifier) if fold(i.name).startswith(RESERVED)):
            refuse(repr(name.name), f"names that start with {RESERVED} are dpsql's own", name, view.where)
        # CTEs are checked where they are read: one that nobody reads would not be, and is refused below
        view, own = self._with(node, view)
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            refuse("SELECT without FROM", "there is no table in it", node, view.where)
        start, joins = chain(clause.this)
        scope = Scope(self.catalog, [self._item(start, view)], list(view.homes), view.where, self.texts)
        out = exp.Select().from_(scope.items[0].node)
        for join in [*joins, *(node.args.get("joins") or [])]:
            self._join(join, scope, view, out)
        if not scope.items[0].protected:
            self._not_protected()
        for cte in own:
            if not cte.used:
                refuse(f"WITH {cte.node.alias}", "never used; take it out", cte.node, view.where)
        rewrite = Rewriter(scope)
        condition = node.args.get("where")
        if condition is not None:
            self.filtered = True
            out.set("where", exp.Where(this=rewrite(condition.this)))
        return self._list(node, scope, rewrite, out)

    def _clauses(self, node: exp.Select, view: View) -> None:
        """Refuse every clause but FROM, JOIN, WHERE, WITH and ORDER BY; the last has no effect on a set of rows, and is dropped."""
        for key in used(node):
            if key not in ("expressions", "from", "from_", "joins", "where", "with", "with_", "order"):
                construct, reason = _CLAUSES.get(key, (key.upper().replace("_", " "), "not allowed in a source"))
                part = node.args[key]
                at = part[0] if isinstance(part, list) and part else part
                refuse(construct, reason, at if isinstance(at, exp.Expression) else node, view.where)

    def _with(self, node: exp.Select, view: View) -> tuple[View, list[Cte]]:
        """Make the CTEs of a SELECT known; they are analysed where they are used."""
        clause = node.args.get("with_") or node.args.get("with")
        own: list[Cte] = []
        if clause is None:
            return view, own
        if set(used(clause)) - {"expressions"}:
            refuse("WITH RECURSIVE", "it repeats rows", clause, view.where)
        for cte in clause.expressions:
            if set(used(cte)) - {"this", "alias", "materialized"} or not isinstance(cte.this, self.queries):
                refuse(f"WITH {cte.alias}", "only plain SELECTs", cte, view.where)
            own.append(Cte(cte, view))
            view = replace(view, ctes=(*view.ctes, (fold(cte.alias), own[-1])))
        return view, own

    # -- FROM -------------------------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expression, view: View) -> Item:
        """Return what one item of FROM is."""
        if isinstance(node, exp.Subquery):
            extra = set(used(node)) - {"this", "alias", "joins"}
            if extra or not isinstance(node.this, self.queries):
                construct = _CLAUSES.get(next(iter(extra), ""), (node.this.key.upper(), ""))[0]
                refuse(construct, "only SELECT ... in brackets may stand in FROM", node, view.where)
            inner = self.query(node.this, replace(view, depth=view.depth + 1))
            return self._nested(inner, node, node.alias, view)
        if isinstance(node, exp.Table):
            return self._table(node, view)
        reasons = {exp.Values: "there is no table in it", exp.Unnest: _LISTS, exp.Lateral: _LISTS}
        return refuse(node.key.upper(), reasons.get(type(node), "not a relation that a source may read"), node, view.where)

    def _nested(self, inner: Relation, node: exp.Expression, name: str, view: View) -> Item:
        """Return a checked SELECT as an item of FROM."""
        for position in inner.unnamed:
            refuse("an expression without a name", "give it one with AS", inner.select.expressions[position], view.where)
        alias = self._alias()
        outer = exp.Subquery(this=inner.select, alias=exp.TableAlias(this=identifier(alias)))
        columns = [replace(c, ref=c.name, collated=False) for c in inner.columns]
        out = self._renamed(node, columns, view)
        return Item(name or alias, alias, outer, out, protected=inner.protected, one=inner.one, most=inner.most)

    def _table(self, node: exp.Table, view: View, *, public: bool = False) -> Item:
        """Return a CTE, a file, a view or a base table."""
        extra = set(used(node)) - {"this", "db", "catalog", "alias"} - (set() if public else {"joins"})
        if extra:
            construct = _CLAUSES.get(next(iter(extra)), (next(iter(extra)).upper(), ""))[0]
            refuse(construct, "not allowed after the name of a table", node, view.where)
        if isinstance(node.this, exp.Identifier):
            if len(node.parts) == 1 and not public:
                # a CTE hides a table of its name, and a later one an earlier
                known = next((c for name, c in reversed(view.ctes) if name == fold(node.name)), None)
                if known is not None:
                    return self._cte(known, node, view)
            parts = [p.name for p in node.parts]
            entry = self.catalog.locate(parts, list(view.homes))
            if entry is not None and entry.is_view and not public:
                return self._view(entry, node, view)
            if entry is not None and entry.is_view:
                refuse(f"JOIN {render(node)}", "a view can't be joined; make it a table first", node, view.where)
            table = entry.table if entry is not None else self._file(node, parts, view)
        else:
            entry, table = None, self._function(node, view)
        return self._base(table, entry, node, view, public=public)

    def _cte(self, cte: Cte, node: exp.Table, view: View) -> Item:
        if cte.used and not self.local:
            refuse(f"WITH {node.name}", "used twice: the protected table may be read once", node, view.where)
        cte.used = True
        inner = self.query(cte.node.this, replace(cte.view, depth=view.depth + 1))
        item = self._nested(inner, cte.node, node.alias_or_name, view)
        return replace(item, columns=self._renamed(node, item.columns, view))

    def _view(self, entry: Entry, node: exp.Table, view: View) -> Item:
        """Analyse the text of a view in its own place; DuckDB must see the same columns in it."""
        where = f" in view {entry.table.text}"
        if entry.table in view.stack:
            refuse(f"view {entry.table.text}", "it reads itself", node, view.where)
        home = (entry.table.database, entry.table.schema)
        homes = (home,) if fold(home[1]) == "main" else (home, (home[0], "main"))
        inside = View(homes, where, (*view.stack, entry.table), view.depth + 1)
        text = self.views[entry.table] = view_query(entry.sql, where)
        tree = self.text(text, where)
        inner = self.query(tree, inside)
        agree(self.catalog.cursor, text, tree, where)  # before DuckDB binds the view: that may run what is in it
        self.named.append((node, entry.table))
        described = self.catalog.describe(f"SELECT * FROM {entry.table.sql}")  # noqa: S608 -- quoted by TableId
        # a view keeps the columns that its text had when it was made: those of the tables below may have changed since
        if [d.sql_type for d in described] != [c.sql_type for c in inner.columns]:
            refuse(f"view {entry.table.text}", "its columns are not what its text says; create it again", node, view.where)
        inner.unnamed.clear()
        item = self._nested(inner, exp.Table(), node.alias_or_name, view)
        columns = [
            replace(c, name=d.name, views=(*c.views, (entry.table, d.name))) for c, d in zip(item.columns, described, strict=True)
        ]
        return replace(item, columns=self._renamed(node, columns, view), path=path_of(node, entry.table))

    # -- JOIN -------------------------------------------------------------------------------------------------------------

    def _join(self, join: exp.Join, scope: Scope, view: View, out: exp.Select) -> None:
        """Add ``[LEFT] JOIN public ON left = public.key``: at most one row of the public table for each row on the left."""
        kind = " ".join(str(join.args[k]).upper() for k in ("method", "side", "kind") if join.args.get(k))
        if set(used(join)) - {"this", "on", "using", "side", "kind"} or kind not in ("", "INNER", "LEFT", "LEFT OUTER"):
            refuse(f"{kind} JOIN".strip(), "only JOIN and LEFT JOIN to a public table ON its key", join, view.where)
        if not join.args.get("on") and not join.args.get("using"):
            refuse("JOIN without ON", "every row would meet every row; write JOIN public ON a = public.key", join, view.where)
        # a key is declared of a table: neither a CTE nor a subquery has one
        named = join.this.name if isinstance(join.this, exp.Table) and len(join.this.parts) == 1 else None
        if not isinstance(join.this, exp.Table) or any(name == fold(named or "") for name, _ in view.ctes):
            refuse("JOIN", "only a base table may be joined, no subquery or CTE; make it a table first", join, view.where)
        if not scope.items[0].protected:
            entry = self._table(join.this, view)
            if entry.protected:
                refuse("JOIN", "write the protected table first: FROM protected JOIN public ON ...", join, view.where)
            self._not_protected()
        item = self._table(join.this, view, public=True)
        table = self.named[-1][1]
        # the right side is public from here on
        pairs = key_pairs(join, scope, item, view.where)
        keys = [*([] if table.is_file else self.catalog.keys(table)), *self.public_keys(table)]
        key = covered_key(keys, table, item, {public.ref for public, _ in pairs}, join, view.where)
        # the key is believed, not checked: numbers of rows, or types with one equality, keep a row from being counted twice
        exactly = all(one_equality(public.sql_type) for public, _ in pairs)
        if self.table is not None and self.carried.linked and not exactly:
            refuse("JOIN", "rows of a linked table have no number; join on a key of whole numbers or dates here", join, view.where)
        if self.table is not None and not self.carried.linked and not self.carried.numbered:
            advice = f"a column {number_column(self.table)!r} hides the numbers of rows, by which a row is counted once; rename it"
            refuse("JOIN", advice, join, view.where)
        self.public.append(table)
        left = kind.startswith("LEFT")
        self.filtered |= not left
        conditions = [
            exp.EQ(
                this=in_bytes(value, public.sql_type),
                expression=in_bytes(exp.Column(this=identifier(public.ref), table=identifier(item.alias)), public.sql_type),
            )
            for public, value in pairs
        ]
        # the equality of bytes on both sides is that by which one row is taken for each key
        item.node = one_row_a_key(item, key)
        item.columns = [replace(c, nullable=True) for c in item.columns]
        if any(fold(item.name) == fold(other.name) for other in scope.items):
            refuse(f"{item.name!r}", "two relations have that name; give one another with AS", join, view.where)
        out.append("joins", exp.Join(this=item.node, side="LEFT" if left else None, on=exp.and_(*conditions, copy=False)))
        scope.items.append(item)

    # -- SELECT list ------------------------------------------------------------------------------------------------------

    def _list(self, node: exp.Select, scope: Scope, rewrite: Rewriter, out: exp.Select) -> Relation:
        """Expand, check and rewrite the list after SELECT, and carry the privacy unit along."""
        columns: list[Column] = []
        values: list[exp.Expression] = []
        unnamed: list[int] = []
        for listed in node.expressions:
            for name, inner in self._expand(listed, scope):
                plain = scope.resolve(inner) if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star) else None
                value = rewrite(inner)
                if plain and not plain[2]:
                    name = name or plain[1].name
                    # a column that is copied keeps where it is from
                    columns.append(replace(plain[1], name=name, ref=name))
                else:
                    name = name or (plain[2][-1] if plain else "")
                    if not name:
                        unnamed.append(len(columns))
                        name = f"{RESERVED}c{len(columns)}"
                    columns.append(Column(name, name, scope.type_of(value), None))
                values.append(value)
        seen: set[str] = set()
        for column in columns:
            if fold(column.name) in seen:
                refuse(f"column {column.name!r}", "two columns have that name; rename one with AS", node, scope.where)
            seen.add(fold(column.name))
        if not columns:
            refuse("SELECT", "no column is left", node, scope.where)
        listed_ = [exp.Alias(this=v, alias=identifier(c.name)) for v, c in zip(values, columns, strict=True)]
        out.set("expressions", listed_)
        self.carried.add(out, scope.items[0].alias)
        return Relation(out, columns, unnamed, most=scope.items[0].most)

    def _expand(self, node: exp.Expression, scope: Scope) -> list[tuple[str, exp.Expression]]:
        """Return (name or '', expression) for each column that one entry of the list stands for."""
        if isinstance(node, exp.Alias):
            if isinstance(node.this, exp.Star):
                refuse("* AS", "not allowed", node, scope.where)
            return [(node.alias, node.this)]
        star = node.this if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) else node
        if not isinstance(star, exp.Star):
            return [("", node)]
        table = fold(node.table) if isinstance(node, exp.Column) else None
        items = [i for i in scope.items if table is None or fold(i.name) == table]
        if not items or (isinstance(node, exp.Column) and len(node.parts) > 2):
            refuse(render(node), "not a relation in FROM; write the fields of a struct one by one: s.field AS a", node, scope.where)
        left_out, replaced = self._modifiers(star, scope)
        entries: list[tuple[str, exp.Expression]] = []
        for item in items:
            for column in item.columns:
                key = fold(column.name)
                if key in left_out or (table is None and key in item.hidden):
                    continue
                entries.append((column.name, replaced.pop(key, None) or exp.column(column.name, table=item.name, quoted=True)))
        if replaced:
            refuse("REPLACE", "it names a column that * does not have", node, scope.where)
        return entries

    def _modifiers(self, star: exp.Star, scope: Scope) -> tuple[set[str], dict[str, exp.Expression]]:
        """Return the folded names after EXCLUDE, and the expressions after REPLACE by folded name."""
        left_out: set[str] = set()
        replaced: dict[str, exp.Expression] = {}
        for key in used(star):
            entries: list[Any] = star.args[key] if isinstance(star.args[key], list) else [star.args[key]]
            if key in ("except", "except_") and all(isinstance(e, exp.Column | exp.Identifier) for e in entries):
                left_out |= {fold(e.name) for e in entries}
            elif key == "replace" and all(isinstance(e, exp.Alias) for e in entries):
                replaced |= {fold(e.alias): e.this for e in entries}
            else:
                refuse(f"* {key.upper()}", "only EXCLUDE and REPLACE may follow *", star, scope.where)
        return left_out, replaced

    def probe(self, select: exp.Select) -> str:
        """Return the generated SQL with every table replaced by an empty relation with its columns."""
        return render(with_relations(select, self.leaves, empty_relation), own=True)


def view_query(sql: str, where: str) -> str:
    """Return the SELECT of a stored CREATE VIEW.

    Examples
    --------
    >>> view_query('CREATE VIEW "a AS b" ("as", c) AS SELECT 1 AS x, 2;', "")
    'SELECT 1 AS x, 2;'
    """
    depth = 0
    for token in tokens(sql):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.ALIAS and depth == 0:
            return sql[token.end + 1 :].strip()
    return refuse("the text of the view", "not understood", None, where)
