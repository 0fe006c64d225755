-- CREATE statements of the tables and views of the current database. Privacy status: free; no row is read.
-- Parameter 1: which names (LIKE), NULL for all but the books.
SELECT definition FROM (
    SELECT 1 AS place, schema_name, table_name AS name, sql AS definition
    FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal OR temporary
    UNION ALL
    SELECT 2, schema_name, view_name, sql
    FROM duckdb_views()
    WHERE NOT internal AND (database_name = current_database() OR temporary)
)
WHERE CASE WHEN $1 IS NULL THEN schema_name <> 'dpsql' ELSE name LIKE $1 OR schema_name || '.' || name LIKE $1 END
ORDER BY place ASC, schema_name ASC, name ASC
