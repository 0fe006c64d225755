"""dpsql grant, publish and analyst: for custodians who don't write SQL."""

from __future__ import annotations

import shutil

import duckdb
import pytest

from dpsql.cli.commands import FAILED, main
from dpsql.serve.tokens import PREFIX, Analysts

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def file(tmp_path, protected_people):
    return str(shutil.copy(protected_people, tmp_path / "people.duckdb"))


def test_a_grant_is_made_listed_and_removed(file, capsys):
    given = ["--analyst", "alice", "--epsilon", "1", "--per-query", "0.2", "--renew", "month", "--methods", "query, marginals"]
    assert main(["grant", "-m", "csv", file, "people", *given, "--columns", "sex,age"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("source,analyst,epsilon,per_query,renew") and row.startswith("main.people,alice,1.0,0.2,month")
    assert "granted" in row and "[marginals, query]" in row.replace("'", "") and "[age, sex]" in row.replace("'", "")
    assert main(["grant", "-m", "csv", file, "people"]) == 0
    assert "alice" in capsys.readouterr().out
    assert main(["grant", file, "people", "--analyst", "alice", "--remove"]) == 0
    capsys.readouterr()
    assert main(["grant", "-m", "csv", file, "people"]) == 0
    assert "alice" not in capsys.readouterr().out
    assert main(["grant", file, "people", "--analyst", "alice", "--epsilon", "-1"]) == FAILED
    assert "epsilon = -1" in capsys.readouterr().err


def test_a_table_is_published(file, capsys):
    with duckdb.connect(file) as con:
        con.execute("CREATE TABLE wards AS SELECT 1 AS ward")
    assert main(["publish", file, "people"]) == FAILED
    assert "is protected" in capsys.readouterr().err
    assert main(["publish", file, "wards"]) == 0
    capsys.readouterr()
    assert main(["publish", "-m", "csv", file]) == 0
    assert "main.wards,table" in capsys.readouterr().out
    assert main(["publish", file, "wards", "--remove"]) == 0
    capsys.readouterr()
    assert main(["publish", "-m", "csv", file]) == 0
    assert "wards" not in capsys.readouterr().out


def test_a_token_is_printed_once_and_alone(tmp_path, capsys):
    path = tmp_path / "analysts.toml"
    assert main(["analyst", "add", "alice", "--file", str(path), "--expires", "90d"]) == 0
    shown = capsys.readouterr()
    token = shown.out.strip()
    assert token.startswith(PREFIX) and token not in shown.err
    assert Analysts(path).who(token).name == "alice"
    assert main(["analyst", "add", "carol", "--file", str(path), "--custodian"]) == 0
    capsys.readouterr()
    assert main(["analyst", "list", "--file", str(path)]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [["alice", "analyst", "valid"], ["carol", "custodian", "valid"]]
    assert token not in listed
    assert main(["analyst", "revoke", "alice", "--file", str(path)]) == 0
    assert Analysts(path).who(token) is None
    assert main(["analyst", "revoke", "bob", "--file", str(path)]) == FAILED
    assert main(["analyst", "list", "--file", str(tmp_path / "none.toml")]) == FAILED
