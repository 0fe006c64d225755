"""Whether the server answers, for whoever watches processes: one line over HTTP, on a loopback address, for nobody in particular.

``GET /health`` gives 200 and ``ok`` while statements are taken and the database answers; where not, 503 and ``stopping`` or
``failing``.

Privacy: None: it depends on no row, no book and nobody who asks; of what is sent to it the first line alone says anything.
"""

from __future__ import annotations

import threading
from http import HTTPStatus

import duckdb

from dpsql.serve.http import LIMITS, HttpDoor, Reply
from dpsql.serve.options import Address
from dpsql.serve.passed import Refused, Room
from dpsql.serve.visits import Limits

_NOBODY = ""


class HealthDoor(HttpDoor):
    """Answers ``GET /health``.

    Parameters
    ----------
    room : Room
        Of the server: while it stops it refuses everybody.
    at : Address
        A loopback one.
    con : DuckDB connection
        Of the served database.
    limits : Limits, optional
        Of whoever asks.
    """

    def __init__(self, room: Room, at: Address, con: duckdb.DuckDBPyConnection, limits: Limits = LIMITS) -> None:
        super().__init__(at, "dpsql-health", limits)
        self._room, self._con = room, con
        self._asking = threading.Lock()

    def reply(self, path: bytes | None) -> Reply:
        """Return how the server is; of another path where it is said."""
        if path is None:
            return Reply(HTTPStatus.BAD_REQUEST, "GET /health")
        return Reply(*self.state()) if path == b"/health" else Reply(HTTPStatus.NOT_FOUND, "GET /health")

    def state(self) -> tuple[HTTPStatus, str]:
        """Return what is answered: the room lists what nobody may see, and the database gives a constant."""
        with self._asking:
            try:
                self._room.schema(_NOBODY)
                self._con.cursor().execute("SELECT 1").fetchall()
            except Refused as refused:
                return HTTPStatus.SERVICE_UNAVAILABLE, "stopping" if refused.kind == "stopped" else "failing"
            except Exception:
                return HTTPStatus.SERVICE_UNAVAILABLE, "failing"
        return HTTPStatus.OK, "ok"
