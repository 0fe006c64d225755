"""Run docs/serve.md from start to end: the custodian's commands, the server, and an analyst in DuckDB's own shell.

A mark before a block says who runs it:

- ``<!-- custodian -->``: bash, in the page's folder; ``<!-- server -->``: the same in the background, until the page ends;
- ``<!-- analyst -->``: the one ``duckdb`` shell of alice; ``<!-- analyst fails -->``: each of its statements must fail;
- ``<!-- python alice -->``: a Python process with her token in DPSQL_TOKEN.

Other blocks do not run. A ``text`` block behind one: its boxes have the columns of the answers, in order,
and its errors are those that came. Ports of the page are
replaced by free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

_BLOCK = re.compile(r"(?:^<!-- (?P<mark>[a-z ]+) -->\n)?^```(?P<language>[a-z]+)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
_WAIT = 120.0
_ERROR = re.compile(r"^(?:[A-Z][A-Za-z ]*Error: )(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block that runs, and what is shown behind it: the columns of boxes, the texts of errors."""

    mark: str
    code: str
    boxes: tuple[tuple[str, ...], ...] = ()
    errors: tuple[str, ...] = ()


def boxes(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the column names of every box."""
    lines = text.splitlines()
    for above, line in zip(lines, lines[1:], strict=False):
        if above.startswith("┌"):
            yield tuple(name.strip() for name in line.strip("│").split("│"))


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that run."""
    found: list[Block] = []
    last = None
    for match in _BLOCK.finditer(text):
        if match["language"] == "text" and last is not None:
            errors = tuple(" ".join(part.split()) for part in match["code"].split("Error: ")[1:])
            found[last] = Block(found[last].mark, found[last].code, tuple(boxes(match["code"])), errors)
        last = None
        if match["mark"]:
            found.append(Block(match["mark"], match["code"]))
            last = len(found) - 1
    return found


def config(text: str) -> str:
    """Return nginx's configuration of the page."""
    return next(block.code for block in blocks(text) if block.mark == "nginx")


@dataclass
class Shell:
    """DuckDB's own shell, fed statement by statement."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    asked: int = 0

    @classmethod
    def start(cls, env: dict[str, str], folder: Path) -> Shell:
        process = subprocess.Popen(
            ["duckdb"], env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        shell = cls(process)
        threading.Thread(target=shell._read, daemon=True).start()
        return shell

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def ask(self, statement: str) -> str:
        """Return what a statement printed."""
        assert self.process.stdin is not None
        self.asked += 1
        mark, start = f"__done_{self.asked}__", len(self.lines)
        self.process.stdin.write(f"{statement}\n.print {mark}\n")
        self.process.stdin.flush()
        end = time.monotonic() + _WAIT
        while mark not in "".join(self.lines[start:]):
            assert time.monotonic() < end and self.process.poll() is None, f"no answer: {statement}\n{''.join(self.lines[start:])}"
            time.sleep(0.02)
        return "".join(self.lines[start:]).partition(mark)[0]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Walk:
    """The page's folder, processes and people.

    Parameters
    ----------
    ports : dict
        Which free port stands for one of the page.
    """

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self.folder, self.ports = folder, ports
        (folder / "home").mkdir()
        bin_folder = str(Path(sys.executable).parent)
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "HOME": str(folder / "home"), "OPENBLAS_NUM_THREADS": "1"}
        self.env.pop("DPSQL_TOKEN", None)
        self.server: subprocess.Popen[str] | None = None
        self.shell: Shell | None = None
        self.refusals: list[str] = []
        self.printed: list[str] = []

    def run(self, text: str) -> int:
        """Run the page; return how many blocks ran."""
        done = 0
        try:
            for block in blocks(text):
                done += self.block(block)
        finally:
            self.stop()
        return done

    def block(self, block: Block) -> bool:
        """Run one block; return whether it is one that runs."""
        code = block.code
        for port, free in self.ports.items():
            code = code.replace(port, free)
        who, _, how = block.mark.partition(" ")
        if who == "custodian":
            said = self._bash(code)
        elif who == "server":
            said = self._serve(code)
        elif who == "python":
            said = self._python(code, how)
        elif who == "analyst":
            said = self._ask(code, fails=how == "fails")
        else:
            return False
        self.printed.append(said)
        shown = list(boxes(said))
        if block.boxes:
            assert shown == list(block.boxes), f"{shown} came, and not {block.boxes}:\n{code}\n{said}"
        if block.errors:
            came = {" ".join(text.split()) for text in _ERROR.findall(said)}
            assert came == set(block.errors), f"{came} came, and not {set(block.errors)}"
        return True

    def token(self, name: str) -> str:
        return (self.folder / f"{name}.token").read_text().strip()

    def stop(self) -> int | None:
        """Stop what runs; return the server's exit code."""
        if self.shell is not None:
            self.shell.stop()
            self.shell = None
        if self.server is None:
            return None
        self.server.send_signal(signal.SIGTERM)
        code = self.server.wait(_WAIT)
        assert self.server.stderr is not None
        self.server.stderr.close()
        self.server = None
        return code

    def _bash(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code], env=self.env, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=_WAIT,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self, code: str) -> str:
        command = ["bash", "-c", f"exec {code}"]
        self.server = subprocess.Popen(command, env=self.env, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        assert self.server.stderr is not None
        line = self.server.stderr.readline()
        assert "serving" in line, line
        return line

    def _python(self, code: str, name: str) -> str:
        env = {**self.env, "DPSQL_TOKEN": self.token(name)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=env, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=_WAIT,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        assert self.token(name) not in done.stdout + done.stderr
        return done.stdout

    def _ask(self, code: str, *, fails: bool) -> str:
        if self.shell is None:
            self.shell = Shell.start({**self.env, "DPSQL_TOKEN": self.token("alice")}, self.folder)
        said = []
        for statement in duckdb.extract_statements(code):
            answer = self.shell.ask(f"{statement.query.strip().rstrip(';')};")
            error = _ERROR.search(answer)
            assert bool(error) == fails, f"{'should have failed' if fails else 'failed'}: {statement.query}\n{answer}"
            if error:
                self.refusals.append(error[1])
            said.append(answer)
        return "".join(said)
