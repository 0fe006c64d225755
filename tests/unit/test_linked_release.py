"""dp_synthesize_tables: what is charged, drawn and written, as a user sees it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dpsql.udfs import instance_of

import dpsql
from dpsql.calls.schemas import EFFORTS, OPTIONS, SynthesizeTablesCall
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.kinds.linked.schema import schema_of
from dpsql.kinds.plans import request
from dpsql.measure.linked import LinkedReading
from dpsql.methods import nested_classes
from dpsql.protected.source import resolve
from dpsql.purchase import buying, measuring
from dpsql.release.checking import check_item
from dpsql.release.linked import LinkedColumn, LinkedTable
from dpsql.release.plan import Plan
from dpsql.rows import schemas
from dpsql.rows.families import Drawing, Part, check_range, key_value
from dpsql.running.progress import Progress
from dpsql.session.instance import open_context

FAST = "options := {'effort': 'fast'}"
BUY = f"FROM dp_synthesize_tables('patients', epsilon := 1, into_schema := 'synth', {FAST})"


def make(con: duckdb.DuckDBPyConnection, **protect: Any) -> None:
    """Make, protect, declare and link patients, visits and procedures."""
    con.execute(
        """
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR CHECK (sex IN ('f', 'm')), age INTEGER NOT NULL, name VARCHAR);
        CREATE TABLE visits (
            visit_id VARCHAR PRIMARY KEY, patient_id INTEGER REFERENCES patients(patient_id), cost DECIMAL(9,2), day DATE,
            low INTEGER, high INTEGER, CHECK (low <= high)
        );
        CREATE TABLE procedures (visit_id VARCHAR NOT NULL, code VARCHAR NOT NULL, urgent BOOLEAN);
        CREATE TABLE addresses (patient_id INTEGER UNIQUE, town VARCHAR);
        INSERT INTO patients SELECT i, CASE WHEN i % 9 = 8 THEN NULL WHEN i % 2 = 0 THEN 'f' ELSE 'm' END, 20 + i % 60, 'n' || i
            FROM range(800) t(i);
        INSERT INTO visits SELECT 'v' || i, CASE WHEN i % 10 = 9 THEN NULL ELSE i % 700 END, i % 100, DATE '2020-01-01' + (i % 360)::INTEGER,
            i % 3, i % 3 + i % 2 FROM range(2000) t(i);
        INSERT INTO procedures SELECT 'v' || (i % 2300), 'c' || i % 4, i % 3 = 0 FROM range(3000) t(i);
        INSERT INTO addresses SELECT i, 't' || i % 3 FROM range(600) t(i);
        """
    )
    dpsql.load(con, user="tester")
    dpsql.protect(con, "patients", epsilon=3, delta=1e-9, **{"privacy_unit": "patient_id", "max_contributions": 1, **protect})
    for table in ("visits", "procedures", "addresses"):
        dpsql.protect(con, table, epsilon=1, delta=1e-9)  # given up when it is linked
    con.execute("CALL dp_declare('patients', 'age', lower := 0, upper := 100)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    con.execute("CALL dp_declare('visits', 'day', lower := '2020-01-01', upper := '2020-12-31', bins := 4)")
    for name in ("low", "high"):
        con.execute(f"CALL dp_declare('visits', '{name}', categories := [0, 1, 2, 3])")
    con.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2', 'c3'], nullable := false)")
    con.execute("CALL dp_declare('addresses', 'town', categories := ['t0', 't1', 't2'])")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 4)")
    con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 3)")
    con.execute("CALL dp_link('addresses', 'patient_id', parent := 'patients', max_rows := 5)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database file with linked tables."""
    path = tmp_path_factory.mktemp("linked") / "clinic.duckdb"
    with duckdb.connect(str(path)) as con:
        make(con)
    return path


@pytest.fixture
def clinic(made: Path, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a copy of it."""
    path = tmp_path / "clinic.duckdb"
    path.write_bytes(made.read_bytes())
    con = duckdb.connect(str(path))
    dpsql.load(con, user="tester")
    yield con
    con.close()


def test_efforts_are_those_of_the_model() -> None:
    assert set(EFFORTS) == set(nested_classes.EFFORTS) and OPTIONS["effort"] == nested_classes.USUAL


def one(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Return the one value of a query."""
    return con.execute(query).fetchall()[0][0]


def contents(con: duckdb.DuckDBPyConnection, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables of a schema."""
    tables = con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = ? ORDER BY 1", [schema]).fetchall()
    return {str(name): con.execute(f'FROM {schema}."{name}" ORDER BY ALL').fetchall() for (name,) in tables}


def test_tables_have_the_types_and_constraints_of_the_source_and_every_parent_is_there(clinic: duckdb.DuckDBPyConnection) -> None:
    answer = clinic.execute(BUY).fetchall()
    assert [row[0].rsplit(".", 1)[-1] for row in answer] == ['"patients"', '"visits"', '"addresses"', '"procedures"']
    assert all(one(clinic, f"SELECT count(*) FROM {row[0]}") == row[1] > 100 for row in answer)
    assert answer[0][2] is None and answer[3][2].endswith('"visits"')
    for table in ("patients", "visits", "procedures", "addresses"):
        source = {row[0]: row[1] for row in clinic.execute(f"DESCRIBE {table}").fetchall()}
        copy = {row[0]: row[1] for row in clinic.execute(f"DESCRIBE synth.{table}").fetchall()}
        assert copy.items() <= source.items()
    assert {row[0] for row in clinic.execute("DESCRIBE synth.patients").fetchall()} == {"patient_id", "sex", "age"}
    assert one(clinic, "SELECT count(*) FROM synth.visits ANTI JOIN synth.patients USING (patient_id)") == 0
    assert one(clinic, "SELECT count(*) FROM synth.procedures ANTI JOIN synth.visits USING (visit_id)") == 0
    assert one(clinic, "SELECT count(*) FROM synth.addresses ANTI JOIN synth.patients USING (patient_id)") == 0
    assert one(clinic, "SELECT max(n) FROM (SELECT count(*) AS n FROM synth.visits GROUP BY patient_id)") <= 4
    assert one(clinic, "SELECT max(n) FROM (SELECT count(*) AS n FROM synth.procedures GROUP BY visit_id)") <= 3
    assert one(clinic, "SELECT max(n) FROM (SELECT count(*) AS n FROM synth.addresses GROUP BY patient_id)") == 1, "its link is UNIQUE"
    assert one(clinic, "SELECT bool_and(low <= high) FROM synth.visits")
    assert one(clinic, "SELECT bool_and(visit_id = visit_id::INTEGER::VARCHAR) FROM synth.visits")
    constraints = {
        (table, kind): text
        for table, kind, text in clinic.execute(
            "SELECT table_name, constraint_type, constraint_text FROM duckdb_constraints() WHERE schema_name = 'synth'"
        ).fetchall()
    }
    wanted = {("patients", "PRIMARY KEY"), ("patients", "CHECK"), ("visits", "PRIMARY KEY"), ("visits", "FOREIGN KEY"), ("visits", "CHECK")}
    assert wanted <= constraints.keys() and ("procedures", "FOREIGN KEY") not in constraints
    required = {
        (table, name)
        for table in ("patients", "visits", "procedures")
        for name, *_ in clinic.execute(f"SELECT column_name FROM (DESCRIBE synth.{table}) WHERE \"null\" = 'NO'").fetchall()
    }
    assert required == {("patients", "patient_id"), ("patients", "age"), ("visits", "visit_id"), ("procedures", "visit_id"), ("procedures", "code")}


def test_a_release_is_charged_once_and_drawn_again_free(clinic: duckdb.DuckDBPyConnection) -> None:
    first = clinic.execute(BUY).fetchall()
    spent, drawn = one(clinic, "SELECT epsilon_spent FROM dp_budget()"), contents(clinic, "synth")
    assert one(clinic, "SELECT releases FROM dp_budget()") == 1
    assert clinic.execute(f"FROM dp_synthesize_tables('patients', into_schema := 'synth', {FAST})").fetchall() == first
    clinic.execute(f"FROM dp_sample('{first[0][3]}', into_schema := 'again')")
    assert contents(clinic, "again") == drawn
    clinic.execute(f"FROM dp_sample('{first[0][3]}', into_schema := 'again', seed := 2)")
    other = contents(clinic, "again")
    assert other.keys() == drawn.keys() and other != drawn
    clinic.execute(f"FROM dp_sample('{first[0][3]}', into_schema := 'small', rows := 7)")
    assert len(contents(clinic, "small")["patients"]) == 7
    assert one(clinic, "SELECT epsilon_spent FROM dp_budget()") == spent
    assert one(clinic, "SELECT count(*) FROM dp_releases()") == 1
    said = " ".join(text for _, text in clinic.execute(f"FROM dp_explain('{first[0][3]}')").fetchall())
    assert "visits" in said and "1/k" in said


def test_a_plan_says_what_is_measured_and_left_out_and_charges_nothing(clinic: duckdb.DuckDBPyConnection) -> None:
    row = clinic.execute(
        "SELECT measures, left_out, columns, noise_scale, notes, affordable, bought FROM "
        "dp_plan('patients', epsilon := 1, operation := 'synthesize_tables')"
    ).fetchall()[0]
    assert "of two rows of one parent" in row[0] and row[1] == ["patients.name"]
    assert "visits.cost" in row[2] and "visits.patient_id" not in row[2]
    assert row[3] > 1 and row[5] and not row[6] and "automatic bins of age" in " ".join(row[4])
    assert one(clinic, "SELECT releases FROM dp_budget()") == 0


def test_a_plan_of_linked_tables_is_the_custodians(clinic: duckdb.DuckDBPyConnection) -> None:
    instance = instance_of(clinic)
    assert instance is not None
    with open_context(instance, "clinic", "main") as context:
        protected = resolve(context, "patients")
        assert schema_of(context, protected).tables
        with pytest.raises(ArgumentError, match="custodian"):
            schema_of(replace(context, analyst="alice"), protected)


def test_nothing_is_written_where_one_table_cannot_be(clinic: duckdb.DuckDBPyConnection) -> None:
    clinic.execute("CREATE SCHEMA taken; CREATE TABLE taken.procedures AS SELECT 1 AS mine")
    with pytest.raises(duckdb.Error, match="did not make"):
        clinic.execute(BUY.replace("synth'", "taken'"))
    assert one(clinic, "SELECT releases FROM dp_budget()") == 0, "known before it is charged"
    clinic.execute(BUY)
    before = contents(clinic, "synth")
    clinic.execute("CREATE TABLE synth.mine (p INTEGER REFERENCES synth.patients(patient_id))")
    with pytest.raises(duckdb.Error, match="cannot be made"):
        clinic.execute(f"FROM dp_synthesize_tables('patients', into_schema := 'synth', seed := 3, {FAST})")
    clinic.execute("DROP TABLE synth.mine")
    assert contents(clinic, "synth") == before
    with pytest.raises(duckdb.Error, match="into_schema"):
        clinic.execute("FROM dp_synthesize_tables('patients', epsilon := 1)")
    with pytest.raises(duckdb.Error, match="books"):
        clinic.execute(BUY.replace("synth'", "dpsql'"))
    assert one(clinic, "SELECT releases FROM dp_budget()") == 1


def test_what_cannot_be_written_is_known_before_it_is_charged(clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic.execute("CREATE SCHEMA synth; CREATE VIEW synth.visits AS SELECT 1 AS x")
    with pytest.raises(duckdb.Error, match="did not make"):
        clinic.execute(BUY)
    clinic.execute("DROP SCHEMA synth CASCADE")
    made = schemas.create_sql
    monkeypatch.setattr(schemas, "create_sql", lambda *given: f"{made(*given)} and what DuckDB does not know")
    with pytest.raises(duckdb.Error, match="cannot be made"):
        clinic.execute(BUY)
    monkeypatch.setattr(schemas, "create_sql", made)
    monkeypatch.setattr(Drawing, "select", lambda self, place: "1 / 0 AS nothing, 'x'::INTEGER AS no_number")
    with pytest.raises(duckdb.Error, match="cannot be made"):
        clinic.execute(BUY)
    assert one(clinic, "SELECT releases FROM dp_budget()") == 0
    assert one(clinic, "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'synth' AND database_name = current_database()") == 0


def test_a_failing_draw_leaves_no_table_and_no_schema(clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    release = clinic.execute(BUY).fetchall()[0][3]
    drawn = Drawing.parts

    def some(self: Drawing) -> Iterator[Part]:
        yield from itertools.islice(drawn(self), 2)
        raise duckdb.OutOfMemoryException("out of memory")

    monkeypatch.setattr(Drawing, "parts", some)
    with pytest.raises(duckdb.Error, match="cannot be made"):
        clinic.execute(f"FROM dp_sample('{release}', into_schema := 'half')")
    assert one(clinic, "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'half'") == 0
    before = contents(clinic, "synth")
    with pytest.raises(duckdb.Error, match="cannot be made"):
        clinic.execute(f"FROM dp_sample('{release}', into_schema := 'synth', seed := 9)")
    assert contents(clinic, "synth") == before


def test_more_rows_than_a_key_can_number_are_refused() -> None:
    table = LinkedTable(
        "main.t", "t", None, 1, "drop", None, None, ("i",), "i", False, (LinkedColumn("i", "TINYINT", required=True),), Domain(())
    )
    check_range(table, 127)
    with pytest.raises(ArgumentError, match="can number"):
        check_range(table, 128)
    con = duckdb.connect()
    for kind, wanted in (("UUID", "00000000-0000-0000-0000-0000000000ff"), ("VARCHAR", "255"), ("HUGEINT", "255")):
        assert con.execute(f"SELECT typeof(k), k::VARCHAR FROM (SELECT {key_value('255', kind)} AS k)").fetchall() == [(kind, wanted)]


def test_what_cannot_be_copied_is_refused_with_the_reason(clinic: duckdb.DuckDBPyConnection) -> None:
    for source, reason in (
        ("visits", "main.patients"),
        ("SELECT * FROM patients WHERE age > 3", "name the protected table itself"),
    ):
        with pytest.raises(duckdb.Error) as caught:
            clinic.execute("FROM dp_synthesize_tables(?, epsilon := 1, into_schema := 's')", [source])
        assert reason in str(caught.value) or "linked" in str(caught.value)
    clinic.execute("CREATE TABLE alone (i INTEGER PRIMARY KEY, x BOOLEAN)")
    dpsql.protect(clinic, "alone", epsilon=1, delta=1e-9)
    with pytest.raises(duckdb.Error, match="no table is linked"):
        clinic.execute("FROM dp_synthesize_tables('alone', epsilon := 1, into_schema := 's')")
    clinic.execute("CREATE TABLE many (i INTEGER UNIQUE, who INTEGER); CREATE TABLE below (i INTEGER, x BOOLEAN)")
    dpsql.protect(clinic, "many", epsilon=1, delta=1e-9, privacy_unit="who", max_contributions=3)
    clinic.execute("CALL dp_link('below', 'i', parent := 'many', max_rows := 2)")
    with pytest.raises(duckdb.Error, match="several rows of one who"):
        clinic.execute("FROM dp_synthesize_tables('many', epsilon := 1, into_schema := 's')")
    clinic.execute("CREATE TABLE floats (who DOUBLE UNIQUE, i INTEGER UNIQUE); CREATE TABLE under (i INTEGER, x BOOLEAN)")
    dpsql.protect(clinic, "floats", epsilon=1, delta=1e-9, privacy_unit="who", max_contributions=1)
    clinic.execute("CALL dp_link('under', 'i', parent := 'floats', parent_column := 'i', max_rows := 2)")
    with pytest.raises(duckdb.Error, match="two keys can be one unit"):
        clinic.execute("FROM dp_synthesize_tables('floats', epsilon := 1, into_schema := 's')")
    with pytest.raises(duckdb.Error, match="mechanism|options"):
        clinic.execute("FROM dp_synthesize_tables('patients', epsilon := 1, into_schema := 's', options := {'mechanism': 'x'})")


def bought(con: duckdb.DuckDBPyConnection, before: Any) -> Any:
    """Buy as a call does, with something done between the charge and the reading."""
    instance = instance_of(con)
    assert instance is not None
    with open_context(instance, "clinic", "main") as context:
        call = SynthesizeTablesCall(source="patients", epsilon=1.0, into_schema="synth", options={"effort": "fast"})
        protected = resolve(context, "patients")
        wanted = request(context, protected, call)
        stored = json.loads(json.dumps(wanted.plan.to_json()))
        check_item(stored)
        assert Plan.from_json(stored) == wanted.plan
        store = context.store("clinic")
        store.mkdir(parents=True, exist_ok=True)
        purchase = buying._charge(context, protected, store, "here", wanted)
        before(con)
        path = store / f"here.{purchase.charge['hash'][:16]}.release.parquet"
        return measuring.measure(context, protected, purchase, path, Progress("test"))


@pytest.mark.parametrize(
    "change",
    [
        "CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 9)",
        "CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 4, orphans := 'unit')",
        "ALTER TABLE addresses ALTER COLUMN town TYPE BLOB",
        "DROP TABLE procedures",
    ],
)
def test_links_that_change_between_charge_and_reading_are_refused_and_nothing_is_read(
    clinic: duckdb.DuckDBPyConnection, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(LinkedReading, "__init__", lambda self, *given: read.append(1))
    with pytest.raises(DpsqlError, match="changed|gone|not there|link"):
        bought(clinic, lambda con: con.execute(change))
    assert not read
    assert one(clinic, "SELECT status FROM dp_releases()") == "charged"


def test_two_threads_buy_one_release(clinic: duckdb.DuckDBPyConnection) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            clinic.cursor().execute(BUY.replace("synth'", f"synth{number}'")).fetchall()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert one(clinic, "SELECT releases FROM dp_budget()") == 1
    assert contents(clinic, "synth0") == contents(clinic, "synth1")


def test_a_rolled_back_caller_keeps_charge_and_tables(clinic: duckdb.DuckDBPyConnection) -> None:
    clinic.execute("BEGIN")
    clinic.execute(BUY)
    clinic.execute("ROLLBACK")
    assert one(clinic, "SELECT releases FROM dp_budget()") == 1
    assert one(clinic, "SELECT count(*) FROM synth.visits") > 0


def test_under_replace_one_the_number_of_units_is_public() -> None:
    con = duckdb.connect()
    make(con, neighbors="replace_one")
    row = con.execute(BUY).fetchall()[0]
    assert row[1] == 800
    assert ("the number of units is public",) in con.execute(f"SELECT explanation FROM dp_explain('{row[3]}')").fetchall()
    con.close()


def test_an_exported_release_is_drawn_where_there_are_no_tables(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    release = clinic.execute(BUY).fetchall()[0][3]
    clinic.execute(f"FROM dp_export('{release}', '{tmp_path / 'out.parquet'}')")
    with duckdb.connect(str(tmp_path / "other.duckdb")) as con:
        dpsql.load(con, user="other")
        con.execute(f"FROM dp_import('{tmp_path / 'out.parquet'}')")
        con.execute(f"FROM dp_sample('{release}', into_schema := 'synth')")
        assert contents(con, "synth") == contents(clinic, "synth")


def test_independent_tables_are_one_charged_release_of_whole_tables(clinic: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    plan = "FROM dp_plan('patients', operation := 'synthesize_tables', epsilon := 1, options := {'independent': true, 'effort': 'fast'})"
    measures, notes = clinic.execute(f"SELECT measures, notes {plan}").fetchall()[0]
    assert "one-way" in measures and "above" not in measures and "parent" not in measures
    assert any("given to parents at random" in note for note in notes) and any("scale in rows" in note for note in notes)
    clinic.execute("CALL dp_link('visits', order_by := 'day')")
    charges = "SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'"
    before = one(clinic, charges)
    bought = clinic.execute(f"{BUY[:-1]}, independent := true)").fetchall()
    assert {row[0].split('"')[-2] for row in bought} == {"patients", "visits", "addresses", "procedures"}
    assert one(clinic, charges) == before + 1
    assert one(clinic, "SELECT count(*) FROM synth.visits ANTI JOIN synth.patients USING (patient_id)") == 0
    assert one(clinic, "SELECT max(n) FROM (SELECT count(*) AS n FROM synth.visits GROUP BY patient_id)") <= 4
    assert one(clinic, "SELECT count(*) FROM synth.visits WHERE low > high") == 0
    with pytest.raises(duckdb.Error, match="bought with independent = True, the call says independent = False"):
        clinic.execute(BUY)
    release = bought[0][-1]
    clinic.execute(f"FROM dp_sample('{release}', into_schema := 'again', seed := 1)")
    said = [text for (text,) in clinic.execute(f"SELECT explanation FROM dp_explain('{release}')").fetchall()]
    assert any("every row of a table weighs a unit's weight over the rows that links allow it" in text for text in said)
    path = tmp_path / "page.html"
    clinic.execute(f"FROM dp_report('{release}', path := '{path}')")
    assert "Counts are numbers of rows" in path.read_text()


def test_bins_are_as_many_as_released_rows_can_bear_and_none_is_in_a_tail_of_noise() -> None:
    """Parting bins up to a fixed number put some where no row is: noise there was rows of a hundred times the usual value."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people SELECT i FROM range(3000) t(i)")
        con.execute("CREATE TABLE bills (id INTEGER, cost DECIMAL(10, 2))")
        con.execute("INSERT INTO bills SELECT i % 3000, 20 + hash(i) % 30000 / 100 FROM range(6000) t(i)")
        dpsql.load(con, user="tester", progress=False)
        con.execute("CALL dp_protect('people', epsilon := 20, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
        con.execute("CALL dp_link('bills', 'id', parent := 'people', max_rows := 4)")
        con.execute("CALL dp_declare('bills', 'cost', lower := 0, upper := 1000000)")
        call = SynthesizeTablesCall(source="people", epsilon=1.0, into_schema="s", options={"effort": "fast"})
        with open_context(instance_of(con), "memory", "main") as context, Progress("test", show=False) as progress:
            edges = buying.buy(context, call, progress).plan.linked.domain.attributes[0].edges
        assert 3 <= len(edges) <= 25 and float(edges[-2]) < 1000, edges
        con.execute(f"FROM dp_synthesize_tables('people', epsilon := 1, into_schema := 's', {FAST})")
        raw, synthetic = (float(one(con, f"SELECT avg(cost) FROM {schema}.bills")) for schema in ("main", "s"))
        assert abs(synthetic / raw - 1) < 0.25
        assert one(con, "SELECT avg((cost > 1000)::INTEGER) FROM s.bills") < 0.002


def test_rows_stand_in_order_where_the_noise_leaves_one_bin(clinic: duckdb.DuckDBPyConnection) -> None:
    clinic.execute("CALL dp_declare('visits', 'day', lower := '2020-01-01', upper := '2020-12-31')")
    clinic.execute("CALL dp_link('visits', order_by := 'day')")
    clinic.execute(f"FROM dp_synthesize_tables('patients', epsilon := 0.05, into_schema := 'noisy', {FAST})")
    later = "lag(day) OVER (PARTITION BY patient_id ORDER BY rowid ASC) > day"
    assert one(clinic, f"SELECT coalesce(max((x)::INTEGER), 0) FROM (SELECT {later} AS x FROM noisy.visits)") == 0
