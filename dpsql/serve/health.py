"""Whether the server answers, for whoever watches processes: one line over HTTP, on a loopback address, for nobody in particular.

``GET /health`` gives 200 and ``ok`` while statements are taken and the database answers; where not, 503 and ``stopping`` or
``failing``.

Privacy: None: it depends on no row, no book and nobody who asks; of what is sent to it the first line alone says anything.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from contextlib import suppress
from http import HTTPStatus

import duckdb

from dpsql.serve.options import Address
from dpsql.serve.passed import Refused, Room
from dpsql.serve.visits import Limits, Visits

_LIMITS = Limits(connections=64, strangers=16, packet=5.0, largest=1 << 12)
"""Of whoever asks: nobody is let in, so the one that waits longest goes where another one comes."""
_NOBODY = ""


class HealthDoor:
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

    def __init__(self, room: Room, at: Address, con: duckdb.DuckDBPyConnection, limits: Limits = _LIMITS) -> None:
        self._room, self._at, self._con, self._limits = room, at, con, limits
        self._asking = threading.Lock()
        self._server: socketserver.TCPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._at.port if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Listen."""
        visits: Visits[int, _Visit] = Visits(self._limits)
        door = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                key = id(self.request)
                if visits.enter(lambda: key, lambda _: _Visit(self.request)) is None:
                    return
                try:
                    with suppress(OSError):  # whoever asked is gone, or was too slow
                        door.answer(self.request)
                finally:
                    visits.leave(key)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True
            request_queue_size = 64

        self._server = Server((self._at.host, self._at.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="dpsql-health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def answer(self, connection: socket.socket) -> None:
        """Read a request and answer it.

        Raises
        ------
        OSError
            Whoever asked is gone, or took too long.
        """
        asked = _request(connection, self._limits).split(b"\r\n", 1)[0].split(b" ")
        if len(asked) != 3 or asked[0] != b"GET":
            status, text = HTTPStatus.BAD_REQUEST, "GET /health"
        elif asked[1] != b"/health":
            status, text = HTTPStatus.NOT_FOUND, "GET /health"
        else:
            status, text = self.state()
        head = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: text/plain", "Connection: close"]
        connection.sendall("\r\n".join([*head, f"Content-Length: {len(text) + 1}", "", f"{text}\n"]).encode())

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


class _Visit:
    """One who asks."""

    name: str | None = None

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def cut(self) -> None:
        """End the connection."""
        with suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RDWR)


def _request(connection: socket.socket, limits: Limits) -> bytes:
    """Return what is sent until an empty line; however slowly it comes, no longer and no more of it than the limits say."""
    found, end = b"", time.monotonic() + limits.packet
    while b"\r\n\r\n" not in found and len(found) < limits.largest:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        given = connection.recv(limits.largest)
        if not given:
            break
        found += given
    return found
