"""DuckDB writes a tree back otherwise than people do: ``"mode"(x)``, ``list_value(1)``. Here as people do.

dp_query reads what people write. A text is only changed where DuckDB's parser reads the very same tree of it.
"""

from __future__ import annotations

from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from dpsql.errors import UnsupportedQuery
from dpsql.source.parse import render, serialized
from dpsql.text.strict import StrictDuckDB

_PLACES = ("query_location", "query_location_length")


_MOST, _LONGEST = 256, 50_000
_known: dict[str, str] = {}
"""What was made of a text: of it and DuckDB's parser alone, so the same the next time."""


def plainer(cursor: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return a text that DuckDB wrote in the words that people use, or as it is."""
    plain_text = _known.get(text)
    if plain_text is None:
        plain_text = _plainer(cursor, text)
        if len(text) <= _LONGEST:
            if len(_known) >= _MOST:
                _known.clear()
            _known[text] = plain_text
    return plain_text


def _plainer(cursor: duckdb.DuckDBPyConnection, text: str) -> str:
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=StrictDuckDB) if tree is not None]
        if len(trees) != 1:
            return text
        holder = exp.Tuple(expressions=trees)
        for node in reversed(list(holder.walk(bfs=False))):  # the parts of a node before itself
            changed = node if isinstance(node.parent, exp.Dot) else _changed(node)  # with the schema before it, as one
            if changed is not node:
                node.replace(changed)
        plain_text = render(holder.expressions[0])
    except (sqlglot.errors.SqlglotError, UnsupportedQuery, RecursionError):
        return text
    # whatever sqlglot has made of it: only what DuckDB reads as the same is used
    same = _without_places(serialized(cursor, plain_text)) == _without_places(serialized(cursor, text))
    return plain_text if same else text


def _changed(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous) and node.this.name == "main":  # DuckDB 1.x
        return _changed(node.expression)
    if not isinstance(node, exp.Anonymous):
        return node
    name = node.this.name if isinstance(node.this, exp.Identifier) else str(node.this)
    if name == "list_value":
        return exp.Array(expressions=node.expressions)
    if name == "count_star" and not node.expressions:
        return exp.Anonymous(this="count", expressions=[exp.Star()])
    return exp.Anonymous(this=name, expressions=node.expressions) if isinstance(node.this, exp.Identifier) else node


def _without_places(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_places(part) for part in tree]
    if isinstance(tree, dict):
        return {key: _without_places(part) for key, part in tree.items() if key not in _PLACES}
    return tree
