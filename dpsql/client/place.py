"""The address of a served database."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from dpsql.errors import ArgumentError

_PORTS = {"mysql": 3306, "grpc": 31337, "grpc+tls": 31337, "quack": 9494}
_EXPECTED = "'mysql://alice@host:3306/census', 'grpc://alice@host:31337', 'grpc+tls://...' or 'quack://host:9494'"


@dataclass(frozen=True)
class Place:
    """An address without what is secret."""

    scheme: str
    host: str
    port: int
    name: str
    database: str
    secret: bool
    """Whether a password stood in it."""

    @classmethod
    def of(cls, url: object) -> Self:
        """Read an address.

        Raises
        ------
        ArgumentError
            It is none, or of another protocol.
        """
        try:
            parts = urlsplit(url) if isinstance(url, str) else None
            port = None if parts is None else parts.port
        except ValueError:
            parts = port = None
        if parts is None or parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ArgumentError("url", _without_password(url), f"an address: {_EXPECTED}")
        name, database = unquote(parts.username or ""), unquote(parts.path.strip("/"))
        if parts.scheme != "quack" and not name:
            raise ArgumentError("url", _without_password(url), f"whose token it is stands before the host: {_EXPECTED}")
        if parts.scheme == "mysql" and not database:
            raise ArgumentError("url", _without_password(url), f"the name of the database stands behind the port: {_EXPECTED}")
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], name, database, parts.password is not None)

    @property
    def local(self) -> bool:
        """Whether the host is this machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address as messages have it."""
        return f"{self.scheme}://{self.name}{'@' if self.name else ''}{self.authority}{'/' if self.database else ''}{self.database}"

    def __str__(self) -> str:
        return self.shown


def _without_password(url: object) -> object:
    """Return an address that is not understood as a message may have it."""
    if not isinstance(url, str) or "@" not in url:
        return url
    # the last @ ends the password, which may have some of its own
    before, _, rest = url.rpartition("@")
    scheme, slashes, who = before.rpartition("//")
    return f"{scheme}{slashes}{who.partition(':')[0]}@{rest}"
