"""What a call says beside its answer: one line on standard error, or under the cell of a notebook, each line once."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable
from typing import Any

from dpsql.running.progress_bar import VARIABLE, in_notebook, shell, switch
from dpsql.text.names import printable


def heard(wanted: bool | None) -> bool:
    """Return whether anything is said: ``wanted``, else what the environment variable of the bar says, else yes."""
    return wanted if wanted is not None else switch(os.environ.get(VARIABLE)) is not False


def say(line: str, told: dict[str, Any], *, wanted: bool | None, through: Callable[[str], None] | None = None) -> None:
    """Say a line that was not said before.

    Parameters
    ----------
    line : str
        Nothing that depends on a protected row, but for what is released.
    told : dict
        Where it is noted that a line was said.
    wanted : bool or None
        False, or where the environment variable of the bar says so: nothing is said.
    through : function, optional
        What says it instead: the log of a client.
    """
    line = printable(line)
    key = f"said {line}"
    if key in told or not heard(wanted):
        return
    told[key] = True
    if through is not None:
        through(line)
    elif in_notebook():
        rich = f'<div style="font-size:90%;opacity:.8">{html.escape(line)}</div>'
        shell().display_pub.publish(data={"text/plain": line, "text/html": rich}, metadata={})
    elif sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
