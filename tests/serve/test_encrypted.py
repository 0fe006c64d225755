"""Encrypted databases: served with their key, and with releases that are encrypted too; refused without."""

import contextlib
import os
import secrets
import shutil
import subprocess

import duckdb
import pytest
from serve.conftest import DECLARED, TABLE, Served, free_port

import dpsql
from dpsql.text.sealed import MARK, is_sealed

pytestmark = pytest.mark.serve
QUERY = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"


@contextlib.contextmanager
def opened(served, key, store_key=None, **more):
    from dpsql.wire.extensions import load_extensions

    with duckdb.connect() as con:
        load_extensions(con)  # OpenSSL is in httpfs
        con.execute(f"ATTACH '{served.database}' AS census (ENCRYPTION_KEY '{key}')")
        con.execute("USE census")
        dpsql.load(con, encryption_key=store_key, **more)
        yield con


@pytest.fixture
def encrypted(prepared, tmp_path):
    """An encrypted database that is not served yet, and its key."""
    served, key = Served(tmp_path, prepared[1]), secrets.token_hex(32)
    shutil.copy(prepared[0] / "analysts.toml", tmp_path)
    with opened(served, key) as con:
        con.execute(TABLE)
        con.execute("CREATE TABLE raw AS SELECT 424242 AS secret")
        for statement in DECLARED:
            con.execute(statement)
        con.execute("CALL dp_grant('adult', analyst := 'alice', epsilon := 50, per_query := 0.2)")
    yield served, key
    if served.process is not None:
        served.process.kill()
        served.process.wait()
        served.process.stderr.close()


def files(served):
    return [path for path in served.database.with_name("census.duckdb.dpsql").rglob("*") if path.is_file()]


def test_an_encrypted_database_is_served_and_so_are_its_releases(encrypted, monkeypatch):
    served, key = encrypted
    monkeypatch.setenv("CENSUS_KEY", key)
    served.start("--encryption-key-env", "CENSUS_KEY")
    assert key not in (served.folder / "log").read_text()
    alice, carl = served.client(), served.client("carl")
    answer = alice.ask(QUERY)
    assert [sex for sex, _ in answer] == ["Female", "Male"] and alice.ask(QUERY) == answer
    rows = alice.ask("FROM dp_synthesize('adult', epsilon := 0.2, rows := 300)")
    assert len(rows) == 300
    assert carl.ask("FROM raw") == [(424242,)]
    assert carl.ask("SELECT source, releases, len(grants) FROM dp_budget()") == [("main.adult", 2, 1)]
    assert carl.ask("SELECT count(*) FROM dp_marginals('adult', columns := ['sex'], epsilon := 0.1)") == [(2,)]
    assert served.stop() == 0
    written = files(served)
    assert len(written) >= 5 and (served.database.with_name("census.duckdb.dpsql") / MARK) in written
    for path in written:
        held = path.read_bytes()
        assert is_sealed(path) and b"Female" not in held and key.encode() not in held, path
    assert b"Female" not in served.database.read_bytes()
    file = served.folder / "census.key"
    file.write_text(key + "\n")
    file.chmod(0o644)
    other = subprocess.run(served.command("--encryption-key-file", str(file)), capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "chmod 600" in other.stderr and key not in other.stderr
    file.chmod(0o600)
    served.start("--encryption-key-file", str(file))
    again = served.client()
    assert again.ask(QUERY) == answer
    assert again.ask("FROM dp_synthesize('adult', epsilon := 0.2, rows := 300)") == rows
    assert served.stop() == 0


def test_a_wrong_key_or_none_is_refused_in_a_line_that_has_no_key(encrypted, monkeypatch):
    served, key = encrypted
    served.port = free_port()
    monkeypatch.setenv("CENSUS_KEY", "not the key")
    for options, told in (
        ([], "the database is encrypted"),
        (["--encryption-key-env", "CENSUS_KEY"], "the key is not that of the database"),
        (["--encryption-key-env", "CENSUS_KEY", "--encryption-key-file", "x"], "there is one key"),
    ):
        other = subprocess.run(served.command(*options), capture_output=True, text=True, timeout=60)
        assert other.returncode == 1 and told in other.stderr and len(other.stderr.splitlines()) == 1, other.stderr
        assert "not the key" not in other.stderr and key not in other.stderr
    plain = served.folder / "plain.duckdb"
    duckdb.connect(plain).close()
    command = [str(plain) if part == str(served.database) else part for part in served.command("--encryption-key-env", "CENSUS_KEY")]
    other = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "CENSUS_KEY": "k" * 20})
    assert other.returncode == 1 and len(other.stderr.splitlines()) == 1 and "Traceback" not in other.stderr


def test_in_a_process_of_the_custodian_s_the_store_is_encrypted_or_nothing_is_bought(encrypted, tmp_path):
    served, key = encrypted
    asked = "FROM dp_query('SELECT sex, count(*) AS n FROM adult GROUP BY sex', epsilon := 0.1)"
    with opened(served, key) as con:
        with pytest.raises(duckdb.Error, match="is encrypted, and the release store"):
            con.execute(asked)
        assert con.execute("SELECT releases, books FROM dp_budget()").fetchall() == [(0, "intact")]
    with opened(served, key, key) as con:
        answer = con.execute(asked).fetchall()
        con.execute("FROM dp_histogram('adult', 'employer', epsilon := 1, release := 'who employs')")
        (name,) = con.execute("SELECT release FROM dp_releases() WHERE operation = 'histogram'").fetchone()
        shown = con.execute(f"FROM dp_export('{name}', '{tmp_path}/open.parquet')").fetchall()
        assert con.execute(f"FROM dp_export('{name}', '{tmp_path}/open.parquet')").fetchall() == shown
    for other in (None, "another key"):
        with opened(served, key, other) as con:
            with pytest.raises(duckdb.Error, match="is encrypted, and cannot be read"):
                con.execute(asked)
            with pytest.raises(duckdb.Error, match="no key that opens it"):
                con.execute(asked.replace("0.1", "0.05"))
            assert con.execute("SELECT releases, books FROM dp_budget()").fetchall() == [(2, "intact")]
    with opened(served, key, key) as con:
        assert con.execute(asked).fetchall() == answer
    assert files(served) and all(is_sealed(path) for path in files(served))
    assert not is_sealed(tmp_path / "open.parquet")
    with duckdb.connect() as con:  # elsewhere the exported release is one like any other
        dpsql.load(con)
        assert con.execute(f"SELECT release FROM dp_import('{tmp_path}/open.parquet')").fetchall() == [(name,)]
