"""Dot commands: what a shell does beside SQL, named as in DuckDB's."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

import duckdb

from dpsql import sql
from dpsql.cli.messages import visible
from dpsql.cli.printing import ALIASES, MODES
from dpsql.cli.session import Failed, Leave, Session
from dpsql.text.relation import inline

_BUDGETS = """
SELECT source, epsilon FROM dpsql.budgets UNION ALL
SELECT linked.source, root.epsilon FROM dpsql.ledger linked JOIN dpsql.budgets root ON root.source = linked.parameters ->> '$.root'
WHERE linked.action IN ('linked', 'unlinked')
QUALIFY row_number() OVER (PARTITION BY linked.source ORDER BY linked.entry DESC) = 1 AND linked.action = 'linked'
"""
"""The budget of each protected table; of a linked one its root's."""


@dataclass(frozen=True)
class Command:
    """A dot command: its arguments as the help shows them, what it does, and the function that does it."""

    arguments: str
    help: str
    run: Callable[[Session, list[str]], None]


def run_command(session: Session, text: str) -> None:
    """Run a dot command; its name may be cut short where that is unique.

    Raises
    ------
    Failed
        There is no such command, or its arguments are wrong.
    Leave
        It was .exit.
    """
    try:
        name, *arguments = shlex.split(text[1:].rstrip(";"), posix=True) or [""]
    except ValueError:
        raise Failed(f"Error: {text}: a quote is not closed") from None
    matching = [known for known in COMMANDS if known == name] or [known for known in COMMANDS if name and known.startswith(name)]
    if len(matching) != 1:
        which = f"could be {', '.join('.' + f for f in matching)}" if matching else "there is no such command; .help lists them"
        raise Failed(f"Error: .{visible(name)}: {which}")
    COMMANDS[matching[0]].run(session, arguments)


def _help(session: Session, arguments: list[str]) -> None:
    for name, command in COMMANDS.items():
        if not arguments or name.startswith(arguments[0].lstrip(".")):
            session.out.write(f"{'.' + name + ' ' + command.arguments:24} {command.help}\n")
    if not arguments:
        session.out.write("\nSQL statements end with a semicolon. The dp_* calls: FROM dp_budget(); FROM dp_ledger(); ...\n")


def _tables(session: Session, arguments: list[str]) -> None:
    from dpsql.protected.linked import key_of  # loaded when needed: it reads SQL, for which sqlglot takes .1 s
    from dpsql.source.model import TableId

    tables = session.guarded(lambda: session.con.execute(sql.text("shell_tables"), _pattern(arguments)).fetchall())
    budgets = session.guarded(lambda: _budgets(session.con))
    rows = [(*row, budgets.get(key_of(TableId("", row[0], row[1])))) for row in tables]
    columns = {"schema": "VARCHAR", "name": "VARCHAR", "kind": "VARCHAR", "columns": "BIGINT", "budget (epsilon)": "DOUBLE"}
    session.statement(f"FROM {inline(columns, rows)}")


def _budgets(con: duckdb.DuckDBPyConnection) -> dict[str, float]:
    try:
        return {key: float(epsilon) for key, epsilon in con.execute(_BUDGETS).fetchall()}
    except duckdb.CatalogException:  # no table is protected yet
        return {}


def _schema(session: Session, arguments: list[str]) -> None:
    rows = session.guarded(lambda: session.con.execute(sql.text("shell_schema"), _pattern(arguments)).fetchall())
    session.out.writelines(f"{statement.rstrip(';')};\n" for (statement,) in rows)


def _pattern(arguments: list[str]) -> list[str | None]:
    return [arguments[0] if arguments else None]


def _databases(session: Session, arguments: list[str]) -> None:
    session.statement("SELECT database_name AS name, path, readonly FROM duckdb_databases() WHERE NOT internal")


def _read(session: Session, arguments: list[str]) -> None:
    session.read(_one(arguments, ".read", "a SQL file"))


def _mode(session: Session, arguments: list[str]) -> None:
    if not arguments:
        session.out.write(f"mode: {session.look.mode}\n")
        return
    mode = ALIASES.get(arguments[0].lower(), arguments[0].lower())
    if mode not in MODES:
        raise Failed(f"Error: .mode {visible(arguments[0])}: one of {', '.join(MODES)}")
    session.look.mode = mode


def _switch(name: str) -> Callable[[Session, list[str]], None]:
    def run(session: Session, arguments: list[str]) -> None:
        if not arguments:
            session.out.write(f"{name}: {'on' if getattr(session, name) else 'off'}\n")
            return
        words = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}
        if arguments[0].lower() not in words:
            raise Failed(f"Error: .{name} {visible(arguments[0])}: on or off")
        setattr(session, name, words[arguments[0].lower()])

    return run


def _maxrows(session: Session, arguments: list[str]) -> None:
    session.look.rows = _number(arguments, ".maxrows")


def _maxwidth(session: Session, arguments: list[str]) -> None:
    session.fixed_width = _number(arguments, ".maxwidth") or None


def _nullvalue(session: Session, arguments: list[str]) -> None:
    session.look.null = visible(_one(arguments, ".nullvalue", "a text"))


def _output(session: Session, arguments: list[str]) -> None:
    session.output(arguments[0] if arguments else None)


def _open(session: Session, arguments: list[str]) -> None:
    session.reopen(arguments[0] if arguments else ":memory:")


def _exit(session: Session, arguments: list[str]) -> None:
    raise Leave(_number(arguments, ".exit") if arguments else 0)


def _one(arguments: list[str], command: str, what: str) -> str:
    if len(arguments) != 1:
        raise Failed(f"Error: {command} takes {what}")
    return arguments[0]


def _number(arguments: list[str], command: str) -> int:
    text = _one(arguments, command, "a number")
    if not text.isascii() or not text.isdigit():
        raise Failed(f"Error: {command} {visible(text)}: a whole number, 0 or more, is required")
    return int(text)


COMMANDS: dict[str, Command] = {
    "help": Command("?NAME?", "Show this list", _help),
    "tables": Command("?PATTERN?", "List tables and views, and the budgets of protected ones", _tables),
    "schema": Command("?PATTERN?", "Show the CREATE statements of tables and views", _schema),
    "databases": Command("", "List attached databases and their files", _databases),
    "read": Command("FILE", "Run a SQL file, up to the first statement that fails", _read),
    "mode": Command("?MODE?", f"Print results as {', '.join(MODES)}", _mode),
    "output": Command("?FILE?", "Send results to a file; without one, to the screen again", _output),
    "nullvalue": Command("TEXT", "Show NULL as this text (not in csv and json)", _nullvalue),
    "maxrows": Command("COUNT", "Most rows of a box (40); 0 shows all", _maxrows),
    "maxwidth": Command("COUNT", "Most characters in a line of a box; 0 takes the terminal's width", _maxwidth),
    "timer": Command("on|off", "Show how long each statement took", _switch("timer")),
    "echo": Command("on|off", "Print each statement before it runs", _switch("echo")),
    "open": Command("?FILE?", "Close this database and open another one", _open),
    "exit": Command("?CODE?", "Leave; Ctrl-D does too", _exit),
    "quit": Command("", "Leave", _exit),
}
