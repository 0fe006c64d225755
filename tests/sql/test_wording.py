"""What a new user meets: parameters without quotes, columns in sight, names and texts that say what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice

import duckdb
import pytest

import dpsql
from dpsql import sql
from dpsql.answers import books as reports
from dpsql.answers.forecast import PLAN_COLUMNS
from dpsql.cli.box import lines
from dpsql.cli.results import run as execute

pytestmark = pytest.mark.any_duckdb

QUOTED = {"column", "into"}
"""Reserved words that stay for old scripts; column_name and into_table say the same without quotes."""


def macros() -> list[tuple[str, list[str]]]:
    found = []
    for statement in sql.statements("macros"):
        name, given = re.match(r"CREATE OR REPLACE MACRO (dp_\w+)\(([^)]*)\)", statement).groups()
        found.append((name, [part.split(":=")[0].strip() for part in given.split(",") if part.strip()]))
    return found


@pytest.mark.parametrize(("name", "parameters"), macros())
def test_every_parameter_can_be_named_without_quotes(name, parameters):
    """By the parser of this version of DuckDB, whose reserved words differ from those of others."""
    con = duckdb.connect()
    for parameter in parameters:
        plain = parameter.strip('"')
        assert (plain in QUOTED) == (parameter != plain)
        for form in ("FROM {}({} := 1)", "CALL {}({} := 1)", "SELECT {}({} := 1)"):
            if plain not in QUOTED:
                assert len(con.extract_statements(form.format(name, plain))) == 1
    assert {"column": "column_name", "into": "into_table"}.get(parameters[-1].strip('"'), parameters[0]) in parameters
    con.close()


def test_the_words_that_need_no_quotes_do_what_the_quoted_ones_do(con):
    con.execute("CALL dp_declare('people', column_name := 'region', categories := ['north', 'south'])")
    con.execute("CALL dp_declare('people', \"column\" := 'region', categories := ['north', 'south'])")
    first = con.execute("FROM dp_histogram('people', column_name := 'region', epsilon := 0.5)").fetchall()
    assert con.execute("FROM dp_histogram('people', 'region', epsilon := 0.5)").fetchall() == first
    assert con.execute("FROM dp_histogram('people', \"column\" := 'region', epsilon := 0.5)").fetchall() == first
    made = "SELECT table_name FROM dp_synthesize('people', epsilon := 1, rows := 10, {} := 'made')"
    assert con.execute(made.format("into_table")).fetchall() == con.execute(made.format('"into"')).fetchall()
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (2,)


def test_without_load_the_missing_function_says_what_to_do(con, tmp_path):
    con.execute("CREATE VIEW left_over AS FROM dp_budget()")
    con.execute("CREATE OR REPLACE MACRO main.dp_old() AS TABLE FROM query('FROM ' || __dp_call('budget', to_json({'__database': "
                "current_database(), '__schema': 'main'})::VARCHAR))")
    assert con.execute("SELECT source FROM dp_old()").fetchall() == [("main.people",)]
    con.close()
    code = (
        f"import duckdb; con = duckdb.connect({str(tmp_path / 'people.duckdb')!r})\n"
        "for query in ('FROM dp_budget()', 'FROM left_over', 'SELECT dp_combine([1.0], [1.0])'):\n"
        "    try: con.execute(query)\n"
        "    except duckdb.Error as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("__dp_call_needs_dpsql_load") == 2 and "__dp_combine_needs_dpsql_load" in done.stdout


def test_the_columns_that_matter_stand_where_a_terminal_shows_them(con):
    con.execute("FROM dp_marginals('SELECT sex, region FROM people WHERE age >= 65', columns := ['sex', 'region'], epsilon := 1, "
                "release := 'sixty-five and older')")
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 1)")
    wanted = {
        "FROM dp_budget()": ["source", "epsilon", "epsilon_spent", "epsilon_left", "share_used", "releases"],
        "FROM dp_releases()": ["release", "question", "epsilon", "status"],
        "FROM dp_ledger()": ["source", "action", "release", "epsilon", "chain_holds"],
        "FROM dp_plan('people', epsilon := 1)": ["measures", "epsilon", "affordable", "notes"],
    }
    for query, columns in wanted.items():
        drawn = list(lines(execute(con, query), most=40, width=120))
        head = [cell.strip() for cell in drawn[1].strip("│").split("│")]
        assert set(columns) <= set(head), (query, head)
        assert all(len(line) <= 120 for line in drawn)
    names = [name for (name,) in con.execute("SELECT release FROM dp_releases()").fetchall()]
    text = "\n".join(lines(execute(con, "FROM dp_releases()"), most=40, width=100))
    assert all(f" {name} " in text for name in names) and max(map(len, names)) > 40
    shown = con.execute("SELECT filters, question FROM dp_releases() ORDER BY charged_at").fetchall()
    assert shown == [("age >= 65", "sex, region where age >= 65"), (None, "sex")]
    assert len(PLAN_COLUMNS) == 28 and all(set(ends[0] + ends[1]) for ends in reports.ENDS.values())


def test_one_share_of_the_budget_is_used_everywhere(con, tmp_path):
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 2.5)")
    share, spent, limit = con.execute("SELECT share_used, rho_spent, rho_limit FROM dp_budget()").fetchone()
    assert 0.2 < share < 0.32 and share == pytest.approx(spent / limit, rel=0.01)
    card = dpsql.answers.cards.html_of(dpsql.budget(con))
    assert f"{100 * share:.3g} % spent" in card
    from dpsql.cli.books import sql as views

    terminal = con.execute(views.text("show_budget").replace("{call}", "dp_budget()")).fetchone()[4]
    assert abs(int(terminal.split()[-2]) - 100 * share) <= 1


def test_a_declaration_answers_on_one_line(con):
    found = con.execute("CALL dp_declare('people', 'age', lower := 0, upper := 120, bins := 24, outside := 'other')").fetchone()
    assert found[4] == "24 bins from 0 to 120, others, NULL"
    many = [f"place number {i}" for i in range(300)]
    (labels,) = con.execute("SELECT labels FROM dp_declare('people', 'region', categories := ?)", [many]).fetchone()
    assert labels.startswith("'place number 0', ") and "... (300 values)" in labels and len(labels) < 100
    assert all(isinstance(row[4], str) or row[4] is None for row in con.execute("FROM dp_domain('people')").fetchall())


def test_group_by_points_to_marginals(con):
    with pytest.raises(duckdb.Error, match=r"refused at GROUP BY.*dp_marginals"):
        con.execute("FROM dp_marginals('SELECT sex, count(*) FROM people GROUP BY sex', epsilon := 1)")
    assert not list(islice(con.execute("FROM dp_releases()").fetchall(), 1))
