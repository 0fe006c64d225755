"""The walk over the syntax tree of a statement: every node and field must be known, every name resolved and open.

The tree is rewritten on the way. Tables get their full names, common table expressions names that nothing else has: if DuckDB
resolved a name otherwise than this walk, it would find nothing. Calls of ``dp_*`` become names of their answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.serve.gate import catalogue, shapes, sizes
from dpsql.serve.gate.expansion import size_of
from dpsql.serve.gate.functions import FUNCTIONS, OPERATORS, TABLE_FUNCTIONS, TYPES
from dpsql.serve.gate.nesting import is_too_deep
from dpsql.serve.gate.reasons import refuse
from dpsql.serve.gate.view import BOOKS, Entry
from dpsql.text.names import fold

if TYPE_CHECKING:
    from dpsql.serve.gate.view import View

Node = dict[str, Any]
Scope = dict[str, str]

ANSWER = "__dpsql_answer_"
"""What the answer of a call is called, with its number: a common table expression around the statement."""
CTE = "__dpsql_with_"
LONGEST = 100_000
_NAMES = ("catalog_name", "schema_name", "table_name")


def parsed(cursor: duckdb.DuckDBPyConnection, text: str) -> Node:
    """Return the syntax tree of the one SELECT of a text; nothing is bound or run.

    Raises
    ------
    Refusal
    """
    if len(text) > LONGEST or "\0" in text or text != text.encode("utf-8", "ignore").decode("utf-8", "ignore"):
        refuse("long")
    if is_too_deep(text):
        refuse("deep")
    try:
        row = cursor.execute("SELECT system.main.json_serialize_sql(?::VARCHAR)", [text]).fetchone()
        tree: Node = json.loads(row[0]) if row else {"error": True}
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, ValueError):
        refuse("syntax")
    except RecursionError:
        refuse("deep")
    # the parser's own words may quote the text, so the reasons are ours
    if tree.get("error"):
        if "no statements" in str(tree.get("error_message", "")):
            refuse("empty")
        refuse("statement" if tree.get("error_type") == "not implemented" else "syntax")
    if not tree["statements"]:
        refuse("empty")
    if len(tree["statements"]) > 1:
        refuse("several")
    # parts that another version of DuckDB adds are refused until somebody has looked at them
    if set(tree) != {"error", "statements"} or set(tree["statements"][0]) - {"node", "named_param_map"}:
        refuse("syntax_part", "this kind of statement")
    try:
        if not size_of(tree["statements"][0]["node"]).fits():
            refuse("expansion")
    except RecursionError:
        refuse("deep")
    return tree


def written(cursor: duckdb.DuckDBPyConnection, tree: Node) -> str:
    """Return the SQL of a syntax tree; what it reads back must name the same relations and functions."""
    try:
        row = cursor.execute("SELECT system.main.json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
        text = str(row[0]) if row else ""
        root = tree["statements"][0]["node"].get("from_table") or {}
        if root.get("type") == "SHOW_REF":
            text = f"SELECT * FROM ({text})"  # noqa: S608 -- written by DuckDB from the tree
        again = cursor.execute("SELECT system.main.json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        refuse("read")
    if again is None or _used(json.loads(again[0])) != _used(tree):
        refuse("read")
    return text


def _used(tree: Any) -> set[tuple[str, ...]]:
    """Return the relations and functions that a tree names."""
    names: set[tuple[str, ...]] = set()
    rest = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, list):
            rest.extend(node)
        elif isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                names.add(("table", *(str(node.get(part, "")) for part in _NAMES)))
            elif "function_name" in node and node.get("class") == "FUNCTION":
                names.add(("function", str(node["function_name"]).lower()))
            rest.extend(node.values())
    return names - {("function", name) for name in ("list_value", "row", "struct_pack", "array_value")}


class Walk:
    """One walk over one tree.

    Parameters
    ----------
    view : View
    schema : str
        Where names are looked up.
    call : callable, optional
        Makes a call of a ``dp_*`` table function: takes the function's node, returns its number.
    inside : bool
        Whether the text is the source of a call or of a view: then it names tables alone.
    stack : tuple of str
        The views that the text stands in.
    """

    def __init__(
        self,
        view: View,
        *,
        schema: str,
        call: Callable[[Node], int] | None = None,
        inside: bool = False,
        stack: tuple[str, ...] = (),
    ) -> None:
        self.view, self.schema, self.call, self.inside, self.stack = view, schema, call, inside, stack
        self.read: list[Entry] = []
        self.hidden = False
        self.hidden_read = False
        self.catalogue = False
        self.constructs: list[str] = []
        self._ctes = 0

    @property
    def granted(self) -> frozenset[str]:
        """The protected tables that were named outside of calls."""
        return frozenset(key for entry in self.read for key in entry.reads)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the relations that were named."""
        return frozenset(fold(name) for entry in self.read for name, _ in self.view.columns(entry))

    def query(self, node: Node, scope: Scope) -> Node:
        """Check and rewrite a query node."""
        kind = node.get("type")
        if kind not in shapes.QUERIES:
            refuse("syntax_part", kind)
        if kind == "RECURSIVE_CTE_NODE":
            self.constructs.append("WITH RECURSIVE")
        if isinstance(node.get("children"), list) and node["children"] and isinstance(node.get("left"), dict):
            node["children"] = []  # DuckDB 1.4 writes both sides twice
        scope = self._with(node.get("cte_map") or {}, scope)
        self._fields(node, shapes.QUERIES[kind], scope, kind)
        return node

    def _with(self, ctes: Node, scope: Scope) -> Scope:
        if set(ctes) - {"map"}:
            refuse("syntax_part", "WITH")
        for entry in ctes.get("map") or []:
            if set(entry) != {"key", "value"}:
                refuse("syntax_part", "WITH")
            self._ctes += 1
            name = f"{CTE}{self._ctes}"
            value = entry["value"]
            inner = value.get("query_node") or (value.get("query") or {}).get("node") or {}
            # a common table expression sees those before it, and itself only where it is recursive
            seen = dict(scope)
            if inner.get("type") == "RECURSIVE_CTE_NODE":
                inner["cte_name"] = name
                seen[fold(entry["key"])] = name
            self._fields(value, shapes.PARTS["cte"], seen, "WITH")
            scope = scope | {fold(entry["key"]): name}
            entry["key"] = name
        return scope

    def _fields(self, node: Any, shape: dict[str, shapes.Rule], scope: Scope, where: object) -> None:
        """Check every field of a node against its shape, and what is below it."""
        if not isinstance(node, dict):
            refuse("syntax_part", where)
        for name in list(node):
            rule = shape.get(name)
            if rule is None:
                refuse("syntax_part", f"{where}: {name}")
            node[name] = self._field(node[name], rule, scope, f"{where}: {name}")

    def _field(self, value: Any, rule: shapes.Rule, scope: Scope, where: str) -> Any:
        if isinstance(rule, frozenset):
            return value if value in rule else refuse("syntax_part", value)
        if rule == "skip":
            return value if _is_plain(value) else refuse("syntax_part", where)
        if rule == "none":
            return value if not value else refuse("syntax_part", where)
        if rule == "ctes":
            return value
        if value is None:
            return None if rule.endswith("?") or rule.startswith("shape:") else refuse("syntax_part", where)
        if rule.startswith("shape:"):
            self._part(value, rule[6:], scope)
            return value
        if rule.startswith("shapes:"):
            for part in value:
                self._part(part, rule[7:], scope)
            return value
        # what is left holds parts with rules of their own
        single: dict[str, Callable[[Any], Any]] = {
            "expr": lambda v: self.expression(v, scope),
            "query": lambda v: self.query(v, scope),
            "from": lambda v: self.relation(v, scope),
            "type": lambda v: self._type(v, scope),
            "value": lambda v: self._value(v, scope),
            "select": lambda v: self._selected(v, scope),
            "modifier": lambda v: self._modifier(v, scope),
        }
        plural = {"exprs": "expr", "queries": "query", "types": "type", "values": "value", "modifiers": "modifier"}
        rule = rule.rstrip("?")
        if rule == "grid":
            return [[single["expr"](v) for v in row] for row in value]
        return [single[plural[rule]](v) for v in value] if rule in plural else single[rule](value)

    def _part(self, node: Any, name: str, scope: Scope) -> None:
        if name == "sample" and node:
            self.constructs.append("SAMPLE")
        self._fields(node, shapes.PARTS[name], scope, name)

    def _selected(self, node: Node, scope: Scope) -> Node:
        if "node" not in node:
            return self.query(node, scope)
        self._fields(node, shapes.PARTS["selected"], scope, "subquery")
        return node

    def _modifier(self, node: Node, scope: Scope) -> Node:
        shape = shapes.MODIFIERS.get(str(node.get("type")))
        self._fields(node, shape if shape is not None else refuse("syntax_part", node.get("type")), scope, node.get("type"))
        return node

    def _value(self, node: Node, scope: Scope) -> Node:
        self._part(node, "value", scope)
        return node

    def _type(self, node: Node, scope: Scope) -> Node:
        self._part(node, "type", scope)
        about = node.get("type_info") or {}
        name = about.get("name") or about.get("user_type_name") if str(node["id"]) in ("UNBOUND", "USER") else node["id"]
        _known_type(name, node["id"])
        return node

    def expression(self, node: Node, scope: Scope) -> Node:
        """Check and rewrite an expression."""
        kind = node.get("class") if isinstance(node, dict) else None
        if kind == "PARAMETER":
            refuse("parameter")
        if kind not in shapes.EXPRESSIONS:
            refuse("syntax_part", kind)
        if kind in ("FUNCTION", "WINDOW"):
            self._function(node)
        if kind == "TYPE":
            if node.get("catalog") or node.get("schema"):
                refuse("type", node["type_name"])
            _known_type(node["type_name"], node["type_name"])
        self._fields(node, shapes.EXPRESSIONS[str(kind)], scope, kind)
        return node

    def _function(self, node: Node) -> None:
        name = str(node["function_name"]).lower()
        if name not in OPERATORS and name not in FUNCTIONS or node.get("catalog") not in (None, "", "system"):
            refuse("function", node["function_name"])
        self.view.names.add(name)
        # calls in each other multiply what they make, so all of a statement's sizes are looked at together
        self.view.sizes.append(sizes.check(name, node))
        sizes.check_all(self.view.sizes)
        if path := (node.get("qualified_name") or {}).get("path"):
            _agrees(path, [node.get("catalog"), node.get("schema"), node["function_name"]])

    def relation(self, node: Node, scope: Scope) -> Node:
        """Check an item of FROM; return what stands in its place."""
        kind = str(node.get("type")) if isinstance(node, dict) else ""
        if kind not in shapes.FROM:
            refuse("syntax_part", kind)
        if kind == "TABLE_FUNCTION":
            return self._table_function(node, scope)
        if kind == "SHOW_REF":
            return self._show(node, scope)
        self._fields(node, shapes.FROM[kind], scope, kind)
        return self._table(node, scope) if kind == "BASE_TABLE" else node

    def _table(self, node: Node, scope: Scope) -> Node:
        parts = [str(node[part]) for part in _NAMES if node.get(part)]
        if path := (node.get("qualified_name") or {}).get("path"):
            _agrees(path, parts)
        # a common table expression hides a table of its name
        if len(parts) == 1 and (renamed := scope.get(fold(parts[0]))) is not None:
            _name(node, "", "", renamed)
            node["alias"] = node["alias"] or parts[0]
            return node
        if (known := catalogue.of_name(parts)) is not None:
            return self._catalogue(known, node)
        entry = self.view.find(parts, self.schema, self.stack) if all(parts) else None
        if entry is None or entry.status is None:
            # a published view may read tables that are not open, and none that has a budget
            if entry is None or not self.hidden or self._is_closed(entry):
                refuse("table", ".".join(parts))
            self.hidden_read = True
        self.read.append(entry)
        _name(node, self.view.database, entry.schema, entry.name)
        return node

    def _is_closed(self, entry: Entry) -> bool:
        """Whether a published view may not read a relation either: one with protected rows, a view that is not open, the books."""
        return entry.is_view or fold(entry.schema) == BOOKS or self.view.protected(entry.key)

    def _catalogue(self, known: str, node: Node) -> Node:
        if self.inside:
            refuse("mixed")
        self.catalogue = True
        tree = parsed(self.view.cursor, f"SELECT * FROM {catalogue.relation(self.view, known)} AS x")  # noqa: S608 -- literals
        relation: Node = tree["statements"][0]["node"]["from_table"]
        relation["alias"] = node.get("alias") or known.rpartition(".")[2].rpartition(":")[2]
        relation["column_name_alias"] = node.get("column_name_alias") or []
        return relation

    def _table_function(self, node: Node, scope: Scope) -> Node:
        function = node["function"]
        name = str(function["function_name"]).lower()
        place = [str(function.get(part) or "") for part in ("catalog", "schema")]
        if path := (function.get("qualified_name") or {}).get("path"):
            _agrees(path, [*place, function["function_name"]])
        # three kinds pass: DuckDB's that read nothing, the catalogue's, which are written anew, and calls of dpsql
        if name in TABLE_FUNCTIONS and place in (["", ""], ["", "main"], ["system", "main"]):
            self.view.names.add(name)
            shape = shapes.EXPRESSIONS["FUNCTION"]
            self._fields(function, shape, scope, name)
            self._fields({k: v for k, v in node.items() if k != "function"}, shapes.FROM["TABLE_FUNCTION"], scope, name)
            return node
        self._fields({k: v for k, v in node.items() if k != "function"}, shapes.FROM["TABLE_FUNCTION"], scope, name)
        if not function.get("children") and not function.get("arguments") and (known := catalogue.of_function(name)) is not None:
            return self._catalogue(known, node)
        ours = fold(place[0]) in ("", fold(self.view.database), fold(self.view.shown)) and fold(place[1]) in ("", "main")
        if not name.startswith("dp_") or not ours or node.get("with_ordinality", "WITHOUT_ORDINALITY") != "WITHOUT_ORDINALITY":
            refuse("table_function", function["function_name"])
        if self.call is None or self.inside:
            refuse("mixed")
        # the call is taken out of the statement: a relation with its answer stands there instead
        number = self.call(function)
        tree = parsed(self.view.cursor, f'FROM "{ANSWER}{number}"')
        relation: Node = tree["statements"][0]["node"]["from_table"]
        relation["alias"] = node.get("alias") or name
        relation["column_name_alias"] = node.get("column_name_alias") or []
        relation["sample"] = node.get("sample")
        return relation

    def _show(self, node: Node, scope: Scope) -> Node:
        if self.inside:
            refuse("mixed")
        kind, inner = str(node["show_type"]), node.get("query")
        rest = {k: v for k, v in node.items() if k != "query"}
        self._fields(rest, shapes.FROM["SHOW_REF"], scope, "SHOW")
        if inner is None:
            return self._catalogue(catalogue.of_show(node, kind), node)
        if kind not in ("DESCRIBE", "SUMMARY"):
            refuse("show", kind)
        walk = Walk(self.view, schema=self.schema, call=self.call)
        # names of common table expressions inside must differ from those outside
        walk._ctes = self._ctes + 1000
        described = inner["from_table"] if kind == "DESCRIBE" and _is_plain_table(inner) else None
        names = None if described is None else [str(described[part]) for part in _NAMES if described.get(part)]
        walk.query(inner, scope)
        if names and described is not None and walk.read:
            return self._catalogue(f"describe:{walk.read[0].key}", node)
        if walk.granted:
            refuse("summarize" if kind == "SUMMARY" else "describe")
        self.catalogue = True
        self.read.extend(walk.read)
        return node


def _is_plain_table(node: Node) -> bool:
    table = node.get("from_table") or {}
    used = {k for k in ("modifiers", "where_clause", "group_expressions", "having", "sample", "qualify") if node.get(k)}
    listed = node.get("select_list") or []
    star = len(listed) == 1 and listed[0].get("class") == "STAR" and not any(
        listed[0].get(k) for k in ("relation_name", "exclude_list", "replace_list", "columns", "expr", "rename_list")
    )
    return star and table.get("type") == "BASE_TABLE" and not used and not (node.get("cte_map") or {}).get("map")


def _is_plain(value: Any) -> bool:
    """Whether a field holds names, numbers and flags alone."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):  # a name of DuckDB 2.0, a HUGEINT of 1.x
        return set(value) in ({"path"}, {"upper", "lower"}) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, str | int | float | bool)


def _known_type(name: object, where: object) -> None:
    text = str(name).lower().strip('"')
    if text not in TYPES:
        refuse("type", name or where)


def _agrees(path: list[str], parts: list[Any]) -> None:
    """Refuse a node of DuckDB 2.0 whose two spellings of one name differ."""
    if [str(p) for p in path if p] != [str(p) for p in parts if p]:
        refuse("syntax_part", ".".join(map(str, path)))


def _name(node: Node, database: str, schema: str, name: str) -> None:
    """Give a table of the tree a name."""
    node.update(zip(_NAMES, (database, schema, name), strict=True))
    if "qualified_name" in node:
        node["qualified_name"] = {"path": [part for part in (database, schema, name) if part]}
