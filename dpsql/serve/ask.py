"""The room: one statement of an analyst comes in, an answer or a refusal goes out. All policy is here, and no wire.

Nothing of an analyst's text is run as it is: `dpsql.serve.gate` gives the SQL that is, over calls and what she may see. It runs on
cursors of dpsql's own, whose settings nobody else changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import duckdb

from dpsql.books.schema import Books
from dpsql.errors import DpsqlError
from dpsql.purchase.uses import Paid
from dpsql.running.interruption import Stopped
from dpsql.serve import errors
from dpsql.serve.again import Again, Who, key_of, who_asks
from dpsql.serve.calling import called, nothing
from dpsql.serve.copy import EmptyCopy, columns_of, rows_of
from dpsql.serve.gate.calls import BUYING
from dpsql.serve.gate.decide import Accepted, decide, places
from dpsql.serve.gate.seen import view_of
from dpsql.serve.gate.view import GRANTED, View
from dpsql.serve.limits import NOTHING, Limits, Statement, Turns, limited
from dpsql.serve.passed import Answer, Column, Dialect, Grants, Refused, Table
from dpsql.session.instance import Instance
from dpsql.source.listed import Functions

Given = TypeVar("Given")
Work = Callable[[duckdb.DuckDBPyConnection, Statement, View], Given]


class Ask:
    """Answers statements of analysts: `dpsql.serve.passed.Room`.

    Parameters
    ----------
    instance : Instance
        Of the database, which ``dpsql.load`` has registered.
    catalog : str
        The name that the served database is attached under.
    grants : Grants
        Who may ask about what.
    database : str, optional
        The name under which analysts know it, if another one.
    limits : Limits, optional
    log : callable, optional
        Called after each question with who asked, what became of it, what it has paid for, and the seconds that it took.
    alone : bool
        Whether nothing but this room changes the database, so that answers can be given again from memory (`dpsql.serve.again`).
    """

    def __init__(
        self,
        instance: Instance,
        catalog: str,
        grants: Grants,
        *,
        database: str | None = None,
        limits: Limits | None = None,
        log: Callable[[str, str, list[Paid], float], object] | None = None,
        alone: bool = False,
    ) -> None:
        self._log = log
        self._again = Again(instance) if alone else None
        self.database = database or catalog
        self._instance, self._catalog, self._grants = instance, catalog, grants
        self._limits = limits or Limits()
        self._turns = Turns(self._limits)
        self._copy = EmptyCopy(catalog)

    def ask(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> Answer:
        """Answer one statement; raises `Refused` and nothing else."""
        paid: list[Paid] = []
        again = self._again
        # known by her grants too: with others the same text is another question
        key = key_of(self._who(analyst), text, dialect, parameters)

        # judged and run in one turn, under one view: what she may see cannot change in between
        def work(cursor: duckdb.DuckDBPyConnection, statement: Statement, view: View) -> Answer:
            statement.paid = paid
            with limited(statement, self._limits.seconds):
                accepted = _decided(text, dialect, parameters, view)
            buys = not accepted.probe and any(call.name in BUYING for call in accepted.calls)
            # a purchase may take longer than what only looks
            with limited(statement, self._limits.buying if buys else self._limits.seconds):
                if accepted.probe:
                    return self._probed(statement, view, accepted)
                answer, texts = self._run(cursor, statement, view, accepted)
            if again is not None:
                again.keep(key, accepted, texts, answer)
            return answer

        outcome, begun = "answered", time.monotonic()
        try:
            remembered_answer = None if again is None else again.get(key)
            return self._in_turn(analyst, work) if remembered_answer is None else remembered_answer
        except Refused as refused:
            outcome = refused.kind
            raise
        finally:
            if self._log is not None:
                self._log(analyst, outcome, paid, time.monotonic() - begun)

    def describe(self, analyst: str, text: str, dialect: Dialect = "duckdb", parameters: Sequence[Any] = ()) -> tuple[Column, ...]:
        """Return the columns that `ask` would give; nothing is bought and no row is read."""

        def work(_: duckdb.DuckDBPyConnection, statement: Statement, view: View) -> tuple[Column, ...]:
            with limited(statement, self._limits.seconds):
                return self._described(statement, view, _decided(text, dialect, parameters, view))

        return self._in_turn(analyst, work)

    def places(self, analyst: str, text: str) -> int:
        """Return how many values a statement takes for its parameters; it is parsed, and nothing else."""

        def work(cursor: duckdb.DuckDBPyConnection, statement: Statement, _: View) -> int:
            with limited(statement, self._limits.seconds):
                return places(cursor, text)

        return self._in_turn(analyst, work)

    def schema(self, analyst: str) -> tuple[Table, ...]:
        """Return what an analyst may see: names and types."""

        def work(_: duckdb.DuckDBPyConnection, statement: Statement, view: View) -> tuple[Table, ...]:
            with limited(statement, self._limits.seconds):
                return tuple(
                    Table(e.schema, e.name, tuple(Column(*c) for c in view.columns(e)), e.is_view, e.status == GRANTED)
                    for e in view.all()
                )

        if self._again is None:
            return self._in_turn(analyst, work)
        return self._again.seen(self._who(analyst), lambda: self._in_turn(analyst, work))

    def _who(self, analyst: str) -> Who:
        return who_asks(analyst, self._grants.granted(analyst), self._grants.public())

    def _in_turn(self, analyst: str, work: Work[Given]) -> Given:
        with self._turns.turn(analyst) as admitted:
            if not admitted:
                raise Refused("busy", errors.BUSY)
            return self._guarded(analyst, work)

    def _guarded(self, analyst: str, work: Work[Given]) -> Given:
        """Do the work on a cursor of its own; whatever is raised becomes a refusal of the list."""
        view: View | None = None
        statement: Statement | None = None
        try:
            with self._cursor() as cursor:
                view, statement = self._view(cursor, analyst), Statement(cursor)
                return work(cursor, statement, view)
        except Refused:
            raise
        except (Stopped, duckdb.InterruptException) as error:
            # what was charged before it was stopped is hers to know
            books = errors.said(str(error) if isinstance(error, Stopped) else NOTHING)
            seconds = self._limits.seconds if statement is None else statement.seconds
            refused = Refused("stopped", errors.STOPPED.format(seconds=seconds, books=books))
        except Exception as error:
            hidden = self._hidden(analyst) if isinstance(error, DpsqlError) else ()
            refused = errors.told(error, hidden, of_view=view is not None and view.reads_views)
        raise refused from None

    def _view(self, cursor: duckdb.DuckDBPyConnection, analyst: str) -> View:
        functions = self._instance.remembered.setdefault("functions", Functions())
        granted, public = self._grants.granted(analyst), self._grants.public()
        return view_of(cursor, self._catalog, analyst, granted, public, functions, self._copy.binds, shown=self.database)

    def _hidden(self, analyst: str) -> list[str]:
        """Return what no text of an error may hold: paths, and releases of others."""
        with self._cursor() as cursor:
            rows = cursor.execute("SELECT path FROM system.main.duckdb_databases() WHERE path IS NOT NULL").fetchall()
            others = set(Books(cursor, self._catalog).sold())
            with suppress(DpsqlError):  # books that were edited show nobody's
                others -= set(self._view(cursor, analyst).releases())
        return [*(str(path) for (path,) in rows), str(self._instance.store or self._instance.temporary or ""), *others]

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a cursor of dpsql's own; after an error it is closed."""
        cursor = self._instance.take()
        try:
            yield cursor
        except BaseException:
            with suppress(duckdb.Error):
                cursor.close()
            raise
        self._instance.give(cursor)

    def _run(
        self, cursor: duckdb.DuckDBPyConnection, statement: Statement, view: View, accepted: Accepted
    ) -> tuple[Answer, list[str]]:
        """Return the answer of a statement, and those of its calls."""
        if accepted.calls and not accepted.whole:
            self._bound(statement, view, accepted)
        answers: list[str] = []
        notes: list[str] = []
        for call in accepted.calls:
            beside: list[str] = []  # of this call alone: it is remembered with its answer
            try:
                with statement.calling():
                    answers.append(called(self._instance, self._catalog, view, call, statement.paid, beside))
            except DpsqlError:
                if view.reads_views and accepted.whole:  # she sees the columns that it has: others can be told
                    self._in_copy(statement, view, accepted.own, columns_of)
                raise
            notes += beside
        try:
            answer = self._read(cursor, accepted.over(answers))
            # of a published view notes would name the columns and tables behind it
            return answer if view.reads_views else replace(answer, notes=tuple(dict.fromkeys(notes))), answers
        except (duckdb.BinderException, duckdb.CatalogException):
            self._bound(statement, view, accepted)
            raise

    def _read(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> Answer:
        columns = columns_of(cursor, sql)
        rows = cursor.execute(sql).fetchmany(self._limits.rows + 1)
        if len(rows) > self._limits.rows:
            raise Refused("refused", errors.TOO_LARGE.format(rows=self._limits.rows))
        return Answer(columns, rows)

    def _described(self, statement: Statement, view: View, accepted: Accepted) -> tuple[Column, ...]:
        """Return the columns of a statement, bound in the empty copy over answers without rows."""
        answers = [nothing(self._instance, self._catalog, view, call) for call in accepted.calls]
        return self._in_copy(statement, view, accepted.over(answers), columns_of)

    def _probed(self, statement: Statement, view: View, accepted: Accepted) -> Answer:
        """Answer a statement that needs no row from the empty copy."""
        columns = self._described(statement, view, accepted)
        sql = accepted.own  # what dp_query would be asked, over tables without rows
        if not accepted.whole:
            sql = accepted.over([nothing(self._instance, self._catalog, view, call) for call in accepted.calls])
        return Answer(columns, self._in_copy(statement, view, sql, lambda cursor, sql: rows_of(cursor, sql, columns)))

    def _bound(self, statement: Statement, view: View, accepted: Accepted) -> None:
        """Bind a statement before anything is bought for it.

        Raises
        ------
        Refused
            A name in it is not known.
        """
        if all(call.name not in ("marginals", "synthesize") for call in accepted.calls):
            self._described(statement, view, accepted)

    def _in_copy(
        self, statement: Statement, view: View, sql: str, work: Callable[[duckdb.DuckDBPyConnection, str], Given]
    ) -> Given:
        with self._copy.cursor(view) as cursor, statement.also(cursor):
            try:
                return work(cursor, sql)
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                raise errors.unbound(error) from None


def _decided(text: str, dialect: Dialect, parameters: Sequence[Any], view: View) -> Accepted:
    """Return what is run for a statement; only DuckDB's text of it is judged."""
    if dialect != "mysql":
        return decide(text, view, parameters)
    from dpsql.serve.mysql.translate import to_duckdb

    try:
        translated = to_duckdb(text, parameters)
    except Refused:
        raise
    except Exception:
        raise Refused("syntax", errors.UNTRANSLATED) from None
    return decide(translated, view, attached=True)
