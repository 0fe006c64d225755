"""Unit-local sources: the rows with one unit are a function of that unit's rows, in whatever order they are stored; and faults are found.

The invariant is tried on random tables: one unit's rows are taken out and the others shuffled, and the result has to lose exactly the
rows of that unit. The second opinion is shown SQL that does not carry the unit.
"""

from __future__ import annotations

import functools
import random
from collections import Counter

import pytest
from case_counts import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairwise import WHOLE
from sqlglot import exp
from unit_local_statements import EVERY, EXACT
from unit_local_tables import UNITS, Database, random_table, shown_as, violations

from dpsql.errors import UnsupportedQuery
from dpsql.source import aggregates, binder, combining, layers, rows, unit_joins
from dpsql.source.analysis import TableId

pytestmark = pytest.mark.usefixtures("functions_as_shipped")


@functools.cache
def database(kind: str) -> Database:
    return Database(kind)


def texts_of(kind: str) -> list[str]:
    """Return the statements that are tried with units of this type: all with texts that a collation makes equal, a third with each other one."""
    place = list(UNITS).index(kind)
    return list(EVERY) if WHOLE or place == 0 else list(EVERY[place - 1 :: 3])


@pytest.mark.parametrize("kind", UNITS)
def test_every_statement_is_local(kind):
    assert len(EVERY) >= 60
    for text in texts_of(kind):
        source = database(kind).source(text)
        assert source.local and source.unit == "__dp_unit" and source.row is None and source.filtered, text


@pytest.mark.parametrize("kind", UNITS)
@settings(max_examples=cases(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), size=st.integers(1, 40))
def test_taking_out_a_unit_takes_out_its_rows_and_no_others(kind, seed, size):
    table = random_table(random.Random(seed), kind, size)
    assert violations(database(kind), table, texts_of(kind), seed) == []


def test_more_rows_than_a_thread_takes_at_once():
    rng = random.Random(5)
    table = random_table(rng, "INTEGER", 300)
    db = database("INTEGER")
    db.fill(table)
    db.con.execute("INSERT INTO visits SELECT v.* FROM visits v, range(20)")
    text = "SELECT patient, sum(cost) AS s, avg(cost) AS a, stddev(cost) AS d, mode(cost) AS m FROM visits GROUP BY patient"
    before = db.rows(db.source(text).sql)
    db.con.execute("CREATE OR REPLACE TABLE shuffled AS FROM visits WHERE patient IS DISTINCT FROM 2 ORDER BY hash(age, cost, day, 7)")
    db.con.execute("DELETE FROM visits; INSERT INTO visits FROM shuffled")
    after = db.rows(db.source(text).sql)
    assert after == Counter({row: n for row, n in before.items() if row[-1] != 2}) and len(after) == 3


@pytest.fixture(scope="module")
def filled():
    """A table in which no rows tie."""
    db = database("INTEGER")
    ages, days = list(range(40)), [f"2020-{m:02d}-{d:02d}" for m in (1, 2, 3) for d in range(1, 14)] + ["2021-01-01"]
    rng = random.Random(3)
    db.fill([(rng.randint(1, 9), 2 * ages[i] + 1, i / 4, days[i], rng.choice(("k0", "k1", "k2", None)), "n" + str(i), i % 3 == 0, i / 8, i, i, None)
             for i in range(40)])
    return db


@pytest.mark.parametrize("text", EXACT)
def test_the_rows_are_those_of_the_text(filled, text):
    db, source = filled, filled.source(text)
    shown = ", ".join(f'"{c.name}"' for c in source.columns)
    wanted = Counter(tuple(map(shown_as, row)) for row in db.con.execute(text).fetchall())
    found = Counter(tuple(map(shown_as, row)) for row in db.con.execute(f"SELECT {shown} FROM ({source.sql})").fetchall())
    assert wanted and wanted == found


# -- faults ------------------------------------------------------------------------------------------------------------------


def found_by_the_property(kind: str, texts, tables: int = 12, size: int = 30) -> bool:
    db = Database(kind)
    return any(violations(db, random_table(random.Random(i), kind, size), texts, i) for i in range(tables))


def without_second_opinion(monkeypatch) -> None:
    monkeypatch.setattr(binder.UnitLocal, "check", lambda self, statement: self.read.update(['"memory"."main"."visits"']))


def no_unit_in_windows(monkeypatch) -> str:
    real = combining._over

    def planted(window, over, names, tied):
        out = real(window, over, names, tied)
        out.set("partition_by", out.args["partition_by"][1:])
        return out

    monkeypatch.setattr(combining, "_over", planted)
    monkeypatch.setattr(combining, "tells_unit", lambda node, scope: True)
    return "SELECT patient, count(*) OVER (PARTITION BY kind) AS n FROM visits"


def no_unit_in_groups(monkeypatch) -> str:
    real = layers.Layer.close

    def planted(self, select=None, **more):
        if select is not None and select.args.get("group"):
            select.set("group", exp.Group(expressions=select.args["group"].expressions[1:]))
            unit = select.expressions[-1]
            unit.set("this", exp.func("min", unit.this))
        return real(self, select, **more)

    monkeypatch.setattr(layers.Layer, "close", planted)
    monkeypatch.setattr(combining, "tells_unit", lambda node, scope: True)
    return "SELECT kind, count(*) AS n FROM visits GROUP BY kind"


def no_unit_in_joins(monkeypatch) -> str:
    monkeypatch.setattr(unit_joins.Joins, "_same_unit", staticmethod(lambda node, left, item, both: False))
    monkeypatch.setattr(unit_joins, "unit_column", lambda alias: exp.true())
    monkeypatch.setattr(unit_joins, "_SAME_UNIT", "")

    def planted(self, rows_, join, rest):
        item = self.analysis._item(join.this, self.view)
        both = unit_joins.replace(rows_.scope, items=[*rows_.scope.items, item])
        written = [self._condition(c, unit_joins.Rewriter(both)) for c in unit_joins.conditions_of(join.args["on"])]
        rows_.joined(item, unit_joins.joined(item, None, None, written))
        return rows_

    monkeypatch.setattr(unit_joins.Joins, "join", planted)
    return "SELECT a.age FROM visits a JOIN visits b ON a.kind = b.kind"


STRUCTURAL = {"a window": no_unit_in_windows, "a group": no_unit_in_groups, "a join": no_unit_in_joins}


@pytest.mark.parametrize("fault", STRUCTURAL)
def test_a_lost_unit_is_found_by_the_second_opinion_and_by_the_property(fault, monkeypatch):
    with monkeypatch.context() as planted:
        text = STRUCTURAL[fault](planted)
        with pytest.raises(UnsupportedQuery, match="does not come through"):
            Database("INTEGER").source(text)
        without_second_opinion(planted)
        assert found_by_the_property("INTEGER", [text])


def test_a_unit_that_is_compared_with_its_collation_is_found(monkeypatch):
    monkeypatch.setattr(rows, "unit_value", lambda column, sql_type: column)
    text = "SELECT a.age FROM visits a JOIN visits b ON a.patient = b.patient"
    assert found_by_the_property("VARCHAR COLLATE NOCASE", [text])


def test_ties_that_are_not_broken_are_found(monkeypatch):
    real = combining._over
    monkeypatch.setattr(combining, "_over", lambda window, over, names, tied: real(window, over, names, []))
    assert found_by_the_property("INTEGER", ["SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY kind) AS r, age FROM visits"])


def test_zeros_that_are_not_made_one_are_found(monkeypatch):
    monkeypatch.setattr(layers, "canonical", lambda value, sql_type: value)
    monkeypatch.setattr(aggregates, "canonical", lambda value, sql_type: value)
    assert found_by_the_property("INTEGER", ["SELECT DISTINCT patient, cost FROM visits"], tables=40)


def test_sums_in_the_order_of_the_table_are_found(monkeypatch):
    monkeypatch.setattr(aggregates, "_of_list", lambda kind: lambda found: exp.func("list_aggregate", found, exp.Literal.string(kind)))
    assert found_by_the_property("INTEGER", ["SELECT patient, sum(cost) AS s FROM visits GROUP BY patient"])


# -- the second opinion ---------------------------------------------------------------------------------------------------------

LEAF = '(SELECT t.kind AS kind, t.age AS age, t.patient AS __dp_unit FROM "memory"."main"."visits" AS t)'
CARRIED = (
    f"SELECT s.kind AS kind, s.__dp_unit AS __dp_unit FROM {LEAF} AS s",
    f"SELECT count(*) AS n, s.__dp_unit AS __dp_unit FROM {LEAF} AS s GROUP BY s.__dp_unit, s.kind",
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a JOIN {LEAF} AS b ON a.__dp_unit = b.__dp_unit AND a.age < b.age",
    f"SELECT a.age AS age, COALESCE(a.__dp_unit, b.__dp_unit) AS __dp_unit FROM {LEAF} AS a FULL JOIN {LEAF} AS b ON a.__dp_unit = b.__dp_unit",
)
LOST = (
    f"SELECT s.kind AS kind FROM {LEAF} AS s",
    f"SELECT s.kind AS __dp_unit FROM {LEAF} AS s",
    f"SELECT s.age + 1 AS a, lower(s.__dp_unit) AS __dp_unit FROM {LEAF} AS s",
    f"SELECT count(*) AS n, s.__dp_unit AS __dp_unit FROM {LEAF} AS s GROUP BY s.kind, s.__dp_unit || ''",
    f"SELECT count(*) AS n, min(s.__dp_unit) AS __dp_unit FROM {LEAF} AS s GROUP BY s.kind",
    f"SELECT count(*) AS n, s.__dp_unit AS __dp_unit FROM {LEAF} AS s GROUP BY GROUPING SETS ((s.__dp_unit), ())",
    f"SELECT count(*) OVER () AS n, s.__dp_unit AS __dp_unit FROM {LEAF} AS s",
    f"SELECT s.age + count(*) OVER (PARTITION BY s.kind) AS n, s.__dp_unit AS __dp_unit FROM {LEAF} AS s",
    f"SELECT DISTINCT s.kind AS kind, s.__dp_unit AS __dp_unit FROM {LEAF} AS s",
    f"SELECT s.kind AS kind, s.__dp_unit AS __dp_unit FROM {LEAF} AS s LIMIT 3",
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a JOIN {LEAF} AS b ON a.kind = b.kind",
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a JOIN {LEAF} AS b ON a.__dp_unit = b.__dp_unit OR a.kind = b.kind",
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a JOIN {LEAF} AS b ON a.__dp_unit < b.__dp_unit",
    f"SELECT a.age AS age, b.__dp_unit AS __dp_unit FROM {LEAF} AS a LEFT JOIN {LEAF} AS b ON a.__dp_unit = b.__dp_unit",
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a FULL JOIN {LEAF} AS b ON a.__dp_unit = b.__dp_unit",
    f'SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a RIGHT JOIN "memory"."main"."loose" AS b ON a.kind = b.kind',
    f"SELECT a.age AS age, a.__dp_unit AS __dp_unit FROM {LEAF} AS a SEMI JOIN {LEAF} AS b ON a.kind = b.kind",
    f"SELECT s.age AS age, s.__dp_unit AS __dp_unit FROM {LEAF} AS s WHERE s.age > (SELECT max(t.age) FROM {LEAF} AS t)",
    f"SELECT x.k AS k, x.__dp_unit AS __dp_unit FROM (SELECT s.kind AS k, s.__dp_unit AS __dp_unit FROM {LEAF} AS s UNION ALL SELECT s.__dp_unit AS __dp_unit, s.kind AS k FROM {LEAF} AS s) AS x",
    "SELECT t.age AS age, t.kind AS __dp_unit FROM \"memory\".\"main\".\"visits\" AS t",
    "SELECT t.age AS age, concat(t.patient, t.kind) AS __dp_unit FROM \"memory\".\"main\".\"visits\" AS t",
)


def ask(text: str) -> None:
    tree = binder.serialized(database("INTEGER").cursor, text)
    assert not tree.get("error"), tree
    binder.UnitLocal(TableId("memory", "main", "visits"), "patient").check(tree["statements"][0])


@pytest.mark.parametrize("text", CARRIED)
def test_the_second_opinion_accepts(text):
    ask(text)


@pytest.mark.parametrize("text", LOST)
def test_the_second_opinion_refuses(text):
    with pytest.raises(UnsupportedQuery, match="does not come through"):
        ask(text)
