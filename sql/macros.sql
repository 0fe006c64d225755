-- The public interface: every dp_* name is a table macro over one UDF, which is called while the statement is bound and
-- answers with the text of a relation. Names and parameters are the contract. A call is idempotent: the same release is
-- charged once, however often it is bound, explained, viewed or run.
-- The UDF is called __dp_call_needs_dpsql_load, because DuckDB's own error shows that name where it is missing: macros live in
-- the file, functions in the process that called dpsql.load(con). Functions are written system.main.*, and neither || nor {}
-- stands here: a macro in the database could change what they do.

-- dp_protect: gives a table a privacy budget, or raises or lowers it (on the ledger). Privacy status: free.
-- What is left out stays as it is; at first neighbors := 'add_remove', accountant := 'zcdp'. A privacy_unit needs
-- max_contributions: at most that many rows of each unit are kept (dp_contributions helps to choose).
-- anchor: a file outside the database that every entry of the ledger is noted in, so that a ledger that was cut or restored from a
-- backup is noticed. resume := true: sources beyond plain ones may be bought again after a reading failed (stands alone).
-- Gives one row: source, epsilon, delta, neighbors, privacy_unit, max_contributions, accountant, change.
CREATE OR REPLACE MACRO dp_protect(source, epsilon := NULL, delta := NULL, neighbors := NULL, privacy_unit := NULL,
    max_contributions := NULL, accountant := NULL, anchor := NULL, resume := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('protect',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, neighbors := neighbors, privacy_unit := privacy_unit,
        max_contributions := max_contributions, accountant := accountant, anchor := anchor, resume := resume))::VARCHAR)));

-- dp_declare: declares the public domain of a column. Privacy status: free; the protected table is not read. With
-- discover := true the list of values is bought (stable selection), charged once per release.
-- Gives one row: the attribute, as dp_domain shows it. (column is a reserved word: column_name := 'age', or the second argument.)
CREATE OR REPLACE MACRO dp_declare(source, column_name := NULL, lower := NULL, upper := NULL, bins := NULL, edges := NULL,
    categories := NULL, categories_from := NULL, nullable := NULL, outside := NULL, discover := false, epsilon := NULL,
    delta := NULL, release := NULL, "column" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('declare',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, lower := lower, upper := upper, bins := bins, edges := edges, categories := categories,
        categories_from := categories_from, nullable := nullable, outside := outside, discover := discover, epsilon := epsilon,
        delta := delta, release := release, "column" := coalesce(column_name, "column")))::VARCHAR)));

-- dp_domain: the declared attributes of a source, one row each; undeclared columns are listed as left out.
-- Gives column_name, type, kind, codes, labels, nullable, outside, status. Privacy status: free.
CREATE OR REPLACE MACRO dp_domain(source) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('domain',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_plan: what a dp_synthesize, dp_marginals (with k) or dp_contributions call would measure and cost. Privacy
-- status: free; no row is read. Gives one row: measures (which tables), epsilon, whether the budget covers it, noise_scale,
-- expected errors, what is left after, notes; then operation, method, columns, left_out, cells, seconds (estimated_stages: a MAP by stage) and memory for two cores and
-- `rows` rows (100,000 where none are given). noise_by_contributions: the noise scale for other max_contributions.
CREATE OR REPLACE MACRO dp_plan(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, k := NULL,
    mechanism := NULL, rows := NULL, options := NULL, release := NULL, operation := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('plan',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, method := method, epsilon := epsilon, delta := delta, columns := columns, k := k,
        mechanism := mechanism, rows := rows, options := options, release := release, operation := operation))::VARCHAR)));

-- dp_marginals: noisy contingency tables, every cell of the public domain. Privacy status: charged once per release.
-- Without k: one table of the named columns where they are up to three, else all one-way tables. One table of named columns is
-- wide: a column per attribute in its own type (bins: <name>_lower, <name>_upper; with outside := 'other' also <name>_other), then
-- n BIGINT (noisy; may be negative), n_low, n_high (95 % of the noise). Otherwise, and with shape := 'long': columns VARCHAR[],
-- values VARCHAR[], n. Columns come in the order asked for.
CREATE OR REPLACE MACRO dp_marginals(source, columns := NULL, k := NULL, epsilon := NULL, delta := NULL,
    mechanism := 'gaussian', release := NULL, shape := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('marginals',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, columns := columns, k := k, epsilon := epsilon, delta := delta, mechanism := mechanism,
        release := release, shape := shape))::VARCHAR)));

-- dp_aggregates: noisy counts of every combination of up to reporting_length values that is frequent enough to be reported.
-- Privacy status: charged once per release. Gives columns VARCHAR[], values VARCHAR[], n BIGINT (noisy, above 0).
CREATE OR REPLACE MACRO dp_aggregates(source, reporting_length := NULL, epsilon := NULL, delta := NULL, columns := NULL,
    fabrication := NULL, release := NULL, options := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('aggregates',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, reporting_length := reporting_length, epsilon := epsilon, delta := delta, columns := columns,
        fabrication := fabrication, release := release, options := options))::VARCHAR)));

-- dp_histogram: noisy counts of the values of a column whose domain nobody can list (domain := words, pairs of words, a
-- pattern; pure epsilon), or is not known at all (no domain: stable selection, epsilon and delta). Charged once per release.
-- Gives value VARCHAR, n BIGINT (noisy), the largest first. (column is a reserved word: column_name :=, or the second argument.)
CREATE OR REPLACE MACRO dp_histogram(source, column_name := NULL, epsilon := NULL, delta := NULL, domain := NULL,
    domain_size := NULL, rho := NULL, separator := NULL, release := NULL, "column" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('histogram',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, domain := domain, domain_size := domain_size, rho := rho,
        separator := separator, release := release, "column" := coalesce(column_name, "column")))::VARCHAR)));

-- dp_contributions: a noisy histogram of the number of rows per privacy unit, to choose max_contributions by. Privacy status:
-- charged once per release. Gives rows_per_unit, units BIGINT (noisy; may be negative), units_low, units_high (95 % of the noise),
-- max_contributions (the least number of the row), share_kept (about how many of all rows are kept under it).
CREATE OR REPLACE MACRO dp_contributions(source, epsilon := NULL, delta := NULL, mechanism := 'gaussian', release := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('contributions',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, mechanism := mechanism, release := release))::VARCHAR)));

-- dp_synthesize: a synthetic table with the source's column names and types. Privacy status: charged once per release.
-- With into_table ("into" is the same, but a reserved word) the rows go straight into that table, and the answer is one row:
-- table_name, rows, release.
CREATE OR REPLACE MACRO dp_synthesize(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, rows := NULL,
    seed := NULL, options := NULL, release := NULL, "into" := NULL, into_table := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('synthesize',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, method := method, epsilon := epsilon, delta := delta, columns := columns, rows := rows, seed := seed,
        options := options, release := release, "into" := coalesce(into_table, "into")))::VARCHAR)));

-- dp_sample: more rows of a stored release, by its identifier (dp_releases lists them). Privacy status: free.
CREATE OR REPLACE MACRO dp_sample(release, rows := NULL, seed := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('sample',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release, rows := rows, seed := seed))::VARCHAR)));

-- dp_ledger: every entry of the books, and whether the chain of hashes holds. Privacy status: free.
CREATE OR REPLACE MACRO dp_ledger(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('ledger',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_budget: limit, spent and left per source. Privacy status: free.
CREATE OR REPLACE MACRO dp_budget(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('budget',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_releases: what was bought, of which rows, with which parameters and at what cost. Privacy status: free.
CREATE OR REPLACE MACRO dp_releases(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('releases',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_evaluate: error tables of a synthetic table against the raw one; report := 'tuples': how well combinations of values are
-- kept, by their count (bucket, preservation, errors, suppressed, fabricated, leaked).
-- rows, synthetic_rows and shortfall say how many rows are missing. Privacy status: NOT PRIVATE, for the custodian only.
CREATE OR REPLACE MACRO dp_evaluate(source, synthetic, max_k := 3, queries := NULL, seed := 7, report := 'tables') AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('evaluate',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, synthetic := synthetic, max_k := max_k, queries := queries, seed := seed, report := report))::VARCHAR)));

-- dp_export: copies a release (noisy statistics and provenance only) to a file that opens on another machine. Free.
CREATE OR REPLACE MACRO dp_export(release, path) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('export',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release, path := path))::VARCHAR)));

-- dp_import: opens an exported release; dp_sample then draws from it. Free.
CREATE OR REPLACE MACRO dp_import(path) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('import',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        path := path))::VARCHAR)));

-- dp_report: writes one self-contained HTML page about a release: what was measured, its cost, the guarantee, charts, error bands.
-- Gives release, path, publishable, note. Privacy status: free; with compare := true NOT PRIVATE, for the custodian only.
CREATE OR REPLACE MACRO dp_report(release, path := NULL, compare := false) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('report',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release, path := path, compare := compare))::VARCHAR)));

-- dp_combine: one estimate and its interval from the same analysis of several synthetic tables (Reiter 2003). Free.
-- As an aggregate: SELECT region, unnest(dp_combine(list(estimate), list(variance))) FROM estimates GROUP BY region.
-- Gives estimate, variance, standard_error, df, lower, upper, between, within, sets.
CREATE OR REPLACE MACRO dp_combine(estimates, variances, level := 0.95) AS
system.main.__dp_combine_needs_dpsql_load(estimates::DOUBLE[], variances::DOUBLE[], level::DOUBLE);

-- dp_combine as a table: FROM dp_combine((SELECT list(e) FROM estimates e)), e with columns estimate and variance. Free.
CREATE OR REPLACE MACRO dp_combine(estimates, level := 0.95) AS TABLE
SELECT unnest(system.main.__dp_combine_needs_dpsql_load(
    system.main.list(e.estimate::DOUBLE), system.main.list(e.variance::DOUBLE), level::DOUBLE))
FROM (SELECT unnest(estimates) AS e);
