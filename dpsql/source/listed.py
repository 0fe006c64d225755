"""Which functions of a database are not what DuckDB ships: listed once, and again when anything was created since.

Listing all functions takes longer than anything else that is asked of the catalog. Every entry of any catalog of an open database
(table, view, macro, function, also of an extension, also a temporary one) gets the next number of one counter; so as long as
nobody has created one, the list is as it was. The counter is read by creating something: a temporary sequence of our own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import duckdb

from dpsql.errors import UnsupportedQuery, unanswered

# Every function of these queries is named in full: a macro of the database must not answer in its place.
_LIST = """
SELECT system.main.lower(function_name), system.main.count_star(), system.main.sum(system.main.hash(system.main.struct_pack(
    a := function_name, b := function_type, c := parameter_types, d := varargs, e := return_type, f := stability,
    g := has_side_effects, h := macro_definition, i := internal, j := database_name, k := schema_name)))
FROM system.main.duckdb_functions() GROUP BY ALL
"""
_CREATE = "CREATE OR REPLACE TEMP SEQUENCE __dp_created"
_NUMBER = "SELECT sequence_oid FROM system.main.duckdb_sequences() WHERE temporary AND sequence_name = '__dp_created'"
Listing = dict[str, tuple[int, int]]


class Functions:
    """What is known of the functions of one open database.

    Parameters
    ----------
    settled : callable, optional
        Returns a value that is another one once a function may have been created, and None while one may be. Who knows that spares
        the counter, which whatever dpsql creates itself moves on too.

    Notes
    -----
    A function that is registered in a transaction that stays open while a call lists the functions, and is committed later, is
    noticed once anything else is created. Python code of this process can do so, which can read the tables as well; a macro can
    be late in this way, and on the search path of dpsql's cursors none stands for a function of DuckDB.
    """

    def __init__(self, settled: Callable[[], object] | None = None) -> None:
        self._settled = settled or (lambda: None)
        self._since: object = None
        self._guard = threading.Lock()
        self._newest: int | None = None
        self._changed: frozenset[str] | None = None

    def changed(self, cursor: duckdb.DuckDBPyConnection) -> frozenset[str]:
        """Return the names, in small letters, of functions that are not, or not only, what DuckDB ships.

        Raises
        ------
        UnsupportedQuery
            The catalog does not answer.
        """
        shipped, step = _shipped()
        since = self._settled()  # read before the list, as the counter is
        with self._guard:
            if since is not None and since == self._since and self._changed is not None:
                return self._changed
            try:
                number = _created(cursor)
                if self._changed is None or self._newest is None or number != self._newest + step:
                    self._changed = _differing(_listing(cursor), shipped)
            except (duckdb.InterruptException, duckdb.OutOfMemoryException):
                self._changed = None
                raise
            except duckdb.Error as error:
                self._changed = None
                raise UnsupportedQuery("the catalog of this database", unanswered(error)) from None
            self._since = since
            self._newest = number  # read before the list: what was created since changes the next number
            return self._changed


def _differing(live: Listing, shipped: Listing) -> frozenset[str]:
    return frozenset(name for name in live.keys() | shipped.keys() if live.get(name) != shipped.get(name))


def _listing(cursor: duckdb.DuckDBPyConnection) -> Listing:
    """Return of each name how many functions have it, and a sum of hashes of what the catalog says of them."""
    return {str(name): (int(count), int(digest)) for name, count, digest in cursor.execute(_LIST).fetchall()}


def _created(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return the number of a new entry of the catalog."""
    cursor.execute(_CREATE)
    return int(cursor.execute(_NUMBER).fetchall()[0][0])


@functools.cache
def _shipped() -> tuple[Listing, int]:
    """Return the functions of a database that nobody has touched, and how far two numbers are apart with nothing between them."""
    with duckdb.connect(":memory:") as fresh:
        listed = _listing(fresh)
        _created(fresh)
        first, second = _created(fresh), _created(fresh)
        return listed, second - first
