"""One declaration a call: macros, Python functions, completion and the reference page say the same."""

from __future__ import annotations

import inspect
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.calls.declaration import REQUIRED
from dpsql.calls.registry import WHERE, declaration, declarations
from dpsql.calls.render import FILES, macro
from dpsql.door.dispatch import ANSWERS, answer
from dpsql.errors import ArgumentError

ROOT = Path(__file__).parents[2]
CALLS = pytest.mark.parametrize("call", declarations(), ids=lambda call: call.name)


@pytest.mark.parametrize("name", FILES)
def test_what_is_made_of_the_declarations_is_not_stale(name):
    """`python -m dpsql.calls.render .` writes them."""
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name]()


@CALLS
def test_the_macro_in_a_database_has_the_declared_parameters(call):
    con = duckdb.connect()
    dpsql.load(con)
    query = "SELECT DISTINCT parameters FROM duckdb_functions() WHERE function_name = ? AND function_type = 'table_macro'"
    declared = [p.also or p.name for p in call.parameters()] + [p.name for p in call.parameters() if p.also]  # those that need quotes last
    assert con.execute(query, [f"dp_{call.name}"]).fetchall() == [(declared,)]
    con.close()


@CALLS
def test_the_python_function_has_the_declared_parameters(call):
    signature = inspect.signature(getattr(dpsql, call.function))
    given = dict(signature.parameters)
    given.pop("con")
    assert set(given) == {p.name for p in call.parameters()} | ({"params"} if call.parametrized else set())
    for parameter in call.parameters():
        found = given[parameter.name]
        assert found.annotation == parameter.python
        if parameter.required or parameter.needed:
            assert found.default is inspect.Parameter.empty
        elif "None" in parameter.python:
            assert found.default is None
        else:
            assert found.default == parameter.default
    assert call.privacy.split(";")[0] in " ".join(inspect.getdoc(getattr(dpsql, call.function)).split())


@CALLS
def test_the_answer_takes_the_declared_type(call):
    parameters = list(inspect.signature(answer(call.name)).parameters.values())
    assert [p.name for p in parameters] == ["context", "call"]
    assert parameters[1].annotation == call.__name__
    assert set(ANSWERS) == set(WHERE)


def test_completion_offers_what_is_declared():
    pytest.importorskip("prompt_toolkit")
    from dpsql.cli.completion import CHOICES, RESERVED

    for call in declarations():
        for parameter in call.parameters():
            assert not parameter.choices or set(parameter.choices) == set(CHOICES[parameter.name])
            assert (parameter.also is not None) == (parameter.name in RESERVED)


@CALLS
def test_every_parameter_says_what_it_means(call):
    assert call.__doc__ and not call.__doc__.startswith(call.__name__)
    for parameter in call.parameters():
        assert parameter.words.endswith(".") and "\n" not in parameter.words


@CALLS
def test_what_no_call_has_is_refused_and_a_comparison_of_files_can_fail(call):
    required = {p.name: (*p.choices, "x")[0] for p in call.parameters() if p.required or p.needed}
    required |= {name: 1.0 for name in required if name == "epsilon"}
    assert isinstance(call.parse(required), call)
    with pytest.raises(ArgumentError, match="no such argument"):
        call.parse({**required, "no_such": 1})
    if required:
        with pytest.raises(ArgumentError, match="is not given"):
            call.parse({}) if any(p.required for p in call.parameters()) else call(**{next(iter(required)): None})
    other = type("Other", (call,), {"name": "other", "__doc__": call.__doc__})
    assert macro(other) != macro(call)


def test_defaults_are_filled_in_and_arguments_checked_once():
    found = declaration("evaluate").parse({"source": "a", "synthetic": "b", "max_k": None})
    assert (found.max_k, found.seed, found.report) == (3, 7, "tables")
    with pytest.raises(ArgumentError, match="max_k = 4"):
        found.changed(max_k=4)
    assert all(p.default is not REQUIRED for p in declaration("budget").parameters())
