-- The public interface: every dp_* name is a table macro over one UDF, which is called while the statement is bound and
-- answers with the text of a relation. Names and parameters are the contract. A call is idempotent: the same release is
-- charged once, however often it is bound, explained, viewed or run.

-- dp_protect: gives a table a privacy budget, or raises or lowers it (on the ledger). Privacy status: free.
-- What is left out stays as it is; at first neighbors := 'add_remove', max_contributions := 1, accountant := 'zcdp'.
-- Gives one row: source, epsilon, delta, neighbors, privacy_unit, max_contributions, accountant, change.
CREATE OR REPLACE MACRO dp_protect(source, epsilon := NULL, delta := NULL, neighbors := NULL, privacy_unit := NULL,
    max_contributions := NULL, accountant := NULL) AS TABLE
FROM query('FROM ' || __dp_call('protect', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'epsilon': epsilon, 'delta': delta, 'neighbors': neighbors, 'privacy_unit': privacy_unit,
    'max_contributions': max_contributions, 'accountant': accountant})::VARCHAR));

-- dp_declare: declares the public domain of a column. Privacy status: free; the protected table is not read. With
-- discover := true the list of values is bought (stable selection), charged once per release.
-- Gives one row: the attribute, as dp_domain shows it.
CREATE OR REPLACE MACRO dp_declare(source, "column", lower := NULL, upper := NULL, bins := NULL, edges := NULL,
    categories := NULL, categories_from := NULL, nullable := NULL, outside := NULL, discover := false, epsilon := NULL,
    delta := NULL, release := NULL) AS TABLE
FROM query('FROM ' || __dp_call('declare', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'column': "column", 'lower': lower, 'upper': upper, 'bins': bins, 'edges': edges,
    'categories': categories, 'categories_from': categories_from, 'nullable': nullable, 'outside': outside,
    'discover': discover, 'epsilon': epsilon, 'delta': delta, 'release': release})::VARCHAR));

-- dp_domain: the declared attributes of a source, one row each; undeclared columns are listed as left out.
-- Gives column_name, type, kind, codes, labels, nullable, outside, status. Privacy status: free.
CREATE OR REPLACE MACRO dp_domain(source) AS TABLE
FROM query('FROM ' || __dp_call('domain', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source})::VARCHAR));

-- dp_plan: what a dp_synthesize or dp_marginals call would measure and cost. Privacy status: free; no row is read.
-- Gives one row: operation, method, columns, left_out, tables, cells, mechanism, noise_scale, expected errors, cost, what is left after,
-- estimated seconds (estimated_stages: a MAP by stage) and memory for two cores and `rows` rows (100,000 where none are given).
CREATE OR REPLACE MACRO dp_plan(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, k := NULL,
    mechanism := NULL, rows := NULL, options := NULL, release := NULL) AS TABLE
FROM query('FROM ' || __dp_call('plan', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'method': method, 'epsilon': epsilon, 'delta': delta, 'columns': columns, 'k': k,
    'mechanism': mechanism, 'rows': rows, 'options': options, 'release': release})::VARCHAR));

-- dp_marginals: noisy contingency tables, every cell of the public domain. Privacy status: charged once per release.
-- Gives columns VARCHAR[], values VARCHAR[], n BIGINT (noisy; may be negative).
CREATE OR REPLACE MACRO dp_marginals(source, columns := NULL, k := 1, epsilon := NULL, delta := NULL,
    mechanism := 'gaussian', release := NULL) AS TABLE
FROM query('FROM ' || __dp_call('marginals', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'columns': columns, 'k': k, 'epsilon': epsilon, 'delta': delta, 'mechanism': mechanism,
    'release': release})::VARCHAR));

-- dp_aggregates: noisy counts of every combination of up to reporting_length values that is frequent enough to be reported.
-- Privacy status: charged once per release. Gives columns VARCHAR[], values VARCHAR[], n BIGINT (noisy, above 0).
CREATE OR REPLACE MACRO dp_aggregates(source, reporting_length := NULL, epsilon := NULL, delta := NULL, columns := NULL,
    fabrication := NULL, release := NULL, options := NULL) AS TABLE
FROM query('FROM ' || __dp_call('aggregates', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'reporting_length': reporting_length, 'epsilon': epsilon, 'delta': delta, 'columns': columns,
    'fabrication': fabrication, 'release': release, 'options': options})::VARCHAR));

-- dp_histogram: noisy counts of the values of a column whose domain nobody can list (domain := words, pairs of words, a
-- pattern; pure epsilon), or is not known at all (no domain: stable selection, epsilon and delta). Charged once per release.
-- Gives value VARCHAR, n BIGINT (noisy), the largest first.
CREATE OR REPLACE MACRO dp_histogram(source, "column", epsilon := NULL, delta := NULL, domain := NULL, domain_size := NULL,
    rho := NULL, separator := NULL, release := NULL) AS TABLE
FROM query('FROM ' || __dp_call('histogram', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'column': "column", 'epsilon': epsilon, 'delta': delta, 'domain': domain, 'domain_size': domain_size,
    'rho': rho, 'separator': separator, 'release': release})::VARCHAR));

-- dp_synthesize: a synthetic table with the source's column names and types. Privacy status: charged once per release.
-- "into" is a reserved word of SQL and must be quoted; into_table is the same parameter without quotes. With it the rows go straight into
-- that table, and the answer is one row: table_name, rows, release.
CREATE OR REPLACE MACRO dp_synthesize(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, rows := NULL,
    seed := NULL, options := NULL, release := NULL, "into" := NULL, into_table := NULL) AS TABLE
FROM query('FROM ' || __dp_call('synthesize', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'method': method, 'epsilon': epsilon, 'delta': delta, 'columns': columns, 'rows': rows,
    'seed': seed, 'options': options, 'release': release, 'into': coalesce("into", into_table)})::VARCHAR));

-- dp_sample: more rows of a stored release, by its identifier (dp_releases lists them). Privacy status: free.
CREATE OR REPLACE MACRO dp_sample(release, rows := NULL, seed := NULL) AS TABLE
FROM query('FROM ' || __dp_call('sample', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'release': release, 'rows': rows, 'seed': seed})::VARCHAR));

-- dp_ledger: every entry of the books, and whether the chain of hashes holds. Privacy status: free.
CREATE OR REPLACE MACRO dp_ledger(source := NULL) AS TABLE
FROM query('FROM ' || __dp_call('ledger', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source})::VARCHAR));

-- dp_budget: limit, spent and left per source. Privacy status: free.
CREATE OR REPLACE MACRO dp_budget(source := NULL) AS TABLE
FROM query('FROM ' || __dp_call('budget', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source})::VARCHAR));

-- dp_releases: what was bought, with which parameters and at what cost. Privacy status: free.
CREATE OR REPLACE MACRO dp_releases(source := NULL) AS TABLE
FROM query('FROM ' || __dp_call('releases', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source})::VARCHAR));

-- dp_evaluate: error tables of a synthetic table against the raw one; report := 'tuples': how well combinations of values are
-- kept, by their count (bucket, preservation, errors, suppressed, fabricated, leaked). Privacy status: NOT PRIVATE, for the custodian only.
CREATE OR REPLACE MACRO dp_evaluate(source, synthetic, max_k := 3, queries := NULL, seed := 7, report := 'tables') AS TABLE
FROM query('FROM ' || __dp_call('evaluate', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'source': source, 'synthetic': synthetic, 'max_k': max_k, 'queries': queries, 'seed': seed, 'report': report})::VARCHAR));

-- dp_export: copies a release (noisy statistics and provenance only) to a file that opens on another machine. Free.
CREATE OR REPLACE MACRO dp_export(release, path) AS TABLE
FROM query('FROM ' || __dp_call('export', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'release': release, 'path': path})::VARCHAR));

-- dp_import: opens an exported release; dp_sample then draws from it. Free.
CREATE OR REPLACE MACRO dp_import(path) AS TABLE
FROM query('FROM ' || __dp_call('import', to_json({'__database': current_database(), '__schema': current_schema(),
    '__progress': getvariable('dpsql_progress')::VARCHAR,
    'path': path})::VARCHAR));

-- dp_report: writes one self-contained HTML page about a release: what was measured, its cost, the guarantee, charts, error bands.
-- Gives release, path, publishable, note. Privacy status: free; with compare := true NOT PRIVATE, for the custodian only.
CREATE OR REPLACE MACRO dp_report(release, path := NULL, compare := false) AS TABLE
FROM query('FROM ' || __dp_call('report', to_json({'__database': current_database(), '__schema': current_schema(),
    'release': release, 'path': path, 'compare': compare})::VARCHAR));

-- dp_combine: one estimate and its interval from the same analysis of several synthetic tables (Reiter 2003). Free.
-- As an aggregate: SELECT region, unnest(dp_combine(list(estimate), list(variance))) FROM estimates GROUP BY region.
-- Gives estimate, variance, standard_error, df, lower, upper, between, within, sets.
CREATE OR REPLACE MACRO dp_combine(estimates, variances, level := 0.95) AS
__dp_combine(estimates::DOUBLE[], variances::DOUBLE[], level::DOUBLE);

-- dp_combine as a table: FROM dp_combine((SELECT list(e) FROM estimates e)), e with columns estimate and variance. Free.
CREATE OR REPLACE MACRO dp_combine(estimates, level := 0.95) AS TABLE
SELECT unnest(__dp_combine(list(e.estimate::DOUBLE), list(e.variance::DOUBLE), level::DOUBLE)) FROM (SELECT unnest(estimates) AS e);
