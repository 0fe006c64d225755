"""Ways to print a result: boxes for people, CSV and JSON for programs, lines and Markdown for documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TextIO

from dpsql.cli import box
from dpsql.cli.messages import visible
from dpsql.cli.results import Objects, Result, Row

_PLAIN_WIDTH = 100
"""Of what is printed for people, where no terminal says how wide it is."""


@dataclass
class Look:
    """How results are printed.

    Attributes
    ----------
    mode : str
        One of ``MODES``.
    rows : int
        Most rows of a box; 0: all.
    width : int or None
        Of a box; None: no limit.
    null : str
        How NULL is shown to people; CSV and JSON have their own.
    plain : bool
        Whether a box is for people who don't know SQL: no types, nothing hidden.
    """

    mode: str = "box"
    rows: int = 40
    width: int | None = None
    null: str = "NULL"
    plain: bool = False

    @property
    def objects(self) -> bool:
        """Whether rows are wanted as JSON objects."""
        return self.mode in ("json", "jsonlines")


def write(result: Result, look: Look, out: TextIO) -> None:
    """Print a result."""
    if isinstance(result, Objects):
        _json(result, look, out)
    elif result.explained and look.mode == "box":
        out.writelines(f"{row[-1]}\n" for row in result.rows())
    else:
        out.writelines(f"{line}\n" for line in MODES[look.mode](result, look))


def _box(result: Result, look: Look) -> Iterator[str]:
    yield from box.lines(result, most=look.rows, width=look.width, null=look.null, plain=look.plain)


def _csv(result: Result, look: Look) -> Iterator[str]:
    """As COPY writes it: NULL is nothing, an empty text is two quotes."""
    yield ",".join(map(_field, result.names))
    for row in result.rows():
        yield ",".join(map(_field, row))


def _field(value: str | None) -> str:
    """Return a field of CSV.

    Examples
    --------
    >>> [_field(v) for v in (None, '', 'a b', '1,5')]
    ['', '""', 'a b', '"1,5"']
    """
    if value is None:
        return ""
    if value and not any(c in value for c in ',"\n\r'):
        return value
    return '"' + value.replace('"', '""') + '"'


def _json(result: Objects, look: Look, out: TextIO) -> None:
    """One array of objects, a row a line; with ``jsonlines`` one object a line."""
    if look.mode == "jsonlines":
        out.writelines(f"{row}\n" for row in result.objects())
        return
    out.write("[")
    for number, row in enumerate(result.objects()):
        out.write(f",\n{row}" if number else row)
    out.write("]\n")


def _line(result: Result, look: Look) -> Iterator[str]:
    return box.upright(result.names, result.rows(), look.null, (look.width or _PLAIN_WIDTH) if look.plain else None)


def _markdown(result: Result, look: Look) -> Iterator[str]:
    rows = result.rows()
    first = [_cells(row, look) for row in islice(rows, 1000)]  # the columns are as wide as these need
    names = _cells(result.names, look)
    widths = [max(3, *(box.width_of(line[i]) for line in (names, *first))) for i in range(len(names))]
    rights = [box.is_number(kind) for kind in result.types]
    yield _bars(names, widths, rights)
    yield "|" + "|".join("-" * (w + 1) + ":" if right else "-" * (w + 2) for w, right in zip(widths, rights, strict=True)) + "|"
    for cells in chain(first, (_cells(row, look) for row in rows)):
        yield _bars(cells, widths, rights)


def _cells(row: Row, look: Look) -> list[str]:
    texts = (look.null if value is None else value for value in row)
    return ["<br>".join(visible(part) for part in text.split("\n")).replace("|", "\\|") for text in texts]


def _bars(cells: list[str], widths: list[int], rights: list[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, rights, strict=True):
        space = " " * max(0, width - box.width_of(cell))
        padded.append(space + cell if right else cell + space)
    return "| " + " | ".join(padded) + " |"


def _no_lines(result: Result, look: Look) -> Iterator[str]:
    raise AssertionError("JSON is written from objects")


MODES: dict[str, Callable[[Result, Look], Iterator[str]]] = {
    "box": _box, "csv": _csv, "json": _no_lines, "jsonlines": _no_lines, "line": _line, "markdown": _markdown,
}
"""Names of the ways to print."""
ALIASES = {"duckbox": "box", "table": "box", "ndjson": "jsonlines", "md": "markdown"}
