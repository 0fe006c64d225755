"""Health: an HTTP answer that says whether the database answers, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dpsql.errors import ArgumentError

_PATIENCE = 2.0  # seconds that a client may take
_MOST = 64


class _Server(ThreadingHTTPServer):
    """Answers some requests at once; others wait for as long as a client may take."""

    daemon_threads = True
    request_queue_size = _MOST

    def __init__(self, *given: Any) -> None:
        self._free = threading.Semaphore(_MOST)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        if self._free.acquire(timeout=2 * _PATIENCE):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client has gone."""


class Health:
    """Answers GET /health on a loopback port with 200 'ok' or 503 'not ok'.

    Parameters
    ----------
    port : int
    well : callable

    Raises
    ------
    ArgumentError
        The port cannot be used.
    """

    def __init__(self, port: int, well: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE

            def do_GET(self) -> None:  # noqa: N802 -- the name that http.server calls
                """Answer."""
                known = self.path == "/health"
                fine = known and well()
                body = b"ok\n" if fine else b"not ok\n" if known else b"not found\n"
                self.send_response(200 if fine else 503 if known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        try:
            self._server = _Server(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise ArgumentError("health", port, f"the port cannot be used ({error}); name another one") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="dpsql-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
