"""Run the SQL and Python of the README, in order, in a new database. Exits non-zero where a block fails."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from pathlib import Path

import duckdb

README = Path(__file__).parents[2] / "README.md"


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, code) of the fenced Python and SQL blocks."""
    return re.findall(r"```(python|sql)\n(.*?)```", text, flags=re.DOTALL)


def run(text: str, folder: Path) -> int:
    """Run all blocks; return how many statements ran."""
    done = 0
    scope: dict[str, object] = {}
    for language, code in blocks(text):
        if language == "python":
            exec(code.replace("census.duckdb", str(folder / "census.duckdb")), scope)
            done += 1
            continue
        con = scope["con"]
        assert isinstance(con, duckdb.DuckDBPyConnection)
        for statement in con.extract_statements(code):
            con.execute(statement).fetchall()
            done += 1
    return done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):  # it writes files
        count = run(README.read_text(encoding="utf-8"), Path(name))
    sys.stdout.write(f"README: {count} statements ran\n")
    sys.exit(0 if count > 10 else 1)
