"""The calls as Python functions: the names and arguments of the SQL macros, answered with a DuckDB relation.

Made by `python -m dpsql.calls.render` from the declarations in `dpsql.calls`; a test fails where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.relations import Connection, answered
from dpsql.relations import filled as _filled
from dpsql.relations import plain as _plain


def protect(
    con: Connection,
    source: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: str | None = None,
    privacy_unit: str | None = None,
    max_contributions: int | None = None,
    accountant: str | None = None,
    anchor: str | Path | None = None,
    resume: bool | None = None,
) -> duckdb.DuckDBPyRelation:
    """Give a table a privacy budget, or raise or lower it (on the ledger) (``dp_protect``).

    What is left out stays as it is; at first neighbors 'add_remove' and accountant 'zcdp'. A privacy_unit needs
    max_contributions, which is 1 where the column is declared unique.

    Privacy: free; no row is read. Gives source, epsilon, delta, neighbors, privacy_unit, max_contributions, accountant, change;
    one row.

    Parameters
    ----------
    source
        The table: its name.
    epsilon
        The limit of everything that is ever released about the table, above 0, at most 1000.
    delta
        The limit's delta, from 1e-30 to 0.001, far below 1 / (number of people).
    neighbors
        What one unit changes: 'add_remove' (is there or not) or 'replace_one' (has other values; the number of rows is public).
    privacy_unit
        The column that says whose row it is; without one every row is a unit.
    max_contributions
        At most that many rows of each unit are kept, at random; noise grows with it (dp_contributions helps to choose).
    accountant
        'zcdp': the tightest of several proofs; 'basic': epsilons and deltas are summed.
    anchor
        A file outside the database that every entry of the ledger is noted in: a ledger that was cut or restored is noticed.
    resume
        true: after a reading failed, sources beyond plain ones may be bought again (stands alone).
    """
    return answered(con, "protect", source=source, epsilon=epsilon, delta=delta, neighbors=neighbors, privacy_unit=privacy_unit,
        max_contributions=max_contributions, accountant=accountant, anchor=_plain(anchor), resume=resume)


def link(
    con: Connection,
    source: str,
    *,
    column: str | None = None,
    parent: str | None = None,
    parent_column: str | None = None,
    max_rows: int | None = None,
    orphans: str | None = None,
    merge: bool = False,
    order_by: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Say whose rows a table's rows are: those of the row of another table whose key they hold (``dp_link``).

    A linked table is under the budget of its root, the table at the end of the way up; what a release protects are all rows of
    a unit in all tables. A FOREIGN KEY is offered: without column, the only one to the parent is taken. What is left out later
    stays as it is. `dp_unlink` takes a link back while no release has read the table.

    Privacy: free; no row is read. A link is public knowledge. Gives source, column_name, parent, parent_column, root, max_rows,
    orphans, order_by, change; one row.

    Parameters
    ----------
    source
        The table that is linked: its name.
    column
        Its column that holds the parent's key (column_name in SQL, or the second argument; column is a reserved word).
    parent
        The table that it belongs to: it has a budget, or is linked itself.
    parent_column
        The parent's key, declared unique; its PRIMARY KEY or only UNIQUE column, if left out.
    max_rows
        Rows of the table that a row of the parent may have. Of a unit a release keeps the product along the way up, at random;
        noise grows with it.
    orphans
        Rows whose parent is NULL or not there: 'drop' (left out, the default) or 'unit' (all of them are rows of one unit).
    merge
        true: what the table has spent of a budget of its own is added to what its root has spent.
    order_by
        A number, date or time of the table, in whose order the rows of one parent row stand (the time of a visit): a synthetic
        database has first and next rows like the table's. '' takes it back.
    """
    return answered(con, "link", source=source, column=column, parent=parent, parent_column=parent_column, max_rows=max_rows,
        orphans=orphans, merge=merge, order_by=order_by)


def unlink(
    con: Connection,
    source: str,
) -> duckdb.DuckDBPyRelation:
    """Take a link back that no release has read through (``dp_unlink``).

    The table then waits for a budget or another link, and is not public. What is linked to the table is unlinked first.
    Repeating the call changes nothing.

    Privacy: free; no row is read. Gives source, parent, root, change; one row.

    Parameters
    ----------
    source
        The table that is linked: its name.
    """
    return answered(con, "unlink", source=source)


def links(
    con: Connection,
    source: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """List the links of tables to those whose rows theirs are (``dp_links``).

    Privacy: free; from the books. Gives source, column_name, parent, parent_column, root, max_rows, orphans, order_by; a row a
    link.

    Parameters
    ----------
    source
        A linked table, or a root: all that is linked to it; all, if left out.
    """
    return answered(con, "links", source=source)


def remote(
    con: Connection,
    source: str,
    engine: str,
    relation: str,
    *,
    url: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Give a table whose rows are elsewhere a name in this database: an empty table with its columns and types (``dp_remote``).

    It is protected, declared, planned and bought like others; its rows are counted where they are. Called again it looks again:
    a new address is taken, new columns are named, and what has changed is refused. Engine 'duckdb' reads what DuckDB itself
    reaches: a table of an attached DuckLake or Postgres ('pg.public.people'), a folder of Parquet files.

    Privacy: free; names and types alone are read. Gives column_name, type, engine_type, status; a row a column.

    Parameters
    ----------
    source
        The name that the table gets here.
    engine
        What reads the rows: Spark, over Spark Connect, or DuckDB itself.
    relation
        What that calls the table: a name, or files ('parquet:/folder'); without credentials.
    url
        Where Spark is reached, 'sc://host:15002'; without credentials. DPSQL_SPARK_TOKEN in the environment has the token.
    """
    return answered(con, "remote", source=source, engine=engine, relation=relation, url=url)


def declare(
    con: Connection,
    source: str,
    column: str,
    *,
    lower: Any = None,
    upper: Any = None,
    bins: int | None = None,
    edges: Sequence[Any] | None = None,
    categories: Sequence[Any] | None = None,
    categories_from: str | None = None,
    nullable: bool | None = None,
    outside: str | None = None,
    calendar: str | None = None,
    discover: bool | str = False,
    epsilon: float | None = None,
    delta: float | None = None,
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Declare the public domain of a column (``dp_declare``).

    A number, date or time with bounds alone gets automatic bins: every release buys a fine histogram and cuts its own from it.
    With discover what cannot be named is bought and declared: bounds of a number (a noisy histogram over powers of two), the
    list of values of anything else (stable selection).

    Privacy: free; the protected table is not read. With discover := true charged once per release. Gives column_name, type,
    kind, codes, labels, nullable, outside, status; one row.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    column
        The column (column_name in SQL, or the second argument; column is a reserved word).
    lower
        Least value of a number, date or time.
    upper
        Largest value.
    bins
        Number of bins of equal width between them; left out: automatic.
    edges
        Edges of bins instead, ascending.
    categories
        The values, as a list.
    categories_from
        A public table's column that lists them: 'table.column'.
    nullable
        Whether NULL is a value of its own; as the column says, if left out.
    outside
        What becomes of other values: 'clamp' (to the nearest bin, or NULL), 'other' (a value of its own), 'drop' (the row).
    calendar
        Bins of a date or timestamp between the bounds: one for each month, say.
    discover
        true: the bounds of a number, or the list of values of anything else, are bought; 'values': the list, of a number too.
    epsilon
        With discover: the epsilon of the purchase.
    delta
        With discover: the delta of the purchase.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    """
    return answered(con, "declare", source=source, column=column, lower=_plain(lower), upper=_plain(upper), bins=bins,
        edges=_plain(edges), categories=_plain(categories), categories_from=categories_from, nullable=nullable, outside=outside,
        calendar=calendar, discover=discover, epsilon=epsilon, delta=delta, release=release)


def rule(
    con: Connection,
    source: str,
    rule: str,
    *,
    remove: bool = False,
) -> duckdb.DuckDBPyRelation:
    """Declare a rule that every row obeys, or take one back (``dp_rule``).

    Rows of releases that are bought from then on obey it. It is a boolean SQL expression over the declared columns of one row.

    Privacy: free; the protected table is not read. A rule is public knowledge. Gives source, rule, columns, shapes ('tables',
    'rows', 'nothing'), change; one row.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    rule
        What holds, e.g. 'visit_at >= date_of_birth'; of a linked table also 'count(*) FILTER (WHERE ...) = 1'.
    remove
        true: the rule is taken back; releases that were bought keep it.
    """
    return answered(con, "rule", source=source, rule=rule, remove=remove)


def grant(
    con: Connection,
    source: str | None = None,
    *,
    analyst: str | None = None,
    epsilon: float | None = None,
    per_query: float | None = None,
    renew: str | None = None,
    methods: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    remove: bool = False,
) -> duckdb.DuckDBPyRelation:
    """Say what an analyst of a served database may spend of a protected table, or show what was said (``dp_grant``).

    A grant is a part of the table's own budget, which stays the limit of all analysts together. What she buys counts against
    both, what others have bought before counts against her grant alone. A later grant takes the place of the one before; what
    she has spent stays spent. Without epsilon nothing is changed: the grants in force are listed.

    Privacy: free; no row is read. Gives source, analyst, epsilon, per_query, renew, renews_on, epsilon_spent, epsilon_left,
    releases, methods, columns, change; a row a grant.

    Parameters
    ----------
    source
        The protected table: its name; where grants are listed, those of all tables, if left out.
    analyst
        Her name, as in analysts.toml; all, if left out.
    epsilon
        The limit of what she spends within a window.
    per_query
        The limit of one call, and the most that a query costs that does not say; else that is at most a tenth of epsilon.
    renew
        The window: each calendar 'month' or ISO 'week' in UTC; for ever, if left out.
    methods
        Calls ('dp_query') and synthesizers ('latent_class') that she may buy with; all, if left out.
    columns
        Columns that she may read, also in WHERE; all, if left out.
    remove
        true: the grant is taken back.
    """
    return answered(con, "grant", source=source, analyst=analyst, epsilon=epsilon, per_query=per_query, renew=renew,
        methods=methods, columns=columns, remove=remove)


def domain(
    con: Connection,
    source: str,
) -> duckdb.DuckDBPyRelation:
    """List the declared attributes of a source, and its rules; undeclared columns are listed as left out (``dp_domain``).

    Privacy: free. Gives column_name, type, kind, codes, labels, nullable, outside, status; a row per column, then one per rule
    (kind 'rule', its text in labels).

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    """
    return answered(con, "domain", source=source)


def dummy(
    con: Connection,
    source: str,
    *,
    rows: int = 1000,
    seed: int = 0,
) -> duckdb.DuckDBPyRelation:
    """Make up rows out of the declared domains alone, to try queries on before anything is bought (``dp_dummy``).

    Names, order and types of the columns are the source's. Values lie in the declared domains and obey the rules, each column
    drawn by itself and uniform. The privacy unit is made up, with one row or several; a column without a domain is NULL.

    Privacy: free; no row is read. Gives the columns of the source, in its types.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    rows
        Number of rows, at most 100,000.
    seed
        Seed of the drawing: the same rows again.
    """
    return answered(con, "dummy", source=source, rows=rows, seed=seed)


def plan(
    con: Connection,
    source: str,
    *,
    method: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    columns: Sequence[str] | None = None,
    k: int | None = None,
    mechanism: str | None = None,
    rows: int | None = None,
    options: Mapping[str, Any] | None = None,
    release: str | None = None,
    operation: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Show what a dp_synthesize, dp_marginals (with k), dp_contributions or dp_query call would measure and cost (``dp_plan``).

    With operation := 'synthesize_tables' the plan is of a table and all that are linked to it; independent may stand in
    options.

    A source with aggregates is planned as a query; its bounds, groups, max_groups, ... may stand in options, as may per of
    dp_contributions. options := {'noise_scale': s} in the place of epsilon: the plan of the least epsilon with which no release
    has a larger noise scale.

    One row (of a query: one for each release that it buys): measures (which tables), epsilon, whether the budget covers it
    (affordable), noise_scale, expected errors, what is left after, notes; then operation, method, columns, left_out, cells,
    seconds (estimated_stages: a MAP by stage) and memory for two cores and rows rows (100,000 where none are given).
    noise_by_contributions: the noise scale for other max_contributions.

    Privacy: free; no row is read. Gives one row.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    method
        As in dp_synthesize.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    columns
        The columns; all declared ones, if left out.
    k
        As in dp_marginals.
    mechanism
        'gaussian' or 'laplace'.
    rows
        A guess of the number of rows, for time and memory.
    options
        Options of the method as a struct, e.g. {'mechanism': 'laplace'}.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    operation
        The call that is meant ('discover': what dp_declare would buy); 'query' for aggregates, 'marginals' where k is given,
        else 'synthesize', if left out.
    """
    return answered(con, "plan", source=source, method=method, epsilon=epsilon, delta=delta, columns=columns, k=k,
        mechanism=mechanism, rows=rows, options=options, release=release, operation=operation)


def marginals(
    con: Connection,
    source: str,
    *,
    columns: Sequence[str] | None = None,
    k: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mechanism: str = "gaussian",
    release: str | None = None,
    shape: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy noisy contingency tables: every cell of the public domain (``dp_marginals``).

    Without k: one table of the named columns where they are up to three, else all one-way tables. One table of named columns is
    wide: a column per attribute in its own type (bins: <name>_lower, <name>_upper; with outside 'other' also <name>_other),
    then n BIGINT (noisy; may be negative), n_low, n_high (95 % of the noise). Otherwise, and with shape 'long': columns
    VARCHAR[], values VARCHAR[], n. Columns come in the order asked for.

    Privacy: charged once per release. Gives a row per cell: its values, n, n_low, n_high; or columns, values, n.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    columns
        The columns; all declared ones, if left out.
    k
        Tables of all sets of k of the columns, 1 to 3.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    mechanism
        'gaussian' or 'laplace' noise on integers.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    shape
        'wide' or 'long'; wide for one table, if left out.
    """
    return answered(con, "marginals", source=source, columns=columns, k=k, epsilon=epsilon, delta=delta, mechanism=mechanism,
        release=release, shape=shape)


def aggregates(
    con: Connection,
    source: str,
    *,
    reporting_length: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    columns: Sequence[str] | None = None,
    fabrication: str | Sequence[float] | None = None,
    release: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy noisy counts of combinations of values (``dp_aggregates``).

    Every combination of up to reporting_length values that is frequent enough is reported.

    Privacy: charged once per release. Gives columns VARCHAR[], values VARCHAR[], n BIGINT (noisy, above 0).

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    reporting_length
        Most values of a combination, 1 to 10, or as many as columns.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    columns
        The columns; all declared ones, if left out.
    fabrication
        How likely combinations that nobody has are reported: a mode, or a list of probabilities, one for each k = 2 ....
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    options
        Options of aggregate_seeded as a struct.
    """
    return answered(con, "aggregates", source=source, reporting_length=reporting_length, epsilon=epsilon, delta=delta,
        columns=columns, fabrication=_plain(fabrication), release=release, options=options)


def histogram(
    con: Connection,
    source: str,
    column: str,
    *,
    epsilon: float,
    delta: float | None = None,
    domain: str | Sequence[str] | None = None,
    domain_size: int | None = None,
    rho: float | None = None,
    separator: str | None = None,
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy noisy counts of the values of a column whose domain nobody can list (``dp_histogram``).

    domain: words, pairs of words, a pattern (pure epsilon). Without one the domain is not known at all: stable selection, with
    epsilon and delta.

    Privacy: charged once per release. Gives value VARCHAR, n BIGINT (noisy), the largest first.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    column
        The column (column_name in SQL, or the second argument; column is a reserved word).
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta, for a selection alone; under 'zcdp' a share of the table's, if left out.
    domain
        Where values may come from: 'table.column' of a public table, a list, or 'pattern:[A-Z]{2}[0-9]{4}'.
    domain_size
        Number of members; beyond the words pairs, triples, ... are meant.
    rho
        Share of the values that occur whose count should pass the threshold, in (0, 1).
    separator
        Between the words of a pair; '-', if left out.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    """
    return answered(con, "histogram", source=source, column=column, epsilon=epsilon, delta=delta, domain=_plain(domain),
        domain_size=domain_size, rho=rho, separator=separator, release=release)


def contributions(
    con: Connection,
    source: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mechanism: str = "gaussian",
    release: str | None = None,
    per: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy a noisy histogram of the number of rows per privacy unit, to choose max_contributions by (``dp_contributions``).

    Every unit is counted once, in one bucket. max_contributions: the least number of the row; share_kept: about how many of all
    rows are kept under it. Of a linked table also per row of a table above it (per), to choose max_rows of a link by: then
    units are rows of that table, as many of each privacy unit as links allow.

    Privacy: charged once per release. Gives rows_per_unit, units BIGINT (noisy; may be negative), units_low, units_high (95 %
    of the noise), max_contributions, share_kept.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    mechanism
        'gaussian' or 'laplace' noise on integers.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    per
        Of a linked table: the table above it whose rows take the place of units, such as 'visits' of procedures.
    """
    return answered(con, "contributions", source=source, epsilon=epsilon, delta=delta, mechanism=mechanism, release=release,
        per=per)


def query(
    con: Connection,
    sql: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    groups: str | None = None,
    max_groups: int | None = None,
    max_rows_per_group: int | None = None,
    max_rows: int | str | None = None,
    bounds: Mapping[str, Any] | str | None = None,
    min_units: int | None = None,
    confidence: float | None = None,
    mechanism: str = "gaussian",
    release: str | None = None,
    adaptive: bool = False,
    options: Mapping[str, Any] | None = None,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyRelation:
    """Answer an aggregate query: noisy numbers for count, sum, avg, var, corr, median, ... by groups (``dp_query``).

    The answer has the query's columns. HAVING, ORDER BY, LIMIT, other items and outer SELECTs work on released numbers and cost
    nothing more; so does any later query whose aggregates were bought. With confidence, each aggregate also has <name>_low and
    <name>_high.

    Privacy: charged once per release. Gives the columns of the query; with confidence also <name>_low, <name>_high of each
    aggregate.

    Parameters
    ----------
    sql
        A SELECT of aggregates over one protected table.
    epsilon
        Privacy loss of the answer; may be left out where it was bought before.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    groups
        'public': groups of declared values, all of them; 'private': those that enough units are in. By the keys, if left out.
    max_groups
        Groups that one unit counts in, at most, at random.
    max_rows_per_group
        Rows of one unit that count in each of them, at most, at random.
    max_rows
        Rows of one unit that count in all, at most, at random; 'auto': learned from a histogram of rows per unit, for a tenth
        of the loss.
    bounds
        Bounds of expressions, as a struct: {'cost': [0, 5000]}. By default those of the declared columns, carried through the
        expression. 'auto': those that are not known are learned, for a share of the same loss; {'cost': 'auto'}: of some.
    min_units
        A private group has at least this many units.
    confidence
        Intervals that hold the value without noise with this probability.
    mechanism
        'gaussian' or 'laplace' noise on integers.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    adaptive
        true: a scalar subquery over protected rows is answered first, by a release of its own, and its number put into the
        text.
    options
        {'weights': {'avg(cost)': 2}}: relative shares of the loss. {'bounds_share': 0.15}: of all learned bounds. {'cut':
        true}: counts, and sums of numbers of one sign, are cut at 0, for who shows single ones; added up they are then too
        high.
    params
        Values of ? or $1, ... in the text, in order, or of $name by name: None, bool, int, float, Decimal, str, date, datetime,
        time or UUID. They become literals before anything else, so the same values are the same question.
    """
    return answered(con, "query", sql=_filled(sql, params), epsilon=epsilon, delta=delta, groups=groups, max_groups=max_groups,
        max_rows_per_group=max_rows_per_group, max_rows=_plain(max_rows), bounds=_plain(bounds), min_units=min_units,
        confidence=confidence, mechanism=mechanism, release=release, adaptive=adaptive, options=options)


def query_exact(
    con: Connection,
    sql: str,
    *,
    groups: str | None = None,
    max_groups: int | None = None,
    max_rows_per_group: int | None = None,
    max_rows: int | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    min_units: int | None = None,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyRelation:
    """Answer an aggregate query without noise (``dp_query_exact``).

    Rows are bounded, values clipped and the query is split as dp_query does: to see what bounding and clipping do, apart from
    the noise. What is chosen at random (rows of a unit with many) is chosen anew by every call. Groups that are not public are
    all shown, from min_units units on.

    Privacy: NOT PRIVATE, for the custodian only. Gives the columns of the query.

    Parameters
    ----------
    sql
        A SELECT of aggregates over one protected table.
    groups
        As of dp_query.
    max_groups
        As of dp_query.
    max_rows_per_group
        As of dp_query.
    max_rows
        As of dp_query, but nothing is learned: without a number as many count as may.
    bounds
        As of dp_query.
    min_units
        As of dp_query.
    params
        Values of ? or $1, ... in the text, in order, or of $name by name: None, bool, int, float, Decimal, str, date, datetime,
        time or UUID. They become literals before anything else, so the same values are the same question.
    """
    return answered(con, "query_exact", sql=_filled(sql, params), groups=groups, max_groups=max_groups,
        max_rows_per_group=max_rows_per_group, max_rows=max_rows, bounds=_plain(bounds), min_units=min_units)


def summarize(
    con: Connection,
    source: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    columns: Sequence[str] | None = None,
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Summarize every declared column, as DuckDB's SUMMARIZE does, privately: one release for all of them (``dp_summarize``).

    Numbers: extremes (as extreme quantiles), mean, standard deviation, quartiles, counts. Categories: how many of the declared
    values occur, counts. What a column has no such statistic for is NULL.

    Privacy: charged once per release. Gives column_name, column_type, min, max (as VARCHAR), approx_unique, avg, std, q25, q50,
    q75 (as VARCHAR), count, null_percentage.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    epsilon
        Privacy loss of all of it; may be left out where it was bought before.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    columns
        The columns; all declared ones, if left out.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    """
    return answered(con, "summarize", source=source, epsilon=epsilon, delta=delta, columns=columns, release=release)


def explain(
    con: Connection,
    release: str,
) -> duckdb.DuckDBPyRelation:
    """Tell in words what the answer of a query is made of (``dp_explain``).

    What was bounded, selected and clipped, how large the noise is, why a group may be missing.

    Privacy: free. Gives about VARCHAR, explanation VARCHAR.

    Parameters
    ----------
    release
        Identifier of a stored release, as dp_releases shows it.
    """
    return answered(con, "explain", release=release)


def synthesize(
    con: Connection,
    source: str,
    *,
    method: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    release: str | None = None,
    into: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy a synthetic table with the source's column names and types; rows are drawn from the release for free (``dp_synthesize``).

    With into_table the rows go straight into that table, and the answer is one row: table_name, rows, release.

    Privacy: charged once per release. Gives the columns of the source, in its types; or table_name, rows, release.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    method
        The method; latent_class, if left out.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    columns
        The columns; all declared ones, if left out.
    rows
        Number of synthetic rows; about as many as the source has, if left out.
    seed
        Seed of the drawing: the same rows again.
    options
        Options of the method as a struct, e.g. {'mechanism': 'laplace'}.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    into
        A table that the rows are put into (into_table in SQL; into is a reserved word).
    """
    return answered(con, "synthesize", source=source, method=method, epsilon=epsilon, delta=delta, columns=columns, rows=rows,
        seed=seed, options=options, release=release, into=into)


def synthesize_tables(
    con: Connection,
    source: str,
    *,
    into_schema: str,
    epsilon: float | None = None,
    delta: float | None = None,
    units: int | None = None,
    seed: int | None = None,
    independent: bool = False,
    options: Mapping[str, Any] | None = None,
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy a synthetic database: copies of a protected table and of all tables that are linked to it (``dp_synthesize_tables``).

    They are called as the source's tables, with new keys: every row's parent is there, families are as large as released, and
    the constraints of the source that keys and declared columns can keep hold. All tables are written in one transaction, or
    none. The schema is made where it is not there; tables that an earlier call made in it are replaced. Columns without a
    domain are left out. One row of the answer for each table: table_name, rows, parent, release.

    Privacy: charged once per release. Gives table_name, rows BIGINT, parent, release; a row per table, parents first.

    Parameters
    ----------
    source
        The protected table whose rows are the units; dp_link links others to it.
    epsilon
        What the release may cost, above 0, at most 1000; smaller protects better. A stored release is reread without it.
    into_schema
        The schema that the tables are put into, made where it is not there; 'name' or 'database.name'.
    delta
        Its delta; under 'zcdp' the table's, if left out.
    units
        Number of synthetic units, rows of the first table; about as many as the source has, if left out.
    seed
        Seed of the drawing: the same rows again.
    independent
        A baseline: each table by itself, with as many rows a parent row as released, given to parents at random.
    options
        mechanism ('gaussian' or 'laplace'), accountant (of its calibration), fine (part of the loss of fine histograms), effort
        ('fast', 'balanced' or 'best'), as a struct.
    release
        Name of the release; the columns' names, else 'default', if left out. The same name gives back what was bought.
    """
    return answered(con, "synthesize_tables", source=source, epsilon=epsilon, into_schema=into_schema, delta=delta, units=units,
        seed=seed, independent=independent, options=options, release=release)


def sample(
    con: Connection,
    release: str,
    *,
    rows: int | None = None,
    seed: int | None = None,
    into_schema: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Draw other rows of a stored release (``dp_sample``).

    Of linked tables another database is drawn into a schema; rows are those of the first table.

    Privacy: free: post-processing. Gives the columns of the source, in its types; of linked tables as dp_synthesize_tables.

    Parameters
    ----------
    release
        Identifier of a stored release, as dp_releases shows it.
    rows
        Number of synthetic rows; about as many as the source has, if left out.
    seed
        Seed of the drawing: the same rows again.
    into_schema
        Of linked tables: the schema that the tables are put into, made where it is not there; 'name' or 'database.name'.
    """
    return answered(con, "sample", release=release, rows=rows, seed=seed, into_schema=into_schema)


def ledger(
    con: Connection,
    source: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Show every entry of the books, and whether the chain of hashes holds (``dp_ledger``).

    Privacy: free. Gives a row per entry.

    Parameters
    ----------
    source
        One table; all, if left out.
    """
    return answered(con, "ledger", source=source)


def budget(
    con: Connection,
    source: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Show limit, spent and left of every protected table, and whether dpsql was tried with this DuckDB (``dp_budget``).

    ``epsilon_spent`` is what the releases so far would guarantee together if their number and noise had been fixed beforehand;
    the limit, ``epsilon``, is what is guaranteed however they were chosen.

    Privacy: free. Gives a row per protected table.

    Parameters
    ----------
    source
        One table; all, if left out.
    """
    return answered(con, "budget", source=source)


def releases(
    con: Connection,
    source: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Show what was bought: of which rows, with which parameters, at what cost (``dp_releases``).

    Privacy: free. Gives a row per release.

    Parameters
    ----------
    source
        One table; all, if left out.
    """
    return answered(con, "releases", source=source)


def evaluate(
    con: Connection,
    source: str,
    synthetic: str,
    *,
    max_k: int = 3,
    queries: int | None = None,
    seed: int = 7,
    report: str = "tables",
) -> duckdb.DuckDBPyRelation:
    """Compare a synthetic table with the raw one, or a schema of linked tables with a root and its linked tables (``dp_evaluate``).

    report 'tables' and 'tuples' count bins and categories: an error inside a bin is not in them. 'tuples': how well
    combinations of values are kept, by their count (bucket, preservation, errors, suppressed, fabricated, leaked). 'values'
    sees inside bins: per column KS and Wasserstein distance, mean and quartiles, also by group, equal rows, and how well a
    model learns. Of a schema, 'tables': fan-out, distances inside tables, of parent and child and of siblings, means by group,
    orphans.

    Privacy: NOT PRIVATE, for the custodian only. Gives a row per kind of table: mean and largest errors, total variation
    distance, rows, shortfall; report 'values': a row per figure: measure, column_name, group_column, group_value, raw,
    synthetic, error, relative; of a schema: a row per figure, the summary first: level, measure, table_name, column_name,
    other_table, other_column, figures, raw, synthetic, error, largest, independent.

    Parameters
    ----------
    source
        The protected table, a view of it, or a SELECT over it that gives one row for each of its rows.
    synthetic
        Name of the synthetic table or view, or of a schema of linked tables.
    max_k
        Tables of up to that many columns, 1 to 3; of 'values' 1: no groups and no models.
    queries
        A sample of so many triples of columns, of 'values' pairs of a numeric and a categorical one; all if left out.
    seed
        Of that sample, and of the rows that models are trained on.
    report
        'tables', 'tuples' or 'values'.
    """
    return answered(con, "evaluate", source=source, synthetic=synthetic, max_k=max_k, queries=queries, seed=seed, report=report)


def export_release(
    con: Connection,
    release: str,
    path: str | Path,
) -> duckdb.DuckDBPyRelation:
    """Copy a release (noisy statistics and provenance only) to a file that opens on another machine (``dp_export``).

    Privacy: free. Gives release, path; one row.

    Parameters
    ----------
    release
        Identifier of a stored release, as dp_releases shows it.
    path
        The file, or a folder; nothing is replaced.
    """
    return answered(con, "export", release=release, path=_plain(path))


def import_release(
    con: Connection,
    path: str | Path,
) -> duckdb.DuckDBPyRelation:
    """Open an exported release; dp_sample then draws from it (``dp_import``).

    Privacy: free. Gives release, source, method, columns; one row.

    Parameters
    ----------
    path
        The file.
    """
    return answered(con, "import", path=_plain(path))


def report(
    con: Connection,
    release: str,
    *,
    path: str | Path | None = None,
    compare: bool = False,
) -> duckdb.DuckDBPyRelation:
    """Write one self-contained HTML page about a release (``dp_report``).

    It says what was measured, its cost, the guarantee, and shows charts with error bands.

    Privacy: free; with compare := true NOT PRIVATE, for the custodian only. Gives release, path, publishable, note; one row.

    Parameters
    ----------
    release
        Identifier of a stored release, as dp_releases shows it.
    path
        The file, or a folder; a file of the release's name in the working directory, if left out.
    compare
        true: with the raw table beside the release.
    """
    return answered(con, "report", release=release, path=_plain(path), compare=compare)
