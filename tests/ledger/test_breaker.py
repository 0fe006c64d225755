"""A reading that fails says one bit, once: the outcome is final, its text is constant, and nothing steers a second one."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
import pytest
from dpsql.udfs import instance_of
from sample_tables import DELTA, make_people, protect_people

import dpsql
from dpsql.books.ledger import Ledger
from dpsql.errors import ArgumentError, DomainError, DpsqlError, LedgerError, ReleaseError
from dpsql.kinds import measures
from dpsql.protected.source import resolve
from dpsql.release import store as release
from dpsql.running import interruption
from dpsql.session.instance import open_context

pytestmark = pytest.mark.any_duckdb

PLAIN = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := '{}')"
FILTERED = "FROM dp_marginals('SELECT sex FROM people WHERE age > 40', columns := ['sex'], epsilon := 0.1, release := '{}')"


def text_of(con: duckdb.DuckDBPyConnection, statement: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(statement)
    return str(caught.value).split("\n")[0]


@pytest.fixture
def failing(monkeypatch):
    """Let every reading fail with the error that the test puts into the list; count the readings."""
    errors: list[BaseException] = []
    read = measures.measure

    def measure(*given: Any) -> Any:
        seen.append(1)
        if errors:
            raise errors[0]
        return read(*given)

    seen: list[int] = []
    monkeypatch.setattr(measures, "measure", measure)
    return errors, seen


@pytest.mark.parametrize(
    "error",
    [
        duckdb.OutOfRangeException("value 'bob' out of range"),
        duckdb.OutOfMemoryException("of 17 rows"),
        MemoryError("bob"),
        OverflowError("17"),
        DpsqlError("level 2 has more than 17 tuples"),
        ArgumentError("trials", 17, "bob"),
        DomainError("bob"),
        ReleaseError("bob"),
        LedgerError("bob"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_fails_the_text_is_the_same_and_for_ever(con, charges, failing, error):
    errors, seen = failing
    errors.append(error)
    first = text_of(con, PLAIN.format("x"))
    assert "people-marginals-x" in first
    assert "bob" not in first
    assert "17" not in first.replace(con.execute("SELECT release FROM dp_releases()").fetchone()[0], "")
    errors.clear()
    con.execute("DELETE FROM people WHERE person = 17")  # whatever made it fail has gone
    assert text_of(con, PLAIN.format("x")) == first
    assert (len(seen), charges()) == (1, 1)
    assert con.execute("SELECT status, notes FROM dp_releases()").fetchall() == [("failed", [])]
    assert [a for (a,) in con.execute("SELECT action FROM dp_ledger() ORDER BY entry ASC").fetchall()] == ["protect", "charge", "fail"]
    assert con.execute("SELECT chain_holds, releases FROM dp_budget()").fetchone() == (True, 1)
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    for call in (f"FROM dp_sample('{name}')", f"FROM dp_export('{name}', '/nowhere')", f"FROM dp_report('{name}')"):
        assert "is its final result" in text_of(con, call)
    (notes,) = con.execute(
        "SELECT notes FROM dp_plan('people', columns := ['sex'], k := 1, epsilon := 0.1, release := 'x')"
    ).fetchone()
    assert any("is its final result" in note for note in notes)


def test_the_text_does_not_depend_on_what_failed(tmp_path, monkeypatch):
    texts = set()
    for number, error in enumerate((duckdb.ConversionException("x"), ArgumentError("a", 1, "b"), MemoryError())):
        con = duckdb.connect(str(tmp_path / f"{number}.duckdb"))
        make_people(con)
        dpsql.load(con, user="tester")
        protect_people(con)

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(measures, "measure", fail)
        texts.add(text_of(con, PLAIN.format("x")))
        con.close()
    assert len(texts) == 1


def test_after_a_failure_only_plain_sources_are_sold_until_the_custodian_resumes(con, charges, failing):
    errors, seen = failing
    stored = con.execute(FILTERED.format("before")).fetchall()
    con.execute("CREATE VIEW shown AS SELECT sex, age FROM people")
    con.execute("CREATE VIEW computed AS SELECT sex, age + 1 AS older FROM people")
    con.execute("CREATE TABLE codes AS SELECT * FROM (VALUES ('north', 'N'), ('south', 'S')) t(region, code)")
    con.execute("CREATE UNIQUE INDEX one ON codes (region)")
    errors.append(ValueError())
    text_of(con, FILTERED.format("x"))
    errors.clear()
    seen.clear()
    before = charges()
    refused = [
        FILTERED.format("y"),
        "FROM dp_marginals('SELECT sex, age + 1 AS older FROM people', columns := ['sex'], epsilon := 0.1)",
        "FROM dp_marginals('SELECT sex FROM computed', columns := ['sex'], epsilon := 0.1)",
        "FROM dp_synthesize('SELECT sex FROM people WHERE member', epsilon := 0.1)",
        "FROM dp_aggregates('SELECT sex, member FROM people WHERE member', epsilon := 0.1)",
        "FROM dp_histogram('SELECT region FROM people WHERE member', 'region', epsilon := 0.1)",
        "CALL dp_declare('SELECT upper(region) AS r FROM people', 'r', discover := true, epsilon := 0.1)",
    ]
    for call in refused:
        assert "until the custodian has looked at that entry" in text_of(con, call), call
    assert (charges(), seen) == (before, [])
    note = con.execute("SELECT notes FROM dp_plan('SELECT sex FROM people WHERE age > 1', epsilon := 0.1, columns := ['sex'])").fetchone()
    assert any("would be refused" in line for line in note[0])
    assert "a reading failed: entry 5" in con.execute("SELECT books FROM dp_budget()").fetchone()[0]
    assert con.execute(FILTERED.format("before")).fetchall() == stored  # what is bought stays readable
    for source in ("people", "SELECT sex FROM people", "shown", "SELECT sex AS s FROM (SELECT * FROM shown)"):
        con.execute("FROM dp_marginals(?, columns := [?], epsilon := 0.1)", [source, "s" if " AS s" in source else "sex"])
    with pytest.raises(duckdb.Error, match="stands alone"):
        con.execute("CALL dp_protect('people', resume := true, epsilon := 9)")
    row = con.execute("SELECT change, epsilon, note FROM dp_protect('people', resume := true)").fetchone()
    assert row[:2] == ("resume", 5.0)
    assert "entry 5" in row[2]
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'resume'").fetchone() == (1,)
    assert len(con.execute(FILTERED.format("y")).fetchall()) == 3
    assert "final result" in text_of(con, FILTERED.format("x"))
    assert con.execute("SELECT books FROM dp_budget()").fetchone() == ("intact",)


def test_calls_side_by_side_give_one_such_answer(con, monkeypatch):
    started, seen = threading.Barrier(4), []

    def fail(*_: object) -> None:
        seen.append(1)
        raise ValueError

    monkeypatch.setattr(measures, "measure", fail)
    texts: list[str] = []

    def call(cursor: duckdb.DuckDBPyConnection, number: int) -> None:
        started.wait()
        try:
            cursor.execute(FILTERED.format(f"t{number}"))
        except duckdb.Error as error:
            texts.append("final" if "final result" in str(error) else "refused" if "until the custodian" in str(error) else str(error))

    threads = [threading.Thread(target=call, args=(con.cursor(), number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts) == ["final", "refused", "refused", "refused"]
    assert len(seen) == 1


def test_a_failure_that_cannot_be_recorded_is_recorded_before_anything_else_is_read(con, failing, monkeypatch):
    errors, seen = failing
    errors.append(ValueError())
    mark = Ledger.mark

    def full(self: Ledger, name: str, action: str, contents: str | None = None) -> None:
        if action in ("fail", "store"):
            raise LedgerError("no space is left")
        mark(self, name, action, contents)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", full)
        assert "final result" in text_of(con, FILTERED.format("x"))
        errors.clear()
        for name in "xy":
            assert "no space is left" in text_of(con, FILTERED.format(name))
    assert len(seen) == 1
    assert "until the custodian" in text_of(con, FILTERED.format("y"))
    assert "final result" in text_of(con, FILTERED.format("x"))
    assert len(seen) == 1


def test_a_failure_that_closes_the_database_is_recorded_by_the_next_process(tmp_path, failing, monkeypatch):
    """A fatal error of DuckDB closes the database: the ledger cannot be written, and the next process must not read again."""
    errors, seen = failing
    path = str(tmp_path / "people.duckdb")
    with duckdb.connect(path) as con:
        dpsql.load(con, progress=False)
        make_people(con)
        protect_people(con)
        errors.append(duckdb.FatalException("value 'bob': the database has been invalidated"))
        mark = Ledger.mark

        def closed(*given: Any) -> None:
            raise duckdb.FatalException("value 'bob': the database has been invalidated")

        monkeypatch.setattr(Ledger, "mark", closed)
        first = text_of(con, FILTERED.format("x"))
        assert "final result" in first and "bob" not in first
        monkeypatch.setattr(Ledger, "mark", mark)
    errors.clear()
    read = len(seen)
    with duckdb.connect(path) as con:
        dpsql.load(con, progress=False)
        assert text_of(con, FILTERED.format("x")) == first
        assert "until the custodian" in text_of(con, FILTERED.format("y"))
        assert [row[0] for row in con.execute("SELECT status FROM dp_releases()").fetchall()] == ["failed"]
        assert len(con.execute(PLAIN.format("z")).fetchall()) > 0
        assert len(seen) == read + 1
    assert not list(tmp_path.glob("**/.failed-*"))


@pytest.mark.parametrize("fails", [True, False])
def test_an_interruption_hides_whether_it_would_have_failed(con, charges, monkeypatch, fails):
    """Stopped at a chosen moment, a call must not tell success from failure, nor leave anything to be told by another one."""
    read = measures.measure

    def measure(*given: Any) -> Any:
        found = read(*given)
        dpsql.interrupt(con)
        if fails:
            raise ValueError
        return found

    with monkeypatch.context() as patch:
        patch.setattr(measures, "measure", measure)
        text = text_of(con, FILTERED.format("x"))
    assert "is charged and not finished" in text
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [("charged",)]
    store = instance_of(con)
    assert store is not None
    assert len(con.execute(FILTERED.format("x")).fetchall()) == 3
    assert charges() == 1


def test_no_draft_is_left_of_a_failure(con, tmp_path, monkeypatch):
    write = release.write

    def fail(*given: Any) -> str:
        write(*given)
        raise OSError("no space")

    monkeypatch.setattr(release, "write", fail)
    text_of(con, PLAIN.format("x"))
    assert not [path for path in tmp_path.rglob("*") if "release.parquet" in path.name]


@pytest.mark.parametrize(
    ("break_it", "mend", "told"),
    [
        ("ALTER TABLE people ALTER age TYPE VARCHAR", "ALTER TABLE people ALTER age TYPE SMALLINT", "SMALLINT"),
        ("ALTER TABLE people RENAME age TO years", "ALTER TABLE people RENAME years TO age", "age"),
    ],
)
def test_a_public_reason_before_the_reading_can_be_mended(con, charges, monkeypatch, break_it, mend, told):
    """Charged, then stopped before the reading; the source was changed meanwhile: not a failure of a row."""
    call = "FROM dp_marginals('people', columns := ['age'], epsilon := 0.1)"

    def stop(*_: object) -> None:
        raise interruption.Stopped("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(measures, "measure", stop)
        text_of(con, call)
    con.execute(break_it)
    assert told in text_of(con, call)
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [("charged",)]
    con.execute(mend)
    assert len(con.execute(call).fetchall()) == 6
    assert charges() == 1


def test_a_disk_without_space_is_found_before_the_charge(con, charges, monkeypatch):
    usage = release.shutil.disk_usage

    class Full:
        free = 1000

    monkeypatch.setattr(release.shutil, "disk_usage", lambda _: Full)
    text = text_of(con, PLAIN.format("x"))
    assert "no space left" in text
    assert charges() == 0
    monkeypatch.setattr(release.shutil, "disk_usage", usage)
    con.execute(PLAIN.format("x"))


def test_plain_is_what_the_generated_sql_computes(con, tmp_path):
    con.execute("CREATE VIEW computed AS SELECT sex, age + 1 AS older FROM people")
    con.execute(f"COPY people TO '{tmp_path / 'p.parquet'}'")
    con.execute(f"CALL dp_protect('{tmp_path / 'p.parquet'}', epsilon := 1, delta := {DELTA})")
    instance = instance_of(con)
    assert instance is not None
    plain = ["people", "SELECT sex FROM people", f"{tmp_path / 'p.parquet'}", f"SELECT sex FROM '{tmp_path / 'p.parquet'}'",
             "SELECT sex, 1 AS x FROM people"]
    more = ["SELECT sex FROM computed", "SELECT sex FROM people WHERE true", "SELECT age + 0 AS age FROM people", "SELECT sex, 1 + 1 AS x FROM people"]
    with open_context(instance, "people", "main") as context:
        assert [resolve(context, source).plain for source in plain] == [True] * len(plain)
        assert [resolve(context, source).plain for source in more] == [False] * len(more)


def test_a_second_failed_reading_stops_plain_columns_too(con, charges, failing):
    """What is plain fails for want of memory alone, and that can be for one person's long texts: a bit for each question."""
    errors, seen = failing
    errors.append(duckdb.OutOfMemoryException("of 17 rows"))
    text_of(con, PLAIN.format("one"))
    errors.clear()
    assert len(con.execute(PLAIN.format("two")).fetchall()) > 0
    errors.append(duckdb.OutOfMemoryException("of 18 rows"))
    text_of(con, PLAIN.format("three"))
    errors.clear()
    assert "nothing can be bought since 2 readings failed" in con.execute("SELECT books FROM dp_budget()").fetchone()[0]
    said = text_of(con, PLAIN.format("four"))
    assert "Nothing of main.people can be bought, until the custodian" in said and "Nothing was read" in said
    assert "nothing more was charged" in said and (len(seen), charges()) == (3, 3)
    assert any("would be refused" in note for note in con.execute("SELECT notes FROM dp_plan('people', columns := ['sex'], epsilon := 0.1)").fetchone()[0])
    assert len(con.execute(PLAIN.format("two")).fetchall()) > 0  # what was bought stays readable
    con.execute("CALL dp_protect('people', resume := true)")
    assert len(con.execute(PLAIN.format("four")).fetchall()) > 0


def test_once_one_has_failed_plain_readings_wait_for_one_another(con, failing, monkeypatch):
    errors, seen = failing
    errors.append(duckdb.OutOfMemoryException("of 17 rows"))
    text_of(con, PLAIN.format("one"))
    cursors = [con.cursor() for _ in range(4)]
    texts: list[str] = []

    def ask(place: int) -> None:
        try:
            cursors[place].execute(PLAIN.format(f"again{place}")).fetchall()
        except duckdb.Error as error:
            texts.append(str(error))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2 and sum("Nothing of main.people can be bought" in text for text in texts) == 3
