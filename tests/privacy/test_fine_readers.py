"""The round before the tables: which modules name exact counts, and what those that cut bins import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dpsql


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of the package with its path inside it."""
    for folder in map(Path, dpsql.__path__):  # in a checkout udfs/ and sql/ stand beside dpsql/
        rooms = [folder] if (folder / "errors.py").is_file() else [folder / "udfs", folder / "sql"]
        yield from ((path.relative_to(folder).as_posix(), path) for room in rooms for path in room.rglob("*.py"))


def names_of(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_exact_counts_of_levels_are_named_where_protected_rows_are_read_and_nowhere_else():
    found = {}
    for name, path in modules():
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in ("counted", "count_fine", "fine_statement", "number_expression")):
            continue
        tree = ast.parse(text)
        origins = ("dpsql.tables", "dpsql.tables.fine")
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in origins]
        imports = {alias.name for node in nodes for alias in node.names}
        named = {"counted", "count_fine", "fine_statement", "number_expression"} & names_of(tree)
        if not imports & {"fine", "counted"}:
            named -= {"counted"}  # a word of others
        if named:
            found[name] = named
    assert found.pop("measure/fine.py") == {"counted", "count_fine", "fine_statement", "number_expression"}
    assert "number_expression" in found.pop("measure/linked.py")  # the same of linked tables
    assert found.pop("custodian/linked_reading.py") == {"number_expression"}  # exact figures for the custodian, said to be not private
    assert set(found) <= {"kinds/measured.py"}  # binds the statement, without running it
    assert all(named == {"fine_statement"} for named in found.values())


def test_what_cuts_bins_imports_nothing_that_reads():
    known = dict(modules())
    for name in ("tables/fine.py", "tables/extent.py", "tables/cutting.py", "tables/tails.py", "tables/measured.py", "release/refined.py", "domains/grid.py", "domains/within.py"):
        path = known[name]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        assert not [m for m in named if m.startswith(("duckdb", "dpsql.measure", "dpsql.kinds", "dpsql.session", "dpsql.protected"))], name
