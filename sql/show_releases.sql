-- What was bought, for people who don't write SQL. Privacy status: free, from the books alone.
-- {call}: the dp_releases call.
SELECT
    release,
    source AS "table",
    coalesce(parameters ->> '$.method', operation) AS what,
    question,
    epsilon,
    status,
    strftime(charged_at, '%Y-%m-%d %H:%M') AS "when (UTC)"
FROM {call}
ORDER BY charged_at ASC NULLS LAST, release ASC
