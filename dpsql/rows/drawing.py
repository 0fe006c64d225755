"""Synthetic rows and cells from a stored release. Everything here is post-processing: free, repeatable, seedable."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import cast

import duckdb

from dpsql import methods
from dpsql.accounting import noise_band
from dpsql.books.entries import Purchase, failure
from dpsql.books.ledger import Ledger
from dpsql.books.schema import SCHEMA, Books, rollback
from dpsql.domains import multi_value
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, ReleaseError, first_line
from dpsql.methods.base import TupleMethod
from dpsql.release import identity
from dpsql.release import store as release
from dpsql.release.costs import DRAWING
from dpsql.release.store import Release
from dpsql.rows import crosstab, decoding, listing
from dpsql.rows.models import Fitted, fitted, mark, output_domain
from dpsql.rows.sampled import blocks_of, one_hot
from dpsql.rows.writing import TableSink, parquet_files, run
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.tables.tuple_index import tuple_index
from dpsql.text.names import fold
from dpsql.text.relation import identifier, key_name, literal, split_name

_MADE = "dpsql: synthetic rows of "  # how the comment of a table of `into` begins


def rows(context: Context, bought: Release, count: int | None, seed: int | None, progress: Progress) -> Path:
    """Return a Parquet file, or a folder of them, of synthetic rows, drawing them unless the same draw is stored.

    Parameters
    ----------
    count : int or None
        Number of rows; None: the public number of rows, or the noisy one.
    seed : int or None
        The same seed gives the same rows; None is a fixed seed of the release.
    """
    _check_model(bought)
    with context.instance.lock(f"draw {bought.path}"):
        # With a number of rows the file of a draw is known before the model is fitted.
        if count is not None:
            path = _path(bought, count, seed)
            if path.exists():
                return path
        model, size = _model_and_rows(context, bought, count, progress)
        path = _path(bought, size, seed)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with progress.stage(DRAWING):
                rng, blocks, mend = blocks_of(context.cursor, bought, model, size, seed)
                if one_hot(bought):
                    decoding.write_one_hot(context.cursor, blocks, model.domain, path, size)
                else:
                    decoding.write_rows(
                        context.cursor, blocks, model.domain, rng, path, size, mend, model.histograms
                    )
        return path


def _check_model(bought: Release) -> None:
    if bought.plan.method is None:
        raise ReleaseError(
            f"release {bought.identifier!r} holds tables, not a model: rows are drawn from releases of dp_synthesize; "
            "read it with the dp_marginals call that bought it"
        )


def _model_and_rows(context: Context, bought: Release, count: int | None, progress: Progress) -> tuple[Fitted, int]:
    with progress.stage("fit"):
        model = fitted(context.cursor, bought)
    return model, methods.get(bought.plan.method or "").total(model.model) if count is None else count


def relation(bought: Release, path: Path) -> str:
    """Return the drawn rows in the types of the source, some of which (ENUM, HUGEINT, TIMESTAMP_S) Parquet does not have."""
    if one_hot(bought):
        return parquet_files(path)
    domain = output_domain(bought.plan)
    return f"({multi_value.joined_sql(decoding.rows_sql(domain, path), domain, bought.plan.options)})"


def _path(bought: Release, count: int, seed: int | None) -> Path:
    return bought.path.parent / "drawn" / f"{bought.identifier}.{mark(bought)}.{count}-rows.seed-{seed or 0}.parquet"


def cells(context: Context, bought: Release, order: list[int]) -> Path:
    """Return a Parquet file with every noisy cell of a release, the attributes in this order: columns, values, n."""

    def write(path: Path) -> None:
        tables, domain = crosstab.ordered(bought.statistics(context.cursor).tables, bought.plan.domain, order)
        listing.write_cells(context.cursor, tables, domain, path)

    return _once(context, bought, f"cells{_in_order(order)}", write)


def wide(context: Context, bought: Release, order: list[int]) -> tuple[str, Path]:
    """Return a relation of the one table of a release, a column per attribute, in this order; and the file that it reads."""
    plan = bought.plan
    domain = Domain(tuple(plan.domain.attributes[position] for position in order))

    def write(path: Path) -> None:
        tables, _ = crosstab.ordered(bought.statistics(context.cursor).tables, plan.domain, order)
        (table,) = tables.values()
        crosstab.write_wide(context.cursor, table, domain, noise_band(plan.mechanism, plan.scales[0]), path)

    path = _once(context, bought, f"wide{_in_order(order)}", write)
    return crosstab.wide_sql(domain, path), path


def _in_order(order: list[int]) -> str:
    return "" if order == sorted(order) else "".join(f"-{position}" for position in order)


def reported(context: Context, bought: Release) -> Path:
    """Return a Parquet file with the reported tuples of a release: columns, values, n."""

    def write(path: Path) -> None:
        plan = bought.plan
        method = cast("TupleMethod", methods.get(plan.method or ""))
        keys, counts = method.aggregates(bought.statistics(context.cursor), plan.options)
        tuples = method.tuples(plan.domain, plan.options)
        index = tuple_index(tuples.sizes, tuples.length)
        names = multi_value.origins(plan.domain, plan.options)
        listing.write_tuples(context.cursor, keys, counts, index, plan.domain, names, path)

    return _once(context, bought, "reported", write)


def _once(context: Context, bought: Release, kind: str, write: Callable[[Path], None]) -> Path:
    """Return a file that is made of this very release, making it unless it is stored."""
    folder = bought.path.parent / "drawn"
    path = folder / f"{bought.identifier}.{mark(bought)}.{kind}.parquet"
    with context.instance.lock(f"draw {bought.path}"):
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write(path)
    return path


def into(context: Context, bought: Release, count: int | None, seed: int | None, name: str, progress: Progress) -> int:
    """Draw synthetic rows straight into the table ``name``, in one transaction, and return how many.

    A table that an earlier call with the same name made is replaced, unless it holds this very draw. Parameters as in `rows`;
    the rows are the same.

    Raises
    ------
    ArgumentError
        See `check_target`.
    """
    _check_model(bought)
    with context.instance.lock(f"draw {bought.path}"):
        # The same call twice writes once: the table says which draw it holds.
        if count is not None and check_target(context, name) == _marker(bought, count, seed):
            return count
        model, size = _model_and_rows(context, bought, count, progress)
        if check_target(context, name) == _marker(bought, size, seed):
            return size
        try:
            with progress.stage(DRAWING):
                context.cursor.execute("BEGIN")
                _fill(context, bought, model, size, seed, identifier(*table_name(context, name)))
                with progress.stage("writing"):
                    run(context.cursor, "COMMIT")
        except duckdb.Error as error:
            rollback(context.cursor)
            raise ArgumentError("into", name, f"the table cannot be created: {first_line(error)}") from None
        except BaseException:
            rollback(context.cursor)
            raise
        return size


def _marker(bought: Release, count: int, seed: int | None) -> str:
    """Return the comment of a table that holds a draw."""
    return f"{_MADE}{bought.identifier}, {_path(bought, count, seed).name}"


def _fill(context: Context, bought: Release, model: Fitted, size: int, seed: int | None, quoted: str) -> None:
    """Create the table with the rows of a draw, from its file where that is there already."""
    path, sink = _path(bought, size, seed), TableSink(quoted)
    if path.exists():
        sink.add(context.cursor, f"FROM {relation(bought, path)}")
    else:
        rng, blocks, mend = blocks_of(context.cursor, bought, model, size, seed)
        if one_hot(bought):
            decoding.put_one_hot(context.cursor, blocks, model.domain, sink, size)
        else:
            # What the store's reader gets, see `relation`; the values of an open domain are in the model's domain alone.
            domain, options = model.domain, bought.plan.options
            decoding.put_rows(
                context.cursor, blocks, domain, rng, sink, lambda query: multi_value.joined_sql(query, domain, options), size,
                mend, model.histograms,
            )
    context.cursor.execute(f"COMMENT ON TABLE {quoted} IS {literal(_marker(bought, size, seed))}")


def check_target(context: Context, name: str) -> str:
    """Check, before anything is charged, that the table ``name`` can be made; return the comment of the one dpsql made before.

    Raises
    ------
    ArgumentError
        It is not a table name, its schema is not there or not for writing, or another table has the name.
    """
    parts = table_name(context, name)
    place = context.cursor.execute(
        "SELECT count(*) FROM duckdb_schemas() s JOIN duckdb_databases() d USING (database_name) "
        "WHERE NOT d.internal AND NOT d.readonly AND lower(database_name) = lower(?) AND lower(schema_name) = lower(?) "
        "AND schema_name NOT IN ('information_schema', 'pg_catalog')",
        list(parts[:2]),
    ).fetchone()
    if not place or not place[0]:
        schema = identifier(*parts[:2])
        raise ArgumentError("into", name, f"there is no schema {schema} that can be written; CREATE SCHEMA makes one")
    row = context.cursor.execute(
        "SELECT comment FROM (SELECT database_name, schema_name, table_name AS name, comment FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name, '' FROM duckdb_views()) "
        "WHERE lower(database_name) = lower(?) AND lower(schema_name) = lower(?) AND lower(name) = lower(?)",
        list(parts),
    ).fetchone()
    comment = str(row[0] or "") if row else ""
    # Only what dpsql wrote may be replaced: its comment says so.
    if row is not None and not comment.startswith(_MADE):
        raise ArgumentError("into", name, "a table of that name exists and was not made by dpsql; choose another name or drop it")
    if row is not None:
        check_unprotected(context, "into", name, parts[0], [key_name(*parts[1:])])
    return comment


def check_unprotected(context: Context, argument: str, name: str, database: str, keys: Collection[str]) -> None:
    """Refuse to replace tables that have, or had, a budget or a link: whoever made them, their rows may be people's.

    Raises
    ------
    ArgumentError
    """
    attached = next(one for one in context.databases() if fold(one) == fold(database))
    private = Books(context.cursor, attached).private(keys)
    if private:
        told = f"table {private[0]} would be replaced, and has a budget or a link; choose another name, or drop the table"
        raise ArgumentError(argument, name, told)


def table_name(context: Context, name: str) -> tuple[str, str, str]:
    """Split a possibly qualified name into database, schema and table, as DuckDB would resolve it.

    Raises
    ------
    ArgumentError
        It is not a table name.
    """
    parts = split_name(name)
    if not 1 <= len(parts) <= 3 or not all(parts):
        raise ArgumentError("into", name, "a table name is required: people_synth, main.people_synth or \"odd name\"")
    if len(parts) == 2 and parts[0] in context.databases():
        parts = [parts[0], "main", parts[1]]
    database, schema, table = [context.database, context.schema][: 3 - len(parts)] + parts
    if fold(schema) == SCHEMA:
        raise ArgumentError("into", name, f"schema {SCHEMA} holds the books; choose another one")
    return database, schema, table


def bought(context: Context, books: Books, name: str) -> Release | None:
    """Return a release that was bought on these books, as they know it; None if none of that identifier ever was.

    Raises
    ------
    ReleaseError
        It is not stored (yet), or its file is not the one that the ledger knows: nothing else is shown in its place.
    """
    ledgers = (Ledger(books, source, context.user) for source in books.sources_of(name))
    return next((known for ledger in ledgers if (known := of_ledger(context, ledger, name)) is not None), None)


def of_ledger(context: Context, ledger: Ledger, name: str) -> Release | None:
    """Return a release that was bought on this ledger, as it knows it; None if none of that name counts. Errors: see `bought`."""
    return of_purchase(context, ledger, name, ledger.purchase(name))


def of_purchase(context: Context, ledger: Ledger, name: str, purchase: Purchase | None) -> Release | None:
    """Return a release of a charge that counts; None if none does. Errors: see `bought`."""
    if purchase is None:
        return None
    if purchase.status == "failed":
        raise failure(purchase)
    if purchase.status == "charged":
        raise ReleaseError(
            f"release = {name!r}: it is charged and not finished; the call that began to buy it finishes it, without another "
            "charge (FROM dp_ledger() shows its source and parameters)"
        )
    # A process may have died between the charge and this: publishing again does no harm.
    path = identity.path_of(context.store(ledger.books.database), name, purchase.charge["hash"])
    release.publish(identity.draft_of(path, str(purchase.contents)), path)
    return release.read(context.cursor, path, str(purchase.contents), purchase.plan)


def home(context: Context, identifier_: str) -> str:
    """Return the database in whose books a release was bought; the current one where it is in none."""
    return next((name for name in context.databases() if Books(context.cursor, name).sources_of(identifier_)), context.database)


def find(context: Context, identifier_: str) -> Release:
    """Find a release by its identifier, or by its name if only one release has it.

    What was bought on the books of an attached database comes first, by either; then what was imported, or lies in a store without
    books of its own.

    Raises
    ------
    ReleaseError
        There is none, or several, or it is not finished, or not the one that the ledger knows.
    """
    every_book = [Books(context.cursor, database) for database in context.databases()]
    sold = {name: book for book in reversed(every_book) for name in book.sold()}
    refused: ReleaseError | None = None
    for book in every_book if identifier_ in sold else ():
        try:
            purchase = bought(context, book, identifier_)
        except ReleaseError as error:
            refused = refused or error
            continue
        if purchase is not None:
            return purchase
    if refused is not None:
        raise refused
    # What no book sold may still be a file of the store, such as an imported release.
    stores = dict.fromkeys(context.store(database) for database in context.databases())
    files = [item for store in stores for item in identity.stored_files(store)]
    same = {path.name: path for known, path in files if known == identifier_}
    if len(same) == 1:
        return release.read(context.cursor, next(iter(same.values())))
    if same:
        listed = ", ".join(repr(str(path)) for path in same.values())
        raise ReleaseError(f"release = {identifier_!r}: several files hold one of that identifier: {listed}; move all but one away")
    known = sorted({known for known, _ in files} | sold.keys())
    named = [item for item in known if item.rsplit("-", 1)[0].endswith("-" + identity.slug(identifier_))]
    own = [item for item in named if item in sold]  # an imported file cannot make the name of a purchase mean two things
    if len(own or named) == 1:
        return find(context, (own or named)[0])
    kind = "several releases have that name" if named else "no such release"
    listed = identity.listed(own or named or known, None if named else identifier_)
    raise ReleaseError(f"release = {identifier_!r}: {kind}; there are: {listed}. FROM dp_releases() lists what was bought")
