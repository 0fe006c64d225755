-- Whether each entry follows from the one before: false where a book was edited, cut in the middle or reordered.
SELECT
    source,
    entry,
    hash = {hash}
        AND previous = coalesce(lag(hash) OVER sequence, sha256(source))
        AND entry = coalesce(lag(entry) OVER sequence, 0) + 1 AS holds
FROM {books}.ledger
WINDOW sequence AS (PARTITION BY source ORDER BY entry)
