"""A hook of mkdocs: links out of docs/ lead to files of the checkout, which a site does not have; there they are plain text."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?:\.\./)+(?!docs/)[^)\s]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page without the links that leave docs/.

    Examples
    --------
    >>> class Page: url = "notebooks.html"
    >>> on_page_markdown("see [it](../examples/a.ipynb) and [this](asking.md#x)", Page)
    'see it and [this](asking.md#x)'
    """
    return markdown if "/" in page.url else _OUTSIDE.sub(r"\1", markdown)
