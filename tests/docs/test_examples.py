"""Each example runs and asserts its own headline number."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of the clients that it shows
def test_example(path, tmp_path, monkeypatch, capsys):
    """Here and not in a process of its own, as the pages: importing everything takes as long as most of them."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
