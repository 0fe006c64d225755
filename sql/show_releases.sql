-- What was bought, for people who don't write SQL. Privacy status: free, from the books alone.
-- {call}: the dp_releases call.
SELECT
    release,
    source AS "table",
    coalesce(parameters ->> '$.method', operation) AS what,
    CASE
        WHEN len(aggregates) > 0 THEN replace(array_to_string(aggregates, ', '), 'count()', 'count(*)') || coalesce(' by ' || nullif(array_to_string(keys, ', '), ''), '')
        ELSE coalesce(array_to_string((parameters -> '$.columns')::VARCHAR[], ', '), 'all columns')
    END || coalesce(' where ' || filters, '') AS question,
    epsilon,
    status,
    strftime(charged_at, '%Y-%m-%d %H:%M') AS "when (UTC)"
FROM (
    SELECT *, replace(parameters ->> '$.query.aggregates', '\"', '')::VARCHAR[] AS aggregates,
        replace(parameters ->> '$.query.keys', '\"', '')::VARCHAR[] AS keys
    FROM {call}
)
ORDER BY charged_at ASC NULLS LAST, release ASC
