"""Second opinion on unit-local SQL: DuckDB's own parse tree of what was generated, walked once more by rules of its own.

Nothing here knows how the SQL was made. Every query of the tree is found to have people's rows or public ones, and people's rows
have the column ``__dp_unit`` from the bottom up: it is made of the privacy unit column alone where the protected table is read, it
is copied from a relation that every row comes from, it is among the keys of GROUP BY and the partitions of every window, it stands
in the same place on both sides of a set operation, and it is equal on both sides of a join of people's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.errors import UnsupportedQuery
from dpsql.source.catalog import shipped_kinds
from dpsql.source.linked import Hop, Lineage
from dpsql.source.model import UNIT, TableId, fold, quoted
from dpsql.source.parse import nodes

Node = dict[str, Any]
Stored = tuple[str, str, str, str]
"""A relation and its column, and the table and the column that it copies."""


@dataclass(frozen=True)
class Side:
    """What stands after FROM.

    ``carriers`` are the relations in it whose ``__dp_unit`` is that of every row; ``pair`` are two of which one is, after a FULL
    JOIN.
    ``leaf`` is the alias of the relation that gives a protected table's rows their unit, ``column`` what it is called there: the
    protected table itself, read directly, or the parent that a linked table is joined to. ``stored``: columns that copy those of
    protected tables, in relations of which every row here has one, of its unit. ``loose``: a linked table without its parent,
    ``chosen``: of which rows may be left out, ``grouped``: with one row for those of equal keys.
    """

    unit: bool
    carriers: frozenset[str] = frozenset()
    pair: tuple[frozenset[str], frozenset[str]] | None = None
    leaf: str = ""
    column: str = ""
    stored: frozenset[Stored] = frozenset()
    loose: str = ""
    chosen: bool = False
    grouped: bool = False


class UnitLocal:
    """The walk over one parse tree. ``read`` collects the tables that it reads."""

    def __init__(self, table: TableId, unit: str, lineages: Mapping[TableId, Lineage] | None = None) -> None:
        self.table, self.unit = table, unit
        self.read: set[str] = set()
        self.hops: dict[str, tuple[Hop, bool]] = {}  # by the name of a linked table: its link, and whether that ends at the root
        for lineage in (lineages or {}).values():
            for place, hop in enumerate(lineage.hops):
                self.hops[hop.child.text] = hop, place + 1 == len(lineage.hops)

    def check(self, statement: Node) -> None:
        """Refuse a statement whose rows do not carry the privacy unit.

        Raises
        ------
        UnsupportedQuery
        """
        if not self._query(statement["node"])[0]:
            raise _refused("its rows belong to nobody")

    def _query(self, node: Node) -> tuple[bool, int]:
        """Return whether a query has people's rows, and the place of the unit among its columns."""
        modifiers = node.get("modifiers") or []
        if (node.get("cte_map") or {}).get("map") or any(m.get("type") != "DISTINCT_MODIFIER" for m in modifiers):
            raise _refused("WITH, an order or LIMIT")
        # DISTINCT of people's rows is generated as GROUP BY, where the unit is seen among the keys
        has, place = self._plain_query(node)
        if modifiers and has:
            raise _refused("DISTINCT")
        return has, place

    def _plain_query(self, node: Node) -> tuple[bool, int]:
        """Return the same of a query without what may follow it."""
        if node["type"] == "SET_OPERATION_NODE":
            sides = [self._query(side) for side in node.get("children") or (node["left"], node["right"])]
            if len(set(sides)) != 1 or node["setop_type"] not in ("UNION", "EXCEPT", "INTERSECT"):
                raise _refused("the sides of a set operation")
            return sides[0]
        if node["type"] != "SELECT_NODE" or any(node.get(key) for key in ("having", "qualify", "sample")):
            raise _refused(str(node["type"]))
        side = self._from(node["from_table"])
        if side.loose:  # nothing joins it to its parent here: its rows would pass for public ones
            raise _refused("a linked table without its parent")
        self._expressions(node, side)
        if not side.unit:
            return False, -1
        places = [i for i, listed in enumerate(node["select_list"]) if listed.get("alias") == UNIT or _is_unit(listed)]
        if len(places) != 1 or not self._carries(node["select_list"][places[0]], side):
            raise _refused("a SELECT that does not carry it")
        return True, places[0]

    def _carries(self, node: Node, side: Side) -> bool:
        """Whether an expression is the unit of the row that it stands in."""
        # where the table is read the unit is its column, in the one form that values of its type get
        if side.leaf:
            named = {tuple(n["column_names"]) for n in nodes(node) if n.get("class") == "COLUMN_REF"}
            called = {str(n["function_name"]).lower() for n in nodes(node) if n.get("class") == "FUNCTION"}
            return named == {(side.leaf, side.column)} and called <= {"encode", "isnan", "+"}
        # after a FULL join it is that of the side that is there
        if side.pair is not None and node.get("type") == "OPERATOR_COALESCE":
            units = [_unit_of(child) for child in node.get("children") or node.get("arguments") or []]
            return len(units) == 2 and units[0] in side.pair[0] and units[1] in side.pair[1]
        return _unit_of(node) in side.carriers

    def _expressions(self, node: Node, side: Side) -> None:
        """Check what a SELECT computes: aggregates inside of groups of one unit, windows inside of partitions of one unit."""
        groups: list[Node] = node.get("group_expressions") or []
        computed = [*node["select_list"], *groups, node.get("where_clause") or {}]
        every = list(nodes(computed))
        if any(n.get("class") == "SUBQUERY" or "from_table" in n for n in every):
            raise _refused("a subquery in an expression")
        # one set of keys, all of them: a total over several units would stand in another set
        if groups and (
            list(map(list, node.get("group_sets") or [])) != [list(range(len(groups)))] or any(not _column(g) for g in groups)
        ):
            raise _refused("GROUP BY")
        self._unnests(node, every, side)
        kinds = shipped_kinds()
        combines = any(n.get("class") == "FUNCTION" and kinds.get(str(n["function_name"]).lower()) == "aggregate" for n in every)
        if not side.unit:
            return
        # rows meet in a group or a partition: each must be of one unit
        if (combines or groups) and (side.leaf or not any(self._carries(group, side) for group in groups)):
            raise _refused("an aggregate")
        for window in (n for n in every if n.get("class") == "WINDOW"):
            if side.leaf or groups or not any(self._carries(part, side) for part in window.get("partitions") or []):
                raise _refused("a window")

    @staticmethod
    def _unnests(node: Node, every: list[Node], side: Side) -> None:
        """Check that a list is unnested where columns alone are selected: each value stands beside the unit of its row."""
        lists = [n for n in node["select_list"] if _is_unnest(n)]
        if len(lists) != sum(_is_unnest(n) for n in every):
            raise _refused("unnest")
        if not lists:
            return
        arguments = [child for n in lists for child in n.get("children") or [a["expression"] for a in n["arguments"]]]
        plain = all(_column(n) for n in [*arguments, *(n for n in node["select_list"] if not _is_unnest(n))])
        alone = not node.get("group_expressions") and not node.get("where_clause")
        if (side.unit and not side.carriers) or not plain or not alone or len(arguments) != len(lists):
            raise _refused("unnest")

    def _from(self, node: Node) -> Side:
        """Return what a relation has of units."""
        kind = node["type"]
        if node.get("sample") or node.get("at_clause"):
            raise _refused("SAMPLE")
        if kind == "EMPTY":
            return Side(False)
        if kind == "SUBQUERY":
            alias, query = str(node["alias"]), node["subquery"]["node"]
            if _is_bare(query) and _table_name(query["from_table"]) in self.hops:
                return self._loose(alias, query)
            if _is_plain(query) and (below := self._below(alias, query)) is not None:
                return below
            if _is_plain(query, grouped=True) and (below := self._grouped(alias, query)) is not None:
                return below
            has, _ = self._query(query)
            return Side(has, frozenset([alias]) if has else frozenset(), stored=_stored(alias, query, self.hops, self.table))
        if kind in ("BASE_TABLE", "TABLE_FUNCTION"):
            return self._leaf(node)
        if kind != "JOIN" or node.get("ref_type", "REGULAR") not in ("REGULAR", "CROSS"):
            raise _refused(str(node.get("ref_type", kind)))
        return self._join(node)

    def _leaf(self, node: Node) -> Side:
        if node["type"] == "BASE_TABLE":
            name = _table_name(node)
            own = not self.table.is_file and name == self.table.text
        else:
            if str(node["function"]["function_name"]).lower() != "read_parquet":
                raise _refused("a table function")
            texts = [_text(n) for n in nodes(node["function"]) if n.get("class") == "CONSTANT"]
            # files are public but for one, which is known by its path
            own = self.table.is_file and self.table.name in texts
            name = "read_parquet()"
        self.read.add(name)
        if name in self.hops:
            raise _refused("a linked table without its parent")
        return Side(own, frozenset(), None, str(node["alias"]), self.unit) if own else Side(False)

    def _linked(self, node: Node, hop: Hop, last: bool) -> Side:
        """Return what a linked table has of units that stands beside its parent, joined on the link and on nothing else.

        The parent is a SELECT of two columns from its table, or from that beside its own parent: the key that the link points to,
        and the unit.
        """
        child, parent = node["left"], node["right"]
        self.read.add(hop.child.text)
        if child.get("sample") or child.get("at_clause") or parent.get("sample") or parent["type"] != "SUBQUERY":
            raise _refused("a linked table")
        if node["join_type"] != ("LEFT" if hop.orphans == "unit" else "INNER") or node.get("using_columns"):
            raise _refused("the join of a linked table")
        # the parent must be there with all of its rows: one that is left out would make orphans of its children
        query = parent["subquery"]["node"]
        if query["type"] != "SELECT_NODE" or query.get("where_clause") or query.get("group_expressions") or query.get("modifiers"):
            raise _refused("the parent of a linked table")
        # the last parent is the root itself, any other one is a leaf, with its own parent beside it
        inside, rows = query["from_table"], query["from_table"]
        if not last:
            rows = inside["left"] if inside["type"] == "JOIN" else inside
        named = rows["type"] == "BASE_TABLE" and _table_name(rows) == hop.parent.text
        if not named or not self._query(query)[0]:
            raise _refused("the parent of a linked table")
        listed = query["select_list"]
        keys = [n for n in listed if n.get("alias") != UNIT]
        above, key = str(parent["alias"]), str(keys[0].get("alias") or "") if len(keys) == 1 else ""
        parent_key = _bare(keys[0]) if key else ()
        # nothing but the equality of the link: any more, and rows would be without their unit
        on = node.get("condition") or {}
        sides = (on["left"], on["right"]) if on.get("type") == "COMPARE_EQUAL" else ()
        compared = {_bare(side) for side in sides}
        if parent_key != (str(rows["alias"]), hop.parent_column) or compared != {(str(child["alias"]), hop.column), (above, key)}:
            raise _refused("the columns of a link")
        return Side(True, frozenset(), None, above, UNIT)

    def _loose(self, alias: str, query: Node) -> Side:
        """Return a linked table as it is stored, which has to be joined to its parent."""
        table = _table_name(query["from_table"])
        self.read.add(table)
        return Side(False, frozenset(), stored=_stored(alias, query, self.hops, self.table), loose=table)

    def _below(self, alias: str, query: Node) -> Side | None:
        """Return rows of a linked table as it is stored, chosen and computed one by one; None if they are not those of one."""
        rows = query["from_table"]
        inside = rows["subquery"]["node"]
        if not _is_bare(inside) or _table_name(inside["from_table"]) not in self.hops:
            return None
        below = self._loose(str(rows["alias"]), inside)
        every = list(nodes([*query["select_list"], query.get("where_clause") or {}]))
        kinds = shipped_kinds()
        combines = any(n.get("class") == "FUNCTION" and kinds.get(str(n["function_name"]).lower()) == "aggregate" for n in every)
        if combines or any(n.get("class") in ("WINDOW", "SUBQUERY") or "from_table" in n or _is_unnest(n) for n in every):
            raise _refused("a linked table without its parent")
        stored = {(r, c): (table, name) for r, c, table, name in below.stored}
        entries = ((str(listed.get("alias") or ""), _reference(listed)) for listed in query["select_list"])
        copied = ((name or place[1], stored[place]) for name, place in entries if len(place) == 2 and place in stored)
        return Side(False, stored=frozenset((alias, name, *of) for name, of in copied), loose=below.loose, chosen=True)

    def _grouped(self, alias: str, query: Node) -> Side | None:
        """Return the extremes of rows of a linked table as it is stored, by columns; None if the rows are others."""
        rows = query["from_table"]
        inside, name = rows["subquery"]["node"], str(rows["alias"])
        if _is_bare(inside) and _table_name(inside["from_table"]) in self.hops:
            below: Side | None = self._loose(name, inside)
        else:
            below = self._below(name, inside) if _is_plain(inside) else None
        if below is None:
            return None
        # extremes do not depend on the order of rows, and their groups are those of columns that are passed on
        groups, listed = query["group_expressions"], query["select_list"]
        keys = {_reference(group) for group in groups}
        ends = [one for one in listed if one.get("class") == "FUNCTION"]
        arguments = [
            child for end in ends for child in end.get("children") or [a["expression"] for a in end.get("arguments") or []]
        ]
        if (
            () in keys
            or list(map(list, query.get("group_sets") or [])) != [list(range(len(groups)))]
            or any(str(end["function_name"]).lower() not in ("min", "max") or end.get("filter") for end in ends)
            or len(arguments) != len(ends)
            or not all(map(_column, arguments))
            or not all(_reference(one) in keys for one in listed if one not in ends)
        ):
            raise _refused("a linked table without its parent")
        stored: dict[tuple[str, ...], tuple[str, str]] = {(r, c): (table, column) for r, c, table, column in below.stored}
        places = ((str(one.get("alias") or _reference(one)[1]), _reference(one)) for one in listed if one not in ends)
        kept = frozenset((alias, shown, *stored[place]) for shown, place in places if place in stored)
        return Side(False, stored=kept, loose=below.loose, chosen=True, grouped=True)

    def _member(self, left: Side, right: Side, node: Node) -> Side:
        """Return rows that have, or do not have, a partner in a linked table that is read without its parent.

        Or that stand beside the one row that is made of all partners with equal keys, where these are grouped.

        The partner holds the key that a column on the left holds too, as the key itself or as a link to it: the row of that key,
        and so whatever links to it, is of the unit of the row on the left; where there is no such row, both are orphans, of one
        unit.
        """
        hop, _ = self.hops[right.loose]
        children = {(r, c) for r, c, table, name in right.stored if (table, name) == (hop.child.text, hop.column)}
        # the row outside holds the same key: as the parent itself, or as another child of it
        others = {text: other for text, (other, _) in self.hops.items()}
        parents = {
            (r, c)
            for r, c, table, name in left.stored
            if (table, name) == (hop.parent.text, hop.parent_column)
            or (table in others and (others[table].column, others[table].parent, others[table].parent_column)
                == (name, hop.parent, hop.parent_column))
        }  # fmt: skip
        if left.unit and not left.leaf and not left.pair and not left.loose:
            for condition in _conjuncts(node.get("condition") or {}):
                if condition.get("type") == "COMPARE_EQUAL":
                    sides = [_reference(condition[side]) for side in ("left", "right")]
                    if (sides[0] in children and sides[1] in parents) or (sides[1] in children and sides[0] in parents):
                        return Side(True, left.carriers, stored=left.stored)
        raise _refused("a linked table without its parent")

    def _held(self, left: Side, right: Side, node: Node, kind: str) -> Side:
        """Return a linked table beside the row of its parent on the left, whose unit is that of the row on the left."""
        hop, _ = self.hops[right.loose]
        if not left.unit or left.leaf or left.pair or right.chosen or kind not in ("INNER", "LEFT"):
            raise _refused("a linked table without its parent")
        children = {(r, c) for r, c, table, name in right.stored if (table, name) == (hop.child.text, hop.column)}
        parents = {(r, c) for r, c, table, name in left.stored if (table, name) == (hop.parent.text, hop.parent_column)}
        for condition in _conjuncts(node.get("condition") or {}):
            if condition.get("type") == "COMPARE_EQUAL":
                sides = [_reference(condition[side]) for side in ("left", "right")]
                if (sides[0] in children and sides[1] in parents) or (sides[1] in children and sides[0] in parents):
                    return Side(True, left.carriers, stored=left.stored | (right.stored if kind == "INNER" else frozenset()))
        raise _refused("a linked table without its parent")

    def _join(self, node: Node) -> Side:
        beside = node["left"]
        if beside["type"] == "BASE_TABLE" and _table_name(beside) in self.hops:
            return self._linked(node, *self.hops[_table_name(beside)])
        left, right, kind = self._from(node["left"]), self._from(node["right"]), str(node["join_type"])
        # rows without a unit may only stand on the right, where those on the left say whose they are
        if left.loose:
            raise _refused("a linked table without its parent")
        if right.loose and kind in (("INNER", "LEFT") if right.grouped else ("SEMI", "ANTI")):
            return self._member(left, right, node)
        if right.loose:
            return self._held(left, right, node, kind)
        if left.leaf or right.leaf or left.pair or right.pair:
            raise _refused("a join")
        # rows of two people must not meet: the units of both sides are among the conditions
        if left.unit and right.unit:
            pairs = [_pair(c) for c in _conjuncts(node.get("condition") or {})]
            if not any(
                (a in left.carriers and b in right.carriers) or (b in left.carriers and a in right.carriers) for a, b in pairs
            ):
                raise _refused("a join of people's rows")
        # the side that is there in every row gives the unit
        if kind == "INNER":
            return Side(left.unit or right.unit, left.carriers | right.carriers, stored=left.stored | right.stored)
        if kind in ("LEFT", "SEMI", "ANTI") and (left.unit or not right.unit):
            return Side(left.unit, left.carriers, stored=left.stored)
        if kind == "RIGHT" and (right.unit or not left.unit):
            return Side(right.unit, right.carriers, stored=right.stored)
        if kind in ("OUTER", "FULL") and left.unit == right.unit:
            return Side(left.unit, frozenset(), (left.carriers, right.carriers))
        raise _refused(f"{kind} JOIN")


def _refused(what: str) -> UnsupportedQuery:
    return UnsupportedQuery("the rewritten source", f"the privacy unit does not come through: {what}; write it more plainly")


def _table_name(node: Node) -> str:
    return quoted(node["catalog_name"], node["schema_name"], node["table_name"])


def _is_bare(query: Node) -> bool:
    """Whether a query is nothing but columns of a table, as they are, decoded from their bytes, or the first characters of them."""
    simple = query.get("type") == "SELECT_NODE" and not any(
        query.get(key) for key in ("where_clause", "group_expressions", "modifiers", "having", "qualify", "sample")
    )
    if not simple or (query.get("cte_map") or {}).get("map") or query["from_table"]["type"] != "BASE_TABLE":
        return False
    if query["from_table"].get("sample") or query["from_table"].get("at_clause"):
        return False
    every = list(nodes(query["select_list"]))
    called = {str(n["function_name"]).lower() for n in every if n.get("class") == "FUNCTION"}
    classes = {n["class"] for n in every if n.get("class")}
    return classes <= {"COLUMN_REF", "FUNCTION", "CONSTANT"} and called <= {"encode", "decode", "left"}


def _is_plain(query: Node, *, grouped: bool = False) -> bool:
    """Whether a query is a SELECT from one subquery, with or without WHERE; ``grouped``: with GROUP BY, and without WHERE."""
    without = "where_clause" if grouped else "group_expressions"
    return (
        query.get("type") == "SELECT_NODE"
        and not any(query.get(key) for key in (without, "modifiers", "having", "qualify", "sample"))
        and (bool(query.get("group_expressions")) or not grouped)
        and not (query.get("cte_map") or {}).get("map")
        and query["from_table"]["type"] == "SUBQUERY"
        and not query["from_table"].get("sample")
    )


def _stored(alias: str, query: Node, hops: Mapping[str, tuple[Hop, bool]], root: TableId) -> frozenset[Stored]:
    """Return the columns of a SELECT that copy those of the protected table that it reads, alone or beside its parent."""
    if query.get("type") != "SELECT_NODE" or query.get("group_expressions"):
        return frozenset()
    rows = query["from_table"]
    rows = rows["left"] if rows["type"] == "JOIN" else rows
    if rows["type"] != "BASE_TABLE" or (_table_name(rows) not in hops and _table_name(rows) != root.text):
        return frozenset()
    references = ((listed, _reference(listed)) for listed in query["select_list"])
    return frozenset(
        (alias, str(listed.get("alias") or reference[1]), _table_name(rows), reference[1])
        for listed, reference in references
        if reference[:1] == (str(rows["alias"]),)
    )


def _reference(node: Node) -> tuple[str, ...]:
    """Return the relation and the name of a column; () for anything else."""
    return tuple(str(part) for part in node["column_names"]) if _column(node) else ()


def _bare(node: Node) -> tuple[str, ...]:
    """Return the relation and the column that an expression is the bytes of; () if it is anything else."""
    if node.get("class") == "FUNCTION" and str(node["function_name"]).lower() == "encode":
        inner = node.get("children") or [a["expression"] for a in node.get("arguments") or []]
        node = inner[0] if len(inner) == 1 else {}
    return tuple(str(part) for part in node["column_names"]) if _column(node) else ()


def _column(node: Node) -> bool:
    return node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 2


def _is_unnest(node: Node) -> bool:
    return node.get("class") == "FUNCTION" and str(node["function_name"]).lower() in ("unnest", "unlist")


def _is_unit(node: Node) -> bool:
    return _column(node) and fold(str(node["column_names"][1])) == UNIT and not node.get("alias")


def _unit_of(node: Node) -> str:
    """Return the relation whose ``__dp_unit`` an expression is, '' if it is none."""
    return str(node["column_names"][0]) if _column(node) and node["column_names"][1] == UNIT else ""


def _conjuncts(node: Node) -> list[Node]:
    if node.get("type") == "CONJUNCTION_AND":
        return [inner for child in node["children"] for inner in _conjuncts(child)]
    return [node]


def _pair(node: Node) -> tuple[str, str]:
    same = node.get("type") in ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")
    return (_unit_of(node["left"]), _unit_of(node["right"])) if same else ("", "")


def _text(node: Node) -> str:
    """Return the text of a constant, in the parse tree of any version."""
    return str(node["literal"].get("text", "")) if "literal" in node else str(node["value"].get("value", ""))
