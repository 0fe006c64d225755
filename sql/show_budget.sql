-- The budgets for people who don't write SQL. Privacy status: free, from the books alone.
-- {call}: the dp_budget call.
SELECT
    source AS "table",
    epsilon AS "epsilon: limit",
    epsilon_spent AS spent,
    epsilon_left AS "left for one more",
    repeat('█', share) || repeat('░', 10 - share) || printf(' %d %%', ceil(100 * used)::INTEGER) AS used,
    delta,
    releases,
    CASE WHEN privacy_unit IS NULL THEN 'one row'
        ELSE printf('all rows of one %s (%d at most)', privacy_unit, max_contributions) END
        || CASE neighbors WHEN 'add_remove' THEN ', its presence too' ELSE '; the number of rows is public' END AS protects,
    CASE WHEN NOT chain_holds THEN 'EDITED' WHEN books = 'intact' THEN 'intact' WHEN starts_with(books, 'intact') THEN 'intact; stopped'
        ELSE 'DO NOT AGREE with the anchor' END AS books
FROM (SELECT *, share_used AS used, ceil(10 * used)::INTEGER AS share FROM {call})
ORDER BY "table" ASC NULLS LAST
