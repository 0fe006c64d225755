"""Progress of a long call: the name of the stage, on the terminal, never in the output."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar over a known list of stages, shown once a call takes longer than a second, on a terminal only.

    ``seconds`` keeps the wall time of each stage, for benchmarks. Stage names say nothing about the data.
    """

    def __init__(self, label: str, stages: int, show: bool | None = None) -> None:
        disable = None if show is None else not show
        self.seconds: dict[str, float] = {}
        shape = "{desc} {bar} {postfix} {elapsed}"
        self._bar = tqdm(total=stages, desc=label, delay=1, disable=disable, leave=False, bar_format=shape)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage and show its name."""
        started = time.perf_counter()
        self._bar.set_postfix_str(name)
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            self._bar.update()

    def __enter__(self) -> Progress:
        """Start."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the bar."""
        self._bar.close()
