"""The messages of Flight SQL, in protobuf's encoding.

They are a dozen, of texts, bytes, flags and numbers alone. So they are read here: generated classes would need a version of
protobuf's runtime, which other packages of a custodian's environment pin to another one (dbt does).

Privacy: None: what is read was typed by the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dpsql.serve.passed import Refused

_PREFIX: Final = "type.googleapis.com/arrow.flight.protocol.sql."
_VARINT, _FIXED64, _COUNTED, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10


@dataclass(frozen=True)
class Message:
    """A message: its name, and its fields by their numbers, each as often as it came, in order."""

    name: str
    fields: Mapping[int, list[int | bytes]]

    def text(self, number: int) -> str:
        """Return a text, empty where there is none."""
        return self.maybe(number) or ""

    def maybe(self, number: int) -> str | None:
        """Return a text, or None."""
        texts = self.texts(number)
        return texts[-1] if texts else None

    def texts(self, number: int) -> list[str]:
        """Return a text that may come several times."""
        return [_text(value) for value in self.fields.get(number, [])]

    def bytes(self, number: int) -> bytes:
        """Return bytes, none where there are none."""
        value = self.fields.get(number, [b""])[-1]
        if isinstance(value, int):
            raise _malformed()
        return value

    def flag(self, number: int) -> bool:
        """Return whether a flag is set."""
        return bool(self.fields.get(number, [0])[-1])

    def numbers(self, number: int) -> list[int]:
        """Return numbers, which may come one by one, or packed."""
        unpacked: list[int] = []
        for value in self.fields.get(number, []):
            unpacked += [value] if isinstance(value, int) else _packed(value)
        return unpacked


def read(data: bytes) -> Message:
    """Return the message that a command, a ticket or the body of an action is.

    Raises
    ------
    Refused
        It is no message of Flight SQL.
    """
    outer = _fields(data)
    names, inner = outer.get(1, []), outer.get(2, [b""])[-1]
    name = _text(names[-1]) if names else ""
    if not name.startswith(_PREFIX) or isinstance(inner, int):
        raise Refused("unsupported", "this is no message of Flight SQL: other ones of Flight are not answered")
    return Message(name.removeprefix(_PREFIX), _fields(inner))


def written(name: str, fields: Mapping[int, bytes]) -> bytes:
    """Return a message of bytes and texts, in its envelope."""
    inner = b"".join(_counted(number, value) for number, value in fields.items())
    return _counted(1, f"{_PREFIX}{name}".encode()) + _counted(2, inner)


def _fields(data: bytes) -> dict[int, list[int | bytes]]:
    fields: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, place = _varint(data, place)
        elif wire == _COUNTED or wire in _FIXED:
            size, place = _varint(data, place) if wire == _COUNTED else (_FIXED[wire], place)
            value, place = data[place : place + size], place + size
        else:
            raise _malformed()
        if number == 0 or place > len(data):
            raise _malformed()
        fields.setdefault(number, []).append(value)
    return fields


def _packed(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it."""
    value = 0
    for shift, byte in enumerate(data[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    raise _malformed()


def _counted(number: int, value: bytes) -> bytes:
    return _number(number << 3 | _COUNTED) + _number(len(value)) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise _malformed()
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Refused("syntax", "a text is not in UTF-8") from None


def _malformed() -> Refused:
    return Refused("syntax", "a message is broken: it is not what Flight SQL sends")
