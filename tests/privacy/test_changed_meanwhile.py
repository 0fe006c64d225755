"""Tables and views that change between a plan and its charge, or between the charge and the reading: what is read is what was planned,
within the bounds that the noise covers, or nothing.

Peers have read a column that was redefined after its bounds were looked up, and a view that was replaced after it was checked.
"""

from __future__ import annotations

import duckdb
import pytest
from prepared import copied

import dpsql
from dpsql.books.ledger import Ledger
from dpsql.kinds import measures

QUERY = "FROM dp_query('SELECT count(*) AS n, sum(x) AS s FROM v', epsilon := 50)"
ROWS, UPPER, NOISE = 1000, 9, 40
CHANGES = [
    "CREATE OR REPLACE VIEW v AS SELECT x * -1000000 AS x FROM t",
    "CREATE OR REPLACE VIEW v AS SELECT x FROM t, range(1000000)",
    "CREATE OR REPLACE VIEW v AS SELECT 1 AS x FROM t GROUP BY id",
    "DROP VIEW v",
    "DROP VIEW v; DROP TABLE t",
    "ALTER TABLE t RENAME x TO z; ALTER TABLE t ADD COLUMN x INTEGER DEFAULT -1000000",
    "ALTER TABLE t RENAME x TO z; ALTER TABLE t ADD COLUMN x DOUBLE DEFAULT '-inf'",
    "ALTER TABLE t RENAME x TO z; ALTER TABLE t ADD COLUMN x DOUBLE DEFAULT 'nan'",
    "ALTER TABLE t ALTER x TYPE VARCHAR USING 'someone''s secret'",
    "CREATE OR REPLACE TABLE t AS SELECT i AS id, -1000000 AS x FROM range(1000) r(i)",
    "UPDATE t SET x = -1000000",
    "CREATE OR REPLACE MACRO sum(x) AS 1000000; CREATE OR REPLACE MACRO least(a, b) AS a",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "t_there.duckdb"
    with duckdb.connect(str(path)) as connection:
        dpsql.load(connection, progress=False)
        connection.execute(f"CREATE TABLE t AS SELECT i AS id, (i % 10)::INTEGER AS x FROM range({ROWS}) r(i)")
        connection.execute("CALL dp_protect('t', epsilon := 200, delta := 1e-9)")
        connection.execute(f"CALL dp_declare('t', 'x', lower := 0, upper := {UPPER}, nullable := false)")
        connection.execute("CREATE VIEW v AS SELECT x FROM t WHERE x < 5")
        connection.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 1)").fetchall()  # the books are there
    return path


@pytest.fixture
def con(made, tmp_path):
    with copied(made, tmp_path, progress=False) as connection:
        yield connection


@pytest.mark.parametrize("when", ["before the charge", "after it"])
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_beyond_the_plan_is_read(con, monkeypatch, change, when):
    plain, changed = Ledger.charge, []

    def charge(self, *given, **named):
        if when == "after it":
            entry = plain(self, *given, **named)
        if not changed:
            changed.append(con.cursor().execute(change))
        return plain(self, *given, **named) if when != "after it" else entry

    monkeypatch.setattr(Ledger, "charge", charge)
    try:
        ((n, s),) = con.execute(QUERY).fetchall()
    except duckdb.Error as error:
        assert "secret" not in str(error) and "1000000" not in str(error)
    else:
        assert -NOISE < n < ROWS + NOISE
        assert -NOISE < s < UPPER * ROWS + NOISE
    assert changed
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0] <= 2


@pytest.mark.parametrize("text", ["SELECT count(*) AS n, sum(x) AS s FROM v", "SELECT count(*) FROM t WHERE x / 2 < id"])
@pytest.mark.parametrize(("change", "back"), [
    ("ALTER TABLE t RENAME x TO z", "ALTER TABLE t RENAME z TO x"), ("ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME TO t"),
])
def test_a_change_while_rows_are_read_is_no_failure(con, monkeypatch, text, change, back):
    """After the statement was bound, and before it runs: everybody sees it, so the same call finishes the release once it is undone."""
    plain = measures.measure

    def measure(*given):
        con.cursor().execute(change)
        return plain(*given)

    query = f"FROM dp_query('{text}', epsilon := 50)"
    charged = "SELECT count(*) FILTER (action = 'charge'), count(*) FILTER (action = 'fail') FROM dpsql.ledger"
    with monkeypatch.context() as patch:
        patch.setattr(measures, "measure", measure)
        with pytest.raises(duckdb.Error, match="the source was changed while it was read. Put it back") as told:
            con.execute(query)
    assert "__dp" not in str(told.value).split("\n", 1)[0]
    assert con.execute(charged).fetchone() == (2, 0)
    con.execute(back)
    assert len(con.execute(query).fetchall()) == 1
    assert con.execute(charged).fetchone() == (2, 0)


def test_the_change_is_seen_where_it_comes_before_the_plan(con):
    con.execute(CHANGES[0])
    ((_, s),) = con.execute(QUERY.replace("epsilon := 50", "epsilon := 50, bounds := {'x': [-1000, 0]}")).fetchall()
    assert s < -500_000
