"""One statement of an analyst: checked, its calls bought or read, its answer kept for Quack to hand over.

Nothing of an analyst's text is executed as it is: `dpsql.serve.gate` gives the SQL that is, over calls and what she may see. It
runs on a cursor of dpsql's own. Quack's connection only ever reads a finished answer, or raises an error of a closed list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from dpsql.books.grants import Grants
from dpsql.books.schema import Books
from dpsql.door import dispatch
from dpsql.door.closing import debug
from dpsql.errors import DpsqlError, StoreError, first_line
from dpsql.running.interruption import Stopped
from dpsql.serve import errors
from dpsql.serve.answers import Answers, relation
from dpsql.serve.gate import Accepted, Refused, decide, view_of
from dpsql.serve.gate.reasons import Refusal
from dpsql.serve.gate.walk import parsed
from dpsql.serve.limits import NOTHING, Clock, Statement
from dpsql.serve.worded import worded
from dpsql.session.instance import Instance
from dpsql.source.listed import Functions
from dpsql.text.relation import identifier, literal

VIEW = "__dpsql_answer_"
"""What the gate's SQL calls the answers of its calls: this and their number."""
_WHOLE = re.compile(rf'(?:SELECT \* )?FROM "?temp"?\.main\."?{VIEW}0"?(?: AS (?:\w+|"[^"]+"))?(?: LIMIT \d+)?')
MOST_LETTERS = 100_000
_APPENDS = "INSERT INTO "


@dataclass(frozen=True)
class Outcome:
    """What became of a statement: the SQL that Quack runs, a word for the log, and the name of the answer if there is one."""

    sql: str | None
    word: str
    answer: str | None = None


@dataclass(frozen=True)
class Answerer:
    """Answers statements of analysts.

    Parameters
    ----------
    instance : Instance
        Of the database.
    database, schema : str
        What unqualified names mean.
    functions : Functions
        What is known of those of the database.
    books : tuple
        What `Books` takes as ``current``.
    hidden : sequence of str
        Texts that no error shows: paths.
    """

    instance: Instance
    database: str
    schema: str
    clock: Clock
    answers: Answers
    functions: Functions
    books: tuple[set[object], object]
    hidden: Sequence[str] = ()

    def answer(self, analyst: str, text: str) -> Outcome:
        """Return what Quack is to run in place of a statement."""
        if len(text) > MOST_LETTERS:
            return refused(text, errors.TOO_LONG.format(most=MOST_LETTERS))
        statement = Statement(None)
        try:
            with self.instance.borrowed() as cursor:
                statement = Statement(cursor)
                with self.clock.limited(statement):
                    return self._answered(cursor, statement, analyst, text)
        except (Stopped, duckdb.InterruptException) as error:
            books = errors.said(str(error) if isinstance(error, Stopped) else NOTHING, self.hidden)
            told = errors.SHORT if statement.short else errors.STOPPED
            return refused(text, told.format(seconds=self.clock.seconds, books=books), "stopped")
        except Exception as error:
            if not isinstance(error, DpsqlError):
                debug(error)
            told = errors.told(error, self.hidden)
            if isinstance(error, DpsqlError) and not errors.of_machine(error):
                return refused(text, told)
            return refused(text, f"{told}; {statement.text()}", "failed")

    def reads(self, text: str) -> bool:
        """Return whether a text is nothing but SELECT."""
        try:
            with self.instance.borrowed() as cursor:
                parsed(cursor, text)
        except (Refusal, duckdb.Error):
            return False
        return True

    def _answered(self, cursor: duckdb.DuckDBPyConnection, statement: Statement, analyst: str, text: str) -> Outcome:
        grants = Grants(cursor, self.database, Books(cursor, self.database, current=self.books))
        granted, published = grants.of(analyst), grants.published()
        view = view_of(cursor, self.database, self.schema, analyst, granted, published, self.functions, grants.books)
        found = decide(text, view)
        if isinstance(found, Refused):
            return refused(text, errors.said(found.reason, self.hidden))
        try:
            return self._run(cursor, statement, analyst, found)
        except DpsqlError as error:
            if isinstance(error, StoreError) or errors.of_machine(error):
                raise
            return refused(text, errors.said(worded(first_line(error), text, view), self.hidden))

    def _run(self, cursor: duckdb.DuckDBPyConnection, statement: Statement, analyst: str, accepted: Accepted) -> Outcome:
        sql, views = accepted.sql, []
        for number, call in enumerate(accepted.calls):
            view, place = identifier(f"{VIEW}{number}"), {"database": self.database, "schema": self.schema}
            with statement.calling():
                found = dispatch.run(self.instance, call.name, call.arguments, **place, progress=False, analyst=analyst)
            if sql == f"FROM temp.main.{view}":  # it is the whole answer
                sql = f"FROM {found}"
            else:
                cursor.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS FROM {found}")
                views.append(view)
        with self.clock.own(statement, more=not takes(accepted.sql)):
            name = self.answers.keep(cursor, sql, analyst)
        for view in views:
            cursor.execute(f"DROP VIEW temp.main.{view}")
        return Outcome(f"FROM {relation(name)}", "answered", name)


def takes(sql: str) -> bool:
    """Return whether SQL of the gate's does no more than take what a call gave."""
    return _WHOLE.fullmatch(sql) is not None


def refused(text: str, told: str, word: str = "refused") -> Outcome:
    """Return the refusal of a statement.

    Rows that a client appends are announced by an INSERT, and come in unless NULL is returned: other SQL that is returned is
    not run then. So a refusal of an INSERT has no text of its own; Quack says "Authorization failed".
    """
    if text.lstrip()[: len(_APPENDS)].upper() == _APPENDS:
        return Outcome(None, word)
    return Outcome(f"SELECT error({literal(told)})", word)


