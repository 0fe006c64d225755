"""Ways to a served database: each sends a text and leaves the answer as a table of a DuckDB in this process."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb

from dpsql.client.place import Place
from dpsql.errors import DpsqlError, first_line
from dpsql.session.extensions import load_extensions
from dpsql.text.relation import identifier, literal

_OF_FLIGHT = re.compile(r"\[FlightSQL\] (?P<said>.*?)(?:\. Detail: .*| \(\w+; \w+\).*)?$", re.DOTALL)
_UNSIGNED, _BINARY = 0x20, 63
_INTEGERS = {1: "TINYINT", 2: "SMALLINT", 3: "INTEGER", 8: "BIGINT", 9: "INTEGER"}
_OTHERS = {4: "FLOAT", 5: "DOUBLE", 10: "DATE", 14: "DATE", 7: "TIMESTAMP", 12: "TIMESTAMP", 11: "TIME"}
_DECIMAL, _BLOBS = 246, (249, 250, 251, 252, 253, 254)


class Road(Protocol):
    """A connection by one protocol."""

    def fetch(self, text: str, here: duckdb.DuckDBPyConnection, name: str) -> Sequence[str]:
        """Ask, and create a temporary table of this name from the answer; a refusal is a DpsqlError with the server's words.

        Returns what the server says beside the answer, where the protocol has a place for it.
        """
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def opened(place: Place, token: str, encrypted: bool, ca: Path | None, here: duckdb.DuckDBPyConnection) -> Road:
    """Return a connection to this place."""
    if place.scheme == "mysql":
        return _Mysql(place, token, encrypted, ca)
    if place.scheme == "quack":
        return _Quack(place, token, encrypted, ca, here)
    return _Flight(place, token, encrypted, ca)


def _missing(package: str, install: str) -> DpsqlError:
    return DpsqlError(f"{package} is not installed, which speaks this protocol: pip install {install}")


def _unreachable(place: Place, reason: str) -> DpsqlError:
    return DpsqlError(f"url = {place.shown!r}: no connection: {reason}")


def _of_mysql(error: BaseException) -> str:
    """Return what the server said, without its code; the driver says nothing where the line was lost before."""
    line = str(error.args[1]) if len(error.args) > 1 else first_line(error)
    return line or "the connection to the server is lost: dpsql.connect(...) opens another one"


def _of_flight(error: BaseException) -> str:
    """Return what the server said, without what the driver puts around it."""
    match = _OF_FLIGHT.search(str(error))
    return match["said"] if match else first_line(error)


def _of_duckdb(error: duckdb.Error) -> str:
    """Return what the server said, without the kind of the error."""
    return first_line(error).partition("Error: ")[2] or first_line(error)


def _keep(here: duckdb.DuckDBPyConnection, name: str, arrived: object, columns: str) -> None:
    """Create the table of an answer from a frame or a table of arrow."""
    here.register("arrived", arrived)
    try:
        here.execute(f"CREATE TEMP TABLE {identifier(name)} AS SELECT {columns} FROM arrived")  # noqa: S608 -- quoted by who calls
    finally:
        here.unregister("arrived")


class _Mysql:
    """Over MySQL's protocol."""

    def __init__(self, place: Place, token: str, encrypted: bool, ca: Path | None) -> None:
        try:
            import pymysql
        except ImportError:
            raise _missing("pymysql", "'dpsql[client]'") from None
        context = ssl.create_default_context(cafile=None if ca is None else str(ca)) if encrypted else None
        self._failed = pymysql.err.MySQLError
        try:
            # no values are converted on the way: a driver's floats and dates would be other values
            self._con = pymysql.connect(
                host=place.host, port=place.port, user=place.name, password=token, database=place.database, charset="utf8mb4",
                ssl=context, ssl_disabled=not encrypted, conv={}, autocommit=True,
            )
        except (pymysql.err.MySQLError, OSError) as error:
            raise _unreachable(place, _of_mysql(error)) from None

    def fetch(self, text: str, here: duckdb.DuckDBPyConnection, name: str) -> Sequence[str]:
        import pandas

        try:
            with self._con.cursor() as cursor:
                cursor.execute(text)
                arrived: Any = cursor  # its description has neither signs nor character sets
                rows = [[value.hex() if isinstance(value, bytes) else value for value in row] for row in cursor.fetchall()]
                fields = [of_field(field) for field in arrived._result.fields]
                warnings = arrived.connection.show_warnings() if arrived.warning_count else ()
        except self._failed as error:
            raise DpsqlError(_of_mysql(error)) from None
        frame = pandas.DataFrame({str(i): pandas.Series([row[i] for row in rows], dtype=object) for i in range(len(fields))})
        # values come as texts: DuckDB reads each of them as the type that the server has said
        columns = ", ".join(f"{field.read(identifier(str(i)))} AS {identifier(field.name)}" for i, field in enumerate(fields))
        _keep(here, name, frame, columns)
        return [str(line) for _, _, line in warnings]

    def close(self) -> None:
        with contextlib.suppress(self._failed):  # the server may be gone
            self._con.close()


class _Flight:
    """Over Arrow Flight SQL."""

    def __init__(self, place: Place, token: str, encrypted: bool, ca: Path | None) -> None:
        try:
            import adbc_driver_flightsql.dbapi as adbc
            import adbc_driver_manager
            import pyarrow  # noqa: F401 -- answers are its tables
        except ImportError:
            raise _missing("adbc-driver-flightsql", "adbc-driver-flightsql pyarrow") from None
        self._failed = adbc_driver_manager.Error
        options = {"username": place.name, "password": token}
        if ca is not None:
            options["adbc.flight.sql.client_option.tls_root_certs"] = ca.read_text(encoding="ascii")
        try:
            self._con = adbc.connect(f"grpc{'+tls' if encrypted else ''}://{place.authority}", db_kwargs=options, autocommit=True)
        except (self._failed, OSError) as error:
            raise _unreachable(place, _of_flight(error)) from None

    def fetch(self, text: str, here: duckdb.DuckDBPyConnection, name: str) -> Sequence[str]:
        try:
            with self._con.cursor() as cursor:
                cursor.execute(text)
                arrived = cursor.fetch_arrow_table()
        except self._failed as error:
            raise DpsqlError(_of_flight(error)) from None
        _keep(here, name, arrived, "*")
        return ()

    def close(self) -> None:
        self._con.close()


class _Quack:
    """Over DuckDB's own protocol."""

    def __init__(self, place: Place, token: str, encrypted: bool, ca: Path | None, here: duckdb.DuckDBPyConnection) -> None:
        load_extensions(here)
        if ca is not None:
            here.execute(f"SET ca_cert_file = {literal(str(ca))}")
        try:
            options = f"TOKEN {literal(token)}, DISABLE_SSL {not encrypted}"
            here.execute(f"ATTACH {literal(f'quack:{place.authority}')} AS served ({options})")
        except duckdb.Error as error:
            raise _unreachable(place, _of_duckdb(error)) from None

    def fetch(self, text: str, here: duckdb.DuckDBPyConnection, name: str) -> Sequence[str]:
        try:
            here.execute(f"CREATE TEMP TABLE {identifier(name)} AS FROM served.query({literal(text)})")
        except duckdb.Error as error:
            raise DpsqlError(_of_duckdb(error)) from None
        return ()

    def close(self) -> None:
        """Leave it to DuckDB, whose connection it goes with."""


@dataclass(frozen=True)
class Field:
    """A column of an answer: its name, and its type in DuckDB."""

    name: str
    type: str

    def read(self, column: str) -> str:
        """Return SQL of the value whose text is in a column; bytes come as texts of hexadecimal digits."""
        if self.type == "VARCHAR":
            return f"{column}::VARCHAR"
        return f"unhex({column}::VARCHAR)" if self.type == "BLOB" else f"{column}::VARCHAR::{self.type}"


def of_field(described: Any) -> Field:
    """Return the column, with DuckDB's type, of a description of pymysql's.

    A BOOLEAN is an integer of one digit there; a HUGEINT a DECIMAL without places; other texts, JSON among them, are VARCHAR.
    """
    code, name = described.type_code, described.name
    if code in _INTEGERS:
        if code == 1 and described.length == 1:
            return Field(name, "BOOLEAN")
        return Field(name, f"{'U' if described.flags & _UNSIGNED else ''}{_INTEGERS[code]}")
    if code == _DECIMAL:
        places = described.scale
        # the length counts the sign, and the point where there are places behind it
        digits = described.length - 1 - (places > 0)
        if digits > 38:
            return Field(name, "UHUGEINT")
        return Field(name, f"DECIMAL({digits},{places})" if places or digits < 38 else "HUGEINT")
    if code in _BLOBS and described.charsetnr == _BINARY:
        return Field(name, "BLOB")
    return Field(name, _OTHERS.get(code, "VARCHAR"))
