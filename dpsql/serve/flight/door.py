"""The door that clients of Arrow Flight SQL come to: a front with the limits, and the server of `pyarrow.flight` behind it.

Privacy
-------
It holds no policy and no connection to the served database: it hands a text to the room, and writes what it is given.
"""

from __future__ import annotations

import shutil
import ssl
import tempfile
from pathlib import Path

from dpsql.serve.flight.commands import Commands
from dpsql.serve.flight.front import FlightLimits, Front
from dpsql.serve.flight.login import Login
from dpsql.serve.flight.service import Service
from dpsql.serve.passed import Keys, Room


class FlightDoor:
    """A door for clients of Flight SQL.

    Parameters
    ----------
    room : Room
        What answers.
    keys : Keys
        Who may come in.
    host : str
    port : int
        0: any that is free; `port` says which.
    tls : ssl.SSLContext, optional
        Certificate and key; then every connection is encrypted.
    every : float
        An answer leaves at a whole multiple of so many seconds after its question came; 0: at once.
    limits : FlightLimits, optional
    """

    def __init__(
        self, room: Room, keys: Keys, host: str, port: int, tls: ssl.SSLContext | None = None, every: float = 0.0,
        limits: FlightLimits | None = None,
    ) -> None:  # fmt: skip
        self._folder = Path(tempfile.mkdtemp(prefix="dpsql-"))  # of mode 700
        inside = self._folder / "flight"
        front = self._front = Front(host, port, inside, tls, limits)

        def made() -> Service:
            return Service(f"grpc+unix://{inside}", Login(keys, front.admit), Commands(room), front, every)

        self._make = made
        self._service: Service | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._front.port

    def start(self) -> None:
        """Listen; returns when clients can connect. Raises OSError."""
        try:
            self._service = self._make()
            self._front.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Let nobody in any more, write what was answered, and end what is open; returns when that is done."""
        self._front.stop()
        if self._service is not None:
            self._service.shutdown()
            self._service = None
        shutil.rmtree(self._folder, ignore_errors=True)
