-- A plan for people who don't write SQL. Privacy status: free; no row is read.
-- {call}: the dp_plan call.
SELECT
    coalesce(method, operation) AS what,
    measures,
    printf('%s, scale %.1f', mechanism, noise_scale) AS noise,
    coalesce(printf('%.1f', expected_error_1way), 'not measured') AS "expected error of a one-way count",
    coalesce(printf('%.1f', expected_error_2way), 'not measured') AS "of a two-way count",
    coalesce(printf('%.1f', expected_error_3way), 'not measured') AS "of a three-way count",
    'epsilon ' || epsilon || coalesce(' at delta ' || nullif(delta, 0), '') AS costs,
    CASE WHEN bought THEN 'bought already: costs nothing again' WHEN affordable THEN 'yes' ELSE 'NO: over the budget' END AS "within the budget",
    epsilon_left_after AS "epsilon left for one more after it",
    printf('%.0f s, %.0f MB (for %s rows)', ceil(estimated_seconds), estimated_memory_mb, format('{:,}', estimated_for_rows)) AS "takes about",
    array_to_string(columns, ', ') AS "columns",
    CASE WHEN len(left_out) > 0 THEN array_to_string(left_out, ', ') ELSE 'none' END AS "left out (not declared)",
    array_to_string(notes, '; ') AS notes
FROM {call}
