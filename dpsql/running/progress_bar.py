"""The bar of a long call: stage, share done and remaining time, on a terminal or in a notebook, never in the output.

The bar belongs to a thread of its own, because the calling one may be in DuckDB or numpy for seconds. It appears after a second,
is drawn twice a second, and leaves nothing behind.
"""

from __future__ import annotations

import contextvars
import html
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

VARIABLE = "DPSQL_PROGRESS"
_DELAY = 1.0  # seconds before a bar appears
_EVERY = 0.5  # seconds between two looks
_NO = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True)
class State:
    """A call at one moment.

    Parameters
    ----------
    label : str
        Name of the call.
    expected, spent : mapping of str to float
        Seconds that each stage should take, in the order of the stages, and has taken so far.
    running : sequence of str
        The stages that run, the innermost last.
    done : float or None
        How much of the innermost one is done, from 0 to 1; None: not known.
    elapsed : float
        Seconds since the call began.
    """

    label: str
    expected: Mapping[str, float]
    spent: Mapping[str, float]
    running: Sequence[str]
    done: float | None
    elapsed: float


def remaining(state: State) -> float | None:
    """Return how many seconds a call still takes: what was expected, at the pace of the stages so far.

    None where nothing was expected.

    Examples
    --------
    >>> state = State("call", {"count": 10, "fit": 20}, {"count": 5}, ["count"], None, 5.0)
    >>> remaining(state)
    25.0
    >>> round(remaining(State("call", {"count": 10, "fit": 20}, {"count": 20, "fit": 0}, ["fit"], None, 20.0)))
    39
    """
    names = list(state.expected)
    reached = max((place for place, name in enumerate(names) if name in state.spent or name in state.running), default=-1)
    over = [name for name in names[: reached + 1] if name not in state.running]
    ran = [name for name in over if name in state.spent]  # others were not needed: the release was there already
    took, planned = (sum(times[name] for name in ran) for times in (state.spent, state.expected))
    pace = min(max((took + 0.5) / (planned + 0.5), 0.2), 5.0)  # half a second counts as having run on time
    left = 0.0
    for name in names:
        if name in over:
            continue
        spent = state.spent.get(name, 0.0)
        rest = max(pace * state.expected[name] - spent, 0.1 * spent)  # a stage that is late may take a little longer
        if state.running and name == state.running[-1] and state.done:
            # the further a stage is, the more its own pace says of its end
            trust = min(1.0, 4 * state.done)
            rest = (1 - trust) * rest + trust * spent * (1 - state.done) / state.done
        left += rest
    return left if names else None


def phrase(seconds: float) -> str:
    """Return a remaining time in words, as exactly as it is known.

    Examples
    --------
    >>> [phrase(s) for s in (3, 22, 125, 5000)]
    ['a few seconds left', 'about 20 s left', 'about 2 min left', 'about 1.4 h left']
    """
    if seconds < 7.5:
        return "a few seconds left"
    if seconds < 90:
        return f"about {5 * round(seconds / 5)} s left"
    if seconds < 3570:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def switch(value: object) -> bool | None:
    """Return what a value that switches the bar says: on, off, or (None, '') nothing.

    Examples
    --------
    >>> switch("off"), switch(True), switch("")
    (False, True, None)
    """
    text = "" if value is None else str(value).strip().lower()
    return text not in _NO if text else None


def shown(asked: bool | None) -> bool:
    """Return whether to show a bar: as asked, as the environment variable says, else on a terminal and in a notebook."""
    switched = switch(os.environ.get(VARIABLE)) if asked is None else asked
    if sys.stderr is None or switched is False:
        return False
    return bool(switched) or in_notebook() or sys.stderr.isatty()


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process."""
    return hasattr(shell(), "kernel")


def shell() -> Any:
    """Return what runs the cells, or None; IPython is not imported for that."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


class _Place(Protocol):
    """Where a call is shown."""

    def show(self, text: str, share: float | None, rest: str) -> None:
        """Show what there is to know in place of what was shown."""

    def clear(self) -> None:
        """Show nothing until the next text."""

    def close(self) -> None:
        """Show nothing any more."""


class _Display:
    """A display under a cell of a notebook, which is empty in the end: what is saved or exported then holds no bar.

    Lines on standard error and widgets stay in a saved notebook.
    """

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._transient = {"display_id": f"dpsql-{uuid.uuid4().hex}"}
        self._there = False

    def show(self, text: str, share: float | None, rest: str) -> None:
        """Show what there is to know in place of what was shown."""
        bar, known = "", rest
        if share is not None:
            bar = f'<progress value="{100 * share:.0f}" max="100" style="vertical-align:middle"></progress> '
            known = f"{100 * share:.0f}% {rest}"
        self._publish(f"{text}: {known}", f'<div style="font:12px monospace">{html.escape(text)} {bar}{known}</div>')

    def clear(self) -> None:
        """Empty the display."""
        if self._there:
            self._publish("", "")

    def close(self) -> None:
        """Empty the display."""
        self.clear()

    def _publish(self, plain: str, rich: str) -> None:
        self._publisher.publish(
            data={"text/plain": plain, "text/html": rich}, metadata={}, transient=self._transient, update=self._there
        )
        self._there = True


def _new_bar(text: str) -> _Place:
    """Return where to show a call."""
    if in_notebook():
        return _Display(shell().display_pub)
    from dpsql.running.terminal_line import Line  # loaded when needed: tqdm takes .03 s

    return Line(text)


class Bar:
    """A thread that shows the state of a call. Of several calls at once the oldest is shown, on one line."""

    _screen = threading.Lock()
    _waiting: ClassVar[list[Bar]] = []

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._ended = threading.Event()
        self._furthest = 0.0
        self._bar: _Place | None = None
        context = contextvars.copy_context()  # a kernel finds the cell to write to in there
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="dpsql-progress", daemon=True)

    def start(self) -> None:
        """Begin to wait; a call that ends within a second shows nothing."""
        self._thread.start()

    def end(self) -> None:
        """Remove the bar, and clear the line for what the caller prints next."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        if self._ended.wait(_DELAY):
            return
        with self._screen:
            self._waiting.append(self)
        try:
            while True:
                with self._screen:
                    if self._waiting[0] is self:
                        self._draw()
                if self._ended.wait(_EVERY):
                    return
        finally:
            with self._screen:
                first = self._waiting[0]
                self._waiting.remove(self)
                if first._bar is not None:
                    first._bar.clear()
                if self._bar is not None:
                    self._bar.close()

    def _draw(self) -> None:
        state = self._state()
        left = remaining(state)
        text, share, rest = ", ".join([state.label, *state.running[-1:]]), None, ""
        if left is None:
            text += f" {100 * state.done:.0f}%" if state.done is not None else ""
            text += f", {state.elapsed:.0f} s"
        else:
            # a share that was shown is not taken back
            self._furthest = max(self._furthest, state.elapsed / (state.elapsed + left + 1e-9))
            share, rest = min(0.99, self._furthest), phrase(left)
        more = len(self._waiting) - 1
        if self._bar is None:
            self._bar = _new_bar(text)
        self._bar.show(text, share, f"{rest} (and {more} more)".lstrip() if more else rest)
