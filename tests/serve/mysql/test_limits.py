"""What clients may take: sizes, connections, and times, each an argument. Nothing here waits longer than a fraction of a second."""

import contextlib
import socket
import struct
import threading

import pytest
from mysql_raw import Closed, Raw, error
from mysql_room import TOKENS

TOKEN = TOKENS["alice"]
SOON = 0.3
"""Seconds of a limit that a test waits for."""


def closed(raw):
    """Return what is said before a connection ends, by the server."""
    try:
        said = error(raw.read())
    except Closed:
        return None
    with pytest.raises(Closed):
        raw.read()
    return said


# before anybody is known


@pytest.mark.parametrize("sent", [b"", b"\x55", b"\x55\0\0\1", b"\x55\0\0\1\x05"])
def test_who_says_nothing_or_half_of_it_has_an_end(opening, sent):
    with opening(login=SOON) as house, Raw(house.port) as raw:
        raw.sock.sendall(sent)
        assert closed(raw) is None
        assert len(house.door._visits.values()) <= 1


def test_who_drips_has_an_end(opening):
    """A byte now and then does not put it off: the time is that of the whole of it."""
    with opening(login=SOON, packet=60.0) as house, Raw(house.port) as raw:
        gone = threading.Event()

        def drip():
            for byte in b"\x55\0\0\1" + bytes(60):
                with contextlib.suppress(OSError):
                    raw.sock.sendall(bytes([byte]))
                if gone.wait(0.05):
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert closed(raw) is None
        gone.set()
        dripping.join()


def test_half_of_a_tls_greeting_has_an_end(opening, tls):
    with opening(login=SOON, tls=tls()) as house, Raw(house.port) as raw:
        raw.send(struct.pack("<IIB23x", 0x1 | 0x200 | 0x800 | 0x8000 | 0x80000, 1 << 24, 45))
        raw.sock.sendall(b"\x16\x03\x01\x02\0\x01")
        assert closed(raw) is None


def test_a_stranger_sends_no_large_packet(opening):
    with opening() as house, Raw(house.port) as raw:
        raw.sock.sendall(b"\xff\xff\xff\1")
        assert closed(raw) == (1153, "Got a packet bigger than 16384 bytes, which is what is taken")


def test_the_stranger_that_waits_longest_makes_room(opening):
    """A crowd that says nothing does not keep an analyst out."""
    with opening(strangers=3) as house, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(Raw(house.port)) for _ in range(5)]
        for raw in crowd[:2]:
            assert closed(raw) is None
        with Raw(house.port) as alice:
            assert alice.login("alice", token=TOKEN)[0] == 0
            assert len(alice.query("SELECT 1")) == 1
        assert closed(crowd[2]) is None
        assert sum(visit.name is None for visit in house.door._visits.values()) <= 3


# in all, and of one


def test_connections_in_all(opening):
    with opening(connections=3, strangers=2) as house, contextlib.ExitStack() as stack:
        for _ in range(3):
            raw = stack.enter_context(Raw(house.port))
            assert raw.login("alice", token=TOKEN)[0] == 0
        with Raw(house.port, greet=False) as late:
            assert closed(late) == (1040, "Too many connections to this server")
        raw.command(1)
        with pytest.raises(Closed):
            raw.read()
        for _ in range(600):  # the thread of the one that left ends by itself
            with Raw(house.port, greet=False) as late:
                if late.read()[0] == 0x0A:
                    return
        pytest.fail("the place of a connection that ended was not free again")


def test_connections_of_one_analyst(opening):
    with opening(each=2) as house, contextlib.ExitStack() as stack:
        for _ in range(2):
            assert stack.enter_context(Raw(house.port)).login("alice", token=TOKEN)[0] == 0
        with Raw(house.port) as third:
            assert error(third.login("alice", token=TOKEN)) == (1040, "Too many connections of alice")
            with pytest.raises(Closed):
                third.read()
        with Raw(house.port) as other:
            assert other.login("bob", token=TOKENS["bob"])[0] == 0
        with Raw(house.port) as wrong:  # who has no token does not learn how many there are
            assert error(wrong.login("alice", b"x" * 20))[0] == 1045


# after it


def test_an_idle_session_has_an_end(opening):
    with opening(idle=SOON) as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        assert closed(raw) is None


@pytest.mark.parametrize("sent", [b"\x09", b"\x09\0\0\0", b"\x09\0\0\0\x03SEL"])
def test_half_of_a_command_has_an_end(opening, sent):
    with opening(packet=SOON) as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        raw.sock.sendall(sent)
        assert closed(raw) is None


def test_who_does_not_take_the_answer_has_an_end(opening):
    with opening(packet=SOON) as house:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(("127.0.0.1", house.port))
        raw = Raw.__new__(Raw)
        raw.sock, raw.sequence = sock, 0
        with raw:
            raw.greeting = raw.read()
            raw.login("alice", token=TOKEN)
            for _ in range(40):
                with contextlib.suppress(OSError):  # gone already
                    raw.command(3, "SELECT " + ", ".join(f"REPEAT('x', 65536) AS a{i}" for i in range(50)) + " FROM wards")
            visits = list(house.door._visits.values())
            for visit in visits:
                visit.thread.join(60)
            assert not any(visit.thread.is_alive() for visit in visits)


def test_packets_have_a_size(opening):
    with opening(largest=1000) as house:
        with Raw(house.port) as raw:
            raw.login("alice", token=TOKEN)
            raw.sequence = 0
            raw.sock.sendall(struct.pack("<I", 1001))
            assert closed(raw) == (1153, "Got a packet bigger than 1000 bytes, which is what is taken")
        with Raw(house.port) as raw:  # the next piece of a split one
            raw.login("alice", token=TOKEN)
            raw.sock.sendall(struct.pack("<I", 0xFFFFFF))
            assert closed(raw)[0] == 1153
        with Raw(house.port) as raw:  # values in pieces count together
            raw.login("alice", token=TOKEN)
            number, _, _ = raw.prepare("SELECT ?")
            for _ in range(2):
                raw.command(0x18, struct.pack("<IH", number, 0) + b"x" * 600)
            assert raw.execute(number, b"\0\1" + struct.pack("<H", 252))[0] == 1153


def test_a_split_packet_of_sixteen_megabytes(opening):
    """Its rest is read, what is longer is refused, and the text in it is too long for a statement."""
    with opening() as house:
        with Raw(house.port) as raw:
            raw.login("alice", token=TOKEN)
            raw.sequence = 0
            raw.sock.sendall(raw.packet(b"\x03" + b" " * (0xFFFFFF - 1)) + raw.packet(b""))
            assert error(raw.read()) == (1142, "a statement has at most 131072 characters")
            assert len(raw.query("SELECT 1")) == 1
        with Raw(house.port) as raw:
            raw.login("alice", token=TOKEN)
            raw.sequence = 0
            with contextlib.suppress(OSError):
                raw.sock.sendall(raw.packet(b"\x03" + b" " * (0xFFFFFF - 1)) + raw.packet(bytes(100)))
            assert closed(raw) in (None, (1153, "Got a packet bigger than 16777216 bytes, which is what is taken"))


HARD = {
    "brackets": "SELECT " + "(" * 50_000,
    "sums": "SELECT " + "1+" * 20_000 + "1",
    "nots": "SELECT " + "NOT " * 2_000 + "1",
    "columns": "SELECT " + "1," * 20_000 + "1",
    "a string without an end": "SELECT '" + "''" * 60_000,
    "comments": "/*" * 60_000,
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 99 + "wards" + ") x" * 99,
    "long": "x" * 200_000,
}


@pytest.mark.parametrize("text", HARD)
def test_a_text_that_is_hard_to_read_is_refused(house, text):
    with Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        assert raw.query(HARD[text])[0] in (1064, 1142, 1235)
        assert len(raw.query("SELECT 1")) == 1
