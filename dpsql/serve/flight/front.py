"""What stands before gRPC's server: connections, their limits and TLS. It reads frames and no message, and passes them on.

The server itself listens on a socket in a folder that is this user's alone, so nobody comes to it but through here.

Privacy: None: nothing of the database is here.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dpsql.serve.flight import frames
from dpsql.serve.flight.frames import Cut, Frame, Stream
from dpsql.serve.listening import close, listen
from dpsql.serve.visits import Limits, Visits

_PIECE: Final = 1 << 16
_LOOK: Final = 0.1
"""Seconds between two looks at what has to end."""
_TURNS: Final = 3
"""Of the loop, after which the transport of an aborted connection, and what encrypts it, have let go of it."""


@dataclass(frozen=True)
class FlightLimits(Limits):
    """What clients may take, with limits of this door's own.

    Parameters
    ----------
    taking : float
        Seconds for a client to take a piece of an answer.
    calls : int
        That are open at once on a connection.
    stranger : int
        Bytes that a connection sends, before anybody was let in: gRPC looks at a call once its message is there. Of calls it may
        have as many as are open at once.
    """

    taking: float = 300.0
    calls: int = 8
    stranger: int = 1 << 18


@dataclass
class _Visit:
    """One connection. ``name``: whose it is; None: nobody was let in yet."""

    key: str
    since: float
    sock: socket.socket
    name: str | None = None
    sent: int = 0
    calls: int = 0
    streams: dict[int, Stream] = field(default_factory=dict)
    handed: dict[int, float] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def cut(self) -> None:
        """End the connection."""
        if self.task is not None:
            self.task.cancel()


class Front:
    """Takes connections, and passes their frames on.

    Parameters
    ----------
    host : str
    port : int
        0: any that is free; `port` says which.
    inside : Path
        The socket of the server.
    tls : ssl.SSLContext, optional
        Without it nobody is encrypted; with it everybody.
    limits : FlightLimits, optional
    """

    def __init__(
        self, host: str, port: int, inside: Path, tls: ssl.SSLContext | None = None, limits: FlightLimits | None = None
    ) -> None:
        self._address, self._inside, self._tls, self._limits = (host, port), inside, tls, limits or FlightLimits()
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        self._listening: list[socket.socket] = []
        self._visits: Visits[str, _Visit] = Visits(self._limits)
        self._ending = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="dpsql-flight", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._listening[0].getsockname()[1] if self._listening else self._address[1]
        return port

    def start(self) -> None:
        """Listen; returns at once."""
        self._listening = listen(*self._address)
        for listening in self._listening:
            listening.setblocking(False)
        self._thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """Take nobody any more, let open calls end, and close every connection; returns after so many seconds at the latest."""
        until = time.monotonic() + seconds
        self._ending = True
        while time.monotonic() < until and any(visit.streams for visit in self._visits.values()):
            time.sleep(_LOOK / 10)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def admit(self, key: str, name: str) -> bool:
        """Count a connection as an analyst's; False: she has too many of them, or it is none."""
        return self._visits.admit(key, name)

    def handed(self, key: str, answer: int, *, over: bool = False) -> None:
        """Note when a piece of an answer was handed to a connection; ``over``: it was the last one."""
        visit = self._visits.get(key)
        if visit is not None and over:
            visit.handed.pop(answer, None)
        elif visit is not None:
            visit.handed[answer] = time.monotonic()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            for listening in self._listening:
                self._listen(listening)
            looking = self._loop.create_task(self._look())
            self._loop.run_forever()
        finally:
            for listening in self._listening:
                self._loop.remove_reader(listening)
            tasks = [looking, *(visit.task for visit in self._visits.values() if visit.task is not None)]
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            for _ in range(_TURNS):  # an aborted connection is closed in a later turn of the loop
                self._loop.run_until_complete(asyncio.sleep(0))
            for visit in self._visits.values():  # whose task was ended before it began
                visit.sock.close()
            close(self._listening)
            self._loop.close()

    def _listen(self, listening: socket.socket) -> None:
        if not self._ending:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Take who waits; not by a task, which loses a connection where it is ended with one in its hand."""
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):  # of one connection
            return
        except OSError:  # no file is left for it: a little later one may be
            self._loop.remove_reader(listening)
            self._loop.call_later(_LOOK, self._listen, listening)
            return
        self._enter(sock)

    def _enter(self, sock: socket.socket) -> None:
        """Take a connection, or close it where there are too many."""
        visit = None
        if not self._ending:
            visit = self._visits.enter(lambda: secrets.token_hex(16), lambda key: _Visit(key, time.monotonic(), sock))
        if visit is None:
            sock.close()
        else:
            visit.task = self._loop.create_task(self._serve(visit, sock))

    async def _look(self) -> None:
        """End what takes too long to show a token, or to take an answer."""
        while True:
            await asyncio.sleep(_LOOK)
            now = time.monotonic()
            for visit in self._visits.values():
                # a client that reads nothing would hold its answer, and its place, for ever
                waits = visit.name is None and now - visit.since > self._limits.login
                if waits or any(now - since > self._limits.taking for since in list(visit.handed.values())):
                    visit.cut()

    async def _serve(self, visit: _Visit, sock: socket.socket) -> None:
        """Serve one connection from its first byte to its last."""
        writers: list[asyncio.StreamWriter] = []
        try:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            # strangers are cut before gRPC sees a byte of theirs
            outer, away = await self._opened(sock)
            writers.append(away)
            if await outer.readexactly(len(frames.PREFACE)) != frames.PREFACE:
                raise Cut("no client of gRPC")
            inner, into = await asyncio.open_unix_connection(str(self._inside), limit=2 * _PIECE)
            writers.append(into)
            into.write(frames.PREFACE)
            # both ways end together: half of a connection would keep its place
            works = [asyncio.create_task(work) for work in (self._inward(visit, outer, into), self._outward(visit, inner, away))]
            try:
                await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)
        except (Cut, OSError, EOFError, TimeoutError, ssl.SSLError, asyncio.CancelledError):
            pass
        finally:
            for writer in writers:
                writer.transport.abort()
            if not writers:
                sock.close()
            self._visits.leave(visit.key)

    async def _opened(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection's two directions, after the handshake of TLS where there is one."""
        reader = asyncio.StreamReader(limit=2 * _PIECE)
        protocol = asyncio.StreamReaderProtocol(reader)
        patience = None if self._tls is None else self._limits.login
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, sock, ssl=self._tls, ssl_handshake_timeout=patience
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _inward(self, visit: _Visit, outer: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
        """Pass on what the client sends, as far as it may."""
        while True:
            frame = await self._next(visit, outer)
            self._count(visit, frame)
            last = b""
            # the connection's key is put behind the head, where no client can have written it
            if frame.kind in (frames.HEADERS, frames.CONTINUATION) and frame.flags & frames.END_HEADERS:
                passed, last = frames.said(frame, visit.key)
                into.write(passed.written())
            else:
                into.write(frame.written())
            stream = visit.streams.get(frame.stream) if frame.kind == frames.DATA else None
            async with asyncio.timeout(self._limits.packet):
                left = frame.length
                while left:
                    piece = await outer.readexactly(min(left, _PIECE))
                    left -= len(piece)
                    if stream is not None:
                        stream.take(piece)
                    into.write(piece)
                    await into.drain()
                into.write(last)
                await into.drain()

    async def _next(self, visit: _Visit, outer: asyncio.StreamReader) -> Frame:
        while True:
            try:
                async with asyncio.timeout(self._limits.idle):
                    return Frame.read(await outer.readexactly(frames.HEAD))
            except TimeoutError:
                if not visit.streams:
                    raise Cut("nothing is asked") from None

    def _count(self, visit: _Visit, frame: Frame) -> None:
        """Count a frame of the client's; raises `Cut` where it is one too many."""
        limits = self._limits
        visit.sent += frames.HEAD + frame.length
        # whoever shows no token may neither send much nor begin many calls
        if visit.name is None and visit.sent > limits.stranger:
            raise Cut("too much of nobody we know")
        if frame.kind == frames.DATA:
            if frame.flags & frames.PADDED:  # gRPC's clients do not
                raise Cut("padded")
        # heads are read whole, so they have to be short
        elif frame.length > _PIECE:
            raise Cut("a large frame that is no data")
        if frame.kind == frames.HEADERS and frame.stream not in visit.streams:
            visit.calls += 1
            if self._ending or len(visit.streams) >= limits.calls or (visit.name is None and visit.calls > limits.calls):
                raise Cut("too many calls")
            visit.streams[frame.stream] = Stream(limits.stranger if visit.name is None else limits.largest)
        if frame.kind == frames.RESET:
            visit.streams.pop(frame.stream, None)

    async def _outward(self, visit: _Visit, inner: asyncio.StreamReader, away: asyncio.StreamWriter) -> None:
        """Pass on what the server answers."""
        first = True
        while True:
            frame = Frame.read(await inner.readexactly(frames.HEAD))
            more = b""
            # the server's first word says how many calls a client may have open
            if first and frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
                frame, more, first = *frames.settled(frame, self._limits.calls), False
            away.write(frame.written())
            left = frame.length - len(more)
            while left:
                piece = await inner.readexactly(min(left, _PIECE))
                left -= len(piece)
                away.write(piece)
                await self._taken(away)
            away.write(more)
            await self._taken(away)
            if frame.ends:
                visit.streams.pop(frame.stream, None)

    async def _taken(self, away: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.packet):
            await away.drain()
