"""Who is there: MySQL's handshake, until a token was shown or the connection is over.

Privacy
-------
An unknown name is compared with a random token that nobody has, so that it answers as a wrong token does, by the same steps.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dpsql.serve.mysql.codes import Fault, denied, malformed
from dpsql.serve.mysql.packets import Fields, Wire
from dpsql.serve.passed import Keys

VERSION: Final = "8.0.36-dpsql"
NATIVE, CLEAR, SHA2 = b"mysql_native_password", b"mysql_clear_password", b"caching_sha2_password"
LARGEST: Final = 1 << 14
"""Bytes of a packet before anybody is known."""
AUTOCOMMIT: Final = 2

_LONG_PASSWORD, _LONG_FLAG, _WITH_DATABASE, _PROTOCOL_41, _TLS = 1, 4, 8, 0x200, 0x800
_TRANSACTIONS, _SECURE, _PLUGIN, _ATTRIBUTES, _COUNTED = 0x2000, 0x8000, 0x80000, 0x100000, 0x200000
_OFFERED = _LONG_PASSWORD | _LONG_FLAG | _WITH_DATABASE | _PROTOCOL_41 | _TRANSACTIONS | _SECURE | _PLUGIN | _ATTRIBUTES | _COUNTED
"""Not offered: LOCAL INFILE, compression, several statements or results, query attributes, and DEPRECATE_EOF (the end of an answer
has one form then, and no client waits for another one)."""


@dataclass(frozen=True)
class Tls:
    """TLS of a door: its context, and whether a client without it is sent away."""

    context: ssl.SSLContext
    required: bool = False


@dataclass(frozen=True)
class Visitor:
    """Who came in: name, number of the token, the database that was asked for."""

    name: str
    number: int
    database: str


@dataclass(frozen=True)
class _Greeting:
    name: str
    shown: bytes
    database: str
    plugin: bytes


def admit(
    wire: Wire, keys: Keys, connection: int, until: float, tls: Tls | None, replaced: Callable[[socket.socket], None]
) -> Visitor:
    """Do the handshake; raises `Fault` where nobody is let in, and `Gone` after the time ``until``.

    Parameters
    ----------
    wire : Wire
    keys : Keys
    connection : int
        The number that the client sees.
    until : float
        By when all of it has to be done.
    tls : Tls or None
    replaced : callable
        Told of the socket that TLS puts in the place of the connection's.
    """
    nonce = _nonce()
    offered = _OFFERED | (_TLS if tls else 0)
    wire.write(
        b"\x0a" + VERSION.encode() + b"\0" + struct.pack("<I", connection) + nonce[:8] + b"\0"
        + struct.pack("<HBHHB", offered & 0xFFFF, 45, AUTOCOMMIT, offered >> 16, 21) + bytes(10)
        + nonce[8:] + b"\0" + NATIVE + b"\0"
    )  # fmt: skip
    answer = wire.read(LARGEST, until, whole=True)
    # encryption begins before a name or a token is shown
    if len(answer) >= 4 and int.from_bytes(answer[:4], "little") & _TLS:
        if tls is None or len(answer) != 32:
            raise malformed()
        replaced(wire.encrypt(tls.context, until))
        wire.greet()
        answer = wire.read(LARGEST, until, whole=True)
    elif tls is not None and tls.required:
        raise Fault(3159, "HY000", "Connections have to be encrypted: this server takes no other (ssl-mode=REQUIRED)")
    greeting = _greeting(answer)
    number = _known(wire, keys, greeting, nonce, until)
    if number is None:
        raise denied(greeting.name)
    return Visitor(greeting.name, number, greeting.database)


def _nonce() -> bytes:
    """Return twenty random bytes, none of them zero or a dollar sign, as the protocol wants."""
    return bytes(secrets.choice(_LETTERS) for _ in range(20))


_LETTERS = bytes(letter for letter in range(33, 127) if letter != ord("$"))


def _greeting(answer: bytes) -> _Greeting:
    fields = Fields(answer)
    flags = fields.number(4)
    if not flags & _PROTOCOL_41:
        raise Fault(1043, "08S01", "Bad handshake")
    # the largest packet, letters, and 23 bytes without meaning
    fields.take(28)
    name = fields.until_zero()
    if flags & _COUNTED:
        shown = fields.counted()
    elif flags & _SECURE:
        shown = fields.take(fields.number(1))
    else:
        shown = fields.until_zero()
    database = fields.until_zero() if flags & _WITH_DATABASE else b""
    plugin = fields.until_zero() if flags & _PLUGIN else NATIVE
    try:
        return _Greeting(name[:128].decode(), shown, database[:256].decode(), plugin)
    except UnicodeDecodeError:
        raise malformed() from None


def _known(wire: Wire, keys: Keys, greeting: _Greeting, nonce: bytes, until: float) -> int | None:
    """Return the number of the token that was shown; None: it was none, or another's."""
    # a token itself is taken over an encrypted connection alone; else only what was made of it
    if wire.secure and greeting.plugin in (CLEAR, SHA2):
        shown = greeting.shown
        if greeting.plugin == SHA2:  # its long way, which TLS protects; clients without the native one have no other
            wire.write(b"\xfe" + SHA2 + b"\0" + _nonce() + b"\0")
            shown = wire.read(LARGEST, until, whole=True)
            if shown.strip(b"\0"):
                wire.write(b"\x01\x04")
                shown = wire.read(LARGEST, until, whole=True)
        token = shown.removesuffix(b"\0")
        return keys.admits(greeting.name, token.decode("utf-8", "replace")) if token else None
    shown = greeting.shown
    if greeting.plugin != NATIVE:
        nonce = _nonce()
        wire.write(b"\xfe" + NATIVE + b"\0" + nonce + b"\0")
        shown = wire.read(LARGEST, until, whole=True)
    return keys.number(greeting.name) if native_holds(keys.native(greeting.name), nonce, shown) else None


def native_holds(stored: bytes | None, nonce: bytes, shown: bytes) -> bool:
    """Return whether a native answer was made from the token of which SHA1(SHA1(token)) is stored.

    Parameters
    ----------
    stored : bytes or None
        None: nobody has this name; it is compared with a random one.
    nonce, shown : bytes
        What the client got, and what it made of it: SHA1(token) XOR SHA1(nonce, SHA1(SHA1(token))).
    """
    against = secrets.token_bytes(20) if stored is None else stored
    answer = shown if len(shown) == 20 else bytes(20)  # an empty password has no answer: it goes the same way
    mask = hashlib.sha1(nonce + against).digest()  # noqa: S324 -- the protocol's; tokens have 256 random bits
    once = bytes(one ^ other for one, other in zip(answer, mask, strict=True))
    same = hmac.compare_digest(hashlib.sha1(once).digest(), against)  # noqa: S324
    return same and len(shown) == 20 and stored is not None
