"""Sources that are accepted: what the rewritten SQL returns, and that one row of the table moves at most one row of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from work import calls_made

from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source.analysis import UNIT, Source, TableId, analyse

SETUP = """
CREATE TYPE mood AS ENUM ('F', 'M');
CREATE TABLE adult AS
SELECT i AS id, (i * 7) % 90 AS age, 'n' || i AS name, CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS sex, i * 1.5::DOUBLE AS income,
       DATE '2020-01-01' + i::INTEGER AS d, TIMESTAMP '2020-03-01 12:30:00' AS ts, i % 3 = 0 AS ok,
       {'x': i, 'y z': 'q'} AS st, [i, i + 1] AS l, CASE WHEN i % 5 < 4 THEN (i % 5)::VARCHAR END AS code,
       (i / 7)::DECIMAL(6, 2) AS dc, i::INTEGER AS "select", 2 AS "a.b", 3 AS "q""q", 4 AS "größe"
FROM range(60) AS r(i);
CREATE TABLE region(code VARCHAR PRIMARY KEY, label VARCHAR);
INSERT INTO region VALUES ('0', 'zero'), ('1', 'one'), ('2', NULL);
CREATE TABLE two(a VARCHAR, b BIGINT, z INTEGER, UNIQUE (a, b));
INSERT INTO two VALUES ('1', 7, 10), ('1', 42, 20), ('2', 14, 30);
CREATE TABLE loose(code VARCHAR, w INTEGER);
INSERT INTO loose VALUES ('0', 1), ('0', 2), ('1', 3);
CREATE SCHEMA s2;
CREATE TABLE s2.adult(zz INTEGER);
CREATE VIEW v AS SELECT id, age + 1, upper(name) AS n FROM adult WHERE age > 3;
CREATE VIEW v2(a) AS SELECT * EXCLUDE (n) FROM v;
CREATE VIEW vord AS SELECT id, age FROM adult ORDER BY age;
CREATE VIEW vjoin AS SELECT a.id, r.label FROM adult AS a LEFT JOIN region AS r ON a.code = r.code;
CREATE VIEW s2.w AS SELECT age FROM main.adult WHERE d + INTERVAL 1 DAY > DATE '2020-01-10' AND name LIKE 'n%';
CREATE VIEW s2.fallback AS SELECT code, label FROM region;
CREATE VIEW "AS (x" ("as", "b ""c") AS SELECT id, sex FROM adult;
"""

# text -> the same over a pandas frame; None: the text itself on DuckDB is the expectation
ACCEPTED = {
    "adult": None,
    "ADULT": None,
    "main.adult": None,
    'memory."MAIN".Adult': None,
    "v": None,
    "v2": None,
    "vord": None,
    "vjoin": None,
    "s2.w": None,
    '"AS (x"': None,
    "FROM adult": None,
    "FROM adult SELECT age WHERE age > 3": None,
    "SELECT age FROM adult -- LIMIT 3": None,
    "SELECT /* GROUP BY */ age FROM adult;": None,
    "(SELECT age FROM adult)": None,
    "SELECT * FROM adult WHERE age BETWEEN 10 AND 40 AND sex = 'F' AND ok IS NOT TRUE": None,
    "SELECT * EXCLUDE (st, l) FROM adult": None,
    "SELECT * REPLACE (age + 1 AS age) FROM adult": None,
    "SELECT q.age, q.sex AS s FROM adult AS q WHERE q.code IN ('0', '1') AND q.age NOT IN (0, 7)": None,
    "SELECT a, b FROM adult AS t(a, b)": None,
    "SELECT main.adult.age, memory.main.adult.sex FROM adult": None,
    'SELECT "select", "a.b", "q""q", größe FROM adult': None,
    "SELECT age AS \"SELECT 1; --\", sex AS \"it's\", id AS \"\"\"\" FROM adult": None,
    "SELECT st.x, st['y z'] AS yz, l[1] AS first, l[9] AS ninth, struct_extract(st, 'x') + 1 AS x1 FROM adult": None,
    "SELECT adult.st.x AS x FROM adult": None,
    "SELECT age::VARCHAR AS a, sex::mood AS m, name::INTEGER IS NULL AS n, TRY_CAST(code AS INTEGER) AS c FROM adult WHERE ok": "no cast",
    "SELECT age + id AS s, age - id AS m, age * id AS p, age // 7 AS q, age % 7 AS r, -age AS g, income / 4 AS h, dc * 2 AS k FROM adult": None,
    "SELECT abs(age - 40) AS a, sqrt(age) AS s, ln(age + 1) AS l, round(income, 1) AS r, greatest(age, id) AS g FROM adult": None,
    "SELECT CASE WHEN ok THEN age ELSE -age END AS a, CASE age WHEN 7 THEN 'x' END AS c, coalesce(code, '?') AS k FROM adult": None,
    "SELECT nullif(age, 7) AS n, if(ok, 1, 2) AS i, ifnull(code, 'none') AS f, split_part(name, 'n', 2) AS s FROM adult": None,
    "SELECT lower(name) || '-' || sex AS a, concat(name, age) AS b, substring(name, 2, 1) AS c, left(name, 2) AS e FROM adult": None,
    "SELECT name LIKE 'n1%' AS a, name NOT LIKE '%1' AS b, name ILIKE 'N_' AS c, regexp_matches(name, '[12]$') AS r FROM adult": None,
    "SELECT year(d) AS y, extract(month FROM d) AS m, date_part('dow', d) AS w, date_trunc('month', ts) AS t FROM adult": None,
    "SELECT d + INTERVAL 1 MONTH AS a, d - INTERVAL '2' DAY AS b, d + 3 AS c, d - DATE '2019-12-25' AS e FROM adult": None,
    "SELECT date_diff('day', d, DATE '2021-01-01') AS a, datediff('hour', d::TIMESTAMP, ts) AS b, strftime(d, '%Y/%m') AS s FROM adult": None,
    "SELECT age IS DISTINCT FROM 7 AS a, ok AND age > 3 OR NOT ok AS b, code IS NULL AS c FROM adult": None,
    "SELECT $$it's$$ AS a, 'x''y' AS b, 1.5 AS c, true AS e, NULL::INTEGER AS f FROM adult": None,
    "WITH x AS (SELECT age, sex FROM adult), y(a, b) AS (SELECT * FROM x WHERE age > 9) SELECT a + 1 AS a1, b FROM y": None,
    "WITH x AS MATERIALIZED (FROM adult) SELECT age FROM x AS z(i, age)": None,
    "WITH adult AS (SELECT age FROM adult) SELECT * FROM adult": None,
    "WITH x AS (WITH y AS (SELECT sex FROM adult) FROM y) SELECT x.sex FROM x": None,
    "SELECT * FROM (SELECT * FROM (SELECT age, id FROM adult WHERE age > 2) WHERE id < 50) AS z WHERE age < 60": None,
    "SELECT z.n FROM (SELECT age AS n FROM adult) AS z WHERE z.n > 3": None,
    "SELECT a.id, r.label FROM adult AS a JOIN region AS r ON a.code = r.code": None,
    "SELECT a.id, r.label FROM adult AS a LEFT JOIN region AS r ON r.code = a.code": None,
    "SELECT id, label FROM adult LEFT JOIN region USING (code) WHERE label IS NOT NULL": None,
    "SELECT * EXCLUDE (st) FROM adult JOIN region USING (code)": None,
    "SELECT a.id, t.z, r.label FROM adult a LEFT JOIN two t ON a.code = t.a AND a.age = t.b LEFT JOIN region r ON r.code = t.a": None,
    "SELECT a.id, r.label FROM adult AS a JOIN region AS r ON CAST(a.id % 4 AS VARCHAR) = r.code": None,
    "SELECT region.label, adult.id FROM adult JOIN main.region ON adult.code = main.region.code WHERE label = 'one'": None,
    "SELECT id FROM v WHERE id > 5": None,
    "SELECT a FROM v2": None,
}
PROTECTED = {"adult"}


@pytest.fixture
def con():
    with duckdb.connect(":memory:") as connection:
        connection.execute(SETUP)
        yield connection


@pytest.fixture(scope="module")
def unchanged():
    """The same for what leaves it as it was."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(SETUP)
        yield connection


def check(con: duckdb.DuckDBPyConnection, text: str, unit: str | None = None, **more):
    return analyse(
        con.cursor(), text, database="memory", schema="main",
        protected=lambda t: t.name in PROTECTED and t.schema == "main", unit_column=lambda t: unit, **more,
    )


def rows(con: duckdb.DuckDBPyConnection, query: str) -> tuple[list[tuple[str, str]], Counter]:
    kinds = [(r[0], r[1]) for r in con.execute(f"DESCRIBE {query}").fetchall()]
    return kinds, Counter(repr(r) for r in con.execute(query).fetchall())


def plain(text: str) -> str:
    """The text as DuckDB runs it itself."""
    return text if text.lstrip("(").split()[0].upper() in ("SELECT", "FROM", "WITH") else f"SELECT * FROM {text}"


def columns_of(source: Source) -> str:
    """The source without the numbers of rows, which it carries where it has a join."""
    assert (source.row is None) == (not source.public_tables)
    return f"SELECT * EXCLUDE ({source.row}) FROM ({source.sql}) AS s" if source.row else source.sql


@pytest.mark.parametrize("text", [t for t, e in ACCEPTED.items() if e is None])
def test_same_rows_names_and_types_as_the_text_itself(unchanged, text):
    con = unchanged
    source = check(con, text)
    assert rows(con, columns_of(source)) == rows(con, plain(text).rstrip("; "))
    assert [(c.name, c.sql_type) for c in source.columns] == rows(con, columns_of(source))[0]
    assert source.table == TableId("memory", "main", "adult")
    assert source.unit is None


@pytest.mark.parametrize("text", ACCEPTED)
def test_stability_one(unchanged, text):
    """Without any one row of the table, the result lacks at most that row's result and is otherwise the same."""
    con = unchanged
    source = check(con, text, unit="id")
    query = f"SELECT * FROM ({source.sql}) AS s"
    whole = rows(con, query)[1]
    total = con.execute("SELECT count(*) FROM adult").fetchone()[0]
    assert whole.total() <= total
    if not source.filtered:
        assert whole.total() == total
    for i in (0, 1, 7, 12, 59):
        con.execute("BEGIN")
        con.execute("DELETE FROM adult WHERE id = ?", [i])
        less = rows(con, query)[1]
        con.execute("ROLLBACK")
        lost = whole - less
        assert not less - whole
        assert lost.total() <= 1
        assert source.filtered or lost.total() == 1
        units = [r[0] for r in con.execute(f"SELECT {UNIT} FROM ({source.sql}) AS s WHERE {UNIT} = {i}").fetchall()]
        assert len(units) == lost.total()


def test_expectation_from_pandas(con):
    frame = con.execute("SELECT id, age, sex, income, code FROM adult").df()
    source = check(
        con,
        "SELECT a.age // 10 AS decade, income / (age - 14) AS ratio, coalesce(r.label, '-') AS label "
        "FROM adult a LEFT JOIN region r ON a.code = r.code WHERE sex = 'M' AND age >= 10",
    )
    got = con.execute(columns_of(source)).df().sort_values(["decade", "ratio"], na_position="first", ignore_index=True)
    kept = frame[(frame.sex == "M") & (frame.age >= 10)]
    with np.errstate(divide="ignore"):
        ratio = np.where(kept.age == 14, np.nan, kept.income / (kept.age - 14).replace(0, 1))
    label = kept.code.map({"0": "zero", "1": "one"}).fillna("-")
    want = pd.DataFrame({"decade": kept.age // 10, "ratio": ratio, "label": label})
    want = want.sort_values(["decade", "ratio"], na_position="first", ignore_index=True)
    pd.testing.assert_frame_equal(got, want, check_dtype=False)
    assert source.filtered
    assert source.public_tables == (TableId("memory", "main", "region"),)


@pytest.mark.parametrize(
    ("text", "filtered", "bare", "origins"),
    [
        ("adult", False, True, {"age": "age", "größe": "größe"}),
        ("SELECT * FROM adult", False, False, {"age": "age"}),
        ("SELECT age AS a, age + 0 AS b FROM adult", False, False, {"a": "age", "b": None}),
        ("v2", True, False, {"a": "id", "(age + 1)": None}),
        ("SELECT id FROM adult WHERE true", True, False, {"id": "id"}),
        ("SELECT id, label FROM adult JOIN region USING (code)", True, False, {"id": "id", "label": None}),
        ("SELECT id, label FROM adult LEFT JOIN region USING (code)", False, False, {"id": "id", "label": None}),
        ("WITH x(y) AS (SELECT age FROM adult) SELECT z.y AS q FROM x AS z", False, False, {"q": "age"}),
    ],
)
def test_what_is_known_about_the_result(con, text, filtered, bare, origins):
    source = check(con, text)
    assert (source.filtered, source.bare) == (filtered, bare)
    found = {c.name: c.origin for c in source.columns}
    assert {name: found[name] for name in origins} == origins


def test_nullable(con):
    con.execute("ALTER TABLE adult ALTER id SET NOT NULL")
    known = {c.name: c.nullable for c in check(con, "SELECT id, age, id + 1 AS e, label FROM adult LEFT JOIN region USING (code)").columns}
    assert known == {"id": False, "age": True, "e": True, "label": True}


def test_canonical_is_one_text_for_one_meaning(con):
    same = {check(con, t).canonical for t in ("adult", "ADULT", "main.adult", 'memory.main."adult"')}
    assert same == {'"main"."adult"'}
    same = {
        check(con, t).canonical
        for t in (
            "SELECT age AS a FROM adult WHERE age>3",
            "select /* x */ age a\nfrom MAIN.adult where age > 3;",
            "FROM memory.main.adult SELECT age AS a WHERE age > 3 -- done",
        )
    }
    assert same == {'SELECT age AS a FROM "main"."adult" WHERE age > 3'}
    assert check(con, "v").canonical == '"main"."v"'
    assert check(con, "SELECT id FROM v").canonical == 'SELECT id FROM "main"."v"'
    assert check(con, "SELECT label FROM adult LEFT JOIN region USING (code)").canonical.count('"main".') == 2


def test_unit_travels_through_everything(con):
    text = """WITH x AS (SELECT age, code FROM v3 WHERE age > 3)
              SELECT z.age, label FROM (SELECT * FROM x) AS z LEFT JOIN region AS r ON z.code = r.code"""
    con.execute("CREATE VIEW v3 AS SELECT age, code FROM adult")
    source = check(con, text, unit="NAME")
    assert source.unit == UNIT
    assert [c.name for c in source.columns] == ["age", "label"]
    got = Counter(con.execute(f"SELECT decode({UNIT}), age FROM ({source.sql}) AS s").fetchall())
    assert got == Counter(con.execute("SELECT name, age FROM adult WHERE age > 3").fetchall())


def test_a_public_key_that_is_not_unique_does_not_repeat_rows(con):
    keys = {"loose": [["CODE"]]}
    with pytest.raises(UnsupportedQuery, match="declared key"):
        check(con, "SELECT id, w FROM adult JOIN loose USING (code)")
    source = check(con, "SELECT id, w FROM adult JOIN loose USING (code)", public_keys=lambda t: keys.get(t.name, ()))
    ids = [r[0] for r in con.execute(f"SELECT id FROM ({source.sql}) AS s").fetchall()]
    assert sorted(ids) == [i for i in range(60) if i % 5 < 2]


def test_collated_keys_do_not_repeat_rows(con):
    con.execute("CREATE TABLE noc(k VARCHAR COLLATE NOCASE, w INTEGER); INSERT INTO noc VALUES ('f', 1), ('F', 2), ('m', 3)")
    source = check(con, "SELECT id, w FROM adult LEFT JOIN noc ON adult.sex = noc.k", public_keys=lambda t: [["k"]])
    assert con.execute(f"SELECT count(*), count(DISTINCT id) FROM ({source.sql}) AS s").fetchone() == (60, 60)


def test_order_by_is_dropped_whatever_it_holds(con):
    source = check(con, "SELECT age FROM adult ORDER BY random(), (SELECT max(age) FROM adult)")
    assert "ORDER" not in source.sql.upper()
    assert "RANDOM" not in source.sql.upper()


def test_generated_columns_are_left_out(con):
    con.execute("CREATE TABLE g(a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1), c INTEGER); INSERT INTO g VALUES (1, 2)")
    source = analyse(con.cursor(), "g", database="memory", schema="main", protected=lambda t: t.name == "g")
    assert [c.name for c in source.columns] == ["a", "c"]


# -- files ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(con, tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "year=2020").mkdir()
    for name in ("people.parquet", "it's.parquet", "year=2020/p.parquet"):
        con.execute(f"COPY (SELECT id, age, sex FROM adult) TO '{name.replace(chr(39), chr(39) * 2)}'")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    ["people.parquet", "'people.parquet'", "FROM 'people.parquet'", "SELECT * FROM read_parquet('./people.parquet')", "{}/people.parquet",
     "link.parquet", "it's.parquet", "'it''s.parquet'", "year=2020/p.parquet"],
)
def test_parquet_files(con, folder, text):
    (folder / "link.parquet").symlink_to(folder / "people.parquet")
    source = analyse(con.cursor(), text.format(folder), database="memory", schema="main", protected=lambda t: t.is_file)
    assert source.table.is_file
    assert Path(source.table.name).is_absolute()
    assert Path(source.table.name).name in ("people.parquet", "it's.parquet", "p.parquet")
    assert [c.name for c in source.columns] == ["id", "age", "sex"]
    assert rows(con, f"SELECT * FROM ({source.sql}) AS s")[1] == rows(con, "SELECT id, age, sex FROM adult")[1]
    if "SELECT" not in text and "FROM" not in text:
        assert source.canonical == source.table.text


def test_view_over_a_file(con, folder):
    con.execute("CREATE VIEW vf AS SELECT age FROM 'people.parquet' WHERE age > 3")
    source = analyse(con.cursor(), "vf", database="memory", schema="main", protected=lambda t: t.is_file)
    assert source.filtered
    assert source.table.name == str((folder / "people.parquet").resolve())


def test_patterns_in_real_paths(con, folder):
    (folder / "people.parquet").rename(folder / "people[1].parquet")
    (folder / "plain.parquet").symlink_to(folder / "people[1].parquet")
    with pytest.raises(UnsupportedQuery, match="pattern"):
        analyse(con.cursor(), "plain.parquet", database="memory", schema="main", protected=lambda t: True)
    with pytest.raises(ArgumentError, match="no such file"):
        analyse(con.cursor(), "people.parquet", database="memory", schema="main", protected=lambda t: True)


# -- names that lie ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("macro", "text"),
    [
        ("upper(x) AS 'HIJACK'", "SELECT upper(name) AS x FROM adult"),
        ('"+"(a, b) AS (SELECT max(age) FROM adult)', "SELECT age + 1 AS x FROM adult"),
        ('"||"(a, b) AS 42', "SELECT name || sex AS x FROM adult"),
        ('"~~"(a, b) AS true', "SELECT age FROM adult WHERE name LIKE 'x'"),
        ("date_part(a, b) AS 42", "SELECT extract(month FROM d) AS x FROM adult"),
        ("list_extract(a, b) AS 42", "SELECT l[1] AS x FROM adult"),
        ("struct_extract(a, b) AS 42", "SELECT st.x FROM adult"),
        ("string_split(a, b) AS ['H']", "SELECT split_part(name, 'n', 2) AS x FROM adult"),
        ("read_parquet(a, hive_partitioning := 1) AS TABLE SELECT 42 AS age", "adult"),
        ("sqrt(x) AS random()", "SELECT sqrt(age) AS x FROM adult"),
    ],
)
def test_macro_with_the_name_of_a_function(con, macro, text):
    check(con, text)
    con.execute(f"CREATE MACRO {macro}")
    with pytest.raises((UnsupportedQuery, ArgumentError)):
        check(con, text)


def test_macros_cannot_speak_for_the_catalog(con):
    for macro in (
        "duckdb_views() AS TABLE SELECT 'memory' AS database_name, 'main' AS schema_name, 'v' AS view_name, '' AS sql, false AS internal",
        "duckdb_tables() AS TABLE SELECT 1 AS nothing",
        "duckdb_functions() AS TABLE SELECT 1 AS nothing",
        "duckdb_constraints() AS TABLE SELECT 1 AS nothing",
        "lower(x) AS 'adult'",
        "list_contains(a, b) AS false",
        "json_serialize_sql(x) AS 'nothing'",
        "json_serialize_plan(x) AS 'nothing'",
    ):
        con.execute(f"CREATE MACRO {macro}")
    try:
        assert check(con, "v2").filtered
        assert check(con, "SELECT label FROM adult LEFT JOIN region USING (code)").public_tables
    except UnsupportedQuery as refusal:  # DuckDB 1.4 trips over the macro itself
        assert "does not answer" in str(refusal)
        for name in ("tables", "views", "constraints", "functions"):
            con.execute(f"DROP MACRO TABLE duckdb_{name}")
        assert check(con, "v2").filtered
        assert check(con, "SELECT label FROM adult LEFT JOIN region USING (code)").public_tables
    with pytest.raises(UnsupportedQuery, match="lower"):
        check(con, "SELECT lower(name) AS x FROM adult")


def test_python_function_that_overloads_a_function(con):
    text = "SELECT lower(age) AS x FROM adult"
    con.create_function("lower", lambda x: "PY", ["BIGINT"], "VARCHAR")
    try:
        for query in (text, "SELECT lower(name) AS x FROM adult"):
            with pytest.raises(UnsupportedQuery, match="gives it another meaning"):
                check(con, query)
    finally:
        con.remove_function("lower")


def test_binding_a_view_comes_after_checking_it(tmp_path):
    calls: list[str] = []

    def relation(name: str) -> str:
        calls.append(name)
        return "(SELECT 1 AS a)"

    path = str(tmp_path / "x.duckdb")
    with duckdb.connect(path) as con:
        con.create_function("eff", relation, ["VARCHAR"], "VARCHAR", side_effects=True)
        con.execute("CREATE TABLE adult(a INTEGER)")
        con.execute("CREATE MACRO dpx(s) AS TABLE FROM query('FROM ' || eff(s))")
        con.execute("CREATE VIEW bought AS FROM dpx('x')")
        con.execute("CREATE VIEW mixed AS SELECT a.a FROM adult AS a, dpx('x') AS x")
    with duckdb.connect(path) as con:
        con.create_function("eff", relation, ["VARCHAR"], "VARCHAR", side_effects=True)
        calls.clear()
        for text in ("bought", "mixed", "SELECT * FROM bought", "SELECT a.a FROM adult a JOIN bought b ON a.a = b.a", "FROM dpx('x')"):
            with pytest.raises(UnsupportedQuery):
                analyse(con.cursor(), text, database="x", schema="main", protected=lambda t: t.name == "adult")
        assert calls == []
        con.remove_function("eff")


def test_view_texts_speak_from_their_own_place(con):
    # unqualified names of a view mean its own schema first, then main of its database
    con.execute("CREATE VIEW s2.own AS SELECT zz FROM adult")
    con.execute("CREATE VIEW s2.other AS SELECT id, label FROM main.adult LEFT JOIN region USING (code)")
    source = analyse(
        con.cursor(), "s2.own", database="memory", schema="main", protected=lambda t: (t.schema, t.name) == ("s2", "adult")
    )
    assert source.table == TableId("memory", "s2", "adult")
    assert check(con, "s2.other").public_tables == (TableId("memory", "main", "region"),)


def test_view_whose_table_was_altered(con):
    con.execute("CREATE VIEW va AS SELECT * FROM adult")
    con.execute("ALTER TABLE adult ADD COLUMN more INTEGER")
    try:  # DuckDB 1 refuses such a view, DuckDB 2 shows the new column
        assert rows(con, check(con, "va").sql) == rows(con, "SELECT * FROM va")
    except (UnsupportedQuery, ArgumentError):
        with pytest.raises(duckdb.Error):
            con.execute("FROM va")
    con.execute("CREATE OR REPLACE VIEW va AS SELECT * FROM adult")
    assert "more" in [c.name for c in check(con, "va").columns]


def test_views_that_read_themselves(con):
    con.execute("CREATE VIEW a1 AS SELECT id FROM adult; CREATE VIEW a2 AS FROM a1; CREATE OR REPLACE VIEW a1 AS FROM a2")
    with pytest.raises(UnsupportedQuery, match="reads itself"):
        check(con, "a1")


def test_database_and_schema_of_one_name(con):
    con.execute("ATTACH ':memory:' AS twin; CREATE SCHEMA twin; CREATE TABLE twin.main.t(a INTEGER)")
    with pytest.raises(UnsupportedQuery, match="names a schema and a database"):
        con.execute("CREATE TABLE memory.twin.t(b INTEGER)")
        analyse(con.cursor(), "twin.t", database="memory", schema="main", protected=lambda t: True)
    source = analyse(con.cursor(), "twin.main.t", database="memory", schema="main", protected=lambda t: True)
    assert source.table == TableId("twin", "main", "t")


def test_attached_database_and_odd_names(con):
    con.execute('ATTACH \':memory:\' AS "we.ird ""db"; CREATE SCHEMA "we.ird ""db"."Sch é"')
    con.execute('CREATE TABLE "we.ird ""db"."Sch é"."SELECT" ("a b" INTEGER, "ä" INTEGER, "Ä" INTEGER)')
    con.execute('INSERT INTO "we.ird ""db"."Sch é"."SELECT" VALUES (1, 2, 3)')
    for text in ('"we.ird ""db"."Sch é"."SELECT"', 'SELECT * FROM "WE.ird ""db"."sch é"."select"'):
        source = analyse(con.cursor(), text, database="memory", schema="main", protected=lambda t: True)
        assert source.table == TableId('we.ird "db', "Sch é", "SELECT")
        assert con.execute(source.sql).fetchall() == [(1, 2, 3)]
    for text in ("SELECT", '"SELECT"', "select"):
        assert analyse(con.cursor(), text, database='we.ird "db', schema="Sch é", protected=lambda t: True).bare


@pytest.mark.parametrize("name", ["my table", "adult-2020", "x'; DROP TABLE adult; --", "main.adult2", 'ta"b', "表", "1st", "a(b", "a;b"])
def test_plain_names_that_are_no_identifiers(con, name):
    quoted = '"' + name.replace('"', '""') + '"'
    con.execute(f"CREATE TABLE {quoted}(a INTEGER)")
    for text in (name, quoted, f"FROM {quoted}"):
        assert analyse(con.cursor(), text, database="memory", schema="main", protected=lambda t: True).table.name == name
    assert con.execute("SELECT count(*) FROM adult").fetchone() == (60,)


def test_types_with_quotes_in_them(con):
    con.execute("""CREATE TYPE odd AS ENUM ('it''s', 'a"b', '); DROP TABLE adult; --')""")
    con.execute("""CREATE TABLE o(e odd, s STRUCT("x "" y" INTEGER, "'" odd), t VARCHAR)""")
    con.execute("""INSERT INTO o VALUES ('it''s', {'x " y': 1, '''': 'a"b'}, ');')""")
    source = analyse(
        con.cursor(), """SELECT e, upper(e) AS u, s, s['x " y'] + 1 AS x, t::odd AS c FROM o""",
        database="memory", schema="main", protected=lambda t: True,
    )
    assert con.execute(source.sql).fetchone()[1::2] == ("IT'S", 2)
    assert con.execute("SELECT count(*) FROM adult").fetchone() == (60,)


def test_the_work_for_a_wide_table_grows_with_its_columns(con):
    """Twice the columns are twice the calls, not four times as many."""

    def read(columns):
        con.execute(f"CREATE TABLE wide{columns}({', '.join(f'c{i} BOOLEAN' for i in range(columns))})")
        cursor, found = con.cursor(), []

        def job():
            found.append(analyse(cursor, f"wide{columns}", database="memory", schema="main", protected=lambda t: True))

        made = calls_made(job)
        assert len(found[0].columns) == columns
        return made

    read(10)  # what is imported and looked up once
    assert read(800) < 2.3 * read(400)
