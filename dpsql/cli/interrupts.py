"""Ctrl-C stops what runs: Python code by an exception, a statement inside DuckDB by its own interrupt.

Python runs a signal handler between two of its own steps, so never while the main thread waits for DuckDB. But the
system's part of the handler writes the signal to a socket at once, where a thread of ours reads it and interrupts the
connection and the cursors of the dp_* call that runs.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interruptible:
    """A stretch of work in the main thread that Ctrl-C ends.

    Within it a ``KeyboardInterrupt`` comes up, or the error that an interrupted statement raises; ``hit`` says that it was
    Ctrl-C. In another thread it does nothing.

    Parameters
    ----------
    stop : callable
        What interrupts the statements that run. Called from another thread.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self.hit = False
        self._stop = stop
        self._armed = False
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interruptible:
        """Listen for the signal."""
        if self._main:
            self._ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self._theirs = theirs
            self._watcher = threading.Thread(target=self._watch, daemon=True, name="dpsql-interrupt")
            self._watcher.start()
            self._handler: Any = signal.signal(signal.SIGINT, self._caught)
            self._wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            self._armed = True
        return self

    def disarm(self) -> None:
        """Raise nothing from here on: what remains is to tidy up."""
        self._armed = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Put everything back as it was."""
        self._armed = False
        if self._main:
            signal.set_wakeup_fd(self._wakeup)
            signal.signal(signal.SIGINT, self._handler)
            self._theirs.close()
            self._watcher.join()
            self._ours.close()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.hit = True
        if self._armed:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while signals := self._ours.recv(1):
            if signals[0] == signal.SIGINT:
                self._stop()
