"""MySQL's protocol by hand, for what no client of it would send."""

import hashlib
import socket
import struct

FLAGS = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x80000
LONG = 60.0
"""Seconds after which what hangs is ended; nothing waits for them."""


class Closed(Exception):
    """The server closed the connection."""


class Raw:
    """A connection; ``greeting``: the server's first packet, unless ``greet`` is False."""

    def __init__(self, port, *, greet=True):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        self.sequence = 0
        self.greeting = self.read() if greet else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.sock.close()

    def read(self):
        header = self._exactly(4)
        self.sequence = (header[3] + 1) & 0xFF
        return self._exactly(int.from_bytes(header[:3], "little"))

    def _exactly(self, length):
        got = b""
        while len(got) < length:
            try:
                piece = self.sock.recv(length - len(got))
            except ConnectionError:
                piece = b""
            if not piece:
                raise Closed
            got += piece
        return got

    def packet(self, payload, sequence=None):
        number = self.sequence if sequence is None else sequence
        self.sequence = (number + 1) & 0xFF
        return struct.pack("<I", len(payload) | number << 24) + payload

    def send(self, payload, sequence=None):
        self.sock.sendall(self.packet(payload, sequence))

    def command(self, code, payload=b""):
        self.sequence = 0
        self.send(bytes([code]) + (payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload))

    @property
    def nonce(self):
        at = self.greeting.index(b"\0") + 5
        return self.greeting[at : at + 8] + self.greeting[at + 27 : at + 39]

    @property
    def flags(self):
        at = self.greeting.index(b"\0") + 14
        return int.from_bytes(self.greeting[at : at + 2] + self.greeting[at + 5 : at + 7], "little")

    def login(self, user, answer=None, *, token=None, plugin=b"mysql_native_password", flags=FLAGS, database=None):
        if answer is None:
            answer = scrambled(token, self.nonce)
        name = user.encode() if isinstance(user, str) else user
        body = struct.pack("<IIB23x", flags | (8 if database else 0), 1 << 24, 45) + name + b"\0" + bytes([len(answer)]) + answer
        self.send(body + (database.encode() + b"\0" if database else b"") + plugin + b"\0", sequence=self.sequence)
        return self.read()

    def query(self, text):
        """Return the rows of a question as texts, or the code and text of an error."""
        self.command(3, text)
        return self.rows()

    def rows(self):
        first = self.read()
        if first[0] == 0xFF:
            return error(first)
        if first[0] == 0:
            return []
        columns = first[0]
        for _ in range(columns):
            self.read()
        assert self.read()[0] == 0xFE
        found = []
        while True:
            row = self.read()
            if row[0] == 0xFE and len(row) < 9:
                self.warnings = int.from_bytes(row[1:3], "little")
                return found
            found.append(row)

    def prepare(self, text):
        """Return the number of a statement, of its columns and of its parameters."""
        self.command(0x16, text)
        first = self.read()
        if first[0] == 0xFF:
            return error(first)
        number, columns, parameters = struct.unpack("<IHH", first[1:9])
        for count in (parameters, columns):
            for _ in range(count):
                self.read()
            if count:
                assert self.read()[0] == 0xFE
        return number, columns, parameters

    def execute(self, number, rest=b""):
        self.command(0x17, struct.pack("<IBI", number, 0, 1) + rest)
        return self.rows()


def error(packet):
    """Return the code and text of the packet of an error."""
    assert packet[0] == 0xFF
    at = 9 if packet[3:4] == b"#" else 3
    return int.from_bytes(packet[1:3], "little"), packet[at:].decode()


def scrambled(token, nonce):
    """Return what a client makes of its token and what the server sent."""
    once = hashlib.sha1(token.encode()).digest()
    mask = hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def texts(row):
    """Return the values of a row of texts."""
    found, at = [], 0
    while at < len(row):
        if row[at] == 0xFB:
            found.append(None)
            at += 1
            continue
        size, at = row[at], at + 1
        if size == 0xFC:
            size, at = int.from_bytes(row[at : at + 2], "little"), at + 2
        elif size == 0xFD:
            size, at = int.from_bytes(row[at : at + 3], "little"), at + 3
        found.append(row[at : at + size].decode())
        at += size
    return found
