"""Who comes in: a name with its token, or a token; everybody else hears the same, from every method."""

import base64

import pyarrow as pa
import pytest
from flight_raw import Client, bearer, command, query
from mysql_room import TOKENS
from pyarrow import flight

DENIED = "access denied (name, token, or a token that is over)"


@pytest.fixture(scope="module")
def door(house):
    return house


def basic(name, token):
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


def said(call):
    with pytest.raises((flight.FlightUnauthenticatedError, OSError)) as found:  # the latter from pyarrow's get_schema
        call()
    text = str(found.value)
    assert ".py" not in text and "Traceback" not in text
    return text


WRONG = {
    "nothing": [],
    "an empty one": [("authorization", "")],
    "a wrong token": [("authorization", basic("alice", "dpsql_wrong"))],
    "an empty token": [("authorization", basic("alice", ""))],
    "a name that nobody has": [("authorization", basic("nobody", "dpsql_wrong"))],
    "no name": [("authorization", basic("", TOKENS["alice"]))],
    "another's token": [("authorization", basic("bob", TOKENS["alice"]))],
    "a name with a space": [("authorization", basic(" alice", TOKENS["alice"]))],
    "no colon": [("authorization", "Basic " + base64.b64encode(b"alice").decode())],
    "no base64": [("authorization", "Basic ????")],
    "no text": [("authorization", "Basic " + base64.b64encode(b"alice:\xff\xfe").decode())],
    "a wrong bearer": [("authorization", "Bearer dpsql_wrong")],
    "an empty bearer": [("authorization", "Bearer ")],
    "a bearer with more": [("authorization", f"Bearer {TOKENS['alice']} ")],
    "half a bearer": [("authorization", f"Bearer {TOKENS['alice'][:-1]}")],
    "another scheme": [("authorization", f"Token {TOKENS['alice']}")],
    "a long one": [("authorization", "Basic " + "A" * 4000)],
    "two": [("authorization", f"Bearer {TOKENS['alice']}"), ("authorization", f"Bearer {TOKENS['bob']}")],
    "another connection's": [("x-dpsql-connection", "0" * 32)],
}


@pytest.mark.parametrize("shown", WRONG)
def test_nobody_comes_in(door, shown):
    with Client(door.port, *WRONG[shown]) as client:
        assert DENIED in said(lambda: client.info(query("SELECT 1")))


def test_from_no_method(door):
    """Nobody who shows no token learns anything from any of them."""
    data, table = command(query("SELECT 1")), pa.table({"a": [1]})
    with Client(door.port) as client:
        raw, options = client.raw, client.options
        calls = (
            lambda: raw.get_schema(data, options), lambda: client.get(b"x"), lambda: client.act("CreatePreparedStatement", b"x"), lambda: list(raw.list_flights(b"", options)),
            lambda: list(raw.list_actions(options)), lambda: client.put(query("x"), table), lambda: raw.authenticate_basic_token(b"alice", b"x"),
        )  # fmt: skip
        assert {said(call).split(". ")[0] for call in calls} == {DENIED}


def test_a_handshake_shows_the_token_from_then_on(door):
    with Client(door.port) as client:
        header = client.raw.authenticate_basic_token(b"alice", TOKENS["alice"].encode())
        assert header == (b"authorization", f"Bearer {TOKENS['alice']}".encode())
        client.options = flight.FlightCallOptions(headers=[header])
        assert client.ask("SELECT 1 AS a").to_pylist() == [{"a": 1}]
    for name in ("alice", "bob"):  # and each call may show both
        with Client(door.port, ("authorization", basic(name, TOKENS[name]))) as client:
            client.ask("SELECT 1")
    with Client(door.port, ("authorization", basic("alice", TOKENS["alice"]).rstrip("="))) as client:  # as clients in Go write it
        client.ask("SELECT 1")


def test_who_is_asking_is_whose_token_it_is(house):
    for name in ("alice", "bob"):
        with bearer(house.port, TOKENS[name]) as client:
            client.ask("SELECT count(*) FROM visits WHERE ward = 'A'")
            assert {row["who"] for row in client.ask("FROM dp_ledger()").to_pylist()} == {f"analyst {name}"}


def test_a_token_that_is_revoked_is_over_at_once(opening):
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        ticket = client.info(query("SELECT 1")).endpoints[0].ticket
        assert client.get(ticket).num_rows == 1
        made.keys.numbers["alice"] = 3  # another token than the one the ticket was given for
        with pytest.raises(flight.FlightUnauthorizedError, match="none of yours"):
            client.get(ticket)
        made.keys.tokens["alice"] = "dpsql_new"
        assert DENIED in said(lambda: client.get(ticket))


def test_no_method_brings_a_trace(opening):
    """What is raised inside of each is said in one line."""
    table = pa.table({"a": [1]})
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        made.keys.number = lambda name: 1 // 0
        raw, options = client.raw, client.options
        calls = {
            "info": lambda: client.info(query("SELECT 1")), "get": lambda: client.get(b"x"), "act": lambda: client.act("CreatePreparedStatement", b"x"), "put": lambda: client.put(query("x"), table),
            "flights": lambda: list(raw.list_flights(b"", options)), "actions": lambda: list(raw.list_actions(options)), "schema": lambda: raw.get_schema(command(b"x"), options),
            "exchange": lambda: raw.do_exchange(command(b"x"), options)[1].read_chunk(),
        }  # fmt: skip
        for name, call in calls.items():
            with pytest.raises((flight.FlightError, OSError)) as found:
                call()
            assert "Traceback" not in str(found.value) and ".py" not in str(found.value), (name, str(found.value))


def test_an_answer_that_breaks_off_brings_no_trace(opening):
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        schema = pa.schema([("a", pa.int64())])
        made.door._service._commands.answer = lambda *_: (schema, (1 // 0 for _ in range(2)))
        with pytest.raises(flight.FlightError) as found:
            client.get(b"x")
        assert "could not answer this" in str(found.value) and "Traceback" not in str(found.value) and ".py" not in str(found.value)


def test_while_a_statement_runs(opening):
    """What was asked before the token was revoked is not answered after it."""
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        ticket = client.info(query("SELECT 'wait'")).endpoints[0].ticket
        ask = made.room.ask

        def revoked(*given):
            made.keys.numbers["alice"] = 3
            return ask(*given)

        made.room.ask = revoked
        assert DENIED in said(lambda: client.get(ticket))
