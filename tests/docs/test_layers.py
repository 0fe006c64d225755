"""The layers of the design, checked without import-linter too: mathematics never imports duckdb."""

from __future__ import annotations

import subprocess
import sys

import pytest

MATHEMATICS = [
    "dpsql.accounting",
    "dpsql.noise.discrete",
    "dpsql.tables.consistency",
    "dpsql.numerics.bivariate_normal",
    "dpsql.numerics.nearest_correlation",
    "dpsql.methods",
    "dpsql.domains.attributes",
    "dpsql.domains.declare",
    "dpsql.page.document",
]


@pytest.mark.parametrize("module", MATHEMATICS)
def test_mathematics_never_imports_duckdb(module):
    """Import the module with the package's own __init__ kept out of the way, in a process where duckdb cannot be imported."""
    code = (
        "import sys, types, importlib.util\n"
        "sys.modules['duckdb'] = None\n"
        "spec = importlib.util.find_spec('dpsql')\n"
        "package = types.ModuleType('dpsql')\n"
        "package.__path__ = list(spec.submodule_search_locations)\n"
        "sys.modules['dpsql'] = package\n"
        f"importlib.import_module({module!r})\n"
    ).replace("import sys, types, importlib.util", "import sys, types, importlib, importlib.util")
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
