"""Wrong, odd and hostile arguments: a clear error, nothing charged, nothing read, nothing overwritten."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest
from sample_tables import DELTA, make_people

import dpsql

SYNTHESIZE = "FROM dp_synthesize('people', {})"
MARGINALS = "FROM dp_marginals('people', {})"

WRONG = [
    (SYNTHESIZE, "epsilon := 'abc'", "epsilon = 'abc': a finite number"),
    (SYNTHESIZE, "epsilon := NULL", "epsilon is not given: a number above 0"),
    (SYNTHESIZE, "epsilon := 'nan'::DOUBLE", "epsilon = nan: a finite number"),
    (SYNTHESIZE, "epsilon := 'inf'::DOUBLE", "epsilon = inf: a finite number"),
    (SYNTHESIZE, "epsilon := -1", "epsilon = -1: a number above 0"),
    (SYNTHESIZE, "epsilon := true", "epsilon = True: a finite number"),
    (SYNTHESIZE, "epsilon := 1e-300", "epsilon = 1e-300: must be a positive"),
    (SYNTHESIZE, "epsilon := 1, delta := 0", "delta = 0.0: must be above 0"),
    (SYNTHESIZE, "epsilon := 1, delta := 1", "delta = 1.0: must be"),
    (SYNTHESIZE, "epsilon := 1, rows := -1", "rows = -1: a whole number from 0"),
    (SYNTHESIZE, "epsilon := 1, rows := 1.5", "rows = 1.5: a whole number"),
    (SYNTHESIZE, "epsilon := 1, seed := 'x'", "seed = 'x': a whole number"),
    (SYNTHESIZE, "epsilon := 1, columns := []", "columns = []: a non-empty list"),
    (SYNTHESIZE, "epsilon := 1, columns := ['sex', 'SEX']", "a name is repeated"),
    (SYNTHESIZE, "epsilon := 1, columns := ['joined']", "'joined' has no declared domain"),
    (SYNTHESIZE, "epsilon := 1, method := 'x'", "method = 'x': not a method"),
    (SYNTHESIZE, "epsilon := 1, options := {'x': 1}", "has no such option"),
    (SYNTHESIZE, "epsilon := 1, options := {'mechanism': ['a']}", "must be one of 'gaussian', 'laplace'"),
    (SYNTHESIZE, "epsilon := 1, options := [1]", "a struct is required"),
    (SYNTHESIZE, "epsilon := 1, release := ''", "release = '': a non-empty text"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'a.b.c.d'", "a table name is required"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'x; DROP TABLE people'", "a table name is required"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'DPSQL.ledger'", "holds the books"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'nosuch.t'", "there is no schema"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'system.main.t'", "there is no schema"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'temp.main.t'", "there is no schema"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'information_schema.t'", "there is no schema"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'people'", "was not made by dpsql"),
    (SYNTHESIZE, "epsilon := 1, into_table := 'a_view'", "was not made by dpsql"),
    (MARGINALS, "epsilon := 1, k := 0", "k = 0: a whole number from 1 to 3"),
    (MARGINALS, "epsilon := 1, k := 3, columns := ['sex']", "there are only 1 columns"),
    (MARGINALS, "epsilon := 1, mechanism := NULL", "must be one of 'gaussian', 'laplace'"),
    ("FROM dp_marginals({}, epsilon := 1)", "NULL", "source is not given: a non-empty text"),
    ("FROM dp_marginals({}, epsilon := 1)", "'x'') ; DROP TABLE people; --'", "no such table or view"),
    ("FROM dp_marginals({}, epsilon := 1)", "'people; DROP TABLE people'", "source refused"),
    ("FROM dp_marginals({}, epsilon := 1)", "'dpsql.ledger'", "source refused"),
]


@pytest.mark.parametrize(("call", "argument", "text"), WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_charged(hostile, call, argument, text):
    con, charges = hostile
    with pytest.raises(duckdb.Error) as caught:
        con.execute(call.format(argument))
    assert text in str(caught.value)
    assert charges() == 0


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    con = duckdb.connect(str(tmp_path_factory.mktemp("hostile") / "people.duckdb"))
    make_people(con, 60)
    con.execute("CREATE VIEW a_view AS SELECT 1 AS x")
    dpsql.load(con)
    con.execute(f"CALL dp_protect('people', epsilon := 50, delta := {DELTA})")
    yield con, lambda: con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]
    assert con.execute("SELECT count(*) FROM people").fetchone() == (60,)
    con.close()


def test_null_means_the_default_and_numbers_may_have_any_type(con, charges):
    first = con.execute(MARGINALS.format("epsilon := 1::HUGEINT, k := NULL, release := NULL")).fetchall()
    assert con.execute(MARGINALS.format("epsilon := 1.0::DECIMAL(5, 2), k := 1, release := 'default'")).fetchall() == first
    rows = con.execute(SYNTHESIZE.format("epsilon := 1, options := MAP {'mechanism': 'laplace'}, rows := 3.0")).fetchall()
    assert con.execute(SYNTHESIZE.format("""epsilon := 1, options := '{"mechanism": "laplace"}'::JSON, rows := 3""")).fetchall() == rows
    assert charges() == 2


@pytest.mark.parametrize("name", ["../../evil", "a'b; DROP TABLE people", "ünï 💥", "a\nb", "x" * 5000])
def test_any_text_can_name_a_release_and_stays_in_the_store(con, tmp_path, name):
    query = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := ?)"
    assert con.execute(query, [name]).fetchall() == con.execute(query, [name]).fetchall()
    assert len(list((tmp_path / "people.duckdb.dpsql").glob("*.release.parquet"))) == 1
    assert {p.name for p in tmp_path.iterdir()} <= {"people.duckdb", "people.duckdb.wal", "people.duckdb.dpsql"}


VIEWS = [
    "SELECT (SELECT max(region) FROM people) AS x FROM public",
    "SELECT x FROM public WHERE x IN (SELECT region FROM people)",
    "SELECT x FROM public WHERE EXISTS (FROM people WHERE age > 70)",
    "WITH c AS (SELECT region FROM people) SELECT (SELECT min(region) FROM c) AS x FROM public",
    "SELECT region AS x FROM people",
]


@pytest.mark.parametrize("view", VIEWS)
def test_categories_are_not_read_through_a_view_that_could_see_the_protected_table(con, view):
    con.execute("CREATE TABLE public AS SELECT 'north' AS x UNION ALL SELECT NULL")
    con.execute(f"CREATE VIEW window_ AS {view}")
    with pytest.raises(duckdb.Error, match=r"not a view|protected") as caught:
        con.execute("CALL dp_declare('people', 'region', categories_from := 'window_.x')")
    assert "south" not in str(caught.value)


def test_categories_from_finds_a_public_table_by_any_of_its_names(con):
    con.execute("CREATE SCHEMA lists")
    con.execute("CREATE TABLE lists.\"Re gions\" AS SELECT * FROM (VALUES ('north', 'a'), ('west', 'b'), (NULL, 'c')) t(\"the name\", y)")
    for name in ('lists."Re gions"."the name"', 'people.lists."re gions"."THE NAME"'):
        row = con.execute("SELECT labels FROM dp_declare('people', 'region', categories_from := ?)", [name]).fetchone()
        assert row == ("'north', 'west', NULL",)
    for name, text in (("people.region", "protected"), ("nosuch.x", "public table"), ("region", "table.column"), ("dpsql.ledger.who", "books")):
        with pytest.raises(duckdb.Error, match=text):
            con.execute("CALL dp_declare('people', 'region', categories_from := ?)", [name])


ODD_NAMES = ["select", "a b", 'q"x', "it's", "ünï 💥", "c0", "n", "values", "columns", "tbl", "cell", "order", "1a", "a.b", "%s", "{x}", "$1", "?", "--x", "a;b", "coded", "t"]


def test_odd_column_names_go_all_the_way(tmp_path):
    con = duckdb.connect()
    dpsql.load(con)
    quoted = ['"' + name.replace('"', '""') + '"' for name in ODD_NAMES]
    con.execute(f"CREATE TABLE odd AS SELECT {', '.join(f'(i + {k}) % 2 = 0 AS {q}' for k, q in enumerate(quoted))} FROM range(90) t(i)")
    con.execute(f"CALL dp_protect('odd', epsilon := 100, delta := {DELTA})")
    con.execute("CREATE TABLE made AS FROM dp_synthesize('odd', epsilon := 50)")
    assert [row[0] for row in con.execute("DESCRIBE made").fetchall()] == ODD_NAMES
    assert len(con.execute("FROM dp_marginals('odd', k := 2, epsilon := 1)").fetchall()) == 9 * len(ODD_NAMES) * (len(ODD_NAMES) - 1) // 2
    picked = con.execute("FROM dp_synthesize('odd', epsilon := 1, columns := ['it''s', 'Q\"X'], release := 'two', rows := 1)")
    assert sorted(column[0] for column in picked.description) == ["it's", 'q"x']
    assert con.execute("SELECT count(*) FROM dp_evaluate('odd', 'made', max_k := 1)").fetchone() == (1,)
    con.close()


@pytest.mark.parametrize(
    "rows",
    ["SELECT true AS a, true AS b LIMIT 0", "SELECT true AS a, false AS b", "SELECT NULL::BOOLEAN AS a, true AS b FROM range(50)", "SELECT i % 2 = 0 AS a FROM range(50) t(i)"],
    ids=["empty", "one row", "all NULL", "one column"],
)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_degenerate_tables_are_no_special_case(rows, mechanism):
    con = duckdb.connect()
    dpsql.load(con)
    con.execute(f"CREATE TABLE small AS {rows}")
    con.execute(f"CALL dp_protect('small', epsilon := 20, delta := {DELTA})")
    con.execute(f"FROM dp_synthesize('small', epsilon := 1, options := {{'mechanism': '{mechanism}'}})")
    assert len(con.execute(f"FROM dp_marginals('small', epsilon := 1, mechanism := '{mechanism}')").fetchall()) % 3 == 0
    assert con.execute("SELECT max(tvd) FROM dp_evaluate('small', 'small')").fetchone() == (0.0,)
    con.close()


def test_without_access_to_files_nothing_is_charged(con, charges):
    con.execute(MARGINALS.format("epsilon := 0.1"))
    con.execute("SET enable_external_access = false")
    with pytest.raises(duckdb.Error, match=r"cannot be used .* no row was read"):
        con.execute(MARGINALS.format("epsilon := 0.1, release := 'new'"))
    with pytest.raises(duckdb.Error, match="may not be read by this session"):
        con.execute(MARGINALS.format("epsilon := 0.1"))
    assert charges() == 1
    assert con.execute("SELECT releases FROM dp_budget('people')").fetchone() == (1,)


def test_export_and_import_overwrite_nothing(con, tmp_path):
    con.execute(SYNTHESIZE.format("epsilon := 0.5"))
    name = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    for path in (precious, tmp_path / "people.duckdb"):
        with pytest.raises(duckdb.Error, match="was not replaced"):
            con.execute(f"FROM dp_export('{name}', '{path}')")
    assert precious.read_text() == "precious"
    for _ in range(2):
        assert con.sql(f"FROM dp_export('{name}', '{tmp_path / 'out.parquet'}')").fetchall()[0][0] == name
        assert con.sql(f"FROM dp_import('{tmp_path / 'out.parquet'}')").fetchall()[0][0] == name
    with pytest.raises(duckdb.Error, match="not a dpsql release"):
        con.execute(f"FROM dp_import('{precious}')")
    with pytest.raises(duckdb.Error, match="no such file"):
        con.execute("FROM dp_import('nowhere.parquet')")
    assert not [p for p in tmp_path.rglob(".*") if p.is_file()]


def test_what_is_shown_has_five_digits_and_is_on_the_safe_side(con):
    con.execute(MARGINALS.format("epsilon := 1.0"))
    budget = con.execute("SELECT epsilon_spent, rho_limit, rho_spent, rho_left FROM dp_budget('people')").fetchone()
    exact = con.execute("SELECT epsilon, rho FROM dpsql.ledger WHERE action = 'charge'").fetchone()
    assert budget[0] == 1.0 >= exact[0]
    assert budget[2] >= exact[1]
    assert budget[2] + budget[3] <= budget[1] + 2e-5
    assert all(float(f"{value:.5g}") == value for value in budget)
    assert con.execute("SELECT epsilon FROM dp_releases()").fetchone() == (1.0,)
    assert con.execute("SELECT epsilon FROM dp_plan('people', epsilon := 1.0)").fetchone() == (1.0,)


@pytest.mark.parametrize("close", [True, False])
def test_a_script_ends_without_a_word(close):
    script = (
        "import duckdb, dpsql\ncon = duckdb.connect()\ndpsql.load(con)\n"
        "con.execute('SET enable_progress_bar = false')\n"  # DuckDB's own, which a busy machine shows
        "con.execute('CREATE TABLE t AS SELECT i % 2 = 0 AS a FROM range(9) t(i)')\n"
        "con.execute(\"CALL dp_protect('t', epsilon := 1, delta := 1e-9)\")\n"
        "con.execute(\"FROM dp_marginals('t', epsilon := 0.5)\").fetchall()\n" + ("con.close()\n" if close else "")
    )
    done = subprocess.run([sys.executable, "-P", "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
