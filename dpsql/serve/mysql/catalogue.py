"""What a client asks of the catalogue: SHOW, DESCRIBE, information_schema, variables, and SELECTs of no table.

All of it is answered from an in-memory database of the analyst's own, which holds names and types of what she may see, and no row.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
from sqlglot import exp

from dpsql.serve.mysql.codes import Fault, fault_of, unknown_database
from dpsql.serve.mysql.judging import allowed
from dpsql.serve.mysql.lexing import LONGEST, Read, read, unquoted
from dpsql.serve.mysql.listed import COLUMNS, SCHEMA, fill
from dpsql.serve.mysql.login import VERSION
from dpsql.serve.mysql.showing import Shown, shown
from dpsql.serve.mysql.translate import filled, headings, parsed, written
from dpsql.serve.mysql.variables import Value, Variables
from dpsql.serve.passed import Answer, Column, Refused, Table

SECONDS: Final = 2.0
"""What a question about the catalogue may take."""
MOST_ROWS: Final = 100_000
MOST_CHARACTERS: Final = 1 << 24
"""Of an answer, in all."""
MOST_REPEATED, LONGEST_REPEATED = 4, 1 << 16
LONGEST_VALUE: Final = 512
"""Characters of a text that is written, or put together, where there are rows: each of them has its own."""

_CATALOGUES = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
_PLAN = re.compile(
    r"(?:EXPLAIN|DESCRIBE|DESC)\s*(?:\(|\s(?:SELECT|WITH|VALUES|TABLE|ANALYZE|FORMAT|EXTENDED|PARTITIONS|INSERT|UPDATE|DELETE|REPLACE|FOR)\b)"
    r"|(?:ANALYZE|PROFILE)\b",
    re.IGNORECASE,
)
_SETS = re.compile(r"SET\s", re.IGNORECASE)
_SHOWS = re.compile(r"(?:SHOW|DESCRIBE|DESC|EXPLAIN)\b", re.IGNORECASE)
_VERSIONED = re.compile(
    r"\A\s*(?:(?P<show>SHOW\s+)/\*!\d{5,6}\s+(?P<which>FULL|GLOBAL|SESSION)\s*\*/|/\*!\d{5,6}\s+(?P<set>SET\s(?:(?!\*/).)*)\*/\s*\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""The comments that are run of which clients make a SHOW, and whole SETs."""
_TRANSACTIONS = re.compile(
    r"(?P<open>START\s+TRANSACTION(?:[\s,]+(?:READ\s+(?:ONLY|WRITE)|WITH\s+CONSISTENT\s+SNAPSHOT))*|BEGIN(?:\s+WORK)?)"
    r"|(?:COMMIT|ROLLBACK)(?:\s+WORK)?(?:\s+AND\s+(?:NO\s+)?CHAIN)?(?:\s+(?:NO\s+)?RELEASE)?",
    re.IGNORECASE,
)
_KILL = re.compile(r"KILL\s+(?:(?P<hard>CONNECTION)\s+|(?P<soft>QUERY)\s+)?(?P<id>\d+)", re.IGNORECASE)
_USE = re.compile(r"USE\s+(?P<name>`(?:[^`]|``)+`|[\w$]+)", re.IGNORECASE)
_ODBC_SELECTED = """
table_schema AS TABLE_CAT, NULL AS TABLE_SCHEM, table_name AS TABLE_NAME, column_name AS COLUMN_NAME, CASE data_type WHEN 'tinyint'
THEN -6 WHEN 'smallint' THEN 5 WHEN 'int' THEN 4 WHEN 'bigint' THEN -5 WHEN 'blob' THEN -4 WHEN 'decimal' THEN 3 WHEN 'float' THEN 7
WHEN 'double' THEN 8 WHEN 'date' THEN 91 WHEN 'time' THEN 92 WHEN 'datetime' THEN 93 ELSE -9 END AS DATA_TYPE, UPPER(data_type) AS
TYPE_NAME, CASE data_type WHEN 'float' THEN 7 WHEN 'double' THEN 15 WHEN 'date' THEN 10 WHEN 'time' THEN 8 WHEN 'datetime' THEN 26
ELSE COALESCE(numeric_precision, character_maximum_length) END AS COLUMN_SIZE, CASE data_type WHEN 'tinyint' THEN 1 WHEN 'smallint'
THEN 2 WHEN 'int' THEN 4 WHEN 'bigint' THEN 20 WHEN 'decimal' THEN numeric_precision + 2 WHEN 'float' THEN 4 WHEN 'double' THEN 8
WHEN 'date' THEN 6 WHEN 'time' THEN 6 WHEN 'datetime' THEN 16 ELSE character_octet_length END AS BUFFER_LENGTH, numeric_scale AS
DECIMAL_DIGITS, CASE WHEN character_octet_length IS NULL THEN 10 END AS NUM_PREC_RADIX, 1 AS NULLABLE, column_comment AS REMARKS,
column_default AS COLUMN_DEF, CASE data_type WHEN 'tinyint' THEN -6 WHEN 'smallint' THEN 5 WHEN 'int' THEN 4 WHEN 'bigint' THEN -5
WHEN 'blob' THEN -4 WHEN 'decimal' THEN 3 WHEN 'float' THEN 7 WHEN 'double' THEN 8 WHEN 'date' THEN 9 WHEN 'time' THEN 9 WHEN
'datetime' THEN 9 ELSE -9 END AS SQL_DATA_TYPE, CASE data_type WHEN 'date' THEN 1 WHEN 'time' THEN 2 WHEN 'datetime' THEN 3 END AS
SQL_DATETIME_SUB, character_octet_length AS CHAR_OCTET_LENGTH, ordinal_position AS ORDINAL_POSITION, is_nullable AS IS_NULLABLE"""
"""The columns of ODBC's SQLColumns, of which a driver asks with variables that it assigns on the way."""
_ODBC_COLUMNS = re.compile(
    r"SELECT\s+TABLE_SCHEMA\s+AS\s+TABLE_CAT\s*,.*@dt\s*:=.*?\sFROM\s+(?P<from>INFORMATION_SCHEMA\.COLUMNS\s.*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass
class Session:
    """What one connection has: who and where it is, its variables.

    Parameters
    ----------
    analyst : str
    connection : int
    database : str
        The served database's name for clients.
    current : str
        Where names without a database are looked up.
    notes : tuple of str
        What is to be said beside the answer of the last question: SHOW WARNINGS lists it.
    """

    analyst: str
    connection: int
    database: str
    current: str
    variables: Variables = field(default_factory=Variables)
    transaction: bool = False
    over: bool = False
    notes: tuple[str, ...] = ()

    @property
    def user(self) -> str:
        """What USER() is."""
        return f"{self.analyst}@%"


DONE: Final = Answer((), ())
"""What a statement without rows is answered."""


class Catalogue:
    """The catalogue of one analyst."""

    def __init__(self, database: str, tables: Sequence[Table], *, seconds: float = SECONDS) -> None:
        self.database, self.tables, self._seconds = database, tuple(tables), seconds
        settings: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": "64MB", "temp_directory": ""}
        self._connection = duckdb.connect(":memory:", config=settings)
        fill(self._connection, database, self.tables)
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._one = threading.Lock()

    def answer(self, session: Session, text: str, parameters: Sequence[Any] = ()) -> Answer | None:
        """Answer a statement; None: it asks of tables, or of what is not on this list, and the room answers it.

        Raises
        ------
        Refused, Fault
        """
        rewritten = _read(text)
        if len(rewritten.statements) > 1:
            if not all(map(_SETS.match, rewritten.statements)):
                raise Refused("unsupported", "one statement at a time: a text with several is not answered")
            for statement in rewritten.statements:
                self._set(session, statement)
            return DONE
        if _SETS.match(rewritten.text):
            self._set(session, rewritten.text)
            return DONE
        return self._command(session, rewritten.text) or self._asked(session, rewritten, parameters)

    def described(self, session: Session, text: str, parameters: Sequence[Any]) -> tuple[Column, ...] | None:
        """Return the columns of an answer, and do nothing; None: the room knows them."""
        rewritten = _read(text)
        if len(rewritten.statements) == 1 and any(form.match(rewritten.text) for form in (_SETS, _TRANSACTIONS, _KILL, _USE)):
            return ()
        answer = self._asked(session, rewritten, parameters)
        return None if answer is None else answer.columns

    def _asked(self, session: Session, rewritten: Read, parameters: Sequence[Any]) -> Answer | None:
        """Answer a question of any form; None: it is the room's."""
        if _PLAN.match(rewritten.text):
            raise Refused("unsupported", "the plan of a question is not shown: dp_plan says what it would cost")
        if _SHOWS.match(rewritten.text):
            return self._show(session, rewritten.text)
        return self._question(session, rewritten, parameters)

    def fields(self, session: Session, name: str) -> tuple[Column, ...]:
        """Return the columns of a table, for the list of fields that a shell completes from."""
        return self._seen(session).table(None, name).columns

    def use(self, session: Session, name: str) -> None:
        """Go to a database: the served one, or `information_schema`; raises `Fault`."""
        for known in (self.database, "information_schema"):
            if name.lower() == known.lower():
                session.current = known
                return
        raise unknown_database(name[:64])

    def _command(self, session: Session, text: str) -> Answer | None:
        """Do what is no question; None: it is one."""
        transaction = _TRANSACTIONS.fullmatch(text)
        if transaction is not None:
            session.transaction = transaction["open"] is not None
            return DONE
        used = _USE.fullmatch(text)
        if used is not None:
            self.use(session, unquoted(used["name"]))
            return DONE
        killed = _KILL.fullmatch(text)
        if killed is not None:
            if int(killed["id"]) != session.connection:
                raise Fault(1095, "HY000", "You are not owner of this thread: a connection ends itself alone")
            session.over = killed["soft"] is None
            return DONE
        return None

    def _set(self, session: Session, text: str) -> None:
        session.variables.put(text[3:].strip(), lambda expression: self._value(session, expression))

    def _value(self, session: Session, expression: str) -> Value:
        """Return the value of an expression without tables."""
        answer = self._question(session, read(f"SELECT {expression}"), ())
        if answer is None or len(answer.rows) != 1 or len(answer.columns) != 1:
            raise Refused("unsupported", "this value of a variable is not understood")
        value = answer.rows[0][0]
        return value if value is None or isinstance(value, int) else str(value)

    def _show(self, session: Session, text: str) -> Answer:
        question = shown(text, self._seen(session))
        if isinstance(question, Answer):
            return question
        answer = self._question(session, read(question), ())
        if answer is None:
            raise Refused("unsupported", "this SHOW is not answered with such a condition")
        return answer

    def _seen(self, session: Session) -> Shown:
        variables = session.variables.listed()
        return Shown(self.database, session.current, session.analyst, session.connection, self.tables, variables, session.notes)

    def _question(self, session: Session, rewritten: Read, parameters: Sequence[Any]) -> Answer | None:
        columns = _ODBC_COLUMNS.fullmatch(rewritten.text)
        if columns is not None:
            rewritten = read(f"SELECT {_ODBC_SELECTED} FROM {columns['from']}")  # noqa: S608 -- judged below
        tree = parsed(rewritten)
        # of tables of the catalogue, or of none: whatever names another table is the room's
        tables = list(tree.find_all(exp.Table))
        inside = session.current == "information_schema"
        ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        listed = [table for table in tables if _listed(table, ctes, inside=inside)]
        if not listed and any(not (_dual(table) or (not table.text("db") and table.name.lower() in ctes)) for table in tables):
            return None
        # from here on it is answered here, by a database that holds names and types alone
        names = headings(tree, rewritten)
        tree = filled(tree, parameters, rewritten.places)
        if sum(1 for _ in tree.find_all(exp.Repeat)) > MOST_REPEATED:
            raise Refused("refused", f"REPEAT stands at most {MOST_REPEATED} times in a question")
        tree = _placed(tree, session, ctes, inside=inside)
        text = written(tree if _is_one_row(tree) else _bounded(tree), names)
        return self._run(text, of_tables=bool(listed))

    def _run(self, text: str, *, of_tables: bool) -> Answer | None:
        """Run a question over the catalogue; None: not one that is on the list, and no table of the catalogue is in it."""
        with self._one, self._connection.cursor() as cursor:
            clock = threading.Timer(self._seconds, cursor.interrupt)
            clock.daemon = True
            clock.start()
            try:
                if not allowed(cursor, text):
                    if of_tables:
                        raise Refused("unsupported", "this question about information_schema is not answered: use plain conditions")
                    return None
                cursor.execute(text)
                columns = tuple(Column(name, str(kind)) for name, kind, *_ in cursor.description or ())
                rows = _fetched(cursor)
            except duckdb.Error as error:
                raise _told(error) from None
            finally:
                clock.cancel()
        return Answer(columns, rows)


def _read(text: str) -> Read:
    """Return a text that was written again; the comments that are run which clients send are what is in them."""
    if len(text) <= LONGEST:
        text = _VERSIONED.sub(lambda match: match["set"] or f"{match['show']}{match['which']}", text)
    return read(text)


def _fetched(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Return the rows of an answer, while they are few and short."""
    rows: list[tuple[Any, ...]] = []
    characters = 0
    while (row := cursor.fetchone()) is not None:
        rows.append(row)
        characters += sum(len(value) for value in row if isinstance(value, str))
        if len(rows) > MOST_ROWS or characters > MOST_CHARACTERS:
            raise Refused("refused", f"an answer from the catalogue has at most {MOST_ROWS} rows, and {MOST_CHARACTERS} characters")
    return rows


def _told(error: duckdb.Error) -> Fault:
    """Return what is said of an error of DuckDB's: nothing of its own words."""
    if isinstance(error, duckdb.InterruptException):
        return fault_of(Refused("stopped", "Query execution was interrupted: a question about the catalogue took too long"))
    if isinstance(error, duckdb.CatalogException):
        return Fault(1109, "42S02", "Unknown table in information_schema")
    if isinstance(error, duckdb.BinderException):
        return Fault(1054, "42S22", "Unknown column, or one that is not in the groups, in a question about the catalogue")
    return fault_of(Refused("unsupported", "this question about the catalogue is not answered"))


def _dual(table: exp.Table) -> bool:
    return table.name.upper() == "DUAL" and not table.text("db")


def _listed(table: exp.Table, ctes: set[str], *, inside: bool) -> bool:
    place = table.text("db").lower()
    return place in _CATALOGUES if place else inside and not _dual(table) and table.name.lower() not in ctes


def _placed(tree: exp.Expression, session: Session, ctes: set[str], *, inside: bool) -> exp.Expression:
    """Return a tree over the tables of the catalogue's database, with the session's values in it."""
    for table in list(tree.find_all(exp.Table)):
        if not _listed(table, ctes, inside=inside):
            continue
        if table.text("db").lower() not in ("", "information_schema"):
            raise Fault(1142, "42000", f"SELECT command denied for table '{table.name[:64]}'")
        if table.name.lower() not in COLUMNS:
            raise Fault(1109, "42S02", f"Unknown table '{table.name[:64]}' in information_schema")
        alias = table.alias
        table.replace(exp.alias_(exp.table_(table.name.lower(), db=SCHEMA), alias or table.name, table=True))
    for column in tree.find_all(exp.Column):
        column.set("db", None)

    def value(node: exp.Expression) -> exp.Expression:
        known = _session_value(node, session)
        return node if known is node else _constant(known)

    return tree.transform(value)


def _session_value(node: exp.Expression, session: Session) -> Any:
    """Return the value of a function or variable of the session; the node itself where it is none."""
    if isinstance(node, exp.SessionParameter):
        return len(session.notes) if node.name.lower() == "warning_count" else session.variables.get(node.name)
    if isinstance(node, exp.CurrentSchema | exp.CurrentDatabase):
        return session.current
    if isinstance(node, exp.CurrentUser | exp.SessionUser):
        return session.user
    if isinstance(node, exp.CurrentVersion):
        return VERSION
    if isinstance(node, exp.Anonymous) and not node.expressions:
        known: dict[str, Any] = {
            "DATABASE": session.current, "SCHEMA": session.current, "USER": session.user, "SESSION_USER": session.user,
            "SYSTEM_USER": session.user, "CURRENT_USER": session.user, "CURRENT_ROLE": "NONE", "VERSION": VERSION,
            "CONNECTION_ID": session.connection, "LAST_INSERT_ID": 0, "ROW_COUNT": -1, "FOUND_ROWS": 0,
        }  # fmt: skip
        return known.get(node.name.upper(), node)
    return _repeated(node) if isinstance(node, exp.Repeat) else node


def _repeated(node: exp.Repeat) -> Any:
    """Return a text that is repeated, where both are written out and it stays short."""
    what, times = node.this, node.args.get("times")
    if not (isinstance(what, exp.Literal) and isinstance(times, exp.Literal) and times.name.isdigit()):
        return node
    if len(times.name) > 9 or len(what.name) * int(times.name) > LONGEST_REPEATED:
        raise Refused("refused", f"REPEAT makes at most {LONGEST_REPEATED} characters")
    return what.name * int(times.name)


def _constant(value: Any) -> exp.Expression:
    if value is None:
        return exp.null()
    if isinstance(value, int):
        return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
    return exp.Literal.string(str(value))


def _is_one_row(tree: exp.Expression) -> bool:
    """Return whether it is a SELECT of nothing but its own words, no text of which can be taken more than once."""
    return isinstance(tree, exp.Select) and sum(1 for _ in tree.find_all(exp.Select, exp.From, exp.Values)) == 1


def _bounded(tree: exp.Expression) -> exp.Expression:
    """Return a tree whose texts stay short, so that none doubles with every step, or is written into every row."""
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and len(literal.name) > LONGEST_VALUE:
            raise Refused("refused", f"a text in a question about the catalogue has at most {LONGEST_VALUE} characters")
    for node in list(tree.find_all(exp.Concat, exp.ConcatWs, exp.DPipe)):
        if not isinstance(node.parent, exp.Left):
            node.replace(exp.Left(this=node.copy(), expression=exp.Literal.number(LONGEST_VALUE)))
    return tree
