"""Reports as tests read them: parsed strictly, and checked to need no other file."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "line", "rect", "circle", "br", "wbr"}


class Page(HTMLParser):
    """Parses strictly: every element is closed in order; collects headings, tables, attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.headings: list[str] = []
        self.sections: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.elements: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "h2":
            self.headings.append("")
        if tag == "section":
            self.sections.append(dict(attrs)["id"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        if "h2" in self.open:
            self.headings[-1] += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def rows_of(self, *head: str) -> list[list[list[str]]]:
        return [table[1:] for table in self.tables if table[0][: len(head)] == list(head)]


def check_self_contained(text: str, page: Page) -> None:
    assert not page.elements & {"script", "iframe", "img", "object", "embed", "base", "form"}
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src", "srcset", "action", "data", "xlink:href"):
            assert value.startswith("#") or value == "data:,", value
    assert not re.search(r"https?://|url\(|@import", text)
