"""Statements before the room that serves a database: what one analyst gets, and what nobody does."""

import datetime as dt
import re
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest
from flight_raw import bearer, command, message, parts, query
from hostile_statements import HOSTILE
from mysql_room import TOKENS
from pyarrow import flight
from served_room import SENTINEL

MACHINE = re.compile(r"Traceback|\.pyx?\b|site-packages|line \d+, in |File \"|/tmp|/home|pytest")
AGGREGATE = "SELECT ward, count(*) AS n, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"
PREPARED, CLOSE = "CommandPreparedStatementQuery", "ActionClosePreparedStatementRequest"


def refused(call, kind=(flight.FlightError, OSError)):  # the latter from pyarrow's get_schema
    with pytest.raises(kind) as found:
        call()
    text = str(found.value)
    assert not MACHINE.search(text) and "\n" not in text, text
    return text


def test_an_answer_is_the_rooms(house, alice):
    """Describing buys nothing; asking again, by other ways too, is free."""
    before = house.served.charges()
    info = alice.info(query(AGGREGATE))
    assert [str(field.type) for field in info.schema] == ["string", "int64", "double"] and house.served.charges() == before
    table = alice.get(info.endpoints[0].ticket)
    assert table.schema == info.schema and house.served.charges() == before + 1
    assert [tuple(row.values()) for row in table.to_pylist()] == house.served.ask(AGGREGATE)
    handle = alice.prepare("SELECT ward, count(1) AS n, avg(cost) AS mean FROM visits GROUP BY 1 ORDER BY ward")
    assert alice.ask(message(PREPARED, (1, handle))) == table == alice.get(info.endpoints[0].ticket)
    assert house.served.charges() == before + 1


VALUES = (
    None, True, 5, -(2**63), 1.5, Decimal("1.250"), "O'Brien ?", "", "ä", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 5, 250), dt.time(23, 59),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
)  # fmt: skip


def bound(client, text, *columns):
    """The answer of a prepared statement with values."""
    handle = client.prepare(text)
    client.put(message(PREPARED, (1, handle)), pa.table({str(place): column for place, column in enumerate(columns)}))
    return client.ask(message(PREPARED, (1, handle)))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(alice, value):
    column = pa.array([value])
    assert bound(alice, "SELECT ? AS v, $1 AS again" if value is None else "SELECT $1 AS v, $1 AS again", column).to_pylist() == [{"v": value, "again": value}]


def test_values_of_other_types(alice):
    whole = [pa.array([2**40], pa.int64()), pa.array([2**63], pa.uint64()), pa.array(["a"]).dictionary_encode(), pa.array([dt.datetime(2024, 1, 2, 3)], pa.timestamp("ns"))]
    assert list(bound(alice, "SELECT ? a, ? b, ? c, ? d", *whole).to_pylist()[0].values()) == [2**40, 2**63, "a", dt.datetime(2024, 1, 2, 3)]
    for other in (pa.array([b"x"]), pa.array([[1]]), pa.array([{"a": 1}]), pa.array([dt.timedelta(1)]), pa.array([1], pa.timestamp("ns"))):
        assert refused(lambda other=other: bound(alice, "SELECT ?", other))


def test_values_are_one_row_of_as_many_as_there_are_parameters(house, alice):
    handle = alice.prepare("SELECT count(*) AS n FROM visits WHERE cost > ? AND ward = ?")
    asked = message(PREPARED, (1, handle))
    assert "a value for each" in refused(lambda: alice.ask(asked))
    alice.put(asked, pa.table({"a": [30]}))
    assert "a value for each" in refused(lambda: alice.ask(asked))
    assert "one row" in refused(lambda: alice.put(asked, pa.table({"a": [30, 31], "b": ["A", "B"]})))
    assert "there is none" in refused(lambda: alice.put(asked, pa.table({"a": [], "b": []})))
    assert "one row of at most" in refused(lambda: alice.put(asked, pa.table({"a": [30], "b": ["x" * 300_000]})))
    alice.put(asked, pa.table({"a": [30], "b": ["A"]}))
    first, before = alice.ask(asked), house.served.charges()
    assert alice.ask("SELECT count(*) AS n FROM visits WHERE ward = 'A' AND cost > 30") == first and house.served.charges() == before
    alice.put(asked, pa.table({"a": [31], "b": ["A"]}))
    alice.ask(asked)
    assert house.served.charges() == before + 1


def test_what_a_prepared_statement_says(alice):
    found = parts(alice.act("CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", (1, "SELECT beds + ? AS b, ? AS c FROM wards")))[0])
    assert pa.ipc.read_schema(pa.py_buffer(found[2])).names == ["b", "c"]
    assert pa.ipc.read_schema(pa.py_buffer(found[3])).types == [pa.null(), pa.null()]
    assert set(parts(alice.act("CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", (1, "SELECT 1")))[0])) == {1, 2}
    assert "SHOW TABLES" in refused(lambda: alice.prepare("SELECT ? FROM payroll")) and "other parameters" in refused(lambda: alice.prepare("SELECT $name"))


def test_what_only_buying_tells_has_no_schema_before(alice):
    info = alice.info(query("SELECT * FROM dp_marginals('visits', columns := ['ward'], epsilon := 1)"))
    assert info.schema is None and alice.get(info.endpoints[0].ticket).num_rows == 3
    handle = alice.prepare("SELECT * FROM dp_marginals('visits', columns := ['ward'], epsilon := 1)")
    assert alice.ask(message(PREPARED, (1, handle))).num_rows == 3


# tickets and handles


def test_a_ticket_is_the_analysts_alone(house, alice, bob):
    """Another one's, one that was closed, and one that there never was say the same."""
    text = "SELECT count(*) AS n FROM visits WHERE cost > 77"
    ticket, handle = alice.info(query(text)).endpoints[0].ticket, alice.prepare(text)
    before = house.served.charges()
    never = flight.Ticket(message("TicketStatementQuery", (1, b"0" * 32)))
    told = {refused(lambda each=each: bob.get(each), flight.FlightUnauthorizedError) for each in (ticket, never)}
    for name in (handle, b"0" * 32, b""):
        asked = message(PREPARED, (1, name))
        told.add(refused(lambda asked=asked: bob.ask(asked), flight.FlightUnauthorizedError))
        assert "none of yours" in refused(lambda asked=asked: bob.put(asked, pa.table({"a": [1]})))
    assert len({text.split(". ")[0] for text in told}) == 1 and house.served.charges() == before
    bob.act("ClosePreparedStatement", message(CLOSE, (1, handle)))
    first = alice.ask(message(PREPARED, (1, handle)))
    assert alice.get(ticket) == first == alice.get(ticket) and house.served.charges() == before + 1
    with bearer(house.port, TOKENS["alice"]) as again:  # another connection of hers
        assert again.get(ticket) == first
    alice.act("ClosePreparedStatement", message(CLOSE, (1, handle)))
    refused(lambda: alice.ask(message(PREPARED, (1, handle))), flight.FlightUnauthorizedError)


def test_tickets_say_nothing_and_do_not_repeat(alice):
    text = "SELECT 424242 AS a"
    tickets = [alice.info(query(text)).endpoints[0].ticket.ticket for _ in range(20)]
    names = [parts(ticket)[1] for ticket in tickets]
    assert len(set(names)) == 20 and all(re.fullmatch(rb"[0-9a-f]{32}", name) for name in names) and not any(b"424242" in ticket for ticket in tickets)


def test_the_ones_that_were_not_used_for_longest_go(alice):
    first = alice.prepare("SELECT 1")
    kept = alice.prepare("SELECT 2 AS a")
    for number in range(70):
        alice.prepare("SELECT 3")
        if number % 30 == 0:
            assert alice.ask(message(PREPARED, (1, kept))).to_pylist() == [{"a": 2}]
    assert alice.ask(message(PREPARED, (1, kept))).to_pylist() == [{"a": 2}]
    refused(lambda: alice.ask(message(PREPARED, (1, first))), flight.FlightUnauthorizedError)


# what is not answered


def test_other_commands_are_refused(house, alice):
    before, table = house.served.state(), pa.table({"a": [1]})
    for name in ("CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest", "CommandStatementSubstraitPlan", "CommandGetPrimaryKeys", "x\n\x1b[0m"):
        assert "is not answered here" in refused(lambda name=name: alice.info(message(name, (1, "DROP TABLE wards"))))
        assert "is not answered here" in refused(lambda name=name: alice.put(message(name, (1, "DROP TABLE wards")), table))
        assert "is not answered here" in refused(lambda name=name: alice.get(message(name, (1, "DROP TABLE wards"))))
    for name in ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint", "CancelQuery", "CreatePreparedSubstraitPlan", "CancelFlightInfo", "SetSessionOptions", "x" * 9000):
        assert "is not answered here" in refused(lambda name=name: alice.act(name, message(f"Action{name}Request", (1, "x"))))
    assert "no transactions" in refused(lambda: alice.info(message("CommandStatementQuery", (1, "SELECT 1"), (2, b"t"))))
    assert "no transactions" in refused(lambda: alice.act("CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", (1, "SELECT 1"), (2, b"t"))))
    for call in (lambda: list(alice.raw.list_flights(b"x", alice.options)), lambda: alice.raw.get_flight_info(flight.FlightDescriptor.for_path("a", "b"), alice.options), lambda: alice.info(b"")):
        assert "only Flight SQL" in refused(call)
    assert "GetFlightInfo says the columns" in refused(lambda: alice.raw.get_schema(command(query("SELECT 1")), alice.options), OSError)
    writer, reader = alice.raw.do_exchange(command(query("SELECT 1")), alice.options)
    with suppress(flight.FlightServerError):  # where the server was faster
        writer.begin(table.schema)
    assert "only Flight SQL" in refused(reader.read_chunk) and "only Flight SQL" in refused(writer.close)
    assert [action.type for action in alice.raw.list_actions(alice.options)] == ["CreatePreparedStatement", "ClosePreparedStatement"]
    assert house.served.state() == before


@pytest.mark.parametrize("data", [b"x", b"\xff" * 40, b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", message("CommandStatementQuery", (1, b"\xff")), message("CommandGetTables", (3, 7))])  # fmt: skip
def test_broken_messages_are_refused(alice, data):
    refused(lambda: alice.get(data))
    refused(lambda: alice.act("CreatePreparedStatement", data))
    if b"GetTables" not in data:  # of which the schema is known without its words
        refused(lambda: alice.info(data))


def test_kinds_of_refusals_are_flights(opening):
    with opening() as made, bearer(made.port, TOKENS["alice"]) as client:
        kinds = {"busy": flight.FlightUnavailableError, "stopped": flight.FlightTimedOutError, "failed": flight.FlightInternalError, "refused": flight.FlightUnauthorizedError, "trace": flight.FlightInternalError}
        for kind, error in kinds.items():
            with pytest.raises(error) as found:
                client.ask(f"SELECT '{kind}'")
            assert ("the server could not answer this" if kind == "trace" else f"it is {kind}") in str(found.value) and "/home" not in str(found.value)


def listed():
    """Of what the room's own tests try, every fourth."""
    texts = [text for of_a_reason in HOSTILE.values() for text in of_a_reason]
    return texts[::4]


def test_no_text_gets_anything(house, alice):
    """The figures of what is hidden never come, no word of the machine's does, and nothing changes."""
    before = house.served.state()
    for number, text in enumerate(listed()):
        ways = (alice.ask, lambda text: alice.ask(message(PREPARED, (1, alice.prepare(text)))))
        try:
            sent = text.encode()
        except UnicodeEncodeError:
            continue
        with pytest.raises(flight.FlightError) as found:
            ways[number % 2](sent.decode())
        told = str(found.value).replace(text, "")
        assert str(SENTINEL) not in told and not MACHINE.search(told.replace(" ".join(text.split()), "")), (text, told)
    assert house.served.state() == before
