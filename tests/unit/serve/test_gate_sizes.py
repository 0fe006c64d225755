"""Functions that would make a large value of a small number, or work for ever inside of one call."""

from __future__ import annotations

import functools
import time

import duckdb
import pytest
from gate_places import Place

from dpsql.serve.gate import Accepted, Refused, sizes
from dpsql.serve.gate.functions import FUNCTIONS, OPERATORS


@functools.cache
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("function", "levenshtein('a', 'b')"), ("function", "damerau_levenshtein('a', 'b')"), ("function", "editdist3('a', 'b')"),
        ("function", "jaro_similarity('a', 'b')"), ("function", "jaro_winkler_similarity('a', 'b')"),
        ("size", "repeat('a', 10001)"), ("size", "repeat('a', 1e9::INT)"), ("size", "repeat('a', length('aaa'))"),
        ("size", "lpad('a', 100000, 'x')"), ("size", "rpad('a', 100000, 'x')"), ("size", "bar(1, 0, 2, 100000)"),
        ("size", "to_base(1, 2, 100000)"), ("size", "bitstring('1', 100000)"), ("size", "range(100000000)"),
        ("size", "range(-100000000, 5)"), ("size", "generate_series(0, 10, 1e-9)"), ("size", "range(a) FROM pub"),
        ("size", "list_resize([1], 10000000)"), ("size", "array_resize([1], 10000000)"), ("size", "equi_width_bins(0, 1, 99999999, true)"),
        ("sizes", "repeat(repeat('a', 10000), 10000)"), ("sizes", "list_transform(range(100000), lambda x: range(100000))"),
        ("sizes", "(WITH t AS (SELECT repeat('a', 9999) AS s) SELECT repeat(s, 9999) FROM t)"),
        ("pattern", "'a' ILIKE '%a%b%c%'"), ("pattern", "'a' LIKE '%a_%b%c'"), ("pattern", "'a' LIKE 'a' || '%'"),
        ("pattern", "'a' GLOB '*a*b*'"), ("pattern", "'a' LIKE '%a%b%c' ESCAPE 'x'"),
        ("format", "format('{:99999999}', 1)"), ("format", "format('{:{}}', 1, 99999999)"), ("format", "printf('%99999999d', 1)"),
        ("format", "printf('%*d', 99999999, 1)"),
    ],
)  # fmt: skip
def test_refused(kind, expression):
    found = place().decide(f"SELECT {expression}")
    assert isinstance(found, Refused) and found.kind == kind, found


@pytest.mark.parametrize(
    "expression",
    [
        "repeat('ab', 3)", "lpad('7', 3, '0')", "range(10)", "range(0, 100, 10)", "generate_series(5, 1, -1)", "list_resize([1], 3)",
        "'abc' LIKE '%b%'", "'abc' LIKE '%a%b%c%'", "'abc' ILIKE '%B%'", "'abc' NOT LIKE 'a_c'", "format('{:.2f} {}', 1.5, 'x')",
        "printf('%05d', 7)", "bar(1, 0, 2, 10)", "to_base(5, 2)", "equi_width_bins(0, 10, 5, true)",
        "lpad('a', 20, ' ') || lpad('b', 20, ' ') || lpad('c', 20, ' ') || rpad('d', 20, ' ') || rpad('e', 20, ' ')",
    ],
)  # fmt: skip
def test_answered(expression):
    found = place().decide(f"SELECT {expression} AS v")
    assert isinstance(found, Accepted), found
    assert place().con.cursor().execute(found.sql).fetchall()


def test_a_table_of_numbers_is_of_any_length():
    assert isinstance(place().decide("SELECT count(*) FROM range(100000000)"), Accepted)


def test_the_list_is_looked_over():
    """What gives a longer text or list for a larger number is sized: each function is tried that takes a text or list and a number."""
    cursor = duckdb.connect().cursor()
    asked = "SELECT DISTINCT lower(function_name), parameter_types FROM duckdb_functions() WHERE function_type = 'scalar'"
    known = {*sizes.SIZED, *sizes.RANGES}
    grown = []
    for name, types in cursor.execute(asked).fetchall():
        if name not in FUNCTIONS or name in OPERATORS or name in known or name in sizes.FORMATS:
            continue
        for number in range(len(types)):
            if types[number] not in ("BIGINT", "INTEGER"):
                continue
            lengths = []
            for value in (10, 50_000):
                given = ", ".join(
                    str(value) if place == number else _example(kind) for place, kind in enumerate(types)
                )
                try:
                    row = cursor.execute(f"SELECT length(v::VARCHAR) FROM (SELECT {name}({given}) AS v)").fetchone()
                except duckdb.Error:
                    break
                lengths.append((row or (0,))[0] or 0)
            if len(lengths) == 2 and lengths[1] > 100 * max(lengths[0], 1):
                grown.append((name, number))
    assert grown == []


def _example(kind: str) -> str:
    return {"VARCHAR": "'a'", "BIGINT": "5", "INTEGER": "5", "DOUBLE": "1.5", "BOOLEAN": "true", "BLOB": "'a'::BLOB"}.get(kind, "[1]")


def test_no_function_takes_long_for_long_texts():
    """Each function of two texts on the list is linear enough: a second for 100,000 letters each, at most ten."""
    cursor = duckdb.connect().cursor()
    asked = "SELECT DISTINCT lower(function_name), parameter_types FROM duckdb_functions() WHERE function_type = 'scalar'"
    slow = []
    for name, types in cursor.execute(asked).fetchall():
        if name in FUNCTIONS and name not in sizes.PATTERNS and list(types) == ["VARCHAR", "VARCHAR"]:
            begun = time.process_time()
            try:
                cursor.execute(f"SELECT length({name}(repeat('a', 50000) || 'b', repeat('a', 20000) || 'c')::VARCHAR)").fetchall()
            except duckdb.Error:
                continue
            if time.process_time() - begun > 2:
                slow.append(name)
    assert slow == []
