"""SHOW and DESCRIBE as questions about the tables of `information_schema`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsql.serve.mysql.codes import unknown_database, unknown_table
from dpsql.serve.mysql.lexing import named, quoted, unquoted
from dpsql.serve.mysql.listed import create_text, place_of
from dpsql.serve.passed import Answer, Column, Refused, Table

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_FROM = rf"(?:\s+(?:FROM|IN)\s+(?P<db>{_NAME}))?"
_LIKE = r"(?:\s+LIKE\s+(?P<like>'(?:[^']|'')*')|\s+WHERE\s+(?P<where>.+))?"
_TABLE = rf"(?:(?P<of>{_NAME})\s*\.\s*)?(?P<table>{_NAME}){_FROM}"


@dataclass(frozen=True)
class Shown:
    """What is looked at: the analyst's tables, where she is, her session's variables, and the notes on her last question."""

    database: str
    current: str
    analyst: str
    connection: int
    tables: Sequence[Table]
    variables: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()

    def place(self, name: str | None) -> str:
        """Return the database of a name; the current one if it is None."""
        if name is None:
            return self.current
        known = ["information_schema", self.database, *(place_of(table, self.database) for table in self.tables)]
        for place in known:
            if place.lower() == unquoted(name).lower():
                return place
        raise unknown_database(unquoted(name)[:64])

    def table(self, place: str | None, name: str) -> Table:
        """Return the table of a name; raises `Fault` where there is none."""
        where = self.place(place)
        for table in self.tables:
            if place_of(table, self.database).lower() == where.lower() and table.name.lower() == name.lower():
                return table
        raise unknown_table(where, name[:64])

    def table_of(self, match: re.Match[str]) -> Table:
        """Return the table that a statement names; raises `Fault` where there is none."""
        return self.table(match["db"] or match["of"], unquoted(match["table"]))


Question = str | Answer
"""What a SHOW is: a SELECT in MySQL's words, or the answer."""


def shown(text: str, seen: Shown) -> Question:
    """Return what a SHOW or DESCRIBE asks; raises `Refused` and `Fault`.

    Parameters
    ----------
    text : str
        The statement, written again (`lexing.read`).
    seen : Shown
    """
    for pattern, answer in _FORMS:
        match = pattern.fullmatch(text)
        if match is not None:
            return answer(match, seen)
    raise Refused("unsupported", "this SHOW is not answered: SHOW TABLES, SHOW COLUMNS and SHOW VARIABLES are")


def _limited(select: str, match: re.Match[str], column: str) -> str:
    parts = match.groupdict()
    if parts.get("like"):
        return f"SELECT * FROM ({select}) AS shown WHERE {named(column)} LIKE {parts['like']}"  # noqa: S608 -- judged when run
    if parts.get("where"):
        return f"SELECT * FROM ({select}) AS shown WHERE ({parts['where']})"  # noqa: S608 -- judged when run
    return select


def _tables(match: re.Match[str], seen: Shown) -> Question:
    place = seen.place(match["db"])
    column = f"Tables_in_{place}"
    kind = ", table_type AS Table_type" if match["full"] else ""
    select = f"SELECT table_name AS {named(column)}{kind} FROM information_schema.tables WHERE table_schema = {quoted(place)}"  # noqa: S608
    return _limited(f"{select} ORDER BY 1 ASC", match, column)


def _databases(match: re.Match[str], seen: Shown) -> Question:
    return _limited("SELECT schema_name AS `Database` FROM information_schema.schemata ORDER BY 1 ASC", match, "Database")


def _columns(match: re.Match[str], seen: Shown) -> Question:
    table = seen.table_of(match)
    columns = ["Field=column_name", "Type=column_type", "Null=is_nullable", "Key=column_key", "Default=column_default", "Extra"]
    if match.groupdict().get("full"):
        columns = [*columns[:2], "Collation=collation_name", *columns[2:], "Privileges", "Comment=column_comment"]
    where = f"table_schema = {quoted(place_of(table, seen.database))} AND table_name = {quoted(table.name)}"
    return _limited(f"{_titled('columns', *columns)} WHERE {where} ORDER BY ordinal_position ASC", match, "Field")


def _describe(match: re.Match[str], seen: Shown) -> Question:
    question = _columns(match, seen)
    column = match["column"]
    if column is None:
        return question
    pattern = column if column.startswith("'") else quoted(unquoted(column))
    return f"SELECT * FROM ({question}) AS shown WHERE Field LIKE {pattern}"  # noqa: S608


def _create(match: re.Match[str], seen: Shown) -> Question:
    table = seen.table_of(match)
    return Answer((Column("Table", "VARCHAR"), Column("Create Table", "VARCHAR")), [(table.name, create_text(table))])


def _create_database(match: re.Match[str], seen: Shown) -> Question:
    place = seen.place(match["name"])
    text = f"CREATE DATABASE {named(place)} /*!40100 DEFAULT CHARACTER SET utf8mb4 */"
    return Answer((Column("Database", "VARCHAR"), Column("Create Database", "VARCHAR")), [(place, text)])


def _indexes(match: re.Match[str], seen: Shown) -> Question:
    seen.table_of(match)
    return _titled(
        "statistics", "Table=table_name", "Non_unique", "Key_name=index_name", "Seq_in_index", "Column_name", "Collation",
        "Cardinality", "Sub_part", "Packed", "Null=nullable", "Index_type", "Comment", "Index_comment",
    )  # fmt: skip


def _table_status(match: re.Match[str], seen: Shown) -> Question:
    select = _titled(
        "tables", "Name=table_name", "Engine", "Version", "Row_format", "Rows=table_rows", "Avg_row_length", "Data_length",
        "Max_data_length", "Index_length", "Data_free", "Auto_increment", "Create_time", "Update_time", "Check_time",
        "Collation=table_collation", "Checksum", "Create_options", "Comment=table_comment",
    )  # fmt: skip
    return _limited(f"{select} WHERE table_schema = {quoted(seen.place(match['db']))} ORDER BY 1 ASC", match, "Name")


def _titled(table: str, *columns: str) -> str:
    """Return a SELECT of columns of a table by the titles that a SHOW has; a title alone is the name of a column too."""
    listed = ((title, name or title.lower()) for title, _, name in (column.partition("=") for column in columns))
    chosen = ", ".join(f"{named(name)} AS {named(title)}" for title, name in listed)
    return f"SELECT {chosen} FROM information_schema.{table}"  # noqa: S608 -- judged when it is run


def _variables(match: re.Match[str], seen: Shown) -> Question:
    columns, rows = ("Variable_name", "Value"), seen.variables
    if match["where"] is None and match["like"] is None:
        return Answer(tuple(Column(name, "VARCHAR") for name in columns), list(rows))
    values = " UNION ALL ".join(f"SELECT {quoted(name)} AS Variable_name, {quoted(value)} AS Value" for name, value in rows)
    return _limited(values, match, "Variable_name")


def _grants(match: re.Match[str], seen: Shown) -> Question:
    who = f"`{seen.analyst}`@`%`"
    return Answer((Column(f"Grants for {seen.analyst}@%", "VARCHAR"),), [(f"GRANT SELECT ON {named(seen.database)}.* TO {who}",)])


def _processes(match: re.Match[str], seen: Shown) -> Question:
    names = ("Id", "User", "Host", "db", "Command", "Time", "State", "Info")
    columns = tuple(Column(name, "BIGINT" if name in ("Id", "Time") else "VARCHAR") for name in names)
    return Answer(columns, [(seen.connection, seen.analyst, "", seen.current, "Query", 0, "", None)])


def _notes(match: re.Match[str], seen: Shown) -> Question:
    first, most = (int(match[name]) if match[name] else None for name in ("offset", "most"))
    listed = seen.notes[first or 0 :]
    return Answer(_titles(*_WARNING), [("Note", _NOTE, line) for line in (listed if most is None else listed[:most])])


def _titles(*columns: str) -> tuple[Column, ...]:
    return tuple(Column(name, "BIGINT" if name == "Code" else "VARCHAR") for name in columns)


def _empty(*columns: str) -> Callable[[re.Match[str], Shown], Question]:
    """Return the answer of what is never there."""
    answer = Answer(_titles(*columns), [])
    return lambda match, seen: answer


def _listing(column: str, text: str) -> Callable[[re.Match[str], Shown], Question]:
    return lambda match, seen: _limited(text, match, column)


def _count(name: str, number: Callable[[Shown], int] = lambda seen: 0) -> Callable[[re.Match[str], Shown], Question]:
    return lambda match, seen: Answer((Column(name, "BIGINT"),), [(number(seen),)])


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


_WARNING = ("Level", "Code", "Message")
_NOTE = 1105
"""Of MySQL's codes the one that says nothing more."""
_ENGINES = ("engines", "Engine", "Support", "Comment", "Transactions", "XA", "Savepoints")
_CHARSETS = ("character_sets", "Charset=character_set_name", "Description", "Default collation=default_collate_name", "Maxlen")
_COLLATIONS = (
    "collations", "Collation=collation_name", "Charset=character_set_name", "Id", "Default=is_default", "Compiled=is_compiled",
    "Sortlen",
)  # fmt: skip
_TRIGGERS = ("Trigger", "Event", "Table", "Statement", "Timing", "Created", "sql_mode", "Definer")
_ROUTINES = ("Db", "Name", "Type", "Definer", "Modified", "Created", "Security_type", "Comment")
_FORMS: list[tuple[re.Pattern[str], Callable[[re.Match[str], Shown], Question]]] = [
    (_form(rf"SHOW(?P<full> FULL)? TABLES{_FROM}{_LIKE}"), _tables),
    (_form(rf"SHOW (?:DATABASES|SCHEMAS){_LIKE}"), _databases),
    (_form(rf"SHOW(?: EXTENDED)?(?P<full> FULL)? (?:COLUMNS|FIELDS) (?:FROM|IN) {_TABLE}{_LIKE}"), _columns),
    (_form(rf"(?:DESCRIBE|DESC|EXPLAIN) {_TABLE}(?: (?P<column>{_NAME}|'(?:[^']|'')*'))?"), _describe),
    (_form(rf"SHOW CREATE (?:TABLE|VIEW) {_TABLE}"), _create),
    (_form(rf"SHOW CREATE (?:DATABASE|SCHEMA) (?:IF NOT EXISTS )?(?P<name>{_NAME})"), _create_database),
    (_form(rf"SHOW(?: EXTENDED)? (?:INDEX|INDEXES|KEYS) (?:FROM|IN) {_TABLE}(?: WHERE .+)?"), _indexes),
    (_form(rf"SHOW TABLE STATUS{_FROM}{_LIKE}"), _table_status),
    (_form(rf"SHOW(?: (?:GLOBAL|SESSION|LOCAL))? VARIABLES{_LIKE}"), _variables),
    (_form(r"SHOW(?: (?:GLOBAL|SESSION|LOCAL))? STATUS(?: (?:LIKE|WHERE) .+)?"), _empty("Variable_name", "Value")),
    (_form(r"SHOW GRANTS(?: FOR CURRENT_USER(?:\(\))?)?"), _grants),
    (_form(r"SHOW(?: FULL)? PROCESSLIST"), _processes),
    (_form(r"SHOW WARNINGS(?: LIMIT (?:(?P<offset>\d+)\s*,\s*)?(?P<most>\d+))?"), _notes),
    (_form(r"SHOW ERRORS(?: LIMIT [\d, ]+)?"), _empty(*_WARNING)),
    (_form(r"SHOW COUNT\(\*\) WARNINGS"), _count("@@session.warning_count", lambda seen: len(seen.notes))),
    (_form(r"SHOW COUNT\(\*\) ERRORS"), _count("@@session.error_count")),
    (_form(r"SHOW(?: STORAGE)? ENGINES"), _listing("Engine", _titled(*_ENGINES))),
    (_form(rf"SHOW (?:CHARACTER SET|CHARSET){_LIKE}"), _listing("Charset", _titled(*_CHARSETS))),
    (_form(rf"SHOW COLLATION{_LIKE}"), _listing("Collation", _titled(*_COLLATIONS))),
    (_form(r"SHOW PLUGINS"), _empty("Name", "Status", "Type", "Library", "License")),
    (_form(r"SHOW PRIVILEGES"), _empty("Privilege", "Context", "Comment")),
    (_form(rf"SHOW TRIGGERS{_FROM}(?: (?:LIKE|WHERE) .+)?"), _empty(*_TRIGGERS)),
    (_form(rf"SHOW EVENTS{_FROM}(?: (?:LIKE|WHERE) .+)?"), _empty("Db", "Name", "Definer", "Time zone", "Type", "Status")),
    (_form(r"SHOW (?:PROCEDURE|FUNCTION) STATUS(?: (?:LIKE|WHERE) .+)?"), _empty(*_ROUTINES)),
    (_form(rf"SHOW OPEN TABLES{_FROM}(?: (?:LIKE|WHERE) .+)?"), _empty("Database", "Table", "In_use", "Name_locked")),
]  # fmt: skip
