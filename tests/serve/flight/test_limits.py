"""What clients may take: sizes, connections, calls and times, each an argument. Nothing here waits longer than a fraction of a second."""

import contextlib
import threading

import pytest
from flight_raw import PREFACE, Raw, bearer, counted, frame, grpc, headers, message, query
from mysql_room import TOKENS
from pyarrow import flight

SOON = 0.3
"""Seconds of a limit that a test waits for."""
TOKEN = ("authorization", f"Bearer {TOKENS['alice']}")


def known(made, raw, *shown):
    """Be let in, by a call that is answered."""
    raw.send(headers(1, *(shown or [TOKEN])) + frame(0, 1, 1, grpc(b"")))
    for kind, flags, stream, _ in raw.frames():
        if stream == 1 and kind == 1 and flags & 1:
            break
    assert "alice" in [visit.name for visit in made.front._visits.values()]


# before anybody is known


@pytest.mark.parametrize("sent", [b"", b"P", PREFACE, PREFACE + frame(4, 0, 0), PREFACE + frame(4, 0, 0) + headers(1, TOKEN)[:20], PREFACE + frame(4, 0, 0) + headers(1, TOKEN), b"\x16\x03\x01"], ids=range(7))
def test_who_shows_no_token_has_an_end(opening, sent):
    """Nothing, half of a greeting, half of a call, and a call that does not end (gRPC looks at a whole one)."""
    with opening(login=SOON) as made, Raw(made.port, greet=False) as raw:
        raw.send(sent)
        raw.ended()
        assert not made.front._visits.values()


def test_who_drips_has_an_end(opening):
    """A ping now and then does not put it off."""
    with opening(login=SOON) as made, Raw(made.port) as raw:
        gone = threading.Event()

        def drip():
            while not gone.wait(0.05):
                raw.send(frame(6, 0, 0, bytes(8)))

        dripping = threading.Thread(target=drip)
        dripping.start()
        raw.ended()
        gone.set()
        dripping.join()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", PREFACE[:-1] + b"x", bytes(24)], ids=range(3))
def test_what_is_no_client_of_grpc_ends_at_once(opening, sent):
    with opening() as made, Raw(made.port, greet=False) as raw:
        raw.send(sent)
        assert raw.ended() == b""


HEAVY = {
    "many bytes": lambda: frame(6, 0, 0, bytes(8)) * 20_000,
    "a large call": lambda: headers(1) + frame(0, 0, 1, grpc(bytes(16_000), claimed=1 << 20)),
    "a call that says it is": lambda: headers(1) + frame(0, 0, 1, grpc(b"", claimed=1 << 31)),
    "many calls": lambda: b"".join(headers(2 * call + 1) + frame(3, 0, 2 * call + 1, bytes(4)) for call in range(20)),
    "large headers": lambda: frame(1, 4, 1, bytes(100_000)),
    "headers without an end": lambda: headers(1, flags=0) + frame(9, 0, 1, bytes(16_000)) * 40,
    "a compressed call": lambda: headers(1) + frame(0, 1, 1, grpc(b"x" * 100, compressed=1)),
    "a padded one": lambda: headers(1) + frame(0, 8, 1, b"\x01" + grpc(b"") + b"\0"),
}


@pytest.mark.parametrize("sent", HEAVY)
def test_a_stranger_sends_nothing_large(opening, sent):
    with opening() as made, Raw(made.port) as raw:
        raw.send(HEAVY[sent]())
        raw.ended()


def test_the_stranger_that_waits_longest_makes_room(opening):
    """A crowd that says nothing does not keep an analyst out."""
    with opening(strangers=3) as made, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(Raw(made.port, greet=False)) for _ in range(5)]
        for raw in crowd[:2]:
            raw.ended()
        with bearer(made.port, TOKENS["alice"]) as client:
            assert client.ask("SELECT 1").num_rows == 1
        crowd[2].ended()
        assert sum(visit.name is None for visit in made.front._visits.values()) <= 3


def test_who_says_another_connection_is_not_taken_for_it(opening):
    """The front's word is the last one; a client that swallows it is not let in."""
    with opening() as made, Raw(made.port) as raw, Raw(made.port) as other:
        known(made, raw, ("x-dpsql-connection", "0" * 32), TOKEN)
        swallowing = headers(1, TOKEN)[9:] + b"\0\x01a\x7f\x80\x01"  # a header whose value goes on, over what the front says
        other.send(frame(1, 4, 1, swallowing) + frame(0, 1, 1, grpc(b"")))
        for kind, _, stream, payload in other.frames():
            assert kind != 0 or stream != 1 or not payload
            if kind in (3, 7) or (kind == 1 and stream == 1):
                break
        assert [visit.name for visit in made.front._visits.values() if visit.name] == ["alice"]


# in all, and of one


def test_connections_in_all(opening):
    with opening(connections=2) as made, Raw(made.port) as first, Raw(made.port) as second:
        known(made, first)
        known(made, second)
        with Raw(made.port, greet=False) as late:
            assert late.ended() == b""
        first.sock.close()
        for attempt in range(1000):  # the task of the one that left ends by itself
            with bearer(made.port, TOKENS["bob"]) as client:
                try:
                    assert client.ask("SELECT 1").num_rows == 1
                    break
                except flight.FlightUnavailableError:
                    assert attempt < 999, "the place of the one that left is not free"


def test_connections_of_one_analyst(opening):
    with opening(each=1) as made, Raw(made.port) as raw:
        known(made, raw)
        with bearer(made.port, TOKENS["alice"]) as second, pytest.raises(flight.FlightUnavailableError, match="too many connections of alice"):
            second.info(query("SELECT 1"))
        with bearer(made.port, TOKENS["bob"]) as other:
            assert other.ask("SELECT 1").num_rows == 1


# after it


def test_calls_at_once(opening):
    """Clients are told how many there may be; who opens more has an end."""
    with opening(calls=4) as made, Raw(made.port) as raw:
        settings = next(payload for kind, flags, _, payload in raw.frames() if kind == 4 and not flags & 1)
        assert settings[-6:] == b"\0\x03\0\0\0\x04"
        known(made, raw)
        raw.send(b"".join(headers(2 * call + 3, TOKEN) for call in range(5)))
        raw.ended()


def test_an_idle_connection_has_an_end(opening):
    with opening(idle=SOON) as made, Raw(made.port) as raw:
        known(made, raw)
        raw.ended()


def test_half_of_a_frame_has_an_end(opening):
    with opening(packet=SOON) as made, Raw(made.port) as raw:
        known(made, raw)
        raw.send(headers(3, TOKEN) + frame(0, 1, 3, grpc(bytes(100)))[:50])
        raw.ended()


def test_who_grants_no_room_for_the_answer_has_an_end(opening):
    """It reads what comes, and says of no piece that another may follow."""
    with opening(taking=SOON) as made, Raw(made.port, greet=False) as raw:
        with bearer(made.port, TOKENS["alice"]) as client:
            ticket = client.info(query("SELECT repeat('x', 60000) AS a FROM visits_synth")).endpoints[0].ticket.ticket
        raw.send(PREFACE + frame(4, 0, 0, b"\0\x04\0\0\0\x64"))  # a window of 100 bytes
        raw.send(headers(1, TOKEN, method="DoGet") + frame(0, 1, 1, grpc(counted(1, ticket))))
        assert b"xxx" not in raw.ended()


def test_a_statement_that_is_too_long(opening, house, alice):
    """Up to a limit it is refused in words; beyond it the connection ends."""
    for size in (100_001, 1_000_000):
        with pytest.raises(flight.FlightError, match="too long"):
            alice.info(query("SELECT 1 " + " " * size))
    with opening(largest=1 << 18) as made, bearer(made.port, TOKENS["alice"]) as client:
        client.ask("SELECT 1")
        with pytest.raises(flight.FlightError):
            client.info(query("SELECT 1 " + " " * (1 << 19)))
        with bearer(made.port, TOKENS["alice"]) as again:
            assert again.ask("SELECT 1").num_rows == 1


HARD = {
    "brackets": "SELECT " + "(" * 50_000,
    "sums": "SELECT " + "1+" * 20_000 + "1",
    "nots": "SELECT " + "NOT " * 2_000 + "1",
    "a string without an end": "SELECT '" + "''" * 40_000,
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 99 + "wards" + ") x" * 99,
}


@pytest.mark.parametrize("text", HARD)
def test_a_text_that_is_hard_to_read(alice, text):
    with contextlib.suppress(flight.FlightError):
        alice.ask(HARD[text])
    assert alice.ask("SELECT 1").num_rows == 1


@pytest.mark.parametrize("pattern", ["%" * 100_000 + "x", "%a" * 40_000, "\\" * 100_001, "_" * 100_000])
def test_a_pattern_that_is_hard_to_match(alice, pattern):
    assert alice.ask(message("CommandGetTables", (3, pattern))).num_rows == 0


def test_an_answer_that_is_begun_is_finished_when_the_door_closes(opening):
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        ticket = client.info(query("SELECT 'wait' AS a")).endpoints[0].ticket
        made.room.hold.clear()
        found = []
        asking = threading.Thread(target=lambda: found.append(client.get(ticket).num_rows))
        asking.start()
        assert made.room.waiting.wait(60)
        closing = threading.Thread(target=made.door.stop)
        closing.start()
        made.room.hold.set()
        asking.join()
        closing.join()
        assert found == [1]
        with pytest.raises(flight.FlightError):
            client.ask("SELECT 1")
