-- Where each ledger ends, to be kept elsewhere: an entry number and a hash that no later ledger may contradict. Privacy status: free.
-- {call}: the dp_ledger call.
SELECT
    source AS "table",
    max(entry) AS entry,
    arg_max(hash, entry) AS hash,
    strftime(arg_max(written_at, entry), '%Y-%m-%d %H:%M:%S') AS "written at (UTC)",
    CASE WHEN bool_and(chain_holds) THEN 'intact' ELSE 'EDITED' END AS books
FROM {call}
GROUP BY source
ORDER BY source ASC NULLS LAST
