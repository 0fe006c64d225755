"""An ordinary setting of the database changes nothing that dpsql computes: not the books, not what is measured."""

from __future__ import annotations

import ast
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from pairwise import WHOLE
from sample_tables import DELTA, make_people

import dpsql
from dpsql.errors import DpsqlError
from dpsql.measure import query
from dpsql.noise import discrete
from dpsql.session import settings

ROOT = Path(dpsql.__file__).parent
CHANGED = (
    "default_order = 'DESC'", "default_null_order = 'NULLS_FIRST'", "default_collation = 'NOCASE'", "ieee_floating_point_ops = false",
    "integer_division = true", "TimeZone = 'Asia/Tokyo'", "Calendar = 'japanese'", "disable_timestamptz_casts = true",
    "old_implicit_casting = true", "scalar_subquery_error_on_multiple_rows = false", "order_by_non_integer_literal = true",
    "preserve_identifier_case = false", "preserve_insertion_order = false", "enable_macro_dependencies = true",
    "enable_view_dependencies = true", "binary_as_string = true", "errors_as_json = true", "immediate_transaction_mode = true",
    "pandas_analyze_sample = 0", "python_scan_all_frames = true", "python_enable_replacements = false", "enable_optimizer = false",
    "error_on_division_by_zero = true", "legacy_disable_null_type = true", "threads = 1",
    "disabled_optimizers = 'filter_pushdown,statistics_propagation,unused_columns,common_subexpressions'",
)


def told(statement: str, con: duckdb.DuckDBPyConnection) -> object:
    try:
        return con.execute(statement).fetchall()
    except duckdb.Error as error:  # how it is wrapped is up to the caller's session
        return "over the budget" if "privacy budget of main.people exceeded" in str(error) else str(error).split("\n")[0]


def story(con: duckdb.DuckDBPyConnection) -> list[object]:
    """Budgets, purchases, a failure of the budget, a raise that must keep the unit; what the books say of it."""
    buy = "FROM dp_marginals('people', columns := ['{}'], epsilon := {}, release := '{}')"
    found = [
        told("SELECT epsilon, privacy_unit, change FROM dp_protect('people', epsilon := 3, delta := 1e-9)", con),
        told(buy.format("region", 1, "a"), con),
        told(buy.format("joined", 0.5, "b"), con),
        told(buy.format("region", 90, "c"), con),
        told(buy.format("region", 1, "a"), con),
        told("SELECT epsilon, privacy_unit, change FROM dp_protect('people', epsilon := 4)", con),
        told("FROM dp_budget()", con),
        told("SELECT entry, action, release, epsilon, chain_holds FROM dp_ledger()", con),
        told("SELECT release, epsilon, status FROM dp_releases()", con),
        told("SELECT column_name, labels FROM dp_domain('people')", con),
        told("SELECT epsilon, affordable, notes FROM dp_plan('people', columns := ['age'], k := 1, epsilon := 1)", con),
    ]
    con.execute("CREATE TABLE drawn AS FROM dp_synthesize('people', columns := ['age', 'region'], epsilon := 0.5, rows := 50, method := 'laplace_sanitizer')")
    return [*found, con.execute("SELECT count(*) FROM drawn").fetchone()]


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database, which each setting gets a copy of."""
    path = tmp_path_factory.mktemp("protected") / "people.duckdb"
    con = duckdb.connect(str(path))
    make_people(con, 100)
    con.execute("UPDATE people SET region = 'NORTH' WHERE person = 5")
    dpsql.load(con, user="tester", progress=False)
    con.execute(f"CALL dp_protect('people', epsilon := 1, delta := {DELTA})")
    con.execute("CALL dp_protect('people', epsilon := 2, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    con.execute("CALL dp_declare('people', 'age', lower := 18, upper := 78, bins := 3, nullable := false)")
    con.execute("CALL dp_declare('people', 'region', categories := ['north', 'south', 'NORTH'])")
    con.execute("CALL dp_declare('people', 'joined', edges := ['2000-01-01', '2005-01-01', '2010-01-01'])")
    con.close()
    return path


def opened(folder: Path, protected: Path, settings: tuple[str, ...] = ()) -> tuple[duckdb.DuckDBPyConnection, int]:
    """Return a copy of the database, and how many of these settings its version of DuckDB has."""
    con = duckdb.connect(str(shutil.copy(protected, folder / "people.duckdb")))
    dpsql.load(con, user="tester", progress=False)
    there = 0
    for setting in settings:
        try:
            con.execute(f"SET GLOBAL {setting}")
            there += 1
        except duckdb.Error as error:
            assert "unrecognized configuration" in str(error) or "cannot be set globally" in str(error)
    return con, there


@pytest.fixture(scope="module")
def plain_story(tmp_path_factory, protected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())
        con, _ = opened(tmp_path_factory.mktemp("plain"), protected)
        found = story(con)
        con.close()
    return found


TOGETHER = [(setting,) for setting in CHANGED] if WHOLE else [CHANGED[place::5] for place in range(5)]
"""Five at once, of which none may change anything; each alone when thorough."""


@pytest.mark.parametrize("several", TOGETHER, ids=lambda several: several[0].split(" ")[0])
def test_the_books_and_the_counts_are_the_same_under_it(several, plain_story, protected, tmp_path, monkeypatch):
    monkeypatch.setattr(discrete, "add_noise", lambda counts, *_: counts.copy())
    con, there = opened(tmp_path, protected, several)
    assert there >= len(several) - 2  # some have come and gone with versions
    found = story(con)
    # The answer is read by the caller's own session, whose order of rows and texts of moments are its own affair.
    assert [sorted(map(str, part)) if isinstance(part, list) else str(part)[:200] for part in found] == [
        sorted(map(str, part)) if isinstance(part, list) else str(part)[:200] for part in plain_story
    ]
    con.close()


def test_every_pinned_setting_holds_on_our_cursors_and_on_no_other():
    con = duckdb.connect()
    dpsql.load(con)
    instance = dpsql.udfs.instance_of(con)
    known = dict(con.execute("SELECT name, coalesce(value, '') FROM duckdb_settings()").fetchall())
    ours = dict(instance.cursor().execute("SELECT name, coalesce(value, '') FROM duckdb_settings()").fetchall())
    for name, pinned in settings.PINNED.items():
        if name in known:
            assert ours[name].casefold() in {text.casefold() for text in (pinned.value, *pinned.same)}, name
    assert dict(con.execute("SELECT name, coalesce(value, '') FROM duckdb_settings()").fetchall()) == known
    con.close()


def test_a_locked_configuration_is_used_as_it_is_or_refused():
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET lock_configuration = true")
    dpsql.load(con)
    assert con.execute("FROM dp_budget()").fetchall() == []
    con.close()
    con = duckdb.connect()
    con.execute("SET default_order = 'DESC'")
    con.execute("SET lock_configuration = true")
    dpsql.load(con)
    with pytest.raises((duckdb.Error, DpsqlError), match="setting default_order = 'DESC"):
        con.execute("FROM dp_budget()")
    con.close()


def undirected(text: str) -> list[str]:
    """Return the ORDER BY lists of a text in which an item has no direction."""
    found = []
    for match in re.finditer(r"ORDER\s+BY\s+", text):
        depth, items, at = 0, [""], match.end()
        rest = re.split(r"\b(LIMIT|ROWS|RANGE|QUALIFY|FROM)\b|;|\n\s*\n|\"\"\"", text[at:])[0]
        for letter in rest:
            depth += (letter in "([{") - (letter in ")]}")
            if depth < 0:
                break
            if letter == "," and depth == 0:
                items.append("")
            else:
                items[-1] += letter
        if not all(re.search(r"\b(ASC|DESC)\b|^\s*\{order\}", item) for item in items):
            found.append(match.group() + rest[:60])
    return found


@pytest.mark.any_duckdb
def test_every_order_by_says_its_direction():
    files = [*ROOT.rglob("*.py"), *ROOT.rglob("*.sql"), *(ROOT.parent / "sql").glob("*.sql"), *(ROOT.parent / "udfs").glob("*.py")]
    assert len(files) > 100
    wrong = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".sql":
            wrong += [(file.name, item) for item in undirected(re.sub(r"--[^\n]*", "", text))]
            continue
        tree = ast.parse(text)
        documentation = {
            id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(p.value) if isinstance(p, ast.Constant) else f"{{{ast.unparse(p.value)}}}" for p in node.values]
                wrong += [(file.name, item) for item in undirected("".join(parts))]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                wrong += [(file.name, item) for item in undirected(node.value) if "{" not in node.value and item.strip() != "ORDER BY"]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Ordered":
                wrong += [] if any(word.arg == "desc" for word in node.keywords) else [(file.name, ast.unparse(node))]
    parts_of_strings = ("ORDER BY ", "ORDER BY md5")
    assert [item for item in wrong if item[1] not in parts_of_strings] == []
    assert undirected("SELECT a ORDER BY a, b DESC") != []


JOINED = "SELECT count(*) FROM t a JOIN t b ON a.k = b.k AND a.x < b.x"


def optimizers(con) -> str:
    return str(con.execute("SELECT value FROM duckdb_settings() WHERE name = 'disabled_optimizers'").fetchall()[0][0])


def joined(con) -> None:
    con.execute("CREATE TABLE t AS SELECT i % 9 AS k, i AS x FROM range(50) t(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9, privacy_unit := 'k', max_contributions := 3)")


@pytest.mark.parametrize("held", ["", "unused_columns", "common_subexpressions,unused_columns"])
def test_optimizers_that_give_other_rows_are_off_where_joins_are_read_and_others_stay(held):
    con = duckdb.connect()
    con.execute(f"SET disabled_optimizers = '{held}'")
    joined(con)
    assert sorted(optimizers(con).split(",")) == sorted(held.split(","))
    for name in ("first", "second"):
        con.execute(f"FROM dp_query('{JOINED}', epsilon := 0.1, max_rows_per_group := 3, release := '{name}')")
        there = {"common_subplan"} if "common_subplan" in known_optimizers() else set()
        assert set(optimizers(con).split(",")) - {""} == {*held.split(","), *there} - {""}
        con.execute("SET disabled_optimizers = ''")  # somebody takes it back
        held = ""
    con.close()


def known_optimizers() -> set[str]:
    with duckdb.connect() as con:
        return {str(name) for (name,) in con.execute("SELECT name FROM duckdb_optimizers()").fetchall()}


def test_a_locked_configuration_reads_joins_only_without_them():
    for first in (False, True):
        con = duckdb.connect()
        joined(con)
        if first and "common_subplan" in known_optimizers():
            con.execute("SET disabled_optimizers = 'common_subplan'")
        con.execute("SET lock_configuration = true")
        text = f"FROM dp_query('{JOINED}', epsilon := 0.1, max_rows_per_group := 3)"
        if first or "common_subplan" not in known_optimizers():
            assert con.execute(text).fetchall()
        else:
            with pytest.raises(duckdb.Error, match="before the configuration is locked"):
                con.execute(text)
            assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall() == [(0,)]
        con.close()


def test_where_plans_may_be_unsound_heavy_units_are_not_read_by_themselves():
    """They are a second join of one source. A plain table is read all the same, its rows bounded together."""
    con = duckdb.connect()
    joined(con)
    con.execute("SET lock_configuration = true")
    asked: list[bool] = []

    def heavy(*given):
        with before(*given) as found:
            asked.append(found is None)
            yield found

    before = query.heavy_units
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "heavy_units", contextmanager(heavy))
        con.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 0.1)")
    assert asked[-1] is ("common_subplan" in known_optimizers())  # before it the rehearsal, over no row
    con.close()
