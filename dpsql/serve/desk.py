"""The two functions that Quack asks: who comes in with this token, and what is run for this statement."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dpsql.door.closing import debug
from dpsql.serve import errors
from dpsql.serve.answering import Answerer, Outcome, refused
from dpsql.serve.answers import Answers
from dpsql.serve.attaching import told
from dpsql.serve.custodian import Custodian, introduced
from dpsql.serve.limits import BEGUN, Turns
from dpsql.serve.log import Log
from dpsql.serve.sessions import Session, Sessions
from dpsql.serve.settled import Settled
from dpsql.serve.tokens import Analysts

_KEPT = 4
"""Answers that a session may still be reading when it asks again."""


@dataclass
class Desk:
    """Lets analysts in, and gives each statement its answer.

    Parameters
    ----------
    every : float
        Answers to analysts are given at multiples of so many seconds after the statement came; 0: at once.
    patience : float
        Seconds that a call of a custodian's may take.
    home : str, optional
        The database that custodians' sessions have to be told to use.
    """

    analysts: Analysts
    sessions: Sessions
    turns: Turns
    answerer: Answerer
    answers: Answers
    log: Log
    settled: Settled
    every: float = 0.0
    patience: float = math.inf
    home: str | None = None
    closing: bool = False
    sleep: Callable[[float], None] = time.sleep
    busy: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def authenticate(self, key: str, token: str, _server: str) -> bool:
        """Let a session in, if its token is an analyst's or a custodian's."""
        try:
            found = None if self.closing else self.analysts.who(token)
            if found is not None:
                self.answers.drop(self.sessions.open(key, found))
            self.log.write("connect", "refused" if found is None else "in", None if found is None else found.name)
        except Exception as error:
            debug(error)
            return False
        return found is not None

    def authorize(self, key: str, text: str) -> str | None:
        """Return the SQL that is run in place of a statement; None refuses it without a text."""
        begun = time.monotonic()
        with self._guard:
            self.busy += 1
        try:
            return self._authorized(key, text, begun)
        except Exception as error:
            debug(error)
            return refused(text, f"{errors.UNFORESEEN}; {BEGUN}").sql
        finally:
            with self._guard:
                self.busy -= 1

    def _authorized(self, key: str, text: str, begun: float) -> str | None:
        session = self.sessions.find(key)
        if session is None:
            return refused(text, errors.OVER).sql
        if not self.analysts.still(session.token):
            return refused(text, errors.NOBODY).sql
        if self.closing:
            return refused(text, errors.STOPPING).sql
        if session.token.role == "custodian":
            self.settled.statement(key, reads=self.answerer.reads(text))
            self.log.write("statement", "passed", session.name)
            return self._passed(session, text)
        with self.turns.turn(session.name) as given:
            found = self.answerer.answer(session.name, text) if given else refused(text, errors.BUSY)
        self._keep(session, found)
        taken = time.monotonic() - begun
        if self.every:
            waited = math.ceil(taken / self.every) * self.every
            self.sleep(max(0.0, begun + waited - time.monotonic()))
            taken = waited
        self.log.write("statement", found.word, session.name, taken)
        return found.sql

    def _passed(self, session: Session, text: str) -> str:
        """Return a statement of a custodian's as Quack runs it."""
        callers = self.answerer.instance.callers
        first = session.secret not in callers
        callers[session.secret] = Custodian(session.name, self.answerer.clock, self.patience)
        return introduced(told(text, self.answerer.database), session.secret, first=first, home=self.home)

    def sweep(self) -> None:
        """Forget sessions and answers that are too old."""
        self.answers.drop(self.sessions.sweep())
        self.answers.sweep()
        callers = self.answerer.instance.callers
        for secret in set(callers).difference(self.sessions.secrets()):
            callers.pop(secret, None)

    def _keep(self, session: Session, found: Outcome) -> None:
        """Keep the last few answers of a session."""
        if found.answer is None:
            return
        with self._guard:
            session.answers.append(found.answer)
            old, session.answers = session.answers[:-_KEPT], session.answers[-_KEPT:]
        self.answers.drop(old)
