"""The commands and their arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import duckdb

from dpsql.cli import books, granting, serving
from dpsql.cli.dot import run_command
from dpsql.cli.messages import message
from dpsql.cli.printing import ALIASES, MODES, Look
from dpsql.cli.session import MEMORY, Failed, Interrupted, Leave, Session
from dpsql.errors import DpsqlError

DONE, FAILED, WRONG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
"""Exit codes: done, a statement failed, the arguments are wrong, Ctrl-C, nobody reads the output any more."""

EXAMPLES = """examples:
  dpsql shell census.duckdb                          a SQL prompt
  dpsql -c "FROM dp_budget()" census.duckdb          one statement
  dpsql -m csv -c "FROM adult_synth" census.duckdb   its rows, for a program
  dpsql run publish.sql --database census.duckdb     a file of statements
  dpsql budget census.duckdb                         what was spent, what is left
  dpsql analyst add alice census.duckdb              a token for somebody who may ask
  dpsql grant census.duckdb visits --analyst alice --epsilon 1 --renew month
  dpsql serve census.duckdb --mysql localhost:3306   answer those who have one

exit codes: 0 done, 1 a statement failed, 2 the arguments are wrong, 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"):
        arguments.insert(0, "shell")  # dpsql -c "..." FILE, as in other database shells
    chosen = _parser().parse_args(arguments)
    try:
        code = _alone(chosen) if hasattr(chosen, "alone") else _run(chosen)
        sys.stdout.flush()
        return code
    except (Failed, DpsqlError, duckdb.Error, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it closes it
            return PIPE_CLOSED
        sys.stdout.flush()
        sys.stderr.write(f"{error if isinstance(error, Failed) else message(error)}\n")
        return FAILED
    except (Interrupted, KeyboardInterrupt) as told:
        sys.stderr.write(f"{told}\n" if str(told) else "interrupted\n")
        return INTERRUPTED


def _alone(chosen: argparse.Namespace) -> int:
    """Run a command that opens the database itself, or none."""
    chosen.alone(chosen)
    return DONE


def _run(chosen: argparse.Namespace) -> int:
    """Open the database, run the command in it, and close it."""
    wrong = _missing(chosen)
    if wrong:
        sys.stderr.write(f"Error: {wrong}\n")
        return WRONG
    # Read before the database is opened: a wrong path leaves no new file behind.
    text = _read(chosen.file) if chosen.command == "run" else None
    look = Look(mode=ALIASES.get(chosen.mode, chosen.mode))
    session = Session(chosen.database, read_only=chosen.readonly, store=chosen.store, look=look, dot=run_command)
    try:
        if text is not None:
            session.script(text, chosen.file)
            return DONE
        return int(chosen.run(session, chosen) or DONE)
    except Leave as leave:
        return leave.code
    finally:
        session.close()


def _missing(chosen: argparse.Namespace) -> str | None:
    """Return what is wrong with the files that were named."""
    if chosen.readonly and chosen.database != MEMORY and not Path(chosen.database).is_file():
        return f"{chosen.database}: no such database file"
    if chosen.command == "run" and chosen.file != "-" and not Path(chosen.file).is_file():
        return f"{chosen.file}: no such file"
    return None


def _read(file: str) -> str:
    """Return the text of a SQL file, or of standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise Failed(f"Error: {file} is not text in UTF-8") from None


def _shell(session: Session, chosen: argparse.Namespace) -> int:
    """Run what -c gives, or what standard input holds, or ask a person."""
    if chosen.statements:
        for text in chosen.statements:
            session.script(text, None)
        return DONE
    # A pipe is a script, and so is what is written into one.
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        session.script(_read("-"), "<stdin>")
        return DONE
    try:
        from dpsql.cli.shell import interact
    except ModuleNotFoundError as error:
        told = (
            f"the shell needs {error.name}: pip install 'dpsql[shell]', from a checkout '.[shell]' "
            "(dpsql run and dpsql -c work without)"
        )
        raise Failed(f"Error: {told}") from None
    return interact(session, _version())


def _demo(session: Session, chosen: argparse.Namespace) -> None:
    from dpsql.cli import demonstration  # loaded when needed: its table is one of pandas, which takes .3 s

    run = demonstration.run_linked_demo if chosen.linked else demonstration.run_demo
    run(session, chosen.rows, chosen.epsilon)


def _init_dbt(chosen: argparse.Namespace) -> None:
    """Copy the dbt package into a project."""
    try:
        from dpsql.dbt.project import init
    except ImportError as missing:
        raise Failed(f"Error: {missing}") from None
    sys.stdout.writelines(f"{line}\n" for line in (*init(chosen.project), "next: dbt deps"))


def _version() -> str:
    try:
        return version("dpsql")
    except PackageNotFoundError:  # a checkout that was not installed
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpsql",
        description="Differentially private statistics and synthetic tables in DuckDB.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dpsql {_version()}, DuckDB {duckdb.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Session, argparse.Namespace], int | None], told: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=told, description=told[0].upper() + told[1:] + ".")
        added.set_defaults(run=run, readonly=False)
        modes = f"print results as one of {', '.join(MODES)}"
        added.add_argument("-m", "--mode", default="box", choices=[*MODES, *ALIASES], metavar="MODE", help=modes)
        added.add_argument("--store", metavar="FOLDER", help="where releases are kept (default: FILE.dpsql)")
        return added

    _writing(command)
    _reading(command)
    told = "copy the dbt package into a dbt project and name it in packages.yml"
    dbt = commands.add_parser("dbt", help="use dpsql in a dbt project").add_subparsers(dest="dbt_command", required=True)
    init = dbt.add_parser("init", help=f"{told}; then run `dbt deps`")
    init.add_argument("project", nargs="?", type=Path, default=Path(), help="folder of the project (default: this one)")
    init.set_defaults(alone=_init_dbt)
    serving.add_commands(commands)
    return parser


Adder = Callable[[str, Callable[[Session, argparse.Namespace], int | None], str], argparse.ArgumentParser]


def _writing(command: Adder) -> None:
    """Add the commands that run statements."""
    shell = command("shell", _shell, "a SQL prompt with the dp_* calls; runs standard input where that is not a terminal")
    shell.add_argument("database", nargs="?", default=MEMORY, metavar="FILE", help="DuckDB file (default: in memory)")
    shell.add_argument("-c", dest="statements", action="append", metavar="SQL", help="run statements and leave (repeatable)")
    shell.add_argument("--readonly", action="store_true", help="open the file for reading only")
    run = command("run", lambda session, chosen: None, "run a SQL file and print what its queries return")
    run.add_argument("file", metavar="FILE.sql", help="SQL file, - for standard input")
    run.add_argument("--database", default=MEMORY, metavar="FILE", help="DuckDB file (default: in memory)")
    run.add_argument("--readonly", action="store_true", help="open the database for reading only")
    told = "what an analyst of a served database may spend of a protected table: set it, list it, take it back"
    granting.options(command("grant", granting.grant, told))
    told = "make a sample table, synthesize it, show accuracy and ledger"
    demo = command("demo", _demo, told)
    demo.add_argument("--database", default=MEMORY, metavar="FILE", help="DuckDB file to create (default: in memory)")
    demo.add_argument("--rows", type=int, default=20_000, help="rows of the sample table (default: 20000)")
    demo.add_argument("--linked", action="store_true", help="three linked tables instead: patients (--rows), visits, procedures")
    demo.add_argument("--epsilon", type=float, default=1.0, help="privacy loss of the synthetic table (default: 1.0)")


def _reading(command: Adder) -> None:
    """Add the commands that read the books; they open the file for reading only."""
    told = {
        "budget": "what each protected table may spend, has spent and has left",
        "ledger": "every entry of the books: budgets, purchases",
        "releases": "what was bought, and under which names",
    }
    for name, text in told.items():
        added = command(name, _ledger if name == "ledger" else _books, text)
        added.add_argument("database", metavar="FILE", help="DuckDB file")
        added.add_argument("source", nargs="?", metavar="TABLE", help="protected table (default: all)")
        added.set_defaults(readonly=True)
        if name == "ledger":
            told_head = "only where each ledger ends (entry and hash): kept elsewhere, it shows later whether a ledger was cut"
            added.add_argument("--head", action="store_true", help=told_head)
            told_analyst = "grants of this analyst of a served database, and what she has bought and used"
            added.add_argument("--analyst", metavar="NAME", help=told_analyst)
    plan = command("plan", _plan, "what a synthetic table (with --k: noisy tables) would measure and cost; buys nothing")
    plan.add_argument("database", metavar="FILE", help="DuckDB file")
    plan.add_argument("source", metavar="SOURCE", help="protected table, or a SELECT over one")
    plan.add_argument("--epsilon", type=float, required=True, help="privacy loss to spend")
    plan.add_argument("--delta", type=float, help="default: the budget's")
    plan.add_argument("--method", help="how rows are made (default: latent_class)")
    plan.add_argument("--k", type=int, help="plan dp_marginals of this many columns instead")
    plan.add_argument("--release", metavar="NAME", help="name of a further release of the same")
    plan.set_defaults(readonly=True, mode="line")
    report = command("report", _report, "write a page about a release, to be opened in a browser")
    report.add_argument("database", metavar="FILE", help="DuckDB file")
    report.add_argument("release", metavar="RELEASE", help="its name: dpsql releases FILE")
    report.add_argument("-o", "--output", metavar="PAGE.html", help="default: RELEASE.html in this folder")
    report.add_argument("--compare", action="store_true", help="compare with the raw table: NOT PRIVATE, for the custodian only")
    report.set_defaults(readonly=True)


def _books(session: Session, chosen: argparse.Namespace) -> None:
    books.books(session, chosen.command, chosen.source)


def _ledger(session: Session, chosen: argparse.Namespace) -> None:
    if chosen.head:
        books.heads(session, chosen.source)
    else:
        books.books(session, chosen.command, chosen.source, chosen.analyst)


def _plan(session: Session, chosen: argparse.Namespace) -> None:
    arguments = {name: getattr(chosen, name) for name in ("epsilon", "delta", "method", "k", "release")}
    books.plan(session, chosen.source, arguments)


def _report(session: Session, chosen: argparse.Namespace) -> None:
    books.report(session, chosen.release, chosen.output, compare=chosen.compare)
