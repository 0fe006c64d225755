"""Functions of texts: Spark's SQL that gives what DuckDB gives.

Texts are compared byte by byte on both sides, and counted in code points. Where the two differ: DuckDB changes the case of each
letter by itself (Spark may make two letters of one), trims every kind of space, and leaves NULL out of concat(). Regular
expressions have their own rules (`matching`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.literals import text
from dpsql.engines.spark.translate.types import TEXT, Typed, of_type, refuse

Rule = Callable[[str, Sequence[Typed], Binder], Typed]
_SPACES = " \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u202f\u205f\u3000"  # Unicode's class Zs


def _all_texts(name: str, values: Sequence[Typed]) -> list[str]:
    for value in values:
        if value.type not in (TEXT, "NULL"):
            refuse(f"{name}() of {value.type}")
    return [value.sql if value.type == TEXT else f"CAST({value.sql} AS STRING)" for value in values]


def _constant_text(name: str, value: Typed) -> str:
    return value.value if isinstance(value.value, str) else refuse(f"{name}() with this argument", "it must be a constant text")


def _number(name: str, value: Typed) -> int:
    if not value.constant or not isinstance(value.value, int):
        refuse(f"{name}() with this argument", "it must be a constant number")
    return value.value


def _case(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Change the case of every letter by DuckDB's own table, which is asked for."""
    function = {"lcase": "lower", "ucase": "upper"}.get(name, name)
    [value] = _all_texts(name, values)
    before, after = binder.letters(function)
    return of_type(f"translate({value}, {text(before)}, {text(after)})", TEXT)


def _plain(function: str, result: str = TEXT) -> Rule:
    def rule(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
        return of_type(f"{function}({', '.join(_all_texts(name, values))})", result)

    return rule


def _counted(function: str) -> Rule:
    def rule(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
        return of_type(f"CAST({function}({', '.join(_all_texts(name, values))}) AS BIGINT)", "BIGINT")

    return rule


def _trimmed(side: str) -> Rule:
    def rule(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
        [value] = _all_texts(name, values[:1])
        letters = _SPACES if len(values) == 1 else _constant_text(name, values[1])
        if not letters:
            return of_type(value, TEXT)
        return of_type(f"trim({side} {text(letters)} FROM {value})", TEXT)

    return rule


def _replaced(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    old = _constant_text(name, values[1])
    listed = _all_texts(name, values)
    return of_type(f"replace({', '.join(listed)})" if old else listed[0], TEXT)


def _joined(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    listed = ", ".join(f"coalesce({value}, '')" for value in _all_texts(name, values))
    return of_type(f"concat({listed})", TEXT)


def _substring(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = _all_texts(name, values[:1])
    start = _number(name, values[1])
    length = _number(name, values[2]) if len(values) == 3 else None
    if start < 0 or (length is not None and length < 0):
        refuse(f"{name}() with a negative number")
    if start == 0:  # DuckDB counts the place before the first letter
        start, length = 1, None if length is None else max(length - 1, 0)
    return of_type(f"substring({value}, {start}{'' if length is None else f', {length}'})", TEXT)


def _left(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = _all_texts(name, values[:1])
    n = _number(name, values[1])
    return of_type(f"substring({value}, 1, {n if n >= 0 else f'greatest(length({value}) - {-n}, 0)'})", TEXT)


def _right(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = _all_texts(name, values[:1])
    n = _number(name, values[1])
    return of_type(f"substring({value}, {f'greatest(length({value}) - {n} + 1, 1)' if n >= 0 else 1 - n})", TEXT)


def _encoded(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = _all_texts(name, values)
    return of_type(f"CAST({value} AS BINARY)", "BLOB")


def _split(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = _all_texts(name, values[:1])
    delimiter = _constant_text(name, values[1])
    if not delimiter or "\0" in delimiter:
        refuse(f"{name}() with an empty delimiter")
    quoted = re.sub(r"([^A-Za-z0-9])", lambda match: "\\" + match[1] if match[1].isascii() else match[1], delimiter)
    return of_type(f"split({value}, {text(quoted)})", f"{TEXT}[]")


def _has(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    if values[0].type != f"{TEXT}[]":
        refuse(f"{name}() of {values[0].type}")
    [value] = _all_texts(name, values[1:])
    return of_type(f"array_contains({values[0].sql}, {value})", "BOOLEAN")


def _element(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    if values[0].type != f"{TEXT}[]":
        refuse(f"{name}() of {values[0].type}")
    return of_type(f"get({values[0].sql}, {_number(name, values[1]) - 1})", TEXT)


def like(value: Typed, pattern: Typed) -> Typed:
    """Return whether a text has a pattern; DuckDB's patterns have no escape, so Spark is given one that does not occur."""
    if value.type != TEXT or not isinstance(pattern.value, str):
        refuse("LIKE", "the pattern must be a constant text")
    letters = (chr(i) for i in (*range(33, 127), *range(0x2200, 0x2800)) if chr(i) not in "%_\\'$")
    escape = next((letter for letter in letters if letter not in pattern.value), "")
    if not escape or "\\" in pattern.value:
        refuse("LIKE with this pattern")
    return of_type(f"({value.sql} LIKE {text(pattern.value)} ESCAPE '{escape}')", "BOOLEAN")


TEXTS: dict[str, Rule] = {
    **dict.fromkeys(("lower", "upper", "lcase", "ucase"), _case),
    "md5": _plain("md5"),
    "sha256": lambda name, values, binder: of_type(f"sha2({_all_texts(name, values)[0]}, 256)", TEXT),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _counted("length")),
    "strlen": _counted("octet_length"),
    "bit_length": _counted("bit_length"),
    "contains": _plain("contains", "BOOLEAN"),
    **dict.fromkeys(("starts_with", "prefix"), _plain("startswith", "BOOLEAN")),
    **dict.fromkeys(("ends_with", "suffix"), _plain("endswith", "BOOLEAN")),
    **dict.fromkeys(("strpos", "instr"), _counted("instr")),
    "trim": _trimmed("BOTH"),
    "ltrim": _trimmed("LEADING"),
    "rtrim": _trimmed("TRAILING"),
    "replace": _replaced,
    "concat": _joined,
    "concat_ws": _plain("concat_ws"),
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _left,
    "right": _right,
    "encode": _encoded,
    "string_split": _split,
    "list_contains": _has,
    "list_extract": _element,
}
"""Name -> rule. What is not here is refused: reverse, strip_accents, nfc_normalize, ascii, ord, unicode, translate."""
