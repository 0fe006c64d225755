"""What `dpsql serve` is told, checked before anything is opened."""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import ArgumentError
from dpsql.serve.opening import MEMORY

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|)")
_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}
CLEAR = (
    "warning: {address} can be reached from other machines, and without TLS: tokens and answers can be read on the way. Say "
    "--tls-cert and --tls-key"
)


@dataclass(frozen=True)
class Address:
    """Where a door listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether no other machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


@dataclass(frozen=True)
class Options:
    """What `dpsql serve` is told.

    Parameters
    ----------
    database : Path
    analysts : Path
        The file that says who may come in.
    mysql, quack, flight : Address, optional
        Where these doors listen; at least one does.
    health : Address, optional
        Where whoever watches processes asks whether the server answers; a loopback address.
    status : Address, optional
        Where the custodian looks at budgets and analysts; a loopback address.
    tls_cert, tls_key : Path, optional
        Files of certificate and key for the doors of MySQL and Flight SQL, in PEM.
    allow_unencrypted : bool
        Whether these may listen beyond the loopback address without them.
    memory : str
        DuckDB's memory limit.
    store : Path, optional
        Folder of the releases.
    time_limit : float
        Seconds of one statement; one that buys may take ten times as long.
    log : Path, optional
        Where a line is written for each question.
    answer_every : float
        Answers leave at multiples of so many seconds after the question came; 0: at once.

    Raises
    ------
    ArgumentError
        They do not go together.
    """

    database: Path
    analysts: Path
    mysql: Address | None = None
    quack: Address | None = None
    flight: Address | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allow_unencrypted: bool = False
    memory: str = MEMORY
    store: Path | None = None
    time_limit: float = 60.0
    answer_every: float = 0.0
    log: Path | None = None
    health: Address | None = None
    status: Address | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without opening anything."""
        named = (("mysql", self.mysql), ("quack", self.quack), ("flight", self.flight))
        doors = [(name, at) for name, at in named if at is not None]
        if not doors:
            raise ArgumentError("mysql", None, "say where analysts come in: --mysql localhost:3306, or --flight, --quack")
        for name, at in (("health", self.health), ("status", self.status)):
            if at is not None:
                doors.append((name, at))
                if not at.loopback:
                    raise ArgumentError(name, str(at), "only a loopback address is listened on: localhost:8306")
        for (first, at), (name, second) in itertools.combinations(doors, 2):
            if at == second and at.port:
                raise ArgumentError(name, str(second), f"is where --{first} listens; take another port")
        if not 0 < self.time_limit < math.inf:
            raise ArgumentError("time-limit", self.time_limit, "seconds above 0 are required")
        if not 0 <= self.answer_every < math.inf:
            raise ArgumentError("answer-every", self.answer_every, "a time of 0 or more is required: 1s, 500ms")
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls-cert" if self.tls_cert is None else "tls-key"
            raise ArgumentError(missing, None, "certificate and key go together: --tls-cert FILE --tls-key FILE")
        if self.quack is not None and not self.quack.loopback:
            raise ArgumentError(
                "quack", str(self.quack), "only a loopback address is served (localhost:9494): Quack here is not encrypted. Put a "
                "reverse proxy with TLS before it"
            )  # fmt: skip
        for name, at in self._clear():
            if not self.allow_unencrypted:
                raise ArgumentError(
                    name, str(at), "other machines reach this address, so tokens and answers could be read on the way: say "
                    "--tls-cert and --tls-key, or listen on localhost; --allow-unencrypted, where nobody else is on the network"
                )  # fmt: skip

    def _clear(self) -> list[tuple[str, Address]]:
        """Return the doors that other machines reach without TLS."""
        doors = (("mysql", self.mysql), ("flight", self.flight))
        return [(name, at) for name, at in doors if at is not None and not at.loopback and self.tls_cert is None]

    def warnings(self) -> list[str]:
        """Return what the custodian should know of the doors."""
        return [CLEAR.format(address=at) for _, at in self._clear()]

    def tls(self) -> ssl.SSLContext | None:
        """Return what the doors of MySQL and Flight SQL encrypt with, each of its own; None: nothing.

        Raises
        ------
        ArgumentError
            The files cannot be read, or are not certificate and key.
        """
        if self.tls_cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password=_no_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            why = getattr(error, "strerror", None) or "no PEM"
            told = f"and --tls-key cannot be read as a certificate and its key, in PEM and without a password ({why})"
            raise ArgumentError("tls-cert", str(self.tls_cert), told) from None
        return context


def address(argument: str, text: str) -> Address:
    """Return a host and a port.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> address("mysql", "localhost:3306"), str(address("mysql", "[::1]:3306"))
    (Address(host='localhost', port=3306), '[::1]:3306')
    """
    match = _ADDRESS.fullmatch(text)
    if not match or int(match[2]) >= 1 << 16:
        raise ArgumentError(argument, text, "a host and a port are required: localhost:3306")
    return Address(match[1].strip("[]"), int(match[2]))


def seconds(argument: str, text: str) -> float:
    """Return how many seconds '1s', '500ms' or '2' are.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> seconds("answer-every", "500ms"), seconds("answer-every", "2")
    (0.5, 2.0)
    """
    match = _SECONDS.fullmatch(text)
    if not match:
        raise ArgumentError(argument, text, "a time is required: 1s, 500ms, 2m")
    return float(match[1]) * _UNITS[match[2]]


def _no_password() -> str:
    """Stand where OpenSSL would ask at the terminal."""
    return ""
