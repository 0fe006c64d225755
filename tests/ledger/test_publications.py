"""What is published is what was published: names alone pass nothing on."""

from __future__ import annotations

import stat
import subprocess
import sys

import duckdb
import pytest
from analysts import ask

import dpsql
from dpsql.books.grants import Grants
from dpsql.errors import ArgumentError

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def lists(con):
    con.execute("CREATE TABLE lists AS SELECT 'public' AS v")
    con.execute("CREATE VIEW pv AS FROM lists")
    con.execute("CALL dp_publish('lists')")
    con.execute("CALL dp_publish('pv')")
    return con


def published(con):
    database = con.execute("SELECT current_database()").fetchall()[0][0]
    return Grants(con.cursor(), database).published()


def states(con):
    return dict(con.execute("SELECT source, change FROM dp_publish()").fetchall())


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE lists ADD COLUMN w INTEGER", "CREATE OR REPLACE TABLE lists AS SELECT 'x' AS v, 1 AS salary",
        "CREATE OR REPLACE TABLE lists AS SELECT 1 AS v", "DROP TABLE lists", "ALTER TABLE lists RENAME v TO w",
    ],
)  # fmt: skip
def test_a_table_whose_columns_change_is_not_published_any_more(lists, change):
    assert published(lists) == ["main.lists", "main.pv"]
    if "ALTER" in change:
        lists.execute("DROP VIEW pv")
    lists.execute(change)
    assert published(lists) == []
    assert set(states(lists).values()) == {"changed since: not published"}
    lists.execute("CREATE OR REPLACE TABLE lists AS SELECT 'again' AS v")
    lists.execute("CALL dp_publish('lists')")
    assert "main.lists" in published(lists)


def test_more_rows_change_nothing(lists):
    lists.execute("INSERT INTO lists VALUES ('more')")
    assert published(lists) == ["main.lists", "main.pv"]


def test_what_is_protected_later_is_not_published(lists):
    lists.execute("CALL dp_protect('lists', epsilon := 1.0, delta := 1e-9)")
    assert published(lists) == []


def test_a_view_of_protected_and_other_rows_needs_them_published(lists):
    lists.execute("CREATE TABLE raw AS SELECT 'm' AS sex, 1 AS k")
    lists.execute("CREATE VIEW mixed AS SELECT p.sex FROM people p JOIN raw USING (sex)")
    with pytest.raises(ArgumentError, match=r"main\.raw"):
        ask(lists, None, "publish", source="mixed")
    with pytest.raises(ArgumentError, match="is protected"):
        ask(lists, None, "publish", source="people")
    lists.execute("CREATE VIEW known AS SELECT sex FROM people")
    ask(lists, None, "publish", source="known")
    assert "main.known" in published(lists)
    ask(lists, None, "publish", source="known", remove=True)
    assert "main.known" not in published(lists)


def test_a_new_release_store_is_its_owners_alone(tmp_path):
    con = duckdb.connect(tmp_path / "x.duckdb")
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT i % 3 AS a FROM range(100) r(i)")
    con.execute("CALL dp_protect('t', epsilon := 1.0, delta := 1e-6)")
    con.execute("FROM dp_histogram('t', 'a', epsilon := 0.5, domain := ['0', '1', '2'])").fetchall()
    assert stat.S_IMODE((tmp_path / "x.duckdb.dpsql").stat().st_mode) == 0o700


def test_the_package_runs():
    done = subprocess.run([sys.executable, "-m", "dpsql", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "shell" in done.stdout
