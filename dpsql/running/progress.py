"""Progress of a long call: stages are timed here, and shown by `dpsql.running.progress_bar` on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from dpsql.running import interruption
from dpsql.running.progress_bar import Bar, State, shown

if sys.platform != "win32":
    import resource

_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a stage of the call that runs in this context, and show its name; nothing where no call runs.

    A stage within another one is taken out of the outer one's time. Names say nothing about the data.

    Raises
    ------
    Stopped
        `dpsql.interrupt` asked the call to stop.
    """
    interruption.check()
    progress = _current.get()
    if progress is None:
        yield
        return
    with progress.stage(name):
        yield


def advance(done: float) -> None:
    """Say how much of the innermost running stage is done, from 0 to 1. To be called from the thread that began the stage.

    Raises
    ------
    Stopped
        `dpsql.interrupt` asked the call to stop.
    """
    interruption.check()
    progress = _current.get()
    if progress is not None:
        progress.advance(done)


class Progress:
    """The stages of one call: how long each took, and a bar once the call takes longer than a second.

    ``seconds`` keeps the wall time of each stage, ``peak_mb`` the largest resident memory of the process up to its end, for
    benchmarks.

    Parameters
    ----------
    label : str
        What the bar begins with: the name of the call.
    show : bool or None
        Whether to show a bar; None: on a terminal and in a notebook, see `dpsql.running.progress_bar.shown`.
    """

    def __init__(self, label: str, show: bool | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self._spent: dict[str, float] = {}  # as `seconds`, by the stages of the forecast
        self._label = label
        self._expected: dict[str, float] = {}
        self._running: list[str] = []
        self._done: float | None = None
        self._began = self._since = time.perf_counter()
        self._bar = Bar(self._state) if shown(show) else None

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Say how long the stages, in this order, should take: the forecast of ``dp_plan``."""
        self._expected = dict(seconds)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage and show its name."""
        interruption.check()
        self._book()
        self._running.append(name)
        self._done = None
        try:
            yield
        finally:
            self._book()
            self._running.pop()
            self._done = None

    def advance(self, done: float) -> None:
        """Say how much of the innermost running stage is done, from 0 to 1."""
        self._done = min(max(done, 0.0), 1.0)

    def _book(self) -> None:
        """Add the time since the last change of stage to the innermost running one."""
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
            self._credit(self._spent, self._running, now - self._since)
            self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), _peak_mb())
        self._since = now

    def _credit(self, spent: dict[str, float], running: list[str], seconds: float) -> None:
        """Count time for the innermost running stage that the forecast knows."""
        known = next((name for name in reversed(running) if name in self._expected), running[-1])
        spent[known] = spent.get(known, 0.0) + seconds

    def _state(self) -> State:
        """Return what there is to show; called by the thread of the bar."""
        now, running, spent = time.perf_counter(), list(self._running), dict(self._spent)
        if running:
            self._credit(spent, running, now - self._since)
        return State(self._label, self._expected, spent, running, self._done, now - self._began)

    def __enter__(self) -> Progress:
        """Start."""
        self._token = _current.set(self)
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the bar."""
        _current.reset(self._token)
        if self._bar is not None:
            self._bar.end()


def _peak_mb() -> float:
    """Return the largest resident memory of this process so far, in megabytes; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
