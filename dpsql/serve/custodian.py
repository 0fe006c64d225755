"""Custodians over the wire: their statements are Quack's to run; the calls in them are theirs by name, and end with a plain text.

Quack tells neither its own connection nor a function in it whose session it is. So a session's first statement, and each that
may hold a call, sets a variable of the session before it, to a secret of the session, which the macros pass on. A custodian who
sets it to something else is one without a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import duckdb

from dpsql.door.closing import closed
from dpsql.running.interruption import Stopped
from dpsql.serve import errors
from dpsql.serve.limits import NOTHING, Clock, Statement
from dpsql.session.instance import CUSTODIAN
from dpsql.text.relation import identifier, literal

UNNAMED = "custodian"
"""Whoever set the variable to something else, for the ledger."""
_CALL = "dp_"


@dataclass(frozen=True)
class Custodian:
    """Who a statement of a custodian's is of, and how long a call in it may take.

    Parameters
    ----------
    name : str
        As in the file of tokens.
    seconds : float
        What a call may take; infinite: as long as it takes.
    """

    name: str
    clock: Clock
    seconds: float = math.inf

    @property
    def who(self) -> str:
        """Return what the ledger calls her."""
        return f"{CUSTODIAN}{self.name}"

    def answered(self, call: Callable[[], str]) -> str:
        """Run a call and return the relation that answers it.

        An error of a SQL function comes with DuckDB's and Python's words around it. So what is returned instead is a relation that
        fails with the text alone, while it is bound: before anybody asks for its columns.
        """
        statement = Statement(None)
        try:
            with self.clock.limited(statement, self.seconds), statement.calling():
                return call()
        except (Stopped, duckdb.InterruptException) as error:
            books = str(error) if isinstance(error, Stopped) else NOTHING
            late = math.isfinite(self.seconds)
            return failing(errors.STOPPED.format(seconds=self.seconds, books=books) if late else books)
        except Exception as error:
            return failing(str(closed(error)))


def failing(text: str) -> str:
    """Return a relation that fails with this text as soon as it is bound."""
    return f"range(system.main.error({literal(text)})::BIGINT)"


def introduced(text: str, key: str, *, first: bool, home: str | None = None) -> str:
    """Return a statement of a custodian's as Quack runs it: with her session's secret before it, where it may hold a call.

    Others stay as they are: only a ROLLBACK alone ends a transaction that has failed.

    Parameters
    ----------
    first : bool
        Whether it is the first statement of its session.
    home : str, optional
        The database that the session is to use.
    """
    if not first and _CALL not in text.lower():
        return text
    use = f"USE {identifier(home)}; " if first and home is not None else ""
    return f"{use}SET VARIABLE dpsql_caller = {literal(key)}; {text}"
