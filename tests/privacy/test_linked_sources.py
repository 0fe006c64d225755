"""Sources of linked tables: all rows of one unit in all tables go, and exactly its rows of every result go with them; and faults are found."""

from __future__ import annotations

import functools
import random

import pytest
from case_counts import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linked_sources import BY_UNIT, LOCAL, ROWS, Linked, table
from sqlglot import exp

from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source import analysis, extremes, members, unit_joins, unit_local, ways
from dpsql.source.linked import Hop, Lineage
from dpsql.source.model import UNIT
from dpsql.source.parse import serialized

SHAPES = {
    "a key of numbers": {},
    "orphans are a unit": {"orphans": "unit"},
    "texts": {"kind": "VARCHAR", "collation": "COLLATE NOCASE"},
    "texts, orphans are a unit": {"kind": "VARCHAR", "collation": "COLLATE NOCASE", "orphans": "unit"},
    "several rows of the root": {"unit": "family"},
    "several rows of the root, orphans are a unit": {"unit": "family", "orphans": "unit"},
    "a row is a person": {"unit": None},
}


@functools.cache
def database(shape: str) -> Linked:
    return Linked(**SHAPES[shape])


def texts_of(shape: str) -> tuple[str, ...]:
    """Return all texts for two shapes, and a fourth of them for each of the others."""
    every = (*ROWS, *LOCAL, *(BY_UNIT if database(shape).unit != "family" else ()))
    whole = ("a key of numbers", "several rows of the root, orphans are a unit")
    return every if shape in whole else every[list(SHAPES).index(shape) % 4 :: 4]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_source_carries_the_unit(shape):
    for text in texts_of(shape):
        source = database(shape).source(text)
        assert source.unit == "__dp_unit" and source.table == table("patients") and source.filtered, text
        assert source.local == (text not in ROWS) and source.row is None, text


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=cases(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_taking_out_a_unit_takes_out_its_rows_and_no_others(shape, seed, size):
    assert database(shape).violations(texts_of(shape), seed, size) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_who_has_one_row_by_construction_has_one(shape):
    db = database(shape)
    ones = [text for text in (*BY_UNIT, *LOCAL[:2]) if db.unit != "family" and db.source(text).one_per_unit]
    assert bool(ones) == (db.unit != "family" and db.orphans == "drop")
    for seed in range(4):
        db.fill(db.random_rows(random.Random(seed), 8))
        for text in ones:
            units = db.cursor.execute(f"SELECT __dp_unit FROM ({db.source(text).sql})").fetchall()
            assert len(set(units)) == len(units), text


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("visits", 4),
        ("procedures", 12),
        ("SELECT q.code FROM procedures q JOIN visits v USING (visit) JOIN patients p USING (patient)", 12),
        ("SELECT q.code FROM patients p LEFT JOIN visits v USING (patient) LEFT JOIN procedures q ON v.visit = q.visit", 12),
        ("SELECT a.value FROM labs a JOIN procedures q USING (visit)", 36),
        ("SELECT a.cost FROM visits a JOIN visits b USING (patient)", 16),
        ("SELECT visit FROM labs UNION ALL SELECT visit FROM procedures", 24),
        ("SELECT patient, count(*) AS n FROM visits GROUP BY patient", 1),
        ("SELECT visit, count(*) AS n FROM procedures GROUP BY visit", 4),
        ("SELECT v.patient, q.visit, count(*) AS n FROM procedures q JOIN visits v USING (visit) GROUP BY v.patient, q.visit", 4),
        ("SELECT visit, code, count(*) AS n FROM procedures GROUP BY visit, code", 12),
        ("SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit)", 4),
    ],
)
def test_the_rows_of_a_unit_that_links_allow(text, most):
    assert database("a key of numbers").source(text).most == most


def test_what_a_source_reads():
    source = database("a key of numbers").source("SELECT q.code, w.floor FROM procedures q JOIN visits v USING (visit) JOIN wards w USING (ward)")
    assert [t.name for t in source.tables] == ["procedures", "visits", "patients"] and [t.name for t in source.linked] == ["procedures", "visits"]
    assert [t.name for t in source.public_tables] == ["wards"]
    assert [(c.name, c.origin, c.home and c.home.name) for c in source.columns] == [("code", "code", "procedures"), ("floor", None, None)]
    bare = database("a key of numbers").source("visits")
    assert bare.bare and bare.named == table("visits") and bare.table == table("patients")


BELOW = {
    "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit AND q.code = 'x')": 1,
    "SELECT code FROM procedures WHERE visit IN (SELECT visit FROM labs WHERE value = 1)": 1,
    "SELECT code FROM procedures WHERE visit > 0 AND visit NOT IN (SELECT visit FROM labs WHERE value = 1 AND visit IS NOT NULL)": 1,
    "SELECT code FROM procedures q WHERE NOT EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.price > q.price)": 1,
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.price <> q.price AND r.price > 1)": 1,
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.price <> q.price AND r.code > q.code)": 2,
    "SELECT age FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND cost > 0.1)": 1,
    "SELECT p.age FROM patients p LEFT JOIN visits v USING (patient) WHERE NOT EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit)": 2,
    "SELECT s FROM (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit) a WHERE EXISTS (SELECT 1 FROM labs b WHERE b.visit = a.visit)": 2,
}
"""Texts, and how often the root is read where a key that is numbered says whose row a row of the subquery is.

Where rows are compared with rows by more than one inequality, both sides are limited to so many of a unit first, and are read
with it.
"""


@pytest.mark.parametrize("text", BELOW)
def test_rows_of_exists_on_a_link_are_read_without_their_parents_where_that_is_the_same(text, monkeypatch):
    roots = {shape: database(shape).source(text).sql.count('"main"."patients"') for shape in ("a key of numbers", "orphans are a unit", "several rows of the root")}
    assert roots["a key of numbers"] == BELOW[text] and roots["orphans are a unit"] == roots["several rows of the root"] == max(roots.values())
    monkeypatch.setattr(members.Members, "_on_link", lambda self, *given: False)
    db, other = database("a key of numbers"), Linked()
    assert other.source(text).sql.count('"main"."patients"') == roots["orphans are a unit"]
    for seed in range(cases(5)):
        rows = db.random_rows(random.Random(seed), 8)
        db.fill(rows)
        other.fill(rows)
        assert db.read(text) == other.read(text)


# -- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.cost FROM visits a JOIN visits b ON a.ward = b.ward",
        "SELECT a.cost FROM visits a JOIN procedures b ON a.cost = b.price",
        "SELECT a.cost FROM visits a JOIN procedures b ON a.visit >= b.visit",
        "SELECT a.cost FROM visits a JOIN procedures b ON a.visit + 0 = b.visit",
        "SELECT a.cost FROM visits a JOIN procedures b ON a.visit IS NOT DISTINCT FROM b.visit",
        "SELECT a.cost FROM visits a, procedures b",
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward",
        "SELECT v.visit, count(*) AS n FROM patients p LEFT JOIN visits v USING (patient) GROUP BY v.visit",
        "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.price = v.cost)",
        "SELECT floor FROM wards w WHERE EXISTS (SELECT 1 FROM visits v WHERE v.ward = w.ward)",
        "SELECT cost FROM visits v WHERE cost > (SELECT max(w.cost) FROM visits w WHERE w.ward = v.ward)",
    ],
)
def test_rows_of_two_people_do_not_meet(text):
    with pytest.raises(UnsupportedQuery):
        database("a key of numbers").source(text)


def test_tables_of_two_roots_are_refused():
    db = Linked()
    db.con.execute("CREATE TABLE doctors(doctor INTEGER PRIMARY KEY); CREATE TABLE shifts(doctor INTEGER, patient INTEGER)")
    hop = Hop(table("shifts"), "doctor", table("doctors"), "doctor", 5)
    db.ways[table("shifts")] = Lineage(table("shifts"), table("doctors"), (hop,))
    for text in ("SELECT s.doctor FROM shifts s JOIN visits v ON s.patient = v.patient", "SELECT doctor FROM shifts WHERE doctor IN (SELECT visit FROM visits)"):
        with pytest.raises(UnsupportedQuery, match="linked"):
            db.source(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE visits ALTER patient TYPE BIGINT", "one type"),
        ("ALTER TABLE visits RENAME patient TO person", "no stored column"),
        ("ALTER TABLE patients RENAME patient TO person", "no stored column"),
    ],
)
def test_a_link_whose_columns_changed_is_refused(change, message):
    db = Linked()
    if "patients RENAME" in change:
        db.con.execute("DROP TABLE patients; CREATE TABLE patients(person INTEGER PRIMARY KEY)")
    else:
        db.con.execute(change)
    with pytest.raises(ArgumentError, match=message):
        db.source("visits")


def test_a_key_of_floating_point_numbers_is_refused():
    db = Linked()
    db.con.execute("DROP TABLE visits; DROP TABLE patients; CREATE TABLE patients(patient DOUBLE PRIMARY KEY); CREATE TABLE visits(visit INTEGER UNIQUE, patient DOUBLE)")
    with pytest.raises(ArgumentError, match="DOUBLE"):
        db.source("visits")


# -- faults -------------------------------------------------------------------------------------------------------------------


def no_parent(planted) -> str:
    """The link column is taken for the unit, whoever is there."""

    def up(self, lineage, alias):
        join, _ = real(self, lineage, alias)
        return exp.Join(this=join.this, kind="CROSS"), exp.column(lineage.hops[0].column, table=alias, quoted=True)

    real = ways.Ways.up
    planted.setattr(ways.Ways, "up", up)
    return "visits"


def wrong_column(planted) -> str:
    """The parent is looked up by another column of the child."""
    real = ways.Ways._ends

    def ends(self, hop, columns):
        child, key = real(self, hop, columns)
        other = next(c for c in self.catalog.columns(hop.child) if c.name == "ward") if hop.child.name == "visits" else child
        return other, key

    planted.setattr(ways.Ways, "_ends", ends)
    return "procedures"


def wrong_unit(planted) -> str:
    """Rows carry another column of the root."""
    real = ways.Ways._up

    def up(self, lineage, at, alias):
        join, unit = real(self, lineage, at, alias)
        if at + 1 == len(lineage.hops):
            join.this.this.expressions[1].this.set("this", exp.to_identifier("age", quoted=True))
        return join, unit

    planted.setattr(ways.Ways, "_up", up)
    return "visits"


def forgotten_unit_in_a_join(planted) -> str:
    """Visits meet patients by the texts' condition alone, and the unit of one side is taken for both."""

    def join(self, rows_, join, rest):
        item = self.analysis._item(join.this, self.view)
        both = unit_joins.replace(rows_.scope, items=[*rows_.scope.items, item])
        written = [self._condition(c, unit_joins.Rewriter(both)) for c in unit_joins.conditions_of(join.args["on"])]
        rows_.joined(item, unit_joins.joined(item, None, None, written))
        return rows_

    planted.setattr(unit_joins.Joins, "join", join)
    return "SELECT a.cost FROM visits a JOIN visits b ON a.ward = b.ward"


def another_parent(planted) -> str:
    """A linked table without its own parent is joined to any row on the left."""
    real = unit_joins.Joins._held

    def held(self, node, rows_, item, both):
        found = real(self, node, rows_, item, both)
        if found is not None and item.name == "q":
            found.this.set("this", exp.to_identifier("price", quoted=True))
            found.expression.set("this", exp.to_identifier("cost", quoted=True))
        return found

    planted.setattr(unit_joins.Joins, "_held", held)
    planted.setattr(unit_joins.Joins, "_condition", staticmethod(lambda node, rewrite: exp.true()))
    return "SELECT v.cost, q.code FROM visits v JOIN procedures q ON q.visit = v.visit"


def another_key(planted) -> str:
    """Rows of EXISTS are read without their parents, and meet rows outside by another column."""
    real = members.Members._condition

    def condition(node, rewrite):
        out = real(node, rewrite)
        for column in out.find_all(exp.Column):
            if column.name == "visit":
                column.set("this", exp.to_identifier("ward", quoted=True))
        return out

    planted.setattr(members.Members, "_condition", staticmethod(condition))
    return "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit)"


def no_key(planted) -> str:
    """Rows of EXISTS are read without their parents, whatever they are compared by."""
    planted.setattr(members.Members, "_on_link", lambda self, *given: True)
    planted.setattr(members.Members, "_linked", staticmethod(lambda node, item, both: (None, item.columns[0])))
    planted.setattr(members.Members, "_beside", staticmethod(lambda node, outer, both: node))
    return "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a WHERE a.value = v.ward)"


def extremes_of_everybody(planted) -> str:
    """The least and the greatest value are taken of everybody's rows with the same key."""
    real = extremes.Extremes.grouped

    def grouped(self, item, node, held, unit, alias):
        made = real(self, item, node, held, unit, alias)
        for listed in made.this.expressions if unit else []:
            if listed.alias == UNIT:
                made.this.args["group"].expressions.pop(0)
                listed.set("this", exp.Max(this=listed.this))
        return made

    planted.setattr(extremes.Extremes, "grouped", grouped)
    return "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM visits o JOIN labs b ON b.visit = o.visit WHERE o.patient = v.patient AND o.ward = v.ward AND b.value <> v.visit)"


def extremes_without_a_key(planted) -> str:
    """They are those of rows that are read without their parents, and meet rows outside whose they are not."""
    real = extremes.Extremes.equalities
    planted.setattr(extremes.Extremes, "equalities", lambda self, *given: real(self, *given)[1:])
    return "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE r.visit = q.visit AND r.code = q.code AND r.price <> q.price)"


FAULTS = {"extremes of everybody": extremes_of_everybody, "extremes without a key": extremes_without_a_key, "another key": another_key, "no key": no_key, "another parent": another_parent, "no parent": no_parent, "the wrong column": wrong_column, "the wrong unit": wrong_unit, "a join": forgotten_unit_in_a_join}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_second_opinion_and_by_the_property(fault, monkeypatch):
    text = FAULTS[fault](monkeypatch)
    with pytest.raises(UnsupportedQuery, match="does not come through"):
        Linked().source(text)
    for name in ("check", "check_local"):
        monkeypatch.setattr(analysis, name, lambda *given: None)
    db = Linked()
    assert any(db.violations([text], seed, 8) for seed in range(40))


LEAF = 'SELECT p.age AS age, p.patient AS patient, p.patient AS __dp_unit FROM "memory"."main"."patients" AS p'
BARE = 'SELECT v.cost AS x FROM "memory"."main"."visits" AS v'
FLOORS = 'SELECT w.floor AS x FROM "memory"."main"."wards" AS w'


@pytest.mark.parametrize(
    "public",
    [BARE, f"SELECT b.x AS x FROM ({BARE}) AS b", f"SELECT b.x AS x FROM (SELECT a.x AS x FROM ({BARE}) AS a) AS b",
     f"SELECT count(*) AS x FROM ({BARE}) AS b", f"SELECT b.x AS x FROM ({FLOORS}) AS w JOIN ({BARE}) AS b ON b.x = w.x",
     f"SELECT b.x AS x FROM ({BARE}) AS b UNION ALL SELECT w.x AS x FROM ({FLOORS}) AS w"],
)  # fmt: skip
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_a_linked_table_without_its_parent_passes_nowhere_for_a_public_one(join, public):
    """The second opinion by itself: rows of people, read without whose they are, at any depth."""
    db = Linked()

    def check(relation: str) -> None:
        sql = f"SELECT r.age AS age, r.__dp_unit AS __dp_unit FROM ({LEAF}) AS r {join} ({relation}) AS c ON r.age = c.x"
        unit_local.UnitLocal(table("patients"), "patient", db.ways).check(serialized(db.cursor, sql)["statements"][0])

    check(f"SELECT b.x AS x FROM ({FLOORS}) AS b")
    with pytest.raises(UnsupportedQuery, match="without its parent|the sides of a set operation"):
        check(public)
