"""A line of a terminal that shows how far a call is: what it shows is written over what stood there, and it leaves nothing."""

from __future__ import annotations

import os
import sys

from tqdm import tqdm


class _Text(tqdm):  # type: ignore[type-arg]
    monitor_interval = 0  # no thread of tqdm's, which would outlive the call


class Line:
    """A line of a terminal, on standard error."""

    def __init__(self, text: str) -> None:
        self._bar = _Text(total=100, desc=text, leave=False, ncols=_width(), nrows=20, bar_format="{desc}", file=sys.stderr)

    def show(self, text: str, share: float | None, rest: str) -> None:
        """Write what there is to know over what stood there."""
        shape = "{desc}" if share is None else "{desc}: {percentage:3.0f}% |{bar}|"
        self._bar.ncols, self._bar.bar_format = _width(), f"{shape} {rest}".rstrip()
        self._bar.n = int(100 * (share or 0.0))
        self._bar.set_description_str(text, refresh=False)
        self._bar.refresh()

    def clear(self) -> None:
        """Empty the line until the next text."""
        self._bar.clear()

    def close(self) -> None:
        """Empty the line for good."""
        self._bar.close()


def _width() -> int:
    """Return the columns of the terminal now; some say none, and a notebook has no terminal."""
    try:
        return min(os.get_terminal_size(sys.stderr.fileno()).columns, 120) or 80
    except (OSError, ValueError, AttributeError):
        return 80
