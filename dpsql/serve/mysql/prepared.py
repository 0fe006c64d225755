"""Prepared statements: their texts, what is known of their parameters, and the values that come in binary."""

from __future__ import annotations

import datetime
import struct
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from dpsql.serve.mysql.codes import Fault, malformed, too_long
from dpsql.serve.mysql.packets import Fields

MOST: Final = 256
"""Statements that one connection may have prepared."""
_UNSIGNED = 0x8000
_INTEGERS = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 8: 8}
_TEXTS = frozenset({15, 16, 245, 247, 248, 249, 250, 251, 252, 253, 254, 255})
_DATES = frozenset({7, 10, 12})


@dataclass
class Prepared:
    """A statement. ``types``: of its parameters, from the execution before; ``long``: values that came in pieces."""

    text: str
    places: int
    types: tuple[int, ...] = ()
    long: dict[int, bytearray] = field(default_factory=dict)
    spoilt: Fault | None = None

    def add(self, place: int, piece: bytes, largest: int) -> None:
        """Keep a piece of a long value; what is wrong with it is said when the statement is executed."""
        if place >= self.places:
            self.spoilt = Fault(1210, "HY000", "Incorrect arguments to mysqld_stmt_send_long_data")
        elif sum(map(len, self.long.values())) + len(piece) > largest:
            self.spoilt = too_long(largest)
            self.long.clear()
        elif self.spoilt is None:
            self.long.setdefault(place, bytearray()).extend(piece)

    def reset(self) -> None:
        """Forget the long values."""
        self.long.clear()
        self.spoilt = None

    def parameters(self, fields: Fields) -> list[Any]:
        """Return the values of an execution; its types are those of the one before where it brings none."""
        if self.spoilt is not None:
            raise self.spoilt
        if not self.places:
            return []
        nulls = fields.take((self.places + 7) // 8)
        # clients send types with the first execution, and again where they have changed
        if fields.number(1):
            self.types = tuple(fields.number(2) for _ in range(self.places))
        if len(self.types) != self.places:
            raise Fault(1210, "HY000", "Incorrect arguments to mysqld_stmt_execute: the types of the parameters are not known")
        values: list[Any] = []
        for place, kind in enumerate(self.types):
            if place in self.long:
                values.append(_text(bytes(self.long[place])))
            elif nulls[place // 8] >> place % 8 & 1:
                values.append(None)
            else:
                values.append(_value(kind, fields))
        return values


def _value(kind: int, fields: Fields) -> Any:
    code = kind & 0xFF
    if code in _INTEGERS:
        return fields.number(_INTEGERS[code], signed=not kind & _UNSIGNED)
    # a FLOAT as it was typed: the DOUBLE next to it has more digits
    if code == 4:
        return float(f"{struct.unpack('<f', fields.take(4))[0]:.7g}")
    if code == 5:
        return struct.unpack("<d", fields.take(8))[0]
    if code == 6:
        return None
    if code in (0, 246):
        return _decimal(fields.counted())
    if code in _DATES:
        return _moment(code, fields.take(fields.number(1)))
    if code == 11:
        return _time(fields.take(fields.number(1)))
    if code in _TEXTS:
        return _text(fields.counted())
    raise malformed()


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault(1366, "HY000", "Incorrect string value: a parameter is not text in UTF-8") from None


def _decimal(value: bytes) -> Decimal:
    try:
        number = Decimal(value.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        raise malformed() from None
    # 1e999999 would be written out in as many digits
    if not number.is_finite() or abs(number.adjusted()) > 100:
        raise malformed()
    return number


def _moment(code: int, value: bytes) -> datetime.date:
    """Return a date or datetime; one of no day or month is none."""
    if len(value) not in (0, 4, 7, 11):
        raise malformed()
    year, month, day = struct.unpack("<HBB", value[:4]) if value else (0, 0, 0)
    hour, minute, second = struct.unpack("<BBB", value[4:7]) if len(value) > 4 else (0, 0, 0)
    micro = int.from_bytes(value[7:11], "little")
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, micro)
    except ValueError:
        raise Fault(1292, "22007", "Incorrect datetime value in a parameter") from None
    return moment.date() if code == 10 else moment


def _time(value: bytes) -> datetime.time:
    if len(value) not in (0, 8, 12):
        raise malformed()
    negative, days, hour, minute, second = struct.unpack("<BIBBB", value[:8]) if value else (0, 0, 0, 0, 0)
    try:
        if negative or days:
            raise ValueError
        return datetime.time(hour, minute, second, int.from_bytes(value[8:12], "little"))
    except ValueError:
        raise Fault(1292, "22007", "Incorrect time value in a parameter: it is a time of a day here") from None


class Statements:
    """The prepared statements of one connection."""

    def __init__(self) -> None:
        self._kept: dict[int, Prepared] = {}
        self._last = 0

    def keep(self, text: str, places: int) -> int:
        """Keep a statement, and return its number."""
        if len(self._kept) >= MOST:
            raise Fault(1461, "42000", f"Can't create more than {MOST} prepared statements on a connection")
        self._last += 1
        self._kept[self._last] = Prepared(text, places)
        return self._last

    def get(self, number: int) -> Prepared:
        """Return a statement; raises `Fault` where there is none of this number."""
        if number not in self._kept:
            raise Fault(1243, "HY000", f"Unknown prepared statement handler ({number})")
        return self._kept[number]

    def find(self, number: int) -> Prepared | None:
        """Return a statement, for commands that are not answered."""
        return self._kept.get(number)

    def drop(self, number: int) -> None:
        """Forget a statement."""
        self._kept.pop(number, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._kept.clear()
