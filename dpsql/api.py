"""The calls as Python functions: the names and arguments of the SQL macros, answered with a DuckDB relation."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.door import dispatch
from dpsql.door.clients import connection_of
from dpsql.errors import DpsqlError
from dpsql.udfs import instance_of, load


def _run(con: duckdb.DuckDBPyConnection, name: str, **given: Any) -> duckdb.DuckDBPyRelation:
    con = connection_of(con)
    instance = instance_of(con)
    if instance is None:
        load(con)
        instance = instance_of(con)
    if instance is None:  # pragma: no cover -- load has just registered it
        raise DpsqlError("dpsql could not be loaded on this connection")
    own = "system.main."  # on the caller's connection a macro of the database would come before DuckDB's function
    asked = f"SELECT {own}current_database(), {own}current_schema(), {own}getvariable('dpsql_progress')::VARCHAR"
    ((database, schema, shown),) = con.execute(asked).fetchall()
    return con.sql(f"FROM {dispatch.run(instance, name, given, database=database, schema=schema, progress=shown)}")


def protect(
    con: duckdb.DuckDBPyConnection,
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
    """Give a table a privacy budget, or change it (``dp_protect``). Privacy: free; no row is read.

    What is left out stays as it is; at first neighbors 'add_remove', accountant 'zcdp'. A privacy unit needs max_contributions:
    at most that many rows of each unit are kept (`contributions` helps to choose).
    ``anchor`` names a file outside the database that every entry of the ledger is noted in (`dpsql.books.anchor`). ``resume``
    stands alone: after a reading failed, sources beyond plain ones may be bought again.
    """
    return _run(
        con, "protect", source=source, epsilon=epsilon, delta=delta, neighbors=neighbors, privacy_unit=privacy_unit,
        max_contributions=max_contributions, accountant=accountant, resume=resume,
        anchor=_path(anchor),
    )  # fmt: skip


def declare(
    con: duckdb.DuckDBPyConnection,
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
    discover: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Declare the public domain of a column (``dp_declare``). Privacy: free; the protected table is not read.

    With ``discover`` the list of its values is bought (stable selection): charged once per release.
    """
    return _run(
        con, "declare", source=source, column=column, lower=_plain(lower), upper=_plain(upper), bins=bins, edges=_plain(edges),
        categories=_plain(categories), categories_from=categories_from, nullable=nullable, outside=outside, discover=discover,
        epsilon=epsilon, delta=delta, release=release,
    )  # fmt: skip


def domain(con: duckdb.DuckDBPyConnection, source: str) -> duckdb.DuckDBPyRelation:
    """List the declared attributes of a source (``dp_domain``). Privacy: free."""
    return _run(con, "domain", source=source)


def plan(
    con: duckdb.DuckDBPyConnection,
    source: str,
    *,
    epsilon: float,
    delta: float | None = None,
    method: str | None = None,
    columns: Sequence[str] | None = None,
    k: int | None = None,
    mechanism: str | None = None,
    rows: int | None = None,
    options: Mapping[str, Any] | None = None,
    release: str | None = None,
    operation: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Show what ``synthesize`` (or, with ``k``, ``marginals``) would measure and cost (``dp_plan``). Privacy: free.

    ``operation`` names the call: 'synthesize', 'marginals' or 'contributions'.
    """
    return _run(
        con, "plan", source=source, method=method, epsilon=epsilon, delta=delta, columns=columns, k=k, mechanism=mechanism,
        rows=rows, options=options, release=release, operation=operation,
    )  # fmt: skip


def marginals(
    con: duckdb.DuckDBPyConnection,
    source: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    columns: Sequence[str] | None = None,
    k: int | None = None,
    mechanism: str = "gaussian",
    release: str | None = None,
    shape: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy noisy contingency tables (``dp_marginals``). Privacy: charged once per release.

    Without ``k``: one table of the named columns where they are up to three, else all one-way tables. One table of named columns is
    wide, a column per attribute in its own type, then n, n_low, n_high; otherwise, and with shape 'long': columns, values, n.
    Counts are noisy and may be negative.
    """
    return _run(
        con, "marginals", source=source, columns=columns, k=k, epsilon=epsilon, delta=delta, mechanism=mechanism, release=release,
        shape=shape,
    )  # fmt: skip


def aggregates(
    con: duckdb.DuckDBPyConnection,
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
    """Buy or reread noisy counts of combinations of values (``dp_aggregates``). Privacy: charged once per release."""
    return _run(
        con, "aggregates", source=source, reporting_length=reporting_length, epsilon=epsilon, delta=delta, columns=columns,
        fabrication=_plain(fabrication), release=release, options=options,
    )  # fmt: skip


def histogram(
    con: duckdb.DuckDBPyConnection,
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
    """Buy or reread noisy counts of a column whose domain nobody can list (``dp_histogram``). Privacy: charged once per release."""
    return _run(
        con, "histogram", source=source, column=column, epsilon=epsilon, delta=delta, domain=_plain(domain),
        domain_size=domain_size, rho=rho, separator=separator, release=release,
    )  # fmt: skip


def contributions(
    con: duckdb.DuckDBPyConnection,
    source: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mechanism: str = "gaussian",
    release: str | None = None,
) -> duckdb.DuckDBPyRelation:
    """Buy a noisy histogram of the number of rows per privacy unit (``dp_contributions``), to choose ``max_contributions`` by.

    Privacy: charged once per release. Every unit is counted once, in one bucket; counts are noisy and may be negative.
    """
    return _run(con, "contributions", source=source, epsilon=epsilon, delta=delta, mechanism=mechanism, release=release)


def synthesize(
    con: duckdb.DuckDBPyConnection,
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
    """Buy a synthetic table (``dp_synthesize``). Privacy: charged once per release; rows are drawn from it for free."""
    return _run(
        con, "synthesize", source=source, method=method, epsilon=epsilon, delta=delta, columns=columns, rows=rows, seed=seed,
        options=options, release=release, into=into,
    )  # fmt: skip


def sample(
    con: duckdb.DuckDBPyConnection, release: str, *, rows: int | None = None, seed: int | None = None
) -> duckdb.DuckDBPyRelation:
    """Draw other rows of a stored release (``dp_sample``). Privacy: free, post-processing."""
    return _run(con, "sample", release=release, rows=rows, seed=seed)


def ledger(con: duckdb.DuckDBPyConnection, source: str | None = None) -> duckdb.DuckDBPyRelation:
    """Show every entry of the books (``dp_ledger``). Privacy: free."""
    return _run(con, "ledger", source=source)


def budget(con: duckdb.DuckDBPyConnection, source: str | None = None) -> duckdb.DuckDBPyRelation:
    """Show limit, spent and left (``dp_budget``). Privacy: free.

    ``epsilon_spent`` is what the releases so far would guarantee together if their number and noise had been fixed beforehand;
    the limit, ``epsilon``, is what is guaranteed however they were chosen.
    """
    return _run(con, "budget", source=source)


def releases(con: duckdb.DuckDBPyConnection, source: str | None = None) -> duckdb.DuckDBPyRelation:
    """Show what was bought (``dp_releases``). Privacy: free."""
    return _run(con, "releases", source=source)


def evaluate(
    con: duckdb.DuckDBPyConnection,
    source: str,
    synthetic: str,
    *,
    max_k: int = 3,
    queries: int | None = None,
    seed: int = 7,
    report: str = "tables",
) -> duckdb.DuckDBPyRelation:
    """Compare a synthetic table with the raw one (``dp_evaluate``). Privacy: NOT PRIVATE, for the custodian only."""
    return _run(con, "evaluate", source=source, synthetic=synthetic, max_k=max_k, queries=queries, seed=seed, report=report)


def export_release(con: duckdb.DuckDBPyConnection, release: str, path: str) -> duckdb.DuckDBPyRelation:
    """Copy a release to a file that opens on another machine (``dp_export``). Privacy: free."""
    return _run(con, "export", release=release, path=_path(path))


def import_release(con: duckdb.DuckDBPyConnection, path: str) -> duckdb.DuckDBPyRelation:
    """Open an exported release (``dp_import``). Privacy: free."""
    return _run(con, "import", path=_path(path))


def report(
    con: duckdb.DuckDBPyConnection, release: str, *, path: str | Path | None = None, compare: bool = False
) -> duckdb.DuckDBPyRelation:
    """Write one HTML page about a release (``dp_report``). Privacy: free; with ``compare`` NOT PRIVATE, for the custodian only."""
    return _run(con, "report", release=release, path=_path(path), compare=compare)


def _path(value: Any) -> Any:
    """Return a path as text; anything else is refused where it is read."""
    return str(value) if isinstance(value, Path) else value


def _plain(value: Any) -> Any:
    """Return dates, numpy scalars and the like as the JSON values that SQL callers send."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, (dt.date, dt.time, uuid.UUID)):
        return str(value)
    return float(value) if hasattr(value, "as_integer_ratio") else value  # an object of another kind is refused where it is read
