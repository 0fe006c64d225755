-- Grants for people who don't write SQL. Privacy status: free, from the books alone.
-- {call}: the dp_grant call.
SELECT
    source AS "table",
    analyst,
    epsilon,
    epsilon_spent AS spent,
    epsilon_left AS "left",
    per_query AS "one question",
    CASE WHEN epsilon IS NOT NULL THEN coalesce('each ' || renew || ', next ' || renews_on, 'never') END AS renews,
    CASE WHEN epsilon IS NOT NULL THEN coalesce(array_to_string(methods, ', '), 'all') END AS calls,
    CASE WHEN epsilon IS NOT NULL THEN coalesce(array_to_string(columns, ', '), 'all') END AS columns,
    change
FROM {call}
ORDER BY source ASC, analyst ASC
