"""Remaining time, the switch of the bar, where it is shown, and how much memory there is."""

from __future__ import annotations

import io
import itertools
import sys
import threading
import types

import pytest

from dpsql.errors import ArgumentError
from dpsql.running import interruption, machine, progress, progress_bar
from dpsql.running.progress_bar import State, remaining

EXPECTED = {"count": 10.0, "fit": 20.0, "write": 30.0}


def state(spent: dict[str, float], running: list[str], done: float | None = None) -> State:
    return State("call", EXPECTED, spent, running, done, sum(spent.values()))


def test_on_time_what_is_left_is_what_was_expected():
    assert remaining(state({}, [])) == 60
    assert remaining(state({"count": 4.0}, ["count"])) == 56
    assert remaining(state({"count": 10.0, "fit": 5.0}, ["fit"])) == 45


def test_a_slow_stage_slows_the_others():
    assert remaining(state({"count": 20.0, "fit": 0.0}, ["fit"])) == pytest.approx(50 * 20.5 / 10.5)
    assert remaining(state({"count": 10_000.0, "fit": 0.0}, ["fit"])) == 250  # at most five times


def test_what_a_loop_reports_counts_more_than_the_forecast():
    late = state({"count": 10.0, "fit": 60.0}, ["fit"], 0.5)
    assert remaining(late) == pytest.approx(60 + 30)
    assert remaining(state({"count": 10.0, "fit": 60.0}, ["fit"])) == pytest.approx(6 + 30)


def test_stages_that_were_not_needed_do_not_count():
    assert remaining(state({"write": 0.0}, ["write"])) == 30


def test_nothing_is_said_without_a_forecast():
    assert remaining(State("call", {}, {"count": 1.0}, ["count"], None, 1.0)) is None


def test_time_of_a_stage_within_is_counted_for_the_one_that_was_forecast(monkeypatch):
    clock = itertools.count(100.0)  # a second passes between two looks
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    call = progress.Progress("call", show=False)
    call.expect({"fit": 1.0})
    with call, progress.stage("fit"), progress.stage("correlations"):
        pass
    assert call.seconds == {"fit": 2.0, "correlations": 1.0}
    assert call._spent["fit"] == 3.0
    assert set(call._spent) == {"fit"}


@pytest.mark.parametrize(
    ("asked", "variable", "terminal", "shown"),
    [
        (None, None, True, True), (None, None, False, False), (None, "0", True, False), (None, "1", False, True),
        (False, "1", True, False), (True, "0", False, True), (None, "", True, True),
    ],
)
def test_when_a_bar_is_shown(monkeypatch, asked, variable, terminal, shown):
    monkeypatch.delenv("DPSQL_PROGRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("DPSQL_PROGRESS", variable)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    assert progress_bar.shown(asked) is shown
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress_bar.shown(asked)


def test_a_notebook_is_known_without_importing_ipython(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not progress_bar.in_notebook()
    assert "IPython" not in sys.modules
    kernel = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    assert progress_bar.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object()))
    assert not progress_bar.in_notebook()


def test_a_notebook_gets_a_display_that_is_empty_in_the_end(monkeypatch):
    published = []
    publisher = types.SimpleNamespace(publish=lambda **given: published.append(given))
    kernel = types.SimpleNamespace(kernel=object(), display_pub=publisher)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setattr(progress_bar, "_DELAY", 0.02)
    monkeypatch.setattr(progress_bar, "_EVERY", 0.02)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress("dp_<synthesize>") as call:
        call.expect({"count": 100.0})
        with call.stage("count"):
            while len(published) < 2:
                threading.Event().wait(0.02)
    assert stream.getvalue() == ""
    first, *_, last = published
    assert "dp_<synthesize>, count" in first["data"]["text/plain"] and "about 2 min left" in first["data"]["text/plain"]
    assert "dp_&lt;synthesize&gt;" in first["data"]["text/html"] and "<progress" in first["data"]["text/html"]
    assert [given["update"] for given in published] == [False] + [True] * (len(published) - 1)  # one display, written over
    assert len({given["transient"]["display_id"] for given in published}) == 1
    assert last["data"] == {"text/plain": "", "text/html": ""}


def test_a_terminal_gets_a_line_that_is_clean_in_the_end(monkeypatch):
    monkeypatch.setattr(progress_bar, "_DELAY", 0.02)
    monkeypatch.setattr(progress_bar, "_EVERY", 0.02)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress("dp_synthesize", show=True) as call:
        call.expect({"count": 100.0})
        with call.stage("count"):
            while "about 2 min left" not in stream.getvalue():
                threading.Event().wait(0.02)
    text = stream.getvalue()
    assert "dp_synthesize, count" in text
    assert text.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""


def test_a_short_call_shows_nothing_and_leaves_no_thread(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress("dp_synthesize", show=True), progress.stage("count"):
        pass
    assert stream.getvalue() == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "dpsql-progress"]


def test_a_stopped_call_ends_at_the_next_stage_or_step():
    running = interruption.Running(types.SimpleNamespace(interrupt=lambda: None))
    with pytest.raises(interruption.Stopped, match="nothing was charged"), interruption.call(running):
        running.stop()
        progress.advance(0.5)
    progress.advance(0.5)


def test_memory_is_the_least_of_what_is_known(monkeypatch, tmp_path):
    monkeypatch.delenv(machine.VARIABLE, raising=False)
    assert machine.memory_mb() > 100
    (tmp_path / "memory.max").write_text("50000000\n")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    assert machine.memory_mb() == 50
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_mb() > 100
    monkeypatch.setenv(machine.VARIABLE, "1234.5")
    assert machine.memory_mb() == 1234.5
    for wrong in ("x", "-1", "nan", "inf"):
        monkeypatch.setenv(machine.VARIABLE, wrong)
        with pytest.raises(ArgumentError, match="DPSQL_MEMORY_MB"):
            machine.memory_mb()
