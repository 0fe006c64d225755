"""What was made lately, by a key: the last ones are kept. Used from several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """What was made for the last keys that were asked for.

    Parameters
    ----------
    most : int
        How many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._guard = most, threading.Lock()
        self._kept: OrderedDict[str, Made] = OrderedDict()

    def get(self, key: str, make: Callable[[], Made]) -> Made:
        """Return what is kept for a key, or make it; two threads at once may both make it."""
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        fresh = make()
        with self._guard:
            self._kept[key] = fresh
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return fresh

    def clear(self) -> None:
        """Keep nothing."""
        with self._guard:
            self._kept.clear()
