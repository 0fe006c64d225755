"""A reverse proxy on loopback that speaks TLS for a port that does not."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def _passed(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while sent := source.recv(65536):
            target.sendall(sent)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def before(port: int, certificate: tuple[Path, Path]) -> Iterator[int]:
    """Give the port of a proxy before a port, with a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as outer, socket.create_connection(("127.0.0.1", port)) as inner:
                back = threading.Thread(target=_passed, args=(inner, outer))
                back.start()
                _passed(outer, inner)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()
