"""Read the text of a source: sqlglot's syntax tree, on which DuckDB's own parser must agree.

The dialect knows no function (:mod:`dpsql.text.strict`), so that there is one place where names are judged
(:mod:`dpsql.source.functions`) and nothing between the text that was checked and the text that runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType

from dpsql.errors import UnsupportedQuery
from dpsql.source.model import fold, refuse
from dpsql.text.strict import StrictDuckDB

QUERY = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN)
"""Tokens that a SELECT may start with."""

LIST_WAY = "FROM t, unnest(t.l[:5]) AS e(x) makes rows of the first five elements"
JSON_WAY = "a source reads no JSON: make a column of the value, ALTER TABLE t ADD COLUMN s VARCHAR; UPDATE t SET s = j->>'s'"
PIVOT_WAY = "name the values that become columns: PIVOT (SELECT ...) ON b IN ('x', 'y') USING sum(n)"

_ONE_SELECT = "a source is a table, a view, a Parquet file or one SELECT over one protected table"


_made = threading.local()  # a generator keeps what it says of one text, so each thread has its own


def render(node: exp.Expression, *, own: bool = False) -> str:
    """Return the SQL text of a tree, without comments; ``own``: whether it is a copy that is not used afterwards."""
    if not hasattr(_made, "generator"):
        _made.generator = StrictDuckDB().generator(comments=False, unsupported_level=ErrorLevel.RAISE)
    try:
        return str(_made.generator.generate(node, copy=not own))
    except SqlglotError:
        return refuse("the text", "part of it can't be written as DuckDB SQL; write it more plainly")


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text; an empty list if it is not SQL."""
    try:
        return list(StrictDuckDB().tokenize(text))
    except SqlglotError:
        return []


def parse(text: str, where: str = "") -> exp.Select:
    """Return the tree of the one SELECT that a text holds; :func:`agree` is to be asked about it before it is used.

    Parameters
    ----------
    text : str
    where : str
        The view the text comes from, for messages.

    Raises
    ------
    UnsupportedQuery
        If the text is not exactly one SELECT.
    """
    tree = parse_query(text, where)
    if not isinstance(tree, exp.Select):
        kind = "set operation" if isinstance(tree, exp.SetOperation) else tree.key.upper()
        refuse(kind, _ONE_SELECT, tree, where)
    return tree


def parse_query(text: str, where: str = "") -> exp.Expression:
    """Return the tree of the one query that a text holds, a SELECT or not; see :func:`parse`."""
    read = tokens(text)
    if read and read[0].token_type not in QUERY:
        refuse(read[0].text.upper(), f"{_ONE_SELECT}{where}")
    if any(t.token_type == TokenType.SEMICOLON for t in read[:-1]):
        refuse("several statements", f"{_ONE_SELECT}{where}")
    try:
        statements = [s for s in sqlglot.parse(text, dialect=StrictDuckDB) if s is not None]
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        at = f" (line {first['line']}, column {first['col']})" if first.get("line") else ""
        raise UnsupportedQuery(f"{str(first.get('highlight') or 'the text')!r}{where}{at}", "not understood as SQL") from None
    except SqlglotError:
        raise UnsupportedQuery(f"the text{where}", "not understood as SQL") from None
    if len(statements) != 1:
        refuse(f"{len(statements)} statements", _ONE_SELECT, None, where)
    tree: exp.Expression = statements[0]
    while isinstance(tree, exp.Subquery) and set(used(tree)) == {"this"}:
        tree = tree.this
    return tree


def used(node: exp.Expression) -> list[str]:
    """Return the names of the arguments of a node that are set."""
    return [k for k, v in node.args.items() if v is not None and v is not False and v != []]


def serialized(cursor: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """Return the syntax tree that DuckDB's own parser makes of a text."""
    row = cursor.execute("SELECT system.main.json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    return dict(json.loads(row[0])) if row else {"error": True, "error_message": ""}


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every dictionary in a tree that DuckDB wrote as JSON."""
    if isinstance(tree, list):
        for part in tree:
            yield from nodes(part)
    elif isinstance(tree, dict):
        yield tree
        for part in tree.values():
            yield from nodes(part)


def agree(cursor: duckdb.DuckDBPyConnection, text: str, tree: exp.Expression, where: str = "") -> None:
    """Refuse a text that DuckDB's parser reads otherwise than sqlglot's, judged by what sqlglot writes back.

    Parameters
    ----------
    cursor : DuckDB cursor
        For DuckDB's parser; nothing is bound or run.
    text, where : str
    tree : sqlglot expression
        What :func:`parse` made of the text.
    """
    ours, theirs = _both(cursor, render(tree), text)
    if theirs.get("error"):
        # which values become columns must not follow from the data
        if any(not isinstance(one, exp.In) for pivot in tree.find_all(exp.Pivot) for one in pivot.expressions):
            refuse(f"PIVOT{where}", PIVOT_WAY)
        refuse(f"the text{where}", f"DuckDB does not read it as one SELECT: {theirs.get('error_message')}")
    if ours.get("error") or len(theirs["statements"]) != 1 or _normal(ours) != _normal(theirs):
        if arrow := tree.find(exp.JSONExtract, exp.JSONExtractScalar):
            refuse("->" if isinstance(arrow, exp.JSONExtract) else "->>", JSON_WAY, arrow, where)
        piece = _piece(text, _differing(_normal(ours, places=True), _normal(theirs, places=True)))
        refuse(
            f"{piece or 'the text'}{where}",
            "it can be read in two ways (sqlglot and DuckDB disagree about it); write it more plainly: brackets around "
            "operands, CAST(... AS type) of constants, functions instead of rare operators",
        )


def _differing(ours: Any, theirs: Any) -> tuple[Any, ...] | None:
    """Return where the first of the smallest parts is that two normal trees read in two ways: its first byte and its length.

    None: nothing differs. ``()``: it is not known where.
    """
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = list(zip(ours, theirs, strict=True))
    elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() - _PLACES == theirs.keys() - _PLACES:
        pairs = [(ours[key], theirs[key]) for key in theirs.keys() - _PLACES]
    else:
        return None if ours == theirs else _place(theirs)
    differences = [_differing(one, other) for one, other in pairs]
    places = [place for place in differences if place is not None]
    return min(filter(None, places), default=_place(theirs)) if places else None


def _place(node: Any) -> tuple[Any, ...]:
    place = node.get("query_location") if isinstance(node, dict) else None
    return (place, node.get("query_location_length")) if type(place) is int and place < 1 << 60 else ()


def _piece(text: str, place: tuple[Any, ...] | None) -> str:
    """Return a part of a text for a message, with its place; to the end of the line where its length is not known (DuckDB 1)."""
    if not place:
        return ""
    start, length = place
    before, after = text.encode()[:start].decode(errors="replace"), text.encode()[start:]
    shown = (after if length is None else after[:length]).decode(errors="replace").split("\n")[0].strip()
    cut = f"{shown[:_SHOWN]}..." if len(shown) > _SHOWN else shown
    return f"{cut!r} (line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1})" if cut else ""


def _both(cursor: duckdb.DuckDBPyConnection, ours: str, theirs: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the syntax trees that DuckDB's own parser makes of two texts."""
    query = "SELECT system.main.json_serialize_sql(?::VARCHAR), system.main.json_serialize_sql(?::VARCHAR)"
    row = cursor.execute(query, [ours, theirs]).fetchone() or ('{"error": true}',) * 2
    return dict(json.loads(row[0])), dict(json.loads(row[1]))


_ORDERED = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc"}
"""What DuckDB's parser makes of an ordered aggregate."""
_POWERS = frozenset({"^", "**", "pow", "power"})
_NEGATED = {"!~~": "~~", "!~~*": "~~*"}
_TYPES = {
    "text": "varchar", "string": "varchar", "char": "varchar", "bpchar": "varchar", "nvarchar": "varchar", "numeric": "decimal",
    "dec": "decimal", "int8": "bigint", "long": "bigint", "int": "integer", "int4": "integer", "signed": "integer",
    "int2": "smallint", "short": "smallint", "int1": "tinyint", "bool": "boolean", "logical": "boolean", "real": "float",
    "float4": "float", "float8": "double", "datetime": "timestamp", "timestamp_us": "timestamp", "int16": "smallint",
    "int32": "integer", "int64": "bigint", "int128": "hugeint", "uint128": "uhugeint", "binary": "blob", "bytea": "blob",
    "varbinary": "blob", "bitstring": "bit", "timetz": "time with time zone", "timestamptz": "timestamp with time zone",
}
_SHOWN = 40
"""Characters of a text that a message shows, at most."""
_PLACES = frozenset({"query_location", "query_location_length"})
_DROPPED = _PLACES | {"qualified_name"}


def _normal(node: Any, *, places: bool = False) -> Any:
    """Return a syntax tree with the spellings that mean the same made the same; ``places``: with those of its parts in the text."""
    if isinstance(node, list):
        return [_normal(n, places=places) for n in node]
    if not isinstance(node, dict):
        return node
    out = {k: _normal(v, places=places) for k, v in node.items() if k not in _DROPPED or (places and k in _PLACES)}
    if isinstance(out.get("modifiers"), list):  # ORDER BY has no effect on a set of rows: it is left out
        out["modifiers"] = [m for m in out["modifiers"] if m.get("type") != "ORDER_MODIFIER"]
    if node.get("type") == "SUBQUERY" and node.get("alias") == "_values" and not node.get("column_name_alias"):
        inside = out["subquery"]["node"]
        rows = inside.get("from_table") or {}
        # WITH t AS (VALUES (1)) comes back as SELECT * FROM (VALUES (1)) AS _values
        if rows.get("type") == "EXPRESSION_LIST" and not inside.get("modifiers"):
            return rows
    if "column_names" in out:
        out["column_names"] = [fold(str(n)) for n in out["column_names"]]
    if node.get("class") == "TYPE":
        return _type(out)
    if node.get("class") == "FUNCTION":
        name = str(node["function_name"]).lower()
        out["function_name"] = _ORDERED.get(name, name)
        if name in _POWERS:
            out.update(function_name="power", is_operator=False)
        if out["function_name"] == "date_part":  # EXTRACT(dow FROM d) comes back as EXTRACT(DAYOFWEEK FROM d)
            arguments: list[Any] = out.get("children") or out["arguments"]
            part = json.dumps(arguments[0]).lower().replace("dayofweek", "dow").replace("dayofyear", "doy")
            arguments[0] = json.loads(part)
        if out["function_name"] in _NEGATED:
            out["function_name"] = _NEGATED[out["function_name"]]
            return _negation(out)
    if node.get("type") == "OPERATOR_IS_NOT_NULL":
        return _negation({**out, "type": "OPERATOR_IS_NULL"})
    if node.get("type") == "COMPARE_DISTINCT_FROM":
        return _negation({**out, "type": "COMPARE_NOT_DISTINCT_FROM"})
    if node.get("type") == "COMPARE_NOT_IN":
        return _negation({**out, "type": "COMPARE_IN"})
    if node.get("class") == "OPERATOR" and node.get("type") == "OPERATOR_NOT":
        return _negation(out["children"][0], str(out.get("alias", "")))
    if node.get("class") == "CONSTANT":
        where = {k: v for k, v in out.items() if k in _PLACES}
        return {"class": "CONSTANT", "alias": out.get("alias"), "value": _constant(node), **where}
    return out


def _type(out: dict[str, Any]) -> dict[str, Any]:
    """Return a type as DuckDB 2.0 parses it with one spelling; the length of a VARCHAR means nothing to DuckDB."""
    name = _TYPES.get(fold(str(out["type_name"])), fold(str(out["type_name"])))
    children = out["children"]
    if name == "varchar":
        children = []
    elif name == "decimal" and len(children) < 2:
        width = children[0] if children else {"class": "CONSTANT", "alias": "", "value": "18"}
        scale = {"class": "CONSTANT", "alias": "", "value": "0" if children else "3"}
        children = [width, scale]
    return {**out, "type_name": name, "children": children}


def _negation(child: dict[str, Any], alias: str | None = None) -> dict[str, Any]:
    """Return NOT child; the alias belongs to the outer one."""
    outer = str(child.get("alias", "")) if alias is None else alias
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": outer, "children": [{**child, "alias": ""}]}


def _number(text: str) -> str:
    """Return a number as it is written back: with a digit before the point."""
    return f"0{text}" if text.startswith(".") else text


def _constant(node: dict[str, Any]) -> str:
    """Return a constant as text; ``INTERVAL 1 DAY`` and ``INTERVAL '1' DAY`` are the same to DuckDB."""
    if "literal" in node:  # DuckDB 2.0 keeps the text
        kind = node["literal"].get("kind")
        text = str(node["literal"].get("text", kind))
        return text if kind == "STRING" else _number(text.replace("_", ""))
    value = node["value"]
    if value.get("is_null"):
        return "NULL"
    return json.dumps([value["type"].get("type_info"), str(value.get("value"))])
