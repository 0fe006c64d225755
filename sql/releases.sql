-- What was bought: one row a release and source, from its entries in the ledger. Privacy status: free, from the books alone.
-- What an analyst of a served database pays for a release (a 'use') changes nothing about it.
-- {books}: the schema of the books.
SELECT
    release,
    source,
    system.main.arg_max(operation, entry) FILTER (action = 'charge') AS operation,
    system.main.arg_max(query, entry) FILTER (action = 'charge') AS query,
    system.main.arg_max(parameters, entry) FILTER (action = 'charge') AS parameters,
    system.main.arg_max(rho, entry) FILTER (action = 'charge') AS rho,
    system.main.arg_max(epsilon, entry) FILTER (action = 'charge') AS epsilon,
    system.main.arg_max(delta, entry) FILTER (action = 'charge') AS delta,
    system.main.arg_max(
        CASE action WHEN 'charge' THEN 'charged' WHEN 'store' THEN 'stored' WHEN 'fail' THEN 'failed' WHEN 'refund' THEN 'refunded' END,
        entry
    ) FILTER (action IN ('charge', 'store', 'fail', 'refund')) AS status,
    system.main.max(written_at) FILTER (action = 'charge') AS charged_at
FROM {books}.ledger
WHERE release IS NOT NULL
GROUP BY release, source
