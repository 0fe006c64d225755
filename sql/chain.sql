-- Whether each entry follows from the one before: false where a book was edited, cut in the middle or reordered.
-- It has no key: whoever computes all hashes anew, or cuts off the end, is found by an anchor (dp_protect) alone.
SELECT
    source,
    entry,
    coalesce(
        hash = {hash}
        AND previous = coalesce(system.main.lag(hash) OVER sequence, system.main.sha256(source))
        AND entry = coalesce(system.main.lag(entry) OVER sequence, 0) + 1,
        false
    ) AS holds
FROM {books}.ledger
WINDOW sequence AS (PARTITION BY source ORDER BY entry ASC)
