"""The layers of the design, checked without import-linter too: mathematics never imports duckdb; no circle of modules."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpsql

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


def modules() -> dict[str, Path]:
    """Return the file of every module; in a checkout udfs/ and sql/ stand beside dpsql/."""
    found = {}
    for folder in map(Path, dpsql.__path__):
        rooms = [folder] if (folder / "errors.py").is_file() else [folder / "udfs", folder / "sql"]
        for path in (path for room in rooms for path in room.rglob("*.py")):
            found[".".join(["dpsql", *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports anywhere, in its functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path  # relative imports would not be seen here
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else str(node.module) for name in inner}
    return names & set(known)


def test_no_module_imports_itself_by_way_of_others():
    known = modules()
    assert len(known) > 200
    order = graphlib.TopologicalSorter({name: imported(path, known) - {name} for name, path in known.items()})
    order.prepare()  # a CycleError names the modules of a circle


def test_every_room_is_shipped_and_says_what_it_is_for():
    """setuptools takes the packages that pyproject.toml lists; a room that is not there is missing in the wheel alone."""
    root = Path(__file__).parents[2]
    listed = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    rooms = {".".join(file.relative_to(root).parent.parts) for file in (root / "dpsql").rglob("__init__.py")}
    assert set(listed) == rooms | {"dpsql.udfs", "dpsql.sql"}
    for file in (root / "dpsql").rglob("__init__.py"):
        assert (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").strip(), file
    layers = (root / ".importlinter").read_text(encoding="utf-8").split("layers =")[1].split("[")[0]
    told = {line.strip().removeprefix("dpsql.") for line in layers.replace("|", "\n").splitlines()}
    assert {name.split(".")[1] for name in rooms if "." in name} <= told, "a room without a place in the order of .importlinter"
