-- What the shell completes. Privacy status: free; names and types only, no row is read.
-- dp_* calls and their parameters; where a call has several forms, the longer one.
SELECT function_name, arg_max(parameters, len(parameters))
FROM duckdb_functions()
WHERE starts_with(function_name, 'dp_')
GROUP BY 1
ORDER BY 1 ASC;

-- Tables and views with their columns, in the current database.
SELECT CASE WHEN schema_name IN ('main', 'temp') THEN table_name ELSE schema_name || '.' || table_name END, column_name
FROM duckdb_columns()
WHERE NOT internal AND database_name IN (current_database(), 'temp')
ORDER BY table_oid ASC, column_index ASC;

-- Functions with a plain name.
SELECT DISTINCT function_name
FROM duckdb_functions()
WHERE regexp_full_match(function_name, '[a-z][a-z0-9_]*') AND NOT starts_with(function_name, 'dp_')
ORDER BY 1 ASC;

-- Keywords.
SELECT keyword_name
FROM duckdb_keywords()
WHERE keyword_category IN ('reserved', 'type_function', 'unreserved')
ORDER BY 1 ASC;
