"""Versions of DuckDB that were tried, what is said of one that was not, and how facts about DuckDB are tested on it."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import duckdb
import pytest
from struck import LONG

import dpsql
from dpsql.session import versions

TESTS = Path(__file__).parents[1]


@pytest.fixture
def untried(monkeypatch):
    monkeypatch.setattr(versions, "TRIED", ("1.0.0", "1.0.1"))
    monkeypatch.setattr(versions, "_said", set())


def test_a_newer_version_is_warned_of_once_and_shown_with_the_budgets(untried):
    with duckdb.connect() as con:
        with pytest.warns(dpsql.UntriedDuckDB, match=rf"DuckDB {duckdb.__version__} is newer .*the last is 1\.0\.1.*pip install") as caught:
            dpsql.load(con)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dpsql.load(con)
        con.execute("CREATE TABLE t AS SELECT true AS a; CALL dp_protect('t', epsilon := 1, delta := 1e-6)")
        assert con.execute("SELECT duckdb FROM dp_budget()").fetchone() == (f"{duckdb.__version__}: newer than any that dpsql was tried with, 1.0.1",)


def test_a_tried_version_is_not_spoken_of(monkeypatch):
    monkeypatch.setattr(versions, "TRIED", (duckdb.__version__,))
    monkeypatch.setattr(versions, "_said", set())
    with duckdb.connect() as con, warnings.catch_warnings():
        warnings.simplefilter("error")
        dpsql.load(con)
        con.execute("CREATE TABLE t AS SELECT true AS a; CALL dp_protect('t', epsilon := 1, delta := 1e-6)")
        assert con.execute("SELECT duckdb FROM dp_budget()").fetchone() == (duckdb.__version__,)


@pytest.mark.parametrize(
    ("version", "newer"),
    [("2.0.1", False), ("2.0.2", True), ("2.0.10", True), ("2.1.0", True), ("1.9.9", False), ("2.0.2.dev12", True), ("2.0.1.dev3", False), ("3.0.0rc1", True), ("odd", True)],
)
def test_which_versions_are_newer(monkeypatch, version, newer):
    monkeypatch.setattr(versions, "TRIED", ("1.4.5", "2.0.1"))
    assert versions.newer(version) is newer


FACTS = """
import pytest

pytest_plugins = ["duckdb_facts"]

@pytest.mark.fact
def test_holds():
    assert True

@pytest.mark.fact
def test_does_not_hold():
    assert False

@pytest.mark.fact("2.0.1")
def test_does_not_hold_on_all():
    assert False
"""


@pytest.mark.parametrize(
    ("tried", "this", "outcome"),
    [
        (("1.4.5", "2.0.1"), "1.4.5", "1 failed, 1 passed, 1 xfailed"),  # the third is known not to hold here
        (("1.4.5", "2.0.1"), "2.0.1", "2 failed, 1 passed"),
        (("1.4.5", "2.0.1"), "9.9.9", "2 xfailed, 1 xpassed"),
    ],
)
def test_facts_fail_on_tried_versions_alone(tmp_path, tried, this, outcome):
    (tmp_path / "test_facts.py").write_text(FACTS)
    program = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r}); import duckdb; duckdb.__version__ = {this!r}\n"
        f"from dpsql.session import versions; versions.TRIED = {tried!r}\n"
        "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', '-o', 'markers=fact', 'test_facts.py']))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=LONG, cwd=tmp_path)
    assert outcome in done.stdout, done.stdout + done.stderr


def test_a_fact_that_begins_to_hold_is_news(monkeypatch):
    monkeypatch.setattr(versions, "TRIED", ("1.4.5", "2.0.1"))
    from duckdb_facts import expectation

    assert expectation("1.4.5", ("2.0.1",)).kwargs["strict"] is True
    assert expectation("2.0.1", ("2.0.1",)) is None
    with pytest.raises(ValueError, match="7.7.7"):
        expectation("2.0.1", ("7.7.7",))


def test_the_documents_name_the_versions():
    root = TESTS.parent
    for page in ("README.md", "docs/guarantee.md"):
        text = (root / page).read_text(encoding="utf-8")
        assert all(version in text for version in versions.TRIED), page
    pins = (root / ".ci" / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nduckdb=={versions.TRIED[-1]}\n" in pins


def test_no_test_uses_the_connection_that_all_share():
    """What one test leaves open on DuckDB's default connection, another one in the same worker would meet."""
    shared = re.compile(r"(?<![\w.'\"])duckdb\.(sql|execute|query|table|read_\w+|from_\w+)\(")
    found = [f"{path.relative_to(TESTS)}:{number}" for path in sorted(TESTS.rglob("*.py")) if "benchmarks" not in path.parts
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if shared.search(line)]
    assert found == []
