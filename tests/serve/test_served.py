"""A database served as `dpsql serve` does it, asked by a stock client: what the parts do together."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager

import duckdb
import pytest

import dpsql
from dpsql.serve import analysts
from dpsql.serve.doors import DOORS, room
from dpsql.serve.options import Address, Options
from dpsql.serve.server import Server, Stopping

pymysql = pytest.importorskip("pymysql")
QUESTION = "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY ward"


@pytest.fixture
def census(tmp_path):
    with duckdb.connect(tmp_path / "census.duckdb") as con:
        dpsql.load(con)
        con.execute("CREATE TABLE visits AS SELECT ['a', 'b'][1 + i % 2] AS ward FROM range(3000) t(i); CREATE TABLE wards AS SELECT 'a' AS ward")
        con.execute("CREATE TABLE raw AS SELECT 424242 AS secret; CREATE VIEW odd AS SELECT * FROM visits WHERE ward = 'a'")
        con.execute("CALL dp_protect('visits', epsilon := 4, delta := 1e-9)")
        con.execute("CALL dp_declare('visits', 'ward', categories := ['a', 'b'], nullable := false)")
    return tmp_path / "census.duckdb"


@contextmanager
def served(census, **given):
    """Serve, in this process; gives where, and takes what is said."""
    said, stopping = [], Stopping()
    options = Options(census, census.with_name("analysts.toml"), **{"mysql": Address("127.0.0.1", 0), "memory": "1GB", **given})
    server = Server(options, room, DOORS, said.append, stopping)
    try:
        yield server.at["mysql"].port, said
    finally:
        stopping.ask()
        server.run()


def connect(port, name, token, **given):
    return pymysql.connect(host="127.0.0.1", port=port, user=name, password=token, database="census", **given)


def ask(con, text):
    with con.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()


def refused(con, text):
    with pytest.raises(pymysql.err.Error) as found:
        ask(con, text)
    return str(found.value)


def test_the_file_of_analysts_is_what_counts_while_it_changes(census):
    path = census.with_name("analysts.toml")
    alice, bob = analysts.add(path, "alice", {"main.visits": 0.25}), analysts.add(path, "bob", {})
    with served(census) as (port, said):
        hers, his = connect(port, "alice", alice), connect(port, "bob", bob)
        first = ask(hers, QUESTION)
        assert [ward for ward, _ in first] == ["a", "b"] and ask(hers, QUESTION) == first
        assert "visits" in refused(his, QUESTION) and "does not exist" in refused(his, "SELECT * FROM wards") and "does not exist" in refused(hers, "SELECT * FROM raw")
        analysts.grant(path, "bob", {"main.visits": 0.5})
        analysts.publish(path, "main.wards")
        analysts.publish(path, "main.odd")
        assert len(ask(his, QUESTION)) == 2 and ask(his, "SELECT * FROM wards") == (("a",),)
        assert len(ask(hers, "SELECT count(*) AS n FROM odd")) == 1 and "424242" not in refused(his, "SELECT * FROM raw")
        analysts.grant(path, "bob", {"main.visits": 0})
        analysts.publish(path, "main.wards", withdraw=True)
        assert "visits" in refused(his, QUESTION) and "does not exist" in refused(his, "SELECT * FROM wards")
        analysts.revoke(path, "alice")
        assert "424242" not in refused(hers, QUESTION)
        for name, token in (("alice", alice), ("bob", alice), ("bob", ""), ("carol", bob)):
            with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
                connect(port, name, token)
        path.write_text("nobody")
        assert refused(his, "SELECT 1")
        assert len(said) == 1 and said[0].startswith("nobody is let in: analysts = ")
        for con in (hers, his):
            con.close()
    with duckdb.connect(census) as con:
        dpsql.load(con)
        assert {who for (who,) in con.execute("SELECT who FROM dp_ledger('visits') WHERE action IN ('charge', 'store')").fetchall()} <= {"analyst alice", "analyst bob"}
        assert con.execute("SELECT max(epsilon_spent) FROM dp_budget('visits')").fetchone()[0] <= 1.0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_beyond_the_loopback_address_is_required(census, tmp_path):
    token = analysts.add(census.with_name("analysts.toml"), "alice", {"main.visits": 0.25})
    files = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files["tls_key"], "-out", files["tls_cert"]], check=True, capture_output=True,
    )  # fmt: skip
    with served(census, mysql=Address("0.0.0.0", 0), **files) as (port, _):
        con = connect(port, "alice", token, ssl_ca=str(files["tls_cert"]), ssl_verify_cert=True, ssl_verify_identity=True)
        assert len(ask(con, QUESTION)) == 2
        con.close()
        with pytest.raises(pymysql.err.Error):
            connect(port, "alice", token, ssl_disabled=True)
    with served(census, **files) as (port, _):  # on a loopback address it is offered
        for given in ({"ssl_ca": str(files["tls_cert"])}, {"ssl_disabled": True}):
            con = connect(port, "alice", token, **given)
            assert len(ask(con, QUESTION)) == 2
            con.close()


def test_what_was_bought_is_given_again_from_memory(census, monkeypatch):
    token = analysts.add(census.with_name("analysts.toml"), "alice", {"main.visits": 0.1})
    with served(census) as (port, _):
        with connect(port, "alice", token) as con:
            first = ask(con, QUESTION)
        monkeypatch.setattr("dpsql.serve.ask.Ask._guarded", lambda *_: pytest.fail("nothing is looked up"))
        with connect(port, "alice", token) as con:
            assert ask(con, QUESTION) == first
