"""Tables of an attached DuckLake under a name here; SQLite, which is refused. They need DuckDB's extensions (`attached_places`)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import duckdb
import pytest
from attached_places import ROWS, charges, check_answers, counts, load, opened, protect, reader_of

import dpsql
from dpsql.errors import unanswered


@pytest.fixture(scope="module")
def instance() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        load(con, "ducklake")
        yield con


@pytest.fixture
def lake(instance, tmp_path):
    with opened(instance) as con:
        con.execute(f"ATTACH 'ducklake:{tmp_path / 'meta.ducklake'}' AS lake (DATA_PATH '{tmp_path / 'data'}')")
        con.execute(
            f"CREATE TABLE lake.people AS SELECT i AS id, ['f', 'm'][1 + i % 2] AS sex, i % 100 AS age, 'k' || i % 3 AS k "
            f"FROM range({ROWS}) t(i)"
        )
        yield con


def test_a_lake_is_counted(lake):
    protect(lake, "lake.main.people")
    check_answers(lake)
    with pytest.raises(duckdb.Error, match="in a database of type 'ducklake'"):
        lake.execute("CALL dp_protect('lake.people', epsilon := 1, delta := 1e-9)")


def test_a_reading_of_a_lake_is_of_one_snapshot(lake):
    protect(lake, "lake.main.people")
    reader = reader_of(lake, "lake.main.people", {"id": "BIGINT"})
    cursor = reader.cursor
    text = 'SELECT count(*) AS n FROM "m"."s"."t" AS p'
    before = cursor.execute(reader.placed(text)).fetchone()
    lake.execute("DELETE FROM lake.people WHERE id < 1000")
    assert cursor.execute(reader.placed(text)).fetchone() == before == (ROWS,)
    assert abs(sum(counts(lake).values()) - (ROWS - 1000)) < 10


def test_a_lake_whose_columns_change(lake):
    protect(lake, "lake.main.people")
    lake.execute("ALTER TABLE lake.people ADD COLUMN more INTEGER")
    assert abs(sum(counts(lake).values()) - ROWS) < 10
    lake.execute("ALTER TABLE lake.people DROP COLUMN age")
    with pytest.raises(duckdb.Error, match=r"columns \['age'\] have other types now, or are gone"):
        counts(lake, release="second")
    lake.execute("CREATE VIEW lake.v AS SELECT * FROM lake.people LIMIT 3")
    with pytest.raises(duckdb.Error, match="no such table in the lake"):
        lake.execute("CALL dp_remote('v', engine := 'duckdb', relation := 'lake.main.v')")


def test_files_in_another_unit_of_time_are_refused_before_the_charge(lake, tmp_path):
    lake.execute("CREATE SCHEMA lake.s; CREATE TABLE lake.s.people AS SELECT *, TIMESTAMP '2020-01-01' AS seen FROM lake.people")
    protect(lake, "lake.s.people")
    assert abs(sum(counts(lake).values()) - ROWS) < 10
    file = tmp_path / "added.parquet"
    far = "'294247-01-10 04:00:54.775'::TIMESTAMP_MS"
    lake.execute(f"COPY (SELECT 0::BIGINT AS id, 'f' AS sex, 1::BIGINT AS age, 'k' AS k, {far} AS seen) TO '{file}' (FORMAT parquet)")
    lake.execute(f"CALL ducklake_add_data_files('lake', 'people', '{file}', schema => 's')")
    with pytest.raises(duckdb.Error, match=r"columns \['seen'\] are in a unit of time"):
        counts(lake, release="second")
    assert charges(lake) == 1
    lake.execute("ALTER TABLE people DROP COLUMN seen")
    assert abs(sum(counts(lake, release="second").values()) - ROWS) < 10


def test_sqlite_is_refused(tmp_path):
    with duckdb.connect() as con:
        load(con, "sqlite_scanner")
        con.execute(f"ATTACH '{tmp_path / 'x.db'}' AS lite (TYPE sqlite); CREATE TABLE lite.people (id INTEGER)")
        dpsql.load(con, progress=False)
        with pytest.raises(duckdb.Error, match="of type 'sqlite'"):
            con.execute("CALL dp_remote('p', engine := 'duckdb', relation := 'lite.main.people')")
        with pytest.raises(duckdb.Error, match="CREATE TABLE"):
            con.execute("CALL dp_protect('lite.people', epsilon := 1, delta := 1e-9)")


def test_what_a_lake_says_of_its_catalog_is_withheld():
    """An attacker's find: its error about a catalog that is damaged was quoted, with advice about macros."""
    said = 'Binder Error: Failed to query most recent snapshot for DuckLake: Failed to prepare query "SELECT snapshot_id"'
    text = unanswered(duckdb.BinderException(said))
    assert "is withheld" in text
    assert "snapshot" not in text
    assert "macros" not in text
    assert "DROP macros" in unanswered(duckdb.BinderException("Binder Error: Referenced column not found"))


def test_files_of_a_lake_are_public_nowhere(lake, tmp_path):
    protect(lake, "lake.main.people")
    lake.execute(f"COPY (SELECT 9999 AS id, 'f' AS sex, 1 AS age, 1::DECIMAL(12,2) AS income, 'k0' AS k) TO '{tmp_path / 'o.parquet'}'")
    files = [row[0] for row in lake.execute("SELECT data_file FROM ducklake_list_files('lake', 'people')").fetchall()]
    assert files
    for file in files:
        for text in ("SELECT (SELECT count(*) FROM people) AS n, (SELECT max(k) FROM ''{f}'') AS x", "SELECT count(*) FROM people WHERE id IN (SELECT id FROM ''{f}'')"):
            with pytest.raises(duckdb.Error, match="whose rows are those of main.people"):
                lake.execute(f"FROM dp_query('{text.format(f=file)}', epsilon := 1)")
    os.link(files[0], tmp_path / "linked.parquet")
    for file, said in ((tmp_path / "linked.parquet", "another name"), (tmp_path / "o.parquet", "ATTACH 'lake' again")):
        if "again" in said:
            lake.execute("DETACH lake")
        with pytest.raises(duckdb.Error, match=said):
            lake.execute(f"CALL dp_protect('{file}', epsilon := 1, delta := 1e-9)")


@pytest.mark.parametrize("detached", [True, False])
def test_the_catalog_of_a_lake_is_public_nowhere(lake, tmp_path, detached):
    """An attacker's find: small inserts lie in the catalog, whose file can be attached as a database of its own."""
    protect(lake, "lake.main.people")
    lake.execute("INSERT INTO lake.people VALUES (1000000, 'f', 7, 'k0')")
    if detached:
        lake.execute("DETACH lake")
        lake.execute(f"ATTACH '{tmp_path / 'meta.ducklake'}' AS catalog (READ_ONLY)")
    name = "catalog" if detached else "__ducklake_metadata_lake"
    lake.execute("CREATE TABLE IF NOT EXISTS other AS SELECT i AS k FROM range(9) t(i)")
    lake.execute("CALL dp_protect('other', epsilon := 100, delta := 1e-9, privacy_unit := 'k', max_contributions := 1)")
    inlined = lake.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'ducklake_inlined_data_%' LIMIT 1").fetchone()
    for table in ("ducklake_table_column_stats", "ducklake_data_file", *(inlined or ())):
        for text in (
            f"SELECT count(*) FROM other, {name}.main.{table}",
            f"SELECT count(*) FROM other WHERE k IN (SELECT 1 FROM {name}.main.{table})",
            f"SELECT * FROM (SELECT k, count(*) AS c FROM other GROUP BY k) n, {name}.main.{table} u",  # what is made of answers
        ):
            with pytest.raises(duckdb.Error, match="a DuckLake's catalog|no sources|type 'ducklake'|no such table"):
                lake.execute(f"FROM dp_query($${text}$$, epsilon := 1)")
    assert lake.execute("SELECT count(*) FROM dp_ledger('other') WHERE action = 'charge'").fetchone() == (0,)


def test_no_row_is_left_out_for_what_a_file_says_of_others(lake, tmp_path):
    """NaN beside a largest value, in a file of another writer; -0.0 beside a filter of hashes, in DuckDB's own."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"x": [1.0] + [float("nan")] * 50}), tmp_path / "nan.parquet")
    lake.execute("CREATE TABLE lake.n (x DOUBLE)")
    lake.execute(f"CALL ducklake_add_data_files('lake', 'n', '{tmp_path / 'nan.parquet'}')")
    lake.execute("CREATE TABLE lake.z AS SELECT unnest([-1.0, 1.0, -0.0::DOUBLE])::DOUBLE AS x FROM range(1000)")
    for name, condition, rows in (("n", "x > 5", 50), ("n", "isnan(x)", 50), ("z", "x = 0", 1000)):
        reader = reader_of(lake, f"lake.main.{name}", {"x": "DOUBLE"})
        text = reader.placed(f'SELECT count(*) FROM "m"."s"."t" AS p WHERE {condition}')
        assert reader.cursor.execute(text).fetchone() == (rows,)


def test_types_that_files_do_not_hold_exactly_are_no_columns(lake):
    lake.execute("CREATE TABLE lake.h (id BIGINT, big HUGEINT, s TIMESTAMP_S, d DECIMAL(38, 2), u UUID)")
    rows = lake.execute("CALL dp_remote('h', engine := 'duckdb', relation := 'lake.main.h')").fetchall()
    assert [row[0] for row in rows if row[1] is None] == ["big", "s"]


def ask(con, source="people"):
    return con.execute(f"FROM dp_query('SELECT count(*) FROM {source} WHERE id > -{next(OTHER)}', epsilon := 1)").fetchone()


OTHER = itertools.count(1)
SHARED = "as well, which has a budget of its own: they would be counted"
ONE = "SELECT 9999::BIGINT AS id, 'f' AS sex, 1::BIGINT AS age, 'k0' AS k"


@pytest.fixture(params=["", ", METADATA_CATALOG 'books', METADATA_SCHEMA 'own'"])
def added(request, instance, tmp_path):
    """A lake without inlined rows of which a table has a name, and a file beside it; its catalog as ATTACH calls it."""
    with opened(instance) as con:
        con.execute(f"ATTACH 'ducklake:{tmp_path / 'meta.ducklake'}' AS lake (DATA_PATH '{tmp_path / 'data'}'{request.param})")
        con.execute(f"CREATE TABLE lake.people AS {ONE}; COPY ({ONE}) TO '{tmp_path / 'added.parquet'}' (FORMAT parquet)")
        protect(con, "lake.main.people")
        yield con


def check_neither(con, *sources):
    before = charges(con)
    for source in sources:
        with pytest.raises(duckdb.Error, match=SHARED):
            ask(con, source)
    assert charges(con) == before


def test_rows_that_were_deleted_are_public_nowhere(added, tmp_path):
    file = tmp_path / "added.parquet"
    public = f"SELECT (SELECT count(*) FROM people) AS n, (SELECT max(k) FROM ''{file}'') AS x"
    for said, statement in (
        ("another name of a file with the rows of", f"CALL ducklake_add_data_files('lake', 'people', '{file}')"),
        ("another name of a file with the rows of", "DELETE FROM lake.people"),
        ("another name of a file with the rows of", "DROP TABLE lake.people"),
        ("another name of a file with the rows of", "CALL ducklake_expire_snapshots('lake', older_than => now())"),
    ):
        added.execute(statement)
        for call in (f"FROM dp_query('{public}', epsilon := 1)", f"CALL dp_protect('{file}', epsilon := 1, delta := 1e-9)"):
            with pytest.raises(duckdb.Error, match=said):
                added.execute(call)
    added.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert not file.exists()


def test_a_file_with_a_budget_that_is_added_to_a_lake(added, tmp_path):
    file = tmp_path / "added.parquet"
    added.execute(f"CALL dp_protect('{file}', epsilon := 100, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    assert ask(added)
    added.execute(f"CALL ducklake_add_data_files('lake', 'people', '{file}')")
    check_neither(added, "people", f"''{file}''")
    added.execute("DETACH lake")
    with pytest.raises(duckdb.Error, match="cannot be said: ATTACH 'lake' again"):
        ask(added, f"''{file}''")


def test_a_file_that_two_tables_of_a_lake_have(added, tmp_path):
    added.execute(f"CREATE TABLE lake.others AS {ONE}")
    protect(added, "lake.main.others", "others")
    assert ask(added)
    for table in ("people", "others"):
        added.execute(f"CALL ducklake_add_data_files('lake', '{table}', '{tmp_path / 'added.parquet'}')")
    check_neither(added, "people", "others")


def test_a_folder_of_a_lake_gets_no_second_name(added, tmp_path):
    added.execute(f"CALL ducklake_add_data_files('lake', 'people', '{tmp_path / 'added.parquet'}'); DELETE FROM lake.people")
    (tmp_path / "folder").mkdir()
    os.link(tmp_path / "added.parquet", tmp_path / "folder" / "x.parquet")  # rows that were deleted, but counted before
    for relation in (f"parquet:{tmp_path / 'folder'}", "LAKE.main.people"):
        with pytest.raises(duckdb.Error, match=f"{SHARED}|is what main.people stands for"):
            added.execute(f"CALL dp_remote('again', engine := 'duckdb', relation := '{relation}')")
