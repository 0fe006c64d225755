"""Rules that count the rows of one parent, as a user sees them: declared, refused, planned, kept by every family, compared, taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

HEAD = "count(*) FILTER (WHERE relation = ''head'') = 1"
BUY = "FROM dp_synthesize_tables('homes', epsilon := 5, into_schema := '{}', release := '{}', options := {{'effort': 'fast'}})"
BROKEN = """
SELECT count(*), count(*) FILTER (heads <> 1), count(*) FILTER (spouses > 1), count(*) FILTER (odd <> 1), max(n) FROM (
    SELECT count(*) FILTER (WHERE relation = 'head') AS heads, count(*) FILTER (WHERE relation = 'spouse') AS spouses,
        count(*) FILTER (WHERE "od""d x" > 0) AS odd, count(*) AS n FROM {}.persons GROUP BY home
)
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[duckdb.DuckDBPyConnection]:
    """Homes of 0 to 5 persons, one of whom is the head; persons have jobs."""
    with duckdb.connect() as con:
        con.execute(
            """
            CREATE TABLE homes (id INTEGER PRIMARY KEY, region VARCHAR);
            CREATE TABLE persons (pid INTEGER PRIMARY KEY, home INTEGER REFERENCES homes (id), relation VARCHAR, age INTEGER,
                "od""d x" INTEGER);
            CREATE TABLE jobs (pid INTEGER REFERENCES persons (pid), pay INTEGER);
            CREATE TABLE alone (a INTEGER);
            INSERT INTO homes SELECT i, ['n', 's', 'w'][1 + i % 3] FROM range(1200) t(i);
            INSERT INTO persons SELECT row_number() OVER (), id, CASE WHEN j = 0 THEN 'head' WHEN j = 1 AND id % 4 > 0 THEN 'spouse'
                WHEN hash(id, j) % 9 > 0 THEN 'child' END, CASE WHEN j < 2 THEN 30 + hash(id) % 40 ELSE hash(id, j) % 20 END,
                nullif((j + id) % 4, 0) FROM homes, range(5) r(j) WHERE j < id % 6;
            INSERT INTO jobs SELECT pid, hash(pid) % 100 FROM persons WHERE age > 20;
            """
        )
        dpsql.load(con, user="tester", progress=False)
        con.execute("CALL dp_protect('homes', epsilon := 1000, delta := 1e-6, privacy_unit := 'id', max_contributions := 1)")
        con.execute("CALL dp_protect('alone', epsilon := 1000, delta := 1e-6)")
        con.execute("CALL dp_link('persons', 'home', parent := 'homes', max_rows := 5)")
        con.execute("CALL dp_link('jobs', 'pid', parent := 'persons', max_rows := 2)")
        con.execute("CALL dp_declare('homes', 'region', categories := ['n', 's', 'w'], nullable := false)")
        con.execute("CALL dp_declare('persons', 'relation', categories := ['head', 'spouse', 'child'])")
        con.execute("CALL dp_declare('persons', 'age', lower := 0, upper := 100, bins := 10, nullable := false)")
        con.execute("""CALL dp_declare('persons', 'od"d x', categories := [-1, 0, 1, 2, 3])""")
        con.execute("CALL dp_declare('jobs', 'pay', lower := 0, upper := 100, bins := 5, nullable := false)")
        con.execute("CALL dp_declare('alone', 'a', lower := 0, upper := 9, bins := 3)")
        yield con


@pytest.fixture
def con(shared: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database, its rules and links as before afterwards."""
    yield shared
    for (rule,) in shared.execute("SELECT labels FROM dp_domain('persons') WHERE kind = 'rule' AND status = 'declared'").fetchall():
        shared.execute("CALL dp_rule('persons', ?, remove := true)", [rule])


def test_every_family_of_every_draw_has_exactly_one(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """With other rules at once: of a row, across tables, at most one, a condition over NULLs and odd names."""
    said = con.execute(f"FROM dp_rule('persons', '{HEAD}')").fetchone()
    assert said == ("main.persons", "count(*) FILTER (WHERE \"relation\" = 'head') = 1", ["relation"], "rows", "declared")
    con.execute("CALL dp_rule('persons', 'count(*) FILTER (WHERE persons.relation = ''spouse'') <= 1')")
    con.execute("""CALL dp_rule('persons', 'relation <> ''head'' OR age >= 20')""")
    con.execute("""CALL dp_rule('persons', 'region <> ''n'' OR relation <> ''spouse''')""")
    notes = con.execute("SELECT unnest(notes) FROM dp_plan('homes', operation := 'synthesize_tables', epsilon := 1)").fetchall()
    assert sum("exactly one fulfils" in note and "nothing is measured for it" in note for (note,) in notes) == 1
    con.execute(BUY.format("synth", "ruled"))
    (name,) = con.execute("SELECT release FROM dp_releases() WHERE release LIKE '%ruled%'").fetchone() or ()
    for seed in range(3):
        con.execute(f"FROM dp_sample('{name}', rows := 700, seed := {seed}, into_schema := 'again')")
        parents, heads, spouses, _, most = con.execute(BROKEN.format("again")).fetchone() or ()
        assert parents > 400 and heads == 0 and spouses == 0 and most == 5
    where = "FROM again.persons JOIN again.homes ON home = id WHERE"
    assert con.execute(f"SELECT count(*) {where} relation = 'head' AND age < 20 OR region = 'n' AND relation = 'spouse'").fetchone() == (0,)
    assert con.execute("SELECT count(*) FROM again.jobs ANTI JOIN again.persons USING (pid)").fetchone() == (0,)
    assert con.execute("SELECT count(*) > 30 FROM again.persons WHERE relation IS NULL").fetchone() == (True,)
    con.execute("UPDATE again.persons SET relation = 'child' WHERE relation = 'head' AND home IN (SELECT home FROM again.persons LIMIT 1)")
    asked = "SELECT raw, synthetic FROM dp_evaluate('homes', 'again') WHERE measure = 'broken rule' AND column_name LIKE '%''head'') = 1'"
    assert con.execute(asked).fetchone() == (0, 1)
    con.execute(f"FROM dp_export('{name}', '{tmp_path / 'one.dpsql'}')")
    con.execute(f"CALL dp_rule('persons', '{HEAD}', remove := true)")
    with duckdb.connect() as other:
        dpsql.load(other, progress=False)
        other.execute(f"FROM dp_import('{tmp_path / 'one.dpsql'}')")
        other.execute(f"FROM dp_sample('{name}', into_schema := 'again')")
        assert (other.execute(BROKEN.format("again")).fetchone() or ())[1] == 0, "a release keeps the rules it was bought with"
        rows = "SELECT * FROM {}.persons ORDER BY pid ASC"
        assert other.execute(rows.format("again")).fetchall() == con.execute(rows.format("synth")).fetchall()
        page = other.execute(f"FROM dp_report('{name}', path := '{tmp_path / 'r.html'}')").fetchall()
        assert page and "FILTER (WHERE &quot;relation&quot;" in (tmp_path / "r.html").read_text().replace("&#34;", "&quot;").replace(
            'WHERE "relation"', "WHERE &quot;relation&quot;"
        )


def test_conditions_over_null_and_odd_names(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("""CALL dp_rule('persons', 'count(*) FILTER (WHERE "od""d x" > 0) = 1')""")
    con.execute("CALL dp_rule('persons', 'count(*) FILTER (WHERE relation IS NULL) <= 1')")
    con.execute(BUY.format("synth", "odd"))
    parents, heads, _, odd, _ = con.execute(BROKEN.format("synth")).fetchone() or ()
    assert odd == 0 and heads > 0 and parents > 700
    none = "SELECT max(n) FROM (SELECT count(*) FILTER (WHERE relation IS NULL) AS n FROM synth.persons GROUP BY home)"
    assert con.execute(none).fetchone() == (1,)


def test_it_is_listed_and_taken_back(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"CALL dp_rule('persons', '{HEAD}')")
    con.execute(f"CALL dp_rule('persons', '({HEAD.lower()})')")
    listed = "SELECT column_name, labels, status FROM dp_domain('persons') WHERE kind = 'rule'"
    assert con.execute(listed).fetchall() == [("relation", "count(*) FILTER (WHERE \"relation\" = 'head') = 1", "declared")]
    again = f"SELECT change FROM dp_rule('persons', '{HEAD}', remove := true)"
    assert [con.execute(again).fetchone() for _ in range(2)] == [("taken back",), ("was not declared",)]
    assert con.execute(listed).fetchall() == []


def test_of_one_table_alone_it_says_nothing(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"CALL dp_rule('persons', '{HEAD}')")
    plan = "SELECT unnest(notes) FROM dp_plan('persons', operation := 'synthesize', epsilon := 1, columns := ['relation'])"
    assert any("a table by itself does not keep" in note for (note,) in con.execute(plan).fetchall())
    assert len(con.execute("FROM dp_synthesize('persons', epsilon := 1, columns := ['relation'])").fetchall()) > 0
    assert con.execute("FROM dp_query('SELECT count(*) FROM persons', epsilon := 1)").fetchone() is not None


@pytest.mark.parametrize(
    ("source", "rule", "said"),
    [
        ("alone", "count(*) FILTER (WHERE a > 3) = 1", "not linked to one"),
        ("homes", "count(*) FILTER (WHERE region = 'n') = 1", "not linked to one"),
        ("SELECT * FROM persons", "count(*) FILTER (WHERE relation = 'head') = 1", "not linked to one"),
        ("persons", "count(*) FILTER (WHERE age >= 18) = 1", "must hold for all rows of a bin or for none, and bins of age"),
        ("persons", "count(*) FILTER (WHERE age % 2 = 0) = 1", "with edges where the condition changes"),
        ("persons", "count(*) FILTER (WHERE relation = 'aunt') = 1", "no value of the declared domain fulfils"),
        ("persons", "count(*) FILTER (WHERE pid = 1) = 1", "no domain|is no data|declared columns"),
        ("persons", "count(*) FILTER (WHERE region = 'n') = 1", "columns of the counted row alone"),
        ("persons", "count(*) FILTER (WHERE relation) = 1", "BOOLEAN|boolean|not defined"),
        ("persons", "count(*) FILTER (WHERE relation = 'head') = 2", "exactly one fulfils a condition"),
        ("persons", "count(*) FILTER (WHERE relation = (SELECT min(region) FROM homes)) = 1", "depends on other rows"),
        ("persons", "count(*) FILTER (WHERE relation = 'head') = 1; DROP TABLE alone", "not understood as one SQL expression"),
        ("persons", "count(*) FILTER (WHERE relation = 'head')) = 1 OR (1 = 1", "not understood as one SQL expression"),
    ],
)
def test_refusals_say_why_and_write_nothing(con: duckdb.DuckDBPyConnection, source: str, rule: str, said: str) -> None:
    bought = con.execute("SELECT count(*) FROM dp_releases()").fetchone()
    with pytest.raises(duckdb.Error, match=said):
        con.execute("FROM dp_rule(?, ?)", [source, rule])
    assert con.execute(f"SELECT count(*) FROM dp_domain('{source}') WHERE kind = 'rule'").fetchone() == (0,)
    assert con.execute("SELECT count(*) FROM dp_releases()").fetchone() == bought


def test_what_was_declared_anew_is_refused_before_it_is_charged(con: duckdb.DuckDBPyConnection) -> None:
    spent = "SELECT epsilon_spent FROM dp_budget('homes')"
    before = con.execute(spent).fetchall()
    con.execute("CALL dp_rule('persons', 'count(*) FILTER (WHERE age >= 20) = 1')")
    con.execute("CALL dp_declare('persons', 'age', lower := 0, upper := 100, bins := 7, nullable := false)")
    try:
        with pytest.raises(duckdb.Error, match="bins of age have both"):
            con.execute(BUY.format("synth", "undecided"))
        con.execute("CALL dp_declare('persons', 'age', lower := 30, upper := 100, bins := 7, nullable := false)")
        with pytest.raises(duckdb.Error, match="no parent could have two rows"):
            con.execute(BUY.format("synth", "certain"))
    finally:
        con.execute("CALL dp_declare('persons', 'age', lower := 0, upper := 100, bins := 10, nullable := false)")
    con.execute("CALL dp_rule('persons', 'age < 20')")
    with pytest.raises(duckdb.Error, match="there could be no row that counting rules allow"):
        con.execute(BUY.format("synth", "contradicted"))
    assert con.execute(spent).fetchall() == before


def test_a_rule_that_always_holds_shapes_nothing(con: duckdb.DuckDBPyConnection) -> None:
    rule = "SELECT shapes FROM dp_rule('persons', 'count(*) FILTER (WHERE relation = ''aunt'') <= 1')"
    assert con.execute(rule).fetchone() == ("nothing",)


def test_of_a_table_that_is_linked_no_more_it_waits() -> None:
    """It is listed, can be taken back, holds again where the table is linked again, and cannot be declared meanwhile."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE p (id INTEGER PRIMARY KEY, s BOOLEAN); CREATE TABLE c (id INTEGER, x VARCHAR)")
        dpsql.load(con, user="tester", progress=False)
        con.execute("CALL dp_protect('p', epsilon := 1, delta := 1e-6, privacy_unit := 'id', max_contributions := 1)")
        link = "CALL dp_link('c', 'id', parent := 'p', max_rows := 3)"
        con.execute(link)
        con.execute("CALL dp_declare('c', 'x', categories := ['a', 'b'])")
        con.execute("CALL dp_rule('c', 'count(*) FILTER (WHERE x = ''a'') = 1')")
        con.execute("CALL dp_rule('c', 'count(*) FILTER (WHERE x = ''b'') <= 1')")
        con.execute("CALL dp_unlink('c')")
        con.execute("CALL dp_protect('c', epsilon := 1, delta := 1e-6)")
        with pytest.raises(duckdb.Error, match="not linked to one"):
            con.execute("CALL dp_rule('c', 'count(*) FILTER (WHERE x IS NULL) = 1')")
        rules = "SELECT labels FROM dp_domain('c') WHERE kind = 'rule'"
        assert len(con.execute(rules).fetchall()) == 2
        back = "SELECT change FROM dp_rule('c', 'count(*) FILTER (WHERE x = ''b'') <= 1', remove := true)"
        assert con.execute(back).fetchone() == ("taken back",)
        assert con.execute(rules).fetchall() == [("count(*) FILTER (WHERE \"x\" = 'a') = 1",)]
