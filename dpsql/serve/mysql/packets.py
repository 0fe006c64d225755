"""Packets of MySQL's protocol on one connection: every wait has an end, and nothing is read beyond the packet that is asked for."""

from __future__ import annotations

import socket
import ssl
import struct
import time

from dpsql.serve.mysql.codes import Fault, malformed, too_long

FULL = 0xFFFFFF
"""Bytes of a packet that another one continues."""
_PIECE = 1 << 15


class Gone(Exception):
    """The client is gone, or too slow: nothing more is said to it."""


class Wire:
    """One connection.

    Parameters
    ----------
    sock : socket
    seconds : float
        What the rest of a packet whose first byte is there may take, and a piece of what is written.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._seconds = sock, seconds
        self._sequence = 0
        self.secure = False

    def restart(self) -> None:
        """Begin to count packets anew: a command begins."""
        self._sequence = 0

    def read(self, largest: int, until: float, *, whole: bool = False) -> bytes:
        """Return the payload of the next packet, with those that continue it.

        Parameters
        ----------
        largest : int
            Bytes that it may have in all.
        until : float
            By which time (`time.monotonic`) its first byte has to be there.
        whole : bool
            Whether all of it has to be there by then; else the rest has its own time.
        """
        payload, first = bytearray(), True
        while True:
            header = bytearray(self._exactly(1, until)) if first else bytearray()
            # the wait for a command is long; once it has begun, the rest must come soon
            if first and not whole:
                until = time.monotonic() + self._seconds
            first = False
            header += self._exactly(4 - len(header), until)
            length, sequence = int.from_bytes(header[:3], "little"), header[3]
            if sequence != self._sequence:
                raise malformed()
            self._sequence = (self._sequence + 1) & 0xFF
            if len(payload) + length > largest:
                raise too_long(largest)
            payload += self._exactly(length, until)
            if length < FULL:
                return bytes(payload)

    def write(self, *payloads: bytes) -> None:
        """Send packets."""
        self.send(self.framed(payloads))

    def framed(self, payloads: tuple[bytes, ...] | list[bytes]) -> bytes:
        """Return packets with their headers, the next of this connection; a long one is split."""
        out = bytearray()
        for payload in payloads:
            for at in range(0, len(payload) + 1, FULL):
                piece = payload[at : at + FULL]
                out += struct.pack("<I", len(piece) | self._sequence << 24) + piece
                self._sequence = (self._sequence + 1) & 0xFF
        return bytes(out)

    def send(self, data: bytes) -> None:
        """Send bytes; a client that does not take a piece of them in time is gone."""
        view = memoryview(data)
        try:
            for at in range(0, len(view), _PIECE):
                self._sock.settimeout(self._seconds)
                self._sock.sendall(view[at : at + _PIECE])
        except (OSError, ValueError) as error:
            raise Gone from error

    def encrypt(self, context: ssl.SSLContext, until: float) -> socket.socket:
        """Go on in TLS, and return the socket that the connection has now.

        No byte was read beyond the request, so none of the client's greeting is lost where it comes in the same segment.
        """
        try:
            self._sock.settimeout(max(until - time.monotonic(), 0.001))
            wrapped = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            raise Gone from error
        self._sock, self.secure = wrapped, True
        return wrapped

    def greet(self) -> None:
        """Do TLS's handshake, within the time that `encrypt` set."""
        try:
            if isinstance(self._sock, ssl.SSLSocket):
                self._sock.do_handshake()
        except (OSError, ValueError) as error:
            raise Gone from error

    def _exactly(self, length: int, until: float) -> bytes:
        """Return so many bytes; room is made for what has come, not for what was announced."""
        got = bytearray()
        try:
            while len(got) < length:
                left = until - time.monotonic()
                if left <= 0:
                    raise Gone
                self._sock.settimeout(left)
                piece = self._sock.recv(min(length - len(got), _PIECE))
                if not piece:
                    raise Gone
                got += piece
        except (OSError, ValueError) as error:
            raise Gone from error
        return bytes(got)


class Fields:
    """Reads the fields of a payload; what is not all there is malformed."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._payload) - self._at

    def take(self, length: int) -> bytes:
        """Return so many bytes."""
        if length > self.left:
            raise malformed()
        self._at += length
        return self._payload[self._at - length : self._at]

    def number(self, size: int, *, signed: bool = False) -> int:
        """Return an integer of so many bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def until_zero(self) -> bytes:
        """Return the bytes before the next zero byte, which is dropped; all that are left where there is none."""
        end = self._payload.find(b"\0", self._at)
        before = self.take(self.left if end < 0 else end - self._at)
        if self.left:
            self._at += 1
        return before

    def counted(self) -> bytes:
        """Return bytes after their length."""
        first = self.number(1)
        if first in (0xFB, 0xFF):
            raise malformed()
        return self.take(first if first < 0xFB else self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[first]))

    def rest(self) -> bytes:
        """Return what is left."""
        return self.take(self.left)


def length(value: int) -> bytes:
    """Return a length as the protocol writes it."""
    if value < 0xFB:
        return bytes([value])
    for first, size in ((0xFC, 2), (0xFD, 3)):
        if value < 1 << 8 * size:
            return bytes([first]) + value.to_bytes(size, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def counted(value: bytes) -> bytes:
    """Return bytes after their length."""
    return length(len(value)) + value


def done(status: int, warnings: int = 0) -> bytes:
    """Return the packet that says that a command is done: no row was changed."""
    return b"\0\0\0" + struct.pack("<HH", status, warnings)


def end(status: int, warnings: int = 0) -> bytes:
    """Return the packet that ends columns or rows."""
    return b"\xfe" + struct.pack("<HH", warnings, status)


def failed(fault: Fault) -> bytes:
    """Return the packet of an error: one line."""
    text = " ".join(fault.text.split())
    return b"\xff" + struct.pack("<H", fault.code) + b"#" + fault.state.encode() + text.encode("utf-8", "replace")[:1000]
