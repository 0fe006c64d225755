"""The documents tell the truth: the README runs, every macro is in it, and help for missing pieces is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb

import dpsql

ROOT = Path(__file__).parents[2]


def macros() -> list[tuple[str, list[str]]]:
    con = duckdb.connect()
    dpsql.load(con)
    rows = con.execute(
        "SELECT DISTINCT function_name, parameters FROM duckdb_functions() WHERE function_name LIKE 'dp\\_%' ESCAPE '\\' ORDER BY 1"
    ).fetchall()
    con.close()
    return rows


def test_the_readme_runs():
    done = subprocess.run([sys.executable, ROOT / "tests/docs/run_readme.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "statements ran" in done.stdout


def test_every_macro_and_parameter_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = macros()
    assert len({name for name, _ in found}) == 18
    for name, parameters in found:
        line = next((row for row in text.splitlines() if row.startswith("|") and f"`{name}(" in row), "")
        assert line, f"{name} is not in the README's table"
        missing = [p for p in parameters if p not in line and p != "into"]
        assert not missing or name == "dp_plan", f"{name}: parameters {missing} are not in the README"


def test_the_changelog_has_privacy_first():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if line.startswith("### "))
    assert first == "### Privacy"


def test_the_demo_prints_table_accuracy_and_ledger():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dpsql.cli", "demo", "--rows", "3000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for expected in ("FROM people_synth", "dp_evaluate", "dp_ledger", "chain_holds", "epsilon_left"):
        assert expected in done.stdout


def test_a_file_of_statements_runs(tmp_path):
    script = tmp_path / "job.sql"
    script.write_text("CREATE TABLE t AS SELECT 1 AS a; CALL dp_protect('t', epsilon := 1, delta := 1e-9); FROM dp_budget();")
    database = tmp_path / "x.duckdb"
    command = [sys.executable, "-P", "-m", "dpsql.cli", "run", str(script), "--database", str(database)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "main.t" in done.stdout
    script.write_text("FROM dp_budget('nothing here')")
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 1


def test_python_started_in_a_checkout_finds_all_of_it():
    """There ./dpsql comes first on the path, and udfs/ and sql/ stand beside it."""
    code = "import duckdb, dpsql; con = duckdb.connect(); dpsql.load(con); print(con.execute('FROM dp_ledger()').fetchall())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
