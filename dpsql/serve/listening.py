"""Where a door listens: the sockets of a host and port, the same way at each.

Privacy: None: nothing of the database is here.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

_BACKLOG = 64
_TRIES = 20
"""Ports that are tried where any is wanted: one may be free of IPv4 and not of IPv6."""
_WITHOUT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
"""What a machine says that has no IPv6."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return the sockets that listen: of ``localhost`` both loopback addresses, since clients come to either; of others one.

    Parameters
    ----------
    host : str
        A name or an address; ``::`` is every address, of IPv4 too.
    port : int
        0: any that is free, the same for all of them.

    Raises
    ------
    OSError
        The port is taken, on one of the addresses: whoever has it would be shown the tokens of some of the clients.
    """
    if host.lower() != "localhost":
        return [_one(host, port)]
    for attempt in range(_TRIES):
        first = _one("127.0.0.1", port)
        try:
            return [first, _one("::1", first.getsockname()[1])]
        except OSError as error:
            if error.errno in _WITHOUT:
                return [first]
            first.close()
            if port or attempt == _TRIES - 1:
                raise
    raise OSError(errno.EADDRINUSE, "no port is free")  # pragma: no cover -- the last try raises


def _one(host: str, port: int) -> socket.socket:
    if ":" not in host:
        return socket.create_server((host, port), backlog=_BACKLOG)
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=both)


def close(sockets: list[socket.socket]) -> None:
    """Listen no longer."""
    for listening in sockets:
        with suppress(OSError):
            listening.close()
