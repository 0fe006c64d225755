"""The client of a served database, as far as it needs no server: statements, arguments, errors, what it shows of itself."""

import duckdb
import pytest

import dpsql
from dpsql.calls.registry import declarations
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.wire import client, extensions
from dpsql.wire.statements import statement, told


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("budget", {"source": None}, "FROM dp_budget()"),
        ("budget", {"source": "it's"}, "FROM dp_budget(source := 'it''s')"),
        ("marginals", {"source": "t", "columns": ["a", 'b"'], "k": 2, "epsilon": 1e-9, "mechanism": "gaussian"},
            "FROM dp_marginals('t', columns := ['a', 'b\"'], k := 2, epsilon := 1e-09)"),
        ("synthesize", {"source": "t", "options": {"classes": 3, 'odd "n"': [1, None]}, "into": "x"},
            "FROM dp_synthesize('t', options := {\"classes\": 3, \"odd \"\"n\"\"\": [1, NULL]}, into_table := 'x')"),
        ("dummy", {"source": "t", "rows": 1000, "seed": 1}, "FROM dp_dummy('t', seed := 1)"),
        ("query", {"sql": "SELECT 1 -- '\nFROM t", "epsilon": 2}, "FROM dp_query('SELECT 1 -- ''\nFROM t', epsilon := 2)"),
    ],
)  # fmt: skip
def test_statements(name, given, text):
    assert statement(name, given) == text


def test_a_statement_says_what_the_macro_would():
    """Each argument of each call comes through DuckDB's parser as the value that it was."""
    con = duckdb.connect()
    for call in declarations():
        given = {p.name: "it's" if "str" in p.python else ["a'", "b"] if "Sequence" in p.python else 0.25 for p in call.parameters()}
        text = statement(call.name, given)
        names = con.execute("SELECT json_serialize_sql(?)", [text]).fetchone()[0]
        for p in call.parameters():
            assert p.required or f'"{p.also or p.name}"' in names, (call.name, p.name)
        assert '"error":false' in names
    con.close()


def test_values_that_are_no_constants_are_refused():
    with pytest.raises(ArgumentError, match="epsilon = a value of type object"):
        statement("query", {"sql": "x", "epsilon": object()})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Invalid Input Error: no grant\n\nLINE 1: FROM s.query('...')\n  ^", "no grant"),
        ("Invalid Input Error: Python exception occurred while executing the UDF: ArgumentError: k = 9: at most 3\n\nAt:\n", "k = 9: at most 3"),
        ("IO Error: Failed to send message: IO Error: gone", "Failed to send message: IO Error: gone"),
        ("", "the server gave no reason"),
    ],
)
def test_what_a_server_says(error, said):
    assert told(error) == said


@pytest.mark.parametrize("uri", ["localhost:9494", "quack:", "quack:a b:1", "quack:h:1' (TOKEN 'x')", "http://h", None, 5, "quack:h:123456"])
def test_no_such_place(uri):
    with pytest.raises(ArgumentError, match="uri"):
        dpsql.connect(uri, token="t")


def test_a_token_is_needed(monkeypatch):
    monkeypatch.delenv(client.TOKEN, raising=False)
    for token in (None, "", " \n"):
        with pytest.raises(ArgumentError, match="DPSQL_TOKEN"):
            dpsql.connect("quack:localhost:1", token=token)


def test_the_token_is_in_no_error_and_no_repr(monkeypatch):
    """Whatever goes wrong: extensions that are missing, a statement that DuckDB refuses with its text."""
    monkeypatch.setenv(client.TOKEN, "dpsql_very_secret")
    monkeypatch.setattr(client, "load_extensions", lambda con: None)
    with pytest.raises(DpsqlError) as refused:
        dpsql.connect("quack:localhost:1")
    shown = [str(refused.value), repr(refused.value), repr(refused.value.__cause__), repr(refused.value.__context__)]
    assert not any("very_secret" in text for text in shown)
    made = client.Client.__new__(client.Client)
    made.uri, made._token = "quack:localhost:1", "dpsql_very_secret"
    assert repr(made) == "dpsql.connect('quack:localhost:1')"


def test_what_is_missing_is_said(monkeypatch):
    assert "pip install duckdb-extension-quack==1.5.5 duckdb-extension-httpfs==1.5.5" in extensions.missing("quack", "1.5.5")
    assert "no wheels of it for DuckDB 2.0.0" in extensions.missing("quack", "2.0.0")
    monkeypatch.setattr(extensions, "wheel_file", lambda name: None)
    assert extensions.main() == 1


def test_the_extra_pins_what_the_loader_knows():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    pinned = dict(line.split("==") for line in project["project"]["optional-dependencies"]["serve"])
    newest = extensions.PINNED[-1]
    assert pinned == {"duckdb": newest, **{f"duckdb-extension-{name}": newest for name in extensions.NAMES}}
