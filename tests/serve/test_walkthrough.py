"""docs/serve.md as it stands there: a server process, and DuckDB's own shell as its client."""

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.wire.extensions import load_extensions

PAGE = Path(__file__).parents[2] / "docs/serve.md"
_spec = importlib.util.spec_from_file_location("walkthrough", Path(__file__).with_name("walkthrough.py"))
walkthrough = importlib.util.module_from_spec(_spec)
sys.modules["walkthrough"] = walkthrough
_spec.loader.exec_module(walkthrough)


def reason() -> str | None:
    try:
        with duckdb.connect() as con:
            load_extensions(con)
    except DpsqlError as error:
        return str(error)
    beside = Path(sys.executable).parent / "duckdb"
    if not beside.exists():
        return f"duckdb-cli is not installed in this environment: pip install duckdb-cli=={duckdb.__version__}"
    found = subprocess.run([beside, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return None if found and found[0] == f"v{duckdb.__version__}" else f"duckdb-cli is not of version {duckdb.__version__}"


def free_ports(count: int) -> list[str]:
    with_port = [socket.socket() for _ in range(count)]
    try:
        for one in with_port:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in with_port]
    finally:
        for one in with_port:
            one.close()


@pytest.fixture
def walk(tmp_path):
    why = reason()
    if why:
        pytest.skip(why)
    ports = dict(zip(("9494", "9495", "9443"), free_ports(3), strict=True))
    made = walkthrough.Walk(tmp_path, ports)
    yield made
    made.stop()


def test_the_page_runs(walk):
    text = PAGE.read_text(encoding="utf-8")
    assert walk.run(text) >= 14
    assert len(walk.refusals) == 7
    for said in walk.refusals:  # a reason, in one line, and none of it a path or a trace
        assert 10 < len(said) < 400 and "Traceback" not in said and str(walk.folder) not in said, said
    log = (walk.folder / "serve.log").read_text()
    assert "SELECT" not in log and "dpsql_" not in log and '"who": "alice"' in log
    with duckdb.connect(walk.folder / "census.duckdb") as con:  # the server is gone, and has left true books
        dpsql.load(con)
        assert con.execute("SELECT bool_and(chain_holds) FROM dp_budget()").fetchone() == (True,)
        (who,) = con.execute("SELECT list(DISTINCT who) FROM dp_ledger('adult') WHERE action = 'charge'").fetchone()
        assert who == ["analyst:alice"]


def test_the_proxy_of_the_page_speaks_tls(walk):
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") or shutil.which("nginx")
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("nginx and openssl are not installed (Debian: apt install nginx openssl)")
    text, folder = PAGE.read_text(encoding="utf-8"), walk.folder
    for block in walkthrough.blocks(text):
        walk.block(block)
        if block.mark == "server":
            break
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost", "-keyout", folder / "census.key", "-out", folder / "census.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    site = walkthrough.config(text).replace("/etc/ssl/private/", f"{folder}/").replace("/etc/ssl/", f"{folder}/")
    for port, free in walk.ports.items():
        site = site.replace(port, free)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    whole = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ access_log off; {temporary} {site} }}"
    (folder / "nginx.conf").write_text(whole)
    running = subprocess.Popen([nginx, "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"])
    try:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(walk.ports["9443"])), 1).close()
                break
            except OSError:
                assert time.monotonic() < end and running.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.1)
        uri, token = f"quack:localhost:{walk.ports['9443']}", walk.token("alice")
        with dpsql.connect(uri, token=token, ca_file=folder / "census.pem", tls=True) as con:
            assert con.sql("FROM employers").fetchall() == [("private", "Firms"), ("government", "The state")]
        for options in ({"tls": True}, {"tls": False}):  # a certificate that nobody trusts; no TLS at all
            with pytest.raises(DpsqlError, match="does not answer") as refused:
                dpsql.connect(uri, token=token, **options)
            assert token not in str(refused.value)
    finally:
        running.terminate()
        running.wait(20)
