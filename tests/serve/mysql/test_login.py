"""Who is let in, over raw sockets: nobody is served who did not show a token."""

import hashlib
import ssl
import struct

import pytest
from mysql_raw import FLAGS, Closed, Raw, error, scrambled, texts
from mysql_room import TOKENS

from dpsql.serve.mysql.login import native_holds

QUESTION = "SELECT COUNT(*) FROM visits"
TOKEN = TOKENS["alice"]


def nothing_more(raw):
    """Go on as a client that does not look at refusals: whatever it sends, nothing comes."""
    for code, payload in ((3, QUESTION), (14, ""), (0x16, QUESTION), (17, "alice\0\0\0")):
        try:
            raw.command(code, payload)
        except OSError:
            break
    with pytest.raises(Closed):
        raw.read()


def test_the_right_token_is_let_in(house):
    with Raw(house.port) as raw:
        assert raw.login("alice", token=TOKEN)[0] == 0
        assert [texts(row) for row in raw.query(QUESTION)] == [["300"]]


REFUSED = {
    "wrong token": ("alice", b"x" * 20),
    "another's token": ("alice", None),
    "empty": ("alice", b""),
    "short": ("alice", b"x" * 19),
    "long": ("alice", b"x" * 21),
    "zeros": ("alice", bytes(20)),
    "unknown": ("nobody", b"x" * 20),
    "unknown, empty": ("nobody", b""),
    "no name": ("", b""),
    "not UTF-8": (b"\xff\xfe", b"x" * 20),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nobody_else_is_served(house, case):
    user, answer = REFUSED[case]
    asked = len(house.room.asked)
    with Raw(house.port) as raw:
        code, text = error(raw.login(user, answer, token=TOKENS["bob"]))
        assert code == (1835 if case == "not UTF-8" else 1045)
        nothing_more(raw)
    assert len(house.room.asked) == asked


def test_an_unknown_name_is_told_what_a_wrong_token_is_told(house):
    said = []
    for user in ("alice", "carol"):
        with Raw(house.port) as raw:
            said.append(error(raw.login(user, b"x" * 20)))
    assert said[1] == (said[0][0], said[0][1].replace("alice", "carol"))


def test_the_answer_to_another_greeting_is_none(house):
    with Raw(house.port) as first, Raw(house.port) as second:
        assert first.nonce != second.nonce
        assert error(second.login("alice", scrambled(TOKEN, first.nonce)))[0] == 1045


def test_native_answers_hold_for_their_token_alone():
    nonce = bytes(range(1, 21))
    stored = hashlib.sha1(hashlib.sha1(b"one").digest()).digest()
    assert native_holds(stored, nonce, scrambled("one", nonce))
    assert not native_holds(stored, nonce, scrambled("two", nonce))
    assert not native_holds(stored, nonce, scrambled("one", nonce) + b"\0")
    assert not native_holds(stored, nonce, b"")
    assert not native_holds(None, nonce, scrambled("one", nonce))
    # Who knows what is stored, and no more than that, has no answer.
    assert not native_holds(stored, nonce, hashlib.sha1(nonce + stored).digest())


def test_a_client_of_another_plugin_is_asked_for_the_native_one(house):
    with Raw(house.port) as raw:
        switch = raw.login("alice", b"y" * 32, plugin=b"caching_sha2_password")
        assert switch.startswith(b"\xfemysql_native_password\0")
        nonce = switch.removeprefix(b"\xfemysql_native_password\0").removesuffix(b"\0")
        assert nonce != raw.nonce
        raw.send(scrambled(TOKEN, nonce))
        assert raw.read()[0] == 0
        assert len(raw.query(QUESTION)) == 1


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"caching_sha2_password", b"sha256_password", b"dialog", b""])
def test_a_token_in_clear_is_not_taken_without_tls(house, plugin):
    with Raw(house.port) as raw:
        switch = raw.login("alice", TOKEN.encode() + b"\0", plugin=plugin)
        assert switch.startswith(b"\xfemysql_native_password\0")
        raw.send(TOKEN.encode() + b"\0")
        assert error(raw.read())[0] == 1045
        nothing_more(raw)


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_changing_the_user_closes_the_connection(house, user):
    with Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        raw.command(17, user.encode() + b"\0" + b"\x14" + scrambled(TOKENS[user], raw.nonce) + b"\0mysql_native_password\0")
        assert error(raw.read())[0] == 1047
        nothing_more(raw)


@pytest.mark.parametrize("how", ["revoked", "new token"])
def test_a_session_ends_with_its_token(opening, how):
    with opening() as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        assert len(raw.query(QUESTION)) == 1
        house.keys.numbers = {"alice": 7} if how == "new token" else {}
        assert raw.query(QUESTION)[0] == 1045
        with pytest.raises(Closed):
            raw.query(QUESTION)
        assert len(house.room.asked) == 1


def test_an_answer_that_was_not_sent_before_the_token_ended_is_kept_back(opening):
    with opening() as house, Raw(house.port) as raw:
        raw.login("alice", token=TOKEN)
        house.room.hold.clear()
        raw.command(3, "SELECT COUNT(*), 'wait' FROM visits")
        assert house.room.waiting.wait(60)
        house.keys.numbers = {}
        house.room.hold.set()
        assert raw.rows()[0] == 1045


def test_an_unknown_database_is_told_only_to_who_is_let_in(house):
    with Raw(house.port) as raw:
        assert error(raw.login("alice", b"x" * 20, database="nope"))[0] == 1045
    with Raw(house.port) as raw:
        assert error(raw.login("alice", token=TOKEN, database="nope")) == (1049, "Unknown database 'nope'")
    with Raw(house.port) as raw:
        assert raw.login("alice", token=TOKEN, database="HOSPITAL")[0] == 0


def test_the_protocol_of_older_clients_is_refused(house):
    with Raw(house.port) as raw:
        assert error(raw.login("alice", token=TOKEN, flags=FLAGS & ~0x200))[0] == 1043


def test_what_is_not_offered(house):
    with Raw(house.port) as raw:
        for flag in (0x20, 0x80, 0x800, 0x10000, 0x20000, 0x40000, 0x1000000, 0x8000000):  # among them TLS, without a certificate
            assert not raw.flags & flag
        raw.login("alice", token=TOKEN, flags=FLAGS | 0x80 | 0x10000 | 0x1000000)
        assert raw.query("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE wards")[0] == 1235
        assert len(raw.query("SELECT * FROM wards")) == 3  # with an end of the form that was not asked for


# TLS


def client_context(certificate):
    return ssl.create_default_context(cafile=certificate[0])


def request(flags=FLAGS | 0x800):
    return struct.pack("<IIB23x", flags, 1 << 24, 45)


def encrypted(raw, certificate):
    raw.send(request())
    raw.sock = client_context(certificate).wrap_socket(raw.sock, server_hostname="localhost")


def test_tls_with_the_greeting_in_the_same_segment(opening, tls, certificate):
    with opening(tls=tls()) as house:
        for _ in range(10):
            with Raw(house.port) as raw:
                assert raw.flags & 0x800
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                client = client_context(certificate).wrap_bio(incoming, outgoing, server_hostname="localhost")
                with pytest.raises(ssl.SSLWantReadError):
                    client.do_handshake()
                raw.sock.sendall(raw.packet(request()) + outgoing.read())
                incoming.write(raw.sock.recv(1 << 16))
                while True:
                    try:
                        client.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        raw.sock.sendall(outgoing.read())
                        incoming.write(raw.sock.recv(1 << 16))
                assert client.version().startswith("TLSv1")


@pytest.mark.parametrize("plugin", ["native", "clear", "sha2"])
def test_a_token_over_tls(opening, tls, certificate, plugin):
    with opening(tls=tls()) as house, Raw(house.port) as raw:
        encrypted(raw, certificate)
        if plugin == "native":
            answer = raw.login("alice", token=TOKEN)
        elif plugin == "clear":
            answer = raw.login("alice", TOKEN.encode() + b"\0", plugin=b"mysql_clear_password")
        else:
            assert raw.login("alice", b"", plugin=b"caching_sha2_password").startswith(b"\xfecaching_sha2_password\0")
            raw.send(b"z" * 32)
            assert raw.read() == b"\x01\x04"
            raw.send(TOKEN.encode() + b"\0")
            answer = raw.read()
        assert answer[0] == 0
        assert len(raw.query(QUESTION)) == 1


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"caching_sha2_password"])
@pytest.mark.parametrize(("user", "token"), [("alice", ""), ("alice", "x"), ("alice", TOKENS["bob"]), ("nobody", ""), ("nobody", TOKEN)])
def test_a_wrong_token_over_tls(opening, tls, certificate, plugin, user, token):
    with opening(tls=tls()) as house, Raw(house.port) as raw:
        encrypted(raw, certificate)
        answer = raw.login(user, token.encode() + b"\0" if token else b"", plugin=plugin)
        if plugin == b"caching_sha2_password":
            raw.send(b"z" * 32 if token else b"")
            answer = raw.read()
            if token:
                raw.send(token.encode() + b"\0")
                answer = raw.read()
        assert error(answer)[0] == 1045
        nothing_more(raw)


def test_where_tls_is_required_nobody_comes_in_without(opening, tls, certificate):
    with opening(tls=tls(required=True)) as house:
        with Raw(house.port) as raw:
            assert error(raw.login("alice", token=TOKEN))[0] == 3159
            nothing_more(raw)
        with Raw(house.port) as raw:
            encrypted(raw, certificate)
            assert raw.login("alice", token=TOKEN)[0] == 0


def test_a_request_for_tls_where_there_is_none(house):
    with Raw(house.port) as raw:
        raw.send(request())
        assert error(raw.read())[0] == 1835
        with pytest.raises(Closed):
            raw.read()


def test_stopping_a_door_writes_no_answer_in_plain_text(opening, tls, certificate):
    with opening(tls=tls()) as house, Raw(house.port) as raw:
        encrypted(raw, certificate)
        raw.login("alice", token=TOKEN)
        house.room.hold.clear()
        raw.command(3, "SELECT COUNT(*) AS n, 'wait' AS w FROM visits")
        assert house.room.waiting.wait(60)
        house.door.stop(seconds=0.2)  # cuts what has not finished by then
        house.room.hold.set()
        with pytest.raises((Closed, ssl.SSLError)):
            raw.read()
