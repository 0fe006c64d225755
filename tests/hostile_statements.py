# ruff: noqa: E501 -- statements, one after the other
"""What a hostile analyst may write, by the reason for which it is refused; and the database that it is written to.

In the database ``adult`` is granted, ``secret`` is protected and not granted, ``raw`` is neither protected nor published, ``pub`` is
published. Privacy status: made-up data alone; `SENTINEL` is in every hidden row.
"""

from __future__ import annotations

SENTINEL = 987654321
SCHEMA = f"""
CREATE TYPE mood AS ENUM ('m{SENTINEL}');
CREATE TABLE adult AS SELECT {SENTINEL} AS age, 'M' AS sex, 1.5 AS income FROM range(5);
CREATE TABLE secret AS SELECT {SENTINEL} AS x;
CREATE TABLE raw AS SELECT {SENTINEL} AS x;
CREATE TABLE pub(a INTEGER, b VARCHAR);
INSERT INTO pub VALUES (1, 'one'), (2, 'two');
CREATE SCHEMA other;
CREATE TABLE other.pub AS SELECT {SENTINEL} AS a, 'x' AS b;
CREATE VIEW over_pub AS SELECT a + 1 AS a FROM pub;
CREATE VIEW over_adult AS SELECT sex, income FROM adult;
CREATE VIEW over_secret AS SELECT x FROM secret;
CREATE VIEW over_raw AS SELECT x FROM raw;
CREATE VIEW over_call AS FROM dp_ledger();
CREATE VIEW over_view AS FROM over_secret;
CREATE VIEW over_file AS SELECT 1 AS x WHERE 1 IN (SELECT x FROM raw);
CREATE VIEW of_settings AS SELECT current_setting('threads') AS x;
CREATE VIEW of_tables AS SELECT estimated_size AS n FROM duckdb_tables();
CREATE MACRO leak() AS (SELECT max(x) FROM secret);
CREATE MACRO leaks() AS TABLE FROM secret;
CREATE MACRO trim(given) AS (SELECT max(x) FROM secret);
CREATE SEQUENCE numbers;
"""

_HIDDEN = (
    "secret", "SECRET", '"secret"', "main.secret", '"main"."SeCret"', "memory.main.secret", "memory.secret", "raw", "main.raw",
    "memory.main.raw", "other.pub", "memory.other.pub", "over_secret", "over_raw", "over_call", "over_view", "over_file",
    "of_settings", "of_tables", "nothing", "main.nothing", "dpsql.ledger", "memory.dpsql.ledger", "dpsql.budgets", "dpsql.releases",
    "sqlite_master", "sqlite_schema", "duckdb_settings", "duckdb_secrets", "duckdb_functions", "duckdb_constraints", "pragma_database_list",
    "pg_catalog.pg_class", "pg_catalog.pg_tables", "pg_catalog.pg_attribute", "information_schema.referential_constraints",
    "information_schema.key_column_usage", "system.information_schema.constraint_column_usage", "'secret.csv'", '"x.parquet"',
    "'/etc/passwd'", "'https://example.org/x.csv'", "'s3://b/x.parquet'", "'*.json'", "'data.duckdb'", "temp.main.__dpsql_answer_0",
    "temp.__dpsql_answer_0", "__dpsql_answer_0", "answers.main.x", "system.main.duckdb_tables", "ѕecret", "ｓｅｃｒｅｔ", '"secret "',
    "secret.x", "a.b.c", "pub.main", "__dpsql_with_1", "leaks", "recurring.c",
)  # fmt: skip
_PLACES = (
    "SELECT max(x) FROM secret", "SELECT * FROM pub WHERE a IN (SELECT x FROM secret)",
    "SELECT (SELECT max(x) FROM secret) FROM pub", "SELECT EXISTS (FROM secret)", "SELECT a FROM pub ORDER BY (SELECT max(x) FROM raw)",
    "SELECT a FROM pub LIMIT (SELECT max(x) FROM raw)", "SELECT a FROM pub LIMIT 1 OFFSET (SELECT max(x) FROM raw)",
    "SELECT a FROM pub GROUP BY a HAVING a > (SELECT max(x) FROM raw)",
    "SELECT a FROM pub QUALIFY row_number() OVER () > (SELECT max(x) FROM raw)",
    "SELECT sum(a) FILTER (WHERE a > (SELECT max(x) FROM raw)) FROM pub", "SELECT sum(a ORDER BY (SELECT max(x) FROM raw)) FROM pub",
    "SELECT sum(a) OVER (PARTITION BY (SELECT max(x) FROM raw)) FROM pub",
    "SELECT sum(a) OVER (ORDER BY (SELECT max(x) FROM raw)) FROM pub",
    "SELECT sum(a) OVER (ORDER BY a ROWS (SELECT max(x) FROM raw) PRECEDING) FROM pub",
    "SELECT lag(a, 1, (SELECT max(x) FROM raw)) OVER () FROM pub", "SELECT CASE WHEN a = 1 THEN (SELECT max(x) FROM raw) END FROM pub",
    "SELECT CASE WHEN (SELECT true FROM raw) THEN 1 END FROM pub", "SELECT CASE WHEN false THEN 1 ELSE (SELECT x FROM raw) END",
    "SELECT CAST((SELECT x FROM raw) AS VARCHAR)", "SELECT a BETWEEN 1 AND (SELECT x FROM raw) FROM pub",
    "SELECT list_transform([1], lambda e: (SELECT max(x) FROM raw))", "SELECT [(SELECT x FROM raw) FOR e IN [1]]",
    "SELECT [(SELECT x FROM raw)]", "SELECT {'k': (SELECT x FROM raw)}", "SELECT MAP {1: (SELECT x FROM raw)}",
    "SELECT [1, 2][(SELECT x FROM raw)]", "SELECT ARRAY(SELECT x FROM raw)", "SELECT a FROM pub WHERE a = ANY (SELECT x FROM raw)",
    "SELECT a FROM pub WHERE a > ALL (SELECT x FROM raw)", "SELECT * REPLACE ((SELECT x FROM raw) AS a) FROM pub",
    "SELECT COLUMNS(c -> c IN (SELECT x::VARCHAR FROM raw)) FROM pub", "SELECT DISTINCT ON ((SELECT x FROM raw)) a FROM pub",
    "FROM pub JOIN secret ON true", "FROM pub, secret", "FROM pub LEFT JOIN raw ON a = x", "FROM pub SEMI JOIN raw ON a = x",
    "FROM pub ANTI JOIN raw ON a = x", "FROM pub ASOF JOIN raw ON a >= x", "FROM pub POSITIONAL JOIN raw", "FROM pub NATURAL JOIN raw",
    "FROM pub CROSS JOIN raw", "FROM pub JOIN pub p ON pub.a = (SELECT x FROM raw)", "FROM pub, LATERAL (SELECT x + a FROM raw)",
    "FROM range((SELECT x FROM raw))", "FROM unnest((SELECT [x] FROM raw))", "FROM (VALUES ((SELECT x FROM raw)))",
    "VALUES (1), ((SELECT x FROM raw))", "SELECT 1 UNION ALL SELECT x FROM raw", "SELECT 1 EXCEPT SELECT x FROM raw",
    "SELECT x FROM raw INTERSECT SELECT 1", "SELECT 1 AS x UNION ALL BY NAME SELECT x FROM raw", "WITH c AS (SELECT x FROM raw) FROM c",
    "WITH c AS MATERIALIZED (FROM raw) SELECT 1", "WITH raw AS (FROM raw) FROM raw", "WITH pub AS (FROM pub), d AS (FROM raw) FROM d",
    "WITH a AS (FROM b), b AS (FROM pub) FROM a", "SELECT (WITH raw AS (FROM pub) SELECT 1), x FROM raw",
    "FROM (WITH secret AS (FROM pub) FROM secret), secret", "WITH RECURSIVE c AS (SELECT x FROM raw UNION ALL SELECT x FROM c) FROM c",
    "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT c.x FROM c, raw) FROM c", "FROM pub PIVOT (max(a) FOR b IN ('x')) p, raw",
    "FROM raw PIVOT (max(x) FOR x IN (1))", "UNPIVOT raw ON x", "FROM (FROM (FROM (FROM raw)))", "SELECT #1 FROM secret",
    "SELECT NULL::BOOLEAN FROM secret", "TABLE secret", "DESCRIBE secret", "SHOW secret", "SUMMARIZE secret", "SUMMARIZE SELECT x FROM raw",
    "DESCRIBE SELECT x FROM raw", "FROM (DESCRIBE raw)", "FROM (SUMMARIZE raw)", "SELECT /* pub */ x FROM raw -- pub",
    "SELECT sex, count(*) FROM adult, secret GROUP BY sex", "SELECT count(*) FROM adult WHERE age IN (SELECT x FROM raw)",
    "SELECT count(*) FROM adult JOIN raw ON age = x", "FROM nothing, secret", "FROM secret s(x), pub", "SELECT sex FROM over_adult, over_raw",
    "FROM dp_query('SELECT count(*) FROM secret', epsilon := 1)", "FROM dp_query('SELECT count(*) FROM adult JOIN raw ON age = x')",
    "FROM dp_query('WITH adult AS (FROM raw) SELECT count(*) FROM adult')", "FROM dp_summarize('secret', epsilon := 1)",
    "FROM dp_summarize('main.secret')", "FROM dp_domain('raw')", "FROM dp_plan('SELECT x FROM secret', epsilon := 1)",
    "FROM dp_budget('secret')", "FROM dp_ledger(source := 'secret')", "FROM dp_releases('secret')", "FROM dp_synthesize('over_secret')",
    "FROM dp_marginals('\"x.parquet\"')",
    "FROM dp_domain('dpsql.ledger')", "FROM dp_budget('''x.parquet''')", "FROM dp_contributions('FROM \"secret\"')",
)  # fmt: skip
_FUNCTIONS = (
    "leak()", "main.leak()", "memory.main.leak()", "error('x')", "stats(a)", "current_setting('threads')", "getvariable('x')",
    "getenv('HOME')", "nextval('numbers')", "currval('numbers')", "current_query()", "current_schemas(true)", "current_database()",
    "txid_current()", "current_transaction_id()", "current_connection_id()", "sleep_ms(1)", "pg_sleep(1)", "setseed(0.5)",
    "write_log('x')", "query('FROM secret')", "system.main.query('x')", "main.query('x')", "QUERY('x')", '"query"(\'x\')',
    "json_serialize_sql('SELECT 1')", "json_serialize_plan('FROM secret')", "json_deserialize_sql('{}')", "version()",
    "vector_type(a)", "list_aggregate([a], 'stats')", "list_aggr([a], 'max')", "array_aggregate([a], 'max')", "aggregate([a], 'max')",
    "pg_get_viewdef(1)", "has_table_privilege('secret', 'SELECT')", "obj_description(1, 'x')", "in_search_path('memory', 'main')",
    "pg_typeof(a)", "cast_to_type(a, NULL::mood)", "create_sort_key(a, 'ASC')", "__internal_compress_string_hugeint(b)",
    "system.main.__dp_call_needs_dpsql_load('budget', '{}')", "__dp_call_needs_dpsql_load('budget', '{}')", "dp_budget()",
    "dp_combine([1.0], [1.0])", "trim(b)", "main.trim(b)", "b.trim()", "user()", "session_user()", "nothing(a)", "a.nothing()",
    "read_text('/etc/passwd')", "st_astext(a)", "icu_sort_key(b, 'de')", "parse_filename(b)", "get_block_size('memory')",
    "current_setting(b)", "sum(error(b))", "coalesce(1, error('x'))", "list_transform([1], lambda e: error('x'))",
    "max(a) FILTER (WHERE stats(a) = '')", "sum(a) OVER (ORDER BY stats(a))", "leak() OVER ()", "CASE WHEN a = 1 THEN leak() END",
    "remap_struct(a)", "md5(current_setting('temp_directory'))", "(x).leak()", "variant_typeof(a)",
)  # fmt: skip
_TABLE_FUNCTIONS = (
    "query('FROM secret')", "query_table('secret')", "query_table(['pub', 'secret'])", "query_table('ra' || 'w')",
    "query('from r' || 'aw')", "main.query('FROM raw')", "system.main.query('FROM raw')", 'QuErY(\'x\')', '"query_table"(\'raw\')',
    "read_csv('/etc/passwd')", "read_csv_auto('x')", "read_text('/etc/passwd')", "read_blob('/etc/passwd')", "read_json('x')",
    "read_parquet('x.parquet')", "parquet_scan('x')", "parquet_metadata('x')", "parquet_schema('x')", "glob('*')", "sniff_csv('x')",
    "read_duckdb('x')", "duckdb_settings()", "duckdb_secrets()", "duckdb_functions()", "duckdb_constraints()", "duckdb_indexes()",
    "duckdb_sequences()", "duckdb_dependencies()", "duckdb_memory()", "duckdb_temporary_files()", "duckdb_variables()",
    "duckdb_prepared_statements()", "duckdb_logs()", "duckdb_types()", "duckdb_extensions()", "duckdb_optimizers()",
    "duckdb_table_sample('secret')", "pragma_storage_info('secret')", "pragma_table_info('secret')", "pragma_show('secret')",
    "pragma_database_size()", "pragma_metadata_info()", "pragma_version()", "pragma_user_agent()", "pragma_platform()", "seq_scan('x')",
    "leaks()", "main.leaks()", "repeat_row(1, num_rows := 9)", "test_all_types()", "which_secret('x', 'y')", "summary((FROM secret))",
    "checkpoint()", "force_checkpoint()", "enable_logging()", "json_execute_serialized_sql('x')", "histogram_values(secret, x)",
    "histogram(secret, x)", "arrow_scan(1, 2, 3)", "pandas_scan(1)", "python_map_function()", "dp_nothing('x')", "other.dp_budget()",
    "system.main.dp_budget()", "temp.main.dp_budget()", "dp_combine([1.0], [1.0])", "quack_query('quack:localhost:1', 'x')",
    "duckdb_connection_count()", "icu_calendar_names()", "duckdb_tables(1)",
)  # fmt: skip
_CUSTODIAN = (
    "dp_report('r', path := '/tmp/x')", "dp_report('r', compare := true)", "dp_report('r', 'x')",
    "dp_protect('adult', epsilon := 1000)", "DP_PROTECT('adult')", '"dp_protect"(\'adult\')', "main.dp_protect('adult')",
    "dp_declare('adult', 'age', lower := 0, upper := 1)", "dp_rule('adult', 'age > 1')", "dp_remote('x', 'duckdb', 'y')",
    "dp_query_exact('SELECT count(*) FROM adult')", "dp_evaluate('adult', 'pub')", "dp_export('r1', 'x')", "dp_import('x')",
)  # fmt: skip
HOSTILE: dict[str, tuple[str, ...]] = {
    "table": (*(f"FROM {name}" for name in _HIDDEN), *_PLACES),
    "function": tuple(f"SELECT {call} FROM pub" for call in _FUNCTIONS),
    "table_function": tuple(f"FROM {call}" for call in _TABLE_FUNCTIONS),
    "call": tuple(f"FROM {call}" for call in _CUSTODIAN),
    "statement": (
        "CREATE TABLE x(a INTEGER)", "CREATE TABLE x AS FROM secret", "CREATE VIEW x AS FROM secret", "CREATE MACRO f() AS 1",
        "CREATE TEMP TABLE x AS FROM raw", "DROP TABLE adult", "ALTER TABLE adult ADD COLUMN x INTEGER", "INSERT INTO pub VALUES (1, '')",
        "INSERT INTO main.pub VALUES (NULL)", "UPDATE pub SET a = 1", "DELETE FROM adult", "TRUNCATE adult", "COPY adult TO 'x.csv'",
        "COPY (FROM secret) TO '/dev/stdout'", "COPY pub FROM 'x.csv'", "COPY FROM DATABASE memory TO other", "ATTACH 'x' AS y",
        "DETACH memory", "USE other", "SET threads = 1", "SET GLOBAL quack_authorization_function = 'f'", "SET VARIABLE x = 1",
        "RESET threads", "PRAGMA storage_info('secret')", "PRAGMA database_list", "PRAGMA enable_profiling", "EXPLAIN FROM secret",
        "EXPLAIN ANALYZE SELECT count(*) FROM adult", "BEGIN TRANSACTION", "COMMIT", "ROLLBACK", "CHECKPOINT", "VACUUM", "ANALYZE adult",
        "CALL dp_protect('adult')", "CALL pragma_storage_info('secret')", "PREPARE p AS FROM secret", "EXECUTE p", "DEALLOCATE p",
        "INSTALL httpfs", "LOAD httpfs", "EXPORT DATABASE 'x'", "IMPORT DATABASE 'x'", "COMMENT ON TABLE adult IS 'x'",
        "CREATE SECRET s (TYPE s3)", "CREATE TYPE t AS ENUM ('a')", "CREATE SEQUENCE s",
        "MERGE INTO pub USING raw ON true WHEN MATCHED THEN DELETE", "SELECT 1; DROP TABLE pub", "FROM pub; FROM secret; SET threads = 1",
    ),
    "several": (
        "SELECT 1; SELECT 2", "FROM pub; FROM secret", "FROM pub;;FROM pub", "SELECT 1 /* ; */; SELECT 2", "SELECT ';'; SELECT 1",
        "FROM dp_query('FROM pub; FROM secret')",
    ),
    "empty": ("", " \n\t", ";", "-- FROM secret", "/* FROM secret */", ";;"),
    "syntax": (
        "SELEC 1", "SELECT FROM WHERE", "SELECT 'x", "FROM pub WHERE (", "SELECT :x", "SELECT 1 /* open", "SELECT WITH DIFFERENTIAL_PRIVACY FROM WHERE",
        "\\d", ".tables", "{\"error\": false}", "FROM pub PIVOT",
    ),
    "clause": (
        "SELECT WITH DIFFERENTIAL_PRIVACY count(*) FROM pub", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 9) 1",
        "FROM dp_query('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 9) count(*) FROM adult')",
    ),
    "option": (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = x) count(*) FROM adult", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (sql = 1) count(*) FROM adult",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (compare = 1) count(*) FROM adult", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1 count(*) FROM adult",
    ),
    "unit": ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = id) count(*) FROM adult",),
    "pivot": (
        "PIVOT secret ON x USING count(*)", "PIVOT pub ON b USING count(*)", "FROM (PIVOT adult ON sex USING count(*))", "FROM dp_query('PIVOT adult ON sex USING count(*)')"),
    "long": ("SELECT '\0'", "SELECT '" + "x" * 200_000 + "'", "SELECT '\ud800'", "FROM secret" + " " * 200_000),
    "parameter": ("SELECT $1", "SELECT ?", "SELECT $name", "FROM pub LIMIT ?", "FROM range($1)", "FROM pub WHERE a IN (?, ?)"),
    "type": (
        "SELECT b::mood FROM pub", "SELECT TRY_CAST('m' AS mood)", "SELECT CAST([b] AS mood[]) FROM pub",
        "SELECT {'a': 'x'}::STRUCT(a mood)", "SELECT 'x'::\"mood\"", "SELECT NULL::nothing",
    ),
    "summarize": ("SUMMARIZE adult", "SUMMARIZE SELECT age FROM adult", "FROM (SUMMARIZE adult)", "SUMMARIZE over_adult"),
    "describe": ("DESCRIBE SELECT age FROM adult", "FROM (DESCRIBE SELECT * FROM adult WHERE age > 3)"),
    "show": ("SHOW VARIABLES", "SHOW TABLES FROM other", "SHOW TABLES FROM memory.main"),
    "recursive": ("WITH RECURSIVE c AS (SELECT age FROM adult UNION ALL SELECT age FROM c) SELECT count(*) FROM c",),
    "protected": ("SELECT count(*) FROM adult USING SAMPLE 10%", "SELECT count(*) FROM adult TABLESAMPLE 1 ROWS"),
    "mixed": (
        "SELECT count(*) FROM adult, dp_budget()", "FROM dp_query('SELECT count(*) FROM adult', epsilon := 1), adult",
        "SELECT count(*) FROM adult, duckdb_tables()", "SELECT (SELECT count(*) FROM adult) FROM information_schema.tables",
        "FROM dp_query('FROM dp_budget()')", "FROM dp_query('FROM dp_query(''SELECT 1'')')", "FROM dp_query('SHOW TABLES')",
        "FROM dp_domain('FROM dp_sample(''r'')')", "FROM (SHOW TABLES), adult", "FROM adult, (DESCRIBE pub)",
    ),
    "argument": (
        "FROM dp_sample('r', into_table := 'x')",
        "FROM dp_synthesize('adult', into_table := 'pub')", "FROM dp_sample('r', \"into\" := 'x')", "FROM dp_budget(analyst := 'bob')",
        "FROM dp_query('SELECT 1', path := 'x')", "FROM dp_budget('adult', 'x')",
    ),
    "constant": (
        "FROM dp_query(getvariable('x'))", "FROM dp_query((SELECT 'x'))", "FROM dp_query('SELECT ' || '1')", "FROM dp_query(b)",
        "FROM pub, LATERAL (FROM dp_query(pub.b))", "FROM dp_budget(current_setting('threads'))", "FROM dp_domain(leak())",
        "FROM dp_query('SELECT 1', epsilon := random())", "FROM dp_query('SELECT 1', options := {'a': (SELECT x FROM secret)})",
        "FROM dp_query('SELECT 1', bounds := [leak()])", "FROM dp_query(CAST(leak() AS VARCHAR))",
    ),
    "source": ("FROM dp_domain('adult a')", "FROM dp_domain(1)", "FROM dp_query(['x'])", "FROM dp_domain('adult, secret')",
               "FROM dp_domain('adult WHERE age > 3')", "FROM dp_domain('read_csv(''x'')')", "FROM dp_domain('DROP TABLE pub')"),
    "domain": ("FROM dp_histogram('adult', column_name := 'sex', domain := 'secret.x', epsilon := 1)",),
    "twice": ("FROM dp_query('SELECT 1', sql := 'SELECT 2')",),
    "syntax_part": ("SELECT NULL::main.mood", "FROM secret AT (VERSION => 1)", "FROM pub AT (VERSION => 1)", "SELECT DEFAULT", "FROM adult AT (TIMESTAMP => now())"),
}  # fmt: skip
"""Statements by the name of the reason (`dpsql.serve.gate.reasons`)."""
