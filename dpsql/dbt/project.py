"""`dpsql dbt init`: the dbt package, copied into a project, where dbt finds it without a hub and without a network."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from dpsql.errors import DpsqlError

FOLDER = "dpsql_package"
ENTRY = f"  - local: {FOLDER}\n"


def init(project: Path) -> list[str]:
    """Copy the package into ``<project>/dpsql_package`` and name it in packages.yml; return what was done. Safe to repeat.

    Raises
    ------
    DpsqlError
        The folder is not a dbt project, or ``dpsql_package`` holds something else.
    """
    if not (project / "dbt_project.yml").is_file():
        raise DpsqlError(f"{project} has no dbt_project.yml; run this in a dbt project, or name its folder: dpsql dbt init FOLDER")
    target = project / FOLDER
    marker = target / "dbt_project.yml"
    if target.exists() and not (marker.is_file() and "name: dpsql" in marker.read_text(encoding="utf-8")):
        raise DpsqlError(f"{target} exists and is not a copy of this package; move it away")
    shutil.rmtree(target, ignore_errors=True)
    with as_file(files("dpsql.dbt").joinpath("package")) as package:
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
    return [f"{target}: the dbt package (commit it)", _name_it(project)]


def _name_it(project: Path) -> str:
    """Add the package to packages.yml, unless a file there names it already or is written in a way that we leave alone."""
    for name in ("packages.yml", "dependencies.yml"):
        path = project / name
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if FOLDER in text:
            return f"{path}: names it already"
        lines = text.splitlines(keepends=True)
        places = [number for number, line in enumerate(lines) if line.split("#")[0].rstrip() == "packages:"]
        if len(places) == 1:
            lines[places[0]] = lines[places[0]].rstrip("\n") + "\n"
            lines.insert(places[0] + 1, _indented(lines, places[0] + 1))
            path.write_text("".join(lines), encoding="utf-8")
            return f"{path}: added local: {FOLDER}"
        if "packages" in text:
            return f"{path}: please add by hand to packages: - local: {FOLDER}"
    path = project / "packages.yml"
    before = path.read_text(encoding="utf-8").rstrip("\n") + "\n" if path.is_file() and path.stat().st_size else ""
    path.write_text(f"{before}packages:\n{ENTRY}", encoding="utf-8")
    return f"{path}: added local: {FOLDER}"


def _indented(lines: list[str], after: int) -> str:
    """Return the entry, indented as the list that it is put in front of."""
    for line in lines[after:]:
        if line.lstrip().startswith("- "):
            return line[: len(line) - len(line.lstrip())] + ENTRY.lstrip()
    return ENTRY
