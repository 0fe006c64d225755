"""Functions with regular expressions: DuckDB's, with patterns that both engines match alike (`patterns`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.literals import text
from dpsql.engines.spark.translate.patterns import Pattern, pattern
from dpsql.engines.spark.translate.types import TEXT, Typed, of_type, refuse

_ANY = r"[\x{0}-\x{10ffff}]"


def _constant(name: str, values: Sequence[Typed], place: int) -> str:
    """Return an argument that is a constant text; '' where it is left out."""
    if place >= len(values):
        return ""
    constant = values[place].value
    return constant if isinstance(constant, str) else refuse(f"{name}() with this argument", "it must be a constant text")


def _searched(name: str, value: Typed) -> str:
    if value.type not in (TEXT, "NULL"):
        refuse(f"{name}() of {value.type}")
    return value.sql if value.type == TEXT else f"CAST({value.sql} AS STRING)"


def _matches(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    java = pattern(_constant(name, values, 1), _constant(name, values, 2), name).java
    if name == "regexp_full_match":
        java = rf"\A{java}\z"
    return of_type(f"({_searched(name, values[0])} RLIKE {text(java)})", "BOOLEAN")


def _extracted(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    translated = pattern(_constant(name, values, 1), function=name)
    group = values[2].value if len(values) == 3 else 0
    if not isinstance(group, int) or not 0 <= group <= translated.groups:
        refuse(f"{name}() with this group", f"the pattern has {translated.groups}")
    extracted = of_type(f"regexp_extract({_searched(name, values[0])}, {text(translated.java)}, {group})", TEXT)
    return replace(extracted, written=translated.parts) if group == 0 else extracted


def _replaced(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Replace the first match, or all: of the first one, what stands before it is matched, too, and put back."""
    options = _constant(name, values, 3)
    translated: Pattern = pattern(_constant(name, values, 1), options.replace("g", ""), name)
    if not translated.least:
        refuse(f"{name}() with a pattern of no characters", "Java finds empty matches at other places")
    new = _constant(name, values, 2)
    if "\\" in new or "$" in new:
        refuse(f"{name}() with a backslash or $ in the replacement")
    java = translated.java
    if "g" not in options:
        new, java = f"${{before}}{new}", rf"\A(?<before>{_ANY}*?){java}"
    return of_type(f"regexp_replace({_searched(name, values[0])}, {text(java)}, {text(new)})", TEXT)


Rule = Callable[[str, Sequence[Typed], Binder], Typed]
PATTERNS: dict[str, Rule] = {
    "regexp_matches": _matches,
    "regexp_full_match": _matches,
    "regexp_extract": _extracted,
    "regexp_replace": _replaced,
}
"""Name -> rule."""
