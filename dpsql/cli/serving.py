"""`dpsql serve`, and for whom: `dpsql analyst`, `dpsql publish`. Nothing here reads a row.

What these commands need is imported when they run: other commands need not wait for it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.errors import ArgumentError, DpsqlError, first_line, holder

if TYPE_CHECKING:
    from dpsql.serve.roster import Analyst

Parsers = argparse._SubParsersAction
_WHO = "letters a to z, digits, '_', '-' and '.'"
_GRANT = "TABLE=EPSILON"
_NONE_YET = "none is yet: CALL dp_protect('table', epsilon := ...)"


def add_commands(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the commands and their options."""
    told = "serve a database to analysts, who ask with stock clients; this process owns the file"
    serve = _command(commands, "serve", _serve, told)
    serve.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    serve.add_argument("--mysql", metavar="HOST:PORT", help="where clients of MySQL come in: localhost:3306")
    serve.add_argument("--quack", metavar="HOST:PORT", help="where DuckDB's own come in, a loopback address: localhost:9494")
    serve.add_argument("--flight", metavar="HOST:PORT", help="where clients of Arrow Flight SQL (ADBC) do: localhost:31337")
    _file_of_analysts(serve)
    serve.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate of the doors of MySQL and Flight SQL, in PEM")
    serve.add_argument("--tls-key", metavar="FILE", type=Path, help="its key")
    told = "let --mysql and --flight listen where other machines reach it without TLS: where nobody else is on the network"
    serve.add_argument("--allow-unencrypted", action="store_true", help=told)
    serve.add_argument("--memory", default="4GB", metavar="SIZE", help="DuckDB's memory limit (default: 4GB)")
    told = "of one statement (default: 60s); one that buys may take ten times as long"
    serve.add_argument("--time-limit", default="60s", metavar="TIME", help=told)
    told = "answer at multiples of this time only, so that the time says less: 1s (default: as soon as there is an answer)"
    serve.add_argument("--answer-every", default="0s", metavar="TIME", help=told)
    serve.add_argument("--store", metavar="FOLDER", type=Path, help="where releases are kept (default: DATABASE.dpsql)")
    told = "where GET /health says over HTTP whether the server answers, a loopback address: localhost:8306"
    serve.add_argument("--health", metavar="HOST:PORT", help=told)
    told = "where a page shows the custodian budgets and analysts, a loopback address; its whole address is said at the start"
    serve.add_argument("--status", metavar="HOST:PORT", help=told)
    told = "a line of JSON for each question: analyst, outcome, releases and their epsilon, about how long (default: none)"
    serve.add_argument("--log", metavar="FILE", type=Path, help=told)
    _analyst(commands.add_parser("analyst", help="who may ask a served database, and what"))
    told = "let analysts see an unprotected table as it is, or a view; a view over protected tables is asked about as they are"
    publish = _command(commands, "publish", _publish, told)
    publish.add_argument("table", metavar="TABLE", help="the table or view")
    publish.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    publish.add_argument("--withdraw", action="store_true", help="hide it again")
    _file_of_analysts(publish)


def _analyst(parser: argparse.ArgumentParser) -> None:
    """Add what `dpsql analyst` can do."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="add|grant|list|revoke")
    add = _command(actions, "add", _add, "add an analyst and print the token, which is shown this once")
    add.add_argument("name", metavar="NAME", help=_WHO)
    add.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    told = "a protected table and the epsilon of one question, repeatable; then no other (default: every protected table at 0.1)"
    add.add_argument("--grant", dest="grants", action="append", metavar=_GRANT, help=told)
    told = "how long the token holds, 12h, 90d, 8w, or until which day, 2027-12-31 (default: until it is revoked)"
    add.add_argument("--expires", metavar="WHEN", help=told)
    grant = _command(actions, "grant", _grant, "change what an analyst may ask; the token stays")
    grant.add_argument("name", metavar="NAME", help="as `dpsql analyst list` shows it")
    grant.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    grant.add_argument("grants", nargs="+", metavar=_GRANT, help="epsilon of one question; 0 takes the table back")
    listed = _command(actions, "list", _list, "list analysts, their grants, and what is published")
    listed.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    revoke = _command(actions, "revoke", _revoke, "revoke a token; what is open with it ends")
    revoke.add_argument("name", metavar="NAME", help="as `dpsql analyst list` shows it")
    revoke.add_argument("database", metavar="DATABASE", type=Path, help="DuckDB file")
    for command in (add, grant, listed, revoke):
        _file_of_analysts(command)


def _command(
    commands: Parsers[argparse.ArgumentParser], name: str, run: Callable[[argparse.Namespace], None], told: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=told, description=told[0].upper() + told[1:] + ".")
    parser.set_defaults(alone=run)
    return parser


def _file_of_analysts(parser: argparse.ArgumentParser) -> None:
    told = "who may come in, and what each may ask (default: analysts.toml beside the database)"
    parser.add_argument("--analysts", metavar="FILE", type=Path, help=told)


def _serve(chosen: argparse.Namespace) -> None:
    """Serve until a signal ends it."""
    from dpsql.serve.doors import DOORS, room
    from dpsql.serve.options import Options, address, seconds
    from dpsql.serve.server import serve

    options: dict[str, Any] = {}
    for name in ("tls_cert", "tls_key", "allow_unencrypted", "memory", "store", "log"):
        options[name] = getattr(chosen, name)
    for name in DOORS:
        text = getattr(chosen, name)
        options[name] = None if text is None else address(name, text)
    for name in ("time_limit", "answer_every"):
        options[name] = seconds(name.replace("_", "-"), getattr(chosen, name))
    serve(Options(chosen.database, _path(chosen), **options), room, DOORS)


def _add(chosen: argparse.Namespace) -> None:
    """Add an analyst; the token goes to standard output alone, what else there is to say to standard error."""
    from dpsql.serve import analysts

    tables = _protected(chosen.database)
    if chosen.grants is not None:
        grants = _grants(chosen.grants, tables)
    elif tables is not None:
        grants = dict.fromkeys(sorted(set(tables.values())), analysts.EPSILON)
    else:
        told = f"is open in another process, so its tables are not known here: say --grant {_GRANT}"
        raise ArgumentError("database", str(chosen.database), told)
    token = analysts.add(_path(chosen), chosen.name, grants, expires=chosen.expires)
    sys.stderr.write(f"{chosen.name} may ask: {_told(grants)}\nthe token, shown this once:\n")
    sys.stderr.flush()
    sys.stdout.write(f"{token}\n")


def _grant(chosen: argparse.Namespace) -> None:
    """Change grants."""
    from dpsql.serve import analysts

    tables = _protected(chosen.database)
    analyst = analysts.grant(_path(chosen), chosen.name, _grants(chosen.grants, tables))
    sys.stdout.write(f"{analyst.name} may ask: {_told(analyst.grants)}\n")


def _list(chosen: argparse.Namespace) -> None:
    """List what the file says."""
    from dpsql.serve.analysts import Analysts

    roster = Analysts(_path(chosen))
    sys.stdout.writelines(f"{line}\n" for line in _table(roster.all()))
    sys.stdout.write(f"published: {', '.join(sorted(roster.public())) or 'nothing'}\n")


def _revoke(chosen: argparse.Namespace) -> None:
    """Revoke a token."""
    from dpsql.serve import analysts

    sys.stdout.write(f"{analysts.revoke(_path(chosen), chosen.name).name} is revoked\n")


def _publish(chosen: argparse.Namespace) -> None:
    """Publish a table or view, or withdraw it."""
    from dpsql.serve import analysts

    table = key("table", chosen.table)
    if chosen.withdraw:  # which needs no look at the database: it may be served, and the table be gone
        changed = analysts.publish(_path(chosen), table, withdraw=True)
        sys.stdout.write(f"{table} is {'withdrawn' if changed else 'not published'}\n")
        return
    _check_public(chosen.database, table)
    analysts.publish(_path(chosen), table)
    sys.stdout.write(f"{table} is published\n")


def _path(chosen: argparse.Namespace) -> Path:
    """Return the file of analysts."""
    from dpsql.serve.analysts import beside

    path: Path = chosen.analysts or beside(chosen.database)
    return path


def _protected(database: Path) -> dict[str, str] | None:
    """Return the protected tables of a database, see `_budgets`; None where another process has it open."""
    con = _opened(database)
    if con is None:
        return None
    try:
        return {source: root for source, root in _budgets(con).items() if not source.startswith("file:")}
    finally:
        con.close()


def _budgets(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return whose budget each protected table is under, as the books spell them: its own, or of a linked one its root's."""
    query = "SELECT source, source FROM dp_budget() UNION ALL SELECT source, root FROM dp_links()"
    return {str(source): str(root) for source, root in con.execute(query).fetchall()}


def _check_public(database: Path, table: str) -> None:
    """Check that a table or view may be published.

    Raises
    ------
    ArgumentError
        It is protected, or not there; or another process has the database open, so that this is not known.
    """
    from dpsql.books.schema import SCHEMA, Books

    con = _opened(database)
    if con is None:
        told = "is open in another process, so it is not known here whether the table is protected: stop that one first"
        raise ArgumentError("database", str(database), told)
    try:
        protected = _budgets(con)
        query = (
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal "
            "UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
        )
        known = {_spelled(schema, name) for schema, name in con.execute(query).fetchall() if schema != SCHEMA}
        ((name,),) = con.execute("SELECT current_database()").fetchall()
        unlinked = table not in protected and bool(Books(con, str(name)).private([table]))
    finally:
        con.close()
    if table in protected:
        root = protected[table]
        linked, which = ("", "it") if root == table else (f", by its link to {root}", root)
        told = f"it is protected{linked}: nobody sees its rows; dpsql analyst grant says who may ask about {which}"
        raise ArgumentError("table", table, told)
    if unlinked:
        told = "it was linked once, and is not public since; publish a table of another name that holds what may be seen"
        raise ArgumentError("table", table, told)
    if table not in known:
        raise ArgumentError("table", table, "there is no such table or view")


def _opened(database: Path) -> duckdb.DuckDBPyConnection | None:
    """Return a connection that reads; None where another process has the database open."""
    from dpsql.udfs import load

    if not database.is_file():
        raise ArgumentError("database", str(database), "there is no such file; dpsql shell FILE makes one")
    try:
        con = duckdb.connect(database, read_only=True)
    except (duckdb.Error, OSError) as error:
        if holder(error) is not None:
            return None
        raise DpsqlError(f"{database} cannot be opened: {first_line(error)}") from None
    load(con)
    return con


def _grants(texts: Sequence[str], tables: Mapping[str, str] | None) -> dict[str, float]:
    """Return grants as they were typed; where the protected tables are known, of those with a budget alone."""
    grants: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            epsilon = float(number)
        except ValueError:
            raise ArgumentError("grant", text, "a table and the epsilon of one question are required: visits=0.05") from None
        table = key("grant", name)
        if tables is not None and table not in tables and epsilon != 0:
            which = f"there are {', '.join(sorted(set(tables.values())))}" if tables else _NONE_YET
            raise ArgumentError("grant", text, f"{table} is no protected table; {which}")
        if tables is not None and tables.get(table, table) != table and epsilon != 0:
            root = tables[table]
            raise ArgumentError("grant", text, f"{table} is linked, and goes with {root}: grant {root}={number}")
        if table in grants:
            raise ArgumentError("grant", text, f"{table} was given before; say it once")
        grants[table] = epsilon
    if tables is None:
        sys.stderr.write("the database is open in another process, so the names of tables are taken as they are\n")
    return grants


def key(argument: str, name: str) -> str:
    """Return a table as the books spell it; without a schema it is in main."""
    from dpsql.text.relation import split_name

    parts = split_name(name) if name else []
    if not parts or not all(parts):
        raise ArgumentError(argument, name, 'the name of a table is required: visits, main.visits, main."odd name"')
    return _spelled(*(["main", *parts][-2:]))


def _spelled(schema: str, name: str) -> str:
    from dpsql.protected.linked import key_of
    from dpsql.source.model import TableId

    return key_of(TableId("", schema, name))


def _told(grants: Mapping[str, float]) -> str:
    """Return grants in words."""
    prices = ", ".join(f"{table} at {epsilon:g}" for table, epsilon in sorted(grants.items()))
    return f"{prices} a question" if prices else "no protected table"


def _table(everyone: Iterable[Analyst]) -> list[str]:
    """Return analysts as lines in columns."""
    now = dt.datetime.now(dt.UTC)
    rows = [("name", "state", "created", "expires", "epsilon of one question")]
    for analyst in everyone:
        grants = ", ".join(f"{table}={epsilon:g}" for table, epsilon in sorted(analyst.grants.items()))
        rows.append((analyst.name, analyst.state(now), _day(analyst.created), _day(analyst.expires), grants))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _day(moment: dt.datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d}"
