"""A synthetic database into a schema: tables with their constraints, in one transaction, all or none.

Privacy: post-processing; the synthetic tables are read and written, no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import duckdb

from dpsql.books.schema import SCHEMA, rollback
from dpsql.errors import ArgumentError, first_line
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.release.store import Release
from dpsql.rows.drawing import check_unprotected
from dpsql.rows.families import Drawing, described, made_up, model_of, plan_of
from dpsql.rows.models import mark
from dpsql.rows.writing import run, visible
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.names import fold
from dpsql.text.relation import identifier, key_name, literal, split_name

_MADE = "dpsql: synthetic rows of "  # as `dpsql.rows.drawing` has it
_PATH = "SET search_path = 'system.main'"  # as `dpsql.session.settings.pin` has it
_SYSTEM = ("information_schema", "pg_catalog")
_REHEARSED = 3
"""Units of a rehearsal."""


def schema_name(context: Context, name: str) -> tuple[str, str]:
    """Return database and schema of a name, as DuckDB would resolve it.

    Raises
    ------
    ArgumentError
        It is no name of a schema, or one that cannot be written.
    """
    parts = split_name(name)
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise ArgumentError("into_schema", name, 'the name of a schema is required: synth, census.synth or "odd name"')
    database, schema = [context.database][: 2 - len(parts)] + parts
    # Folded names, since DuckDB does not tell cases apart.
    known = {fold(attached): attached for attached in context.databases()}
    if fold(database) not in known:
        raise ArgumentError("into_schema", name, f"there is no database {database!r}; ATTACH it, or name the schema alone")
    if fold(schema) == SCHEMA or fold(schema) in _SYSTEM:
        raise ArgumentError("into_schema", name, "holds the books, or the catalog; choose another one")
    readonly = "SELECT readonly FROM system.main.duckdb_databases() WHERE database_name = ?"
    row = context.cursor.execute(readonly, [known[fold(database)]]).fetchone()
    if row is None or row[0]:
        raise ArgumentError("into_schema", name, f"database {database!r} cannot be written")
    return known[fold(database)], schema


def check_target(context: Context, name: str, tables: list[str]) -> dict[str, str]:
    """Check that tables can be made in a schema; return the comments of those that dpsql made before, by folded name.

    Raises
    ------
    ArgumentError
        The schema cannot be written, or another table or view has one of the names.
    """
    database, schema = schema_name(context, name)
    rows = context.cursor.execute(
        "SELECT name, comment FROM ("
        "SELECT database_name, schema_name, table_name AS name, comment FROM system.main.duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name, '' FROM system.main.duckdb_views()) "
        "WHERE database_name = ? AND system.main.lower(schema_name) = system.main.lower(?)",
        [database, schema],
    ).fetchall()
    comments = {fold(str(existing)): str(comment or "") for existing, comment in rows}
    for table in tables:
        if not comments.get(fold(table), _MADE).startswith(_MADE):
            raise ArgumentError(
                "into_schema", name, f"has a table {table!r} that dpsql did not make; choose another schema, or drop it"
            )
    existing = {fold(table): comments[fold(table)] for table in tables if fold(table) in comments}
    check_unprotected(context, "into_schema", name, database, [key_name(schema, table) for table in existing])
    return existing


def write(
    context: Context, bought: Release, name: str, units: int | None, seed: int | None, progress: Progress
) -> list[tuple[str, int, str | None, str]]:
    """Draw a synthetic database into a schema, in one transaction.

    Parameters
    ----------
    name : str
        The schema; made where it is not there. Tables in it that dpsql made before are replaced, unless they are this very draw.
    units : int or None
        Rows of the root; None: the public number of units, or the noisy one.
    seed : int or None
        The same seed gives the same tables; None is a fixed seed of the release.

    Returns
    -------
    list of (table, rows, parent, release)
        Parents first.

    Raises
    ------
    ArgumentError
        The tables cannot be made, or have more rows than a key has numbers. Nothing was written.
    """
    linked = plan_of(bought)
    database, schema = schema_name(context, name)
    with context.instance.lock(f"schema {database} {fold(schema)}"):
        with progress.stage("fit"):
            model = model_of(context.cursor, bought)
        number = model.units if units is None else units
        marker = f"{_MADE}{bought.identifier}, {mark(bought)}.{number}-units.seed-{seed or 0}"
        existing = check_target(context, name, [table.name for table in linked.tables])
        # Unless every table says that it holds this very draw.
        if [existing.get(fold(table.name)) for table in linked.tables] != [marker] * len(linked.tables):
            drawing = Drawing(context.cursor, described(bought), model, number, seed)
            with _whole(context, name):
                _create(context, linked, (database, schema), existing)
                with progress.stage("sampling and writing"):
                    _insert(context, drawing, (database, schema))
                    for table in linked.tables:
                        quoted = identifier(database, schema, table.name)
                        context.cursor.execute(f"COMMENT ON TABLE {quoted} IS {literal(marker)}")
                    run(context.cursor, "COMMIT")
        return _answer(context, linked, (database, schema), bought.identifier)


def rehearse(context: Context, linked: LinkedPlan, name: str) -> None:
    """Make the tables of a plan, write made-up rows into them, and take all of it back.

    What cannot be written (types, names, constraints, a schema that is read alone) is known before anything is charged.

    Raises
    ------
    ArgumentError
    """
    place = schema_name(context, name)
    with context.instance.lock(f"schema {place[0]} {fold(place[1])}"):
        existing = check_target(context, name, [table.name for table in linked.tables])
        rehearsal, model = made_up(linked)
        # Twice, so that replacing tables that are there already is tried as well.
        with _whole(context, name):
            _create(context, linked, place, existing)
            _create(context, rehearsal.linked, place, {fold(table.name): "" for table in linked.tables})
            _insert(context, Drawing(context.cursor, rehearsal, model, _REHEARSED, None), place)
            context.cursor.execute("ROLLBACK")


@contextlib.contextmanager
def _whole(context: Context, name: str) -> Iterator[None]:
    """Begin a transaction, which the block ends; whatever goes wrong leaves nothing behind."""
    context.cursor.execute("BEGIN")
    try:
        yield
    except duckdb.InterruptException:
        _roll_back(context)
        raise
    except duckdb.Error as error:
        _roll_back(context)
        raise ArgumentError("into_schema", name, f"its tables cannot be made: {first_line(error)}") from None
    except BaseException:
        _roll_back(context)
        raise


def _create(context: Context, linked: LinkedPlan, place: tuple[str, str], existing: Mapping[str, str]) -> None:
    """Make the tables, in the place of those that are there."""
    cursor = context.cursor
    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(*place)}")
    for table in reversed(linked.tables):
        if fold(table.name) in existing:
            cursor.execute(f"DROP TABLE {identifier(*place, table.name)}")
    cursor.execute(f"USE {identifier(*place)}")  # DuckDB before 2.0 finds the parent of a FOREIGN KEY on the search path alone
    try:
        for number in range(len(linked.tables)):
            cursor.execute(create_sql(linked, number, place))
    finally:
        with contextlib.suppress(duckdb.Error):  # after an error `_roll_back` does it
            cursor.execute(_PATH)


def _insert(context: Context, drawing: Drawing, place: tuple[str, str]) -> None:
    """Write the rows of a draw."""
    cursor, tables = context.cursor, drawing.plan.tables
    names = [identifier(*place, table.name) for table in tables]
    lists = [drawing.select(number) for number in range(len(tables))]
    for part in drawing.parts():
        with visible(cursor, [part.frame]):
            statement = f"INSERT INTO {names[part.table]} SELECT {lists[part.table]} FROM __dpsql_frame_0"  # noqa: S608
            run(cursor, statement, [part.frame])


def create_sql(plan: LinkedPlan, number: int, place: tuple[str, str]) -> str:
    """Return the statement that creates a table, with the constraints that hold in the copy."""
    table = plan.tables[number]
    parts = [
        f"{identifier(column.name)} {column.sql_type}{' NOT NULL' if column.required else ''}" for column in table.columns
    ]
    for key in table.keys:
        parts.append(f"{'PRIMARY KEY' if key == table.primary else 'UNIQUE'} ({identifier(key)})")
    parts += [f"CHECK ({text})" for text in table.checks]
    if table.foreign and table.parent is not None:
        parent = plan.tables[table.parent]
        parts.append(_reference(table, parent, place))
    return f"CREATE TABLE {identifier(*place, table.name)} ({', '.join(parts)})"


def _reference(table: LinkedTable, parent: LinkedTable, place: tuple[str, str]) -> str:
    link, referred = identifier(str(table.link)), identifier(str(table.referred if table.referred else ""))
    return f"FOREIGN KEY ({link}) REFERENCES {identifier(place[1], parent.name)} ({referred})"


def _answer(
    context: Context, plan: LinkedPlan, place: tuple[str, str], release: str
) -> list[tuple[str, int, str | None, str]]:
    """Return the tables of a draw, with their rows, which are synthetic."""
    listed = []
    for table in plan.tables:
        quoted = identifier(*place, table.name)
        row = context.cursor.execute(f"SELECT count(*) FROM {quoted}").fetchone()  # noqa: S608
        parent = None if table.parent is None else identifier(*place, plan.tables[table.parent].name)
        listed.append((quoted, int(row[0]) if row else 0, parent, release))
    return listed


def _roll_back(context: Context) -> None:
    rollback(context.cursor)
    context.cursor.execute(_PATH)
