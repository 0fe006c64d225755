"""Flight SQL by hand: messages in protobuf's encoding, calls of `pyarrow.flight`, frames of HTTP/2 over a socket."""

import contextlib
import socket
import struct

from pyarrow import flight
from struck import LONG

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def counted(number, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(name, *fields):
    """A message in its envelope; fields are numbers with a text, bytes, a flag, a number, or a list of these."""
    inner = b""
    for number, value in fields:
        for each in value if isinstance(value, list) else [value]:
            inner += varint(number << 3) + varint(int(each)) if isinstance(each, int) else counted(number, each)
    return counted(1, PREFIX + name) + counted(2, inner)


def query(text):
    return message("CommandStatementQuery", (1, text))


def command(data):
    return flight.FlightDescriptor.for_command(data)


class Client:
    """A client of pyarrow's with headers of its own."""

    def __init__(self, port, *headers):
        self.raw = flight.connect(f"grpc://127.0.0.1:{port}")
        self.options = flight.FlightCallOptions(headers=[(name.encode(), value.encode()) for name, value in headers], timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.raw.close()

    def info(self, data):
        return self.raw.get_flight_info(command(data), self.options)

    def get(self, ticket):
        return self.raw.do_get(ticket if isinstance(ticket, flight.Ticket) else flight.Ticket(ticket), self.options).read_all()

    def ask(self, data):
        """The answer of a command, or of a text."""
        return self.get(self.info(query(data) if isinstance(data, str) else data).endpoints[0].ticket)

    def act(self, name, body=b""):
        return [result.body.to_pybytes() for result in self.raw.do_action(flight.Action(name, body), self.options)]

    def prepare(self, text):
        """The handle of a prepared statement."""
        return parts(self.act("CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", (1, text)))[0])[1]

    def put(self, data, table):
        writer, reader = self.raw.do_put(command(data), table.schema, self.options)
        with contextlib.closing(writer):
            writer.write_table(table)
            writer.done_writing()
            while reader.read() is not None:
                pass


def bearer(port, token):
    return Client(port, ("authorization", f"Bearer {token}"))


def parts(data):
    """The fields of a message of bytes alone, out of its envelope."""
    return _fields(_fields(data)[2])


def _fields(data):
    found, place = {}, 0

    def number():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
            if byte < 0x80:
                return value

    while place < len(data):
        key, size = number(), number()
        found[key >> 3] = data[place : place + size]
        place += size
    return found


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def headers(stream, *pairs, flags=4, method="GetFlightInfo"):
    """The frame that opens a call, each header as a literal."""
    usual = [(":method", "POST"), (":scheme", "http"), (":path", f"/arrow.flight.protocol.FlightService/{method}"), (":authority", "x"),
             ("te", "trailers"), ("content-type", "application/grpc")]  # fmt: skip
    block = b""
    for name, value in [*usual, *pairs]:
        size = len(value)
        assert size < 127 + 128
        length = bytes([size]) if size < 127 else bytes([127, size - 127])
        block += b"\0" + bytes([len(name)]) + name.encode() + length + value.encode()
    return frame(1, flags, stream, block)


def grpc(payload, compressed=0, claimed=None):
    return struct.pack(">BI", compressed, len(payload) if claimed is None else claimed) + payload


class Raw:
    """A socket on which frames are written, and read until it ends."""

    def __init__(self, port, greet=True):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        self.left = b""  # of a frame whose end has not come yet, or that nobody has asked for
        if greet:
            self.send(PREFACE + frame(4, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        with contextlib.suppress(OSError):  # it may have been ended already
            self.sock.sendall(data)

    def frames(self):
        """Frames until the server ends the connection."""
        while True:
            while len(self.left) >= 9 and len(self.left) >= (size := 9 + int.from_bytes(self.left[:3])):
                found, self.left = self.left[:size], self.left[size:]
                yield found[3], found[4], int.from_bytes(found[5:9]), found[9:]
            try:
                piece = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return
            except TimeoutError:
                raise AssertionError("the server did not end the connection") from None
            if not piece:
                return
            self.left += piece

    def ended(self):
        """Read to the end; the bytes of the frames that came before."""
        return b"".join(payload for *_, payload in self.frames())
