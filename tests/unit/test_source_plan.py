"""The second opinion on generated SQL, asked about SQL that the first one would never write."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.algebra.functions import FUNCTIONS
from dpsql.errors import UnsupportedQuery
from dpsql.session.settings import PINNED
from dpsql.source.binder import check
from dpsql.source.catalog import Catalog, generated_columns
from dpsql.source.kernel import KINDS, WRITTEN_OUT, cast_is_safe
from dpsql.source.model import TableId
from dpsql.source.parse import agree, parse, serialized
from dpsql.source.relations import view_query

T = TableId("memory", "main", "t")
P = TableId("memory", "main", "p")
FROM = '"memory"."main"."t" AS t'
EMPTY = "(SELECT CAST(NULL AS INTEGER) AS a, CAST(NULL AS VARCHAR) AS s, CAST(NULL AS DATE) AS d, CAST(NULL AS INTEGER[]) AS l) AS t"


@pytest.fixture(scope="module")
def catalog():
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE t(a INTEGER, s VARCHAR, d DATE, l INTEGER[]); CREATE TABLE p(a INTEGER)")
        con.execute("CREATE MACRO sneaky(x) AS (SELECT max(a) FROM t)")
        yield Catalog(con)


def ask(catalog: Catalog, text: str, public=()) -> None:
    check(catalog, text.format(t=FROM, p="memory.main.p"), text.format(t=EMPTY, p="(SELECT CAST(NULL AS INTEGER) AS a) AS p"), [T], public)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a AS x FROM {t}",
        "SELECT a, TRY_CAST(s AS INTEGER) AS i, upper(s) AS u FROM {t} WHERE a > 3 AND s LIKE 'x%'",
        "SELECT z.a FROM (SELECT a FROM {t}) AS z WHERE z.a IN (1, 2) OR z.a IS NULL",
        "SELECT CAST('2020-01-01' AS DATE) AS c, CASE WHEN a = '12' THEN 1.5 END AS e FROM {t}",
    ],
)
def test_harmless(catalog, text):
    ask(catalog, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(a) AS x FROM {t}",
        "SELECT a FROM {t} GROUP BY a",
        "SELECT count(*) FROM {t} HAVING true",
        "SELECT DISTINCT a FROM {t}",
        "SELECT a FROM {t} LIMIT 3",
        "SELECT a FROM {t} ORDER BY a",
        "SELECT a FROM {t} USING SAMPLE 3",
        "SELECT a FROM {t} QUALIFY row_number() OVER () = 1",
        "SELECT row_number() OVER () AS x FROM {t}",
        "SELECT unnest(l) AS x FROM {t}",
        "SELECT (SELECT 1) AS x FROM {t}",
        "SELECT a FROM {t} WHERE a IN (SELECT 1)",
        "SELECT a FROM {t} WHERE EXISTS (SELECT 1)",
        "SELECT a FROM {t} UNION ALL SELECT 1",
        "WITH x AS (SELECT a FROM {t}) SELECT a FROM x",
        "SELECT * FROM {t}",
        "SELECT COLUMNS('a') FROM {t}",
        "SELECT random() AS x FROM {t}",
        "SELECT CASE WHEN a = 1 THEN now() END AS x FROM {t}",
        "SELECT sneaky(a) AS x FROM {t}",
        "SELECT repeat(s, a) AS x FROM {t}",
        "SELECT list_transform(l, lambda x: x + 1) AS x FROM {t}",
        "SELECT TRY(a + 1) AS x FROM {t}",
        "SELECT CAST(s AS INTEGER) AS x FROM {t}",
        "SELECT CAST(a AS TINYINT) AS x FROM {t}",
        "SELECT a IS DISTINCT FROM s AS x FROM {t}",
        "SELECT CAST(d AS TIMESTAMP) AS x FROM {t}",
        "SELECT CASE WHEN a = 3 THEN CAST('abc' AS INTEGER) END AS x FROM {t}",
        "SELECT CASE WHEN a = 3 THEN CAST(300 AS TINYINT) END AS x FROM {t}",
        "SELECT CASE WHEN a = 3 THEN CAST(CAST('abc' AS VARCHAR) AS DATE) END AS x FROM {t}",
        "SELECT t.a FROM {t} JOIN (SELECT DISTINCT ON (a) a FROM memory.main.p) AS q ON t.a = q.a",  # p is not on the list
        "SELECT t.a FROM {t}, memory.main.p",
        "SELECT t.a FROM {t} CROSS JOIN range(3)",
        "SELECT t.a FROM {t} POSITIONAL JOIN {t}",
        "SELECT 1 AS x",
        "SELECT nosuch AS x FROM {t}",
        "SELECT a FROM {t}; SELECT 1",
        "DROP TABLE t",
    ],
)
def test_harm(catalog, text):
    with pytest.raises(UnsupportedQuery):
        ask(catalog, text)


def test_joins_are_counted(catalog):
    one = "SELECT t.a FROM {t} LEFT JOIN (SELECT DISTINCT ON (a) a FROM {p}) AS q ON t.a = q.a"
    ask(catalog, one, (P,))
    for text in (one.replace("DISTINCT ON (a)", ""), one.replace("LEFT", "RIGHT"), one.replace("LEFT", "FULL"), one.replace("t.a = q.a", "true"),
                 one.replace("t.a = q.a", "t.a < q.a"), one.replace("LEFT", "SEMI"), one.replace("LEFT", "ASOF")):
        with pytest.raises(UnsupportedQuery):
            ask(catalog, text, (P,))


def test_the_parsers_must_agree(catalog):
    for text in ("SELECT string_agg(DISTINCT s, ',') AS x FROM t", "SELECT a ** 2 AS x FROM t", "SELECT a AS x FROM t", "SELECT 1_000 AS x, d + INTERVAL 1 DAY AS e, s NOT LIKE 'x' AS n FROM t"):
        tree = parse(text)
        if "string_agg" in text:
            with pytest.raises(UnsupportedQuery, match="in two ways"):
                agree(catalog.cursor, text, tree)
        else:
            agree(catalog.cursor, text, tree)
        with pytest.raises(UnsupportedQuery, match="in two ways"):
            agree(catalog.cursor, text, parse("SELECT 2 AS x FROM t"))


def test_every_spelling_of_a_type_is_read_alike(catalog):
    """`2::HUGEINT <> 0.05` was refused: sqlglot writes INT128, and TIMESTAMPTZ, BYTEA, BINARY otherwise too."""
    names = [name for (name,) in catalog.cursor.execute("SELECT DISTINCT type_name FROM duckdb_types() WHERE database_name = 'system'").fetchall()]
    for name in names:
        text = f'SELECT a::{name} AS x, CAST(a AS {name}) AS y FROM t'
        try:
            tree = parse(text)
        except UnsupportedQuery:  # STRUCT, LIST and such alone are no types
            continue
        if not serialized(catalog.cursor, text).get("error"):
            agree(catalog.cursor, text, tree)
    assert len(names) > 60


@pytest.mark.parametrize(
    ("text", "piece", "line", "column"),
    [("SELECT a FROM t WHERE b IN ['x']", "['x']", 1, 28), ("SELECT 'üü' AS u,\n  !b AS c, a FROM t", "!b", 2, 3), ("SELECT !a AS d, s IN ['x'] AS e FROM t", "!a", 1, 8)],
)
def test_what_is_read_in_two_ways_is_named(catalog, text, piece, line, column):
    """The first of the smallest parts; DuckDB 1 says where it begins alone, and of an operator where the operator is."""
    with pytest.raises(UnsupportedQuery) as error:
        agree(catalog.cursor, text, parse(text))
    assert "read in two ways" in str(error.value) and f"(line {line}, column " in str(error.value)
    if duckdb.__version__.startswith("2."):
        assert f"{piece!r} (line {line}, column {column})" in str(error.value)


@pytest.mark.fact
def test_every_listed_function_is_shipped_deterministic_and_of_one_row(catalog):
    """Every overload; what one for moments makes of them, or into them, depends on time zone and calendar, which dpsql's cursors pin.

    The overload of ``timezone`` for TIME WITH TIME ZONE depends on the day: the kernel does not list that type.
    """
    rows = catalog.cursor.execute(
        "SELECT function_name, function_type, stability, list_contains(parameter_types, 'TIMESTAMP WITH TIME ZONE') "
        "OR list_contains(parameter_types, 'TIMESTAMPTZ_NS') OR return_type IN ('TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ_NS') "
        "FROM duckdb_functions() WHERE internal AND NOT (function_name = 'timezone' AND list_contains(parameter_types, 'TIME WITH TIME ZONE'))"
    ).fetchall()
    overloads: dict[str, set[tuple[str, str]]] = {}
    for name, kind, stability, zoned in rows:
        fixed_by_its_zone = zoned and stability == "CONSISTENT_WITHIN_QUERY"
        overloads.setdefault(name, set()).add((kind, "CONSISTENT" if fixed_by_its_zone else stability))
    assert {"TimeZone", "Calendar"} <= PINNED.keys() and "TIME WITH TIME ZONE" not in KINDS["z"]
    for name in FUNCTIONS.keys() - WRITTEN_OUT:
        assert overloads[name] == {("scalar", "CONSISTENT")}, name


@pytest.mark.fact
def test_safe_conversions_never_raise(catalog):
    """Every conversion that is called safe, tried on the extremes of its source type."""
    extremes = {
        "TINYINT": ("-128", "127"), "SMALLINT": ("-32768", "32767"), "INTEGER": ("-2147483648", "2147483647"),
        "BIGINT": ("-9223372036854775808", "9223372036854775807"), "UTINYINT": ("0", "255"), "USMALLINT": ("0", "65535"),
        "UINTEGER": ("0", "4294967295"), "UBIGINT": ("0", "18446744073709551615"),
        "HUGEINT": ("-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"),
        "FLOAT": ("nan", "inf", "-3e38"), "DOUBLE": ("nan", "-inf", "1e308"), "BOOLEAN": ("true", "false"),
        "DECIMAL(4,2)": ("-99.99", "99.99"), "DECIMAL(18,3)": ("999999999999999.999",), "DECIMAL(38,10)": ("9999999999999999999999999999.9999999999",),
        "DATE": ("infinity", "5877642-06-25 (BC)", "5881580-07-10"), "TIME": ("23:59:59.999999",),
        "TIMESTAMP": ("-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"), "VARCHAR": ("", "x"),
        "UUID": ("00000000-0000-0000-0000-000000000000",),
    }
    targets = [*extremes, "DECIMAL(12,2)", "DECIMAL(21,1)", "DECIMAL(5,3)", "TIMESTAMP WITH TIME ZONE"]
    safe = 0
    for source, values in extremes.items():
        for target in targets:
            if cast_is_safe(source, target):
                safe += 1
                for value in values:
                    catalog.cursor.execute(f"SELECT CAST(v AS {target}) FROM (SELECT CAST(? AS {source}) AS v)", [value]).fetchone()
    assert safe > 90


def test_texts_of_the_catalog():
    assert generated_columns('CREATE TABLE t("generated" INTEGER, "always" VARCHAR DEFAULT(\'GENERATED ALWAYS\'), c INTEGER);') == set()
    assert generated_columns("CREATE TABLE t(a DECIMAL(3,1), B INTEGER GENERATED ALWAYS AS((a + 1)), CHECK((a > 0)));") == {"b"}
    assert view_query('CREATE VIEW s."x AS y"("AS") AS WITH z AS (SELECT 1) SELECT * FROM z;', "").startswith("WITH z AS")
    with pytest.raises(UnsupportedQuery):
        view_query("CREATE VIEW x", "")
