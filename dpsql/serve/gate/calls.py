"""Calls of ``dp_*`` table functions that an analyst writes: which are open, with which arguments, and what these are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.calls.registry import WHERE, declaration
from dpsql.release import identity
from dpsql.serve.gate import clock
from dpsql.serve.gate.plainer import plainer
from dpsql.serve.gate.reasons import Refusal, refuse
from dpsql.serve.gate.walk import Walk, parsed, written
from dpsql.source.model import quoted
from dpsql.source.parse import nodes
from dpsql.text.names import fold

if TYPE_CHECKING:
    from dpsql.serve.gate.view import View

MOST_CALLS = 16
TIMES = 10
"""A call that buys may have an epsilon of so many times that of a question, where the books say no limit."""
MOST_ROWS = 1_000_000
"""Synthetic rows that one call draws."""
_CONSTANT = frozenset({"list_value", "struct_pack", "row", "map", "array_value", "-", "+"})
OPEN: dict[str, frozenset[str]] = {
    name: frozenset(arguments.split())
    for name, arguments in {
        "query": "sql epsilon groups max_groups max_rows_per_group max_rows bounds min_units confidence mechanism release "
        "adaptive options",
        "summarize": "source epsilon columns release",
        "marginals": "source columns k epsilon mechanism release shape",
        "contributions": "source epsilon mechanism release",
        "histogram": "source column column_name epsilon domain domain_size separator release",
        "synthesize": "source method epsilon columns rows seed options release",
        "plan": "source method epsilon columns k mechanism rows options operation",
        "domain": "source",
        "dummy": "source rows seed",
        "explain": "release",
        "sample": "release rows seed",
        "budget": "source",
        "releases": "source",
        "ledger": "source",
    }.items()
}
"""The calls that analysts may make, each with its arguments that they may give."""
BUYING = frozenset({"query", "summarize", "marginals", "contributions", "histogram", "synthesize"})
"""Those that can charge a budget: over one granted table, for no more than its grant allows."""


@dataclass(frozen=True)
class Call:
    """A call that is to be answered: its name without dp_, its arguments, and the granted tables that it is about."""

    name: str
    arguments: Mapping[str, Any]
    about: frozenset[str] = frozenset()


class Calls:
    """The calls of one statement, in order; a repeated one is the same."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.listed: list[Call] = []

    def __call__(self, node: dict[str, Any]) -> int:
        """Check a call; return its number.

        Raises
        ------
        Refusal
        """
        spelled = str(node["function_name"])
        name = spelled.lower().removeprefix("dp_")
        if name not in WHERE:
            refuse("table_function", spelled)
        if name not in OPEN:
            refuse("call", spelled)
        evaluated = self._arguments(name, spelled, node)
        # what is bought, and by whose grant, is known once the sources are resolved
        about: set[str] = set()
        resolved = {key: self._argument(key, value, spelled, about) for key, value in evaluated.items()}
        if name in BUYING or name == "plan":
            self._price(name, spelled, resolved, about)
        call = Call(name, resolved, frozenset(about))
        if call not in self.listed:
            self.listed.append(call)
        if len(self.listed) > MOST_CALLS:
            refuse("calls", MOST_CALLS)
        return self.listed.index(call)

    def _price(self, name: str, spelled: str, resolved: dict[str, Any], about: set[str]) -> None:
        """Fill in the grant's epsilon where none is given; refuse one that is far larger, unless the books have a limit."""
        if len(about) != 1:
            return  # dpsql says that there is nothing protected in it
        (table,) = about
        most = TIMES * self.view.grants[table]
        value = resolved.setdefault("epsilon", self.view.grants[table])
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse("constant", spelled)
        # a little more than the limit: a product of floating-point numbers can miss it by a last digit
        if name in BUYING and table not in self.view.limits and not value <= most * (1 + 1e-9):
            refuse("epsilon", spelled, f"{most:g}")

    def _arguments(self, name: str, spelled: str, node: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, evaluated: they are constants."""
        listed: list[dict[str, Any]] = node.get("children") or [
            {**a["expression"], "alias": a.get("name") or a["expression"].get("alias", "")} for a in node.get("arguments") or []
        ]
        if node.get("filter") or (node.get("order_bys") or {}).get("orders") or node.get("distinct"):
            refuse("constant", spelled)
        order = [p.name for p in declaration(name).parameters()]
        trees: dict[str, Any] = {}
        for place, tree in enumerate(listed):
            key = fold(str(tree.get("alias") or "")) or (order[place] if place < len(order) else "")
            if key not in OPEN[name]:
                refuse("argument", key or place + 1, spelled)
            if key in trees:
                refuse("twice", key, spelled)
            # looked at before it is evaluated: what is run below must read nothing
            if not _constant(tree):
                refuse("constant", spelled)
            trees[key] = Walk(self.view, schema="main", inside=True).expression({**tree, "alias": key}, {})
        return self._evaluated(trees, spelled) if trees else {}

    def _evaluated(self, trees: dict[str, Any], spelled: str) -> dict[str, Any]:
        cursor = self.view.cursor
        select = parsed(cursor, "SELECT 1")
        select["statements"][0]["node"]["select_list"] = list(trees.values())
        query = f"SELECT system.main.to_json(q)::VARCHAR FROM ({written(cursor, select)}) AS q"  # noqa: S608 -- constants alone
        try:
            row = cursor.execute(query).fetchone()
            values = json.loads(row[0]) if row else {}
        except duckdb.InterruptException:
            raise
        except (duckdb.Error, ValueError, RecursionError):
            refuse("constant", spelled)
        return {key: values[key] for key in trees if values.get(key) is not None}

    def _argument(self, key: str, value: Any, spelled: str, about: set[str]) -> Any:
        """Return an argument as it is passed on: a source is resolved, a release is one of hers."""
        if key == "domain" and not isinstance(value, list) and not str(value).startswith("pattern:"):
            refuse("domain")
        if key == "rows" and spelled.lower() != "dp_plan" and not (isinstance(value, int) and value <= MOST_ROWS):
            refuse("many", key, spelled, MOST_ROWS)
        if key == "release" and fold(spelled) in ("dp_explain", "dp_sample"):
            return self._release(value)
        if key not in ("source", "sql"):
            return value
        if not isinstance(value, str):
            refuse("source", key, spelled)
        text, reads = source(self.view, value, key, spelled)
        about |= reads
        return text

    def _release(self, value: object) -> str:
        """Return the identifier of one of her releases; those of others are as if they were not."""
        # an identifier, or the name that was given, where only one of hers has it
        hers = self.view.releases()
        slug = f"-{identity.slug(str(value))}"
        named = [str(value)] if value in hers else [one for one in hers if one.rsplit("-", 1)[0].endswith(slug)]
        return named[0] if len(named) == 1 else refuse("release", value)


def source(view: View, text: str, key: str, spelled: str) -> tuple[str, frozenset[str]]:
    """Return the source of a call, a name or a SELECT, with every table in it resolved and open; and the granted tables in it.

    Raises
    ------
    Refusal
    """
    walk = Walk(view, schema="main", inside=True)
    try:
        tree = parsed(view.cursor, text)
    except Refusal as refusal:
        if refusal.reason not in ("syntax", "statement"):
            raise
        # no SELECT, so it may be a name
        tree = _as_name(view, text, key, spelled)
        walk.query(tree["statements"][0]["node"], {})
        return quoted(view.database, walk.read[0].schema, walk.read[0].name), walk.granted
    walk.query(tree["statements"][0]["node"], {})
    check_protected(walk)
    by_place(tree)
    if walk.granted:
        tree = clock.stopped(tree, walk.columns, lambda text: parsed(view.cursor, text))
    return plainer(view.cursor, written(view.cursor, tree)), walk.granted


def _as_name(view: View, text: str, key: str, spelled: str) -> dict[str, Any]:
    """Return the tree of ``FROM text`` if the text is a name, and nothing else."""
    try:
        tree = parsed(view.cursor, f"FROM {text}")
    except Refusal:
        refuse("source", key, spelled)
    node = tree["statements"][0]["node"]
    table = node["from_table"]
    more = [k for k in ("alias", "sample", "column_name_alias", "at_clause") if table.get(k)]
    rest = [k for k in ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample") if node.get(k)]
    if table.get("type") != "BASE_TABLE" or more or rest:
        refuse("source", key, spelled)
    return tree


def check_protected(walk: Walk) -> None:
    """Refuse what is never answered over a protected table."""
    if not walk.granted:
        return
    if len(walk.granted) > 1:
        refuse("two")
    if "WITH RECURSIVE" in walk.constructs:
        refuse("recursive")
    if walk.constructs:
        refuse("protected", walk.constructs[0])


def by_place(tree: dict[str, Any]) -> None:
    """Write ORDER BY ALL as places: DuckDB writes it back as COLUMNS(*), which a query over protected rows does not know."""
    for node in nodes(tree):
        listed = node.get("select_list")
        if not isinstance(listed, list) or any(n.get("class") == "STAR" for n in listed):
            continue
        for modifier in node.get("modifiers") or []:
            orders = modifier.get("orders") or []
            if modifier["type"] == "ORDER_MODIFIER" and len(orders) == 1 and orders[0]["expression"].get("class") == "STAR":
                modifier["orders"] = [{**orders[0], "expression": _place(place)} for place in range(1, len(listed) + 1)]


def _place(place: int) -> dict[str, Any]:
    return {"class": "POSITIONAL_REFERENCE", "type": "POSITIONAL_REFERENCE", "alias": "", "query_location": 0, "index": place}


def _constant(node: Any) -> bool:
    """Whether an expression is made of constants alone."""
    if not isinstance(node, dict):
        return False
    kind = node.get("class")
    if kind == "CONSTANT":
        return True
    if kind == "CAST":
        return _constant(node["child"])
    parts = node.get("children") or [a["expression"] for a in node.get("arguments") or []]
    listed = kind == "OPERATOR" and node["type"] == "ARRAY_CONSTRUCTOR"
    called = kind == "FUNCTION" and str(node["function_name"]).lower() in _CONSTANT and not node.get("filter")
    return (listed or called) and all(map(_constant, parts))
