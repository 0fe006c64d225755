"""Where doors listen: `localhost` is both loopback addresses, an address of IPv6 is one, on every door alike."""

import contextlib
import errno
import socket

import pytest

from dpsql.serve import listening
from dpsql.serve.flight.front import Front
from dpsql.serve.mysql.door import MysqlDoor


def reached(address, port):
    try:
        with socket.create_connection((address, port), timeout=5):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
with contextlib.closing(socket.socket(socket.AF_INET6)) as _tried:
    try:
        _tried.bind(("::1", 0))
    except OSError:
        pytestmark = pytest.mark.skip(reason="no IPv6 here")


@pytest.mark.parametrize(("host", "both"), [("localhost", (True, True)), ("LocalHost", (True, True)), ("127.0.0.1", (True, False)), ("::1", (False, True))])
@pytest.mark.parametrize("kind", ["mysql", "flight"])
def test_a_door_is_reached(host, both, kind, tmp_path):
    door = MysqlDoor(None, None, host, 0) if kind == "mysql" else Front(host, 0, tmp_path / "inside")
    door.start()
    port = door.port
    try:
        assert (reached("127.0.0.1", port), reached("::1", port)) == both
    finally:
        door.stop(1.0)
    assert not reached("127.0.0.1", port) and not reached("::1", port)


def test_who_has_one_of_both_keeps_the_door_shut():
    """Another process on ::1 would be shown the tokens of clients that name localhost."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other, pytest.raises(OSError) as error:
        listening.listen("localhost", other.getsockname()[1])
    assert error.value.errno == errno.EADDRINUSE


def test_a_machine_without_ipv6_listens_on_the_other(monkeypatch):
    real = listening._one

    def without(host, port):
        if ":" in host:
            raise OSError(errno.EADDRNOTAVAIL, "no such address")
        return real(host, port)

    monkeypatch.setattr(listening, "_one", without)
    found = listening.listen("localhost", 0)
    assert [one.getsockname()[0] for one in found] == ["127.0.0.1"]
    listening.close(found)


def test_any_port_is_the_same_on_both(monkeypatch):
    real, asked = listening._one, []

    def taken(host, port):
        asked.append(host)
        if asked == ["127.0.0.1", "::1"]:
            raise OSError(errno.EADDRINUSE, "taken")
        return real(host, port)

    monkeypatch.setattr(listening, "_one", taken)
    found = listening.listen("localhost", 0)
    assert len(asked) == 4 and len({one.getsockname()[1] for one in found}) == 1
    listening.close(found)
