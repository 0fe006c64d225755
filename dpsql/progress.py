"""Progress of a long call: the name of the stage, on the terminal, never in the output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from tqdm import tqdm

if sys.platform != "win32":
    import resource

_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a stage of the call that runs in this context, and show its name; nothing where no call runs.

    A stage within another one is taken out of the outer one's time.
    """
    progress = _current.get()
    if progress is None:
        yield
        return
    with progress.stage(name):
        yield


def advance(done: float) -> None:
    """Say how much of the innermost running stage is done, from 0 to 1. To be called from the thread that began the stage."""
    progress = _current.get()
    if progress is not None:
        progress.advance(done)


class Progress:
    """A bar over a known list of stages, shown once a call takes longer than a second, on a terminal only.

    ``seconds`` keeps the wall time of each stage, ``peak_mb`` the largest resident memory of the process up to its end, for
    benchmarks. Stage names say nothing about the data.
    """

    def __init__(self, label: str, stages: int, show: bool | None = None) -> None:
        disable = None if show is None else not show
        self.seconds: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self._running: list[str] = []
        self._shown: set[str] = set()
        self._since = 0.0
        shape = "{desc} {bar} {postfix} {elapsed}"
        self._bar = tqdm(total=stages, desc=label, delay=1, disable=disable, leave=False, bar_format=shape)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage and show its name."""
        self._book()
        self._running.append(name)
        self._bar.set_postfix_str(name)
        try:
            yield
        finally:
            self._book()
            self._running.pop()
            if name not in self._shown:  # one that comes again and again, as blocks do, is one step of the bar
                self._shown.add(name)
                self._bar.update()

    def advance(self, done: float) -> None:
        """Say how much of the innermost running stage is done, from 0 to 1."""
        if self._running:
            self._bar.set_postfix_str(f"{self._running[-1]} {100 * min(max(done, 0.0), 1.0):.0f}%")

    def _book(self) -> None:
        """Add the time since the last change of stage to the innermost running one."""
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
            self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), _peak_mb())
        self._since = now

    def __enter__(self) -> Progress:
        """Start."""
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the bar."""
        _current.reset(self._token)
        self._bar.close()


def _peak_mb() -> float:
    """Return the largest resident memory of this process so far, in megabytes; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
