"""`dpsql demo --linked`: three linked tables, from raw to synthetic."""

from __future__ import annotations

import subprocess
import sys


def test_the_linked_demo_prints_a_synthetic_database_its_errors_and_one_budget() -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-m", "dpsql.cli", "demo", "--linked", "--rows", "500"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    for shown in ("synth.visits", "parent and child", "siblings", "fan-out", "main.patients"):
        assert shown in run.stdout


def test_rows_out_of_range_are_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-m", "dpsql.cli", "demo", "--linked", "--rows", "0"], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "must be from 1 to 10,000,000" in run.stderr + run.stdout
