"""Which functions of a database are not what DuckDB ships: listed once, and again when anything was created since.

Listing all functions takes longer than anything else that is asked of the catalog. Every entry of any catalog of an open database
(table, view, macro, function, also of an extension, also a temporary one) gets the next number of one counter; so as long as
nobody has created one, the list is as it was. The counter is read by creating something: a temporary sequence of our own. DuckDB
makes entries of its own types and views when a statement of a session first names one, so all of them are made before the counter
is read (`settle`): else the first statements of a session would look like somebody who creates functions. Temporary tables that
dpsql makes while it reads are known one by one (`noted`), and as many numbers are allowed for.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

import duckdb

from dpsql.errors import UnsupportedQuery, unanswered
from dpsql.session.settings import settle
from dpsql.source.model import quoted

# Every function of these queries is named in full: a macro of the database must not answer in its place.
_LIST = """
SELECT name, system.main.count_star(), system.main.sum(digest),
    system.main.count_star() FILTER (own), system.main.sum(digest) FILTER (own)
FROM (
    SELECT system.main.lower(function_name) AS name, database_name = 'system' AS own, system.main.hash(system.main.struct_pack(
        a := function_name, b := function_type, c := parameter_types, d := varargs, e := return_type, f := stability,
        g := has_side_effects, h := macro_definition, i := internal, j := database_name, k := schema_name)) AS digest
    FROM system.main.duckdb_functions()
) GROUP BY name
"""
_EXTENSIONS = """
SELECT extension_name FROM system.main.duckdb_extensions()
WHERE loaded AND install_mode <> 'STATICALLY_LINKED' ORDER BY extension_name ASC
"""
_CREATE = "CREATE OR REPLACE TEMP SEQUENCE __dp_created"
_NUMBER = "SELECT sequence_oid FROM system.main.duckdb_sequences() WHERE temporary AND sequence_name = '__dp_created'"
Listing = dict[str, tuple[int, ...]]
"""Of each name: how many functions have it, a sum of hashes of what the catalog says of them, and both of DuckDB's own catalog."""


class _Numbers(NamedTuple):
    """How many numbers of the counter some statements take."""

    between: int
    """From one reading of the counter to the next, with nothing between them."""
    table: int
    """A temporary table."""
    dropped: int
    """Taking one away."""


class Functions:
    """What is known of the functions of one open database.

    Notes
    -----
    A function that is registered in a transaction that stays open while a call lists the functions, and is committed later, is
    noticed once anything else is created. Python code of this process can do so, which can read the tables as well; a macro can
    be late in this way, and on the search path of dpsql's cursors none stands for a function of DuckDB.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._newest: int | None = None
        self._times = 0  # that they were listed
        self._changed: frozenset[str] | None = None
        self._overloaded: frozenset[str] = frozenset()

    def listed(self, cursor: duckdb.DuckDBPyConnection) -> tuple[frozenset[str], frozenset[str]]:
        """Return the functions that are not, or not only, what DuckDB ships; and those of them in DuckDB's own catalog.

        One of the latter, registered in Python, is not what DuckDB's loaded extensions ship either, and takes part wherever a
        statement calls its name. (A macro of a database does not: dpsql's cursors look in DuckDB's own catalog alone.)

        Raises
        ------
        UnsupportedQuery
            The catalog does not answer.
        """
        with self._guard:
            return self._looked(cursor), self._overloaded

    def changed(self, cursor: duckdb.DuckDBPyConnection, names: Iterable[str]) -> str | None:
        """Return one of these functions that is not, or not only, what DuckDB ships; None if all of them are. Errors: `listed`."""
        return min(self.listed(cursor)[0] & {name.lower() for name in names}, default=None)

    def _looked(self, cursor: duckdb.DuckDBPyConnection) -> frozenset[str]:
        """Return the names of all functions that are not what DuckDB ships, listed anew if anything was created since."""
        shipped, numbers = _shipped(())
        _of[cursor] = self
        try:
            number = _created(cursor)
            if self._changed is None or self._newest is None or number != self._newest + numbers.between:
                self._times += 1
                settle(cursor, views=True)
                number = _created(cursor)
                live = _listing(cursor)
                self._changed = frozenset(name for name in live.keys() | shipped.keys() if live.get(name) != shipped.get(name))
                self._overloaded = _overloaded(cursor, live, self._changed)
        except duckdb.InterruptException:
            self._changed = None
            raise
        except duckdb.Error as error:
            self._changed = None
            raise UnsupportedQuery("the catalog of this database", unanswered(error)) from None
        self._newest = number  # read before the list: what was created since changes the next number
        return self._changed

    @contextmanager
    def noted(self, statement: Literal["table", "dropped"]) -> Iterator[None]:
        """Allow for the numbers that a statement of dpsql's own takes, which runs in the block and creates no function.

        Nothing else is allowed for: where the functions were listed meanwhile, by another thread, the numbers may have been seen
        then, and are not allowed for once more; where the statement fails, neither. Whoever creates something takes more numbers
        than these, so that the functions are listed then.
        """
        with self._guard:
            times = self._times
        yield
        with self._guard:
            if self._newest is not None and self._times == times:
                self._newest += getattr(_shipped(())[1], statement)


_of: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Functions] = weakref.WeakKeyDictionary()
"""What is known of the database that a cursor is of, once it was asked for."""


@contextmanager
def noted(cursor: duckdb.DuckDBPyConnection, statement: Literal["table", "dropped"]) -> Iterator[None]:
    """Say that a statement of dpsql's own runs in the block: see `Functions.noted`."""
    known = _of.get(cursor)
    if known is None:
        yield
        return
    with known.noted(statement):
        yield


def _overloaded(cursor: duckdb.DuckDBPyConnection, live: Listing, changed: frozenset[str]) -> frozenset[str]:
    """Return the changed names whose functions in DuckDB's own catalog differ, extensions that are loaded considered."""
    def differing(shipped: Listing) -> frozenset[str]:
        return frozenset(name for name in changed & shipped.keys() if live.get(name, ())[2:] != shipped[name][2:])

    overloaded = differing(_shipped(())[0])
    if overloaded:
        loaded = tuple(str(name) for (name,) in cursor.execute(_EXTENSIONS).fetchall())
        overloaded &= differing(_shipped(loaded)[0])
    return overloaded


def _listing(cursor: duckdb.DuckDBPyConnection) -> Listing:
    return {str(name): tuple(int(number or 0) for number in numbers) for name, *numbers in cursor.execute(_LIST).fetchall()}


def _created(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return the number of a new entry of the catalog."""
    cursor.execute(_CREATE)
    return int(cursor.execute(_NUMBER).fetchall()[0][0])


@functools.cache
def _shipped(extensions: tuple[str, ...]) -> tuple[Listing, _Numbers]:
    """Return the functions of a database that nobody has touched, and how many numbers statements take.

    Extensions that cannot be loaded once more are left out.
    """
    with duckdb.connect(":memory:") as fresh:
        for name in extensions:
            with suppress(duckdb.Error):
                fresh.execute(f"LOAD {quoted(name)}")
        listed = _listing(fresh)
        _created(fresh)
        # tried, not known: each version of DuckDB takes other numbers for a statement
        numbers = [_created(fresh), _created(fresh)]
        for text in ("CREATE TEMP TABLE own AS SELECT 1 AS x", "DROP TABLE own"):
            fresh.execute(text)
            numbers.append(_created(fresh))
        between, table, dropped = (after - before for before, after in itertools.pairwise(numbers))
        return listed, _Numbers(between, table - between, dropped - between)
