"""How answers show themselves in a notebook."""

from __future__ import annotations

import re
import sys
import types

import duckdb
import pytest

import dpsql
from dpsql.answers import cards

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def bought(con):
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 1)")
    return con


def test_the_budget_is_a_gauge_from_python_and_from_sql(bought):
    shown = [cards.html_of(r) for r in (dpsql.budget(bought), bought.sql("FROM dp_budget()"))]
    assert shown[0] == shown[1]
    (share,) = bought.execute("SELECT share_used FROM dp_budget()").fetchone()
    width, wide = (float(w) for w in re.findall(r'rect width="([\d.]+)"', shown[0])[::-1])
    assert width / wide == pytest.approx(share, abs=0.002)
    assert 'role="img"' in shown[0] and "1 releases" in shown[0]


def test_ledger_plan_and_releases_are_cards(bought):
    ledger = cards.html_of(dpsql.ledger(bought))
    assert ledger.count("<tr>") == 4 and "charge" in ledger and "store" in ledger
    plan = cards.html_of(dpsql.plan(bought, "people", epsilon=1.0))
    assert "fits the budget" in plan and "nothing is charged" in plan
    assert "does NOT fit" in cards.html_of(dpsql.plan(bought, "people", epsilon=4.9))
    assert "people-marginals-sex" in cards.html_of(dpsql.releases(bought))
    assert bought.execute("SELECT releases FROM dp_budget()").fetchone() == (1,)


def test_the_plan_and_the_explanation_of_a_query_are_cards(bought):
    query = "SELECT sex, count(*) AS n FROM people GROUP BY sex"
    plan = cards.html_of(dpsql.plan(bought, query, epsilon=0.5))
    assert "count(*) by 1 key" in plan and "groups by" in plan and "standard deviation" in plan and "mean error of a count" not in plan
    dpsql.query(bought, query, epsilon=0.5, release="by sex").fetchall()
    shown = cards.html_of(dpsql.explain(bought, "by sex"))
    assert shown.startswith('<div class="dpsql"') and "count(*) by 1 key" in shown and shown.count("groups</td>") == 1
    assert cards.html_of(bought.sql("SELECT 'a' AS about, 'b' AS explanation, 1 AS n")) != shown


def test_the_answer_of_a_query_is_a_card_in_a_notebook_alone(bought, monkeypatch):
    query = "SELECT region, count(*) AS n, quantile_cont(age, [0.5, 0.9]) AS q FROM people GROUP BY region"
    monkeypatch.delitem(sys.modules, "IPython", raising=False)  # another test's library may have imported it
    plain = dpsql.query(bought, query, epsilon=1, confidence=0.95)
    assert 'class="dpsql"' not in (cards.html_of(plain) or "")
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    relation = dpsql.query(bought, query, epsilon=1, confidence=0.95)
    shown = cards.html_of(relation)
    region, n, low, high, *_ = relation.limit(1).fetchall()[0]
    assert f'<tr><td>{region}</td><td class="n">{n} ({low} to {high})</td>' in shown and "<th scope=\"col\" class=\"n\">n</th>" in shown
    assert "n_low" not in shown and re.search(r"<td>\[[\d.]+, [\d.]+\] \(\[[\d.]+, [\d.]+\] to ", shown)
    assert "every row is a unit of its own" in shown and "epsilon = 1 at delta" in shown and "people-query-" in shown
    assert cards.html_of(relation) == shown and bought.execute("SELECT releases FROM dp_budget()").fetchone() == (2,)
    odd = dpsql.query(bought, "SELECT '<b>' AS \"<i>\", count(*) AS n FROM people", epsilon=1)
    assert "&lt;b&gt;" in cards.html_of(odd) and "<b>" not in cards.html_of(odd) and "<i>" not in cards.html_of(odd)


def test_relations_stay_relations_and_others_are_shown_as_before(bought):
    assert isinstance(dpsql.budget(bought), duckdb.DuckDBPyRelation)
    own = getattr(duckdb.DuckDBPyRelation, "_repr_html_", None)
    relation = bought.sql("SELECT 1 AS a")
    assert cards.html_of(relation) == (None if own is None else own(relation))
    shown = dpsql.show(dpsql.budget(bought))
    assert "<svg" in shown._repr_html_() and "main.people" in repr(shown)
    assert dpsql.show(relation)._repr_html_()


def test_names_are_escaped(con):
    con.execute('CREATE TABLE "<b>x" AS SELECT true AS a')
    con.execute("CALL dp_protect('\"<b>x\"', epsilon := 1, delta := 1e-9)")
    for answer in (dpsql.budget(con), dpsql.ledger(con)):
        assert "<b>x" not in cards.html_of(answer)


def test_an_edited_ledger_is_shown_as_such(bought):
    bought.execute("UPDATE dpsql.ledger SET epsilon = 0.1 WHERE action = 'charge'")
    assert "the ledger was edited" in cards.html_of(dpsql.budget(bought))
    assert "NO" in cards.html_of(dpsql.ledger(bought))


def test_load_tells_a_running_ipython(monkeypatch):
    told = {}
    formatter = types.SimpleNamespace(for_type=told.__setitem__)
    shell = types.SimpleNamespace(display_formatter=types.SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    with duckdb.connect() as con:
        dpsql.load(con)
        assert "No table is protected yet" in told[duckdb.DuckDBPyRelation](dpsql.budget(con))
    combined = dpsql.combine([1.0, 2.0], [0.1, 0.1])
    assert "standard error" in told[type(combined)](combined)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    cards.register()
