"""Doors on loopback: before the room that serves a database, and before a small one of the tests' own (`mysql_room`)."""

import contextlib
from types import SimpleNamespace

import pytest
from mysql_room import TOKENS, FakeKeys, FakeRoom
from served_room import served

pytest.importorskip("pyarrow.flight", reason="pyarrow, on which the door stands, is not there")

from flight_raw import bearer

from dpsql.serve.flight.door import FlightDoor
from dpsql.serve.flight.front import FlightLimits


@contextlib.contextmanager
def opened(tls=None, every=0.0, room=None, **limits):
    room, keys = room or FakeRoom(), FakeKeys()
    door = FlightDoor(room, keys, "127.0.0.1", 0, tls=tls, every=every, limits=FlightLimits(**limits))
    door.start()
    try:
        yield SimpleNamespace(door=door, port=door.port, room=room, keys=keys, front=door._front)
    finally:
        if isinstance(room, FakeRoom):
            room.hold.set()
        door.stop()


@pytest.fixture
def opening():
    """Doors with other limits."""
    return opened


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A door before a served database, that the tests of a file share."""
    with served(tmp_path_factory.mktemp("served")) as found, opened(room=found.room) as made:
        made.served = found
        yield made


@pytest.fixture(scope="module")
def alice(house):
    with bearer(house.port, TOKENS["alice"]) as client:
        yield client


@pytest.fixture(scope="module")
def bob(house):
    with bearer(house.port, TOKENS["bob"]) as client:
        yield client
