"""The door that clients of MySQL come to: connections, their limits, and one thread for each of them.

Privacy
-------
It holds no policy and no connection to the served database: it hands a text to the room, and writes what it is given.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import Final

from dpsql.serve.listening import close, listen
from dpsql.serve.mysql import packets
from dpsql.serve.mysql.catalogue import Catalogue, Session
from dpsql.serve.mysql.codes import fault_of, too_many, unknown_database
from dpsql.serve.mysql.login import AUTOCOMMIT, Tls, Visitor, admit
from dpsql.serve.mysql.packets import Gone, Wire
from dpsql.serve.mysql.talking import Talk
from dpsql.serve.passed import Keys, Refused, Room
from dpsql.serve.visits import Limits, Visits


class MysqlDoor:
    """A door for clients of MySQL.

    Parameters
    ----------
    room : Room
        What answers.
    keys : Keys
        Who may come in.
    host : str
    port : int
        0: any that is free; `port` says which.
    tls : Tls, optional
        Certificate and key as a context of `ssl`, and whether a client without it is sent away.
    every : float
        An answer leaves at a whole multiple of so many seconds after its question came; 0: at once.
    limits : Limits, optional
    """

    def __init__(
        self, room: Room, keys: Keys, host: str, port: int, tls: Tls | None = None, every: float = 0.0, limits: Limits | None = None
    ) -> None:
        self._room, self._keys, self._address, self._tls, self._every = room, keys, (host, port), tls, every
        self._limits = limits or Limits()
        self._listening: list[socket.socket] = []
        self._ending, self._change = threading.Event(), threading.Lock()
        self._visits: Visits[int, _Visit] = Visits(self._limits)
        self._catalogues: dict[str, tuple[float, Catalogue]] = {}
        self._accepting: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._listening[0].getsockname()[1] if self._listening else self._address[1]
        return port

    def start(self) -> None:
        """Listen; returns at once."""
        self._listening = listen(*self._address)
        for listening in self._listening:
            listening.settimeout(_LOOK)
            thread = threading.Thread(target=self._accept, args=[listening], name="dpsql-mysql", daemon=True)
            self._accepting.append(thread)
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """Listen no longer, finish what runs, and close every connection; returns after so many seconds at the latest."""
        until = time.monotonic() + seconds
        self._ending.set()
        for thread in self._accepting:
            thread.join()
        close(self._listening)
        visits = self._visits.values()
        for visit in visits:
            visit.hush()
        for visit in visits:
            visit.thread.join(max(until - time.monotonic(), 0))
        for visit in visits:
            visit.cut()

    def _accept(self, listening: socket.socket) -> None:
        while not self._ending.is_set():
            try:
                sock, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError:  # of one connection, or no file left for it: the next one may be taken
                self._ending.wait(_LOOK)
                continue
            self._enter(sock)

    def _enter(self, sock: socket.socket) -> None:
        """Take a connection, or send it away where there are too many."""
        visit = self._visits.enter(_number, lambda number: _Visit(self, sock, number))
        if visit is None:
            # told without waiting: who is sent away must not hold up those who come
            with suppress(OSError), sock:
                sock.setblocking(False)
                sock.send(Wire(sock, 0.0).framed([packets.failed(too_many("to this server"))]))
            return
        try:
            visit.thread.start()
        except RuntimeError:  # no thread left
            self.leave(visit.number)
            sock.close()

    def serve(self, visit: _Visit) -> None:
        """Serve one connection from its first packet to its last."""
        limits, wire = self._limits, Wire(visit.sock, self._limits.packet)
        try:
            until = time.monotonic() + limits.login
            visitor = admit(wire, self._keys, visit.number, until, self._tls, visit.encrypted)
            session = self._session(visit, visitor)
            wire.write(packets.done(AUTOCOMMIT))
            Talk(
                wire, self._room, self._keys, session, visitor.number, lambda: self._catalogue(visitor.name),
                largest=limits.largest, idle=limits.idle, every=self._every, ending=self._ending,
            ).talk()  # fmt: skip
        except Gone:
            pass
        except Exception as error:  # nothing of it gets out: `fault_of`
            with suppress(Gone):
                wire.write(packets.failed(fault_of(error)))

    def _session(self, visit: _Visit, visitor: Visitor) -> Session:
        """Count the visit as the analyst's, and return her session; raises `Fault`."""
        database = self._room.database
        asked = visitor.database.lower()
        if asked not in ("", database.lower(), "information_schema"):
            raise unknown_database(visitor.database[:64])
        if not self._visits.admit(visit.number, visitor.name):
            raise too_many(f"of {visitor.name}")
        current = "information_schema" if asked == "information_schema" else database
        return Session(visitor.name, visit.number, database, current)

    def _catalogue(self, analyst: str) -> Catalogue:
        """Return an analyst's catalogue of what she may see: as it was a moment ago, or before, while the room is busy."""
        with self._change:
            known = self._catalogues.get(analyst)
        if known is not None and time.monotonic() < known[0] + _FRESH:
            return known[1]
        asked = time.monotonic()
        try:
            tables = self._room.schema(analyst)
        except Refused as refused:
            if known is None or refused.kind != "busy":
                raise
            return known[1]
        current = known[1] if known is not None and known[1].tables == tables else Catalogue(self._room.database, tables)
        with self._change:
            self._catalogues[analyst] = (asked, current)
        return current

    def leave(self, number: int) -> None:
        """Count a connection no longer."""
        self._visits.leave(number)


def _number() -> int:
    """Return a number for a connection, from which nobody can count the others."""
    return 1 + secrets.randbelow((1 << 31) - 1)


class _Visit:
    """One connection. ``name``: whose it is; None: nobody was let in yet."""

    def __init__(self, door: MysqlDoor, sock: socket.socket, number: int) -> None:
        self.sock, self.number = sock, number
        self.name: str | None = None
        self._door = door
        self.thread = threading.Thread(target=self._run, name="dpsql-mysql-client", daemon=True)

    def encrypted(self, sock: socket.socket) -> None:
        """Go on with the socket that TLS made of this one."""
        self.sock = sock

    def hush(self) -> None:
        """Let nothing more come in: what waits for a command ends, what runs is still answered."""
        self._shut(socket.SHUT_RD)

    def cut(self) -> None:
        """End the connection, in both directions."""
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        # Not TLS's own method: it lets go of the encryption first, and a thread that writes would go on in plain text.
        with suppress(OSError, ValueError):
            socket.socket.shutdown(self.sock, how)

    def _run(self) -> None:
        try:
            with suppress(OSError):
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._door.serve(self)
        finally:
            with suppress(OSError):
                self.sock.close()
            self._door.leave(self.number)


_FRESH: Final = 1.0
"""Seconds for which names and types are not asked for again."""
_LOOK: Final = 0.1
"""Seconds between two looks at whether the door closes."""
