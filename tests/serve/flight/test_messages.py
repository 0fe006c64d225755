"""Messages and frames, without a network; protobuf's own runtime as the second reader where it is there."""

import pytest
from flight_raw import PREFIX, frame, grpc, message

from dpsql.serve.flight.frames import Cut, Frame, Stream, said, settled
from dpsql.serve.flight.messages import read, written
from dpsql.serve.passed import Refused


def test_as_protobuf_has_it():
    any_pb2 = pytest.importorskip("google.protobuf.any_pb2", reason="protobuf's runtime is not there")
    descriptor_pb2, descriptor_pool, message_factory = (pytest.importorskip(f"google.protobuf.{name}") for name in ("descriptor_pb2", "descriptor_pool", "message_factory"))
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="arrow.flight.protocol.sql", syntax="proto3")
    made = file.message_type.add(name="CommandGetTables")
    for number, (name, kind, label) in enumerate([("a", 9, 1), ("b", 9, 1), ("c", 9, 1), ("d", 9, 3), ("e", 8, 1), ("f", 13, 3), ("g", 12, 1)], 1):
        made.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName("arrow.flight.protocol.sql.CommandGetTables"))
    sent = cls(a="census", b="ä%", d=["TABLE", ""], e=True, f=[0, 7, 2**32 - 1], g=b"\xff\0")
    found = read(any_pb2.Any(type_url=f"{PREFIX}CommandGetTables", value=sent.SerializeToString()).SerializeToString())
    assert (found.name, found.text(1), found.maybe(2), found.maybe(3), found.text(3)) == ("CommandGetTables", "census", "ä%", None, "")
    assert found.texts(4) == ["TABLE", ""] and found.flag(5) and found.numbers(6) == [0, 7, 2**32 - 1] and found.bytes(7) == b"\xff\0"
    back = any_pb2.Any.FromString(written("TicketStatementQuery", {1: b"x" * 300}))
    assert back.type_url == f"{PREFIX}TicketStatementQuery" and back.value[-300:] == b"x" * 300


@pytest.mark.parametrize(
    "data",
    [b"", b"\x0a", b"\x0a\x05abc", b"\x0b\x01", b"\x00\x01", b"\xff" * 11, b"\x0d\x01", b"\x09\x01\x02", message("X", (1, "a"))[:-1], b"\x12\x00", b"\x08\x01", b"\x0a\x03a/b", b"\x0a\x02\xff\xfe"],
)  # fmt: skip
def test_what_is_no_message(data):
    with pytest.raises(Refused) as refused:
        read(data)
    assert refused.value.kind in ("syntax", "unsupported")


def test_fields_of_another_kind():
    found = read(message("X", (1, 5), (2, "a"), (3, b"\xff")))
    for call in (lambda: found.text(1), lambda: found.bytes(1), lambda: found.text(3), lambda: found.numbers(3)):
        with pytest.raises(Refused):
            call()
    assert found.flag(2) and read(message("X", (1, "a"), (1, "b"))).text(1) == "b"


def test_frames():
    head = frame(1, 5, 7, b"abc")[:9]
    found = Frame.read(head)
    assert found == Frame(3, 1, 5, 7) and found.written() == head and found.ends and not Frame(0, 9, 1, 7).ends and Frame(4, 3, 0, 7).ends
    passed, last = said(found, "0" * 32)
    assert passed == Frame(3, 1, 1, 7) and Frame.read(last[:9]) == Frame(len(last) - 9, 9, 4, 7) and b"x-dpsql-connection\x20" + b"0" * 32 in last
    longer, more = settled(Frame(6, 4, 0, 0), 8)
    assert longer.length == 12 and more == b"\0\x03\0\0\0\x08"


@pytest.mark.parametrize("pieces", [1, 3, 5, 7, 1000])
def test_what_is_sent_in_a_call(pieces):
    data, stream = grpc(b"a" * 20) + grpc(b"") + grpc(b"b" * 7), Stream(100)
    for place in range(0, len(data), pieces):
        stream.take(data[place : place + pieces])
    assert stream.sent == len(data)
    for other in (grpc(b"", claimed=100), grpc(b"x", compressed=1), b"\0" * 101):
        stream = Stream(100)
        with pytest.raises(Cut):
            for place in range(0, len(other), pieces):
                stream.take(other[place : place + pieces])
