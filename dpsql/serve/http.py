"""A few words of HTTP on a loopback address, for whoever watches the server: one path is answered, for nobody in particular.

Privacy: None: what is answered, the door says (`dpsql.serve.health`, `dpsql.serve.status`); of a request its first line counts.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from dpsql.serve.options import Address
from dpsql.serve.visits import Limits, Visits

LIMITS = Limits(connections=64, strangers=16, packet=5.0, largest=1 << 12)
"""Of whoever asks: nobody is let in, so the one that waits longest goes where another one comes."""


@dataclass(frozen=True)
class Reply:
    """What is answered: a text of a kind, and more lines of the head."""

    status: HTTPStatus
    text: str
    kind: str = "text/plain"
    head: tuple[str, ...] = ()


class HttpDoor:
    """Answers GET; what of it, `reply` says.

    Parameters
    ----------
    at : Address
        A loopback one.
    named : str
        Of the thread that listens.
    limits : Limits
        Of whoever asks.
    """

    def __init__(self, at: Address, named: str, limits: Limits = LIMITS) -> None:
        self._at, self._named, self._limits = at, named, limits
        self._server: socketserver.TCPServer | None = None
        self._thread: threading.Thread | None = None

    def reply(self, path: bytes | None) -> Reply:
        """Return what is answered to GET of a path; None: another request."""
        raise NotImplementedError

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
        self._thread = threading.Thread(target=self._server.serve_forever, name=self._named, daemon=True)
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
        reply = self.reply(asked[1] if len(asked) == 3 and asked[0] == b"GET" else None)
        body = f"{reply.text}\n".encode()
        first = f"HTTP/1.1 {reply.status.value} {reply.status.phrase}"
        head = [first, f"Content-Type: {reply.kind}", "Connection: close", *reply.head]
        connection.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)


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
    read, end = b"", time.monotonic() + limits.packet
    while b"\r\n\r\n" not in read and len(read) < limits.largest:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        piece = connection.recv(limits.largest)
        if not piece:
            break
        read += piece
    return read
