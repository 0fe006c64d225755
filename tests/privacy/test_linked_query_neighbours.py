"""Queries over linked tables on neighbouring databases: without all rows of one unit in all tables, exact counters move by what is charged.

The choice of rows is replayed by its salt; what the plan claims is `dpsql.estimates.measures.sensitivity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from dpsql.udfs import instance_of
from made_once import in_memory
from pairwise import WHOLE
from query_readings import SALT, Readings, excess, excess_before, excess_picks, replayed
from sqlglot import exp

import dpsql
from dpsql.answers import rehearsing
from dpsql.domains import encoding
from dpsql.kinds.query import measure as measured
from dpsql.measure import query as reading
from dpsql.measure import rows
from dpsql.measure.statement import Statement
from dpsql.noise import discrete
from dpsql.protected.source import resolve
from dpsql.purchase import measuring
from dpsql.session.instance import open_context
from dpsql.source import analysis, ways
from dpsql.source.linked import Orphans

TABLES = """
CREATE TABLE patients(patient {kind} PRIMARY KEY, sex VARCHAR, age INTEGER, family INTEGER);
CREATE TABLE visits(visit BIGINT UNIQUE, patient {kind}, ward INTEGER, cost DOUBLE, day DATE);
CREATE TABLE procedures(visit BIGINT, code VARCHAR, price DECIMAL(9,2));
CREATE TABLE labs(visit BIGINT, value INTEGER);
CREATE TABLE wards(ward INTEGER PRIMARY KEY, floor VARCHAR);
INSERT INTO wards VALUES (0, 'first'), (1, 'first'), (2, 'second');
INSERT INTO patients SELECT {name}, ['f', 'm'][1 + i % 2], 20 + i * 7 % 60, i // 2 FROM range(10) t(i);
INSERT INTO visits SELECT i, CASE WHEN p < 11 THEN {at} END, i % 4, i % 100, DATE '2020-01-01' + (i * 7 % 300)::INTEGER
    FROM (SELECT i, (i * 5 + i // 9) % 12 AS p FROM range(40) t(i));
INSERT INTO visits SELECT 100 + i, {seven}, i % 3, [1e308, 'nan', 'inf', '-inf', NULL, 50][1 + i % 6]::DOUBLE, DATE '2020-06-06' FROM range(25) t(i);
INSERT INTO visits VALUES (NULL, {seven}, 1, 5, NULL);
INSERT INTO procedures SELECT i % 45, 'c' || i % 3, i % 50 FROM range(120) t(i);
INSERT INTO procedures SELECT 100 + i % 3, 'only here', 99 FROM range(30) t(i);
INSERT INTO procedures VALUES (NULL, 'c0', 1), (5000, 'c1', 2);
INSERT INTO labs SELECT i * 3 % 50, i % 5 FROM range(90) t(i);
INSERT INTO labs SELECT 100 + i % 2, 4 FROM range(20) t(i);
"""
SHAPES: dict[str, tuple[str, Orphans]] = {
    "numbers": ("INTEGER", "drop"), "numbers, orphans are a unit": ("INTEGER", "unit"),
    "texts": ("VARCHAR", "drop"), "families": ("family", "drop"), "families, orphans are a unit": ("family", "unit"),
    "a row is a person": ("none", "drop"),
}  # fmt: skip
QUERIES: list[tuple[str, str]] = [
    ("SELECT count(*), sum(cost), avg(cost) FROM visits", ""),
    ("SELECT code, count(*), sum(price) FROM procedures GROUP BY code", ""),
    ("SELECT code, count(*) FROM procedures GROUP BY code", "groups := 'private'"),
    ("SELECT p.sex, count(*), avg(v.cost) FROM visits v JOIN patients p USING (patient) GROUP BY p.sex", ""),
    ("SELECT p.sex, count(*) FROM patients p LEFT JOIN visits v USING (patient) GROUP BY p.sex", "max_rows_per_group := 3"),
    ("SELECT p.sex, q.code, sum(q.price) FROM procedures q JOIN visits v USING (visit) JOIN patients p USING (patient) GROUP BY ALL", "max_groups := 2, max_rows_per_group := 3"),
    ("SELECT count(*), sum(q.price) FROM procedures q, visits v, patients p WHERE q.visit = v.visit AND v.patient = p.patient AND p.age > 30", "max_rows_per_group := 7"),
    ("SELECT count(*), sum(a.value) FROM labs a JOIN procedures q ON a.visit = q.visit", ""),
    ("SELECT floor, count(*), sum(q.price) FROM procedures q JOIN visits v USING (visit) LEFT JOIN wards w ON v.ward = w.ward GROUP BY floor", "groups := 'private'"),
    ("SELECT count(*), count(DISTINCT code) FROM procedures", "max_rows_per_group := 4"),
    ("SELECT median(cost), max(cost) FROM visits", "max_rows_per_group := 5"),
    ("SELECT n, count(*) FROM (SELECT visit, count(*) AS n FROM procedures GROUP BY visit) GROUP BY n", "groups := 'private'"),
    ("SELECT count(*), avg(s) FROM (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit)", "bounds := {'s': [0, 300]}"),
    ("SELECT count(*) FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit AND q.code = 'c1')", ""),
    ("SELECT count(*) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit)", ""),
    ("SELECT count(*) FROM procedures WHERE visit IN (SELECT visit FROM labs WHERE value > 2)", ""),
    ("SELECT sex, count(*) FROM patients GROUP BY sex", ""),
    ("SELECT count(*) FROM (SELECT visit FROM procedures UNION SELECT visit FROM labs)", ""),
    ("SELECT date_trunc('month', day) AS m, count(*) FROM visits GROUP BY m", ""),
]  # fmt: skip
BY_UNIT = [
    ("SELECT avg(n), count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient)", "bounds := {'n': [0, 20]}"),
    ("SELECT p.sex, avg(s) FROM (SELECT v.patient, sum(q.price) AS s FROM visits v JOIN procedures q USING (visit) GROUP BY v.patient) x JOIN patients p USING (patient) GROUP BY p.sex", "bounds := {'s': [0, 500]}"),
    ("SELECT n, count(*) FROM (SELECT p.patient, count(v.visit) AS n FROM patients p LEFT JOIN visits v USING (patient) GROUP BY p.patient) GROUP BY n", "groups := 'private'"),
    ("SELECT count(*) FROM visits a JOIN visits b ON a.patient = b.patient AND a.day < b.day", ""),
]


def make(shape: str, left_out: object = "nobody") -> duckdb.DuckDBPyConnection:
    """Return a database; whose rows are there is no part of what is declared."""
    con = in_memory(protected, shape)
    if left_out != "nobody":
        remove(con, shape, left_out)
    dpsql.load(con, progress=False)
    return con


def protected(con: duckdb.DuckDBPyConnection, shape: str) -> None:
    kind, orphans = SHAPES[shape]
    text = kind == "VARCHAR"
    con.execute(
        TABLES.format(
            kind="VARCHAR" if text else "INTEGER", name="'p' || i" if text else "i",
            at="'p' || p" if text else "p", seven="'p7'" if text else "7",
        )
    )  # fmt: skip
    dpsql.load(con, progress=False)
    unit = {"family": ", privacy_unit := 'family', max_contributions := 2", "none": ""}.get(kind, ", privacy_unit := 'patient', max_contributions := 1")
    con.execute(f"CALL dp_protect('patients', epsilon := 1000, delta := 1e-6{unit})")
    con.execute(f"CALL dp_link('visits', 'patient', parent := 'patients', max_rows := 4, orphans := '{orphans}')")
    for name in ("procedures", "labs"):
        con.execute(f"CALL dp_link('{name}', 'visit', parent := 'visits', parent_column := 'visit', max_rows := 3, orphans := '{orphans}')")
    for name, column, upper in (("visits", "cost", 100), ("procedures", "price", 50), ("labs", "value", 4), ("patients", "age", 90)):
        con.execute(f"CALL dp_declare('{name}', '{column}', lower := 0, upper := {upper})")
    con.execute("CALL dp_declare('visits', 'day', lower := '2020-01-01', upper := '2020-12-31')")
    con.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2'])")
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")


def units_of(shape: str) -> list[object]:
    """Return units that are taken out: one with many rows, an ordinary one or rows without one."""
    kind, orphans = SHAPES[shape]
    many, ordinary = {"VARCHAR": ("p7", "p3"), "family": (3, 1)}.get(kind, (7, 3))
    return [many] if shape == "numbers" else [many, None if orphans == "unit" else ordinary]


def remove(con: duckdb.DuckDBPyConnection, shape: str, unit: object) -> None:
    """Remove all rows of a unit from all tables; by the definition of whose they are."""
    column = "family" if SHAPES[shape][0] == "family" else "patient"
    given = "NULL" if unit is None else repr(unit)
    own = f"SELECT visit FROM whose WHERE unit IS NOT DISTINCT FROM {given} AND visit IS NOT NULL"
    lost = f"{given} IS NULL AND (visit IS NULL OR visit NOT IN (SELECT visit FROM whose WHERE visit IS NOT NULL))"
    con.execute(
        f"CREATE TEMP TABLE whose AS SELECT v.visit, v.rowid AS place, p.{column} AS unit FROM visits v LEFT JOIN patients p ON p.patient = v.patient"
    )
    for name in ("procedures", "labs"):
        con.execute(f"DELETE FROM {name} WHERE visit IN ({own}) OR ({lost})")
    con.execute(f"DELETE FROM visits WHERE rowid IN (SELECT place FROM whose WHERE unit IS NOT DISTINCT FROM {given})")
    con.execute(f"DELETE FROM patients WHERE {column} IS NOT DISTINCT FROM {given}; DROP TABLE whose")


def asked(shape: str) -> list[tuple[str, str]]:
    kind, orphans = SHAPES[shape]
    every = [*QUERIES, *(BY_UNIT if kind != "family" else [])]
    return every if (kind, orphans) in (("INTEGER", "drop"), ("family", "unit")) else every[list(SHAPES).index(shape) % 4 :: 4]


def read(
    con: duckdb.DuckDBPyConnection, texts: list[tuple[str, str]], patch: pytest.MonkeyPatch, earlier: Readings | None = None
) -> Readings:
    """Return what is read for some queries; ``earlier``: whose histograms take the place of those that come before the counters."""
    patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: np.asarray(counts, dtype=np.int64))
    with replayed(patch, None, earlier) as found:
        for place, (sql, more) in enumerate(texts):
            quoted = sql.replace("'", "''")
            con.execute(f"FROM dp_query('{quoted}', epsilon := 5{', ' if more else ''}{more}, delta := 1e-12, release := 'q{place}')").fetchall()
    return found


@pytest.fixture(scope="module")
def whole() -> dict[str, Readings]:
    """What is read of the database with all units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsing, "rehearse", lambda *given: None)
        return {shape: read(make(shape), asked(shape), patch) for shape in SHAPES}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("unrehearsed")
def test_counters_move_by_what_is_charged(shape, whole, monkeypatch):
    texts = asked(shape)
    reached = 0.0
    for unit in units_of(shape):
        other = read(make(shape, unit), texts, monkeypatch, whole[shape])
        for (plan, one), (_, two) in zip(whole[shape].before, other.before, strict=True):
            assert max(excess_before(plan, one, two), default=0) <= 1, (plan.asked, unit)
        for (plan, _), *kept in zip(whole[shape].before, whole[shape].ranks, other.ranks, strict=True):
            assert max(excess_picks(plan, *kept), default=0) <= 1, (plan.asked, unit)
        assert len(other.found) == len(whole[shape].found) == len(texts)
        differing = 0
        for (sql, more), (plan, one), (other_plan, two) in zip(texts, whole[shape].found, other.found, strict=True):
            assert plan == other_plan, sql
            most = max(max(pair) for pair in excess(plan, one, two))
            assert most <= 1, (sql, more, unit, most)
            reached, differing = max(reached, most), differing + (most > 0)
        assert unit is None or differing > len(texts) // 2, unit
    assert reached == pytest.approx(1), "the bound is reached: it is not too large either"


def test_a_visit_that_moves_to_another_patient_changes_two_units(whole, monkeypatch):
    """Both are taken out and put back otherwise: two units replaced, or four steps of one unit more or fewer."""
    con = make("numbers")
    con.execute("UPDATE visits SET patient = 3 WHERE visit = 101")
    other = read(con, asked("numbers"), monkeypatch, whole["numbers"])
    for neighbors, steps in (("add_remove", 4), ("replace_one", 2)):
        pairs = zip(whole["numbers"].found, other.found, strict=True)
        found = [max(max(pair) for pair in excess(plan, one, two, neighbors)) for (plan, one), (_, two) in pairs]
        assert 0 < max(found) <= steps


COUNTED = ("visits", "procedures", "SELECT p.sex, v.cost, v.ward FROM visits v JOIN patients p USING (patient)")


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_counts_change_by_the_rows_of_a_unit(shape):
    """Rows of a release of tables: what is encoded of both databases differs by at most the bound of a unit."""
    found: dict[str, list[Counter]] = {text: [] for text in COUNTED}
    most: dict[str, int] = {}
    for unit in ("nobody", *units_of(shape)):
        con = make(shape, unit)
        instance = instance_of(con)
        assert instance is not None
        for text in COUNTED:
            with open_context(instance, "memory", "main") as context:
                protected = resolve(context, text, local=True)
                domain, _ = protected.attributes()
            most[text] = protected.protection.max_contributions
            assert protected.protection.privacy_unit is not None and protected.source.most == most[text]
            sql = encoding.encode_sql(protected.source.sql, domain, unit=True, max_contributions=most[text], salt=SALT)
            found[text].append(Counter(con.execute(sql).fetchall()))
    for text, (whole_, *others) in found.items():
        moved = [sum((whole_ - other).values()) + sum((other - whole_).values()) for other in others]
        assert max(moved) <= most[text] and any(sum((whole_ - other).values()) > 0 for other in others)


@pytest.mark.parametrize(
    ("text", "bound", "claimed"),
    [
        ("SELECT count(*) FROM procedures", 10**6, 2),
        ("SELECT count(*), sum(a.value) FROM labs a JOIN procedures q ON a.visit = q.visit", 36, 12),
    ],
    ids=["a bound that is forgotten", "a sibling join that is counted once"],
)
def test_a_bound_that_is_too_wide_is_found(text, bound, claimed, monkeypatch):
    """The counters of a unit that has more rows than it may have move by more than is claimed."""
    real = reading.counted
    monkeypatch.setattr(reading, "counted", lambda cursor, protected, plan, *early: real(cursor, protected, replace(plan, max_rows=bound), *early))
    one, two = (read(make("numbers", unit), [(text, f"max_rows_per_group := {claimed}")], monkeypatch) for unit in ("nobody", 7))
    (plan, first), (_, second) = one.found[0], two.found[0]
    assert plan.max_rows == claimed
    assert max(max(pair) for pair in excess(plan, first, second)) > 1


def test_a_level_that_is_forgotten_is_found(monkeypatch):
    """Rows of which the way up ends at their visit: those of one patient are bounded as if they were of several people."""
    up = ways.Ways.up

    def stops(self, lineage, alias):
        join, unit = up(self, lineage, alias)
        return (join, unit) if len(lineage.hops) == 1 else (join, exp.column(ways.KEY, table=unit.args["table"], quoted=True))

    monkeypatch.setattr(ways.Ways, "up", stops)
    text = [("SELECT count(*) FROM procedures", "max_rows_per_group := 3")]
    with pytest.raises(duckdb.Error, match="does not come through"):
        read(make("numbers"), text, monkeypatch)
    for name in ("check", "check_local"):
        monkeypatch.setattr(analysis, name, lambda *given: None)
    one, two = (read(make("numbers", unit), text, monkeypatch) for unit in ("nobody", 7))
    assert max(max(pair) for pair in excess(one.found[0][0], one.found[0][1], two.found[0][1])) > 1


# -- rows of light units are read as they are, those of heavy ones bounded; read once, or joined with groups after they are added up ----


AS_THEY_ARE = [
    *QUERIES[:3], *QUERIES[9:11], *QUERIES[16:],
    ("SELECT code, count(*), avg(price), count(DISTINCT visit) FROM procedures GROUP BY code", "max_groups := 2, max_rows_per_group := 3"),
    ("SELECT ward, median(cost) FROM visits GROUP BY ward", "groups := 'private', max_groups := 3, max_rows_per_group := 2"),
    ("SELECT floor, count(*), sum(v.cost) FROM visits v LEFT JOIN wards w ON v.ward = w.ward GROUP BY floor", "groups := 'private'"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "shape"), [*enumerate(("numbers, orphans are a unit", "families", "a row is a person"))])
@pytest.mark.usefixtures("unrehearsed")
def test_counters_of_linked_rows_are_those_of_rows_that_are_all_bounded(place, shape, monkeypatch):
    """Whichever way they are read, the same rows of every unit are kept, orphans among them. Both other ways take turns."""
    found = []
    listed: list[str | None] = []
    plain = rows.heavy_units

    @contextmanager
    def noted(*given: object) -> Iterator[str | None]:
        with plain(*given) as heavy:
            listed.append(heavy)
            yield heavy

    for turn, way in enumerate(("as they are", "all bounded", "read again, joined before")):
        con = make(shape)
        texts = AS_THEY_ARE if turn == 0 or WHOLE else AS_THEY_ARE[(place + turn) % 2 :: 2]
        with monkeypatch.context() as patch:
            patch.setattr(reading, "heavy_units", (lambda *_: nullcontext(None)) if way == "all bounded" else noted)
            if way == "read again, joined before":
                patch.setattr(Statement, "holds", property(lambda made: made.held is not None))
                patch.setattr(Statement, "after", property(lambda _: False))
            found.append(dict(zip(texts, read(con, texts, patch).found, strict=True)))
        con.close()
    as_they_are, *others = found
    for text, (other_plan, other) in (pair for one in others for pair in one.items()):
        plan, one = as_they_are[text]
        assert plan == other_plan and one.groups == other.groups, text
        assert [block.tolist() for block in one.blocks] == [block.tolist() for block in other.blocks], text
    assert None in listed and any(listed), "some have heavy units, of some it is not asked"


def _light(patch: pytest.MonkeyPatch) -> None:
    """Units above the bound are not noticed."""
    asked_of = rows.above_bounds
    patch.setattr(rows, "above_bounds", lambda protected, plan: asked_of(protected, replace(plan, max_rows=10**6)))


def _nobody_without_a_unit(patch: pytest.MonkeyPatch) -> None:
    """Rows of the unit NULL meet no heavy unit."""
    side = Statement._side
    patch.setattr(Statement, "_side", lambda made, join: side(made, join).replace(" IS NOT DISTINCT FROM ", " = "))


@pytest.mark.parametrize(
    ("plant", "shape", "unit"),
    [(_light, "numbers", 7), (_light, "families, orphans are a unit", 3), (_nobody_without_a_unit, "numbers, orphans are a unit", None)],
)
@pytest.mark.usefixtures("unrehearsed")
def test_a_heavy_unit_of_linked_rows_that_seems_light_is_found(plant, shape, unit, monkeypatch):
    text = [("SELECT count(*) FROM visits", "max_rows_per_group := 2")]
    for planted in (False, True):
        if planted:
            plant(monkeypatch)
        one, two = (read(make(shape, gone), text, monkeypatch) for gone in ("nobody", unit))
        most = max(max(pair) for pair in excess(one.found[0][0], one.found[0][1], two.found[0][1]))
        assert (most > 1) == planted, most


@pytest.mark.parametrize("planted", [False, True], ids=["in one snapshot", "in several"])
@pytest.mark.usefixtures("unrehearsed")
def test_rows_that_come_while_heavy_units_are_known_do_not_count(planted, monkeypatch):
    """Another connection gives a light unit many rows, in its own table and in its parent's, after units were looked at."""
    con = make("numbers")
    plain = rows.heavy_units

    @contextmanager
    def meanwhile(*given: object) -> Iterator[str | None]:
        with plain(*given) as heavy:
            con.cursor().execute("UPDATE visits SET patient = 1 WHERE visit >= 100; INSERT INTO visits SELECT 500 + i, 1, 0, 1, NULL FROM range(50) t(i)")
            yield heavy

    monkeypatch.setattr(reading, "heavy_units", meanwhile)
    if planted:
        for module in (measured, measuring):
            monkeypatch.setattr(module, "snapshot", lambda cursor: nullcontext())
    text = [("SELECT count(*) FROM procedures", "max_rows_per_group := 12")]
    [(plan, one)] = read(con, text, monkeypatch).found
    monkeypatch.setattr(reading, "heavy_units", plain)
    [(same, two)] = read(make("numbers", 1), text, monkeypatch).found
    assert plan == same
    assert (max(max(pair) for pair in excess(plan, one, two)) > 1) == planted
