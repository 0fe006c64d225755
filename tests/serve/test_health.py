"""The door for whoever watches processes: who says nothing, or too much, keeps nobody else from being answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from prepared import beside
from served_room import Served
from struck import LONG

from dpsql.serve.health import HealthDoor
from dpsql.serve.options import Address
from dpsql.serve.visits import Limits

STRANGERS = 8


@pytest.fixture(scope="module")
def door(hospital: Served) -> Iterator[HealthDoor]:
    """A door that waits for as long as a test may take, with room for those that are told to go and have not yet gone."""
    limits = Limits(connections=5 * STRANGERS, strangers=STRANGERS, packet=LONG, largest=1 << 12)
    found = HealthDoor(hospital.room, Address("127.0.0.1", 0), beside(hospital.con), limits)
    found.start()
    yield found
    found.stop()


def came(door: HealthDoor, said: bytes) -> socket.socket:
    """Return a connection that has said something."""
    found = socket.create_connection(("127.0.0.1", door.port), timeout=LONG)
    found.sendall(said)
    return found


def asked(door: HealthDoor, said: bytes) -> bytes:
    """Return all that is answered."""
    with came(door, said) as connection:
        return b"".join(iter(lambda: connection.recv(4096), b""))


def open_still(connection: socket.socket) -> bool:
    """Return whether the other side has not ended a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def test_who_is_slow_keeps_nobody_waiting(door: HealthDoor) -> None:
    """Answered while half a request of another one is waited for; of too many of them the one that waits longest goes."""
    slow = [came(door, b"GET /hea") for _ in range(STRANGERS - 1)]
    assert asked(door, b"GET /health HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nok\n")
    assert all(map(open_still, slow))
    slow += [came(door, b"GET /hea") for _ in range(3 * STRANGERS)]
    assert asked(door, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    for connection in slow:
        connection.close()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"POST /health HTTP/1.1\r\n\r\n", b"400"), (b"HEAD /health HTTP/1.1\r\n\r\n", b"400"), (b"\r\n\r\n", b"400"), (b"\xff" * 4096, b"400"),
        (b"GET /analysts.toml HTTP/1.1\r\n\r\n", b"404"), (b"GET /health/ HTTP/1.1\r\n\r\n", b"404"), (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
    ],
)  # fmt: skip
def test_nothing_else_is_said(door: HealthDoor, said: bytes, status: bytes) -> None:
    answer = asked(door, said)
    assert answer.split(b" ")[1] == status and answer.count(b"\n") == 6 and b"html" not in answer.lower()
