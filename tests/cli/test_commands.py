"""The command line: what goes to standard output, what to standard error, and the exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from struck import ENDLESS, LONG, PRELUDE, strike

import dpsql
from dpsql.cli import main
from dpsql.cli.dot import run_command
from dpsql.cli.session import Session

SETUP = """
CREATE TABLE people AS SELECT i % 2 = 0 AS member, ['a', 'b', 'c'][1 + i % 3]::ENUM('a', 'b', 'c') AS grade FROM range(600) t(i);
CALL dp_protect('people', epsilon := 3, delta := 1e-9);
CREATE TABLE synthetic AS FROM dp_synthesize('people', epsilon := 1);
"""


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    """Made by `dpsql run`, so that DuckDB's own shell of an older version opens it."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "census.sql").write_text(SETUP)
    assert main(["run", str(folder / "census.sql"), "--database", str(folder / "census.duckdb")]) == 0
    return folder / "census.duckdb"


def run(capsys, *arguments, code=0):
    assert main([str(a) for a in arguments]) == code
    done = capsys.readouterr()
    return done.out if code == 0 else (done.out, done.err)


def test_a_statement_and_nothing_else_on_standard_output(capsys, census):
    out = run(capsys, "-m", "csv", "-c", "SET threads = 1; SELECT count(*) AS n FROM synthetic WHERE false; CREATE TEMP TABLE x AS SELECT 1", census)
    assert out == "n\n0\n"
    assert json.loads(run(capsys, "-c", "FROM dp_budget()", "-m", "json", census))[0]["epsilon"] == 3.0
    assert run(capsys, "-c", "SELECT 1 AS a", "-c", ".mode csv\nSELECT 2 AS b").endswith("b\n2\n")


def test_an_error_in_a_script_names_file_and_line_and_keeps_what_was_before(capsys, tmp_path):
    script, database = tmp_path / "job.sql", tmp_path / "x.duckdb"
    script.write_text("-- a job; with a comment\nCREATE TABLE t AS\nSELECT ';' AS a;\nSELECT a FROM t;\n\nSELECT\n  nope\nFROM t;\nDROP TABLE t;")
    out, err = run(capsys, "run", script, "--database", database, "-m", "csv", code=1)
    assert out == "a\n;\n"
    assert err.startswith(f"{script}:6: Binder Error: Referenced column ")
    assert err.endswith("(line 7)\n") and err.count("\n") == 1
    script.write_text("FROM t;\nFROM dp_domain('t');\nDROP TABLE t")
    out, err = run(capsys, "run", script, "--database", database, code=1)
    assert err.startswith(f"{script}:2: Error: source = 't'") or err.startswith(f"{script}:2: Error: "), err
    assert "UDF" not in err
    assert main(["-c", "FROM t", str(database)]) == 0  # what stood behind the error did not run


def test_parse_errors_come_when_their_statement_does(capsys, tmp_path):
    script = tmp_path / "job.sql"
    script.write_text("SELECT 1 AS a;\nSELEC 2;\n")
    out, err = run(capsys, "run", script, "-m", "csv", code=1)
    assert out == "a\n1\n"
    assert err == f'{script}:2: Parser Error: syntax error at or near "SELEC"\n'


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["run", "none.sql"], "none.sql: no such file"), (["budget", "none.duckdb"], "none.duckdb: no such database file")]
    + [(["shell", "--readonly", "none.duckdb"], "no such database file"), (["-m", "csv", "-c", "SELECT 1", "--readonly", "n"], "no such")],
)
def test_missing_files_are_wrong_arguments(capsys, arguments, told):
    assert told in run(capsys, *arguments, code=2)[1]


def test_wrong_arguments_end_with_2(capsys):
    for arguments in ([], ["frob"], ["run"], ["-m", "nope", "-c", "SELECT 1"], ["plan", "x", "y"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2


def test_the_books_for_people_and_for_programs(capsys, census):
    text = run(capsys, "budget", census)
    for expected in ("main.people", "epsilon: limit", "left for one more", "██░", "13 %", "intact", "one row, its presence too"):
        assert expected in text, text
    (row,) = json.loads(run(capsys, "budget", census, "people", "-m", "json"))
    assert (row["epsilon_spent"], row["releases"], row["chain_holds"]) == (1.0, 1, True)
    ledger = run(capsys, "ledger", census)
    for expected in ("budget set", "bought: synthesize", "stored", "when (UTC)"):
        assert expected in ledger
    assert "latent_class" in run(capsys, "releases", census)
    assert "all columns" in run(capsys, "releases", census)
    assert run(capsys, "releases", census, "-m", "csv").startswith("release,question,operation,source")
    plan = run(capsys, "plan", census, "people", "--epsilon", "1.5")
    assert "within the budget = yes" in plan and "takes about" in plan
    assert "within the budget = NO" in run(capsys, "plan", census, "people", "--epsilon", "30", "--k", "2")
    assert "over" not in run(capsys, "budget", census)  # a plan has charged nothing
    assert "no such table" in run(capsys, "ledger", census, "nobody", code=1)[1]


def test_what_was_asked_is_among_the_releases_and_columns_are_kept(capsys, monkeypatch, tmp_path):
    script, database = tmp_path / "asked.sql", tmp_path / "asked.duckdb"
    asked = "FROM dp_query('SELECT grade, count(*) FROM people WHERE member GROUP BY grade', epsilon := 1)"
    marginals = "FROM dp_marginals('people', k := 1, columns := ['grade'], epsilon := 1)"
    script.write_text(f"{SETUP.split('CREATE TABLE synthetic')[0]}{asked};{marginals};")
    run(capsys, "run", script, "--database", database)
    told = run(capsys, "releases", database)
    assert "│ count(*) by grade where member │" in told and "│ grade " in told
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run(capsys, "releases", database)
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, told.splitlines()))


def test_a_plan_is_shown_to_people_in_few_lines(capsys, census):
    for text in ("FROM dp_plan('people', epsilon := 1.5)", "select *\nfrom dp_plan ('people', epsilon := 1.5)"):
        shown = run(capsys, "-c", text, census)
        assert "within the budget = yes" in shown and "noise = gaussian, scale" in shown and ".mode line" in shown
        assert len(shown.splitlines()) < 20
    query = "FROM dp_plan('SELECT grade, count(*) FROM people GROUP BY grade', epsilon := 0.1)"
    assert "costs = epsilon 0.1 at delta" in run(capsys, "-c", query, census)
    for mode, columns in (("csv", 28), ("line", 28)):
        whole = run(capsys, "-m", mode, "-c", "FROM dp_plan('people', epsilon := 1.5)", census)
        assert "left_out" in whole and (len(whole.splitlines()[0].split(",")) == columns or len(whole.splitlines()) >= columns)
    named = run(capsys, "-c", "SELECT tables, rho FROM dp_plan('people', epsilon := 1.5)", census)
    assert "│ tables │" in named and ".mode line" not in named
    two = "FROM dp_plan('people', epsilon := 1.5); SELECT (1) AS one"
    assert "within the budget = yes" in run(capsys, "-c", two, census)
    assert "Error" in run(capsys, "-c", "FROM dp_plan('nobody', epsilon := 1.5)", census, code=1)[1]


def test_a_database_without_books(capsys, tmp_path):
    duckdb.connect(str(tmp_path / "new.duckdb")).close()
    assert main(["budget", str(tmp_path / "new.duckdb")]) == 0
    assert "no table is protected yet" in capsys.readouterr().err


def test_a_locked_file_is_said_to_be(capsys, census):
    code = f"import duckdb, sys; con = duckdb.connect({str(census)!r}); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        for arguments in (["budget", census], ["-c", "SELECT 1", census]):
            err = run(capsys, *arguments, code=1)[1]
            assert f"process {holder.pid}" in err and "is open in another process" in err
    finally:
        holder.communicate()


def test_a_report_of_a_release(capsys, census, tmp_path):
    (release,) = {row["release"] for row in json.loads(run(capsys, "releases", census, "-m", "json"))}
    page = tmp_path / "page.html"
    assert run(capsys, "report", census, release, "-o", page) == f"{page}\n"
    assert release in page.read_text(encoding="utf-8")
    out, err = run(capsys, "report", census, "nothing", "-o", tmp_path / "other.html", code=1)
    assert "no such release" in err and "UDF" not in err and not (tmp_path / "other.html").exists()


def test_standard_input_is_a_script(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dpsql.cli", "shell", "-m", "csv"],
        input=".mode line\nSELECT 1 AS a;\nFROM\nnope;\nSELECT 2;", capture_output=True, text=True, check=False, cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "a = 1\n")
    assert done.stderr.startswith("<stdin>:3: Catalog Error: Table with name nope does not exist!")


def test_a_closed_pipe_is_no_traceback(tmp_path):
    command = f"'{sys.executable}' -P -m dpsql.cli -m csv -c 'FROM range(3000000)' | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("range\n", "")


def test_dot_commands(capsys, tmp_path, census):
    other = tmp_path / "other.sql"
    other.write_text("SELECT 'read' AS a;\n")
    script = "\n".join(
        [".mode csv", ".tables", ".tables dpsql.%", ".schema synth%", f".read {other}", ".output " + str(tmp_path / "out.csv"), "SELECT 1 AS b;"]
        + [".output", ".nullvalue -", ".mode", "SELECT NULL AS n;", ".mode line", "SELECT NULL AS n;", ".ech on", "SELECT 5 AS five;", ".ex 3", "x"]
    )
    assert main(["-c", script, str(census)]) == 3
    out = capsys.readouterr().out
    assert "main,people,table,2,3.0\n" in out and "main,synthetic,table,2,\n" in out
    assert "dpsql,ledger,table," in out
    assert "CREATE TABLE synthetic(" in out
    assert "a\nread\n" in out and "mode: csv\n" in out and "n\n\nn = -\n" in out
    assert "SELECT 5 AS five;\nfive = 5\n" in out
    assert (tmp_path / "out.csv").read_text() == "b\n1\n"
    for wrong, told in [(".frob", "no such command"), (".m csv", "could be"), (".mode nope", "one of box"), (".maxrows x", "whole number")] + [
        (".read none.sql", "cannot be read"), (".read 'x", "a quote is not closed"), (".timer maybe", "on or off")
    ]:
        assert told in run(capsys, "-c", wrong, code=1)[1], wrong
    loop = tmp_path / "loop.sql"
    loop.write_text(f".read {loop}")
    assert "read each other" in run(capsys, "run", loop, code=1)[1]


def test_the_timer_is_not_on_standard_output(capsys):
    assert main(["-m", "csv", "-c", ".timer on\nSELECT 1 AS a"]) == 0
    done = capsys.readouterr()
    assert done.out == "a\n1\n" and done.err.startswith("Run Time: ")


@pytest.mark.skipif(shutil.which("duckdb", path=str(Path(sys.executable).parent)) is None, reason="DuckDB's shell is not here")
def test_the_stock_shell_reads_books_and_synthetic_tables(census):
    """The file was made with an older storage version, as the README says to, since that shell may be older than the library."""
    shell = shutil.which("duckdb", path=str(Path(sys.executable).parent))

    def ask(query):
        return subprocess.run([shell, "-readonly", "-csv", "-c", query, census], capture_output=True, text=True, check=False)

    for query, expected in {
        "SELECT action FROM dpsql.ledger ORDER BY entry": "action\nprotect\ncharge\nstore\n",
        "SELECT source, round(epsilon, 1) AS e FROM dpsql.budgets": "source,e\nmain.people,3.0\n",
        "SELECT operation, status FROM dpsql.releases": "operation,status\nsynthesize,stored\n",
        "SELECT bool_and(holds) AS holds FROM dpsql.chain": "holds\ntrue\n",
        "SELECT DISTINCT typeof(grade) AS t FROM synthetic": "t\n\"ENUM('a', 'b', 'c')\"\n",
    }.items():
        done = ask(query)
        assert done.stdout.replace("\r", "") == expected, (query, done.stderr)
    refused = ask("FROM dp_budget()")
    assert refused.returncode != 0 and "__dp_call_needs_dpsql_load does not exist" in refused.stderr


STRUCK = """
from dpsql.cli.dot import run_command

opened = session.Session(dot=run_command)
for query in sys.argv[1:]:
    try:
        opened.statement(query)
    except session.Interrupted:
        opened.statement("SELECT 'goes on' AS a")
opened.close()
"""


def test_ctrl_c_ends_a_statement_inside_duckdb():
    """An aggregate, rows that would be shown, a table that would be made; the session goes on after each."""
    queries = [f"SELECT sum(a.range) {ENDLESS}", f"SELECT a.range {ENDLESS}", f"CREATE TABLE x AS SELECT a.range {ENDLESS}"]
    ended = strike(STRUCK, queries, times=len(queries))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("goes on") == len(queries)


BUYER = """
from dpsql.cli.dot import run_command
from dpsql.running import progress

opened = session.Session(sys.argv[1], dot=run_command)
call = "CREATE OR REPLACE TABLE s AS FROM dp_synthesize('people', epsilon := 0.5, release := '{}', method := 'laplace_sanitizer')"
plain, wanted = progress.Progress.stage, None

@__import__("contextlib").contextmanager
def struck(self, name):
    with plain(self, name):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)
            while True:  # as a loop of dpsql's does: it says now and then how far it is
                time.sleep(0.001)
                progress.advance(0.5)
        yield

progress.Progress.stage = struck
for wanted in sys.argv[2:]:
    try:
        opened.statement(call.format(wanted))
    except session.Interrupted as stopped:
        print("stopped in", wanted, "with", stopped, flush=True)
    stage, wanted = wanted, None
    opened.statement(call.format(stage))
opened.close()
"""


def test_ctrl_c_in_a_purchase_leaves_the_books_true(tmp_path):
    """In whichever stage it strikes: one charge, or none that stays; the same call again finishes it, at no second charge."""
    path, stages = tmp_path / "x.duckdb", ("encode", "count", "noise", "store", "fit", "sampling", "writing")
    session = Session(str(path), dot=run_command)
    session.script("CREATE TABLE people AS SELECT i % 2 = 0 AS a, i % 3 = 0 AS b, i % 5 = 0 AS c FROM range(5000) t(i)", None)
    session.script("CALL dp_protect('people', epsilon := 50, delta := 1e-6)", None)
    session.close()
    done = subprocess.run([sys.executable, "-P", "-c", PRELUDE + BUYER, path, *stages], capture_output=True, text=True, check=False, timeout=LONG)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("stopped in")]
    assert [line.split()[2] for line in told] == list(stages)
    with duckdb.connect(str(path)) as con:
        dpsql.load(con)
        count = "SELECT count(*) FILTER (action = 'charge') - count(*) FILTER (action = 'refund'), count(DISTINCT release) FROM dpsql.ledger"
        assert con.execute(count).fetchone() == (len(stages), len(stages))
        assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)
        assert con.execute("SELECT count(*) FROM dpsql.releases WHERE status <> 'stored'").fetchone() == (0,)
