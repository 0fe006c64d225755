"""A folder of Parquet files under a name: partitions, files that come later, files that differ; no file name in a message."""

from __future__ import annotations

import os
import shutil

import duckdb
import pytest
from attached_places import reader_of

import dpsql

ROWS = 3000
EPSILON = 50.0  # counts are off by less than 5 with a probability beyond 1 - 1e-9, by the tails of the discrete Gaussian


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "people"
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT i AS id, ['f', 'm'][1 + i % 2] AS sex, i % 100 AS age, (i * 1.5)::DECIMAL(12,2) AS income, 'k' || i % 3 AS k "
            f"FROM range({ROWS}) t(i)) TO '{found}' (FORMAT parquet, PARTITION_BY (sex))"
        )
    return found


@pytest.fixture(scope="module")
def instance():
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        yield con


@pytest.fixture
def con(folder):
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        name(con, folder)
        yield con


def name(con, folder, source="people"):
    con.execute(f"CALL dp_remote('{source}', engine := 'duckdb', relation := 'parquet:{folder}')")
    con.execute(f"CALL dp_protect('{source}', epsilon := 300, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    con.execute(f"CALL dp_declare('{source}', 'sex', categories := ['f', 'm'])")
    con.execute(f"CALL dp_declare('{source}', 'age', lower := 0, upper := 100, bins := 10)")


def counts(con, release="first"):
    rows = con.execute(f"FROM dp_marginals('people', columns := ['sex'], epsilon := {EPSILON}, release := '{release}')").fetchall()
    return {row[0]: row[1] for row in rows}


def charges(con):
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def test_every_file_is_counted_once_and_partitions_are_columns(con):
    found = counts(con)
    assert abs(found["f"] - ROWS / 2) < 5
    assert abs(found["m"] - ROWS / 2) < 5
    assert abs(found[None]) < 5
    assert con.execute("SELECT count(*) FROM people").fetchone() == (0,)


def test_queries_joins_and_synthetic_rows(con):
    con.execute("CREATE TABLE groups (k VARCHAR PRIMARY KEY, label VARCHAR); INSERT INTO groups VALUES ('k0', 'a'), ('k1', 'b'), ('k2', 'c')")
    con.execute("CALL dp_declare('people', 'k', categories := ['k0', 'k1', 'k2'])")
    rows = con.execute(
        f"FROM dp_query('SELECT k, count(*) AS n FROM people JOIN groups USING (k) WHERE age >= 50 GROUP BY k', epsilon := {EPSILON})"
    ).fetchall()  # a key of texts: rows carry their number
    assert {key for key, _ in rows} >= {"k0", "k1", "k2"}
    assert all(abs(n - ROWS / 6) < 5 for key, n in rows if key is not None)
    local = "SELECT count(*) FROM (SELECT id, sum(age) AS s FROM people GROUP BY id) WHERE s >= 50"
    assert abs(con.execute(f"FROM dp_query('{local}', epsilon := {EPSILON})").fetchone()[0] - ROWS / 2) < 5
    drawn = con.execute(f"SELECT count(*) FROM dp_synthesize('people', columns := ['sex', 'age'], epsilon := {EPSILON})").fetchone()[0]
    assert abs(drawn - ROWS) < 30


def test_a_file_that_comes_later_is_counted_later(con, folder):
    con.execute("FROM dp_plan('people', columns := ['sex'], epsilon := 1)").fetchall()
    shutil.copy(next((folder / "sex=f").iterdir()), folder / "sex=f" / "again.parquet")
    assert abs(counts(con, "copied")["f"] - ROWS / 2) < 5  # a unit counts once, wherever its rows are
    old = f"read_parquet('{folder / 'sex=f' / 'again.parquet'}', hive_partitioning = false)"
    with duckdb.connect() as other:
        other.execute(f"COPY (SELECT id + {ROWS} AS id, * EXCLUDE id FROM {old}) TO '{folder / 'sex=f' / 'more.parquet'}' (FORMAT parquet)")
    assert abs(counts(con)["f"] - ROWS) < 5
    shutil.rmtree(folder / "sex=m")
    assert abs(counts(con)["f"] - ROWS) < 5  # bought is bought
    assert abs(counts(con, "second")["m"]) < 5


@pytest.mark.parametrize(
    ("statement", "target", "message"),
    [
        ("SELECT 1 AS id", "sex=f/secretname.parquet", "different columns"),
        ("SELECT 1::BIGINT AS id, 1::BIGINT AS age, 1::DECIMAL(12,3) AS income, 'k' AS k", "sex=f/secretname.parquet", "different columns"),
        ("SELECT 1 AS id", "secretname.parquet", "partitions"),
        ("SELECT 1 AS id", "region=secretname/x.parquet", "partitions"),
    ],
)
def test_a_file_that_differs_charges_nothing(con, folder, statement, target, message):
    (folder / target).parent.mkdir(exist_ok=True)
    con.execute(f"COPY ({statement}) TO '{folder / target}' (FORMAT parquet)")
    with pytest.raises(duckdb.Error, match=message) as error:
        counts(con)
    assert "secretname" not in str(error.value)
    assert charges(con) == 0
    (folder / target).unlink()
    assert abs(counts(con)["f"] - ROWS / 2) < 5


def test_what_is_no_parquet_file_charges_nothing(con, folder):
    (folder / "sex=f" / "secretname.parquet").write_bytes(b"secret")
    with pytest.raises(duckdb.Error, match="no Parquet file that DuckDB reads") as error:
        counts(con)
    assert "secret" not in str(error.value)
    assert charges(con) == 0


def test_drafts_and_markers_are_passed_over(con, folder):
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "_temporary").mkdir()
    shutil.copy(next((folder / "sex=f").iterdir()), folder / "_temporary" / "draft.parquet")
    shutil.copy(next((folder / "sex=f").iterdir()), folder / "sex=f" / ".draft.parquet")
    assert abs(counts(con)["f"] - ROWS / 2) < 5


def test_a_file_under_two_names_is_refused(con, folder):
    (folder / "sex=m" / "again.parquet").symlink_to(next((folder / "sex=f").iterdir()))
    with pytest.raises(duckdb.Error, match="two names in it are one file"):
        counts(con)


def test_a_file_of_it_is_neither_public_nor_another_table(con, folder):
    path = next((folder / "sex=f").iterdir())
    with pytest.raises(duckdb.Error, match="whose rows are those of main.people"):
        con.execute(f"CALL dp_protect('{path}', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="whose rows are those of main.people"):
        con.execute(f"FROM dp_query('SELECT count(*) FROM people JOIN ''{path}'' AS p USING (id)', epsilon := 1)")
    con.execute("ATTACH ':memory:' AS other; USE other")
    dpsql.load(con)
    with pytest.raises(duckdb.Error, match="whose rows are those of main.people"):
        con.execute(f"CALL dp_protect('{path}', epsilon := 1, delta := 1e-9)")


def test_converted_moments_are_no_columns(con, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t").mkdir()
    table = arrow.table({"id": [1, 2], "at": arrow.array([0, 1], arrow.timestamp("ms"))})
    parquet.write_table(table, tmp_path / "t" / "x.parquet")
    rows = con.execute(f"CALL dp_remote('t', engine := 'duckdb', relation := 'parquet:{tmp_path / 't'}')").fetchall()
    assert [(row[0], row[1] is None) for row in rows] == [("id", False), ("at", True)]


@pytest.mark.parametrize("broken", [b"\xff\xfe", b"\xc3("])
def test_a_text_that_is_none_fails_as_a_reading_does(con, folder, broken):
    path = next((folder / "sex=f").iterdir())
    with duckdb.connect() as other:
        other.execute(f"COPY (FROM read_parquet('{path}', hive_partitioning = false)) TO '{path}.new.parquet' (FORMAT parquet, COMPRESSION uncompressed)")
    path.unlink()
    new = path.with_name(path.name + ".new.parquet")
    data = new.read_bytes()
    assert b"k1" in data
    new.write_bytes(data.replace(b"k1", broken))
    con.execute("CALL dp_declare('people', 'k', categories := ['k0', 'k2'])")
    with pytest.raises(duckdb.Error, match="its rows could not be read or measured; the text is withheld") as error:
        con.execute("FROM dp_marginals('people', columns := ['k'], epsilon := 1)")
    assert "k0" not in str(error.value)
    assert "data_0" not in str(error.value)
    assert charges(con) == 1


@pytest.mark.parametrize(
    ("paths", "below", "message"),
    [
        (["r=a", "a=b"], "", "partitions .* that others have not"),
        (["a=1/b=2", "b=2/a=1"], "", "in another order"),
        (["R=a", "r=b"], "", r"spelled in several ways \(\[\['R', 'r'\]\]\)"),
        (["k=3/k=4"], "", "a partition stands twice in a path"),
        (["k=3/K=4"], "", "a partition stands twice in a path"),
        (["r=2020/p/r=1"], "r=2020/p", "lies in a folder that is called name=value itself"),
        (["id=9/p/r=1"], "id=9/p", "lies in a folder that is called name=value itself"),
        (["r=a=b"], "", "DuckDB reads another value, or none"),
        (["=b"], "", "DuckDB reads another value, or none"),
        (["r=a\\b", "r=a\\c"], "", "DuckDB reads another value, or none"),
        (["r=a\nb"], "", "DuckDB reads another value, or none"),
    ],
)
def test_partitions_that_duckdb_would_misread(instance, tmp_path, paths, below, message):
    """It takes the first of two values, or that of a folder above, and overwrites a column of the file with it."""
    for path in paths:
        (tmp_path / path).mkdir(parents=True)
        instance.execute("COPY (SELECT 1 AS id, 'x' AS sex) TO $1 (FORMAT parquet)".replace("$1", f"'{tmp_path / path / 'x.parquet'}'"))
    with pytest.raises(duckdb.Error, match=message):
        instance.execute(f"CALL dp_remote('x', engine := 'duckdb', relation := 'parquet:{tmp_path / below}')")


def test_the_folder_above_is_none_of_the_columns_without_partitions(instance, tmp_path):
    (tmp_path / "id=9").mkdir()
    instance.execute(f"COPY (SELECT 1 AS id) TO '{tmp_path / 'id=9' / 'x.parquet'}' (FORMAT parquet)")
    reader = reader_of(instance, f"parquet:{tmp_path / 'id=9'}", {"id": "INTEGER"})
    assert reader.cursor.execute(reader.rows).fetchall() == [(1,)]


def test_a_link_to_a_file_elsewhere_keeps_its_partition(instance, tmp_path):
    (tmp_path / "store" / "r=9").mkdir(parents=True)
    (tmp_path / "people" / "r=1").mkdir(parents=True)
    instance.execute(f"COPY (SELECT 1 AS id) TO '{tmp_path / 'store' / 'r=9' / 'x.parquet'}' (FORMAT parquet)")
    (tmp_path / "people" / "r=1" / "y.parquet").symlink_to(tmp_path / "store" / "r=9" / "x.parquet")
    reader = reader_of(instance, f"parquet:{tmp_path / 'people'}", {"id": "INTEGER", "r": "VARCHAR"})
    assert reader.cursor.execute(reader.rows).fetchall() == [(1, "1")]


def test_paths_that_lead_nowhere(instance, tmp_path, monkeypatch):
    for path, target in (("loop.parquet", "loop.parquet"), ("gone.parquet", "nowhere.parquet"), ("people/x.parquet", "x.parquet")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).symlink_to(target)
    monkeypatch.setattr(os.path, "realpath", denied(os.path.realpath))
    for path in ("loop.parquet", "gone.parquet", "denied.parquet"):
        for call in (
            f"CALL dp_protect('{tmp_path / path}', epsilon := 1, delta := 1e-9)",
            f"FROM dp_plan('{tmp_path / path}', epsilon := 1)",
            f"CALL dp_remote('y', engine := 'duckdb', relation := 'parquet:{tmp_path / path}')",
        ):
            with pytest.raises(duckdb.Error, match="ArgumentError: (source|relation) = .*no such (table|folder)"):
                instance.execute(call)
    with pytest.raises(duckdb.Error, match="leads to no file that may be looked up"):
        instance.execute(f"CALL dp_remote('y', engine := 'duckdb', relation := 'parquet:{tmp_path / 'people'}')")


def denied(realpath):
    """Return realpath, as it is where another user's folder is on the way."""

    def found(path, **named):
        if "denied" in str(path):
            raise PermissionError(13, "Permission denied")
        return realpath(path, **named)

    return found


@pytest.mark.parametrize(
    ("relation", "message"),
    [("parquet:/nowhere", "no such folder"), ("parquet:people", "no such folder"), ("parquet:/tmp/*", "no patterns"), ("parquet:s3://b/f", "no patterns, no addresses")],
)
def test_what_is_no_folder(con, relation, message):
    with pytest.raises(duckdb.Error, match=message):
        con.execute(f"CALL dp_remote('x', engine := 'duckdb', relation := '{relation}')")


def test_a_name_inside_a_text_is_no_table(con):
    reader = reader_of(con, con.execute("SELECT relation FROM dpsql.remotes").fetchone()[0], {"id": "BIGINT"})
    assert reader.placed("""SELECT '"m"."s"."t"' AS a, count(*) AS n FROM "m"."s"."t" AS p""").startswith("""SELECT '"m"."s"."t"' AS a, count(*) AS n FROM (""")
    for statement in ("""SELECT '"m"."s"."t"' AS a""", """SELECT 1 FROM "x"."m"."s"."t" """, "SELECT 'open"):
        with pytest.raises(dpsql.DpsqlError, match="does not read the rows"):
            reader.placed(statement)


def test_a_path_is_kept_whole(con, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    con.execute("CALL dp_remote('people', engine := 'duckdb', relation := 'parquet:people')")  # another one would be refused
    assert con.execute("SELECT count(DISTINCT relation) FROM dpsql.remotes").fetchone() == (1,)


def test_what_was_renamed_or_retyped(con, folder):
    shutil.rmtree(folder)
    con.execute(f"COPY (SELECT 1::BIGINT AS id, 'f' AS sex, 1.5::DOUBLE AS age, 'k' AS k, 1::DECIMAL(12,2) AS income) TO '{folder}' (FORMAT parquet, PARTITION_BY (sex))")
    with pytest.raises(duckdb.Error, match=r"columns \['age'\] have other types now"):
        counts(con)
    assert charges(con) == 0


def test_hard_and_symbolic_links_are_no_second_file(con, folder):
    first = next((folder / "sex=f").iterdir())
    for link in (os.link, os.symlink):
        link(first, folder / "sex=f" / "other.parquet")
        with pytest.raises(duckdb.Error, match="two names in it are one file"):
            counts(con)
        (folder / "sex=f" / "other.parquet").unlink()
    assert charges(con) == 0


def test_columns_in_another_order_are_told(con, folder):
    part = folder / "sex=f" / "other.parquet"
    con.execute(f"COPY (SELECT 1 AS age, * EXCLUDE age FROM '{next((folder / 'sex=f').iterdir())}') TO '{part}' (FORMAT parquet)")
    with pytest.raises(duckdb.Error) as error:
        counts(con)
    assert "[]" not in str(error.value)


def test_no_row_is_left_out_for_what_a_footer_says_of_others(con, tmp_path):
    """Writers leave NaN out of the largest value: without 6.0, a condition x > 5 would read none of the rows with NaN."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "numbers" / "x.parquet"
    path.parent.mkdir()
    counted = []
    for more in ([], [6.0]):
        parquet.write_table(arrow.table({"x": [1.0] + [float("nan")] * 50 + more}), path)
        reader = reader_of(con, f"parquet:{path.parent}", {"x": "DOUBLE"})
        text = reader.placed('SELECT count(*) FROM "m"."s"."t" AS p WHERE x > 5')
        counted.append(reader.cursor.execute(text).fetchone()[0])
    assert counted == [50, 51]


def test_zeros_of_either_sign_are_one_number(con, tmp_path):
    (tmp_path / "t").mkdir()
    con.execute(f"COPY (SELECT unnest([-1.0, 1.0, -0.0::DOUBLE])::DOUBLE AS x FROM range(1000)) TO '{tmp_path / 't' / 'x.parquet'}'")
    reader = reader_of(con, f"parquet:{tmp_path / 't'}", {"x": "DOUBLE"})
    text = reader.placed('SELECT count(*) FROM "m"."s"."t" AS p WHERE x = 0')
    assert reader.cursor.execute(text).fetchone() == (1000,)


def test_names_that_differ_in_case_alone_are_refused(con, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t").mkdir()
    parquet.write_table(arrow.table([[1], [2]], names=["a", "A"]), tmp_path / "t" / "x.parquet")
    with pytest.raises(duckdb.Error, match="differ in case alone"):
        con.execute(f"CALL dp_remote('t', engine := 'duckdb', relation := 'parquet:{tmp_path / 't'}')")
