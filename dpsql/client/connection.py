"""A connection to a served database: calls go out as the text of a statement, answers come back as DuckDB relations.

Nothing of the privacy stands here: the server decides what is answered and charged, whoever writes to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from dpsql.errors import ArgumentError, DpsqlError

if TYPE_CHECKING:  # loaded when they are needed: whoever works on a database of this process does not wait for them
    from dpsql.client.place import Place
    from dpsql.client.roads import Road


class Served:
    """A connection to a served database, for every function of dpsql whose first argument is a connection.

    Answers are relations of a DuckDB in this process (``here``), which holds the rows of each until the connection is closed. It is
    for one thread.
    """

    def __init__(self, place: Place, road: Road, here: duckdb.DuckDBPyConnection) -> None:
        self._place, self._road, self.here = place, road, here
        self._answers, self._closed = 0, False
        self._told: dict[str, Any] = {}

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> duckdb.DuckDBPyRelation:
        """Ask; the answer is a relation. In DuckDB's dialect; over MySQL's protocol in MySQL's, unless the text begins with FROM.

        Privacy: what the server says of the statement; the same question again is free.

        Parameters
        ----------
        text : str
            One statement: SELECT, WITH or FROM.
        params : sequence, mapping or None
            Values of ``?`` or ``$1``, ... in order, or of ``$name`` by name. They become literals, so the same values are the same
            question.

        Raises
        ------
        DpsqlError
            The server's refusal, in its words; or it is out of reach.
        """
        if self._closed:
            raise DpsqlError(f"con: the connection to {self._place} is closed: dpsql.connect(...) opens another one")
        if params is not None:
            from dpsql.text.parameters import filled  # loads what reads SQL

            text = filled(text, params)
        self._answers += 1
        name = f"answer_{self._answers}"
        notes = self._road.fetch(text, self.here, name)
        if notes:
            from dpsql.running import saying  # loaded when something is said

            for line in notes:
                saying.say(line, self._told, wanted=None)
        return self.here.table(name)

    def call(self, name: str, given: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
        """Run a call of the server (``dp_query``, without ``dp_``) by the arguments of the Python function."""
        from dpsql.client.calls import call

        return self.sql(call(name, given))

    def close(self) -> None:
        """End it; relations that it has given end, too."""
        if not self._closed:
            self._closed = True
            self._road.close()
            self.here.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dpsql connection to {self._place}>"


def connect(url: str, token: str | None = None, *, ca: str | Path | None = None, tls: bool | None = None) -> Served:
    """Connect to a database that ``dpsql serve`` serves.

    Privacy: free.

    Parameters
    ----------
    url : str
        ``mysql://NAME@HOST:PORT/DATABASE`` (pip install 'dpsql[client]'), ``grpc://NAME@HOST:PORT`` or ``grpc+tls://...`` (Flight
        SQL: pip install adbc-driver-flightsql pyarrow), or ``quack://HOST:PORT`` (pip install 'dpsql[quack]').
    token : str or None
        The analyst's; None: of the environment's variable DPSQL_TOKEN. Never put it into the address.
    ca : path or None
        Certificates of the authority that signed the server's; None: those that this machine trusts.
    tls : bool or None
        Whether the line is encrypted and the server's certificate checked. None: unless the host is this machine.

    Raises
    ------
    ArgumentError
        The address or the token is none.
    DpsqlError
        A package is missing, the server is out of reach, or it does not know the token.

    Examples
    --------
    >>> served = dpsql.connect("mysql://alice@localhost:3306/census")  # doctest: +SKIP
    >>> dpsql.query(served, "SELECT ward, avg(cost) FROM visits GROUP BY ward")  # doctest: +SKIP
    """
    from dpsql.client.place import Place
    from dpsql.client.roads import opened

    place = Place.of(url)
    if place.secret:
        raise ArgumentError("url", place.shown, "logs keep addresses: connect(url, token=...), or the environment's DPSQL_TOKEN")
    token = os.environ.get("DPSQL_TOKEN") if token is None else token
    if not isinstance(token, str) or not token:
        raise ArgumentError("token", None, "the custodian has it: connect(url, token=...), or the environment's DPSQL_TOKEN")
    if ca is not None and not Path(ca).is_file():
        raise ArgumentError("ca", str(ca), "a file of certificates (PEM)")
    encrypted = (not place.local or ca is not None or place.scheme == "grpc+tls") if tls is None else bool(tls)
    here = duckdb.connect()
    here.execute("SET pandas_analyze_sample = 0")  # texts are texts, wherever the first one stands
    try:
        return Served(place, opened(place, token, encrypted, None if ca is None else Path(ca), here), here)
    except BaseException:
        here.close()
        raise
