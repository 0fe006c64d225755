"""A table of an attached Postgres: one statement of ours asks for its columns; nothing in it can fail, and nothing filters.

DuckDB's scan of an attached table is not used. It reads ranges of the table over several connections, which see one moment only
where the server can export a snapshot; it has Postgres decide comparisons, in Postgres' types; and (postgres_scanner of 1.5.5) it
takes a NaN in a NUMERIC for 0, and a moment beyond DuckDB's last for one before Christ. Here Postgres copies out one
SELECT of ours, under one snapshot, with the row's own values or NULL; all the rest is computed in DuckDB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from dpsql.engines.attached.looked import AttachedTable, Looked, withheld
from dpsql.engines.remote import Described
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.text.names import fold
from dpsql.text.relation import identifier, literal

_PINNED = {"pg_experimental_filter_pushdown": "false", "pg_use_binary_copy": "true", "pg_use_text_protocol": "false"}
_PLAIN = {
    "boolean": "BOOLEAN", "smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT", "real": "FLOAT",
    "double precision": "DOUBLE", "date": "DATE", "uuid": "UUID", "time without time zone": "TIME",
}  # fmt: skip
_TEXTS = ("text", "character varying", "character", "json", "jsonb", "name")
_MOMENTS = {"timestamp without time zone": "TIMESTAMP", "timestamp with time zone": "TIMESTAMP WITH TIME ZONE"}
_LAST = "294246-12-31 00:00:00"
"""DuckDB has moments for a few days more."""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_MODIFIER = re.compile(r"\(\d+\)")
_FEW_DIGITS = 38
_WHOLE = ("UTF8", "LATIN1")
"""Encodings all of whose texts are texts in UTF-8."""

_COLUMNS = """
SELECT c.relkind::text AS kind, pg_catalog.row_security_active(c.oid) AS secured,
  pg_catalog.current_setting('server_encoding') AS encoding, pg_catalog.pg_client_encoding()::text AS reads,
  pg_catalog.current_setting('transaction_isolation') AS isolation,
  a.attnum::int AS place, a.attname::text AS name,
  CASE WHEN t.typtype OPERATOR(pg_catalog.=) 'd' THEN pg_catalog.format_type(t.typbasetype, t.typtypmod)
    ELSE pg_catalog.format_type(a.atttypid, a.atttypmod) END::text AS type,
  (SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder ASC) FROM pg_catalog.pg_enum e
    WHERE e.enumtypid OPERATOR(pg_catalog.=) a.atttypid)::text AS labels,
  pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
    AND COALESCE(pg_catalog.to_jsonb(a) OPERATOR(pg_catalog.->>) 'attgenerated', '') OPERATOR(pg_catalog.<>) 'v'
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_collation l WHERE l.oid OPERATOR(pg_catalog.=) a.attcollation
      AND pg_catalog.to_jsonb(l) OPERATOR(pg_catalog.->>) 'collisdeterministic' OPERATOR(pg_catalog.=) 'false') AS usable,
  (WITH RECURSIVE below(oid) AS (SELECT c.oid UNION SELECT i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i
      ON i.inhparent OPERATOR(pg_catalog.=) b.oid)
    SELECT pg_catalog.string_agg(DISTINCT p.relkind::text, '') FROM below b JOIN pg_catalog.pg_class p
      ON p.oid OPERATOR(pg_catalog.=) b.oid WHERE p.oid OPERATOR(pg_catalog.<>) c.oid) AS parts
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid
JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
WHERE n.nspname OPERATOR(pg_catalog.=) {schema} AND c.relname OPERATOR(pg_catalog.=) {name}
AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True)
class _Column:
    """A column: its DuckDB type, None where it cannot be used, and the Postgres expression that gives its values."""

    described: Described
    expression: str


class PostgresTable(AttachedTable):
    """See `dpsql.engines.attached.place.Place`."""

    def look(self, cursor: duckdb.DuckDBPyConnection) -> Looked:
        """Return the columns; of their SELECT Postgres runs one statement, under one snapshot. No row is read."""
        columns = self._columns(cursor)
        return Looked([column.described for column in columns], lambda chosen: self._select(cursor, columns, chosen))

    def _select(self, cursor: duckdb.DuckDBPyConnection, of_table: list[_Column], columns: Mapping[str, str]) -> str:
        for name, value in _PINNED.items():
            try:
                cursor.execute(f"SET SESSION {name} = '{value}'")
            except duckdb.CatalogException:  # not in this version of the extension
                continue
            except duckdb.Error:
                if _has(cursor, name, value):  # the configuration is locked with it
                    continue
                raise DpsqlError(f"setting {name}: dpsql needs {value!r} for its own cursor, and cannot set it") from None
        known = {column.described.name: column for column in of_table}
        inner = ", ".join(f"{known[name].expression} AS {_pg_name(name)}" for name in columns)
        query = f"SELECT {inner} FROM {_pg_name(self.schema)}.{_pg_name(self.name)}"  # noqa: S608 -- quoted
        # a value that DuckDB's type does not hold is NULL here, and fails nobody's reading
        outer = ", ".join(f"TRY_CAST({identifier(name)} AS {kind}) AS {identifier(name)}" for name, kind in columns.items())
        return f"SELECT {outer} FROM {self._query(query)}"  # noqa: S608 -- quoted

    def _wrong(self, reason: str) -> ArgumentError:
        return ArgumentError("relation", self.text, reason)

    def _query(self, text: str) -> str:
        return f"system.main.postgres_query({literal(self.database)}, {literal(text)})"

    def _columns(self, cursor: duckdb.DuckDBPyConnection) -> list[_Column]:
        if "\\" in self.schema + self.name:  # what a backslash means in a Postgres text is a setting
            raise self._wrong("a name with a backslash cannot be asked for; rename it")
        query = _COLUMNS.format(schema=literal(self.schema), name=literal(self.name))
        undescribed = "Postgres does not describe it: is the server there, and may the role?"
        with withheld(DpsqlError(f"relation = {self.text}: {undescribed}")):
            rows = cursor.execute(f"SELECT * FROM {self._query(query)}").fetchall()  # noqa: S608 -- quoted
        if not rows:
            raise self._wrong("there is no such table; letters count: it is spelled as Postgres lists it")
        if self.schema.startswith("pg_") or self.schema == "information_schema":
            raise self._wrong(
                "is a table of Postgres' own, whose rows follow from those of others (statistics hold values of them), so a budget "
                "of its own would not cover what it shows; name the table whose rows you mean"
            )
        # refused as a whole: where rows may depend on each other, or one text makes a reading fail
        kind, secured, encoding, reads, isolation = rows[0][:5]
        parts = set(rows[0][10] or "")
        if kind not in ("r", "p"):
            raise self._wrong(
                "is no table of Postgres but a view or the like, in which rows may depend on each other; name the table below it, "
                "and make the view here, over the name that it gets"
            )
        if kind == "r" and parts:
            raise self._wrong(
                "is a table that others inherit from (INHERITS), whose rows may be a unit's too, and of other columns; make it a "
                "partitioned table, or copy all of them into one table"
            )
        if parts - {"r", "p"}:
            raise self._wrong(
                "has a partition that is no table of this server (a foreign table): its rows may be a view's elsewhere, and depend "
                "on each other; detach it, or name the tables one by one"
            )
        if isolation not in ("repeatable read", "serializable"):
            raise self._wrong(
                f"is read at isolation level {isolation}, where a statement that reads it twice sees two states; ATTACH without "
                "ISOLATION_LEVEL, which is repeatable read"
            )
        if secured:
            raise self._wrong("has row security for this role: policies may look at other rows; use a role without")
        if encoding not in _WHOLE or reads != "UTF8":
            raise self._wrong(
                f"is in a database of encoding {encoding}, read as {reads}: some texts have no other form there, and one of them "
                f"makes a reading fail. Texts are read as UTF8 (client_encoding), of databases that are {' or '.join(_WHOLE)}"
            )
        # refused one by one: a column that cannot be read safely is described without a type, and the others are kept
        columns = []
        names: set[str] = set()
        for _, _, _, _, _, _, name, shown, labels, usable, _ in sorted(rows, key=lambda row: int(row[5])):
            sql_type, expression = (None, "") if labels is None else _enum(str(name), json.loads(labels))
            if labels is None:
                sql_type, expression = column_type(str(name), str(shown))
            if not usable or fold(str(name)) in names:
                sql_type = None
            names.add(fold(str(name)))
            rounded = sql_type == "DOUBLE" and str(shown).startswith("numeric")
            exact = labels is None and shown != "jsonb" and not rounded  # 1.0 and 1.00 are equal in jsonb, and two texts
            columns.append(_Column(Described(str(name), sql_type, str(shown), exact=exact), expression))
        return columns


def column_type(name: str, shown: str) -> tuple[str | None, str]:
    """Return the DuckDB type of a column, None where it is not listed, and the Postgres expression of its values.

    Every expression is defined for every value of the type. What DuckDB's type does not have is NULL.

    Parameters
    ----------
    shown : str
        Postgres' name of the type, as ``format_type`` gives it.

    Examples
    --------
    >>> column_type("x", "integer"), column_type("x", "integer[]")
    (('INTEGER', '"x"'), (None, ''))
    """
    quoted = _pg_name(name)
    base = _MODIFIER.sub("", shown)
    if base in _TEXTS:
        return "VARCHAR", f"{quoted}::pg_catalog.text"
    if base in _MOMENTS:
        kind = shown if "(" not in shown else base
        last = f"'{_LAST}'::pg_catalog.{'timestamptz' if 'with time zone' in kind else 'timestamp'}"
        end = last.replace(_LAST, "infinity")
        beyond = f"{quoted} OPERATOR(pg_catalog.>) {last} AND {quoted} OPERATOR(pg_catalog.<) {end}"
        return _MOMENTS[base], f"CASE WHEN {beyond} THEN NULL ELSE {quoted} END"
    if base in _PLAIN:
        return _PLAIN[base], quoted
    digits = _NUMERIC.fullmatch(shown)
    if digits and int(digits[1]) <= _FEW_DIGITS and 0 <= int(digits[2]) <= int(digits[1]):
        size = f"({digits[1]},{digits[2]})"
        number = f"CASE WHEN {quoted} OPERATOR(pg_catalog.=) 'NaN'::pg_catalog.numeric THEN NULL ELSE {quoted} END"
        return f"DECIMAL{size}", f"({number})::pg_catalog.numeric{size}"
    if digits or shown == "numeric":  # beyond a DOUBLE, and what no number is: NULL; below its smallest: 0
        size = f"pg_catalog.abs({quoted})"
        small = f"WHEN {size} OPERATOR(pg_catalog.<) 1e-300 THEN 0"
        double = "::pg_catalog.float8"
        return "DOUBLE", f"CASE {small} WHEN {size} OPERATOR(pg_catalog.<) 1e300 THEN {quoted}{double} ELSE NULL END{double}"
    return None, ""


def _enum(name: str, labels: list[str]) -> tuple[str, str]:
    """Return an ENUM of the labels that the type has today; a value with a later one is NULL."""
    return f"ENUM({', '.join(map(literal, labels))})", f"{_pg_name(name)}::pg_catalog.text"


def _pg_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _has(cursor: duckdb.DuckDBPyConnection, name: str, value: str) -> bool:
    """Return whether a setting has this value."""
    asked = "SELECT count(*) FROM system.main.duckdb_settings() WHERE name = ? AND lower(value) = lower(?)"
    return bool(cursor.execute(asked, [name, value]).fetchall()[0][0])
