"""The shell: a SQL prompt on a terminal, with several lines a statement, history, completion and colours (prompt_toolkit)."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import duckdb
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from dpsql.cli.completion import Names, SqlCompleter
from dpsql.cli.session import Failed, Interrupted, Leave, Session
from dpsql.cli.statements import complete

PROMPT, CONTINUED = "dpsql> ", "   ...> "


def interact(session: Session, version: str) -> int:
    """Read statements from the terminal and run them until .exit or Ctrl-D; return the exit code."""
    session.interactive = True
    names = Names(lambda: session.con)
    prompt = _prompt(names)
    sys.stdout.write(f"dpsql {version} on DuckDB {duckdb.__version__}, {session.path}\nEnter .help for help, Ctrl-D to leave.\n")
    while True:
        try:
            text = prompt.prompt(PROMPT)
        except KeyboardInterrupt:  # the line is given up
            continue
        except EOFError:
            return 0
        try:
            session.script(text, None)
        except (Failed, Interrupted, KeyboardInterrupt) as told:
            _say(str(told) or "interrupted")
        except Leave as leave:
            return leave.code
        names.fresh = False


def _say(text: str) -> None:
    sys.stdout.flush()
    width = shutil.get_terminal_size().columns
    sys.stderr.write(f"{textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)}\n")
    sys.stderr.flush()


def _prompt(names: Names) -> PromptSession[str]:
    return PromptSession(
        history=history(),
        completer=SqlCompleter(names),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation=lambda width, line, wrapped: "" if wrapped else CONTINUED[-width:].rjust(width),
        enable_history_search=False,
        include_default_pygments_style=True,
    )


def _keys() -> KeyBindings:
    """Enter runs what is complete and otherwise begins a line; Alt-Enter always begins one."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the chosen completion stays
        elif complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def history() -> History:
    """Return the history of this user, in the folder where programs keep their state; in memory where none can be kept."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "dpsql" / "history"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)  # statements can hold names and values
        return FileHistory(str(path))
    return InMemoryHistory()
