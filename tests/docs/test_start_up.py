"""What may be loaded by `import dpsql`, and by a command that reads the books: everything heavy waits for the call that needs it."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

import dpsql

IMPORTED = """
import sys
before = set(sys.modules)
import dpsql
"""
BUDGET = """
import sys
before = set(sys.modules)
from dpsql.cli import main
assert main(["budget", sys.argv[1]]) == 0
"""
TOLD = """
after = set(sys.modules) - before
outside = {name.partition(".")[0] for name in after} - set(sys.stdlib_module_names)
rooms = {name.split(".")[1] for name in after if name.startswith("dpsql.")}
sys.stderr.write(f"{sorted(outside)}\\n{sorted(rooms)}\\n")
"""


def loaded(code: str, *arguments: str) -> tuple[set[str], set[str]]:
    """Return which packages and which rooms of dpsql a program loads."""
    done = subprocess.run([sys.executable, "-c", code + TOLD, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outside, rooms = (set(eval(line)) for line in done.stderr.splitlines() if line.startswith("["))
    return outside, rooms


@pytest.fixture
def books(tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE people AS SELECT i % 2 = 0 AS member FROM range(100) t(i)")
        con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-6)")
        con.execute("FROM dp_synthesize('people', epsilon := 0.1)")
    return str(path)


def test_import_dpsql_loads_duckdb_and_the_calls_alone():
    outside, rooms = loaded(IMPORTED)
    assert outside <= {"dpsql", "duckdb", "_duckdb", "numpy"}
    assert rooms <= {"api", "client", "errors", "relations"}


def test_every_name_of_the_package_is_there_and_listed():
    assert set(dpsql.__all__) <= set(dir(dpsql))
    assert all(callable(getattr(dpsql, name)) for name in dpsql.__all__)
    with pytest.raises(AttributeError, match="no attribute 'synthesise'"):
        _ = dpsql.synthesise


def test_no_room_has_the_name_of_a_call():
    rooms = {line.split(".")[1] for line in sys.modules if line.startswith("dpsql.")}
    assert not rooms & set(dpsql.__all__)


def test_the_budget_is_read_without_what_makes_tables(books):
    outside, rooms = loaded(BUDGET, books)
    assert not outside & {"pandas", "sqlglot", "tqdm", "threadpoolctl", "IPython", "prompt_toolkit"}
    assert not rooms & {"custodian", "measure", "mechanisms", "methods", "planning", "purchase", "release", "rows", "source", "tables"}
