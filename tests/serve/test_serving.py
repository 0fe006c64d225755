"""A database is served: answers, limits, refusals, one owner, a clean stop, a kill."""

import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import duckdb
import pytest
from serve.conftest import until

pytestmark = pytest.mark.serve
QUERY = "SELECT sex, count(*) AS n FROM adult GROUP BY sex"


def numbered(number):
    return f"SELECT count(*) AS n FROM adult WHERE age < {number}"


def charges(served):
    """Return entries of charges, and of uses by analyst, once the server is down; the books have to be whole."""
    assert served.books("SELECT books FROM dp_budget('adult')") == [("intact",)]
    return served.books("SELECT release FROM dp_ledger('adult') WHERE action = 'charge' AND release IS NOT NULL")


def test_an_answer_is_bought_once_and_everything_else_is_refused(served):
    alice, bob = served.client(), served.client("bob")
    first = sorted(alice.ask(QUERY))
    assert [row[0] for row in first] == ["Female", "Male"] and sorted(alice.ask(QUERY)) == first
    assert sorted(bob.ask(QUERY)) == first  # the same release; each pays from her grant
    for statement in ("FROM raw", "SELECT secret FROM raw", "CREATE TABLE t(i INT)", "SET threads = 1", "ATTACH 'x' AS x", "BEGIN"):
        told = alice.refusal(statement)
        assert "424242" not in told and str(served.folder) not in told and ".py" not in told and told, statement
    with pytest.raises(Exception, match="[Aa]uthentication"):
        served.tokens["wrong"] = "dpsql_" + "x" * 43
        served.client("wrong")
    assert "424242" in str(served.client("carl").ask("FROM raw"))
    log = (served.folder / "log").read_text()
    assert served.stop() == 0
    assert len(charges(served)) == 1
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"server", "connect", "statement"} == {line["kind"] for line in lines}
    assert all(set(line) <= {"at", "kind", "outcome", "who", "ms"} for line in lines)
    assert not any(token in log for token in served.tokens.values()) and "SELECT" not in log


def test_a_custodian_cannot_change_who_comes_in(served):
    carl = served.client("carl")
    for statement in (
        "SET GLOBAL quack_authorization_function = 'quack_nop_authorization'",
        "SET GLOBAL enable_external_access = true",
        "SET lock_configuration = false",
        f"COPY (FROM raw) TO '{served.folder}/out.csv'",
        "INSTALL postgres",
        f"ATTACH '{served.folder}/other.duckdb' AS o",
    ):
        assert carl.refusal(statement), statement
    assert not (served.folder / "out.csv").exists() and not (served.folder / "other.duckdb").exists()
    assert carl.ask("SELECT release_ok FROM (SELECT true AS release_ok)") == [(True,)]
    assert carl.ask("SELECT epsilon FROM dp_budget('adult')") == [(100.0,)]


def test_a_token_that_is_revoked_ends_its_sessions(served):
    from dpsql.serve import tokens

    alice = served.client()
    assert alice.ask("FROM dp_budget()")
    tokens.revoke(served.folder / "analysts.toml", "alice")
    assert "revoked" in alice.refusal("FROM dp_budget()")
    tokens.add(served.folder / "analysts.toml", "alice", custodian=True)  # another token, and another role
    assert "revoked" in alice.refusal("FROM dp_budget()")
    assert "revoked" in alice.refusal("FROM raw")


def test_a_statement_that_takes_too_long_is_stopped_and_the_next_one_runs(new_served):
    served = new_served("--time-limit", "2", "--max-rows", "1000")
    alice = served.client()
    begun = time.monotonic()
    told = alice.refusal("SELECT count(*) FROM big b, big c WHERE b.x * c.x % 7919 = 3")
    assert "stopped after 2 seconds" in told and time.monotonic() - begun < 15
    assert alice.ask("SELECT count(*) FROM big") == [(200_000,)]
    assert "too large" in alice.refusal("SELECT x FROM big")
    assert served.stop() == 0


def test_answers_come_at_ticks(new_served):
    served = new_served("--answer-every", "1s")
    alice = served.client()
    for statement in ("SELECT count(*) FROM big", "SELECT count(*) FROM big"):
        begun = time.monotonic()
        alice.ask(statement)
        assert time.monotonic() - begun >= 1.0
    begun = time.monotonic()
    assert alice.refusal("FROM raw")
    assert time.monotonic() - begun >= 1.0
    statements = [json.loads(line) for line in (served.folder / "log").read_text().splitlines()]
    assert all(line["ms"] % 1000 == 0 for line in statements if line["kind"] == "statement")


def test_every_statement_is_decided_anew_and_once(served):
    from dpsql.serve import tokens

    def said():
        return [line for line in map(json.loads, (served.folder / "log").read_text().splitlines()) if line["kind"] == "statement"]

    alice = served.client()
    before = len(said())
    for _ in range(5):
        assert alice.ask("SELECT count(*) FROM big") == [(200_000,)]
    assert [line["outcome"] for line in said()[before:]] == ["answered"] * 5
    tokens.revoke(served.folder / "analysts.toml", "alice")
    assert "revoked" in alice.refusal("SELECT count(*) FROM big")


def test_no_decision_is_kept_for_another_session_or_for_a_prepared_statement(served):
    from dpsql.serve import tokens

    text, found = "SELECT count(*) AS n FROM adult WHERE age < 44", {}
    clients = [(name, served.client(name)) for name in ("alice", "nobody", "alice", "nobody", "bob")]
    barrier = threading.Barrier(len(clients))

    def ask(place):
        name, client = clients[place]
        for _ in range(4):
            barrier.wait(60)
            try:
                found.setdefault(place, []).append(client.ask(text))
            except duckdb.Error as error:
                found.setdefault(place, []).append(str(error))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    answers = {str(one) for place in (0, 2, 4) for one in found[place]}
    assert len(answers) == 1 and "does not exist" not in answers.pop()  # of those with a grant, the same release
    assert all("does not exist" in one for place in (1, 3) for one in found[place])  # whoever else asks the same at that moment
    con = clients[0][1].con
    con.execute(f"PREPARE again AS FROM c.query($${text}$$)")
    before = con.execute("EXECUTE again").fetchall()
    assert con.execute("EXECUTE again").fetchall() == before == found[0][0]
    tokens.revoke(served.folder / "analysts.toml", "alice")
    assert con.execute("EXECUTE again").fetchall() == before  # her client has it: nothing is sent
    with pytest.raises(duckdb.Error, match="revoked"):
        con.execute(f"PREPARE once_more AS FROM c.query($${text}$$)")
    assert served.stop() == 0
    assert len(charges(served)) == 1
    who = served.books("SELECT who FROM dp_ledger('adult') WHERE action IN ('charge', 'use') ORDER BY who")
    assert who == [("analyst:alice",), ("analyst:bob",)]


def test_a_reading_that_died_is_written_down_when_the_server_starts(new_served, monkeypatch):
    from dpsql.purchase import buying
    from dpsql.purchase.failures import Note

    served = new_served()
    assert served.stop() == 0

    def dies(_context, protected, purchase, path, _progress):
        Note(protected.key, purchase.release, purchase.charge["hash"], "of a process that is gone").write(path.parent)
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(buying, "measure", dies)
        with pytest.raises(duckdb.Error):
            served.books("FROM dp_query('SELECT count(*) AS n FROM adult WHERE age < 41', epsilon := 0.1)")
    assert len(list(served.folder.rglob(".failed-*"))) == 1
    served.start()
    carl = served.client("carl")
    ((books,),) = carl.ask("SELECT books FROM dp_budget('adult')")
    assert books.startswith("intact; only tables and their columns can be bought since a reading failed")
    assert not list(served.folder.rglob(".failed-*"))
    assert carl.ask("SELECT count(*) FROM dp_ledger('adult') WHERE action = 'fail'") == [(1,)]
    assert "without WHERE" in served.client().refusal(numbered(50))
    assert served.client().ask("SELECT count(*) AS n FROM adult")
    carl.ask("CALL dp_protect('adult', resume := true)")
    assert served.client().ask(numbered(50))
    assert served.stop() == 0


def test_what_fails_after_a_purchase_is_kept_and_free(served):
    alice = served.client()
    bought = "dp_query('SELECT count(*) AS n FROM adult WHERE age < 47', epsilon := 0.1)"
    for statement in (f"SELECT n + 'abc' FROM {bought}", f"SELECT nothing FROM {bought}", f"SELECT n::UTINYINT FROM {bought}"):
        assert "not charged again" in alice.refusal(statement)
        assert alice.ask("SELECT releases FROM dp_budget()") == [(1,)]
    assert alice.ask(f"SELECT n > 0 FROM {bought}") == [(True,)]
    for statement in ("SELECT sum(age) + 'abc' FROM adult", "SELECT count(*), timezone('Nowhere', TIMESTAMP '2000-01-01') FROM adult"):
        assert "Nothing was charged" in alice.refusal(statement)
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM adult WHERE age < 47"
    assert alice.ask(clause) == alice.ask(f"FROM {bought}")
    assert alice.ask("SELECT releases FROM dp_budget()") == [(1,)]
    pivot = "PIVOT (FROM dp_query('SELECT sex, count(*) AS n FROM adult GROUP BY sex')) ON sex IN ('Female', 'Male') USING sum(n)"
    assert len(alice.ask(pivot)[0]) == 2
    assert "ON column IN" in alice.refusal("PIVOT big ON x USING count(*)")


def test_read_only_analysts_buy_nothing(new_served):
    served = new_served()
    before = sorted(served.client().ask(QUERY))
    assert served.stop() == 0
    served.start("--read-only-analysts")
    alice = served.client()
    assert sorted(alice.ask(QUERY)) == before
    assert "buy nothing" in alice.refusal(numbered(40))
    assert "buy nothing" in served.client("bob").refusal(QUERY)
    assert served.stop() == 0
    assert len(charges(served)) == 1


def test_a_second_process_is_told_who_has_the_file_and_the_port(served):
    other = subprocess.run(served.command(), capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and f"process {served.process.pid}" in other.stderr and len(other.stderr.splitlines()) == 1
    shutil.copy(served.database, served.folder / "copy.duckdb")
    command = [str(served.folder / "copy.duckdb") if part == str(served.database) else part for part in served.command()]
    other = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "listens there" in other.stderr and "Traceback" not in other.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--listen", "0.0.0.0:9999"], "only a loopback address"),
        (["--memory", "a lot"], "an amount is required"),
        (["--answer-every", "soon"], "a time is required"),
        (["--encryption-key-env", "NO_SUCH_KEY"], "no such variable"),
        (["--encryption-key-file", "nowhere.key"], "cannot be read"),
        (["--analysts", "nowhere.toml"], "analysts"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(served, options, told):
    served.stop()
    other = subprocess.run(served.command(*options), capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and told in other.stderr and len(other.stderr.splitlines()) == 1


def test_health(new_served):
    from serve.conftest import free_port

    port = free_port()
    served = new_served("--health", str(port))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        assert answer.status == 200 and answer.read() == b"ok\n"
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=10)
    assert served.stop() == 0


def test_sigterm_finishes_what_runs(served):
    alice, found = served.client(), []
    asking = threading.Thread(target=lambda: found.append(alice.ask(numbered(33))))
    asking.start()
    time.sleep(0.3)
    assert served.stop() == 0
    asking.join(30)
    bought = charges(served)
    assert len(found) in (0, 1) and len(bought) >= len(found)
    assert served.books("SELECT status FROM dp_releases('adult')") == [("stored",)] * len(bought)


def after_a_kill(served, most):
    """Return what was charged, once a server was killed; the books have to be true, whatever it was doing.

    A reading through WHERE that the kill ended counts as failed: nobody can tell whether a row ended it. One can die in each of the
    ``most`` statements that ran. From then on only plain columns can be bought, until the custodian has looked.
    """
    look = f"FROM dp_query('SELECT count(*) AS n FROM adult', epsilon := 0.1, release := 'look{most}')"
    served.books(look)  # the first purchase of the next process writes down what died
    (books,) = served.books("SELECT books FROM dp_budget('adult')")[0]
    assert books == "intact" or books.startswith("intact; only tables and their columns can be bought"), books
    failed = served.books("SELECT release FROM dp_ledger('adult') WHERE action = 'fail'")
    assert len(failed) <= most and (failed or books == "intact")
    if books != "intact":
        served.books("CALL dp_protect('adult', resume := true)")
    return charges(served), failed


@pytest.mark.slow
def test_a_kill_under_load_leaves_the_books_true(new_served):
    served = new_served()
    known, wrong, turns = {}, [], 4
    bought, failed = [], []
    for turn in range(turns):
        if turn:
            served.start()
        stop = threading.Event()

        def load(name, turn=turn, stop=stop):
            try:
                client = served.client(name)
                for number in range(20 + 20 * turn, 60 + 20 * turn):
                    if stop.is_set():
                        return
                    statement = numbered(number)
                    try:
                        (answer,) = client.ask(statement)
                    except duckdb.InvalidInputException as error:
                        if "fail" not in str(error):
                            raise
                        continue
                    if known.setdefault(statement, answer) != answer:
                        wrong.append(statement)
            except duckdb.Error as error:
                if not stop.is_set() or not isinstance(error, duckdb.IOException):  # else the server is gone
                    wrong.append(str(error))

        threads = [threading.Thread(target=load, args=(name,)) for name in ("alice", "bob", "alice")]
        for thread in threads:
            thread.start()
        before = len(known)
        assert until(lambda before=before: len(known) > before or wrong, 60) and not wrong, wrong
        time.sleep(0.2 * turn)
        stop.set()
        served.stop(signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads) and not wrong
        bought, failed = after_a_kill(served, 2 * (turn + 1))
        assert len(bought) == len(set(bought)) >= len(known)
    served.start()
    alice = served.client()
    for statement, answer in known.items():
        assert alice.ask(statement) == [answer]
    assert served.stop() == 0
    assert charges(served) == bought  # what was given is free
    stored = served.books("SELECT release FROM dp_releases('adult') WHERE status = 'stored'")
    assert len(stored) >= len(known) and not set(failed) & set(stored)


def test_clients_that_vanish_or_say_nothing_do_not_stop_the_others(served):
    idle = [socket.create_connection(("localhost", served.port)) for _ in range(100)]
    for one in idle[:50]:
        one.sendall(b"POST /quack HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf")
    begun = time.monotonic()
    alice = served.client()
    assert alice.ask("SELECT count(*) FROM big") == [(200_000,)]
    assert time.monotonic() - begun < 90
    for one in idle:
        one.close()
    gone = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); from serve.conftest import Client; "
         "Client(int(sys.argv[2]), sys.argv[3]).ask(sys.argv[4])", str(Path(__file__).parents[1]), str(served.port),
         served.tokens["bob"], "SELECT count(*) FROM big b, big c WHERE b.x * c.x % 7919 = 3"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(3)
    gone.kill()
    gone.wait()
    assert alice.ask("SELECT count(*) FROM big") == [(200_000,)]


def test_a_full_disk_is_told_in_a_closed_text_and_charges_nothing_twice(new_served):
    served = new_served(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22)))
    alice, told = served.client(), []
    for number in range(20, 60):
        try:
            alice.ask(numbered(number))
        except Exception as error:
            told.append(str(error))
    for text in told:
        assert str(served.folder) not in text and ".py" not in text and "IO Error" not in text.replace("Invalid Input Error", "")
    served.stop(signal.SIGKILL)
    bought = charges(served)
    assert len(bought) == len(set(bought))


def test_waiting_is_bounded(new_served):
    served = new_served("--time-limit", "4")
    found, clients = [], [served.client() for _ in range(7)]

    def ask(client):
        try:
            found.append(client.ask("SELECT count(*) FROM big b, big c WHERE b.x * c.x % 7919 = 3"))
        except Exception as error:
            found.append(str(error))

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert until(lambda: len(found) == 7)
    assert any("too many statements" in str(one) for one in found) and any("stopped after" in str(one) for one in found)
