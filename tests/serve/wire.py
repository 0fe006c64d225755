"""A proxy that writes down what a client of Quack sends, and raw requests."""

from __future__ import annotations

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSION = re.compile(rb"[0-9A-F]{32}")


class Proxy:
    """Passes requests on to a port of this machine, and keeps their bodies and answers."""

    def __init__(self, port: int) -> None:
        seen: list[tuple[bytes, bytes]] = []
        self.seen = seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = post(port, body, self.path)
                seen.append((body, answer))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Content-Type", "application/octet-stream")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def post(port: int, body: bytes, path: str = "/quack") -> tuple[int, bytes]:
    """Send a request; return status and body of the answer."""
    connection = http.client.HTTPConnection("localhost", port, timeout=20)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
