"""What `dpsql serve` is told: addresses, times, what goes together."""

from __future__ import annotations

import math
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from dpsql.errors import ArgumentError
from dpsql.serve.options import Address, Options, address, seconds

pytestmark = pytest.mark.any_duckdb
HERE, OUT = Address("localhost", 3306), Address("0.0.0.0", 3306)


def options(**given):
    return Options(Path("census.duckdb"), Path("analysts.toml"), **{"mysql": HERE, **given})


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("localhost:3306", "localhost", 3306, True), ("LocalHost:1", "LocalHost", 1, True), ("127.0.0.1:9494", "127.0.0.1", 9494, True),
        ("127.8.9.1:0", "127.8.9.1", 0, True), ("[::1]:3306", "::1", 3306, True), ("0.0.0.0:65535", "0.0.0.0", 65535, False),
        ("[::]:3306", "::", 3306, False), ("census.example.org:3306", "census.example.org", 3306, False),
        ("localhost.example.org:1", "localhost.example.org", 1, False), ("10.0.0.1:1", "10.0.0.1", 1, False),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1, False),
    ],
)  # fmt: skip
def test_an_address(text, host, port, loopback):
    found = address("mysql", text)
    assert (found.host, found.port, found.loopback, str(found)) == (host, port, loopback, text)


@pytest.mark.parametrize("text", ["", "localhost", ":3306", "3306", "localhost:", "localhost:x", "localhost:65536", "localhost:-1", "a b:1", "::1:3306", "mysql://localhost:3306", "localhost:3306\n", "höst:1", "localhost:٣"])
def test_what_is_no_address(text):
    with pytest.raises(ArgumentError, match=r"^mysql = .*a host and a port are required: localhost:3306"):
        address("mysql", text)


@pytest.mark.parametrize(("text", "expected"), [("1s", 1.0), ("500ms", 0.5), ("2", 2.0), ("0.25s", 0.25), ("2m", 120.0), ("1 s", 1.0), ("0", 0.0)])
def test_a_time(text, expected):
    assert seconds("answer-every", text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1h", "1e3", "inf", "nan", "1,5s", "1s2", "1" * 40])
def test_what_is_no_time(text):
    with pytest.raises(ArgumentError, match=r"^answer-every = .*a time is required: 1s, 500ms, 2m"):
        seconds("answer-every", text)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mysql": None}, r"^mysql is not given: say where analysts come in: --mysql localhost:3306"),
        ({"quack": HERE}, r"^quack = 'localhost:3306': is where --mysql listens"), ({"flight": HERE}, r"^flight = 'localhost:3306': is where --mysql listens"),
        ({"mysql": None, "quack": HERE, "flight": HERE}, r"^flight = 'localhost:3306': is where --quack listens"),
        ({"flight": OUT}, r"^flight = '0\.0\.0\.0:3306': other machines reach this address.*--tls-cert and --tls-key, or listen on localhost; --allow-unencrypted"),
        ({"time_limit": 0}, r"^time-limit = 0: "), ({"time_limit": math.inf}, r"^time-limit = inf: "), ({"time_limit": math.nan}, r"^time-limit = nan: "),
        ({"answer_every": -1}, r"^answer-every = -1: "), ({"answer_every": math.nan}, r"^answer-every = nan: "),
        ({"tls_cert": Path("c")}, r"^tls-key is not given: certificate and key go together"), ({"tls_key": Path("k")}, r"^tls-cert is not given: "),
        ({"mysql": OUT}, r"^mysql = '0\.0\.0\.0:3306': other machines reach this address.*--tls-cert and --tls-key, or listen on localhost; --allow-unencrypted"),
        ({"quack": OUT}, r"^quack = '0\.0\.0\.0:3306': only a loopback address is served.*reverse proxy with TLS"),
        ({"quack": OUT, "allow_unencrypted": True}, r"^quack = "), ({"quack": OUT, "tls_cert": Path("c"), "tls_key": Path("k")}, r"^quack = "),
    ],
)  # fmt: skip
def test_what_does_not_go_together(given, told):
    with pytest.raises(ArgumentError, match=told):
        options(**given)


def test_what_is_warned_of():
    assert options().warnings() == options(mysql=OUT, tls_cert=Path("c"), tls_key=Path("k")).warnings() == []
    assert options(mysql=None, flight=OUT, tls_cert=Path("c"), tls_key=Path("k")).warnings() == []
    assert options(mysql=Address("localhost", 0), flight=Address("localhost", 0)).warnings() == []  # any free port is another one
    assert len(options(mysql=OUT, flight=Address("0.0.0.0", 1), allow_unencrypted=True).warnings()) == 2
    (told,) = options(mysql=OUT, allow_unencrypted=True).warnings()
    assert told.startswith("warning: 0.0.0.0:3306 can be reached from other machines, and without TLS: tokens and answers can be read")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_certificate_and_key(tmp_path):
    cert, key, other = (tmp_path / name for name in ("cert.pem", "key.pem", "other.pem"))
    for made in (other, key):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", made, "-out", cert],
            check=True, capture_output=True,
        )  # fmt: skip
    assert options().tls() is None
    context = options(tls_cert=cert, tls_key=key).tls()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    locked = tmp_path / "locked.pem"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True, capture_output=True)
    for files in ((cert, other), (key, cert), (cert, locked), (tmp_path / "none", key), (cert, tmp_path)):
        with pytest.raises(ArgumentError, match=r"^tls-cert = .*and --tls-key cannot be read as a certificate and its key, in PEM and without a password \("):
            options(tls_cert=files[0], tls_key=files[1]).tls()
