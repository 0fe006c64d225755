"""A statement of MySQL's is translated first, and DuckDB's text of it is what is judged."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from served_room import Served

from dpsql.serve.passed import Refused


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What stands for a translation: by text, a text or an error; the values that were given are noted."""
    known: dict[str, object] = {}

    def to_duckdb(text: str, parameters: tuple[object, ...]) -> object:
        known["given"] = parameters
        found = known[text]
        if isinstance(found, Exception):
            raise found
        return found

    module = ModuleType("dpsql.serve.mysql.translate")
    module.to_duckdb = to_duckdb  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dpsql.serve.mysql", ModuleType("dpsql.serve.mysql"))
    monkeypatch.setitem(sys.modules, "dpsql.serve.mysql.translate", module)
    return known


def test_the_translation_is_judged(hospital: Served, translated: dict[str, object]) -> None:
    """Not the text that came in; values are the translation's to put in."""
    translated |= {"a": "SELECT max(beds) FROM wards", "SELECT 1": "FROM payroll", "c": "SELECT ?"}
    assert list(hospital.room.ask("alice", "a", "mysql", (1, 2)).rows) == [(2,)] and translated["given"] == (1, 2)
    assert hospital.room.describe("alice", "a", "mysql")[0].type == "INTEGER"
    for text, kind in {"SELECT 1": "no_table", "c": "syntax"}.items():
        with pytest.raises(Refused) as refused:
            hospital.room.ask("alice", text, "mysql", ("x",))
        assert refused.value.kind == kind


def test_what_is_not_translated(hospital: Served, translated: dict[str, object]) -> None:
    """A refusal of the translator is passed on, and any other error of it is one of the list."""
    translated |= {"a": Refused("unsupported", "no such thing"), "b": ValueError("/home/x.py: trace"), "c": RecursionError()}
    for text, said in {"a": "no such thing", "b": "not understood as MySQL's", "c": "not understood as MySQL's"}.items():
        with pytest.raises(Refused, match=said):
            hospital.room.ask("alice", text, "mysql")


def test_the_way_out_of_a_scan(hospital: Served, translated: dict[str, object]) -> None:
    """A client that could not send a query as a whole is told how to; in DuckDB's own dialect nothing is attached that way."""
    translated["scan"] = "SELECT cost FROM visits"
    with pytest.raises(Refused) as refused:
        hospital.room.ask("alice", "scan", "mysql")
    assert refused.value.kind == "refused" and "mysql_query('census', 'SELECT ... GROUP BY ...')" in refused.value.text
    assert "mysql" not in hospital.refused("SELECT cost FROM visits").text
