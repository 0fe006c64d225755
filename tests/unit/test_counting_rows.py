"""Families of which exactly one row, or at most one, fulfils a condition: made of codes, for random families and many seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from linked_families import planned, table, timed

from dpsql.errors import ArgumentError, DomainError, ReleaseError
from dpsql.methods.nested_classes import Drawn, NestedClasses, uniform
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.rows.counting import Counting
from dpsql.rows.families import Described, Drawing, Model, check_rules
from dpsql.rules import counted

MOST = 6
HOMES, JOBS = table("h", None, 1, (3, 2), nullable=False), table("j", 1, 3, (2,), nullable=False)
PERSONS = table("p", 0, MOST, (3, 4), nullable=False)


def one(condition: str, sign: str = "=") -> str:
    return counted.stored(f"count(*) FILTER (WHERE {condition}) {sign} 1").text


def plan(*rules: str, persons: LinkedTable = PERSONS, **more: tuple[str, ...]) -> LinkedPlan:
    return planned([HOMES, replace(persons, counted=rules, **more), JOBS])


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


def families(linked: LinkedPlan, units: int, seed: int, shares: list[float]) -> list[Drawn]:
    """Return random families: p0 by these shares, numbers of rows from 0 to the most; a home's 'h0' says its size, a job's 'j0' p0."""
    rng = np.random.default_rng(seed)
    size = rng.integers(0, MOST + 1, units)
    parent = np.repeat(np.arange(units), size)
    jobs = rng.integers(0, 4, parent.size)
    found = [np.stack([size // 3, rng.integers(0, 2, units), size], axis=1)]
    p = linked.tables[1].domain.sizes
    own = [rng.choice(len(shares), parent.size, p=shares), *(rng.integers(0, s, parent.size) for s in p[1:])]
    found.append(np.stack([*own, jobs], axis=1))
    above = np.repeat(np.arange(parent.size), jobs)
    found.append(found[1][above, :1] % 2)
    order = None
    if linked.tables[1].order is not None:
        days = np.where(own[-1] < 3, rng.random(parent.size) + np.array([0, 2, 5, np.nan])[np.minimum(own[-1], 3)], np.nan)
        sort = np.lexsort((days, parent))
        order, inverse = days[sort], np.argsort(sort)
        found[1], above = found[1][sort], inverse[above]
        resort = np.argsort(above, kind="stable")
        found[2], above = found[2][resort], above[resort]
    codes = [one.astype(np.int32) for one in found]
    return [Drawn(codes[0], np.zeros(0, np.int64)), Drawn(codes[1], parent, order), Drawn(codes[2], above)]


def settled(con: duckdb.DuckDBPyConnection, linked: LinkedPlan, drawn: list[Drawn], seed: int = 0) -> list[Drawn]:
    found = list(drawn)
    Counting(con, linked, 1, lambda: families(linked, 50, 9, [0.4, 0.3, 0.3]), "r").settle(found, np.random.default_rng(seed))
    return found


def numbers(drawn: list[Drawn], which: np.ndarray) -> np.ndarray:
    """Return how many rows of each parent with some are of a kind."""
    parent = drawn[1].parent
    units = len(drawn[0].codes)
    return np.bincount(parent[which], minlength=units)[np.bincount(parent, minlength=units) > 0]


@pytest.mark.parametrize("shares", [[0.4, 0.3, 0.3], [0.02, 0.5, 0.48], [0.9, 0.05, 0.05], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
@pytest.mark.parametrize("sign", ["=", "<="])
def test_every_family_obeys_whatever_the_shares(con: duckdb.DuckDBPyConnection, shares: list[float], sign: str) -> None:
    linked = plan(one("p0 = 0", sign))
    for seed in range(3):
        before = families(linked, 300, seed, shares)
        after = settled(con, linked, before, seed)
        found = numbers(after, after[1].codes[:, 0] == 0)
        assert (found == 1).all() if sign == "=" else (found <= 1).all()
        assert len(after[1].codes) == len(before[1].codes) and np.array_equal(after[1].parent, before[1].parent), "none is lost"
        assert np.bincount(after[1].parent).max() == MOST
        again = settled(con, linked, before, seed)
        assert all(np.array_equal(mine.codes, theirs.codes) for mine, theirs in zip(after, again, strict=True)), "of the seed alone"


def test_where_as_many_rows_are_counted_as_parents_are_rows_move_and_none_changes(con: duckdb.DuckDBPyConnection) -> None:
    """Tables of columns of a row, of a row and those below it, and numbers of rows stay as they are."""
    linked = plan(one("p0 = 0"))
    drawn = families(linked, 400, 3, [0.3, 0.4, 0.3])
    codes = drawn[1].codes
    parents = int((np.bincount(drawn[1].parent) > 0).sum())
    codes[:, 0] = np.random.default_rng(1).permutation(np.where(np.arange(len(codes)) < parents, 0, 1 + np.arange(len(codes)) % 2))
    drawn[2] = Drawn(codes[drawn[2].parent, :1] % 2, drawn[2].parent)
    after = settled(con, linked, drawn)
    assert (numbers(after, after[1].codes[:, 0] == 0) == 1).all()
    assert sorted(map(tuple, after[1].codes.tolist())) == sorted(map(tuple, codes.tolist()))
    assert np.array_equal(after[2].codes[:, 0], after[1].codes[after[2].parent, 0] % 2), "what is below a row goes with it"
    assert (np.diff(after[2].parent) >= 0).all()
    assert np.array_equal(np.bincount(after[2].parent, minlength=len(codes)), after[1].codes[:, 2]), "numbers of rows below"


def test_several_rules_hold_at_once_and_families_that_cannot_obey_are_left_out(con: duckdb.DuckDBPyConnection) -> None:
    linked = plan(one("p0 = 0"), one("p1 = 3", "<="), one("p0 = 1"))
    for seed in range(3):
        after = settled(con, linked, families(linked, 300, seed, [0.4, 0.2, 0.4]), seed)
        p0, p1 = after[1].codes[:, 0], after[1].codes[:, 1]
        assert (numbers(after, p0 == 0) == 1).all() and (numbers(after, p0 == 1) == 1).all() and (numbers(after, p1 == 3) <= 1).all()
        assert np.bincount(after[1].parent)[np.bincount(after[1].parent) > 0].min() == 2, "a family of one has no room for both"
        assert np.array_equal(np.bincount(after[2].parent, minlength=len(p0)), after[1].codes[:, 2]), "what is below goes too"


def test_rows_in_an_order_stay_in_it(con: duckdb.DuckDBPyConnection) -> None:
    linked = plan(one("p0 = 0 AND p1 < 3"), persons=timed(PERSONS))
    after = settled(con, linked, families(linked, 300, 1, [0.6, 0.2, 0.2]))
    rows = after[1]
    assert rows.order is not None
    assert (numbers(after, (rows.codes[:, 0] == 0) & (rows.codes[:, 1] < 3)) == 1).all()
    known = ~np.isnan(rows.order)
    same = (rows.parent[1:] == rows.parent[:-1]) & known[1:] & known[:-1]
    assert (np.diff(rows.order)[same] >= 0).all()
    assert np.array_equal(np.searchsorted([2, 5], rows.order[known], side="right"), rows.codes[known, 2]), "values are in their bins"


def test_null_is_not_counted(con: duckdb.DuckDBPyConnection) -> None:
    persons = table("p", 0, MOST, (3, 4))  # the last code of each column is NULL
    for condition, codes in (("p0 <> 0", [1, 2]), ("p0 IS NULL", [3]), ("NOT (p0 IN (0, 1))", [2])):
        linked = plan(one(condition), persons=persons)
        after = settled(con, linked, families(linked, 200, 1, [0.2, 0.2, 0.2, 0.4]))
        assert (numbers(after, np.isin(after[1].codes[:, 0], codes)) == 1).all(), condition


def drawing(con: duckdb.DuckDBPyConnection, linked: LinkedPlan, seed: int, units: int = 400) -> Drawing:
    fitted: NestedClasses = uniform(linked.shape)
    return Drawing(con, Described(linked, "r", {}), Model(fitted, units), units, seed)


def test_the_repair_of_other_rules_changes_no_count(con: duckdb.DuckDBPyConnection) -> None:
    """Rules that push counted rows away: by a row's own columns, and by its parent's, beside some of which none can be counted."""
    linked = plan(
        one("p0 = 0"), one("p1 = 3", "<="), rules=('"p0" <> 0 OR "p1" >= 1', '"p0" <> 1 OR "p1" = 2'),
        across=('"p0" <> 0 OR "h"."h0" < 2', '"p1" <> 0 OR "h"."h1" = 1'),
    )  # fmt: skip
    for seed in range(3):
        for drawn in drawing(con, linked, seed).families():
            p, h = drawn[1].codes, drawn[0].codes[drawn[1].parent]
            assert (numbers(drawn, p[:, 0] == 0) == 1).all() and (numbers(drawn, p[:, 1] == 3) <= 1).all()
            assert (h[:, 0] < 2).all(), "no family is without its counted row: beside h0 = 2 there is none"
            broken = (p[:, 0] == 0) & (p[:, 1] < 1) | (p[:, 0] == 1) & (p[:, 1] != 2) | (p[:, 1] == 0) & (h[:, 1] != 1)
            assert not broken.any() and len(p) > 300
            fan_out = drawn[0].codes[:, 2]
            assert np.array_equal(fan_out, np.bincount(drawn[1].parent, minlength=len(fan_out)))
            assert drawn[2].parent.max() < len(p)


def test_rules_of_two_levels_hold_at_once(con: duckdb.DuckDBPyConnection) -> None:
    """Rows move with those below them, and families of the lower table go with rows that are given up; no columns but one."""
    persons, jobs = table("p", 0, MOST, (3,), nullable=False), table("j", 1, 3, (2, 5), nullable=False)
    counting = (one("p0 = 0"), one("j0 = 1"), one("j1 = 4", "<="))
    rules = {"across": ('"j0" = 0 OR "p"."p0" < 2',)}
    linked = planned([table("h", None, 1, ()), replace(persons, counted=counting[:1]), replace(jobs, counted=counting[1:], **rules)])
    for seed in range(2):
        for drawn in drawing(con, linked, seed).families():
            p, j = drawn[1].codes, drawn[2].codes
            assert (numbers(drawn, p[:, 0] == 0) == 1).all()
            jobs_of = np.bincount(drawn[2].parent, minlength=len(p))
            assert (np.bincount(drawn[2].parent[j[:, 0] == 1], minlength=len(p)) == (jobs_of > 0)).all()
            assert np.bincount(drawn[2].parent[j[:, 1] == 4]).max() == 1
            assert (jobs_of[p[:, 0] == 2] == 0).all() and len(j) > 300, "beside p0 = 2 no job can be counted"
            assert np.array_equal(jobs_of, p[:, 1])


def test_parts_and_families_are_the_same_rows(con: duckdb.DuckDBPyConnection) -> None:
    linked = plan(one("p0 = 0"), rules=('"p0" <> 0 OR "p1" >= 1',))
    written = [part.frame for part in drawing(con, linked, 1).parts() if part.table == 1]
    codes = [drawn[1].codes for drawn in drawing(con, linked, 1).families()]
    assert sum(map(len, written)) == sum(map(len, codes))
    assert np.array_equal(np.concatenate([frame["v0"] for frame in written]).astype(int), np.concatenate(codes)[:, 0])


def test_without_such_rules_nothing_is_another_draw(con: duckdb.DuckDBPyConnection) -> None:
    """Old releases give the rows that they gave; a rule that holds anyhow moves none."""
    plain, always = plan(), plan(one("p0 = 7", "<="))
    first, second = ([d for d in drawing(con, linked, 1).families()] for linked in (plain, always))
    for mine, theirs in zip(first, second, strict=True):
        assert all(np.array_equal(a.codes, b.codes) for a, b in zip(mine, theirs, strict=True))


def test_a_stored_plan_is_read_and_an_edited_one_refused(con: duckdb.DuckDBPyConnection) -> None:
    linked = plan(one("p0 = 0"))
    item = linked.to_json()
    assert LinkedPlan.from_json(item).to_json() == item and LinkedPlan.from_json(item).counted(1) == linked.counted(1)
    assert "counted" not in plan().to_json()["tables"][1], "what an older dpsql wrote is what is written without such rules"
    bad = ('"p0" = 0', "count(*) FILTER (WHERE \"p9\" = 0) = 1", "count(*) FILTER (WHERE p0 = 0) = 1", one("p0 = 0").replace("= 1", "= 2"))
    for text in bad:
        item["tables"][1]["counted"] = [text]
        with pytest.raises((ValueError, ArgumentError)):
            LinkedPlan.from_json(item)
    item["tables"][1]["counted"], item["tables"][0]["counted"] = [], [one("h0 = 0")]
    with pytest.raises(ValueError, match="not a plan"):
        LinkedPlan.from_json(item)
    edited = plan(one("day < 3"), persons=timed(PERSONS))
    with pytest.raises(ReleaseError, match="do not decide"):
        Counting(con, edited, 1, list, "r")


def test_what_no_row_can_be_beside_other_rules_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    domain = PERSONS.domain
    rules = [counted.stored(one("p0 = 0"))]
    never = [counted.grammar.stored('"p0" > 0')]
    always = [counted.grammar.stored('"p0" = 0')]
    assert "no row" in str(counted.contradicted(con, rules, never, domain, 3))
    assert "no second row" in str(counted.contradicted(con, rules, always, domain, 3))
    assert counted.contradicted(con, rules, always, domain, 1) is None
    assert counted.contradicted(con, [*rules, counted.stored(one("p0 = 1"))], [], domain, 1) is not None
    assert counted.contradicted(con, [*rules, counted.stored(one("p0 = 1"))], [], domain, 2) is None
    with pytest.raises(DomainError, match="made-up rows"):
        check_rules(con, plan(one("p0 = 0"), rules=('"p0" > 0',)))


@pytest.mark.parametrize(
    "text",
    [
        "count(*) FILTER (WHERE a = 1) = 2", "count(*) FILTER (WHERE a = 1) >= 1", "count(*) FILTER (WHERE a = 1) = '1'",
        "count(a) FILTER (WHERE a = 1) = 1", "count(DISTINCT a) FILTER (WHERE a = 1) = 1", "count() FILTER (WHERE a = 1) = 1",
        "count(*) FILTER (WHERE a = 1) OVER () = 1", "count(*) FILTER (WHERE a = 1) = 1 AND a = 1", "1 = count(*) FILTER (WHERE a = 1)",
        "count(*) FILTER (WHERE a = (SELECT 1)) = 1", "count(*) FILTER (WHERE random() > a) = 1", "count(*) FILTER (WHERE count(*) = a) = 1",
        "count(*) FILTER (WHERE true) = 1", "count(*) FILTER (WHERE b = 1) = 1", "count(* EXCLUDE (a)) FILTER (WHERE a = 1) = 1",
        "count(*) FILTER (WHERE a = 1) = 1; DROP TABLE t", "count(*) FILTER (WHERE a = 1)) = 1 OR (1 = 1", "count(*) FILTER (a = ?) = 1",
        "count(*) FILTER (WHERE up.x = 1) = 1", "count(*) FILTER (WHERE other.a = 1) = 1", "count(*) FILTER (WHERE x = 1) = 1",
    ],
)  # fmt: skip
def test_what_it_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="rule"):
        counted.read(text, ("t", ["a"]), {"up": ["x"]})


def test_what_it_says_is_written_anew() -> None:
    found = counted.read("(COUNT(*) filter (t.\"A b\" = 'x'') = 1 --' /* */)  <=  1)", ("t", ["a B", 'q"x']), {})
    assert found is not None and found.text == "count(*) FILTER (WHERE \"a B\" = 'x'') = 1 --') <= 1" and not found.exactly
    odd = counted.read('count(*) FILTER (WHERE "q""x" IS NULL) = 1', ("t", ["a B", 'q"x']), {})
    assert odd is not None and counted.stored(odd.text) == odd and odd.columns == ('q"x',)
    assert counted.read("filter = 1", ("t", ["filter"]), {}) is None and not counted.is_counted("a >")
