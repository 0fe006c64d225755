"""The file of analysts: tokens are shown once, and who is revoked, expired or unknown does not come in."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import stat
import threading

import pytest

from dpsql.errors import ArgumentError
from dpsql.serve import tokens
from dpsql.serve.tokens import Analysts

START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "analysts.toml"


def test_a_token_opens_for_its_analyst_alone(path):
    alice, bob = tokens.add(path, "alice"), tokens.add(path, "bob.b-1", custodian=True)
    held = Analysts(path)
    assert (held.who(alice).name, held.who(alice).role) == ("alice", "analyst")
    assert (held.who(bob).name, held.who(bob).role) == ("bob.b-1", "custodian")
    for wrong in ("", "x", alice[:-1], alice + "x", alice.swapcase(), f"{alice}\n", "\ud800", alice.removeprefix(tokens.PREFIX)):
        assert held.who(wrong) is None
    one = held.who(alice)
    assert held.still(one)
    for other in ({"name": "carol"}, {"name": "Alice"}, {"role": "custodian"}, {"salt": "0" * 32}, {"hashed": "0" * 64}):
        assert not held.still(dataclasses.replace(one, **other)), other


def test_the_file_has_no_token_and_is_its_owners(path):
    made = [tokens.add(path, f"analyst{i}") for i in range(20)]
    text = path.read_text()
    assert not any(token in text or token.removeprefix(tokens.PREFIX) in text for token in made)
    assert len(set(made)) == 20 and all(len(token) >= len(tokens.PREFIX) + 43 for token in made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    salts = {one.salt for one in Analysts(path).all()}
    assert len(salts) == 20
    shown = repr(Analysts(path).all())
    assert not any(one.hashed in shown or one.salt in shown for one in Analysts(path).all())
    assert [item for item in path.parent.iterdir() if item.name not in (path.name, f".{path.name}.lock")] == []


def test_revoked_is_out_at_once_and_may_be_added_again(path):
    first = tokens.add(path, "alice")
    held = Analysts(path)
    one = held.who(first)
    assert held.still(one)
    tokens.revoke(path, "alice")
    assert held.who(first) is None and not held.still(one)
    revoked = tokens.revoke(path, "alice").revoked
    assert tokens.revoke(path, "alice").revoked == revoked  # said again
    second = tokens.add(path, "alice")
    assert held.who(first) is None and held.who(second).name == "alice"
    assert held.still(held.who(second)) and not held.still(one)  # a session of the old token does not live again


def test_a_token_expires_to_the_second(path):
    clock = [START]
    token = tokens.add(path, "alice", expires="90d", now=START)
    held = Analysts(path, now=lambda: clock[0])
    clock[0] = START + dt.timedelta(days=90) - dt.timedelta(seconds=1)
    one = held.who(token)
    assert held.still(one)
    clock[0] += dt.timedelta(seconds=1)
    assert held.who(token) is None and not held.still(one)
    assert held.all()[0].state(clock[0]) == "expired"
    again = held.who(tokens.add(path, "alice", now=clock[0]))  # an expired one is replaced
    assert held.still(again) and not held.still(one)


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "0d", "1.5d", "90 d", "100000d", "1y", "90d\n"])
def test_a_wrong_duration_is_refused(path, text):
    with pytest.raises(ArgumentError, match="expires"):
        tokens.add(path, "alice", expires=text)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "ä", "a\n", "a" * 64, 'a"b', "analyst:a"])
def test_a_wrong_name_is_refused(path, name):
    with pytest.raises(ArgumentError, match="name"):
        tokens.add(path, name)


def test_a_name_is_taken_in_any_case(path):
    tokens.add(path, "alice")
    for name in ("alice", "Alice"):
        with pytest.raises(ArgumentError, match="there is an analyst 'alice'"):
            tokens.add(path, name)
    tokens.revoke(path, "alice")
    with pytest.raises(ArgumentError, match="there is an analyst 'alice'"):
        tokens.add(path, "Alice")  # the books would have two histories under look-alike names
    with pytest.raises(ArgumentError, match="no such analyst"):
        tokens.revoke(path, "bob")


@pytest.mark.parametrize(
    "text",
    [
        "analysts = 1", "[analysts]\nalice = 1", "[analysts.alice]\nrole = 'analyst'", "not toml [", "\xff",
        "[analysts.alice]\nrole='root'\nsalt='{s}'\nhash='{h}'\nmade=2026-01-01T00:00:00Z",
        "[analysts.alice]\nrole='analyst'\nsalt=''\nhash='{h}'\nmade=2026-01-01T00:00:00Z",
        "[analysts.alice]\nrole='analyst'\nsalt='{s}'\nhash='x'\nmade=2026-01-01T00:00:00Z",
        "[analysts.alice]\nrole='analyst'\nsalt='{s}'\nhash='{h}'\nmade=2026-01-01T00:00:00",
        "[analysts.alice]\nrole='analyst'\nsalt='{s}'\nhash='{h}'\nmade=2026-01-01T00:00:00Z\nexpires='soon'",
        "[analysts.alice]\nrole='analyst'\nsalt='{s}'\nhash='{h}'\nmade=2026-01-01T00:00:00Z\nexpire=2026-01-01T00:00:00Z",
        "[analysts.'a b']\nrole='analyst'\nsalt='{s}'\nhash='{h}'\nmade=2026-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_a_broken_file_lets_nobody_in(path, text):
    token = tokens.add(path, "alice")
    held = Analysts(path)
    one = held.who(token)
    path.write_bytes(text.replace("{s}", "0" * 32).replace("{h}", "0" * 64).encode("latin-1"))
    assert held.who(token) is None and not held.still(one) and held.all() == []
    with pytest.raises(ArgumentError, match="analysts"):
        Analysts(path)
    with pytest.raises(ArgumentError, match="analysts"):
        tokens.add(path, "bob")  # what is there is not overwritten


def test_a_file_that_goes_lets_nobody_in_and_comes_back(path):
    token = tokens.add(path, "alice")
    held, text = Analysts(path), path.read_text()
    path.unlink()
    assert held.who(token) is None
    path.write_text(text)
    path.chmod(0o600)
    assert held.who(token).name == "alice"
    path.chmod(0o622)
    assert held.who(token) is None
    with pytest.raises(ArgumentError, match="others than its owner"):
        Analysts(path)
    with pytest.raises(ArgumentError, match="cannot be read"):
        Analysts(path.with_name("other.toml"))


def test_many_at_once_lose_nobody(path):
    made: dict[str, str] = {}

    def run(first):
        for i in range(5):
            made[f"a{first}-{i}"] = tokens.add(path, f"a{first}-{i}")

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = Analysts(path)
    assert {name: held.who(token).name for name, token in made.items()} == {name: name for name in made} and len(made) == 20


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ArgumentError, match="cannot be written"):
        tokens.add(tmp_path / "analysts.toml", "alice")
