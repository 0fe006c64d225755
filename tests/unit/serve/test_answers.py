"""Answers that are kept: bounded in bytes, and an analyst's own go first."""

import duckdb
import pytest

from dpsql.errors import DpsqlError
from dpsql.serve.answers import Answers, relation


@pytest.fixture
def con():
    with duckdb.connect() as opened:
        Answers.attach(opened)
        yield opened


def there(con, name):
    try:
        return bool(con.execute(f"FROM {relation(name)} LIMIT 1").fetchall())
    except duckdb.CatalogException:
        return False


def test_who_asks_for_much_loses_her_own_answers_before_others_do(con):
    answers = Answers(con.cursor, rows=10_000_000, size=24 << 20, seconds=300)
    large = "SELECT hash(i) AS h FROM range(1000000) t(i)"  # 8 MB
    bobs = answers.keep(con, "SELECT 1 AS n", "bob")
    alices = [answers.keep(con, large, "alice") for _ in range(6)]
    assert there(con, bobs) and there(con, alices[-1]) and not there(con, alices[0])
    assert answers.keep(con, large, "carl") and there(con, alices[-1])
    with pytest.raises(DpsqlError, match="too large"):
        answers.keep(con, "SELECT hash(i) AS h, i FROM range(3000000) t(i)", "alice")
