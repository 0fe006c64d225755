"""Box tables as DuckDB draws them: names, types, the first and last rows, what is hidden said below."""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from dpsql.cli.messages import visible
from dpsql.cli.results import Result, Row

MOST_READ = 10_000
"""Rows that are read to count them and to show the last ones; a longer result is cut after its first rows."""
_MOST_CELLS = 500_000
_LEAST_ROOM = 20
_NARROWEST = 20
"""Columns are not made narrower than this while others can be hidden."""
_FOOTER_FROM = 10
_WHOLE = ("release",)
"""Columns whose values are typed again: half a name is none."""

_NUMBERS = {
    "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64", "HUGEINT": "int128", "UTINYINT": "uint8",
    "USMALLINT": "uint16", "UINTEGER": "uint32", "UBIGINT": "uint64", "UHUGEINT": "uint128", "FLOAT": "float", "DOUBLE": "double",
}


@dataclass(frozen=True)
class Head:
    """The rows of a result that are shown.

    Attributes
    ----------
    first, last : sequences of rows
        Between them rows are left out, unless all are in ``first``.
    total : int
        How many rows there are, as far as they were read.
    more : bool
        Whether there are others that were not read.
    """

    first: Sequence[Row]
    last: Sequence[Row]
    total: int
    more: bool = False


def head(result: Result, most: int) -> Head:
    """Read what is to be shown of a result: at most ``most`` rows (0: all of them), and never a very long result to its end."""
    if most <= 0:
        rows = list(result.rows())
        return Head(rows, [], len(rows))
    # One more than is shown, at least: so it is known whether anything is left out.
    limit = max(most + 1, min(MOST_READ, _MOST_CELLS // max(1, len(result.names))))
    rows_left = islice(result.rows(), limit)
    start = list(islice(rows_left, most))
    kept = (most + 1) // 2
    last: deque[Row] = deque(start[kept:], maxlen=most - kept)
    read = len(start)
    for row in rows_left:
        last.append(row)
        read += 1
    # Not read to its end: there are last rows, but nobody knows which.
    if read == limit and next(result.rows(), None) is not None:
        return Head(start, [], read, more=True)
    return Head(start, [], read) if read <= most else Head(start[:kept], list(last), read)


def lines(result: Result, *, most: int, width: int | None, null: str = "NULL", plain: bool = False) -> Iterator[str]:
    """Yield the lines of a table.

    Parameters
    ----------
    result : Result
    most : int
        Rows to show; 0: all.
    width : int or None
        Of the terminal; None: no limit.
    null : str
        How NULL is shown.
    plain : bool
        For people who don't know SQL: without types, and a line a value where columns would be hidden.
    """
    shown = head(result, most)
    table = _Table.of(result, shown, null, types=not plain)
    table.fit(width)
    if plain and table.hidden:
        yield from upright(result.names, shown.first, null, width)
    else:
        yield from table.lines(shown)


def upright(names: Sequence[str], rows: Iterable[Row], null: str, width: int | None = None) -> Iterator[str]:
    """Yield a line a value, and an empty line between rows; what is longer than ``width`` goes on below where it began."""
    titles = [visible(name) for name in names]
    left = max(map(width_of, titles), default=0)
    room = sys.maxsize if width is None else max(width - left - 3, _LEAST_ROOM)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for title, value in zip(titles, row, strict=True):
            text = null if value is None else visible(value)
            wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) if len(text) > room else [text]
            first, *rest = wrapped or [text]
            yield f"{' ' * (left - width_of(title))}{title} = {first}"
            yield from (f"{' ' * (left + 3)}{line}" for line in rest)


def width_of(text: str) -> int:
    r"""Return how many places a text takes on a terminal.

    Examples
    --------
    >>> width_of("abc"), width_of("你好"), width_of("e\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    spacing = (c for c in text if not unicodedata.combining(c) and c not in "\u200d\ufe0f")
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in spacing)


def is_number(kind: str) -> bool:
    """Whether values of this type stand on the right."""
    return kind in _NUMBERS or kind.startswith("DECIMAL(") and not kind.endswith("]")


def type_name(name: str) -> str:
    """Return a type as DuckDB's shell names it.

    Examples
    --------
    >>> type_name("BIGINT[]"), type_name("DECIMAL(5,2)"), type_name("ENUM('a', 'b')")
    ('int64[]', 'decimal(5,2)', 'enum')
    """
    base = name.rstrip("[]0123456789") if name.endswith("]") else name
    if base.startswith("ENUM("):
        return "enum" + name[len(base) :]
    return _NUMBERS.get(base, base.lower().strip('"')) + name[len(base) :]


def _cut(text: str, width: int) -> str:
    """Return a text that takes ``width`` places at most."""
    if width_of(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += width_of(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _pad(text: str, width: int, side: str) -> str:
    space = max(0, width - width_of(text))
    if side == "left":
        return text + " " * space
    left = space if side == "right" else space // 2
    return " " * left + text + " " * (space - left)


class _Table:
    """Cells as they are printed, and the width of each column."""

    def __init__(self, columns: list[list[str]], rights: list[bool]) -> None:
        self.columns = columns  # each: name, type, values
        self.sides = ["right" if right else "left" for right in rights]
        self.widths = [max(map(width_of, cells)) for cells in columns]
        self.all = len(columns)
        self.hidden = 0
        self.narrowed = [cells[0] not in _WHOLE for cells in columns]

    @classmethod
    def of(cls, result: Result, shown: Head, null: str, *, types: bool) -> _Table:
        """Lay out the rows that are shown."""
        rows = [*shown.first, *shown.last]
        cells = []
        for i, (name, kind) in enumerate(zip(result.names, result.types, strict=True)):
            values = (null if row[i] is None else visible(str(row[i])) for row in rows)
            cells.append([visible(name), visible(type_name(kind)) if types else "", *values])
        return cls(cells, [is_number(kind) for kind in result.types])

    def fit(self, width: int | None) -> None:
        """Make wide columns narrower, then hide columns in the middle, until the table fits."""
        if width is None:
            return
        over = self._over(width)
        places = [i for i in range(self.all) if self.narrowed[i]]
        # The widest first, and none below the others: so much is taken from one only where it stands out.
        for place in sorted(places, key=lambda i: -self.widths[i]):
            if over <= 0:
                return
            others = max((self.widths[i] for i in places if i != place), default=0)
            least = max(_NARROWEST, others if others < self.widths[place] else 0)
            over = self._narrow(place, max(least, self.widths[place] - over), width)
        # All as narrow as they may be; what does not fit even so is hidden.
        for place in sorted(places, key=lambda i: -self.widths[i]):
            if over > 0 and self.widths[place] > _NARROWEST:
                over = self._narrow(place, max(_NARROWEST, self.widths[place] - over), width)
        if over > 0:
            self._hide(width)

    def _over(self, width: int) -> int:
        return sum(w + 3 for w in self.widths) + 1 - width

    def _narrow(self, place: int, width: int, whole: int) -> int:
        self.widths[place] = min(self.widths[place], width)
        return self._over(whole)

    def _hide(self, width: int) -> None:
        """Keep columns from both ends for as long as they fit, a column of dots between them."""
        left, right, room = 0, 0, width - 5
        while left + right < self.all:
            place = left if left <= right else self.all - 1 - right
            room -= self.widths[place] + 3
            if room < 0:
                break
            left, right = (left + 1, right) if left <= right else (left, right + 1)
        # The first column says what a row is about.
        left = max(left, 1)
        kept = [*range(left), *range(self.all - right, self.all)]
        if len(kept) < self.all:
            dots = ["…"] * len(self.columns[0])
            self.columns = [*(self.columns[i] for i in kept[:left]), dots, *(self.columns[i] for i in kept[left:])]
            self.sides = [*(self.sides[i] for i in kept[:left]), "left", *(self.sides[i] for i in kept[left:])]
            self.widths = [*(self.widths[i] for i in kept[:left]), 1, *(self.widths[i] for i in kept[left:])]
            self.hidden = self.all - len(kept)

    def lines(self, shown: Head) -> Iterator[str]:
        """Yield the drawn lines."""
        yield self._rule("┌┬┐")
        yield self._line(0, ["center"] * len(self.columns))
        # Types stand below the names where a result has them.
        if any(cells[1] for cells in self.columns):
            yield self._line(1, ["center"] * len(self.columns))
        first, last = len(shown.first), len(shown.last)
        if first + last:
            yield self._rule("├┼┤")
        yield from (self._line(2 + i, self.sides) for i in range(first))
        if last:
            yield from ["│" + "│".join(f" {_pad('·', w, s)} " for w, s in zip(self.widths, self.sides, strict=True)) + "│"] * 3
        yield from (self._line(2 + i, self.sides) for i in range(first, first + last))
        yield self._rule("└┴┘")
        footer = "   ".join(self._footer(shown))
        if footer:
            yield f"  {footer}"

    def _footer(self, shown: Head) -> Iterable[str]:
        printed = len(shown.first) + len(shown.last)
        if shown.more:
            yield f"more than {shown.total:,} rows ({printed} shown)"
        elif printed < shown.total:
            yield f"{shown.total:,} rows ({printed} shown)"
        elif not printed or printed >= _FOOTER_FROM or self.hidden:
            yield f"{printed:,} row{'' if printed == 1 else 's'}"
        if self.hidden:
            yield f"{self.all:,} columns ({self.all - self.hidden} shown)"

    def _rule(self, marks: str) -> str:
        return marks[0] + marks[1].join("─" * (w + 2) for w in self.widths) + marks[2]

    def _line(self, row: int, sides: Sequence[str]) -> str:
        cells = (_pad(_cut(c[row], w), w, s) for c, w, s in zip(self.columns, self.widths, sides, strict=True))
        return "│ " + " │ ".join(cells) + " │"
