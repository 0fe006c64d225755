"""The doors that there are, and the room behind them, as `dpsql serve` puts them together."""

from __future__ import annotations

import duckdb

from dpsql.errors import DpsqlError
from dpsql.serve.analysts import Analysts
from dpsql.serve.opening import Opened
from dpsql.serve.options import Options
from dpsql.serve.passed import Keys, Room
from dpsql.serve.server import Door, Kind
from dpsql.session.instance import instance_with

_BUYING = 10
"""How many times longer a statement may take that buys: readings of a table that are interrupted stop sales, so there is time."""


def room(opened: Opened, keys: Analysts, options: Options) -> Room:
    """Return the room of an opened database."""
    from dpsql.serve.ask import Ask
    from dpsql.serve.limits import Limits
    from dpsql.serve.log import Log

    instance = instance_with(opened.con)
    assert instance is not None  # noqa: S101 -- it was loaded when it was opened
    limits = Limits(seconds=options.time_limit, buying=_BUYING * options.time_limit)
    log = None if options.log is None else Log(options.log)
    # The process owns the file, and nobody else is let into it. The doors keep to --answer-every.
    return Ask(instance, opened.database, keys, limits=limits, log=log, alone=True)


def _mysql(behind: Room, keys: Keys, options: Options, _: Opened) -> Door:
    """Return the door of MySQL."""
    from dpsql.serve.mysql.door import MysqlDoor
    from dpsql.serve.mysql.login import Tls

    at, context = options.mysql, options.tls()
    assert at is not None  # noqa: S101 -- a door is made where one is named
    tls = None if context is None else Tls(context, required=not at.loopback)
    return MysqlDoor(behind, keys, at.host, at.port, tls=tls, every=options.answer_every)


def _quack(behind: Room, keys: Keys, options: Options, opened: Opened) -> Door:
    """Return the door of Quack."""
    from dpsql.serve.quack import QuackDoor

    assert options.quack is not None  # noqa: S101 -- a door is made where one is named
    return QuackDoor(behind, keys, options.quack, opened.con, options.answer_every)


def _flight(behind: Room, keys: Keys, options: Options, _: Opened) -> Door:
    """Return the door of Flight SQL.

    Raises
    ------
    DpsqlError
        pyarrow is missing.
    """
    try:
        import pyarrow.flight  # noqa: F401 -- there are builds without it
    except ImportError:
        raise DpsqlError("--flight needs pyarrow, which is not here: pip install 'dpsql[flight]'; --mysql needs nothing") from None
    from dpsql.serve.flight.door import FlightDoor

    at = options.flight
    assert at is not None  # noqa: S101 -- a door is made where one is named
    return FlightDoor(behind, keys, at.host, at.port, tls=options.tls(), every=options.answer_every)


def _health(behind: Room, _: Keys, options: Options, opened: Opened) -> Door:
    """Return the door for whoever watches processes, which lets nobody in."""
    from dpsql.serve.health import HealthDoor

    assert options.health is not None  # noqa: S101 -- a door is made where one is named
    return HealthDoor(behind, options.health, opened.con)


def _status(behind: Room, keys: Keys, options: Options, opened: Opened) -> Door:
    """Return the door of the custodian's page."""
    from dpsql.serve.status import StatusDoor

    assert options.status is not None and isinstance(keys, Analysts)  # noqa: S101 -- a door is made where one is named
    return StatusDoor(options.status, opened.con, keys, behind.database)


def _before_quack(con: duckdb.DuckDBPyConnection) -> None:
    from dpsql.serve.quack import before

    before(con)


DOORS = {
    "mysql": Kind(_mysql), "quack": Kind(_quack, _before_quack), "flight": Kind(_flight), "health": Kind(_health),
    "status": Kind(_status),
}  # fmt: skip
"""By the name of the option that says where one listens."""
