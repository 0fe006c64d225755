"""Rules that leave some parents without any possible child: what is bought can be written, or is refused before it is charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.domains.attributes import Attribute, Domain
from dpsql.methods.nested_classes import Block, blocks
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.rows.zeros import emptied
from dpsql.rules import across, possible

pytestmark = pytest.mark.any_duckdb

DAYS = "lower := DATE '2000-01-01', upper := DATE '2009-12-31'"
BUY = "FROM dp_synthesize_tables('p', epsilon := 1, into_schema := 'synth', release := '{}', options := {{'effort': 'fast'}})"
NO_ORPHANS = """
SELECT count(*) FROM (SELECT vid FROM synth.q ANTI JOIN synth.v USING (vid) UNION ALL SELECT id FROM synth.v ANTI JOIN synth.p USING (id))
"""
TABLES = """
CREATE TABLE p (id INTEGER PRIMARY KEY, s VARCHAR, born DATE, w INTEGER);
CREATE TABLE v (vid INTEGER PRIMARY KEY, id INTEGER REFERENCES p (id), c VARCHAR, d VARCHAR, day DATE, cost INTEGER);
CREATE TABLE q (vid INTEGER REFERENCES v (vid), k VARCHAR, done DATE);
INSERT INTO p SELECT i, ['f', 'm', 'x'][1 + i % 3], DATE '2000-01-01' + (i * 37 % 3600)::INTEGER, i % 90 FROM range(1200) t(i);
INSERT INTO v SELECT row_number() OVER (), id, ['x', 'y'][1 + (id * 7 + j) % 2], ['a', 'b'][1 + (id * 5 + j) % 3 % 2],
    least(born + ((id * 11 + j) % 400)::INTEGER, DATE '2009-12-31'), (id * 13 + j * 7) % 50 FROM p, range(3) r(j) WHERE s = 'f';
INSERT INTO q SELECT vid, ['k0', 'k1'][1 + vid % 2], day + (vid % 9)::INTEGER FROM v, range(2) r(j) WHERE c = 'x';
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[duckdb.DuckDBPyConnection]:
    """Patients of sex f alone have visits, visits of kind x alone have procedures; a budget for all tests."""
    with duckdb.connect() as con:
        con.execute(TABLES)
        dpsql.load(con, user="tester", progress=False)
        con.execute("CALL dp_protect('p', epsilon := 1000, delta := 1e-6, privacy_unit := 'id', max_contributions := 1)")
        con.execute("CALL dp_link('v', 'id', parent := 'p', max_rows := 4)")
        con.execute("CALL dp_link('q', 'vid', parent := 'v', max_rows := 3)")
        con.execute("CALL dp_declare('p', 's', categories := ['f', 'm', 'x'], nullable := false)")
        con.execute(f"CALL dp_declare('p', 'born', {DAYS}, bins := 10, nullable := false)")
        con.execute("CALL dp_declare('p', 'w', lower := 0, upper := 90, nullable := false)")  # its bins are bought
        con.execute("CALL dp_declare('v', 'c', categories := ['x', 'y', 'z'], nullable := false)")
        con.execute("CALL dp_declare('v', 'd', categories := ['a', 'b'], nullable := false)")
        con.execute(f"CALL dp_declare('v', 'day', {DAYS}, bins := 10, nullable := false)")
        con.execute("CALL dp_declare('v', 'cost', lower := 0, upper := 50)")
        con.execute("CALL dp_declare('q', 'k', categories := ['k0', 'k1', 'k2'], nullable := false)")
        yield con


@pytest.fixture
def con(shared: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database, its rules taken back afterwards."""
    yield shared
    for source in ("p", "v", "q"):
        for (rule,) in shared.execute(f"SELECT labels FROM dp_domain('{source}') WHERE status = 'declared' AND kind = 'rule'").fetchall():
            shared.execute("FROM dp_rule(?, ?, remove := true)", [source, rule])


def charges(con: duckdb.DuckDBPyConnection) -> int:
    (found,) = con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() or (0,)
    return int(found)


@pytest.mark.parametrize(
    ("rules", "visits", "procedures"),
    [
        ([("v", "p.s = 'f' AND c IN ('x', 'y')")], (900, 1500), (800, 1600)),
        ([("v", "p.s = 'f'")], (900, 1500), (800, 1600)),
        ([("v", "p.s = 'f' AND c = 'x'"), ("v", "p.s = 'f' AND d = 'a'"), ("q", "v.c = 'x' AND v.d = 'a' AND k = 'k1'")], (800, 1500), (300, 3000)),
        ([("q", "p.s = 'f' AND v.c = 'x' AND k IN ('k0', 'k1')")], (900, 1500), (700, 1600)),
        ([("q", "p.s = 'f'")], (900, 1500), (700, 1600)),
        ([("v", "(p.s = 'f' OR p.w < 20) AND day >= born")], (700, 1500), (400, 1600)),
        # no row of the data obeys the first, hardly one the second: by the draw there may be none
        ([("v", "day >= born + INTERVAL 9 YEAR AND p.w > 40")], (0, 900), (0, 900)),
        ([("v", "cost = p.w AND p.w > 45")], (0, 1200), (0, 1200)),
    ],
)  # fmt: skip
def test_what_is_bought_is_written_and_obeys(
    con: duckdb.DuckDBPyConnection, rules: list[tuple[str, str]], visits: tuple[int, int], procedures: tuple[int, int]
) -> None:
    for source, rule in rules:
        con.execute("FROM dp_rule(?, ?)", [source, rule])
    con.execute(BUY.format("".join(one for one in f"{rules}" if one.isalnum())[:60]))
    measured = "SELECT sum(error) FROM dp_evaluate('p', 'synth') WHERE measure IN ('broken rule', 'orphans') AND level <> 'summary'"
    assert con.execute(measured).fetchone() == (0.0,)
    assert con.execute(NO_ORPHANS).fetchone() == (0,)
    for table, (low, high) in (("v", visits), ("q", procedures)):
        (rows,) = con.execute(f"SELECT count(*) FROM synth.{table}").fetchone() or (0,)
        assert low <= rows <= high, (table, rows)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([("v", "p.s = 'f' AND c = 'x'"), ("v", "p.s = 'm'")], "v: no values .* obey .*'x'; \"p\".\"s\" = 'm', so it could have no row"),
        ([("v", "p.s = 'f' AND c = 'x'"), ("q", "v.c = 'y' AND k = 'k0'")], "q: no values of the declared domains obey"),
        ([("p", "s = 'm'"), ("v", "p.s = 'f'")], "v: no values of the declared domains obey"),
        ([("v", "length(CAST(cost AS VARCHAR)) + p.w % 7 > 11 AND cost IS NOT NULL")], "v: of 262,144 made-up rows hardly any obeys"),
    ],
)  # fmt: skip
def test_rules_that_leave_no_row_are_refused_before_the_charge(
    con: duckdb.DuckDBPyConnection, rules: list[tuple[str, str]], said: str
) -> None:
    for source, rule in rules:
        con.execute("FROM dp_rule(?, ?)", [source, rule])
    before = charges(con)
    with pytest.raises(duckdb.Error, match=f"{said}.*dp_rule with remove := true"):
        con.execute(BUY.format("never"))
    assert charges(con) == before


def test_a_rule_true_for_no_parent_is_refused_when_it_is_declared(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="no values of the declared domains obey it"):
        con.execute("FROM dp_rule('v', 'p.s = ''f'' AND p.s = ''m''')")


def test_what_was_bought_is_written_anew_whatever_rules_say_now(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A stored release keeps the rules that it was bought with, also where none could be bought by those of today."""
    con.execute("FROM dp_rule('v', 'p.s = ''f''')")
    con.execute(BUY.format("kept"))
    con.execute("FROM dp_rule('v', 'length(CAST(cost AS VARCHAR)) + p.w % 7 > 11 AND cost IS NOT NULL')")
    con.execute("DROP TABLE synth.q; DROP TABLE synth.v; DROP TABLE synth.p")
    before = charges(con)
    con.execute(BUY.format("kept"))
    assert charges(con) == before
    assert con.execute("SELECT count(*) FROM synth.v JOIN synth.p USING (id) WHERE s <> 'f'").fetchone() == (0,)
    (name,) = con.execute("SELECT release FROM dp_releases() WHERE release LIKE '%kept%'").fetchone() or ("",)
    con.execute("FROM dp_report(?, path := ?)", [name, str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").stat().st_size > 0


def numbers(name: str, bins: int) -> Attribute:
    return Attribute(name, "INTEGER", "numeric", edges=tuple(range(0, 10 * bins + 1, 10)), nullable=False)


def test_cells_of_parents_without_children_are_zero() -> None:
    """With a number of children above 0, and of all rows below; a column that only decides together with another one keeps its cells."""
    made = {"orphans": "drop", "primary": None, "foreign": False, "columns": ()}
    root = LinkedTable("main.g", "g", None, 1, link=None, referred=None, keys=("id",), domain=Domain((numbers("a", 3),)), **made)
    above = {"g": ["a"], "p": ["b", "c"]}
    parent = LinkedTable("main.p", "p", 0, 2, link="of", referred="id", keys=("i",), domain=Domain((numbers("b", 2), numbers("c", 2))), **made)
    rules = ["p.b < 10 AND x >= 10", "g.a >= 10", "g.a >= 20 OR p.c < 10"]
    texts = tuple(across.read(rule, ("c", ["x", "y"]), above).text for rule in rules)
    domain = Domain((numbers("x", 2), numbers("y", 2)))
    child = LinkedTable("main.c", "c", 1, 2, link="of", referred="i", keys=(), domain=domain, across=texts, **made)
    plan = LinkedPlan((root, parent, child), (), 1)
    plan = LinkedPlan((root, parent, child), tuple(blocks(plan.shape)), 1)
    with duckdb.connect() as con:
        found = dict(zip(plan.blocks, emptied(con, plan, [np.ones(shape) for shape in plan.shapes]), strict=True))
    assert found[Block("pair", (1, 0), (1, 2))].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert found[Block("pair", (1, 1), (1, 2))].all()
    assert found[Block("across", (0, 0), (1, 2))].tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert found[Block("across", (0, 0), (2, 1))].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert found[Block("across", (1, 0), (2, 0))].tolist() == [[0, 1], [0, 0]]
    assert found[Block("across", (1, 0), (2, 1))].tolist() == [[1, 1], [0, 0]]
    assert found[Block("one", (1, 0))].all() and found[Block("one", (0, 0))].all() and found[Block("across", (0, 0), (1, 0))].all()


def test_choices_are_those_that_are_possible_beside_what_is_given() -> None:
    cells = np.zeros((3, 2, 4), bool)
    cells[1, 0, 2] = cells[2, 1, 2] = cells[0, 1, 3] = True
    found = possible.Choices(cells, [0, 1])
    assert found.barren.tolist() == [True, True, False, False]
    first, second = found.draw(np.array([2] * 50 + [3]), np.random.default_rng(1))
    assert set(zip(first[:50].tolist(), second[:50].tolist(), strict=True)) == {(1, 0), (2, 1)} and (first[50], second[50]) == (0, 1)
    alone = possible.Choices(cells, [0, 1, 2])
    assert alone.place([], 3).tolist() == [0, 0, 0] and not alone.none(np.zeros(1, np.int64)).any()
