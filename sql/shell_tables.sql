-- Tables and views of the current database. Privacy status: free; no row is read.
-- Parameter 1: which names (LIKE), NULL for all but the books.
SELECT * FROM (
    SELECT schema_name AS "schema", table_name AS name, 'table' AS kind, column_count AS "columns"
    FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal OR temporary
    UNION ALL
    SELECT schema_name, view_name, 'view', column_count
    FROM duckdb_views()
    WHERE NOT internal AND (database_name = current_database() OR temporary)
)
WHERE CASE WHEN $1 IS NULL THEN "schema" <> 'dpsql' ELSE name LIKE $1 OR "schema" || '.' || name LIKE $1 END
ORDER BY ALL ASC NULLS LAST
