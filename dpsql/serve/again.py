"""Answers of the room that are given again from memory: a chart that is drawn a hundred times costs a look at a file.

A served database is changed by nothing but the calls that analysts make: one process owns the file, its configuration is locked,
and no statement of an analyst writes. So what a name means, what the books say of a release that was sold, and an analyst's grants
in the books stay as they are while it is served, and an answer that was made of sold releases alone is the same at any time. Kept
is such an answer alone, and only where

- all that it reads are answers of calls that buy, each of them one that is remembered (`dpsql.answers.remembered`);
- no hour stands in it in place of a clock (`dpsql.serve.gate.clock`), and what is run reads no clock and draws nothing;
- it is given to the same analyst, while the file of analysts says the same of her and of what is public, for the same text, dialect
  and values;
- no file that it was made of has been touched.

Privacy: free. Whoever gets an answer again got it before. How fast it comes says only that she has asked for it before.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dpsql.answers import remembered
from dpsql.serve.gate import clock
from dpsql.serve.gate.calls import BUYING
from dpsql.serve.gate.decide import Accepted
from dpsql.serve.passed import Answer, Table
from dpsql.session.instance import Instance

MOST = 512
"""Answers that are kept; the one that was asked for longest ago is forgotten."""
CELLS = 200_000
"""Values in all of them; one answer has a tenth at most."""

WORDS = clock.WORDS | {
    "current_catalog", "current_role", "current_schema", "current_time", "current_user", "localtime", "sample", "session_user",
    "tablesample", "user",
}  # fmt: skip
"""What depends on more than its arguments and is written without brackets."""
FUNCTIONS = clock.MOMENTS | clock.DAYS | {
    "age", "ago", "current_localtime", "gen_random_uuid", "get_current_time", "random", "uuid", "uuidv4", "uuidv7",
}  # fmt: skip
"""Functions on the gate's list that read a clock, or draw; `age` of one moment does."""
_NAME = re.compile(r'(\w+)("?\s*\()?')
Who = tuple[str, tuple[tuple[str, float], ...], tuple[str, ...]]
Key = tuple[Who, str, str, tuple[tuple[str, str], ...]]


class Again:
    """The answers that are kept, and what each analyst may see; safe to use from any thread.

    Parameters
    ----------
    instance : Instance
        Of a database that is served by this process alone.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._kept: OrderedDict[Key, tuple[Answer, tuple[remembered.File, ...]]] = OrderedDict()
        self._cells = 0
        self._seen: dict[Who, tuple[Table, ...]] = {}
        self._guard = threading.Lock()

    def seen(self, who: Who, looked: Callable[[], tuple[Table, ...]]) -> tuple[Table, ...]:
        """Return what an analyst may see, which is looked up once."""
        visible = self._seen.get(who)
        if visible is None:
            visible = looked()
            with self._guard:
                # one entry for each analyst: with other grants she is another key, and what she saw before is forgotten
                self._seen = {other: tables for other, tables in self._seen.items() if other[0] != who[0]} | {who: visible}
        return visible

    def get(self, key: Key) -> Answer | None:
        """Return an answer that would be the same today; None where there is none."""
        with self._guard:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
        # whether files are untouched is asked outside of the lock, for it takes time
        answer, files = entry
        if remembered.are_untouched(files):
            return answer
        with self._guard:
            self._forget(key)
        return None

    def keep(self, key: Key, accepted: Accepted, texts: Sequence[str], answer: Answer) -> None:
        """Keep an answer where it will be the same.

        Parameters
        ----------
        accepted : Accepted
            What was run for it.
        texts : sequence of str
            The answers of its calls.
        """
        size = _size(answer)
        if size > CELLS // 10 or not accepted.fixed or any(call.name not in BUYING for call in accepted.calls):
            return
        if not all(map(is_steady, (accepted.sql, *texts))):
            return
        # all that the answers were made of must be known, or nothing would notice that it has changed
        files: tuple[remembered.File, ...] = ()
        for text in texts:
            made_of = remembered.files_of(self._instance, text)
            if made_of is None:
                return
            files += made_of
        with self._guard:
            self._forget(key)
            self._kept[key] = answer, files
            self._cells += size
            while self._cells > CELLS or len(self._kept) > MOST:
                self._forget(next(iter(self._kept)))

    def _forget(self, key: Key) -> None:
        entry = self._kept.pop(key, None)
        if entry is not None:
            self._cells -= _size(entry[0])


def _size(answer: Answer) -> int:
    return max(1, len(answer.rows) * len(answer.columns))


def who_asks(analyst: str, grants: Mapping[str, float], public: Collection[str]) -> Who:
    """Return an analyst as the file of analysts knows her: with what she may ask about, and what is public."""
    return analyst, tuple(sorted(grants.items())), tuple(sorted(public))


def key_of(who: Who, text: str, dialect: str, parameters: Sequence[Any]) -> Key:
    """Return what a question is known by; values of other types are other questions."""
    return who, text, dialect, tuple((type(value).__name__, repr(value)) for value in parameters)


def is_steady(text: str) -> bool:
    """Return whether a text of SQL means the same at any time: it reads no clock, and draws nothing.

    Of texts that are written by DuckDB and dpsql: between a function and its brackets is no comment.

    Examples
    --------
    >>> is_steady("SELECT round(avg(age), 1) FROM t"), is_steady("SELECT age(born) FROM t"), is_steady("SELECT random()")
    (True, False, False)
    """
    return not any(name in WORDS or (brackets and name in FUNCTIONS) for name, brackets in _NAME.findall(text.lower()))
