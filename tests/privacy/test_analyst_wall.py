"""The wall behind the server's gate: what an analyst may call, name and see, whatever text reaches a call."""

from __future__ import annotations

import duckdb
import pytest
from analysts import ask, named
from sample_tables import make_people, protect_people

import dpsql
from dpsql.calls.registry import WHERE, declaration
from dpsql.door import dispatch
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery

pytestmark = pytest.mark.any_duckdb

BY_SEX = "SELECT sex, count(*) AS n FROM people GROUP BY sex"
OPEN = {
    "domain": {"source": "people"},
    "plan": {"source": "people", "epsilon": 0.1},
    "marginals": {"source": "people", "columns": ["sex"], "epsilon": 0.1},
    "aggregates": {"source": "people", "columns": ["sex", "member", "region"], "epsilon": 0.1},
    "histogram": {"source": "people", "column": "region", "epsilon": 0.1},
    "contributions": {"source": "people", "epsilon": 0.1},
    "query": {"sql": BY_SEX, "epsilon": 0.1},
    "summarize": {"source": "people", "columns": ["sex"], "epsilon": 0.1},
    "explain": {"release": "..."},
    "synthesize": {"source": "people", "columns": ["sex", "member"], "epsilon": 0.1, "rows": 5},
    "dummy": {"source": "people", "rows": 5},
    "sample": {"release": "...", "rows": 5},
    "ledger": {},
    "budget": {},
    "releases": {},
}
"""Calls that analysts may make; every other one is refused. A new call fails here until it is in one of both lists."""
CLOSED = {
    "protect", "link", "links", "remote", "declare", "rule", "grant", "publish", "query_exact", "evaluate", "export", "import", "report",
    "synthesize_tables",
}  # fmt: skip
WRITES = {("synthesize", "into"), ("sample", "into"), ("sample", "into_schema")}
"""Parameters of open calls that analysts may not give."""


@pytest.fixture
def served(con):
    """The table people, granted to alice (all) and bob (sex and region); a raw table, a protected one; published ones; views."""
    con.execute("CREATE TABLE raw AS SELECT i AS a FROM range(10) t(i)")
    con.execute("CREATE TABLE secret AS SELECT * FROM people")
    con.execute("CALL dp_protect('secret', epsilon := 1, delta := 1e-9)")
    con.execute("CREATE TABLE wards AS SELECT 'north' AS region, 1 AS beds UNION ALL SELECT 'south', 2")
    con.execute("CALL dp_publish('wards')")
    con.execute("CREATE VIEW young AS SELECT sex, region, age FROM people WHERE age < 40")
    con.execute("CREATE VIEW hidden AS SELECT sex, age FROM secret")
    con.execute("CREATE VIEW unpublished AS SELECT sex, region FROM people")
    con.execute("CALL dp_publish('young')")
    con.execute("CALL dp_publish('hidden')")
    con.execute("CALL dp_grant('people', analyst := 'alice', epsilon := 2)")
    con.execute("CALL dp_grant('people', analyst := 'bob', epsilon := 2, columns := ['sex', 'region'])")
    return con


def test_every_call_is_open_with_a_test_or_closed():
    assert set(OPEN) | CLOSED == set(WHERE) and not set(OPEN) & CLOSED
    for name in WHERE:
        assert (declaration(name).analysts is not None) == (name in OPEN)


@pytest.mark.parametrize("name", sorted(WHERE))
def test_parameters_are_open_one_by_one(name):
    call = declaration(name)
    for parameter in call.parameters():
        closed = call.analysts is None or parameter.name not in call.analysts
        assert closed == (name in CLOSED or (name, parameter.name) in WRITES)


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_a_call_of_the_custodian_is_refused_before_it_does_anything(served, tmp_path, name):
    call = declaration(name)
    given = {p.name: ("people" if p.name == "source" else BY_SEX if p.name == "sql" else "1") for p in call.parameters() if p.required}
    given |= {name: value for name, value in {"path": str(tmp_path / "x"), "engine": "duckdb"}.items() if name in given}
    before = served.execute("SELECT count(*) FROM dpsql.ledger").fetchall(), sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError, match="custodian's"):
        ask(served, "alice", name, **given)
    assert (served.execute("SELECT count(*) FROM dpsql.ledger").fetchall(), sorted(tmp_path.rglob("*"))) == before


def test_a_parameter_that_writes_is_refused(served, tmp_path):
    for name, given in (("synthesize", OPEN["synthesize"]), ("sample", {"release": "x"})):
        for more in ({"into": "made"}, {"into_table": "made"}):
            with pytest.raises(ArgumentError, match="into = 'made': is the custodian's"):
                ask(served, "alice", name, **given, **more)
    assert served.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'").fetchall() == [(0,)]


@pytest.mark.parametrize("name", sorted(OPEN))
def test_an_open_call_answers_and_pays(served, name):
    given = dict(OPEN[name])
    if name == "explain":
        ask(served, "alice", "query", **OPEN["query"])
        given["release"] = named(served, "alice", "releases")[0]["release"]
    if name == "sample":
        ask(served, "alice", "synthesize", **OPEN["synthesize"], release="mine")
        given["release"] = "mine"
    if name == "contributions":
        served.execute("CALL dp_protect('people', privacy_unit := 'person', max_contributions := 3)")
    spent = named(served, "alice", "budget")[0]["releases"]
    rows = ask(served, "alice", name, **given)
    assert rows or name in ("releases", "aggregates", "histogram")
    charged = declaration(name).privacy.startswith("charged")
    assert named(served, "alice", "budget")[0]["releases"] - spent == (1 if charged else 0)


@pytest.mark.parametrize("name", sorted(name for name in OPEN if set(OPEN[name]) & {"source", "sql"}))
def test_a_table_without_a_grant_does_not_exist(served, name):
    """What is said of a raw table, a protected one, a view of it and the books is what is said of a name that means nothing."""
    texts = []
    for table in ("raw", "secret", "hidden", "unpublished", "nosuch", "main.secret", "people.main.secret", "SECRET"):
        given = {key: value.replace("people", table) if key in ("sql", "source") else value for key, value in OPEN[name].items()}
        for analyst in ("alice", "carol"):
            with pytest.raises(DpsqlError) as told:
                ask(served, analyst, name, **given)
            texts.append(str(told.value).replace(repr(table), "T").replace(table, "T"))
    assert len(set(texts)) == 1, set(texts)
    with pytest.raises(DpsqlError, match="no such table"):
        ask(served, "carol", name, **OPEN[name])


@pytest.mark.parametrize(
    "source",
    [
        "SELECT p.sex FROM people p JOIN raw r ON p.age = r.a",
        "SELECT sex FROM people WHERE age IN (SELECT a FROM raw)",
        "SELECT sex FROM (SELECT * FROM secret) s",
        "WITH w AS (SELECT * FROM secret) SELECT sex FROM w",
        "SELECT sex FROM hidden",
        "SELECT sex FROM people WHERE EXISTS (SELECT 1 FROM secret)",
        "SELECT sex FROM 'people.parquet'",
        "SELECT sex FROM read_parquet('people.parquet')",
        "SELECT sex FROM query('FROM secret')",
        "SELECT sex FROM query_table('secret')",
        "SELECT sex FROM people UNION ALL SELECT sex FROM secret",
    ],
)
def test_no_text_reaches_another_table(served, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    served.execute(f"COPY (FROM secret) TO '{tmp_path / 'people.parquet'}' (FORMAT parquet)")
    before = served.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()
    counted = source.replace("SELECT sex", "SELECT count(*)", 1).replace("SELECT p.sex", "SELECT count(*)", 1)
    for name, given in (("synthesize", {"source": source}), ("plan", {"source": source}), ("query", {"sql": counted})):
        with pytest.raises(DpsqlError):
            ask(served, "alice", name, epsilon=0.1, **given)
    assert served.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall() == before


def test_a_published_table_may_be_joined_and_a_view_of_what_she_may_see_asked(served):
    joined = "SELECT w.beds, count(*) AS n FROM people p JOIN wards w ON p.region = w.region GROUP BY w.beds"
    with pytest.raises(DpsqlError):  # its key is not unique
        ask(served, "alice", "query", sql=joined, epsilon=0.1, adaptive=True, groups="nosuch")
    assert ask(served, "alice", "query", sql="SELECT count(*) FROM young", epsilon=0.1)
    with pytest.raises(DpsqlError):
        ask(served, "bob", "query", sql="SELECT count(*) FROM young", epsilon=0.1)  # it reads age


@pytest.mark.parametrize(
    "source",
    [
        "SELECT age FROM people", "SELECT sex FROM people WHERE age < 40", "SELECT sex, age + 1 AS b FROM people",
        "SELECT p.sex FROM people p WHERE p.age = 20", "SELECT sex FROM young",
        "SELECT sex FROM (SELECT * FROM people) q WHERE q.age > 1", "WITH w AS (FROM people) SELECT sex FROM w WHERE member",
        "SELECT sex FROM people WHERE CASE WHEN member THEN true ELSE false END", "SELECT COLUMNS('age') FROM people",
        "SELECT sex FROM people WHERE people.person = 7",
    ],
)  # fmt: skip
def test_columns_that_are_not_granted_are_not_read(served, source):
    for name in ("synthesize", "plan", "marginals", "domain"):
        given = {} if name == "domain" else {"epsilon": 0.1}
        with pytest.raises((ArgumentError, UnsupportedQuery)):
            ask(served, "bob", name, source=source, **given)
    inside = source.replace("SELECT sex", "SELECT count(*)").replace("SELECT p.sex", "SELECT count(*)")
    inside = inside.replace("SELECT age", "SELECT avg(age)").replace("SELECT COLUMNS('age')", "SELECT sum(age)")
    inside = inside.replace("SELECT count(*), age + 1 AS b FROM people", "SELECT sum(age + 1) AS b FROM people")
    with pytest.raises((ArgumentError, UnsupportedQuery)):
        ask(served, "bob", "query", sql=inside, epsilon=0.1)
    assert named(served, "bob", "budget")[0]["releases"] == 0


def test_a_table_of_which_some_columns_are_granted_has_no_others(served):
    assert [row[0] for row in ask(served, "bob", "domain", source="people")] == ["sex", "region"]
    assert len(ask(served, "bob", "synthesize", source="people", epsilon=0.1, rows=3)[0]) == 2
    (plan,) = named(served, "bob", "plan", source="people", epsilon=0.1)
    assert plan["columns"] == ["sex", "region"] and plan["left_out"] == []
    with pytest.raises(DpsqlError) as told:
        ask(served, "bob", "marginals", source="people", columns=["age"], epsilon=0.1)
    assert "joined" not in str(told.value)
    assert {row["column_name"] for row in named(served, "bob", "summarize", source="people", epsilon=0.1)} == {"sex", "region"}


def test_the_privacy_unit_works_where_its_column_is_not_granted(tmp_path):
    with duckdb.connect(str(tmp_path / "units.duckdb")) as con:
        make_people(con)
        dpsql.load(con)
        protect_people(con, privacy_unit="person", max_contributions=3)
        con.execute("CALL dp_grant('people', analyst := 'bob', epsilon := 2, columns := ['sex', 'region'])")
        assert len(ask(con, "bob", "query", sql=BY_SEX, epsilon=0.1, groups="public")) >= 2
        assert ask(con, "bob", "synthesize", source="people", epsilon=0.1, rows=3)
        assert ask(con, "bob", "query", sql="SELECT count(DISTINCT person) FROM people", epsilon=0.1)  # how many units: no value
        refused = ("count(*) FROM people WHERE person = 7", "max(person) FROM people", "histogram(person) FROM people")
        for sql in (f"SELECT {one}" for one in refused):
            with pytest.raises(DpsqlError):
                ask(con, "bob", "query", sql=sql, epsilon=0.1)
        assert "person" not in str(named(con, "bob", "budget")) + str(ask(con, "bob", "domain", source="people"))


def test_rules_and_constraints_do_not_name_hidden_columns(served):
    served.execute("CALL dp_rule('people', 'age >= 18')")
    assert "age" in str(ask(served, "alice", "domain", source="people"))
    assert "age" not in str(ask(served, "bob", "domain", source="people"))


def test_releases_of_others_are_not_known(served):
    ask(served, None, "query", **OPEN["query"])
    ask(served, "alice", "query", **OPEN["query"])
    ask(served, "alice", "synthesize", **OPEN["synthesize"], release="mine")
    ask(served, "bob", "query", sql="SELECT region, count(*) FROM people GROUP BY region", epsilon=0.1)
    every = [row[0] for row in served.execute("SELECT release FROM dp_releases()").fetchall()]
    hers = {row["release"] for row in named(served, "bob", "releases")}
    assert len(every) == 4 and len(hers) == 1
    unknown = set()
    for release in [name for name in every if name not in hers] + ["nosuch", "mine"]:
        for name in ("sample", "explain"):
            with pytest.raises(DpsqlError) as told:
                ask(served, "bob", name, release=release)
            unknown.add(str(told.value).replace(release, "R"))
    assert len(unknown) == 1


def test_a_contained_answer_is_only_of_her_own(served):
    finer = "SELECT sex, member, count(*) AS n FROM people GROUP BY ALL"
    ask(served, "alice", "query", sql=finer, epsilon=0.5)
    ask(served, None, "query", sql=finer, epsilon=0.5)
    assert named(served, "bob", "plan", source=BY_SEX, epsilon=0.1)[0]["bought"] is False
    ask(served, "bob", "query", sql=BY_SEX, epsilon=0.1)
    assert named(served, "bob", "budget")[0]["releases"] == 1
    ask(served, "alice", "query", sql=BY_SEX, epsilon=0.1)  # hers is finer
    assert named(served, "alice", "budget")[0]["releases"] == 1


def test_learned_bounds_and_kept_shares_of_others_are_not_used(tmp_path):
    with duckdb.connect(str(tmp_path / "units.duckdb")) as con:
        make_people(con)
        dpsql.load(con)
        protect_people(con, epsilon=50.0, privacy_unit="person", max_contributions=3)
        for analyst in ("alice", "bob"):
            con.execute(f"CALL dp_grant('people', analyst := '{analyst}', epsilon := 20)")
        summed = {"sql": "SELECT sum(age) AS s FROM people", "epsilon": 2.0, "bounds": "auto"}
        again = {"source": "SELECT sum(age) AS s, avg(age) AS m FROM people", "epsilon": 1.0, "options": {"bounds": "auto"}}
        before = named(con, "bob", "plan", **again), named(con, "bob", "plan", source="people", epsilon=0.5)
        for analyst in ("alice", None):
            ask(con, analyst, "query", **summed)
            ask(con, analyst, "contributions", source="people", epsilon=4.0)
        assert (named(con, "bob", "plan", **again), named(con, "bob", "plan", source="people", epsilon=0.5)) == before
        assert (named(con, "alice", "plan", **again), named(con, "alice", "plan", source="people", epsilon=0.5)) != before


def everything_bob_sees(con):
    """What bob can ask for free, and the price of what he buys."""
    free = [ask(con, "bob", name) for name in ("budget", "releases")]
    free.append([{**row, "written_at": None} for row in named(con, "bob", "ledger")])
    free += [named(con, "bob", "plan", source=one, epsilon=0.1) for one in ("people", BY_SEX, "SELECT sex FROM people")]
    free += [named(con, "bob", "domain", source="people")]
    return free


def test_nothing_but_the_noise_depends_on_what_others_have_bought(served):
    before = everything_bob_sees(served)
    for analyst in ("alice", None):
        ask(served, analyst, "query", **OPEN["query"])
        ask(served, analyst, "synthesize", source="people", columns=["sex", "region"], epsilon=0.1, rows=3)
        ask(served, analyst, "marginals", source="people", columns=["sex"], epsilon=0.2)
    assert everything_bob_sees(served) == before
    ask(served, "bob", "query", **OPEN["query"])
    ((release, *_),) = ask(served, "bob", "releases")
    told = str(ask(served, "bob", "explain", release=release)), named(served, "bob", "budget"), named(served, "bob", "ledger")[1:]
    alone = duckdb.connect()
    make_people(alone)
    dpsql.load(alone)
    protect_people(alone)
    alone.execute("CALL dp_grant('people', analyst := 'bob', epsilon := 2, columns := ['sex', 'region'])")
    ask(alone, "bob", "query", **OPEN["query"])
    same = str(ask(alone, "bob", "explain", release=release)), named(alone, "bob", "budget"), named(alone, "bob", "ledger")[1:]
    for rows in (told[2], same[2]):
        for row in rows:
            row.pop("written_at")
    assert told == same
    alone.close()


def test_a_grant_that_is_taken_back_ends_everything(served):
    ask(served, "bob", "query", **OPEN["query"])
    ask(served, "bob", "query", **OPEN["query"])  # remembered
    served.execute("CALL dp_grant('people', analyst := 'bob', remove := true)")
    with pytest.raises(DpsqlError, match="no such table"):
        ask(served, "bob", "query", **OPEN["query"])
    assert ask(served, "bob", "releases") == ask(served, "bob", "budget") == ask(served, "bob", "ledger") == []
    served.execute("CALL dp_grant('people', analyst := 'bob', epsilon := 2, columns := ['sex'])")
    assert named(served, "bob", "budget")[0]["releases"] == 1  # what was spent stays spent


def test_publications_hold_no_protected_row(served):
    def published():
        return [row[0] for row in served.execute("SELECT source FROM dp_publish() WHERE change = 'in force'").fetchall()]

    served.execute("CREATE VIEW beds AS SELECT sum(beds) AS n FROM wards")
    served.execute("CREATE VIEW over_beds AS SELECT n + 1 AS m FROM beds")
    served.execute("CREATE MACRO total() AS (SELECT count(*) FROM people)")
    served.execute("CREATE MACRO everyone() AS TABLE (SELECT * FROM people)")
    served.execute("CREATE VIEW sly AS SELECT total() AS n FROM wards")
    served.execute("CREATE VIEW slyer AS SELECT * FROM everyone()")
    for name in ("people", "sly", "slyer", "nosuch", "dpsql.ledger"):
        with pytest.raises(DpsqlError):
            ask(served, None, "publish", source=name)
    ask(served, None, "publish", source="over_beds")
    assert published() == ["main.hidden", "main.over_beds", "main.wards", "main.young"]
    served.execute("CREATE OR REPLACE VIEW beds AS SELECT count(*) AS n FROM people")
    assert published() == ["main.hidden", "main.wards", "main.young"]
    ask(served, None, "publish", source="wards", remove=True)
    assert published() == ["main.hidden", "main.young"]
    ask(served, None, "publish", source="wards")
    served.execute("CALL dp_protect('wards', epsilon := 1, delta := 1e-9)")
    assert published() == ["main.hidden", "main.young"]


def test_what_is_published_may_be_joined(served):
    served.execute("CREATE TABLE areas (region VARCHAR PRIMARY KEY, beds INTEGER)")
    served.execute("INSERT INTO areas VALUES ('north', 1), ('south', 2)")
    joined = "SELECT a.beds, count(*) AS n FROM people p JOIN areas a ON p.region = a.region GROUP BY a.beds"
    with pytest.raises(DpsqlError, match="no such table"):
        ask(served, "alice", "query", sql=joined, epsilon=0.1)
    served.execute("CALL dp_publish('areas')")
    assert sorted(row[0] for row in ask(served, "alice", "query", sql=joined, epsilon=0.1)) == [1, 2]


def test_a_list_of_words_must_be_published(served):
    served.execute("CREATE TABLE words AS SELECT 'north' AS word UNION ALL SELECT 'south'")
    given = {"source": "people", "column": "region", "epsilon": 0.5, "domain": "words.word"}
    with pytest.raises(ArgumentError, match="domain"):
        ask(served, "alice", "histogram", **given)
    served.execute("CALL dp_publish('words')")
    ask(served, "alice", "histogram", **given)


def test_an_unknown_call_is_refused(served):
    with pytest.raises(DpsqlError, match="not known"):
        ask(served, "alice", "nosuch")
    assert set(dispatch.ANSWERS) == set(WHERE)


def test_the_statement_around_an_answer_reaches_no_other_table(served):
    served.execute("CREATE MACRO peek() AS (SELECT count(*) FROM secret)")
    for sql in (
        "SELECT * FROM (SELECT count(*) n FROM people) x, raw",
        "SELECT count(*) n, (SELECT max(a) FROM raw) m FROM people",
        "SELECT count(*) n, (SELECT count(*) FROM secret) m FROM people",
        "SELECT n FROM (SELECT count(*) n FROM people) WHERE EXISTS (SELECT 1 FROM raw)",
        "SELECT count(*) n FROM people UNION ALL SELECT a FROM raw",
        "WITH r AS (SELECT * FROM raw) SELECT count(*) n, (SELECT max(a) FROM r) FROM people",
        "SELECT count(*) n FROM people HAVING count(*) > (SELECT count(*) FROM raw)",
        "SELECT count(*) n, (SELECT count(*) FROM duckdb_tables()) FROM people",
        "SELECT count(*) n, (SELECT count(*) FROM information_schema.tables) FROM people",
        "SELECT count(*) n, peek() FROM people",
        "SELECT count(*) n, getenv('HOME') FROM people",
        "SELECT count(*) n, current_setting('threads') FROM people",
    ):
        for adaptive in (False, True):
            with pytest.raises(DpsqlError):
                ask(served, "alice", "query", sql=sql, epsilon=0.05, adaptive=adaptive)
    assert named(served, "alice", "budget")[0]["releases"] == 0
