"""Queries: SELECT, WITH, joins, UNION ALL and GROUP BY in Spark's SQL.

Every column is written with the name of its relation, so that no name is looked up twice by other rules; every * is written out.
A part that reads no table is computed by DuckDB and written as VALUES: it is public, and a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
from sqlglot import exp

from dpsql.engines.spark.translate.aggregates import AGGREGATES
from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.casts import WRITTEN
from dpsql.engines.spark.translate.expressions import Scalar
from dpsql.engines.spark.translate.literals import constant, name
from dpsql.engines.spark.translate.types import Typed, of_type, refuse
from dpsql.source.parse import render, used
from dpsql.text.names import fold
from dpsql.text.relation import identifier

MOST_ROWS = 100_000
"""Rows of a public relation that are written into a statement."""
_HELD, _HEAVY = "__dp_held", "__dp_heavy"
_SELECT = ("expressions", "from_", "from", "joins", "where", "group", "having", "distinct", "with_", "with")
_JOINS = {("", ""): "INNER JOIN", ("", "INNER"): "INNER JOIN", ("LEFT", ""): "LEFT JOIN", ("LEFT", "OUTER"): "LEFT JOIN"}
_HALF = {"SEMI": "LEFT SEMI JOIN", "ANTI": "LEFT ANTI JOIN"}


@dataclass(frozen=True)
class Relation:
    """A query in Spark's SQL: its text, and the names and DuckDB types of its columns."""

    sql: str
    columns: tuple[tuple[str, str], ...]


@dataclass
class Scope:
    """What a SELECT reads: relations by their names, in order."""

    items: list[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    _places: dict[tuple[str, str], list[tuple[str, str, str]]] = field(default_factory=dict)

    def add(self, alias: str, columns: tuple[tuple[str, str], ...]) -> None:
        """Add a relation."""
        if fold(alias) in {fold(known) for known, _ in self.items}:
            refuse(f"two relations named {alias!r}")
        self.items.append((alias, columns))
        for column, kind in columns:
            for table in ("", fold(alias)):
                self._places.setdefault((table, fold(column)), []).append((alias, column, kind))

    def drop_last(self) -> None:
        """Take the relation that was added last away again."""
        kept = self.items[:-1]
        self.items, self._places = [], {}
        for alias, columns in kept:
            self.add(alias, columns)

    def knows(self, node: exp.Column) -> bool:
        """Return whether a column has this name."""
        return (fold(node.table), fold(node.name)) in self._places

    def resolve(self, node: exp.Column) -> Typed:
        """Return a column by its name, as DuckDB compares names."""
        places = self._places.get((fold(node.table), fold(node.name)), [])
        if len(places) != 1:
            refuse(f"column {node.sql(dialect='duckdb')}", f"there are {'several' if places else 'none'} of that name")
        alias, column, kind = places[0]
        return of_type(f"{name(alias)}.{name(column)}", kind)

    def star(self, table: str = "") -> list[tuple[str, Typed]]:
        """Return all columns, or those of one relation."""
        return [
            (column, of_type(f"{name(alias)}.{name(column)}", kind))
            for alias, columns in self.items
            if not table or fold(alias) == fold(table)
            for column, kind in columns
        ]


@dataclass(frozen=True)
class _Keys:
    """Writes what stands after GROUP BY; ``listed``: what the SELECT lists."""

    listed: Sequence[tuple[str, exp.Expression, Typed]]
    scope: Scope
    scalar: Scalar

    def __call__(self, node: exp.Expression) -> str:
        """Return a key, or sets of keys."""
        if isinstance(node, exp.Literal):
            refuse("GROUP BY with a number")
        if isinstance(node, exp.GroupingSets):
            sets = [self.listing(each.expressions if isinstance(each, exp.Tuple) else [each]) for each in node.expressions]
            return f"GROUPING SETS ({', '.join(f'({keys})' for keys in sets)})"
        return self._named(node) or self.scalar(node).sql

    def listing(self, nodes: Sequence[exp.Expression]) -> str:
        """Return keys, with commas between them."""
        return ", ".join(self(node) for node in nodes)

    def _named(self, node: exp.Expression) -> str | None:
        """Return what an alias of the list stands for; a column of the rows that has the name comes before it."""
        if not isinstance(node, exp.Column) or node.table or self.scope.knows(node):
            return None
        meant = [value.sql for alias, entry, value in self.listed if fold(alias) == fold(node.name) and not _aggregated(entry)]
        return meant[0] if len(meant) == 1 else None


class Translator:
    """Translates one statement.

    Parameters
    ----------
    cursor : DuckDB cursor
    relations : mapping
        Name of a relation as DuckDB quotes it, to Spark's relation.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, relations: Mapping[str, str]) -> None:
        self.binder = Binder(cursor)
        self._relations = {fold(key): text for key, text in relations.items()}
        self._fresh = 0
        self.texts: list[str] = []
        """Columns of the outermost SELECT that DuckDB is to make texts of."""

    def query(self, node: exp.Expression, known: Mapping[str, Relation], *, outermost: bool = False) -> Relation:
        """Return a query in Spark's SQL; ``known``: the common table expressions that it may read."""
        if isinstance(node, exp.Subquery) and set(used(node)) == {"this"}:
            return self.query(node.this, known)
        if type(node) not in (exp.Select, exp.Union):
            refuse(node.key.upper())
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return self._body(node, known, outermost=outermost)
        if clause.args.get("recursive"):
            refuse("WITH RECURSIVE")
        light = self._light_first(node, clause)
        if light is not None:
            return self.query(light, known)
        known, parts = dict(known), []
        for cte in clause.expressions:
            if set(used(cte)) - {"this", "alias", "materialized"} or cte.args["alias"].args.get("columns"):
                refuse("WITH")
            if cte.args.get("materialized"):
                refuse("MATERIALIZED", "Spark may read such a relation twice")
            relation = self.query(cte.this, known)
            known[fold(cte.alias)] = Relation(name(cte.alias), relation.columns)
            parts.append(f"{name(cte.alias)} AS (\n{relation.sql}\n)")
        body = self._body(node, known, outermost=outermost)
        return Relation(f"WITH {', '.join(parts)} {body.sql}", body.columns)

    @staticmethod
    def _light_first(node: exp.Expression, clause: exp.Expression) -> exp.Expression | None:
        """Return `dpsql.domains.bounding.light_first_sql` as the `bounded_sql` that it stands for, None for anything else.

        Its two halves must see the same rows, or a unit might be in both; DuckDB keeps them, Spark may read the source twice. The
        bounding of all units at once is one pass and one shuffle, and keeps as many rows of each unit.
        """
        if [cte.alias for cte in clause.expressions] != [_HELD, _HEAVY] or type(node) is not exp.Union or node.args.get("distinct"):
            return None
        bounded: exp.Expression = node.expression.copy()
        while isinstance(bounded, exp.Subquery):
            bounded = bounded.this
        halves = [s for s in bounded.find_all(exp.Select) if s.args.get("joins")]
        if len(halves) != 1 or len(halves[0].args["joins"]) != 1:
            return None
        [join] = halves[0].args["joins"]
        start = (halves[0].args.get("from_") or halves[0].args["from"]).this
        if join.kind != "SEMI" or join.this.name != _HEAVY or not isinstance(start, exp.Table) or start.name != _HELD:
            return None
        halves[0].set("joins", None)
        alias = exp.TableAlias(this=exp.to_identifier(_HELD, quoted=True))
        start.replace(exp.Subquery(this=clause.expressions[0].this.copy(), alias=alias))
        return bounded

    def _body(self, node: exp.Expression, known: Mapping[str, Relation], *, outermost: bool = False) -> Relation:
        if isinstance(node, exp.Union):
            return self._union(node, known)
        return self._select(node, known, outermost=outermost)

    def _union(self, node: exp.Union, known: Mapping[str, Relation]) -> Relation:
        if set(used(node)) - {"this", "expression", "with_", "with"} or node.args.get("distinct"):
            refuse("a set operation", "UNION ALL alone")
        # many sides in a loop, for a level of nesting each would be too deep
        sides = []
        while isinstance(node, exp.Union) and not (set(used(node)) - {"this", "expression", "with_", "with"}):
            sides.append(self.query(node.expression, known))
            node = node.this
        sides = [self.query(node, known), *reversed(sides)]
        columns = sides[0].columns
        if any([kind for _, kind in side.columns] != [kind for _, kind in columns] for side in sides):
            refuse("UNION ALL", "its sides must have columns of the same types")
        return Relation(" UNION ALL ".join(f"({side.sql})" for side in sides), columns)

    # -- SELECT -------------------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Expression, known: Mapping[str, Relation], *, outermost: bool = False) -> Relation:
        for key in used(node):
            if key not in _SELECT:
                refuse(key.upper().replace("_", " "))
        if not any(True for _ in node.find_all(exp.Table)):
            return self._values(node)
        scope = Scope()
        source = self._from(node, scope, known)
        scalar = Scalar(scope.resolve, self.binder)
        # texts that the two engines write differently are made by DuckDB, of what comes back
        shown_as = self._left_as_they_are(node, scalar) if outermost else node.expressions
        listed = [entry for each in shown_as for entry in self._listed(each, scope, scalar)]
        shown = ", ".join(f"{_valid(value) if outermost else value.sql} AS {name(column)}" for column, _, value in listed)
        distinct = node.args.get("distinct")
        if distinct is not None and used(distinct):
            refuse("DISTINCT ON")
        parts = [f"SELECT {'DISTINCT ' if distinct is not None else ''}{shown}", source]
        where, having = node.args.get("where"), node.args.get("having")
        if where is not None:
            parts.append(f"WHERE {scalar.condition(where.this)}")
        parts += self._group(node.args.get("group"), listed, scope, scalar)
        if having is not None:
            parts.append(f"HAVING {scalar.condition(having.this)}")
        return Relation(" ".join(parts), tuple((column, value.type) for column, _, value in listed))

    def _left_as_they_are(self, node: exp.Expression, scalar: Scalar) -> list[exp.Expression]:
        """Return the list of a SELECT; columns that are cast to a text that only DuckDB writes stand there without the cast."""
        listed = []
        for each in node.expressions:
            cast = each.this if isinstance(each, exp.Alias) else None
            if (
                type(cast) is exp.Cast
                and _is_text(cast)
                and type(cast.this) is exp.Column
                and scalar(cast.this).type not in WRITTEN
            ):
                self.texts.append(each.alias)
                each = exp.Alias(this=cast.this, alias=each.args["alias"])
            listed.append(each)
        return listed

    @staticmethod
    def _listed(node: exp.Expression, scope: Scope, scalar: Scalar) -> list[tuple[str, exp.Expression, Typed]]:
        """Return names and values of one entry after SELECT."""
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            if used(node if isinstance(node, exp.Star) else node.this):
                refuse("* with a list")
            table = node.table if isinstance(node, exp.Column) else ""
            return [(column, exp.column(column), value) for column, value in scope.star(table)]
        if isinstance(node, exp.Alias):
            return [(node.alias, node.this, _stored(scalar(node.this)))]
        if isinstance(node, exp.Column):
            value = scalar(node)
            return [(node.name, node, value)]
        return refuse("a column without a name")

    @staticmethod
    def _group(
        group: exp.Expression | None, listed: Sequence[tuple[str, exp.Expression, Typed]], scope: Scope, scalar: Scalar
    ) -> list[str]:
        if group is None:
            return []
        if set(used(group)) - {"expressions", "all"}:
            refuse("GROUP BY", "of keys alone")
        if group.args.get("all"):
            keys = [value for _, node, value in listed if not _aggregated(node)]
            # a constant after GROUP BY would be a place in the list to Spark
            key_list = [value.sql for value in keys if not value.constant]
            return [f"GROUP BY {', '.join(key_list)}"] if key_list else (["GROUP BY CAST(0 AS INT)"] if keys else [])
        return [f"GROUP BY {_Keys(listed, scope, scalar).listing(group.expressions)}"] if group.expressions else []

    # -- FROM ---------------------------------------------------------------------------------------------------------------

    def _from(self, node: exp.Expression, scope: Scope, known: Mapping[str, Relation]) -> str:
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            refuse("SELECT without FROM")
        parts = [f"FROM {self._item(clause.this, scope, known)}"]
        for join in node.args.get("joins") or []:
            parts.append(self._join(join, scope, known))
        return " ".join(parts)

    def _join(self, join: exp.Expression, scope: Scope, known: Mapping[str, Relation]) -> str:
        if set(used(join)) - {"this", "on", "kind", "side"}:
            refuse("JOIN", "with ON alone")
        side, kind, on = str(join.side).upper(), str(join.kind).upper(), join.args.get("on")
        item = self._item(join.this, scope, known)
        condition = "" if on is None else f" ON {Scalar(scope.resolve, self.binder).condition(on)}"
        if kind in _HALF and not side and on is not None:
            # nothing after the join can name its right side
            scope.drop_last()
            return f"{_HALF[kind]} {item}{condition}"
        if on is None and not side and kind in ("", "CROSS"):
            return f"CROSS JOIN {item}"
        if on is None or (side, kind) not in _JOINS:
            refuse(f"{side} {kind} JOIN".strip())
        return f"{_JOINS[side, kind]} {item}{condition}"

    def _item(self, node: exp.Expression, scope: Scope, known: Mapping[str, Relation]) -> str:
        """Return one relation after FROM with a name, and add it to what the SELECT reads."""
        if isinstance(node, exp.Table):
            relation, alias = self._table(node, known)
        elif isinstance(node, exp.Subquery):
            if set(used(node)) - {"this", "alias"}:
                refuse("a subquery with more than a name")
            inner = self.query(node.this, known)
            relation, alias = Relation(f"({inner.sql})", inner.columns), ""
        else:
            refuse(node.key.upper())
        alias_node = node.args.get("alias")
        columns = relation.columns
        if alias_node is not None and alias_node.args.get("columns"):
            names = [column.name for column in alias_node.args["columns"]]
            if len(names) != len(columns):
                refuse("a relation's list of names")
            listed = ", ".join(f"{name(old)} AS {name(new)}" for (old, _), new in zip(columns, names, strict=True))
            columns = tuple((new, kind) for new, (_, kind) in zip(names, columns, strict=True))
            relation = Relation(f"(SELECT {listed} FROM {relation.sql})", columns)  # noqa: S608 -- quoted
        # Spark needs a name for each relation, and two of one name could be mixed up
        self._fresh += 1
        alias = node.alias or alias or f"__dp_t{self._fresh}"
        scope.add(alias, columns)
        return f"{relation.sql} AS {name(alias)}"

    def _table(self, node: exp.Table, known: Mapping[str, Relation]) -> tuple[Relation, str]:
        if set(used(node)) - {"this", "db", "catalog", "alias"} or not all(isinstance(p, exp.Identifier) for p in node.parts):
            refuse(f"the relation {render(node)[:80]}", "a table alone")
        names = [part.name for part in node.parts]
        if len(names) == 1 and fold(names[0]) in known:
            return known[fold(names[0])], names[0]
        key = identifier(*names)
        text = self._relations.get(fold(key))
        if text is None:
            refuse(f"the relation {key}", "it is not where the protected rows are; put it there")
        columns = self.binder.columns(f"SELECT * FROM {key}")  # noqa: S608 -- quoted
        return Relation(text, tuple(columns)), names[-1]

    def _values(self, node: exp.Expression) -> Relation:
        """Return what reads no table as its rows."""
        if any(True for _ in node.find_all(exp.Placeholder, exp.Parameter)):
            refuse("a parameter")
        try:
            columns, rows = self.binder.rows(render(node))
        except duckdb.Error:
            refuse("a list of constants", "DuckDB does not compute it")
        if len(rows) > MOST_ROWS:
            refuse(f"a list of more than {MOST_ROWS} constants", "put it into a table where the protected rows are")
        listed = tuple((column, "VARCHAR" if kind.startswith("ENUM(") else kind) for column, kind in columns)
        names = ", ".join(name(column) for column, _ in listed)
        if not rows:
            nothing = ", ".join(f"{constant(None, kind).sql} AS {name(column)}" for column, kind in listed)
            return Relation(f"SELECT {nothing} WHERE false", listed)
        row_list = ", ".join(f"({', '.join(value.sql for value in row)})" for row in rows)
        return Relation(f"SELECT * FROM VALUES {row_list} AS __dp_values({names})", listed)  # noqa: S608 -- quoted


def _is_text(cast: exp.Cast) -> bool:
    return cast.args["to"].this in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR)


def _aggregated(node: exp.Expression) -> bool:
    return any(isinstance(each, exp.Anonymous) and str(each.this).lower() in AGGREGATES for each in node.walk())


def _valid(value: Typed) -> str:
    """Return what leaves Spark: bytes that are no UTF-8 would fail on their way out, and say so of a row."""
    return f"make_valid_utf8({value.sql})" if value.type == "VARCHAR" else value.sql


def _stored(value: Typed) -> Typed:
    """Return a value as a column: a NULL without a type becomes a number, as in DuckDB."""
    return of_type("CAST(NULL AS INT)", "INTEGER") if value.type in ("NULL", '"NULL"') else value
