"""HTTP/2's frames, as far as a connection can be limited by them: what a client may send before gRPC has to keep it.

gRPC's server, as pyarrow makes it, takes any number of connections and of calls on each, and messages of 2 GB, compressed ones too,
before anybody looks who sends them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
HEAD: Final = 9
"""Bytes before the payload of a frame."""
HEADER: Final = "x-dpsql-connection"
"""Where a call says on which connection it came: put in by the front, after everything that the client has said."""
_MOST_STREAMS = 3
_MESSAGE_HEAD = 5


class Cut(Exception):
    """The connection ends: it is no client's that keeps to the limits."""


@dataclass(frozen=True)
class Frame:
    """The head of a frame."""

    length: int
    kind: int
    flags: int
    stream: int

    @classmethod
    def read(cls, head: bytes) -> Frame:
        """Return the head that these nine bytes are."""
        return cls(int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:9]) & 0x7FFFFFFF)

    def written(self) -> bytes:
        """Return the nine bytes."""
        return self.length.to_bytes(3) + bytes([self.kind, self.flags]) + self.stream.to_bytes(4)

    @property
    def ends(self) -> bool:
        """Whether its sender says nothing more on this stream."""
        return self.kind == RESET or (self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM))


@dataclass
class Stream:
    """What a client has sent in one call: messages of gRPC, each with its length before it.

    Parameters
    ----------
    most : int
        Bytes, of all of them.
    """

    most: int
    sent: int = 0
    _rest: int = 0
    _head: bytes = field(default=b"")

    def take(self, piece: bytes) -> None:
        """Count a piece of what is sent.

        Raises
        ------
        Cut
            It is more than may be sent, or compressed, so that nobody knows how much it is.
        """
        self.sent += len(piece)
        while piece:
            if not self._rest:
                missing = _MESSAGE_HEAD - len(self._head)
                self._head, piece = self._head + piece[:missing], piece[missing:]
                if len(self._head) == _MESSAGE_HEAD:
                    if self._head[0]:
                        raise Cut("a compressed message")
                    self._rest, self._head = int.from_bytes(self._head[1:]), b""
            else:
                step = min(self._rest, len(piece))
                self._rest, piece = self._rest - step, piece[step:]
        if self.sent + self._rest > self.most:
            raise Cut("a message that is too large")


def said(frame: Frame, connection: str) -> tuple[Frame, bytes]:
    """Return the last frame of the headers of a call so that it is not the last one, and the frame that says the connection.

    It is written so that nothing of what was said before is needed to read it (HPACK: a literal that is not indexed). A client
    whose headers end in the midst of one swallows it, and is not let in.
    """
    name, value = HEADER.encode(), connection.encode()
    block = b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    last = Frame(len(block), CONTINUATION, END_HEADERS, frame.stream)
    return Frame(frame.length, frame.kind, frame.flags & ~END_HEADERS, frame.stream), last.written() + block


def settled(frame: Frame, streams: int) -> tuple[Frame, bytes]:
    """Return the server's settings one longer, and that one: how many calls may be open at once; clients wait then."""
    setting = _MOST_STREAMS.to_bytes(2) + streams.to_bytes(4)
    return Frame(frame.length + len(setting), frame.kind, frame.flags, frame.stream), setting
