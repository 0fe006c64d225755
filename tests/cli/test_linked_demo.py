"""`dpsql demo --linked`: three linked tables, from raw to synthetic."""

from __future__ import annotations

import pytest

from dpsql.cli import main


def test_the_linked_demo_prints_a_synthetic_database_its_errors_and_one_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--linked", "--rows", "500"]) == 0
    printed = capsys.readouterr().out
    for shown in ("synth.visits", "parent and child", "siblings", "fan-out", "main.patients"):
        assert shown in printed


def test_rows_out_of_range_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["demo", "--linked", "--rows", "0"])
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code
    found = capsys.readouterr()
    assert "must be from 1 to 10,000,000" in found.err + found.out
