-- Made by `python -m dpsql.calls.render` from the declarations in dpsql/calls/; a test fails where they differ.
-- The public interface: every dp_* name is a table macro over one UDF, which is called while the statement is bound and
-- answers with the text of a relation. Names and parameters are the contract. A call is idempotent: the same release is
-- charged once, however often it is bound, explained, viewed or run.
-- The UDF is called __dp_call_needs_dpsql_load, because DuckDB's own error shows that name where it is missing: macros live in
-- the file, functions in the process that called dpsql.load(con). Functions are written system.main.*, and neither || nor {}
-- stands here: a macro in the database could change what they do.

-- dp_protect: Give a table a privacy budget, or raise or lower it (on the ledger). What is left out stays as it is; at first
-- neighbors 'add_remove' and accountant 'zcdp'. A privacy_unit needs max_contributions, which is 1 where the column is declared
-- unique. Privacy status: free; no row is read. Gives source, epsilon, delta, neighbors, privacy_unit, max_contributions,
-- accountant, change; one row.
CREATE OR REPLACE MACRO dp_protect(source, epsilon := NULL, delta := NULL, neighbors := NULL, privacy_unit := NULL,
    max_contributions := NULL, accountant := NULL, anchor := NULL, resume := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('protect',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, neighbors := neighbors, privacy_unit := privacy_unit,
        max_contributions := max_contributions, accountant := accountant, anchor := anchor, resume := resume))::VARCHAR)));

-- dp_link: Say whose rows a table's rows are: those of the row of another table whose key they hold. A linked table is under the
-- budget of its root, the table at the end of the way up; what a release protects are all rows of a unit in all tables. A FOREIGN
-- KEY is offered: without column, the only one to the parent is taken. What is left out later stays as it is. `dp_unlink` takes a
-- link back while no release has read the table. Privacy status: free; no row is read. A link is public knowledge. Gives source,
-- column_name, parent, parent_column, root, max_rows, orphans, order_by, change; one row.
CREATE OR REPLACE MACRO dp_link(source, column_name := NULL, parent := NULL, parent_column := NULL, max_rows := NULL,
    orphans := NULL, merge := false, order_by := NULL, "column" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('link',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, "column" := "column", parent := parent, parent_column := parent_column, max_rows := max_rows,
        orphans := orphans, merge := merge, order_by := order_by, column_name := column_name))::VARCHAR)));

-- dp_unlink: Take a link back that no release has read through. The table then waits for a budget or another link, and is not
-- public. What is linked to the table is unlinked first. Repeating the call changes nothing. Privacy status: free; no row is read.
-- Gives source, parent, root, change; one row.
CREATE OR REPLACE MACRO dp_unlink(source) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('unlink',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_links: List the links of tables to those whose rows theirs are. Privacy status: free; from the books. Gives source,
-- column_name, parent, parent_column, root, max_rows, orphans, order_by; a row a link.
CREATE OR REPLACE MACRO dp_links(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('links',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_remote: Give a table whose rows are elsewhere a name in this database: an empty table with its columns and types. It is
-- protected, declared, planned and bought like others; its rows are counted where they are. Called again it looks again: a new
-- address is taken, new columns are named, and what has changed is refused. Engine 'duckdb' reads what DuckDB itself reaches: a
-- table of an attached DuckLake or Postgres ('pg.public.people'), a folder of Parquet files. Privacy status: free; names and types
-- alone are read. Gives column_name, type, engine_type, status; a row a column.
CREATE OR REPLACE MACRO dp_remote(source, engine, relation, url := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('remote',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, engine := engine, relation := relation, url := url))::VARCHAR)));

-- dp_declare: Declare the public domain of a column. A number, date or time with bounds alone gets automatic bins: every release
-- buys a fine histogram and cuts its own from it. With discover what cannot be named is bought and declared: bounds of a number (a
-- noisy histogram over powers of two), the list of values of anything else (stable selection). Privacy status: free; the protected
-- table is not read. With discover := true charged once per release. Gives column_name, type, kind, codes, labels, nullable,
-- outside, status; one row.
CREATE OR REPLACE MACRO dp_declare(source, column_name := NULL, lower := NULL, upper := NULL, bins := NULL, edges := NULL,
    categories := NULL, categories_from := NULL, nullable := NULL, outside := NULL, calendar := NULL, discover := false,
    epsilon := NULL, delta := NULL, release := NULL, "column" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('declare',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, "column" := "column", lower := lower, upper := upper, bins := bins, edges := edges,
        categories := categories, categories_from := categories_from, nullable := nullable, outside := outside,
        calendar := calendar, discover := discover, epsilon := epsilon, delta := delta, release := release,
        column_name := column_name))::VARCHAR)));

-- dp_rule: Declare a rule that every row obeys, or take one back. Rows of releases that are bought from then on obey it. It is a
-- boolean SQL expression over the declared columns of one row. Privacy status: free; the protected table is not read. A rule is
-- public knowledge. Gives source, rule, columns, shapes ('tables', 'rows', 'nothing'), change; one row.
CREATE OR REPLACE MACRO dp_rule(source, rule, remove := false) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('rule',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, rule := rule, remove := remove))::VARCHAR)));

-- dp_grant: Say what an analyst of a served database may spend of a protected table, or show what was said. A grant is a part of
-- the table's own budget, which stays the limit of all analysts together. What she buys counts against both, what others have
-- bought before counts against her grant alone. A later grant takes the place of the one before; what she has spent stays spent.
-- Without epsilon nothing is changed: the grants in force are listed. Privacy status: free; no row is read. Gives source, analyst,
-- epsilon, per_query, renew, renews_on, epsilon_spent, epsilon_left, releases, methods, columns, change; a row a grant.
CREATE OR REPLACE MACRO dp_grant(source := NULL, analyst := NULL, epsilon := NULL, per_query := NULL, renew := NULL,
    methods := NULL, columns := NULL, remove := false) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('grant',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, analyst := analyst, epsilon := epsilon, per_query := per_query, renew := renew, methods := methods,
        columns := columns, remove := remove))::VARCHAR)));

-- dp_domain: List the declared attributes of a source, and its rules; undeclared columns are listed as left out. Privacy status:
-- free. Gives column_name, type, kind, codes, labels, nullable, outside, status; a row per column, then one per rule (kind 'rule',
-- its text in labels).
CREATE OR REPLACE MACRO dp_domain(source) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('domain',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_dummy: Make up rows out of the declared domains alone, to try queries on before anything is bought. Names, order and types of
-- the columns are the source's. Values lie in the declared domains and obey the rules, each column drawn by itself and uniform. The
-- privacy unit is made up, with one row or several; a column without a domain is NULL. Privacy status: free; no row is read. Gives
-- the columns of the source, in its types.
CREATE OR REPLACE MACRO dp_dummy(source, rows := 1000, seed := 0) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('dummy',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, rows := rows, seed := seed))::VARCHAR)));

-- dp_plan: Show what a dp_synthesize, dp_marginals (with k), dp_contributions or dp_query call would measure and cost. With
-- operation := 'synthesize_tables' the plan is of a table and all that are linked to it; independent may stand in options. A source
-- with aggregates is planned as a query; its bounds, groups, max_groups, ... may stand in options, as may per of dp_contributions.
-- options := {'noise_scale': s} in the place of epsilon: the plan of the least epsilon with which no release has a larger noise
-- scale. One row (of a query: one for each release that it buys): measures (which tables), epsilon, whether the budget covers it
-- (affordable), noise_scale, expected errors, what is left after, notes; then operation, method, columns, left_out, cells, seconds
-- (estimated_stages: a MAP by stage) and memory for two cores and rows rows (100,000 where none are given). noise_by_contributions:
-- the noise scale for other max_contributions. Privacy status: free; no row is read. Gives one row.
CREATE OR REPLACE MACRO dp_plan(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, k := NULL,
    mechanism := NULL, rows := NULL, options := NULL, release := NULL, operation := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('plan',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, method := method, epsilon := epsilon, delta := delta, columns := columns, k := k, mechanism := mechanism,
        rows := rows, options := options, release := release, operation := operation))::VARCHAR)));

-- dp_marginals: Buy noisy contingency tables: every cell of the public domain. Without k: one table of the named columns where they
-- are up to three, else all one-way tables. One table of named columns is wide: a column per attribute in its own type (bins:
-- <name>_lower, <name>_upper; with outside 'other' also <name>_other), then n BIGINT (noisy; may be negative), n_low, n_high (95 %
-- of the noise). Otherwise, and with shape 'long': columns VARCHAR[], values VARCHAR[], n. Columns come in the order asked for.
-- Privacy status: charged once per release. Gives a row per cell: its values, n, n_low, n_high; or columns, values, n.
CREATE OR REPLACE MACRO dp_marginals(source, columns := NULL, k := NULL, epsilon := NULL, delta := NULL, mechanism := 'gaussian',
    release := NULL, shape := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('marginals',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, columns := columns, k := k, epsilon := epsilon, delta := delta, mechanism := mechanism,
        release := release, shape := shape))::VARCHAR)));

-- dp_aggregates: Buy noisy counts of combinations of values. Every combination of up to reporting_length values that is frequent
-- enough is reported. Privacy status: charged once per release. Gives columns VARCHAR[], values VARCHAR[], n BIGINT (noisy, above
-- 0).
CREATE OR REPLACE MACRO dp_aggregates(source, reporting_length := NULL, epsilon := NULL, delta := NULL, columns := NULL,
    fabrication := NULL, release := NULL, options := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('aggregates',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, reporting_length := reporting_length, epsilon := epsilon, delta := delta, columns := columns,
        fabrication := fabrication, release := release, options := options))::VARCHAR)));

-- dp_histogram: Buy noisy counts of the values of a column whose domain nobody can list. domain: words, pairs of words, a pattern
-- (pure epsilon). Without one the domain is not known at all: stable selection, with epsilon and delta. Privacy status: charged
-- once per release. Gives value VARCHAR, n BIGINT (noisy), the largest first.
CREATE OR REPLACE MACRO dp_histogram(source, column_name := NULL, epsilon := NULL, delta := NULL, domain := NULL,
    domain_size := NULL, rho := NULL, separator := NULL, release := NULL, "column" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('histogram',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, "column" := "column", epsilon := epsilon, delta := delta, domain := domain, domain_size := domain_size,
        rho := rho, separator := separator, release := release, column_name := column_name))::VARCHAR)));

-- dp_contributions: Buy a noisy histogram of the number of rows per privacy unit, to choose max_contributions by. Every unit is
-- counted once, in one bucket. max_contributions: the least number of the row; share_kept: about how many of all rows are kept
-- under it. Of a linked table also per row of a table above it (per), to choose max_rows of a link by: then units are rows of that
-- table, as many of each privacy unit as links allow. Privacy status: charged once per release. Gives rows_per_unit, units BIGINT
-- (noisy; may be negative), units_low, units_high (95 % of the noise), max_contributions, share_kept.
CREATE OR REPLACE MACRO dp_contributions(source, epsilon := NULL, delta := NULL, mechanism := 'gaussian', release := NULL,
    per := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('contributions',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, mechanism := mechanism, release := release, per := per))::VARCHAR)));

-- dp_query: Answer an aggregate query: noisy numbers for count, sum, avg, var, corr, median, ... by groups. The answer has the
-- query's columns. HAVING, ORDER BY, LIMIT, other items and outer SELECTs work on released numbers and cost nothing more; so does
-- any later query whose aggregates were bought. With confidence, each aggregate also has <name>_low and <name>_high. Privacy
-- status: charged once per release. Gives the columns of the query; with confidence also <name>_low, <name>_high of each aggregate.
CREATE OR REPLACE MACRO dp_query(sql, epsilon := NULL, delta := NULL, groups := NULL, max_groups := NULL,
    max_rows_per_group := NULL, max_rows := NULL, bounds := NULL, min_units := NULL, confidence := NULL, mechanism := 'gaussian',
    release := NULL, adaptive := false, options := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('query',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        sql := sql, epsilon := epsilon, delta := delta, groups := groups, max_groups := max_groups,
        max_rows_per_group := max_rows_per_group, max_rows := max_rows, bounds := bounds, min_units := min_units,
        confidence := confidence, mechanism := mechanism, release := release, adaptive := adaptive,
        options := options))::VARCHAR)));

-- dp_query_exact: Answer an aggregate query without noise. Rows are bounded, values clipped and the query is split as dp_query
-- does: to see what bounding and clipping do, apart from the noise. What is chosen at random (rows of a unit with many) is chosen
-- anew by every call. Groups that are not public are all shown, from min_units units on. Privacy status: NOT PRIVATE, for the
-- custodian only. Gives the columns of the query.
CREATE OR REPLACE MACRO dp_query_exact(sql, groups := NULL, max_groups := NULL, max_rows_per_group := NULL, max_rows := NULL,
    bounds := NULL, min_units := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('query_exact',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        sql := sql, groups := groups, max_groups := max_groups, max_rows_per_group := max_rows_per_group, max_rows := max_rows,
        bounds := bounds, min_units := min_units))::VARCHAR)));

-- dp_summarize: Summarize every declared column, as DuckDB's SUMMARIZE does, privately: one release for all of them. Numbers:
-- extremes (as extreme quantiles), mean, standard deviation, quartiles, counts. Categories: how many of the declared values occur,
-- counts. What a column has no such statistic for is NULL. Privacy status: charged once per release. Gives column_name,
-- column_type, min, max (as VARCHAR), approx_unique, avg, std, q25, q50, q75 (as VARCHAR), count, null_percentage.
CREATE OR REPLACE MACRO dp_summarize(source, epsilon := NULL, delta := NULL, columns := NULL, release := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('summarize',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, delta := delta, columns := columns, release := release))::VARCHAR)));

-- dp_explain: Tell in words what the answer of a query is made of. What was bounded, selected and clipped, how large the noise is,
-- why a group may be missing. Privacy status: free. Gives about VARCHAR, explanation VARCHAR.
CREATE OR REPLACE MACRO dp_explain(release) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('explain',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release))::VARCHAR)));

-- dp_synthesize: Buy a synthetic table with the source's column names and types; rows are drawn from the release for free. With
-- into_table the rows go straight into that table, and the answer is one row: table_name, rows, release. Privacy status: charged
-- once per release. Gives the columns of the source, in its types; or table_name, rows, release.
CREATE OR REPLACE MACRO dp_synthesize(source, method := NULL, epsilon := NULL, delta := NULL, columns := NULL, rows := NULL,
    seed := NULL, options := NULL, release := NULL, into_table := NULL, "into" := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('synthesize',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, method := method, epsilon := epsilon, delta := delta, columns := columns, rows := rows, seed := seed,
        options := options, release := release, "into" := "into", into_table := into_table))::VARCHAR)));

-- dp_synthesize_tables: Buy a synthetic database: copies of a protected table and of all tables that are linked to it. They are
-- called as the source's tables, with new keys: every row's parent is there, families are as large as released, and the constraints
-- of the source that keys and declared columns can keep hold. All tables are written in one transaction, or none. The schema is
-- made where it is not there; tables that an earlier call made in it are replaced. Columns without a domain are left out. One row
-- of the answer for each table: table_name, rows, parent, release. Privacy status: charged once per release. Gives table_name, rows
-- BIGINT, parent, release; a row per table, parents first.
CREATE OR REPLACE MACRO dp_synthesize_tables(source, epsilon := NULL, into_schema := NULL, delta := NULL, units := NULL,
    seed := NULL, independent := false, options := NULL, release := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('synthesize_tables',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, epsilon := epsilon, into_schema := into_schema, delta := delta, units := units, seed := seed,
        independent := independent, options := options, release := release))::VARCHAR)));

-- dp_sample: Draw other rows of a stored release. Of linked tables another database is drawn into a schema; rows are those of the
-- first table. Privacy status: free: post-processing. Gives the columns of the source, in its types; of linked tables as
-- dp_synthesize_tables.
CREATE OR REPLACE MACRO dp_sample(release, rows := NULL, seed := NULL, into_schema := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('sample',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release, rows := rows, seed := seed, into_schema := into_schema))::VARCHAR)));

-- dp_ledger: Show every entry of the books, and whether the chain of hashes holds. Privacy status: free. Gives a row per entry.
CREATE OR REPLACE MACRO dp_ledger(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('ledger',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_budget: Show limit, spent and left of every protected table, and whether dpsql was tried with this DuckDB. ``epsilon_spent``
-- is what the releases so far would guarantee together if their number and noise had been fixed beforehand; the limit, ``epsilon``,
-- is what is guaranteed however they were chosen. Privacy status: free. Gives a row per protected table.
CREATE OR REPLACE MACRO dp_budget(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('budget',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_releases: Show what was bought: of which rows, with which parameters, at what cost. Privacy status: free. Gives a row per
-- release.
CREATE OR REPLACE MACRO dp_releases(source := NULL) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('releases',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source))::VARCHAR)));

-- dp_evaluate: Compare a synthetic table with the raw one, or a schema of linked tables with a root and its linked tables. report
-- 'tables' and 'tuples' count bins and categories: an error inside a bin is not in them. 'tuples': how well combinations of values
-- are kept, by their count (bucket, preservation, errors, suppressed, fabricated, leaked). 'values' sees inside bins: per column KS
-- and Wasserstein distance, mean and quartiles, also by group, equal rows, and how well a model learns. Of a schema, 'tables':
-- fan-out, distances inside tables, of parent and child and of siblings, means by group, orphans. Privacy status: NOT PRIVATE, for
-- the custodian only. Gives a row per kind of table: mean and largest errors, total variation distance, rows, shortfall; report
-- 'values': a row per figure: measure, column_name, group_column, group_value, raw, synthetic, error, relative; of a schema: a row
-- per figure, the summary first: level, measure, table_name, column_name, other_table, other_column, figures, raw, synthetic,
-- error, largest, independent.
CREATE OR REPLACE MACRO dp_evaluate(source, synthetic, max_k := 3, queries := NULL, seed := 7, report := 'tables') AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('evaluate',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        source := source, synthetic := synthetic, max_k := max_k, queries := queries, seed := seed, report := report))::VARCHAR)));

-- dp_export: Copy a release (noisy statistics and provenance only) to a file that opens on another machine. Privacy status: free.
-- Gives release, path; one row.
CREATE OR REPLACE MACRO dp_export(release, path) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('export',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        release := release, path := path))::VARCHAR)));

-- dp_import: Open an exported release; dp_sample then draws from it. Privacy status: free. Gives release, source, method, columns;
-- one row.
CREATE OR REPLACE MACRO dp_import(path) AS TABLE
FROM system.main.query(system.main.concat('FROM ', system.main.__dp_call_needs_dpsql_load('import',
    system.main.to_json(system.main.struct_pack(
        __database := system.main.current_database(), __schema := system.main.current_schema(),
        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,
        path := path))::VARCHAR)));

-- dp_report: Write one self-contained HTML page about a release. It says what was measured, its cost, the guarantee, and shows
-- charts with error bands. Privacy status: free; with compare := true NOT PRIVATE, for the custodian only. Gives release, path,
-- publishable, note; one row.
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
