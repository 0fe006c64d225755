"""A door on loopback, with a room and keys of the tests' own (`mysql_room`)."""

import contextlib
import ssl
from types import SimpleNamespace

import pytest
from mysql_room import FakeKeys, FakeRoom

from dpsql.serve.mysql.door import MysqlDoor
from dpsql.serve.mysql.login import Tls
from dpsql.serve.visits import Limits


@contextlib.contextmanager
def opened(tls=None, every=0.0, **limits):
    room, keys = FakeRoom(), FakeKeys()
    door = MysqlDoor(room, keys, "127.0.0.1", 0, tls=tls, every=every, limits=Limits(**limits))
    door.start()
    try:
        yield SimpleNamespace(door=door, port=door.port, room=room, keys=keys)
    finally:
        room.hold.set()
        door.stop()


@pytest.fixture(scope="module")
def house():
    """A door that the tests of a file share."""
    with opened() as made:
        yield made


@pytest.fixture
def opening():
    """Doors with other limits."""
    return opened


@pytest.fixture
def tls(certificate):
    """Make TLS of a door."""

    def made(*, required=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        return Tls(context, required)

    return made
