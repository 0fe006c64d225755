-- The ledger for people who don't write SQL. Privacy status: free, from the books alone.
-- {call}: the dp_ledger call.
SELECT
    strftime(written_at, '%Y-%m-%d %H:%M:%S') AS "when (UTC)",
    who,
    source AS "table",
    entry,
    CASE action
        WHEN 'protect' THEN 'budget set' WHEN 'raise' THEN 'budget raised' WHEN 'lower' THEN 'budget lowered'
        WHEN 'charge' THEN 'bought: ' || operation WHEN 'store' THEN 'stored' WHEN 'refund' THEN 'given back'
        WHEN 'fail' THEN 'reading failed' WHEN 'resume' THEN 'sales resumed' WHEN 'interrupt' THEN 'reading interrupted'
        WHEN 'anchor' THEN 'anchor named'
        WHEN 'link' THEN 'linked: ' || (parameters ->> '$.child[1]') WHEN 'linked' THEN 'under ' || (parameters ->> '$.root')
        WHEN 'unlink' THEN 'unlinked: ' || (parameters ->> '$.child[1]')
        ELSE action
    END AS what,
    release,
    CASE WHEN action = 'charge' THEN ceil(epsilon * 1e4) / 1e4 ELSE epsilon END AS epsilon,
    delta,
    CASE WHEN chain_holds THEN 'intact' ELSE 'EDITED' END AS books
FROM {call}
ORDER BY written_at ASC NULLS LAST, source ASC, entry ASC
