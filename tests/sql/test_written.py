"""What a call has written it answers from without reading it back; what is in the file is the same."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.release import store

pytestmark = pytest.mark.any_duckdb

CALLS = {
    "a query": "FROM dp_query('SELECT sex, count(*), avg(age) FROM people GROUP BY sex', epsilon := 1.0)",
    "private groups": "FROM dp_query('SELECT name, count(*) FROM people GROUP BY name', epsilon := 1.0, groups := 'private')",
    "tables": "FROM dp_marginals('people', columns := ['sex', 'age'], epsilon := 1.0)",
    "values": "FROM dp_histogram('people', 'name', epsilon := 1.0)",
    "tuples": "FROM dp_aggregates('people', columns := ['sex', 'member'], reporting_length := 2, epsilon := 1.0)",
}


def same(one: object, other: object) -> None:
    """Compare statistics, field by field, with the types of their arrays."""
    assert type(one) is type(other)
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        there = vars(other)[name]
        found, wanted = (json.dumps(part, default=_listed, skipkeys=True) for part in (_plain(value), _plain(there)))
        assert found == wanted, name


def _plain(value: object) -> object:
    return {repr(key): part for key, part in value.items()} if hasattr(value, "items") else value


def _listed(value: object) -> object:
    return [str(value.dtype), value.tolist()] if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.parametrize("name", CALLS)
def test_what_was_written_is_what_is_in_the_file(tmp_path, monkeypatch, name):
    con = duckdb.connect(str(tmp_path / "people.duckdb"))
    make_people(con, 300)
    con.execute("ALTER TABLE people ADD COLUMN name VARCHAR; UPDATE people SET name = sex || 'é'")
    dpsql.load(con, progress=False)
    protect_people(con)
    read, found = store.read, []

    def both(cursor, path, contents=None, plan=None, written=None):
        fresh, again = read(cursor, path, contents, plan, written), read(cursor, path, contents, plan)
        assert again.written is None
        assert fresh.manifest == again.manifest
        same(fresh.statistics(cursor), again.statistics(cursor))
        found.append(fresh)
        return fresh

    monkeypatch.setattr(store, "read", both)
    first = con.execute(CALLS[name]).fetchall()
    assert found[0].written is not None  # else nothing was compared
    monkeypatch.undo()
    con.close()
    con = duckdb.connect(str(tmp_path / "people.duckdb"))
    dpsql.load(con, progress=False)
    assert con.execute(CALLS[name]).fetchall() == first
    con.close()


def test_another_file_in_its_place_is_noticed(tmp_path):
    con = duckdb.connect(str(tmp_path / "people.duckdb"))
    make_people(con, 300)
    dpsql.load(con, progress=False)
    protect_people(con)
    call = CALLS["tables"]
    con.execute(call)
    (path,) = (tmp_path / "people.duckdb.dpsql").glob("*.release.parquet")
    path.write_bytes(b"PAR1")
    with pytest.raises(duckdb.Error, match=r"is not a dpsql release|damaged|edited"):
        con.execute(call + " WHERE n > 0").fetchall()
    con.close()
