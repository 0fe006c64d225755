"""Each example runs and asserts its own headline number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def marked(path):
    return pytest.param(path, marks=[pytest.mark.spark, pytest.mark.slow] if path.stem == "spark" else [], id=path.stem)


@pytest.mark.parametrize("path", list(map(marked, EXAMPLES)))
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.strip())
