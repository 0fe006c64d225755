"""Rules across linked tables, as a user sees them: declared, planned, kept by every synthetic row, taken back, exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from linked_tables import PROTECT

import dpsql
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.decoder import Decoder
from dpsql.errors import ArgumentError
from dpsql.methods.nested_classes import Block, blocks, order
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.rows.obeying import mender_of
from dpsql.rows.zeros import emptied
from dpsql.rules import across, grammar

BUY = "FROM dp_synthesize_tables('patients', epsilon := 20, into_schema := '{}', release := '{}', options := {{'effort': 'fast'}})"
PLAN = "SELECT unnest(notes) FROM dp_plan('patients', operation := 'synthesize_tables', epsilon := 1)"
DAYS = "lower := DATE '2000-01-01', upper := DATE '2009-12-31'"


def declared() -> duckdb.DuckDBPyConnection:
    """Return a database of three linked tables with declared columns."""
    con = duckdb.connect()
    con.execute(
        """
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, born DATE, weight INTEGER);
        CREATE TABLE visits (visit_id BIGINT PRIMARY KEY, patient_id INTEGER, day DATE, cost INTEGER);
        CREATE TABLE procedures (visit_id BIGINT, done DATE, "select" VARCHAR);
        INSERT INTO patients SELECT i, DATE '2000-01-01' + (i * 37 % 3600)::INTEGER, i % 90 FROM range(1500) t(i);
        INSERT INTO visits SELECT row_number() OVER () AS v, patient_id, born + (hash(patient_id, n) % 40)::INTEGER * 5,
            nullif((hash(n, patient_id) % 50)::INTEGER, 7) FROM patients, range(3) r(n);
        INSERT INTO procedures SELECT visit_id, day + (visit_id % 9)::INTEGER, 'c' || visit_id % 3 FROM visits;
        """
    )
    dpsql.load(con, user="tester", progress=False)
    con.execute(PROTECT.replace("epsilon := 3", "epsilon := 100"))
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 4)")
    con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 2)")
    con.execute(f"CALL dp_declare('patients', 'born', {DAYS}, bins := 10, nullable := false)")
    con.execute("CALL dp_declare('patients', 'weight', lower := 0, upper := 90, bins := 9, nullable := false)")
    con.execute(f"CALL dp_declare('visits', 'day', {DAYS}, bins := 10, nullable := false)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 50, bins := 5)")
    con.execute(f"CALL dp_declare('procedures', 'done', {DAYS}, bins := 10)")
    con.execute("""CALL dp_declare('procedures', 'select', categories := ['c0', 'c1', 'c2'], nullable := false)""")
    return con


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with declared() as con:
        yield con


@pytest.fixture(scope="module")
def unruled() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of all tests that declare and buy nothing."""
    with declared() as con:
        yield con


def broken(con: duckdb.DuckDBPyConnection, schema: str, condition: str) -> tuple[int, int]:
    joined = f"{schema}.procedures RIGHT JOIN {schema}.visits USING (visit_id) JOIN {schema}.patients USING (patient_id)"
    found = con.execute(f"SELECT count(*) FILTER ({condition}), count(*) FROM {joined}").fetchone()
    assert found is not None
    return found


def test_every_row_obeys_three_levels_of_tables(con: duckdb.DuckDBPyConnection) -> None:
    said = con.execute("FROM dp_rule('visits', 'DAY >= born')").fetchone()
    assert said == ("main.visits", '"day" >= "patients"."born"', ["day", "patients.born"], "tables", "declared")
    con.execute("CALL dp_rule('procedures', 'done >= visits.day AND (\"select\" <> ''c1'' OR patients.weight >= 40)')")
    con.execute("CALL dp_rule('visits', 'cost <= 40')")
    notes = [note for (note,) in con.execute(PLAN).fetchall()]
    assert sum("with the rows above it" in note for note in notes) == 2
    con.execute(BUY.format("synth", "one"))
    some, rows = broken(con, "synth", "day < born OR done < day OR (\"select\" = 'c1' AND weight < 40) OR cost > 40")
    assert some == 0 and rows > 3000
    assert broken(con, "synth", "cost IS NULL")[0] > 0, "a rule that comes out as NULL is not broken"
    assert broken(con, "synth", "\"select\" = 'c1'")[0] > 100, "what is allowed is still there"
    (name,) = con.execute("SELECT release FROM dp_releases()").fetchone() or ()
    con.execute(f"FROM dp_sample('{name}', rows := 300, seed := 5, into_schema := 'again')")
    assert broken(con, "again", "day < born OR done < day")[0] == 0


def test_without_the_rule_rows_break_it(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(BUY.format("synth", "one"))
    assert broken(con, "synth", "day < born")[0] > 50


def test_rows_in_an_order_stay_in_it(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_UNITS", 1_000)  # how well it is fitted is not asked here
    con.execute("CALL dp_link('visits', order_by := 'day')")
    con.execute("CALL dp_rule('visits', 'day >= patients.born')")
    con.execute(BUY.format("synth", "one"))
    later = "SELECT count(*) FROM (SELECT day, lag(day) OVER (PARTITION BY patient_id ORDER BY visit_id ASC) AS b FROM synth.visits)"
    assert con.execute(f"{later} WHERE day < b").fetchone() == (0,)
    assert broken(con, "synth", "day < born")[0] == 0
    assert con.execute("SELECT count(*) FROM synth.procedures ANTI JOIN synth.visits USING (visit_id)").fetchone() == (0,)


@pytest.mark.parametrize(
    ("source", "rule", "said"),
    [
        ("visits", "day >= nobody.born", "'nobody' is neither 'visits' nor a table above it, which are .'patients'."),
        ("visits", "day >= hatched", "'hatched' is not a column of the source or of a table above it"),
        ("visits", "patients.weight < 0", "no values of the declared domains obey it"),
        ("visits", "day < born AND day > DATE '2010-01-05'", "no values of the declared domains obey it"),
        ("visits", "day + born > 3", "not defined here for"),
        ("visits", "random() > patients.weight", "not on the list of functions"),
        ("visits", "(SELECT max(born) FROM patients) > day", "it depends on|its value depends on other rows"),
        ("visits", "visits.day >= patients.patient_id", "over declared columns, and 'patient_id' has no domain"),
        ("visits", "main.patients.born <= day", "COLUMN with DB"),
        ("patients", "born <= visits.day", "a rule of a linked table also those of the tables above it"),
        ("visits", 'day >= "patients; DROP TABLE x".born', "is neither 'visits' nor"),
    ],
)
def test_refusals_say_why_and_write_nothing(unruled: duckdb.DuckDBPyConnection, source: str, rule: str, said: str) -> None:
    with pytest.raises(duckdb.Error, match=said):
        unruled.execute("FROM dp_rule(?, ?)", [source, rule])
    assert unruled.execute(f"SELECT count(*) FROM dp_domain('{source}') WHERE kind = 'rule'").fetchone() == (0,)
    assert unruled.execute("SELECT count(*) FROM dp_releases()").fetchone() == (0,)


def test_it_is_listed_taken_back_and_kept_by_what_was_bought(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    con.execute("CALL dp_rule('visits', 'day >= born')")
    listed = "SELECT column_name, labels, status FROM dp_domain('visits') WHERE kind = 'rule'"
    assert con.execute(listed).fetchone() == ("day, patients.born", '"day" >= "patients"."born"', "declared")
    con.execute(BUY.format("synth", "one"))
    again = "SELECT change FROM dp_rule('visits', 'day >= patients.born', remove := true)"
    assert [con.execute(again).fetchone() for _ in range(2)] == [("taken back",), ("was not declared",)]
    (name,) = con.execute("SELECT release FROM dp_releases()").fetchone() or ()
    con.execute(f"FROM dp_sample('{name}', into_schema := 'again')")
    assert broken(con, "again", "day < born")[0] == 0, "a release keeps the rules that it was bought with"
    con.execute(f"FROM dp_export('{name}', '{tmp_path / 'one.dpsql'}')")
    with duckdb.connect() as other:
        dpsql.load(other, progress=False)
        other.execute(f"FROM dp_import('{tmp_path / 'one.dpsql'}')")
        other.execute(f"FROM dp_sample('{name}', into_schema := 'again')")
        rows = "SELECT * FROM again.visits ORDER BY visit_id ASC"
        assert other.execute(rows).fetchall() == con.execute(rows).fetchall()


def test_a_synthesis_of_one_table_and_queries_do_not_look_at_it(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL dp_rule('visits', 'day >= born')")
    assert len(con.execute("FROM dp_synthesize('visits', epsilon := 1, columns := ['day', 'cost'])").fetchall()) > 0
    assert con.execute("FROM dp_query('SELECT count(*) FROM visits', epsilon := 1)").fetchone() is not None


def numbers(name: str, bins: int = 4) -> Attribute:
    return Attribute(name, "INTEGER", "numeric", edges=tuple(range(0, 10 * bins + 1, 10)), nullable=False)


def test_names_of_columns_that_look_like_others() -> None:
    own = ("a.b", ["x", "b.y"])
    found = across.read('"b.y" > "A.b"."X" + "b"."y"', own, {"b": ["y", "z"]})
    assert isinstance(found, across.Across) and found.columns == ((None, "b.y"), (None, "x"), ("b", "y"))
    joined = across.joined([found], Domain((numbers("x"), numbers("b.y"))), {"b": Domain((numbers("y"), numbers("z")))})
    assert joined.domain.names == ("x", "b.y", "b.y_") and joined.above == (("b", 0),)
    assert joined.rules[0].text == '"b.y" > "x" + "b.y_"'
    assert across.stored(found.text) == found
    plain = across.read("x > 3", own, {"b": ["x"]})
    assert isinstance(plain, grammar.Rule), "the own column is nearer"
    with pytest.raises(ArgumentError):
        grammar.stored(found.text)
    assert across.is_across(found.text) and not across.is_across("x > 3") and not across.is_across("x >")


def test_cells_that_no_row_can_have_are_zero() -> None:
    """Between tables, in one table, and of one column; tables of two rows stay as they are."""
    made = {"orphans": "drop", "primary": None, "foreign": False}
    parent = LinkedTable(
        "main.p", "p", None, 1, link=None, referred=None, keys=("id",), columns=(), domain=Domain((numbers("p"),)), **made
    )
    rule = across.read("x >= p", ("c", ["x", "k"]), {"p": ["p"]})
    child = LinkedTable(
        "main.c", "c", 0, 3, link="of", referred="id", keys=(), columns=(), domain=Domain((numbers("x"), numbers("k", 2))),
        rules=('"x" >= 10', '"k" < 10 OR "x" < 30'), across=(rule.text,), **made,
    )  # fmt: skip
    plan = LinkedPlan((parent, child), (), 1)
    plan = LinkedPlan((parent, child), tuple(blocks(plan.shape)), 1)
    with duckdb.connect() as con:
        found = dict(zip(plan.blocks, emptied(con, plan, [np.ones(shape) for shape in plan.shapes]), strict=True))
    assert found[Block("across", (0, 0), (1, 0))].tolist() == [[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert found[Block("pair", (1, 0), (1, 1))].tolist() == [[0, 0], [1, 1], [1, 1], [1, 0]]
    assert found[Block("one", (1, 0))].tolist() == [0, 1, 1, 1] and found[Block("one", (0, 0))].all()
    assert found[Block("sibling", (1, 0), (1, 1))].all() and found[Block("one", (0, 1))].all()


def test_rows_above_stay_and_the_rest_moves_as_little_as_it_can() -> None:
    """A child's value at least its parent's: the child's own column keeps its shares, the parent's values stay as they are."""
    rng = np.random.default_rng(3)
    own, above = Domain((numbers("x"), Attribute("k", "VARCHAR", "categorical", ("a", "b"), nullable=False))), Domain((numbers("p"),))
    rule = across.read("x >= p", ("child", ["x", "k"]), {"parent": ["p"]})
    assert isinstance(rule, across.Across)
    joined = across.joined([rule], own, {"parent": above})
    codes = np.column_stack([rng.integers(0, 4, 5000), rng.integers(0, 2, 5000), rng.integers(0, 2, 5000)]).astype(np.int32)
    arrays = {}
    for i, attribute in enumerate(joined.domain.attributes):
        arrays.update(Decoder(attribute, f"v{i}").arrays(codes[:, i], rng))
    with duckdb.connect() as con:
        found = mender_of(con, joined.domain, joined.rules, lambda: codes[:100, :2], "r", fixed=1)
        assert found is not None
        block = found.mended_block(codes, arrays, rng)
    assert (block.take(0, slice(None))["v0"] >= block.take(2, slice(None))["v2"]).all()
    assert (block.take(2, slice(None))["v2"] == arrays["v2"]).all()
    before, after = (np.bincount(one, minlength=4) for one in (codes[:, 0], block.codes(0)))
    assert np.abs(before - after).max() < 300
