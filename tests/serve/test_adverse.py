"""Clients that stall, and a disk that is full: others go on, memory stays, the books are true."""

import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from serve.conftest import Client, Served, free_port
from serve.wire import Proxy

pytestmark = pytest.mark.serve
HALF = b"POST /quack HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf"


def resident(served):
    """Return the megabytes of memory that the server has."""
    (line,) = [one for one in Path(f"/proc/{served.process.pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def longest(client, times=3):
    """Return the seconds of the slowest of some small statements."""
    found = []
    for _ in range(times):
        begun = time.monotonic()
        assert client.ask("SELECT count(*) FROM big") == [(200_000,)]
        found.append(time.monotonic() - begun)
    return max(found)


def test_stalled_requests_do_not_hold_up_others_and_keep_no_memory(served):
    alice = served.client()
    longest(alice)
    before = resident(served)
    for _ in range(5):
        stalled = [socket.create_connection(("localhost", served.port), timeout=10) for _ in range(90)]
        for number, one in enumerate(stalled):
            one.sendall((b"", b"POST /quack HT", HALF)[number % 3])
        assert longest(alice) < 10  # without them it is a tenth of a second; a machine may be busy
        assert served.client("bob").ask("SELECT count(*) FROM big") == [(200_000,)]
        for one in stalled:
            one.close()
    assert resident(served) - before < 200
    assert served.stop() == 0


def test_answers_that_nobody_reads_on_do_not_hold_up_others_and_are_bounded(served):
    alice = served.client()
    proxy = Proxy(served.port)
    bob = Client(proxy.port, served.tokens["bob"])
    assert len(bob.ask("SELECT x FROM big")) == 200_000
    (body,) = [sent for sent, _ in proxy.seen if b"SELECT x FROM big" in sent]
    before, readers = resident(served), []

    def ask():
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # the answer does not fit into the connection
        one.connect(("localhost", served.port))
        one.sendall(b"POST /quack HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        readers.append(one)

    for _ in range(3):
        for _ in range(20):
            ask()
        assert longest(alice) < 20
    assert len(readers) == 60 and readers[0].recv(10).startswith(b"HTTP/1.1 2")
    assert resident(served) - before < 300  # 60 answers of 1.6 MB each would be 100; a session keeps four
    for one in readers:
        one.close()
    proxy.close()
    assert longest(alice) < 10
    assert served.stop() == 0


def test_health_answers_beside_a_hundred_clients_that_say_nothing(new_served):
    port = free_port()
    served = new_served("--health", str(port))
    silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(100)]
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as answer:
        assert answer.status == 200
    assert time.monotonic() - begun < 10
    for one in silent:
        one.close()
    assert served.stop() == 0


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 96 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("a small disk takes the right to mount one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path, left):
    """Fill a disk with a file, but for so many bytes."""
    with path.open("wb", buffering=0) as handle:
        while (free := shutil.disk_usage(path.parent).free) > left:
            handle.write(b"\0" * min(1 << 20, max(4096, free - left)))


def test_a_disk_that_is_full_charges_nothing_and_says_so(prepared, small_disk):
    folder = small_disk / "s"
    shutil.copytree(prepared[0], folder)
    served = Served(folder, prepared[1]).start()
    try:
        alice, filler = served.client(), small_disk / "filler"
        first = alice.ask("SELECT count(*) AS n FROM adult")
        for left in (0, 1 << 20):
            fill(filler, left)
            told = alice.refusal("SELECT count(*) AS n FROM adult WHERE age < 41")
            assert "cannot store a release now" in told and "Nothing more was charged" in told and str(folder) not in told
            assert alice.ask("SELECT count(*) AS n FROM adult") == first  # what she has is read
            assert alice.ask("SELECT releases FROM dp_budget()") == [(1,)]
        filler.unlink()
        second = alice.ask("SELECT count(*) AS n FROM adult WHERE age < 41")
        fill(filler, 30 << 20)
        answers, told = {}, []
        served.client("carl").refusal("CREATE TABLE much AS SELECT i, hash(i) AS h FROM range(8000000) t(i)")  # the disk is not enough
        for number in range(50, 60):
            try:
                answers[number] = served.client().ask(f"SELECT count(*) AS n FROM adult WHERE age < {number}")
            except Exception as error:
                told.append(str(error))
        assert all(str(folder) not in one and ".py" not in one for one in told)
        filler.unlink()
        served.stop(9)
        assert served.books("SELECT books FROM dp_budget('adult')") == [("intact",)]
        bought = served.books("SELECT release FROM dp_ledger('adult') WHERE action = 'charge'")
        assert len(bought) == len(set(bought)) and len(bought) >= 2 + len(answers)
        served.start()
        again = served.client()
        assert again.ask("SELECT count(*) AS n FROM adult WHERE age < 41") == second
        for number, answer in answers.items():
            assert again.ask(f"SELECT count(*) AS n FROM adult WHERE age < {number}") == answer
        assert again.ask("SELECT count(*) AS n FROM adult WHERE age < 77")
        assert served.stop() == 0
    finally:
        if served.process is not None:
            served.process.kill()
            served.process.wait()
            served.process.stderr.close()
