"""Messages of the protocol sent raw: without authentication, with another's session, garbage, appends."""

import pytest
from serve.wire import SESSION, Proxy, post

pytestmark = pytest.mark.serve
SECRET = b"424242"


def prepare(session, sql):
    """Return the message that asks for an answer."""
    said = sql.encode()
    return b"\x01\x00\x03\x02\x00 " + session + b"\x03\x00\x05\xff\xff\x01\x00" + bytes([len(said)]) + said + b"\xff\xff"


def session_of(proxy):
    return SESSION.search(proxy.seen[0][1])[0]


@pytest.fixture
def proxied(served):
    proxies = []

    def client(name):
        from serve.conftest import Client

        proxies.append(Proxy(served.port))
        return proxies[-1], Client(proxies[-1].port, served.tokens[name])

    yield client
    for proxy in proxies:
        proxy.close()


def test_a_raw_message_is_authorized_like_any_other(served, proxied):
    proxy, _ = proxied("alice")
    status, answer = post(served.port, prepare(session_of(proxy), "SELECT count(*) FROM big"))
    assert status == 200 and b"count_star" in answer  # the message is one that the server understands
    for sql in ("FROM raw", "SELECT * FROM raw", "FROM query_table('raw')", "FROM query('FROM raw')"):
        _, answer = post(served.port, prepare(session_of(proxy), sql))
        assert SECRET not in answer and (424242).to_bytes(4, "little") not in answer, sql


def test_nothing_is_had_without_a_session_or_with_one_that_is_none(served):
    for session in (b"0" * 32, b"F" * 32, b"' OR 1=1 --".ljust(32), b"\x00" * 32):
        _, answer = post(served.port, prepare(session, "FROM raw"))
        assert (424242).to_bytes(4, "little") not in answer
    for body in (b"", b"\x00", b"\xff" * 1000, b"\x01\x00\x03", b"SELECT 1", b"\x01\x00\x09\xff\xff" * 50, bytes(range(256)) * 20):
        for path in ("/quack", "/", "/other"):
            _, answer = post(served.port, body, path)
            assert SECRET not in answer
    assert served.client().ask("SELECT count(*) FROM big") == [(200_000,)]


def test_rows_are_appended_by_a_custodian_and_by_nobody_else(served, proxied):
    carls, carl = proxied("carl")
    carl.ask("CREATE TABLE main.t (x BIGINT)")
    _, carl = proxied("carl")
    carls = Proxy(served.port)
    from serve.conftest import Client

    carl = Client(carls.port, served.tokens["carl"])
    carl.con.execute("INSERT INTO c.t VALUES (7)")
    appends = [body for body, _ in carls.seen if body[:3] not in (b"\x01\x00\x01", b"\x01\x00\x03")]
    assert appends and carl.ask("FROM t") == [(7,)]
    alices, alice = proxied("alice")
    for body in appends:
        post(served.port, body.replace(session_of(carls), session_of(alices)))
        post(served.port, body.replace(session_of(carls), b"0" * 32))
        post(served.port, body.replace(session_of(carls), session_of(alices)).replace(b"\x04main\x01\x00", b"\x03big\x01\x00"))
    assert carl.ask("SELECT count(*), sum(x) FROM t") == [(1, 7)]
    for body in appends:  # the same message again, from who may: it was a whole one
        post(served.port, body)
    assert carl.ask("SELECT sum(x) FROM t")[0][0] >= 14
    assert alice.ask("SELECT count(*) FROM big") == [(200_000,)]
    carls.close()


def test_an_answer_is_not_fetched_by_another_session(served, proxied):
    alices, alice = proxied("alice")
    bobs, _ = proxied("bob")
    assert len(alice.ask("SELECT x FROM big")) == 200_000
    fetches = [body for body, _ in alices.seen if body[:3] not in (b"\x01\x00\x01", b"\x01\x00\x03")]
    assert fetches
    known = [answer for _, answer in alices.seen if len(answer) > 10_000]
    for body in fetches:
        for session in (session_of(bobs), b"0" * 32):
            _, answer = post(served.port, body.replace(session_of(alices), session))
            assert len(answer) < 5_000 and answer not in known
