"""HTML from texts: everything that is not a constant of dpsql goes through `text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_NARROW = 5  # columns of a table that a telephone shows side by side
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


def text(value: object) -> str:
    """Escape a value for HTML and SVG, in elements and attributes; control characters are replaced, also those that turn text.

    Examples
    --------
    >>> text("<b>'&")
    '&lt;b&gt;&#x27;&amp;'
    """
    return html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for reading.

    Examples
    --------
    >>> number(1234567.0), number(0.0123456), number(1e-9), number(None), number(12345.678)
    ('1,234,567', '0.01235', '1e-09', '–', '12,346')
    """
    if value is None or value != value:
        return "–"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, label: str = "", numeric: Sequence[int] = ()) -> str:
    """Return a table with a header row; every cell is escaped.

    Parameters
    ----------
    label : str
        What it is, for those who do not see it.
    numeric : positions of columns that are set flush right

    Notes
    -----
    The cells of a wide table carry the names of their columns: where the page is narrow, its style shows each line as a list.
    """
    wide = len(head) > _NARROW
    right = {i: ' class="n"' for i in numeric}
    named = [right.get(i, "") + (f' data-of="{text(name)}"' if wide else "") for i, name in enumerate(head)]
    top = "".join(f'<th scope="col"{right.get(i, "")}>{text(name)}</th>' for i, name in enumerate(head))
    body = "".join("<tr>" + "".join(f"<td{at}>{text(v)}</td>" for at, v in zip(named, row, strict=True)) + "</tr>" for row in rows)
    return (
        f'<div class="scroll{" wide" if wide else ""}" tabindex="0" role="group" aria-label="{text(label or "numbers")}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Return names and values as a list; every one is escaped."""
    return '<dl class="facts">' + "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in rows) + "</dl>"


def section(title: str, body: str, *, key: str, private: bool = True) -> str:
    """Return a section with its heading; one that is not private says so in the heading itself."""
    mark = "" if private else '<span class="badge">not for publication</span>'
    return f'<section id="{text(key)}"><h2>{text(title)}{mark}</h2>{body}</section>'


def details(summary: str, body: str) -> str:
    """Return a part that opens on a click."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def paragraphs(*texts: str) -> str:
    """Return escaped paragraphs."""
    return "".join(f"<p>{text(t)}</p>" for t in texts if t)
