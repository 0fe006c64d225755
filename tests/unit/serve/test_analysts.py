"""The file of analysts: tokens are shown once, and who is revoked, expired or unknown does not come in."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import math
import os
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import ArgumentError
from dpsql.serve import analysts, passed
from dpsql.serve.analysts import PREFIX, Analysts

pytestmark = pytest.mark.any_duckdb
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
VISITS = {"main.visits": 0.1}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "analysts.toml"


def opened(path, now=None):
    """The file, and what it has said."""
    said: list[str] = []
    return Analysts(path, now=now, say=said.append), said


def inside(held, name, token):
    """Whether a token is its analyst's, asked in every way; all have to agree."""
    number = held.admits(name, token)
    assert held.of_token(token) == (None if number is None else (name, number))
    if number is not None:
        assert held.number(name) == number and held.native(name) == hashlib.sha1(hashlib.sha1(token.encode()).digest()).digest()
    return number is not None


def test_a_token_opens_for_its_analyst_alone(path):
    alice, bob = analysts.add(path, "alice", VISITS), analysts.add(path, "bob.b-1", {})
    held: passed.Keys = Analysts(path)
    assert inside(held, "alice", alice) and inside(held, "bob.b-1", bob)
    assert held.admits("alice", bob) is None and held.admits("bob.b-1", alice) is None and held.admits("Alice", alice) is None
    for wrong in ("", "x", alice[:-1], alice + "x", alice.swapcase(), f"{alice}\n", "\ud800", alice.removeprefix(PREFIX), alice * 9000):
        assert not inside(held, "alice", wrong) and held.admits("", wrong) is None and held.admits("nobody", wrong) is None
    assert held.number("nobody") is None and held.native("nobody") is None and held.number("alice") != held.number("bob.b-1")


def test_an_unknown_name_takes_as_many_comparisons_as_a_known_one(path, monkeypatch):
    token = analysts.add(path, "alice", {})
    held, compared = Analysts(path), []

    def counted(one, other):
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert held.admits("alice", token) is not None
    for name, wrong in (("alice", "x"), ("nobody", token), ("", "")):
        assert held.admits(name, wrong) is None
    assert compared == [(64, 64)] * 4


def test_the_file_has_no_token_and_is_its_owners(path):
    made = [analysts.add(path, f"analyst{i}", VISITS) for i in range(20)]
    text = path.read_text()
    assert not any(token in text or token.removeprefix(PREFIX) in text for token in made)
    assert len(set(made)) == 20 and all(len(token) == len(PREFIX) + 43 for token in made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    all_ = Analysts(path).all()
    assert len({one.salt for one in all_}) == 20 and len({one.number for one in all_}) == 20
    assert not any(one.hash in repr(all_) or one.salt in repr(all_) or one.native in repr(all_) for one in all_)
    assert [item for item in path.parent.iterdir() if item.name not in (path.name, f".{path.name}.lock")] == []


def test_the_file_is_readable_and_changed_by_hand_while_it_is_in_use(path):
    analysts.add(path, "alice", {"main.visits": 0.05}, now=START)
    analysts.publish(path, "main.wards")
    said = tomllib.loads(path.read_text())
    assert said["public"] == ["main.wards"] and said["analyst"]["alice"]["grants"] == {"main.visits": 0.05}
    assert said["analyst"]["alice"]["created"] == START
    held = Analysts(path)
    path.write_text(path.read_text().replace("0.05", "2").replace('"main.wards"', '"main.wards", "main.beds"'))
    assert held.granted("alice") == {"main.visits": 2.0} and held.public() == {"main.wards", "main.beds"}


@pytest.mark.parametrize("table", ["main.visits", 'main."odd na"', "main.größe", 'main."😀 \x7f\t\\ \' ""x"', "1.2"])
def test_any_name_of_a_table_comes_back(path, table):
    analysts.add(path, "alice", {table: 1e-7, "main.other": 3})
    analysts.publish(path, table)
    held = Analysts(path)
    assert held.granted("alice") == {table: 1e-7, "main.other": 3.0} and held.public() == {table}


def test_revoked_is_out_at_once_and_may_be_added_again(path):
    first = analysts.add(path, "alice", VISITS)
    held, _ = opened(path)
    number = held.admits("alice", first)
    assert held.number("alice") == number
    revoked = analysts.revoke(path, "alice")
    assert not inside(held, "alice", first) and held.number("alice") is None and held.native("alice") is None
    assert held.granted("alice") == {} and not (revoked.hash or revoked.native or revoked.salt)
    assert analysts.revoke(path, "alice").revoked.replace(microsecond=0) == revoked.revoked.replace(microsecond=0)
    second = analysts.add(path, "alice", {})
    assert not inside(held, "alice", first) and inside(held, "alice", second)
    assert held.number("alice") != number  # a session of the old token does not live again
    assert held.granted("alice") == {}  # nor do its grants


def test_a_token_expires_to_the_second(path):
    clock = [START]
    token = analysts.add(path, "alice", VISITS, expires="90d", now=START)
    held, _ = opened(path, now=lambda: clock[0])
    clock[0] = START + dt.timedelta(days=90) - dt.timedelta(seconds=1)
    assert inside(held, "alice", token) and held.granted("alice")
    clock[0] += dt.timedelta(seconds=1)
    assert not inside(held, "alice", token) and held.granted("alice") == {}
    assert held.all()[0].state(clock[0]) == "expired"
    again = analysts.add(path, "alice", {}, now=clock[0])  # an expired one is replaced
    assert inside(held, "alice", again) and not inside(held, "alice", token)


@pytest.mark.parametrize(("text", "until"), [("12h", "2026-11-01 12:00"), ("8w", "2026-12-27"), ("2027-01-31", "2027-01-31"), ("2027-01-31T09:30:00+02:00", "2027-01-31 07:30")])
def test_until_when(path, text, until):
    analysts.add(path, "alice", {}, expires=text, now=START)
    assert Analysts(path).all()[0].expires == dt.datetime.fromisoformat(until).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "0d", "1.5d", "90 d", "100000d", "1y", "90d\n", "2026-11-01", "1999-01-01", "2027-02-30", "٩d", "soon", "9999-12-31T23:59:59-12:00"])
def test_a_wrong_time_is_refused(path, text):
    with pytest.raises(ArgumentError, match=r"expires = .*'12h', '90d', '8w'"):
        analysts.add(path, "alice", {}, expires=text, now=START)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "ä", "a\n", "a" * 64, 'a"b', "analyst:a", "a\0", "аlice", "../a", "a" * 10_000])
def test_a_wrong_name_is_refused(path, name):
    with pytest.raises(ArgumentError, match=r"^name = .*a letter or digit first$"):
        analysts.add(path, name, {})
    assert not path.exists()


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, True, "0.1", None])
def test_a_wrong_epsilon_is_refused(path, epsilon):
    with pytest.raises(ArgumentError, match=r"^grant on main\.visits .*above 0"):
        analysts.add(path, "alice", {"main.visits": epsilon})
    assert not path.exists()


def test_a_name_is_taken_in_any_case(path):
    analysts.add(path, "alice", {})
    for name in ("alice", "Alice"):
        with pytest.raises(ArgumentError, match=r"there is an analyst 'alice' already; dpsql analyst revoke alice first"):
            analysts.add(path, name, {})
    analysts.revoke(path, "alice")
    with pytest.raises(ArgumentError, match="there is an analyst 'alice'"):
        analysts.add(path, "Alice", {})  # the books would have two histories under look-alike names
    for change in (analysts.revoke, lambda file, name: analysts.grant(file, name, VISITS)):
        with pytest.raises(ArgumentError, match="no such analyst; dpsql analyst list"):
            change(path, "bob")


def test_grants_change_and_the_token_stays(path):
    token = analysts.add(path, "alice", VISITS)
    held, _ = opened(path)
    number = held.number("alice")
    analysts.grant(path, "alice", {"main.visits": 0.02, "main.beds": 1})
    assert held.granted("alice") == {"main.visits": 0.02, "main.beds": 1.0}
    analysts.grant(path, "alice", {"main.visits": 0})
    assert held.granted("alice") == {"main.beds": 1.0} and held.number("alice") == number and inside(held, "alice", token)
    with pytest.raises(ArgumentError, match="above 0"):
        analysts.grant(path, "alice", {"main.visits": -1})
    with pytest.raises(TypeError):
        held.granted("alice")["main.visits"] = 100.0


def test_what_is_published(path):
    assert analysts.publish(path, "main.wards") and not analysts.publish(path, "main.wards")
    held, _ = opened(path)
    assert held.public() == {"main.wards"}
    assert analysts.publish(path, "main.wards", withdraw=True) and not analysts.publish(path, "main.wards", withdraw=True)
    assert held.public() == frozenset()
    with pytest.raises(ArgumentError, match="cannot be read"):
        analysts.publish(path.with_name("other.toml"), "main.wards", withdraw=True)


ENTRY = "[analyst.alice]\nnumber=1\nsalt='{s}'\nhash='{h}'\nnative='{n}'\ncreated=2026-01-01T00:00:00Z\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("analyst = 1", "analyst a table"), ("[analyst]\nalice = 1", "an analyst"), ("[analyst.alice]", "alice: number"),
        ("not toml [", "TOML"), ("\xff", "TOML"), ("a = " + "[" * 100_000, "TOML"), ("x" * (1 << 23), "too long"),
        ("analysts = 1", "analysts means nothing"), ("public = 'main.wards'", "public"), ("public = [1]", "public"),
        (ENTRY.replace("{h}", "x"), "alice: hash"), (ENTRY.replace("{s}", ""), "alice: salt"), (ENTRY.replace("{n}", "{h}"), "alice: native"),
        (ENTRY.replace("00Z", "00"), "alice: created"), (ENTRY + "expires='soon'", "alice: expires"),
        (ENTRY + "expire=2026-01-01T00:00:00Z", "alice: expire means nothing"), (ENTRY + "revoked=1", "alice: revoked"),
        (ENTRY.replace("number=1", "number=true"), "alice: number"), (ENTRY.replace("alice", "'a b'"), "an analyst"),
        (ENTRY + ENTRY.replace("alice", "Alice"), "two names"), (ENTRY + "[analyst.alice.grants]\nx = 0", "alice: a grant"),
        (ENTRY + "[analyst.alice.grants]\nx = inf", "alice: a grant"), (ENTRY + "grants = 1", "alice: a grant"), (ENTRY + ENTRY, "TOML"),
    ],
)  # fmt: skip
def test_a_broken_file_lets_nobody_in_and_says_so_once(path, text, why):
    token = analysts.add(path, "alice", VISITS)
    analysts.publish(path, "main.wards")
    held, said = opened(path)
    before, filled = path.read_bytes(), text.replace("{s}", "0" * 32).replace("{h}", "0" * 64).replace("{n}", "0" * 40)
    path.write_bytes(filled.encode("latin-1"))
    for _ in range(2):
        assert not inside(held, "alice", token) and held.all() == [] and held.public() == set() and held.granted("alice") == {}
    assert len(said) == 1 and said[0].startswith("nobody is let in: analysts = ") and why in said[0] and "0" * 32 not in said[0]
    with pytest.raises(ArgumentError, match="is no file of analysts"):
        Analysts(path)
    with pytest.raises(ArgumentError, match="is no file of analysts"):
        analysts.add(path, "bob", {})  # what is there is not overwritten
    assert path.read_bytes() == filled.encode("latin-1")
    path.write_bytes(before)
    assert inside(held, "alice", token)
    path.write_bytes(b"x")
    assert not inside(held, "alice", token) and len(said) == 2


def test_the_entry_of_the_broken_files_is_right_without_its_mistake(path):
    path.write_text(ENTRY.replace("{s}", "0" * 32).replace("{h}", "0" * 64).replace("{n}", "0" * 40) + "[analyst.alice.grants]\nx = 1")
    path.chmod(0o600)
    assert [(one.name, one.grants) for one in Analysts(path).all()] == [("alice", {"x": 1})]


def test_a_file_that_goes_lets_nobody_in_and_comes_back(path):
    token = analysts.add(path, "alice", {})
    (held, said), text = opened(path), path.read_text()
    path.unlink()
    assert not inside(held, "alice", token) and len(said) == 1
    path.write_text(text)
    path.chmod(0o600)
    assert inside(held, "alice", token)
    for mode in (0o622, 0o640, 0o604):
        path.chmod(mode)
        assert not inside(held, "alice", token)
        with pytest.raises(ArgumentError, match="chmod 600"):
            Analysts(path)
    with pytest.raises(ArgumentError, match="cannot be read .*dpsql analyst add NAME DATABASE"):
        Analysts(path.with_name("other.toml"))
    with pytest.raises(ArgumentError, match="cannot be read"):
        analysts.revoke(path.with_name("other.toml"), "alice")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_lets_nobody_in(path):
    token = analysts.add(path, "alice", {})
    held, said = opened(path)
    os.chown(path, 4242, 4242)
    assert not inside(held, "alice", token) and "be its owner" in said[0]


def test_a_link_stays_one(path, tmp_path):
    (tmp_path / "real").mkdir()
    path.symlink_to(tmp_path / "real" / "analysts.toml")
    token = analysts.add(path, "alice", {})
    assert path.is_symlink() and inside(Analysts(path), "alice", token)


def test_many_threads_at_once_lose_nobody(path):
    made: dict[str, str] = {}

    def run(first):
        for i in range(5):
            made[f"a{first}-{i}"] = analysts.add(path, f"a{first}-{i}", {})

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = Analysts(path)
    assert len(made) == 20 and all(inside(held, name, token) for name, token in made.items())


def test_many_processes_at_once_lose_nobody(path):
    program = "import sys; from dpsql.serve import analysts\nfor i in range(5): print(analysts.add(sys.argv[1], sys.argv[2] + str(i), {}))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(dpsql.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    children = [subprocess.Popen([sys.executable, "-P", "-c", program, path, f"a{n}-"], stdout=subprocess.PIPE, text=True, env=env) for n in range(3)]
    tokens = {f"a{n}-{i}": token for n, child in enumerate(children) for i, token in enumerate(child.communicate()[0].split())}
    held = Analysts(path)
    assert len(tokens) == 15 and all(inside(held, name, token) for name, token in tokens.items())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ArgumentError, match="cannot be written"):
        analysts.add(tmp_path / "analysts.toml", "alice", {})


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ArgumentError, match=r"cannot be written \(No such file or directory\); name another file"):
        analysts.add(tmp_path / "none" / "analysts.toml", "alice", {})


def test_a_failed_write_leaves_the_file_as_it_was(path, monkeypatch):
    token = analysts.add(path, "alice", {})
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ArgumentError, match="No space left on device"):
            analysts.add(path, "bob", {})
    assert path.read_bytes() == before and inside(Analysts(path), "alice", token)
    assert sorted(item.name for item in path.parent.iterdir()) == [f".{path.name}.lock", path.name]
