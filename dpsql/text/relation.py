"""Text of SQL relations: the one place where values become literals and names become identifiers.

``dp_*`` macros get back the text of a relation from Python (``FROM query('FROM ' || text)``), so whatever goes into that
text is quoted here, and only here.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from dpsql.text.names import fold

Value = None | bool | int | float | str | Decimal | dt.datetime | Sequence["Value"] | Mapping[str, "Value"]


def identifier(*parts: str) -> str:
    """Quote a possibly qualified name.

    Examples
    --------
    >>> identifier("main", 'odd "na"me')
    '"main"."odd ""na""me"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def key_name(schema: str, name: str) -> str:
    """Return the name under which the books know a table or view, in whatever case it is spelled.

    Examples
    --------
    >>> key_name("main", "Adult"), key_name("Odd one", "1a")
    ('main.adult', '"odd one"."1a"')
    """
    return ".".join(part if part.isidentifier() else identifier(part) for part in (fold(schema), fold(name)))


def split_name(text: str) -> list[str]:
    """Return the one to three parts of a possibly quoted and qualified name; empty if it is not a name.

    Examples
    --------
    >>> split_name('census."odd name"')
    ['census', 'odd name']
    """
    import sqlglot  # loaded when needed: sqlglot takes .1 s
    from sqlglot import exp

    try:
        parsed = sqlglot.parse_one(text, read="duckdb", into=exp.Table)
    except sqlglot.errors.SqlglotError:
        return []
    names = ("this", "db", "catalog")
    if not isinstance(parsed, exp.Table) or any(value for key, value in parsed.args.items() if key not in names):
        return []
    if not all(isinstance(part, exp.Identifier) for part in parsed.parts):
        return []
    return [part.name for part in parsed.parts]


def literal(value: Value) -> str:
    r"""Return ``value`` as a DuckDB literal.

    Examples
    --------
    >>> literal("it's"), literal([1, None]), literal(1e-9)
    ("'it''s'", '[1, NULL]', "'1e-09'::DOUBLE")
    >>> literal("a\0b")
    "system.main.concat('a', system.main.chr(0), 'b')"
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value) if math.isfinite(value) else str(value)
        return f"'{text}'::DOUBLE"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, str):
        if "\0" in value:  # DuckDB 1.x reads no further than that in the text of a statement
            parts = [_text(part) for part in value.split("\0")]
            return f"system.main.concat({', system.main.chr(0), '.join(parts)})"
        return _text(value)
    if isinstance(value, Mapping):
        return f"system.main.struct_pack({', '.join(f'{identifier(name)} := {literal(item)}' for name, item in value.items())})"
    return "[" + ", ".join(literal(item) for item in value) + "]"


def _text(value: str) -> str:
    """Return a text without NUL as a literal: nothing but the quote has a meaning in one."""
    return "'" + value.replace("'", "''") + "'"


def at_most(value: float) -> float:
    """Round up to five digits, for display: a loss of at most this.

    Examples
    --------
    >>> at_most(0.9999986508594552), at_most(1.0235549822886587), at_most(0.0)
    (1.0, 1.0236, 0.0)
    """
    return -at_least(-value)


def at_least(value: float) -> float:
    """Round down to five digits, for display: this much is left, or more.

    Examples
    --------
    >>> at_least(0.32191897657009866), at_least(5.0)
    (0.32191, 5.0)
    """
    shown = float(f"{value:.5g}")
    if shown <= value:
        return shown
    return float(f"{shown - 10 ** (math.floor(math.log10(abs(value))) - 4):.5g}")


def inline(columns: Mapping[str, str], rows: Sequence[Sequence[Value]]) -> str:
    """Return a relation that holds these rows as literals.

    Parameters
    ----------
    columns : mapping of str to str
        Column name to DuckDB type, in order.
    rows : sequence of sequences
        One value per column.
    """
    casts = ", ".join(f"{identifier(name)}::{kind} AS {identifier(name)}" for name, kind in columns.items())
    names = ", ".join(identifier(name) for name in columns)
    if not rows:
        nulls = ", ".join("NULL" for _ in columns)
        return f"(SELECT {casts} FROM (VALUES ({nulls})) AS t({names}) WHERE false)"  # noqa: S608 -- quoted above
    values = ", ".join("(" + ", ".join(literal(v) for v in row) + ")" for row in rows)
    return f"(SELECT {casts} FROM (VALUES {values}) AS t({names}))"  # noqa: S608 -- quoted above


def packed(columns: Mapping[str, str], rows: Sequence[Sequence[None | bool | int | float | str]]) -> str:
    """Return the same relation as `inline` in a text that DuckDB reads fifty times faster: for thousands of rows.

    Numbers have to be finite. The functions are named with their schema, so that no macro of the database stands for one
    (``unnest`` is syntax).
    """
    unnested = []
    for place, (name, kind) in enumerate(columns.items()):
        values = json.dumps([row[place] for row in rows], ensure_ascii=False, allow_nan=False)
        unnested.append(f"unnest(system.main.from_json({literal(values)}, {literal(json.dumps([kind]))})) AS {identifier(name)}")
    return f"(SELECT {', '.join(unnested)})"


def parquet(path: Path) -> str:
    """Return a relation that reads this Parquet file."""
    return f"read_parquet({literal(str(path))})"
