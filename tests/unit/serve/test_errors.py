"""What an analyst is told: which of the calls that a refusal advises are hers to make."""

from __future__ import annotations

import pytest

from dpsql.errors import ArgumentError
from dpsql.serve.errors import told


@pytest.mark.parametrize(
    ("advice", "closed"),
    [
        ("say CALL dp_declare('t', 'x', lower := 0), or CALL dp_declare('t', 'y', ...)", " (dp_declare is a call of the custodian's)"),
        ("CALL dp_protect(...), then CALL dp_link(...)", " (dp_protect and dp_link are calls of the custodian's)"),
        ("FROM dp_budget() shows what is left", ""),
        ("the column dp_declared is none of t", ""),
        ("dp_summarize('t') lists them", ""),
    ],
)
def test_calls_of_the_custodian_are_said_to_be_theirs(advice: str, closed: str) -> None:
    line = told(ArgumentError("x", 1, advice)).text
    assert line.endswith(f"{advice}{closed}")
