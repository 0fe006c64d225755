"""The tables of functions, aggregates and parts of dates: what they say is so, and every other set of names is made of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import re
from pathlib import Path

import duckdb
import pytest
import sqlglot
from query_expressions import COLUMNS, DAY, known_range, make_rows, total

import dpsql
from dpsql.algebra import aggregates, functions, parts
from dpsql.algebra.aggregates import AGGREGATES, INSIDE, SPELLINGS, WINDOWS
from dpsql.algebra.functions import FUNCTIONS, LISTED, longest
from dpsql.algebra.parts import PARTS, UNITS
from dpsql.errors import DpsqlError, UnsupportedQuery
from dpsql.queries.bounds import extent
from dpsql.queries.grains import grain_of, may_be_null
from dpsql.queries.public_values import _FUNCTIONS as IN_PUBLIC
from dpsql.rules.grammar import read
from dpsql.serve.gate.functions import FUNCTIONS as SERVED
from dpsql.source.analysis import analyse
from dpsql.source.kernel import ALWAYS_CHECKED, BOUND, KINDS, LOCAL_FUNCTIONS, WRITTEN_OUT
from dpsql.text.strict import StrictDuckDB

COMPOSED = [name for name, one in AGGREGATES.items() if one.composed]
PACKAGE = Path(dpsql.__file__).parent
NUMBERS = ("i", "j", "x", "y", "z", "m", "0.3", "-1", "1")
GIVEN = {
    **dict.fromkeys("dpqufma", NUMBERS), "h": ("i", "x", "m"), "b": ("x", "z", "d", "t"), "x": ("left(s, 5)", "c", "'a-b'"), "w": ("left(s, 5)", "c", "'a-b'"),
    "s": ("'-'", "'a'"), "n": ("0", "1", "2"), "i": ("2", "-1"), "c": ("x", "y", "0.5"), "t": ("d", "e", "t"), "v": ("d", "e", "t"), "z": ("t", "d"),
    "r": (), "l": (), "k": (), "y": (),
}
FIRST = {"if": ("x > 1", "i = 3"), "timezone": ("'UTC'", "'Asia/Tokyo'"), "strftime": ("d", "t"), "strptime": ("'2020-01-01'",), "try_strptime": ("'2020-01-01'",)}
LAST = {**dict.fromkeys(("regexp_matches", "regexp_full_match"), ("'i'",)), "regexp_replace": ("'g'",), "strftime": ("'%Y-%m'",), "strptime": ("'%Y-%m-%d'",), "try_strptime": ("'%Y-%m-%d'",)}


def calls(name: str) -> list[str]:
    """Calls of a function of the table, over columns with known bounds."""
    function = FUNCTIONS[name]
    if function.unit:
        named = sorted(PARTS if function.unit == "part" else UNITS)
        rest = {2: ("d", "t"), 3: ("e, d", "d, t", "t, t")}[len(function.kinds)]
        return [f"{name}('{part}', {given})" for part in named for given in rest]
    lists = [list(GIVEN[kind]) for kind in function.kinds[: max(function.least, 1)]] + [list(GIVEN[kind]) for kind in function.kinds[max(function.least, 1) :]]
    for place, own in ((0, FIRST), (-1, LAST)):
        if name in own:
            lists[place] = list(own[name])
    return [f"{name}({', '.join(given)})" for given in itertools.islice(itertools.product(*lists), 90)]


def tree(text: str):
    return sqlglot.parse_one(text, dialect=StrictDuckDB)


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as found:
        make_rows(found, 120)
        yield found


@pytest.mark.parametrize("name", [name for name, one in FUNCTIONS.items() if not set(one.kinds) & set("lkyr")])
def test_what_the_table_says_of_a_function_is_so(con, name):
    """Its values lie in its range, it is NULL only where that is said, its texts are as short, and it sees no more of a moment."""
    function, tried = FUNCTIONS[name], 0
    for text in calls(name):
        try:
            sql, kind = total(con, tree(text))
        except DpsqlError:
            continue
        tried += 1
        if not may_be_null(tree(text), lambda column: COLUMNS[column.name].nullable):
            assert con.execute(f"SELECT count(*) - count({sql}) FROM p").fetchone() == (0,), text
        if kind == "VARCHAR" and math.isfinite(most := longest(tree(text))):
            assert con.execute(f"SELECT coalesce(max(length({sql})), 0) <= {most} FROM p").fetchone() == (True,), text
        if function.range is not None and kind != '"NULL"':
            found = extent(tree(text), known_range)
            numbers = f"epoch({sql}) / {DAY if found.sort == 'date' else 1}" if kind.startswith(("DATE", "TIMESTAMP")) else f"CAST({sql} AS DOUBLE)"
            for (value,) in con.execute(f"SELECT DISTINCT {numbers} AS v FROM p WHERE v IS NOT NULL AND NOT isnan(v)").fetchall():
                slack = 1e-4 if kind.startswith("TIMESTAMP") or name == "epoch" else 1e-9 * (1 + abs(value))
                assert found.lower - slack <= value <= found.upper + slack, (text, found, value)
                assert not found.whole or kind.startswith("T") or value == math.floor(value), (text, found, value)
        if text.endswith("(t)") and (grain := grain_of(tree(text).find(sqlglot.exp.Column))):
            whole, _ = total(con, tree(text.replace("(t)", f"(date_trunc('{grain}', t))")))
            assert con.execute(f"SELECT count(*) FROM p WHERE {sql} IS DISTINCT FROM {whole}").fetchone() == (0,), text
    assert tried or name == "pi"


def test_a_wrong_line_is_noticed(con, monkeypatch):
    wrong = {"range": FUNCTIONS["tanh"].range, "null": "first", "grain": "day"}
    for name, key in (("sinh", "range"), ("ln", "null"), ("hour", "grain")):
        monkeypatch.setitem(FUNCTIONS, name, dataclasses.replace(FUNCTIONS[name], **{key: wrong[key]}))
        with pytest.raises(AssertionError):
            test_what_the_table_says_of_a_function_is_so(con, name)


def test_a_function_of_the_table_is_known_everywhere():
    """To the check of DuckDB's plan, the gate of a served database, rules, and scalar subqueries over public tables."""
    for name, function in FUNCTIONS.items():
        assert set(function.kinds) <= KINDS.keys(), name
        assert name in BOUND or name in WRITTEN_OUT, name
        assert name in SERVED and name in IN_PUBLIC, name
        given = ", ".join(["a"] * max(function.least, 1 if function.kinds else 0))
        assert read(f"{name}({given}) = a OR a = 1", ["a"]).columns == ("a",)
    assert LISTED.keys() == FUNCTIONS.keys() | LOCAL_FUNCTIONS.keys() | ALWAYS_CHECKED | BOUND.keys()


def words(text: str) -> set[str]:
    """The words of a text that has nothing but names."""
    found = set(re.split("[ =]", text.lower()))
    return found if found <= NAMES else set()


def strings(node: ast.AST) -> set[str]:
    """The texts in a set, list, tuple or dictionary, or the words of one text."""
    elements = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set | ast.List | ast.Tuple) else []
    found = {one.value.lower() for one in elements if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
        found = words(node.value)
    return found & NAMES


NAMES = (LISTED.keys() | AGGREGATES.keys() | WINDOWS.keys()) - PARTS.keys() - {"left", "right"}
ELSEWHERE = {
    "serve/gate/functions.py": "functions of answers: those of the tables, and more",
    "serve/gate/sizes.py": "patterns, of which the gate bounds the work",
    "serve/mysql/judging.py": "what clients ask of the catalogue of MySQL",
    "answers/summary.py": "columns of SUMMARIZE",
    "estimates/moments.py": "formulas: one for each",
    "source/aggregates.py": "how each kind is calculated",
    **dict.fromkeys(
        (f"engines/spark/translate/{name}.py" for name in ("aggregates", "matching", "moments", "numbers", "texts")),
        "how each is said in Spark's SQL: what has no rule is refused there",
    ),
}
"""Files with a list of names of their own, and why."""


def test_every_set_of_names_is_made_of_the_tables():
    tables = {Path(module.__file__).resolve() for module in (functions, aggregates, parts)}
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())) if path.resolve() not in tables else ():
            if len(names := strings(node)) >= 3:
                found.setdefault(str(path.relative_to(PACKAGE)), set()).update(names)
    assert found.keys() <= ELSEWHERE.keys(), {name: names for name, names in found.items() if name not in ELSEWHERE}
    assert found.keys() == ELSEWHERE.keys()


@pytest.mark.parametrize(("code", "names"), [
    ("X = frozenset(['floor', 'ceil', 'round'])", {"floor", "ceil", "round"}), ("X = {'sum': 1, 'avg': 2}", {"sum", "avg"}),
    ("if name in ('min', 'max', 'other'): pass", {"min", "max"}), ("X = 'lower upper'.split()", {"lower", "upper"}), ("'the sum of all'", set()),
])
def test_a_list_of_names_is_seen(code, names):
    assert set().union(*(strings(node) for node in ast.walk(ast.parse(code)))) == names


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Return every text of the package, with the file that it stands in."""
    return [
        (str(path.relative_to(PACKAGE)), node.value) for path in sorted(PACKAGE.rglob("*.py")) for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("name", ["sinh", "cosh", "tanh", "asinh", "atanh", "signbit", "sha1", "translate", "degrees"])
def test_a_plain_function_is_one_line_of_one_file(name):
    """No other file of the package has its name as a text, or among names; and there it stands once."""
    assert [file for file, text in texts() if name in text.lower() and name in words(text)] == ["algebra/functions.py"]


# -- aggregates -------------------------------------------------------------------------------------------------------------------


def test_an_aggregate_is_answered_or_refused():
    for name, one in AGGREGATES.items():
        assert bool(one.answers) + bool(one.refused) + (one.composed is not None) == 1, name
        assert one.range is not None if one.inside else one.range is None or one.composed, name
        assert one.inside in {"", "count_distinct", *AGGREGATES} and one.answers in {"", "count_distinct", *AGGREGATES}, name
        assert not one.answers or one.measured or name == "median", name
    assert set(SPELLINGS) >= {name for name, one in AGGREGATES.items() if one.measured}


@pytest.fixture(scope="module")
def few_rows():
    with duckdb.connect() as con:
        con.execute("CREATE TABLE p AS SELECT i % 7 AS g, i % 3 AS k, CAST(i * 37 % 11 - 3 AS INTEGER) AS v FROM range(100) r(i)")
        yield con


@pytest.mark.parametrize("name", [name for name, one in AGGREGATES.items() if one.inside or one.composed])
def test_a_source_takes_every_spelling_of_what_it_calculates(few_rows, name):
    """What it gives of a unit's rows is what DuckDB gives, and lies in the range that the table says."""
    given = {"count_star": "", "count_if": "v > 2", "countif": "v > 2", "bool_and": "v > -3", "bool_or": "v > 6", "geomean": "abs(v) + 1", "geometric_mean": "abs(v) + 1"}.get(name, "v")
    one = AGGREGATES[name]
    more = ", 0.3" if one.fraction else ", k" if one.inside.startswith("arg_") else ""
    query = f"SELECT g, {name}({given}{more}) AS a FROM p GROUP BY g"
    found = analyse(few_rows.cursor(), query, database="memory", schema="main", protected=lambda t: True, unit_column=lambda t: "g", local=True)
    ours = dict(few_rows.execute(f"SELECT g, a FROM ({found.sql})").fetchall())
    meant = {"first": "min", "arbitrary": "min", "any_value": "min", "last": "max", "approx_count_distinct": "count(DISTINCT v) --",
             "approx_quantile": "quantile_disc"}.get(name, name)
    if not more or one.fraction:
        theirs = dict(few_rows.execute(query.replace(f"{name}({given}{more})", f"{meant.removesuffix(' --')}" if "--" in meant else f"{meant}({given}{more})")).fetchall())
        close = all(v == theirs[g] or (name != "mode" and math.isclose(float(v), float(theirs[g]), rel_tol=1e-9)) for g, v in ours.items())
        assert ours.keys() == theirs.keys() and (close or name == "mode"), (ours, theirs)
    limits = extent(tree(f"{name}({given}{more})"), lambda column: functions.Range(-3.0, 7.0, True, "integer"))
    assert all(limits.lower <= float(v) <= limits.upper for v in ours.values()), (limits, ours)


def test_what_no_source_calculates_says_what_to_write():
    with duckdb.connect() as con:
        con.execute("CREATE TABLE p AS SELECT 1 AS g, 2 AS v")
        for name in sorted(AGGREGATES.keys() - INSIDE.keys() - {"first_value", *COMPOSED}):
            given = "v, v" if AGGREGATES[name].arguments == 2 else "v"
            with pytest.raises(UnsupportedQuery, match=re.escape(f"{name}()")):
                analyse(con.cursor(), f"SELECT g, {name}({given}) AS a FROM p GROUP BY g", database="memory", schema="main",
                        protected=lambda t: True, unit_column=lambda t: "g", local=True)
