"""dpsql analyst, publish and serve: for custodians who don't write SQL."""

from __future__ import annotations

import signal
import subprocess
import sys

import duckdb
import pytest

import dpsql
from dpsql.cli import main
from dpsql.serve import doors
from dpsql.serve.analysts import PREFIX, Analysts
from dpsql.serve.options import Address
from dpsql.serve.passed import Answer
from dpsql.serve.server import Kind

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "census.duckdb"
    with duckdb.connect(path) as con:
        dpsql.load(con)
        con.execute("CREATE TABLE Visits AS SELECT i % 7 AS ward FROM range(50) t(i); CREATE TABLE wards AS SELECT 1 AS ward")
        con.execute("CREATE SCHEMA odd; CREATE TABLE odd.\"a.b\" AS SELECT 1 AS x; CREATE VIEW busy AS SELECT * FROM Visits WHERE ward > 3")
        for table in ("Visits", 'odd."a.b"'):
            con.execute(f"CALL dp_protect('{table}', epsilon := 4, delta := 1e-9)")
    return path


@pytest.fixture
def census(made):
    for name in ("analysts.toml", "others.toml"):
        made.with_name(name).unlink(missing_ok=True)
    return made


def run(capsys, *arguments, code=0):
    assert main([str(a) for a in arguments]) == code
    done = capsys.readouterr()
    return (done.out, done.err) if code == 0 else done.err


def granted(census, name="alice", file="analysts.toml"):
    return dict(Analysts(census.with_name(file)).granted(name))


def test_a_token_is_printed_once_and_alone(capsys, census):
    out, err = run(capsys, "analyst", "add", "alice", census)
    token = out.removesuffix("\n")
    assert token.startswith(PREFIX) and len(token) == len(PREFIX) + 43 and token not in err
    assert err == 'alice may ask: main.visits at 0.1, odd."a.b" at 0.1 a question\nthe token, shown this once:\n'
    assert Analysts(census.with_name("analysts.toml")).admits("alice", token) is not None
    assert granted(census) == {"main.visits": 0.1, 'odd."a.b"': 0.1}
    listed, _ = run(capsys, "analyst", "list", census)
    assert token not in listed and listed.splitlines()[0].split() == ["name", "state", "created", "expires", "epsilon", "of", "one", "question"]
    assert listed.splitlines()[1].startswith("alice  valid") and listed.splitlines()[1].endswith('main.visits=0.1, odd."a.b"=0.1')
    assert listed.splitlines()[2] == "published: nothing"
    assert "there is an analyst 'alice' already" in run(capsys, "analyst", "add", "alice", census, code=1)
    assert run(capsys, "analyst", "revoke", "alice", census)[0] == "alice is revoked\n"
    assert Analysts(census.with_name("analysts.toml")).admits("alice", token) is None
    assert "alice  revoked" in run(capsys, "analyst", "list", census)[0]
    assert "no such analyst" in run(capsys, "analyst", "revoke", "bob", census, code=1)


def test_grants_as_they_are_said(capsys, census):
    others = census.with_name("others.toml")
    run(capsys, "analyst", "add", "alice", census, "--grant", "VISITS=0.05", "--expires", "90d", "--analysts", others)
    assert granted(census, file="others.toml") == {"main.visits": 0.05} and not census.with_name("analysts.toml").exists()
    run(capsys, "analyst", "add", "bob", census, "--grant", 'census.odd."A.b"=1', "--grant", "main.visits=2e-2", "--analysts", others)
    assert granted(census, "bob", "others.toml") == {"main.visits": 0.02, 'odd."a.b"': 1.0}
    assert run(capsys, "analyst", "grant", "bob", census, "visits=0", 'odd."a.b"=0.5', "--analysts", others)[0] == 'bob may ask: odd."a.b" at 0.5 a question\n'
    assert run(capsys, "analyst", "grant", "bob", census, 'odd."a.b"=0', "--analysts", others)[0] == "bob may ask: no protected table\n"


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        ("visits", "grant = 'visits': a table and the epsilon of one question are required: visits=0.05"),
        ("visits=", "the epsilon of one question are required"), ("visits=much", "the epsilon of one question are required"), ("=1", "the name of a table is required"),
        ("a b c=1", "the name of a table is required"), ("SELECT 1=1", "the name of a table is required"),
        ("wards=1", "grant = 'wards=1': main.wards is no protected table; there are main.visits, odd.\"a.b\""),
        ("busy=1", "main.busy is no protected table"), ("visits=-1", "grant on main.visits = -1.0: the epsilon of one question is required, above 0"),
        ("visits=nan", "above 0"), ("visits=inf", "above 0"), ("visits=0", "above 0"),
    ],
)  # fmt: skip
def test_a_wrong_grant_is_refused_and_nobody_added(capsys, census, grant, told):
    assert told in run(capsys, "analyst", "add", "alice", census, "--grant", grant, code=1)
    assert not census.with_name("analysts.toml").exists()


def test_a_table_is_given_once(capsys, census):
    assert "main.visits was given before" in run(capsys, "analyst", "add", "alice", census, "--grant", "visits=1", "--grant", "main.Visits=2", code=1)


def test_wrong_names_times_and_files(capsys, census, tmp_path):
    assert run(capsys, "analyst", "add", "ali ce", census, code=1).startswith("Error: name = 'ali ce': letters a to z")
    assert run(capsys, "analyst", "add", "alice", census, "--expires", "1999-01-01", code=1).startswith("Error: expires = '1999-01-01': that is over")
    assert "there is no such file; dpsql shell FILE makes one" in run(capsys, "analyst", "add", "alice", tmp_path / "none.duckdb", code=1)
    assert "dpsql analyst add NAME DATABASE makes one" in run(capsys, "analyst", "list", census, code=1)
    (tmp_path / "text.duckdb").write_text("x" * 9999)
    assert "text.duckdb cannot be opened" in run(capsys, "analyst", "add", "alice", tmp_path / "text.duckdb", code=1)
    for arguments in (["analyst"], ["analyst", "add", "alice"], ["publish", "wards"], ["serve"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2


def test_what_is_published(capsys, census):
    assert run(capsys, "publish", "Wards", census)[0] == "main.wards is published\n"
    assert run(capsys, "publish", "busy", census)[0] == "main.busy is published\n"  # as the table under it is asked about
    assert run(capsys, "analyst", "list", census)[0].endswith("published: main.busy, main.wards\n")
    for table, told in (
        ("visits", "table = 'main.visits': it is protected: nobody sees its rows; dpsql analyst grant says who may ask about it"),
        ('odd."A.B"', "it is protected"), ("beds", "table = 'main.beds': there is no such table or view"), ("dpsql.ledger", "there is no such table"),
        ("", "the name of a table is required"), ("duckdb_tables", "there is no such table or view"), ("other.wards", "there is no such table"),
    ):  # fmt: skip
        assert told in run(capsys, "publish", table, census, code=1)
    assert run(capsys, "publish", "wards", census, "--withdraw")[0] == "main.wards is withdrawn\n"
    assert run(capsys, "publish", "wards", census, "--withdraw")[0] == "main.wards is not published\n"
    assert Analysts(census.with_name("analysts.toml")).public() == {"main.busy"}


def test_a_linked_table_goes_with_its_root(capsys, tmp_path):
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(path) as con:
        dpsql.load(con)
        con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY); CREATE TABLE trips (id INTEGER); CREATE VIEW seen AS FROM trips")
        con.execute("CALL dp_protect('people', epsilon := 4, delta := 1e-9); CALL dp_link('trips', 'id', parent := 'people', max_rows := 2)")
    told = "it is protected, by its link to main.people: nobody sees its rows; dpsql analyst grant says who may ask about main.people"
    assert told in run(capsys, "publish", "Trips", path, code=1)
    told = "grant = 'trips=0.2': main.trips is linked, and goes with main.people: grant main.people=0.2"
    assert told in run(capsys, "analyst", "add", "alice", path, "--grant", "trips=0.2", code=1)
    assert "alice may ask: main.people at 0.1 a question" in run(capsys, "analyst", "add", "alice", path)[1]
    assert "goes with main.people" in run(capsys, "analyst", "grant", "alice", path, "trips=1", code=1)
    assert granted(path) == {"main.people": 0.1} and Analysts(path.with_name("analysts.toml")).public() == set()


def test_while_the_database_is_served(capsys, census):
    """What needs no look at the tables works; the rest says what to do."""
    program = "import sys, duckdb; con = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    run(capsys, "publish", "wards", census)
    with subprocess.Popen([sys.executable, "-c", program, census], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "open\n"
        told = "is open in another process, so its tables are not known here: say --grant TABLE=EPSILON"
        assert told in run(capsys, "analyst", "add", "alice", census, code=1)
        _, err = run(capsys, "analyst", "add", "alice", census, "--grant", "visits=0.05")
        assert err.startswith("the database is open in another process, so the names of tables are taken as they are\n")
        assert granted(census) == {"main.visits": 0.05}
        run(capsys, "analyst", "grant", "alice", census, "visits=0.2")
        assert "stop that one first" in run(capsys, "publish", "busy", census, code=1)
        assert run(capsys, "publish", "wards", census, "--withdraw")[0] == "main.wards is withdrawn\n"
        run(capsys, "analyst", "revoke", "alice", census)
        child.stdin.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "mysql is not given: say where analysts come in"), (["--mysql", "3306"], "mysql = '3306': a host and a port are required"),
        (["--flight", "x"], "flight = 'x': a host and a port are required"), (["--flight", "0.0.0.0:31337"], "flight = '0.0.0.0:31337': other machines reach this address"),
        (["--mysql", "0.0.0.0:3306"], "--tls-cert and --tls-key, or listen on localhost; --allow-unencrypted"),
        (["--mysql", "localhost:0", "--time-limit", "0"], "time-limit = 0.0"), (["--mysql", "localhost:0", "--answer-every", "often"], "answer-every = 'often'"),
        (["--mysql", "localhost:0", "--tls-cert", "c.pem"], "tls-key is not given"), (["--mysql", "localhost:0", "--memory", "much"], "memory = 'much'"),
        (["--mysql", "localhost:0", "--analysts", "none.toml"], "dpsql analyst add NAME DATABASE makes one"),
    ],
)  # fmt: skip
def test_what_serve_is_told_wrongly(capsys, census, given, told):
    run(capsys, "analyst", "add", "alice", census)
    assert told in run(capsys, "serve", census, *given, code=1)


def test_the_flight_door_needs_pyarrow(capsys, census, monkeypatch):
    """A missing package is said in one line, with the way out, and nothing is left open."""
    run(capsys, "analyst", "add", "alice", census)
    for name in [name for name in sys.modules if name.startswith(("pyarrow.flight", "dpsql.serve.flight"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
    told = run(capsys, "serve", census, "--flight", "localhost:0", code=1)
    assert told.count("\n") == 1 and "--flight needs pyarrow, which is not here: pip install 'dpsql[flight]'" in told
    duckdb.connect(census, config={"threads": "1"}).close()  # would not open beside another configuration


class Door:
    port = 4242

    def start(self):
        signal.raise_signal(signal.SIGTERM)

    def stop(self):
        pass


def test_serve_is_told_everything(capsys, census, monkeypatch, tmp_path):
    seen = []

    class Room:
        database = "census"

        def __init__(self, opened, keys, options):
            seen.append((opened, keys, options))

        def ask(self, *_):
            return Answer((), [])

    monkeypatch.setattr(doors, "room", Room)
    monkeypatch.setitem(doors.DOORS, "mysql", Kind(lambda *_: Door()))
    run(capsys, "analyst", "add", "alice", census)
    given = ["--mysql", "localhost:0", "--memory", "1GB", "--time-limit", "2m", "--answer-every", "500ms", "--store", tmp_path / "releases"]
    _, err = run(capsys, "serve", census, *given)
    assert err == f"serving {census} as census: mysql on localhost:4242; stop with Ctrl-C or SIGTERM\nstopped\n"
    ((opened, keys, options),) = seen
    assert (options.mysql, options.memory, options.time_limit, options.answer_every) == (Address("localhost", 0), "1GB", 120.0, 0.5)
    assert opened.store == tmp_path / "releases" and keys.path == census.with_name("analysts.toml") and keys.granted("alice")


def test_other_commands_do_not_wait_for_the_server():
    program = "import sys\nfrom dpsql.cli.commands import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint([m for m in sys.modules if m.startswith(('dpsql.serve', 'ssl', 'sqlglot', 'pandas'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n") and all(f"\n    {name} " in done.stdout for name in ("serve", "analyst", "publish"))
