"""Whether the server answers, for whoever watches processes: one line over HTTP, on a loopback address, for nobody in particular.

``GET /health`` gives 200 and ``ok`` while statements are taken and the database answers; where not, 503 and ``stopping`` or
``failing``.

Privacy: None: it depends on no row, no book and nobody who asks; nothing that is sent to it is read but the first line.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

import duckdb

from dpsql.serve.options import Address
from dpsql.serve.passed import Refused, Room

_SECONDS = 5.0
"""That one who asks may take to say what."""
_NOBODY = ""


class HealthDoor:
    """Answers ``GET /health``, one after the other.

    Parameters
    ----------
    room : Room
        Of the server: while it stops it refuses everybody.
    at : Address
        A loopback one.
    con : DuckDB connection
        Of the served database.
    """

    def __init__(self, room: Room, at: Address, con: duckdb.DuckDBPyConnection) -> None:
        self._room, self._at, self._con = room, at, con
        self._server: HTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._at.port if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Listen."""
        door = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SECONDS
            server_version, sys_version = "dpsql", ""

            def do_GET(self) -> None:
                status, text = door.state() if self.path == "/health" else (HTTPStatus.NOT_FOUND, "GET /health")
                self.send_response(status)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text) + 1))
                self.end_headers()
                self.wfile.write(f"{text}\n".encode())

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = HTTPServer((self._at.host, self._at.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="dpsql-health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def state(self) -> tuple[HTTPStatus, str]:
        """Return what is answered: the room lists what nobody may see, and the database gives a constant."""
        try:
            self._room.schema(_NOBODY)
            self._con.cursor().execute("SELECT 1").fetchall()
        except Refused as refused:
            return HTTPStatus.SERVICE_UNAVAILABLE, "stopping" if refused.kind == "stopped" else "failing"
        except Exception:
            return HTTPStatus.SERVICE_UNAVAILABLE, "failing"
        return HTTPStatus.OK, "ok"
