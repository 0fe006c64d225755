"""Values of parameters are literals of the tree: none becomes a part of the statement."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pytest
from served_room import Served

VALUES = (
    None, True, False, 5, -5, 2**63, 1.5, -0.25, 1e300, float("inf"), Decimal("1.250"), Decimal("-7.5"), "O'Brien", "'; DROP TABLE wards; --",
    "x' OR '1'='1", "$1 ? :x", "", "\n", "ä\u200b", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 5, 250), dt.time(23, 59),
    uuid.UUID(int=7),
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(hospital: Served, value: object) -> None:
    """Each comes back as it was sent, by ``?`` and by number."""
    assert hospital.ask("SELECT ? AS v", (value,)) == [(value,)]
    assert hospital.ask("SELECT $2, $1, $2", (1, value)) == [(value, 1, value)]


def test_in_a_statement(hospital: Served) -> None:
    """In conditions, limits and lists, and nothing in a text of the statement is one."""
    assert hospital.ask("SELECT ward, '?' FROM wards WHERE beds = ? AND building <> ? LIMIT ?", (2, "x'", 1)) == [("B", "?")]
    assert hospital.ask("SELECT ward FROM wards WHERE ward IN (?, ?) ORDER BY 1", ("C", "A")) == [("A",), ("C",)]
    assert len(hospital.ask("SELECT count(*) FROM visits WHERE ward = ?", ("A",))) == 1
    assert "declared values" in hospital.refused("SELECT count(*) FROM visits WHERE ward = ?", ("A' OR true --",)).text


@pytest.mark.parametrize("values", [(30.5, Decimal("30.5"), Decimal("30.50"), Decimal("30.500")), (-0.25, Decimal("-0.250")), (45.0, Decimal("45.0"), Decimal("45.00"))], ids=repr)
def test_one_value_is_one_question(hospital: Served, values: tuple[object, ...]) -> None:
    """Whether a client sends it as a float or as a decimal, with zeros at its end or without, or writes it in the text."""
    text = "SELECT count(*) AS n FROM visits WHERE cost > ?"
    before = hospital.charges()
    answers = {str(hospital.ask(text, (value,))) for value in values} | {str(hospital.ask(text.replace("?", str(values[0]))))}
    assert len(answers) == 1 and hospital.charges() == before + 1


@pytest.mark.parametrize("value", [0.1, 0.3, 1.1, 123456.789, 1e15 - 0.5, 1.005, -7.45, 1e-5, 99999.99999, 0.1 + 0.2, 1e300, 5e-324, 1e22, float("inf")], ids=repr)
def test_a_float_is_the_same_number(hospital: Served, value: float) -> None:
    """A column of doubles holds it, and no neighbour of it."""
    assert hospital.ask("SELECT ?::DOUBLE AS v, a = ? AS same FROM (SELECT CAST($2 AS DOUBLE) AS a) t".replace("?", "$1"), (value, repr(value))) == [(value, True)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT ?", ()), ("SELECT ?", (1, 2)), ("SELECT 1", (1,)), ("SELECT $2", (1,)), ("SELECT $name", (1,)), ("SELECT $1, $3", (1, 2)),
        ("FROM dp_query('SELECT count(*) FROM visits WHERE cost > ?')", (1,)),
    ],
)  # fmt: skip
def test_wrong_number(hospital: Served, text: str, values: tuple[object, ...]) -> None:
    """There have to be as many values as parameters."""
    assert hospital.refused(text, values).kind == "syntax"


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}, object(), "a\0b", dt.timedelta(1)], ids=lambda value: type(value).__name__)
def test_other_values(hospital: Served, value: object) -> None:
    """What has no literal is refused."""
    assert hospital.refused("SELECT ?", (value,)).kind in ("unsupported", "syntax")


@pytest.mark.parametrize("text", ["FROM ?", "SELECT beds FROM wards ORDER BY beds ?", "FROM query(?)", "SELECT * FROM wards, ?"])
def test_no_names(hospital: Served, text: str) -> None:
    """No parameter stands for a name, and no function is opened by one."""
    assert hospital.refused(text, ("wards",)).kind in ("syntax", "refused", "no_table")
