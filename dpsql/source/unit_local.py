"""Second opinion on unit-local SQL: DuckDB's own parse tree of what was generated, walked once more by rules of its own.

Nothing here knows how the SQL was made. Every query of the tree is found to have people's rows or public ones, and people's rows
have the column ``__dp_unit`` from the bottom up: it is made of the privacy unit column alone where the protected table is read, it
is copied from a relation that every row comes from, it is among the keys of GROUP BY and the partitions of every window, it stands
in the same place on both sides of a set operation, and it is equal on both sides of a join of people's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsql.errors import UnsupportedQuery
from dpsql.source.catalog import shipped_kinds
from dpsql.source.model import UNIT, TableId, fold, quoted
from dpsql.source.parse import nodes

Node = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """What stands after FROM.

    ``carriers`` are the relations in it whose ``__dp_unit`` is that of every row; ``pair`` are two of which one is, after a FULL
    JOIN.
    ``leaf`` is the alias of the protected table, read directly.
    """

    unit: bool
    carriers: frozenset[str] = frozenset()
    pair: tuple[frozenset[str], frozenset[str]] | None = None
    leaf: str = ""


class UnitLocal:
    """The walk over one parse tree. ``read`` collects the tables that it reads."""

    def __init__(self, table: TableId, unit: str) -> None:
        self.table, self.unit = table, unit
        self.read: set[str] = set()

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
        if (node.get("cte_map") or {}).get("map") or node.get("modifiers"):
            raise _refused("WITH, DISTINCT, an order or LIMIT")
        if node["type"] == "SET_OPERATION_NODE":
            sides = [self._query(side) for side in node.get("children") or (node["left"], node["right"])]
            if len(set(sides)) != 1 or node["setop_type"] not in ("UNION", "EXCEPT", "INTERSECT"):
                raise _refused("the sides of a set operation")
            return sides[0]
        if node["type"] != "SELECT_NODE" or any(node.get(key) for key in ("having", "qualify", "sample")):
            raise _refused(str(node["type"]))
        side = self._from(node["from_table"])
        self._expressions(node, side)
        if not side.unit:
            return False, -1
        places = [i for i, listed in enumerate(node["select_list"]) if listed.get("alias") == UNIT or _is_unit(listed)]
        if len(places) != 1 or not self._carries(node["select_list"][places[0]], side):
            raise _refused("a SELECT that does not carry it")
        return True, places[0]

    def _carries(self, node: Node, side: Side) -> bool:
        """Whether an expression is the unit of the row that it stands in."""
        if side.leaf:
            named = {tuple(n["column_names"]) for n in nodes(node) if n.get("class") == "COLUMN_REF"}
            called = {str(n["function_name"]).lower() for n in nodes(node) if n.get("class") == "FUNCTION"}
            return named == {(side.leaf, self.unit)} and called <= {"encode", "isnan", "+"}
        if side.pair is not None and node.get("type") == "OPERATOR_COALESCE":
            found = [_unit_of(child) for child in node.get("children") or node.get("arguments") or []]
            return len(found) == 2 and found[0] in side.pair[0] and found[1] in side.pair[1]
        return _unit_of(node) in side.carriers

    def _expressions(self, node: Node, side: Side) -> None:
        """Check what a SELECT computes: aggregates inside of groups of one unit, windows inside of partitions of one unit."""
        groups: list[Node] = node.get("group_expressions") or []
        computed = [*node["select_list"], *groups, node.get("where_clause") or {}]
        every = list(nodes(computed))
        if any(n.get("class") == "SUBQUERY" or "from_table" in n for n in every):
            raise _refused("a subquery in an expression")
        if groups and (
            list(map(list, node.get("group_sets") or [])) != [list(range(len(groups)))] or any(not _column(g) for g in groups)
        ):
            raise _refused("GROUP BY")
        kinds = shipped_kinds()
        combines = any(n.get("class") == "FUNCTION" and kinds.get(str(n["function_name"]).lower()) == "aggregate" for n in every)
        if not side.unit:
            return
        if (combines or groups) and (side.leaf or not any(self._carries(group, side) for group in groups)):
            raise _refused("an aggregate")
        for window in (n for n in every if n.get("class") == "WINDOW"):
            if side.leaf or groups or not any(self._carries(part, side) for part in window.get("partitions") or []):
                raise _refused("a window")

    def _from(self, node: Node) -> Side:
        """Return what a relation has of units."""
        kind = node["type"]
        if node.get("sample") or node.get("at_clause"):
            raise _refused("SAMPLE")
        if kind == "EMPTY":
            return Side(False)
        if kind == "SUBQUERY":
            alias = str(node["alias"])
            has, _ = self._query(node["subquery"]["node"])
            return Side(has, frozenset([alias]) if has else frozenset())
        if kind in ("BASE_TABLE", "TABLE_FUNCTION"):
            return self._leaf(node)
        if kind != "JOIN" or node.get("ref_type", "REGULAR") not in ("REGULAR", "CROSS"):
            raise _refused(str(node.get("ref_type", kind)))
        return self._join(node)

    def _leaf(self, node: Node) -> Side:
        if node["type"] == "BASE_TABLE":
            name = quoted(node["catalog_name"], node["schema_name"], node["table_name"])
            own = not self.table.is_file and name == self.table.text
        else:
            if str(node["function"]["function_name"]).lower() != "read_parquet":
                raise _refused("a table function")
            texts = [_text(n) for n in nodes(node["function"]) if n.get("class") == "CONSTANT"]
            own = self.table.is_file and self.table.name in texts
            name = "read_parquet()"
        self.read.add(name)
        return Side(own, frozenset(), None, str(node["alias"])) if own else Side(False)

    def _join(self, node: Node) -> Side:
        left, right, kind = self._from(node["left"]), self._from(node["right"]), str(node["join_type"])
        if left.leaf or right.leaf or left.pair or right.pair:
            raise _refused("a join")
        if left.unit and right.unit:
            pairs = [_pair(c) for c in _conjuncts(node.get("condition") or {})]
            if not any(
                (a in left.carriers and b in right.carriers) or (b in left.carriers and a in right.carriers) for a, b in pairs
            ):
                raise _refused("a join of people's rows")
        if kind == "INNER":
            return Side(left.unit or right.unit, left.carriers | right.carriers)
        if kind in ("LEFT", "SEMI", "ANTI") and (left.unit or not right.unit):
            return Side(left.unit, left.carriers)
        if kind == "RIGHT" and (right.unit or not left.unit):
            return Side(right.unit, right.carriers)
        if kind in ("OUTER", "FULL") and left.unit == right.unit:
            return Side(left.unit, frozenset(), (left.carriers, right.carriers))
        raise _refused(f"{kind} JOIN")


def _refused(what: str) -> UnsupportedQuery:
    return UnsupportedQuery("the rewritten source", f"the privacy unit does not come through: {what}; write it more plainly")


def _column(node: Node) -> bool:
    return node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 2


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
    return (_unit_of(node["left"]), _unit_of(node["right"])) if node.get("type") == "COMPARE_EQUAL" else ("", "")


def _text(node: Node) -> str:
    """Return the text of a constant, in the parse tree of any version."""
    return str(node["literal"].get("text", "")) if "literal" in node else str(node["value"].get("value", ""))
