"""Free answers of earlier releases: never of one that has read its tables by other links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import PROTECT, VISITS, link_patients, make_patients

import dpsql

pytestmark = pytest.mark.any_duckdb

BOUGHT = "SELECT p.sex, count(*) AS n, avg(v.cost) AS c FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex"
LESS = ("SELECT p.sex, count(*) AS n FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex",
        "SELECT p.sex, avg(v.cost) AS c FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex")


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    dpsql.load(connection, user="tester", progress=False)
    yield connection
    connection.close()


def declare(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100)")


def ask(con: duckdb.DuckDBPyConnection, text: str, more: str = "max_groups := 1, max_rows_per_group := 5") -> int:
    """Ask, and return how many releases were bought by then."""
    assert con.execute(f"FROM dp_query('{text}', epsilon := 0.2, {more})").fetchall()
    return int(con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()[0][0])


def test_a_release_answers_for_other_rows_no_more_once_orphans_count(con):
    link_patients(con)
    declare(con)
    assert [ask(con, text) for text in (BOUGHT, *LESS)] == [1, 1, 1]
    con.execute("CALL dp_link('procedures', orphans := 'unit')")  # which nobody has read
    assert [ask(con, text) for text in LESS] == [1, 1]
    con.execute("CALL dp_link('visits', orphans := 'unit')")
    assert ask(con, BOUGHT) == 1, "the same call gives back what it has bought"
    assert [ask(con, text) for text in LESS] == [2, 3]
    con.execute("CALL dp_link('visits', orphans := 'drop')")
    assert ask(con, LESS[0], "max_groups := 1, max_rows_per_group := 5, release := 'anew'") == 4


def test_a_bound_that_follows_from_links_is_that_of_today(con, monkeypatch):
    monkeypatch.setattr("dpsql.answers.row_bounds.MANY", 1000)  # nothing is learned
    link_patients(con)
    declare(con)
    assert [ask(con, text, "delta := 1e-12") for text in (BOUGHT, *LESS)] == [1, 1, 1]
    con.execute("CALL dp_link('visits', max_rows := 4)")
    assert ask(con, LESS[1], "delta := 1e-12") == 2


def test_what_was_bought_while_a_table_was_public_answers_nothing_once_it_is_linked(con):
    """Then it was one row of patients that was protected, with a public table beside it."""
    con.execute("DROP TABLE visits; CREATE TABLE visits (visit_id INTEGER, patient_id INTEGER PRIMARY KEY, cost INTEGER)")
    con.execute("INSERT INTO visits SELECT i, i, i FROM range(50) t(i)")
    con.execute(PROTECT)
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm']); CALL dp_declare('patients', 'age', lower := 0, upper := 100)")
    texts = [BOUGHT.replace("v.cost", "p.age"), LESS[0]]
    assert [ask(con, text) for text in texts] == [1, 1]
    con.execute(VISITS)
    assert ask(con, LESS[0]) == 2
