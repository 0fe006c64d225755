"""The one form of a condition is true of the same rows, whatever AND, OR, NOT, lists, ranges and NULLs are in it."""

import random

import duckdb
import pytest
import sqlglot

from dpsql.queries.names import shown_name
from dpsql.queries.one_form import one_form
from dpsql.source.parse import render
from dpsql.text.strict import StrictDuckDB

CONDITIONS = 120
ATOMS = (
    "{n} = {i}", "{i} = {n}", "{n} IN ({i}, {i}, {i})", "{n} IN ({i})", "{n} > {i}", "{n} BETWEEN {i} AND {i}", "{n} IS NULL", "{n} <> {i}",
    "{n} IN ({i}, NULL)", "{n} NOT IN ({i}, {i})", "{s} = {t}", "{s} IN ({t}, {t})", "{t} = {s}", "e = {e}", "e IN ({e}, {e})", "day = {d}",
    "day IN ({d}, {d})", "flag", "NOT flag", "flag = true", "month(day) = 1", "extract(day FROM day) IN (3, 2)", "extract(day FROM day) = {i}",
)


def atom(rng):
    return rng.choice(ATOMS).format(
        n=rng.choice(("a", "b", "x")), i=rng.choice(("-1", "0", "1", "2", "3", "2.5")), s=rng.choice(("s", "upper(s)")), t=rng.choice(("'x'", "'y'", "'X'")),
        e=rng.choice(("'p'", "'q'")), d=rng.choice(("DATE '2024-01-02'", "'2024-01-03'", "DATE '2024-01-05'")),
    )


def condition(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return atom(rng)
    parts = [condition(rng, depth - 1) for _ in range(rng.randint(2, 4))]
    joined = rng.choice((" OR ", " OR ", " AND ")).join(part if rng.random() < 0.5 else f"({part})" for part in parts)
    return f"{rng.choice(('', '', '', 'NOT '))}({joined})"


@pytest.mark.parametrize("seed", range(4))
def test_it_is_true_of_the_same_rows_and_false_of_the_same(seed):
    rng = random.Random(seed)
    changed = 0
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT (i % 5)::INTEGER AS a, CASE WHEN i % 7 > 0 THEN i % 3 END AS b, ['x', 'Y', NULL, '1'][1 + i % 4] AS s, (i % 6)::DOUBLE AS x, "
            "DATE '2024-01-01' + (i % 9)::INTEGER AS day, i % 2 = 0 AS flag, CASE WHEN i % 11 > 0 THEN ['p', 'q'][1 + i % 2]::ENUM('p', 'q') END AS e FROM range(3000) r(i)"
        )
        types = {row[0]: row[1] for row in con.execute("DESCRIBE t").fetchall()}
        for _ in range(CONDITIONS):
            text = condition(rng, 2)
            tree = sqlglot.parse_one(f"SELECT count(*) FROM t WHERE {rng.choice(('{}', 'NOT ({})', '({}) IS NULL', '({}) = true')).format(text)}", dialect=StrictDuckDB)
            made = render(one_form(tree.copy(), shown_name, lambda table, name: types.get(name)))
            changed += made != render(tree)
            assert con.execute(made).fetchall() == con.execute(render(tree)).fetchall(), (text, made)
    assert changed > CONDITIONS // 2
