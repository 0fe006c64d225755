-- The books of dpsql: one schema in the database that holds the protected tables.
-- Everything in it is plain SQL and readable without dpsql. Privacy status: nothing here depends on a protected row,
-- only on what was declared, asked for and charged.

CREATE SCHEMA IF NOT EXISTS {books};

-- Append-only. Every entry carries the hash of the one before it (of the same source); the newest 'protect', 'raise' or
-- 'lower' entry is the budget in force; a 'charge' counts unless a later 'refund' names its release. After a 'fail' (reading for a
-- release failed, which is its final result), or three 'interrupt' (a reading was stopped by hand; parameters name the release),
-- only plain sources are sold until a 'resume'. An 'anchor' entry names, in parameters,
-- the file outside the database that every entry is noted in. A 'link' says in parameters whose rows those of another table are: that
-- one is under this budget, and has an entry 'linked' of its own; what it had spent before stands in the 'link' and counts. 'unlink'
-- and 'unlinked' take a link back.
CREATE TABLE IF NOT EXISTS {books}.ledger (
    source VARCHAR NOT NULL,              -- the protected table, schema-qualified; a file by its path
    entry INTEGER NOT NULL,               -- 1, 2, 3, ... within a source
    written_at TIMESTAMP NOT NULL,                -- UTC
    who VARCHAR NOT NULL,
    action VARCHAR NOT NULL,              -- protect, raise, lower, charge, store, fail, interrupt, refund, resume, anchor,
                                          -- link, linked, unlink, unlinked
    release VARCHAR,                      -- the release that the entry is about
    operation VARCHAR,                    -- marginals, synthesize
    query VARCHAR,                        -- the relation that was measured, normalised
    parameters VARCHAR,                   -- JSON: what the caller asked for; of an 'anchor' entry: the file
    plan VARCHAR,                         -- JSON: what is measured, with which noise, over which public domain
    events VARCHAR,                       -- JSON: the privacy events that are charged
    rho DECIMAL(38, 24),                  -- zero-concentrated privacy loss of the charge
    epsilon DECIMAL(38, 24),              -- budget: the limit; charge: what the release alone guarantees
    delta DECIMAL(38, 37),                -- the delta that goes with epsilon
    neighbors VARCHAR,
    privacy_unit VARCHAR,
    max_contributions INTEGER,
    accountant VARCHAR,
    versions VARCHAR,                     -- JSON: dpsql, duckdb, numpy
    contents VARCHAR,                     -- of a 'store' entry: SHA-256 of the noisy counts, which makes them the only ones
    previous VARCHAR NOT NULL,            -- hash of the entry before
    hash VARCHAR NOT NULL,
    PRIMARY KEY (source, entry)
);

-- The public domain of each declared column. A later declaration replaces an earlier one; releases keep their own copy.
CREATE TABLE IF NOT EXISTS {books}.domains (
    source VARCHAR NOT NULL,              -- the protected table, or the normalised view or query it was declared for
    "column" VARCHAR NOT NULL,
    attribute VARCHAR NOT NULL,           -- JSON
    written_at TIMESTAMP NOT NULL,
    who VARCHAR NOT NULL,
    PRIMARY KEY (source, "column")
);

-- Rules that every row obeys, as declared. A rule that is taken back is deleted; releases keep their own copy.
CREATE TABLE IF NOT EXISTS {books}.rules (
    source VARCHAR NOT NULL,              -- as in domains
    rule VARCHAR NOT NULL,                -- SQL: a boolean expression over the columns of one row
    written_at TIMESTAMP NOT NULL,
    who VARCHAR NOT NULL,
    PRIMARY KEY (source, rule)
);

CREATE OR REPLACE VIEW {books}.budgets AS
SELECT source, epsilon, delta, neighbors, privacy_unit, max_contributions, accountant, written_at, who
FROM {books}.ledger
WHERE action IN ('protect', 'raise', 'lower', 'linked', 'unlinked')
QUALIFY system.main.row_number() OVER (PARTITION BY source ORDER BY entry DESC) = 1 AND action NOT IN ('linked', 'unlinked');

CREATE OR REPLACE VIEW {books}.releases AS
{releases};

-- The check of the hashes, for readers without dpsql (which itself never trusts this view).
CREATE OR REPLACE VIEW {books}.chain AS
{chain};
