"""What runs outside the net of TRY fails for no value: expressions of certain forms over the extreme values of every type.

The net is taken down by the code itself here, so what it holds elsewhere is compared with: the same value in every row, the same rows
kept, wherever the optimizer moves an expression. ``DPSQL_CERTAIN_EXPRESSIONS`` says how many are made (default 240 a run).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import duckdb
import pytest
from kernel_expressions import SETTINGS, make_table
from sqlglot import exp

from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.session.settings import pin
from dpsql.source.analysis import analyse
from dpsql.source.binder import check
from dpsql.source.catalog import Catalog
from dpsql.source.certain import certain
from dpsql.source.functions import caught
from dpsql.source.leaves import View
from dpsql.source.model import TableId
from dpsql.source.parse import parse, render
from dpsql.source.rehearsal import guarded
from dpsql.source.relations import Analysis

ASKED = int(os.environ.get("DPSQL_CERTAIN_EXPRESSIONS", "240"))
SEED = int(os.environ.get("DPSQL_CERTAIN_SEED", "2000"))
HOME = ("memory", "main")
NUMBERS = ("ti", "si", "i", "bi", "ut", "us", "ui", "fl", "db", "d4", "d18", "d38", "d3838", "d37")
OTHERS = ("ub", "hi", "uh", "bo")
ALIKE = (("s", "s2"), ("da", "da2"), ("ts", "ts2"), ("uu", "uu2"), ("bl", "bl2"), ("tz", "tz2"), ("tm", "tm2"), ("tss", "tss2"))
CONSTANTS = ("0", "1", "7", "255", "2147483647", "2147483648", "1.5", "0.1", "99.99", "9999999999999999.99", "1e308", "1e-320")
CASTS = ("TINYINT", "UTINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(38,10)", "BOOLEAN")


class Forms:
    """Random expressions of the forms that `dpsql.source.certain` lists."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random() if depth > 0 else 0.0
        if kind < 0.3:
            return rng.choice([*NUMBERS, *(name + "2" for name in NUMBERS), *CONSTANTS])
        if kind < 0.7:
            return f"({self.number(depth - 1)} {rng.choice('+-*/')} {self.number(depth - 1)})"
        if kind < 0.85:
            return f"CAST({rng.choice((self.number(depth - 1), *OTHERS))} AS {rng.choice(CASTS)})"
        if kind < 0.9:
            return f"(-{self.number(depth - 1)})"
        if kind < 0.95:
            return f"{rng.choice(('year', 'month', 'day', 'quarter'))}({rng.choice(('da', 'ts', 'da2', 'ts2'))})"
        return f"(CASE WHEN {self.truth(depth - 1)} THEN {self.number(depth - 1)} ELSE {self.number(depth - 1)} END)"

    def truth(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random() if depth > 0 else 0.0
        if kind < 0.35:
            symbol = rng.choice(("=", "<", "<>", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"))
            left, right = (self.number(depth), self.number(depth)) if rng.random() < 0.7 else rng.choice(ALIKE)
            return f"({left} {symbol} {right})"
        if kind < 0.6:
            return f"({self.truth(depth - 1)} {rng.choice(('AND', 'OR'))} {self.truth(depth - 1)})"
        if kind < 0.7:
            return f"(NOT {self.truth(depth - 1)})"
        if kind < 0.8:
            return f"({self.number(depth - 1)} IS {rng.choice(('NULL', 'NOT NULL'))})"
        if kind < 0.86:
            return f"({self.number(depth - 1)} BETWEEN {self.number(depth - 1)} AND {self.number(depth - 1)})"
        if kind < 0.92:
            return f"({self.number(depth - 1)} IN ({self.number(depth - 1)}, {rng.choice(CONSTANTS)}))"
        return rng.choice(("(s LIKE '%a_')", "(s NOT LIKE 'x%')", "bo", "(da >= DATE '2020-01-01')", "(ts < TIMESTAMP '9999-12-31')", "(s IN ('a', ''))"))


class Gate:
    """A table of extremes, and the expressions over it that are accepted."""

    def __init__(self, seed: int) -> None:
        self.con = duckdb.connect(":memory:")
        make_table(self.con, seed=seed)
        self.catalog = Catalog(self.con.cursor())
        self.catalog.changed_function = lambda names: None
        self.forms = Forms(seed)

    def accepted(self, text: str) -> exp.Select | None:
        """Return the generated SELECT of a text, without its net; None if it is refused."""
        analysis = Analysis(self.catalog, lambda t: True, lambda t: (), lambda t: None, HOME)
        try:
            found = analysis.select(parse(text), View((HOME,))).select
            analysis.carried.drop_numbers()
            check(self.catalog, render(found), analysis.probe(found), [TableId("memory", "main", "p")], [])
        except (UnsupportedQuery, ArgumentError):
            return None
        return found


@pytest.fixture(params=range(2))
def gate(request) -> Iterator[Gate]:
    made = Gate(SEED + request.param)
    yield made
    made.con.close()


def listed(select: exp.Select) -> exp.Expression:
    return select.expressions[0].this


def test_what_is_certain_never_fails_and_is_what_the_net_would_give(gate):
    tried = 0
    cursors = {None: gate.con.cursor()}
    pin(cursors[None])
    for number in range(ASKED // 2):
        form = gate.forms.number(3) if number % 2 else gate.forms.truth(3)
        select = gate.accepted(f"SELECT {form} AS x FROM p")
        if select is None or not certain(listed(select)):
            continue
        tried += 1
        bare, net = render(listed(select)), caught(render(listed(select)))
        source = select.args["from_" if "from_" in select.args else "from"].sql(dialect="duckdb")
        setting = SETTINGS[number % len(SETTINGS)] if number % 3 == 0 else None
        if setting is not None:
            gate.con.execute(f"SET GLOBAL {setting}")
        try:
            if setting not in cursors:
                cursors[setting] = gate.con.cursor()
                pin(cursors[setting])
            same = f"count(*) FILTER (WHERE ({bare}) IS DISTINCT FROM {net})"
            texts = f"count(DISTINCT CAST(({bare}) AS VARCHAR)), max({bare}), min(({bare})), count({bare}) FILTER (WHERE ({bare}) IS NOT NULL)"
            assert cursors[setting].execute(f"SELECT {same}, {texts} {source}").fetchall()[0][0] == 0, form
        finally:
            if setting is not None:
                gate.con.execute(f"RESET GLOBAL {setting.split(' = ')[0]}")
    assert tried > ASKED // 8


def test_a_where_keeps_the_rows_that_the_net_would_keep(gate):
    """Conditions that are certain stand in front, the others in the net: the same rows as of the whole in one net."""
    split = 0
    rest = ("sqrt(db) > 1", "length(s) > 2", "strftime(ts, '%Y') > '1'", "CAST(s AS INTEGER) > 0", "da + INTERVAL 1 DAY > da2")
    for _ in range(ASKED // 4):
        parts = [gate.forms.truth(2), gate.forms.truth(2), gate.forms.rng.choice(rest)]
        gate.forms.rng.shuffle(parts)
        select = gate.accepted(f"SELECT bi AS x FROM p WHERE {' AND '.join(parts)}")
        if select is None:
            continue
        whole = select.copy()
        whole.args["where"].this.replace(exp.Var(this=caught(render(whole.args["where"].this))))
        found, wanted = (sorted(gate.con.execute(render(tree)).fetchall(), key=repr) for tree in (guarded(select), whole))
        assert found == wanted, parts
        text = render(guarded(select))
        split += "TRY(" in text and not text.split(" WHERE ")[1].startswith("system")
    assert split > ASKED // 32


IN_THE_NET = {
    "a text as a number": "CAST(s AS INTEGER)", "a part of it": "CAST(s AS INTEGER) + 1", "inside a case": "CASE WHEN bo THEN sqrt(db) END",
    "a function": "length(s)", "a moved date": "da + INTERVAL 1 DAY", "days between": "da - da2", "a time zone": "year(tz)",
    "a pattern of letters": "s ILIKE 'a%'", "a pattern of a column": "s LIKE s2", "a division": "i // 2", "a rest": "i % 2",
    "a comparison of one": "length(s) > 1", "a list": "li[1]", "a text": "s || s2", "whole numbers": "i * bi + 1", "a sign": "-i", "a narrower number": "CAST(db AS TINYINT)", "a date as a text": "CAST(da AS VARCHAR)",
}  # fmt: skip
OUTSIDE = {
    "a product of prices": "d4 * (1 - d4)", "doubles": "db / (1 + db2)", "a sign": "-d4", "a wider number": "CAST(i AS DOUBLE)", "a year": "year(da)",
    "a comparison": "da >= DATE '2020-01-01'", "a case": "CASE WHEN s = 'a' OR s LIKE 'b%' THEN d4 ELSE 0 END", "a list": "s IN ('a', 'b')", "a negative constant": "i > -5",
}  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Gate:
    return Gate(SEED)


@pytest.mark.parametrize("name", IN_THE_NET)
def test_what_is_not_on_the_short_list_stays_in_the_net(small, name):
    select = small.accepted(f"SELECT {IN_THE_NET[name]} AS x FROM p")
    assert select is not None and not certain(listed(select)) and "TRY(" in render(guarded(select))


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_on_it_has_no_net(small, name):
    select = small.accepted(f"SELECT {OUTSIDE[name]} AS x FROM p")
    assert select is not None and certain(listed(select)) and "TRY(" not in render(guarded(select))


def test_bounds_that_were_declared_prove_nothing():
    """A product of what a declaration bounds to 0 ... 10 is made for whatever the type holds: the row with more has its own value."""
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE t (a DECIMAL(18, 9), b BIGINT)")
        con.execute("INSERT INTO t VALUES (999999999.999999999, 9223372036854775807), (-999999999.999999999, -9223372036854775808), (1, 1)")
        for text in ("a * a", "a * a * a", "a + b", "a - b", "-a", "b * a", "b * 1.5", "a / b", "CAST(b AS DOUBLE) * a"):
            sql = analyse(con.cursor(), f"SELECT {text} AS x FROM t", database="memory", schema="main", protected=lambda t: True).sql
            assert "TRY(" not in sql
            assert len(con.execute(sql).fetchall()) == 3


@pytest.mark.parametrize(("kind", "numbered"), [("INTEGER", False), ("DATE", False), ("UBIGINT", False), ("VARCHAR", True), ("DECIMAL(9,2)", True), ("UUID", True)])
def test_rows_are_numbered_where_equality_could_be_more_than_one(kind, numbered):
    with duckdb.connect(":memory:") as con:
        con.execute(f"CREATE TABLE p (k {kind}, n INTEGER); CREATE TABLE q (k {kind} PRIMARY KEY, v INTEGER)")
        found = analyse(con.cursor(), "SELECT n, v FROM p JOIN q ON p.k = q.k", database="memory", schema="main", protected=lambda t: t.name == "p")
        assert (found.row is not None) == numbered == ("rowid" in found.sql)
        assert "DISTINCT ON" in found.sql
