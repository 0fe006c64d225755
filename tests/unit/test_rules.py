"""Rules: what may be said, what is known of each cell (against every value that DuckDB sees), which rules contradict."""

from __future__ import annotations

import datetime as dt

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.algebra.functions import LISTED
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.declare import declare
from dpsql.errors import ArgumentError
from dpsql.rules.contradictions import contradicting
from dpsql.rules.effects import ALWAYS, ROWS, TABLES, effect, shaped
from dpsql.rules.evaluating import FALSE, NULL, TRUE, Evaluator, evaluator
from dpsql.rules.grammar import read, stored
from dpsql.rules.reasoning import MAY_FALSE, MAY_NULL, MAY_TRUE, outcomes
from dpsql.tables.flat import AllCliques, FlatTables
from dpsql.tables.statistics import CoarseTables, Statistics

CONNECTION = duckdb.connect()
CONNECTION.execute("SET TimeZone = 'UTC'")  # as the cursors of dpsql have it
COLUMNS = ["age", "Sex", 'odd "n', "born"]
DOMAIN = Domain((
    declare("sex", "VARCHAR", nullable=True, categories=["F", "M", "it's"]),
    declare("ward", "VARCHAR", nullable=False, categories=["maternity", "icu"], outside="other"),
    declare("age", "INTEGER", nullable=True, lower=-20, upper=100, bins=6),
    declare("los", "TINYINT", nullable=False, lower=0, upper=127, bins=4, outside="other"),
    declare("price", "DECIMAL(6,2)", nullable=False, edges=[-1, 0.1, 5, 99.99]),
    declare("x", "DOUBLE", nullable=True, edges=[-1, 0.1, 0.3, 5]),
    declare("f", "FLOAT", nullable=False, edges=[-1, 0.1, 0.3, 5]),
    declare("born", "DATE", nullable=True, lower="1990-01-01", upper="2024-01-01", bins=5),
    declare("seen", "TIMESTAMP", nullable=False, lower="2000-01-01", upper="2024-01-01", bins=4),
    declare("few", "INTEGER", nullable=False, lower=0, upper=3, bins=4),
    declare("ok", "BOOLEAN", nullable=True),
    declare("at", "TIMESTAMP WITH TIME ZONE", nullable=True, lower="2000-01-01", upper="2024-01-01", bins=3),
    declare("clock", "TIME", nullable=False, lower="00:00:00", upper="23:59:59", bins=4),
    declare("ns", "TIMESTAMP_NS", nullable=False, lower="2000-01-01", upper="2024-01-01", bins=3),
    declare("big", "HUGEINT", nullable=False, lower=-5, upper=1e30, bins=3),
))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("AGE>=3 -- comment", '"age" >= 3'),
        ("((sex IN ('a', 'it''s')))", "\"Sex\" IN ('a', 'it''s')"),
        ('"odd ""n" IS NOT NULL and not (age < 3 or born = DATE \'2020-01-01\')',
         'NOT "odd ""n" IS NULL AND NOT ("age" < 3 OR "born" = CAST(\'2020-01-01\' AS DATE))'),
        ("lower(sex) NOT LIKE 'm%'", "LOWER(\"Sex\") NOT LIKE 'm%'"),
    ],
)
def test_rules_have_one_text(text, canonical):
    found = read(text, COLUMNS)
    assert found.text == canonical
    assert read(canonical, COLUMNS) == found == stored(canonical)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "age >", "1 = 1", "nope > 3", "t.age > 3", "age > (SELECT max(age) FROM people)", "EXISTS (FROM people)",
        "age IN (SELECT 1)", "age = ANY([1])", "count(*) > 1", "sum(age) > 1", "sum(age) OVER () > 1", "random() > age",
        "age > current_date", "now() > born", "getenv('HOME') = sex", "age = ?", "age > $1", "age[1] = 2", "main.lower(sex) = 'x'",
        "list_transform([age], lambda x: x)[1] > 0", "sex COLLATE nocase = 'x'", "columns(*) > 3", "age > 1) OR (1 = 1", "age > 1; FROM x",
        "age > 1) FROM read_csv('/etc/passwd') WHERE (true", "read_text('/etc/passwd') = sex", "try(age) > 1", "age > 1 /* open",
        "age::people = 3", "born - INTERVAL (age) DAY > born", "age > nextval('s')", "* > 3", "age > 3 AS x", "a" * 5000 + " > 1",
        " AND ".join(["age > 1"] * 400), "\0age > 1", "CASE WHEN age > (SELECT 1) THEN true END", "query('x') = sex", "age IS DISTINCT FROM (FROM t)",
    ],
)
def test_what_no_rule_may_say(text):
    with pytest.raises(ArgumentError, match="^rule"):
        read(text, COLUMNS)


def test_a_rule_calls_what_a_source_may():
    for name, function in LISTED.items():
        given = ", ".join(["sex"] * len(function.kinds))
        if function.by == "text" and not function.many:
            assert read(f"{name}({given}) = sex OR sex = 'a'", COLUMNS).columns == ("Sex",)
        elif function.by != "text" and name.isidentifier():
            with pytest.raises(ArgumentError, match="not on the list of functions"):
                read(f"{name}({given}) = sex OR sex = 'a'", COLUMNS)


# -- what is known of each cell, against values --------------------------------------------------------------------------------

NUMBERS = ("age", "los", "price", "x", "f", "few", "big")
MOMENTS = ("born", "seen")
number = st.sampled_from(["-20", "0", "0.1", "0.10", "3", "5", "25", "99.99", "100", "1e2", "127", "-1", "2"])
numeric = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(NUMBERS).map(lambda c: f"-{c}"), number,
    st.builds("{} {} {}".format, st.sampled_from(("age", "los", "few", "price")), st.sampled_from("+-"), st.sampled_from(["1", "30", "age", "few"])),
)
days = st.sampled_from(["1 DAY", "400 DAY", "3 WEEK", "5 MONTH", "10 YEAR", "7 HOUR"])
moment = st.one_of(
    st.sampled_from(MOMENTS),
    st.builds("{} {} INTERVAL {}".format, st.sampled_from(MOMENTS), st.sampled_from("+-"), days),
    st.dates(dt.date(1988, 1, 1), dt.date(2026, 1, 1)).map(lambda d: f"DATE '{d}'"),
    st.just("CAST(born AS TIMESTAMP)"), st.just("'2010-01-01'"),
)
sign = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
leaf = st.one_of(
    st.builds("{} {} {}".format, numeric, sign, numeric),
    st.builds("{} {} {}".format, st.sampled_from(MOMENTS), sign, moment),
    st.builds("{} BETWEEN {} AND {}".format, st.sampled_from(NUMBERS), number, numeric),
    st.builds("{} NOT IN ({}, {})".format, st.sampled_from(NUMBERS), number, number),
    st.builds("{} IS NULL".format, st.sampled_from(DOMAIN.names)),
    st.builds("{} IN ('F', 'it''s', 'icu')".format, st.sampled_from(["sex", "ward", "lower(ward)"])),
    st.builds("at {} {}".format, sign, st.sampled_from(["at", "TIMESTAMPTZ '2010-01-01 00:00:00+00'", "'2010-01-01'", "'2012-01-01 05:00:00+05'"])),
    st.builds("clock {} {}".format, sign, st.sampled_from(["TIME '12:00:00'", "'06:00:00'", "clock"])),
    st.builds("ns {} {}".format, sign, st.sampled_from(["ns", "'2010-01-01'", "seen", "TIMESTAMP '2010-01-01'"])),
    st.builds("length({}) {} 3".format, st.sampled_from(["sex", "ward"]), sign),
    st.builds("date_diff('day', {}, {}) {} 500".format, st.just("born"), st.just("CAST(seen AS DATE)"), sign),
    st.sampled_from(["ok", "few // few = 1", "few * 2 > 3", "round(x) = 2", "ok IS NOT TRUE", "sex IS DISTINCT FROM 'F'", "true", "NULL::BOOLEAN"]),
)
expression = st.recursive(
    leaf, lambda inner: st.one_of(st.builds("({} AND {})".format, inner, inner), st.builds("({} OR {})".format, inner, inner), st.builds("NOT ({})".format, inner)), max_leaves=4
)


def values_in_every_cell(found: Evaluator, attributes: list[Attribute], times: int) -> tuple[np.ndarray, list[np.ndarray]]:
    sizes = [attribute.size for attribute in attributes]
    codes = np.indices(sizes).reshape(len(sizes), -1).T
    codes = np.repeat(codes, times, axis=0).astype(np.int32)
    arrays = found.decoded(codes, np.random.default_rng(3))
    return codes, found.verdicts(arrays, len(codes))


@given(text=expression)
def test_a_cell_may_come_out_as_each_of_its_values_does(text):
    try:
        rule = read(text, DOMAIN.names)
        attributes = list(DOMAIN.select(rule.columns).attributes)
        asked = evaluator(CONNECTION, attributes, [rule])
        asked.check()
    except (ArgumentError, duckdb.Error):  # no column, or what DuckDB does not compare
        return
    if len(attributes) > 3:
        return
    known = outcomes(CONNECTION, rule, attributes)
    codes, (verdicts,) = values_in_every_cell(asked, attributes, 40 if len(attributes) < 3 else 5)
    cells = known[tuple(codes.T)]
    for verdict, outcome in ((TRUE, MAY_TRUE), (FALSE, MAY_FALSE), (NULL, MAY_NULL)):
        missed = (verdicts == verdict) & (cells & outcome == 0)
        assert not missed.any(), (text, codes[missed][0], verdict)
    assert (known > 0).all()


@pytest.mark.parametrize(
    ("text", "kind", "impossible"),
    [
        ("ward <> 'maternity' OR sex = 'F'", TABLES, 2),
        ("age < 0", TABLES, 5),
        ("age <= 0", TABLES, 4),
        ("age + 5 <= 10", TABLES, 4),
        ("x > 0.3", TABLES, 2),
        ("few >= 2", TABLES, 2),
        ("los < age", TABLES, 12),
        ("born > DATE '2010-06-01'", TABLES, 3),
        ("CAST(born AS TIMESTAMP) > seen", TABLES, 10),
        ("seen < born + INTERVAL 2 YEAR", TABLES, 8),
        ("ok", TABLES, 1),
        ("few BETWEEN 0 AND 3", ALWAYS, 0),
        ("age IS NULL OR age >= -20", ALWAYS, 0),
        ("age <> 3", ROWS, 0),
        ("round(x) = 2", ROWS, 0),
        ("age > 3 AND few > 2 AND ok", ROWS, 0),
    ],
)
def test_effects(text, kind, impossible):
    found = effect(CONNECTION, read(text, DOMAIN.names), DOMAIN)
    assert (found.kind, 0 if found.impossible is None else int(found.impossible.sum())) == (kind, impossible)


@pytest.mark.parametrize(
    ("rules", "clash"),
    [
        (["age < 3", "age > 4"], True),
        (["age < 3", "age > 2"], True),
        (["age < 3", "age >= 2"], False),
        (["x < 0.1", "x > 0.1"], True),
        (["x <= 0.1", "x >= 0.1"], False),
        (["CAST(born AS TIMESTAMP) > seen", "seen > CAST(born AS TIMESTAMP)"], True),
        (["age < los", "los <= age"], True),
        (["age <= los", "los <= age"], False),
        (["sex = 'F'", "sex = 'M'"], True),
        (["sex = 'nobody'"], True),
        (["age > 200"], True),
        (["age IS NULL"], False),
        (["age IS NULL", "age IS NOT NULL"], True),
        (["age > 30 OR sex = 'F'", "age < 10 AND sex = 'M'"], True),
        (["born > DATE '2010-01-05'", "born < '2010-01-05'"], True),
        (["born > DATE '2010-01-05'", "born < '2010-01-07'"], False),
        (["age <> 3", "round(x) = 2"], False),
    ],
)
def test_contradictions(rules, clash):
    assert contradicting(CONNECTION, [read(text, DOMAIN.names) for text in rules], DOMAIN) is clash


@given(texts=st.lists(expression, min_size=1, max_size=3))
def test_rules_that_some_row_obeys_never_contradict(texts):
    try:
        rules = [read(text, DOMAIN.names) for text in texts]
        names = sorted({name for rule in rules for name in rule.columns})
        attributes = list(DOMAIN.select(names).attributes)
        asked = evaluator(CONNECTION, attributes, rules)
        asked.check()
    except (ArgumentError, duckdb.Error):
        return
    valued = [Attribute(**{**vars(a), "nullable": False}) for a in attributes]
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, a.values, 5000) for a in valued], axis=1)
    obey = asked.obey(asked.decoded(codes, rng), 5000)
    if obey.any():
        assert not contradicting(CONNECTION, rules, DOMAIN)


def test_impossible_cells_are_zero_and_the_others_as_they_were():
    sizes = (3, 2, 4)
    domain = Domain((
        Attribute("a", "VARCHAR", "categorical", ("p", "q", "r"), nullable=False),
        Attribute("b", "VARCHAR", "categorical", ("u", "v"), nullable=False),
        Attribute("n", "INTEGER", "numeric", edges=(0.0, 10.0, 20.0, 30.0, 40.0), nullable=False),
    ))
    cliques = AllCliques(3, (1, 2, 3))
    flat = np.arange(1, 9 + 6 + 12 + 8 + 24 + 1)
    coarse = CoarseTables({0: np.array([0, 0, 1]), 2: np.array([0, 0, 1, 1])}, {(0, 2): np.array([[5, 6], [7, 8]])}, {(0, 2): 1.0})
    given_ = Statistics(sizes, FlatTables(sizes, cliques, flat.copy()), dict.fromkeys(cliques, 1.0), domain=domain, coarse=coarse)
    rules = [read(text, domain.names) for text in ("a <> 'p' OR n < 15", "a <> 'q' OR n <= 19", "a <> 'r' OR b = 'u'", "b <> 'x'")]
    found = shaped(CONNECTION, given_, domain, rules)
    never = np.zeros(sizes, bool)
    never[0, :, 2:] = never[1, :, 2:] = never[2, 1, :] = True
    before = given_.tables
    assert (found.tables[(0, 1, 2)] == np.where(never, 0, before[(0, 1, 2)])).all()
    assert (found.tables[(0, 2)] == np.where(never[:, 0] & never[:, 1], 0, before[(0, 2)])).all()
    assert found.tables[(0, 1)].tolist() == [[*before[(0, 1)][0]], [*before[(0, 1)][1]], [before[(0, 1)][2, 0], 0]]
    for clique in ((0,), (1,), (2,), (1, 2)):
        assert (found.tables[clique] == before[clique]).all()
    assert found.coarse.tables[(0, 2)].tolist() == [[5, 0], [7, 8]]
    assert (given_.tables.flat == flat).all()
    assert shaped(CONNECTION, given_, domain, rules[3:]) is given_
    (alone,) = [read("a = 'p'", domain.names)]
    assert shaped(CONNECTION, given_, domain, [alone]).tables[(0,)].tolist() == [1, 0, 0]
