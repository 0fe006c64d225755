"""One row counts once and one person is one: keys, units and names under every notion of equality that a database can have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pairwise import grid

import dpsql
from dpsql.domains import encoding
from dpsql.domains.attributes import Attribute, Domain
from dpsql.noise import discrete
from dpsql.text.names import fold

PACKAGE = Path(dpsql.__file__).parent
SPELLINGS = ["".join(letters) for letters in itertools.product(*[(c, c.upper()) for c in "abcdefg"])]  # 128 of one word


@pytest.fixture
def con(monkeypatch) -> Iterator[duckdb.DuckDBPyConnection]:
    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
    connection = duckdb.connect()
    dpsql.load(connection, progress=False)
    yield connection
    connection.close()


def protect(con: duckdb.DuckDBPyConnection, table: str, **contract: object) -> None:
    given = "".join(f", {name} := {value!r}" for name, value in contract.items())
    con.execute(f"CALL dp_protect('{table}', epsilon := 100, delta := 1e-9{given})")


def counts(con: duckdb.DuckDBPyConnection, source: str, column: str, categories: list[str], release: str = "one") -> list[int]:
    """Exact counts of one column: of the categories, and of NULL."""
    con.execute(f"CALL dp_declare($$ {source} $$, '{column}', categories := {categories!r}, nullable := true)")
    found = con.execute(f"SELECT n FROM dp_marginals($$ {source} $$, columns := ['{column}'], k := 1, epsilon := 0.5, release := '{release}')")
    return [n for (n,) in found.fetchall()]


@grid(
    collation=["NOCASE", "NOACCENT.NOCASE", "NFC"],
    join=["JOIN", "LEFT JOIN"],
    where=["table", "public table", "both", "database", "subquery", "view", "cte"],
)
def test_a_key_is_joined_byte_by_byte(con, collation, join, where):
    """128 spellings of one word in a public key: whoever has one of them meets that one."""
    own = f" COLLATE {collation}" if where not in ("public table", "database") else ""
    public = f" COLLATE {collation}" if where in ("public table", "both") else ""
    con.execute(f"CREATE TABLE people (id INTEGER, code VARCHAR{own}); CREATE TABLE words (k VARCHAR{public} PRIMARY KEY, g VARCHAR)")
    con.execute("INSERT INTO people SELECT i, 'other' FROM range(9) t(i); INSERT INTO people VALUES (9, 'abcdefg')")
    con.execute("INSERT INTO words SELECT unnest(?), 'u'", [SPELLINGS])
    con.execute("INSERT INTO words VALUES ('other', 'w')")
    if where == "database":
        con.execute(f"SET GLOBAL default_collation = '{collation}'")
    protect(con, "people")
    con.execute("CREATE VIEW v AS SELECT id, code FROM people")
    start = {"subquery": "(SELECT code FROM people)", "view": "v", "cte": "c"}.get(where, "people")
    text = f"SELECT words.g FROM {start} AS x {join} words ON x.code = words.k"
    source = f"WITH c AS (SELECT * FROM people) {text}" if where == "cte" else text
    assert counts(con, source, "g", ["u", "w"]) == [1, 9, 0]


def test_the_public_number_of_rows_does_not_depend_on_a_join(con):
    con.execute("CREATE TABLE people (code VARCHAR COLLATE NOCASE); CREATE TABLE words (k VARCHAR PRIMARY KEY, g VARCHAR)")
    con.execute("INSERT INTO people SELECT 'abcdefg' FROM range(5)")
    con.execute("INSERT INTO words SELECT unnest(?), 'u'", [SPELLINGS])
    protect(con, "people", neighbors="replace_one")
    source = "SELECT g FROM people LEFT JOIN words ON code = k"
    con.execute(f"CALL dp_declare('{source}', 'g', categories := ['u'], nullable := true)")
    assert con.execute(f"SELECT count(*) FROM dp_synthesize('{source}', epsilon := 1)").fetchone() == (5,)


def test_every_equality_of_on_holds(con):
    con.execute("CREATE TABLE p AS SELECT i AS id, i % 3 AS a FROM range(8) t(i)")
    con.execute("CREATE TABLE q (k BIGINT PRIMARY KEY, v VARCHAR); INSERT INTO q SELECT i, 'v' FROM range(5) t(i)")
    protect(con, "p")
    for number, on in enumerate(("q.k = p.a AND q.k = p.id", "p.id = q.k AND (q.k = p.a AND q.k = p.id)", "q.k = p.id AND q.v = 'v' || ''")):
        source = f"SELECT q.v FROM p JOIN q ON {on}"
        own = con.execute(f"SELECT count(*) FROM ({source})").fetchone()[0]
        assert counts(con, source, "v", ["v"], f"r{number}") == [own, 0]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("DOUBLE", "0.0", "'-0.0'"), ("FLOAT", "'nan'", "'-nan'"), ("INTERVAL", "INTERVAL 1 MONTH", "INTERVAL 30 DAY"),
        ("TIMETZ", "'00:00:00+00'", "'01:00:00+01'"), ("JSON", "'1'", "' 1'"), ("BIT", "'1'", "'01'"),
    ],
)
def test_a_key_of_a_type_with_several_forms_of_a_value_is_refused(con, kind, one, other):
    con.execute(f"CREATE TABLE p (k {kind}); INSERT INTO p VALUES ({one}), ({other})")
    try:
        con.execute(f"CREATE TABLE q (k {kind} PRIMARY KEY, g VARCHAR)")
    except duckdb.Error:
        pytest.skip("no key in this version of DuckDB")
    protect(con, "p")
    with pytest.raises(duckdb.Error, match=r"refused at ON.* several forms"):
        con.execute("CALL dp_declare('SELECT q.g FROM p JOIN q ON p.k = q.k', 'g', categories := ['u'])")


@pytest.mark.parametrize(
    ("kind", "values", "people"),
    [
        ("VARCHAR COLLATE NOCASE", ["'u'", "'U'", "'ü'", "NULL", "NULL"], 4),
        ("VARCHAR COLLATE NOACCENT", ["'u'", "'ü'", "'u' || chr(776)"], 3),
        ("DOUBLE", ["0.0", "'-0.0'", "'nan'", "'-nan'", "1", "NULL"], 4),
        ("FLOAT", ["0.0", "'-0.0'", "'nan'", "'-nan'"], 2),
        ("HUGEINT", ["170141183460469231731687303715884105727", "0"], 2),
        ("BLOB", ["'a'", "'A'", "'\\x00'", "''"], 4),
        ("TIMESTAMPTZ", ["'2020-01-01 00:00:00+00'", "'2020-01-01 01:00:00+01'"], 1),
        ("UUID", ["'00000000-0000-0000-0000-000000000001'", "NULL"], 2),
        ("ENUM('x', 'X')", ["'x'", "'X'"], 2),
    ],
)
def test_a_person_is_a_value_of_the_unit(con, kind, values, people):
    """Each value of the unit stands in two rows, one of which is kept."""
    con.execute(f"CREATE TABLE p (u {kind}, g VARCHAR)")
    for value in values * 2:
        con.execute(f"INSERT INTO p VALUES ({value}, 'g')")
    protect(con, "p", privacy_unit="u", max_contributions=1)
    assert counts(con, "p", "g", ["g"]) == [people, 0]


def test_units_whose_hashes_collide_are_two(con):
    """The 64 bits of a hash only feed the random choice: rows are put together, and bounded, by the unit itself."""
    domain = Domain((Attribute("g", "VARCHAR", "categorical", ("x", "y")),))
    source = "SELECT encode('u' || (i % 5)) AS __dp_unit, ['x', 'y'][1 + i % 2] AS g FROM range(100) t(i)"
    text = encoding.encode_sql(source, domain, True, 3, "0123456789abcdef" * 2)
    collided = re.sub(r"hash\(hash\([^()]*\)\)", "42::UBIGINT", text)
    assert collided != text
    for statement in (text, collided):
        assert con.execute(f"SELECT count(*) FROM ({statement})").fetchone() == (15,)


@pytest.mark.parametrize("kind", ["INTERVAL", "TIMETZ", "JSON", "BIT", "VARCHAR[]", "STRUCT(a INTEGER)", "MAP(INTEGER, INTEGER)", "UNION(a INTEGER, b VARCHAR)"])
def test_a_unit_of_a_type_with_several_forms_of_a_value_is_refused(con, kind):
    con.execute(f"CREATE TABLE p (u {kind}, g VARCHAR)")
    with pytest.raises(duckdb.Error, match=r"privacy_unit = 'u': is .* several forms; add a column"):
        protect(con, "p", privacy_unit="u", max_contributions=1)
    assert con.execute("FROM dp_ledger()").fetchall() == []
    con.execute("CREATE OR REPLACE TABLE p (u VARCHAR, g VARCHAR)")
    protect(con, "p", privacy_unit="u", max_contributions=1)
    con.execute(f"CREATE OR REPLACE TABLE p (u {kind}, g VARCHAR)")  # under a budget of before
    with pytest.raises(duckdb.Error, match=r"privacy_unit = 'u': is .* name a column"):
        con.execute("FROM dp_domain('p')")


@pytest.mark.parametrize(
    ("index", "key"),
    [
        ("(k)", True), ("(k, n)", False), ("(n)", False), ("((n + 1))", False), ("(lower(k))", False), ("(k, (n + 1))", False), ('("K")', True),
    ],
)
@pytest.mark.parametrize("unique", ["UNIQUE ", ""])
def test_a_unique_index_is_a_key(con, index, key, unique):
    con.execute("CREATE TABLE p (s VARCHAR); INSERT INTO p VALUES ('a'), ('A'), ('b')")
    con.execute("CREATE TABLE q (k VARCHAR, n INTEGER, g VARCHAR); INSERT INTO q VALUES ('a', 1, 'u'), ('A', 2, 'w'), (NULL, 3, 'w'), (NULL, 4, 'w')")
    try:
        con.execute(f"CREATE {unique}INDEX i ON q {index}")
    except duckdb.ConstraintException:
        pytest.skip("lower(k) is not unique")
    protect(con, "p")
    source = "SELECT q.g FROM p LEFT JOIN q ON p.s = q.k"
    if key and unique:
        assert counts(con, source, "g", ["u", "w"]) == [1, 1, 1]
        return
    with pytest.raises(duckdb.Error, match="UNIQUE INDEX"):
        counts(con, source, "g", ["u", "w"])


def test_a_column_that_hides_the_numbers_of_rows_refuses_joins(con, tmp_path):
    con.execute("CREATE TABLE q (k INTEGER PRIMARY KEY, g VARCHAR); CREATE TABLE p (k INTEGER, ROWID INTEGER)")
    con.execute("INSERT INTO q VALUES (1, 'u'); INSERT INTO p VALUES (1, 7), (1, 7), (2, 7)")
    protect(con, "p")
    assert counts(con, "SELECT CAST(k AS VARCHAR) AS g FROM p", "g", ["1"]) == [2, 1]  # without a join nothing is numbered
    with pytest.raises(duckdb.Error, match="rowid.*rename"):
        counts(con, "SELECT q.g FROM p JOIN q ON p.k = q.k", "g", ["u"])
    for number, hidden in enumerate(("file_row_number", "x")):
        path = tmp_path / f"{hidden}.parquet"
        con.execute(f"COPY (SELECT k, 5 AS {hidden} FROM p) TO '{path}'")
        protect(con, str(path))
        source = f"SELECT q.g FROM '{path}' AS f JOIN q ON f.k = q.k"
        if number:
            assert counts(con, source, "g", ["u"]) == [2, 0]
        else:
            with pytest.raises(duckdb.Error, match="file_row_number.*rename"):
                counts(con, source, "g", ["u"])


def test_names_are_those_of_duckdb(con):
    con.execute('CREATE TABLE p ("maße" INTEGER, "masse" INTEGER, g VARCHAR); INSERT INTO p SELECT 1, i, \'a\' FROM range(50) t(i)')
    protect(con, "p", privacy_unit="maße", max_contributions=1)
    assert con.execute("SELECT privacy_unit FROM dp_budget('p')").fetchall() in ([("maße",)], [])
    assert counts(con, "p", "g", ["a"]) == [1, 0]
    con.execute('CREATE TABLE w ("ſex" VARCHAR, "sex" VARCHAR, "Ä" VARCHAR, "ä" VARCHAR, k VARCHAR, "\u212a" VARCHAR)')
    con.execute("INSERT INTO w SELECT 'long', 'short', 'large', 'small', 'k', 'kelvin' FROM range(9)")
    protect(con, "w")
    for column, value in (("ſex", "long"), ("SEX", "short"), ("Ä", "large"), ("ä", "small"), ("K", "k"), ("\u212a", "kelvin")):
        row = con.execute(f"CALL dp_declare('w', '{column}', categories := ['{value}'], nullable := false, outside := 'drop')").fetchone()
        assert fold(row[0]) == fold(column)
        assert con.execute(f"SELECT n FROM dp_marginals('w', columns := ['{column}'], k := 1, epsilon := 0.5)").fetchall() == [(9,)]
    with pytest.raises(duckdb.Error, match="not a column"):
        con.execute("CALL dp_declare('w', 'ſEX ', categories := ['x'])")


def test_no_name_is_compared_by_another_rule():
    folders = [PACKAGE, *(folder for folder in (PACKAGE.parent / "udfs", PACKAGE / "udfs") if folder.is_dir())]
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}
    assert len(texts) > 100
    assert [str(path) for path, text in texts.items() if ".casefold(" in text] == []
