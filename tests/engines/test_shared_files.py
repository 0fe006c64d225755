"""Two tables with a budget have a file in common, by a link that came later: neither is read, and neither is charged."""

from __future__ import annotations

import itertools
import os

import duckdb
import pytest

import dpsql
from dpsql.engines.attached.reader import AttachedReader
from dpsql.engines.remote import Remote

RELEASE = itertools.count()


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as con:
        con.execute("ATTACH ':memory:' AS other")
        dpsql.load(con, progress=False)
        con.execute("CREATE SCHEMA other.s")
        yield con


def write(con, path, first=0):
    path.parent.mkdir(exist_ok=True, parents=True)
    con.execute(f"COPY (SELECT i AS id, i % 7 AS a FROM range({first}, {first + 70}) t(i)) TO '{path}' (FORMAT parquet)")


def protect(con, source):
    con.execute(f"CALL dp_protect('{source}', epsilon := 100, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")


def name(con, folder, source=None):
    source = source or "_".join(folder.parts[-3:]).replace("-", "_")
    con.execute(f"CALL dp_remote('{source}', engine := 'duckdb', relation := 'parquet:{folder}')")
    protect(con, source)
    return source


def ask(con, source):
    text = f"SELECT count(*) FROM {source}"
    return con.execute("FROM dp_query($1, epsilon := 1, release := $2)", [text, f"release {next(RELEASE)}"]).fetchone()


def charges(con, source):
    return con.execute(f"SELECT count(*) FROM dp_ledger('{source}') WHERE action = 'charge'").fetchone()[0]


def check_neither(con, *sources):
    before = [charges(con, source.strip("'")) for source in sources]
    for source in sources:
        with pytest.raises(duckdb.Error, match="as well, which has a budget of its own: they would be counted"):
            ask(con, source)
    assert [charges(con, source.strip("'")) for source in sources] == before


def soft(path, new):
    new.symlink_to(path)


def through(path, new):
    """Of a file that lies in the folder, its own path leads elsewhere: the folder is what has another name."""
    os.link(path, new)
    (new.parent / "more").symlink_to(path.parent)


@pytest.mark.parametrize("link", [os.link, soft, through])
def test_a_file_with_a_budget_that_comes_into_a_folder(con, tmp_path, link):
    file = tmp_path / "f" / "other.parquet"
    write(con, file)
    write(con, tmp_path / "people" / "x.parquet", 70)
    protect(con, file)
    people = name(con, tmp_path / "people")
    bought = [(source, ask(con, source), next(RELEASE) - 1) for source in (people, f"'{file}'")]
    link(file, tmp_path / "people" / "y.parquet")
    check_neither(con, people, f"'{file}'")
    for source, answer, release in bought:  # what was bought is given back from the store
        text = f"SELECT count(*) FROM {source}"
        assert con.execute(f"FROM dp_query($1, epsilon := 1, release := 'release {release}')", [text]).fetchone() == answer
    for entry in list((tmp_path / "people").iterdir()):
        if entry.name != "x.parquet":
            entry.unlink()
    assert ask(con, people)
    assert ask(con, f"'{file}'")


def test_a_file_of_one_folder_that_comes_into_another(con, tmp_path):
    write(con, tmp_path / "a" / "x.parquet")
    write(con, tmp_path / "b" / "x.parquet", 70)
    first, second = name(con, tmp_path / "a"), name(con, tmp_path / "b")
    os.link(tmp_path / "a" / "x.parquet", tmp_path / "b" / "y.parquet")
    check_neither(con, first, second)
    (tmp_path / "a" / "x.parquet").unlink()
    write(con, tmp_path / "a" / "x.parquet")
    assert ask(con, first)
    assert ask(con, second)


def test_a_path_with_a_budget_that_becomes_another_file(con, tmp_path):
    first, second = tmp_path / "1.parquet", tmp_path / "2.parquet"
    for path in (first, second):
        write(con, path)
        protect(con, path)
    write(con, tmp_path / "f" / "x.parquet")
    folder = name(con, tmp_path / "f")
    for path in (first, tmp_path / "f" / "x.parquet"):
        second.unlink()
        os.link(path, second)
        check_neither(con, f"'{second}'", f"'{first}'" if path == first else folder)


def test_books_of_another_database_count(con, tmp_path):
    file = tmp_path / "other.parquet"
    write(con, file)
    write(con, tmp_path / "people" / "x.parquet", 70)
    con.execute("USE other")
    try:
        protect(con, file)
    finally:
        con.execute("USE memory")
    people = name(con, tmp_path / "people")
    os.link(file, tmp_path / "people" / "y.parquet")
    check_neither(con, people)
    with pytest.raises(duckdb.Error, match=r"other\.parquet in the books of 'other' as well.*DETACH 'other'"):
        ask(con, people)


@pytest.mark.parametrize("where", ["the same", "below", "above"])
def test_rows_of_a_name_with_a_budget_get_no_second_one(con, tmp_path, where):
    folder = tmp_path / "people" / "part"
    write(con, folder / "x.parquet")
    other = {"the same": folder, "below": folder / "k=1", "above": folder.parent}[where]
    write(con, other / "y.parquet", 70)
    early = "_".join([tmp_path.name, "early"]).replace("-", "_")
    con.execute(f"CALL dp_remote('{early}', engine := 'duckdb', relation := 'parquet:{other}')")  # no budget: no second one
    if where == "below":
        (folder / "x.parquet").rename(folder / "k=1" / "x.parquet")
    people = name(con, folder)
    for call in (lambda: protect(con, early), lambda: name(con, other, f"{early}_late")):
        with pytest.raises(duckdb.Error, match="one of its files has rows of main.* as well|which has a budget: name that"):
            call()
    assert ask(con, people)


def test_a_folder_with_a_file_that_has_a_budget_gets_no_name(con, tmp_path):
    write(con, tmp_path / "people" / "x.parquet")
    protect(con, tmp_path / "people" / "x.parquet")
    with pytest.raises(duckdb.Error, match=r"one of its files has rows of file:.*x\.parquet as well"):
        name(con, tmp_path / "people")


def test_a_folder_that_spark_reads_is_one_too(con, tmp_path, monkeypatch):
    from dpsql.engines import registry
    from dpsql.engines.remote import Described

    columns = [Described("id", "BIGINT", "bigint"), Described("a", "BIGINT", "bigint")]
    monkeypatch.setattr(registry, "describe", lambda remote, cursor: columns)
    file = tmp_path / "other.parquet"
    write(con, file)
    write(con, tmp_path / "people" / "x.parquet", 70)
    protect(con, file)
    relation = f"parquet:{tmp_path / 'people'}"
    con.execute(f"CALL dp_remote('sparks', engine := 'spark', url := 'sc://localhost:1', relation := '{relation}')")
    protect(con, "sparks")
    os.link(file, tmp_path / "people" / "y.parquet")
    check_neither(con, "sparks", f"'{file}'")


def test_a_reader_that_was_told_nothing_reads_nothing(con, tmp_path):
    write(con, tmp_path / "x.parquet")
    reader = AttachedReader(con.cursor(), Remote("duckdb", "", f"parquet:{tmp_path}"), '"m"."s"."t"', {"id": "BIGINT"})
    with pytest.raises(dpsql.DpsqlError, match="nobody has said"):
        reader.frame('SELECT count(*) FROM "m"."s"."t" AS p')


def test_the_check_is_made_when_rows_are_read(con, tmp_path, monkeypatch):
    """A link that comes after the charge: the look before the reading sees it, and the charge stands."""
    from dpsql.kinds.query.measure import Query

    file = tmp_path / "other.parquet"
    write(con, file)
    write(con, tmp_path / "people" / "x.parquet", 70)
    protect(con, file)
    people = name(con, tmp_path / "people")
    measured = Query.measure

    def late(*arguments, **named):
        os.link(file, tmp_path / "people" / "y.parquet")
        return measured(*arguments, **named)

    monkeypatch.setattr(Query, "measure", late)
    with pytest.raises(duckdb.Error, match="is charged and not finished: the source was changed while it was read"):
        ask(con, people)
    (tmp_path / "people" / "y.parquet").unlink()
    monkeypatch.undo()
    assert charges(con, people) == 1


def test_a_detached_database_that_is_no_lake_says_nothing_of_files(con, tmp_path):
    write(con, tmp_path / "people" / "x.parquet")
    people = name(con, tmp_path / "people")
    con.execute("CREATE TABLE elsewhere (id BIGINT)")
    protect(con, "elsewhere")
    books = "INSERT INTO memory.dpsql.remotes SELECT 'main.elsewhere', engine, $1, 'gone.main.t', * EXCLUDE (source, engine, url, relation)"
    con.execute("CREATE TABLE here (id BIGINT)")
    protect(con, "here")
    for url, answered in (("postgres", True), ("ducklake", False), ("", False)):
        con.execute("DELETE FROM memory.dpsql.remotes WHERE source = 'main.elsewhere'")
        con.execute(f"{books} FROM memory.dpsql.remotes WHERE engine = 'duckdb' LIMIT 1", [url])
        if answered:
            assert ask(con, people)
        else:
            with pytest.raises(duckdb.Error, match="cannot be said: ATTACH 'gone' again"):
                ask(con, people)
            assert ask(con, "here")  # it has no files
    con.execute("DELETE FROM memory.dpsql.remotes WHERE source = 'main.elsewhere'")
