"""What a module of the product defines is used by the product: by itself, or by a module that imports it or names it in a registry.

Vulture (a gate of `.ci/run`) goes by the name alone, and takes what stands in `__all__` as used. Here a name counts where it is the
module's own; what tests alone use belongs into the tests.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"dpsql": "dpsql", "udfs": "dpsql.udfs", "examples": "examples"}
INTERFACES = {"dpsql", "dpsql.accounting", "dpsql.cli", "dpsql.dbt", "dpsql.dbt.served", "dpsql.udfs", "dpsql.api"}
"""What users import, or what is found by its place (a plugin of dbt-duckdb): their names are there to be used by others."""


def modules() -> dict[str, ast.Module]:
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines; what a decorator registers is used by it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [] if any(isinstance(d, ast.Attribute) and d.attr == "register" for d in node.decorator_list) else [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def unused(trees: dict[str, ast.Module]) -> list[str]:
    used: set[tuple[str, str]] = set()
    texts: set[str] = set()
    for module, tree in trees.items():
        aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    used.add((node.module, alias.name))
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
                texts.add(node.value)
        used |= {
            (aliases[node.value.id], node.attr) for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
        }
        for statement in tree.body:
            own = {*defined(statement), "__all__"}
            used |= {(module, node.id) for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id not in own}
    return [
        f"{module}.{name}" for module, tree in trees.items() if module not in INTERFACES
        for statement in tree.body for name in defined(statement)
        if not name.startswith("__") and (module, name) not in used
        and not any(f"{module}.".endswith(f".{text.split(':')[0]}.") and text.split(":")[1] == name for text in texts)
    ]


def test_every_name_of_a_module_is_used() -> None:
    assert unused(modules()) == []


def test_unused_names_are_found() -> None:
    planted = """
LIMIT, UNUSED = 1, 2
KIND: str = "a"
__all__ = ["UNUSED"]
def alone(): return alone()
def taken(): return LIMIT
def registered(): pass
class Alone: pass
@atexit.register
def at_the_end(): pass
"""
    user = "from dpsql.tables import planted\nfrom dpsql.tables.planted import Alone as KIND\nANSWERS = {'a': 'tables.planted:registered'}\nplanted.taken(ANSWERS)"
    trees = {"dpsql.tables.planted": ast.parse(planted), "dpsql.tables.user": ast.parse(user)}
    assert unused(trees) == [f"dpsql.tables.planted.{name}" for name in ("UNUSED", "KIND", "alone")]
