"""`dpsql.connect`: the functions over the wire, for analysts and custodians, and a server that goes and comes back."""

import pytest

import dpsql
from dpsql.errors import DpsqlError

QUERY = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"


def connected(served, name="alice"):
    return dpsql.connect(f"quack:localhost:{served.port}", token=served.tokens[name])


def test_the_functions_over_the_wire(served):
    with connected(served) as con:
        first = dpsql.query(con, QUERY, epsilon=0.1).fetchall()
        assert dpsql.query(con, QUERY, epsilon=0.1).fetchall() == first and [sex for sex, _ in first] == ["Female", "Male"]
        (left,) = dpsql.budget(con).project("releases").fetchall()
        assert left == (1,)
        kept = dpsql.synthesize(con, "adult", epsilon=0.2, columns=["age", "sex"], rows=20, options={"classes": 2})
        assert [str(kind) for kind in kept.types] == ["BIGINT", "VARCHAR"] and len(kept.filter("age > -1").fetchall()) == 20
        assert dpsql.dummy(con, "adult", rows=7).fetchall() == dpsql.dummy(con, "adult", rows=7).fetchall()
        assert con.sql("SELECT count(*) FROM big").fetchall() == [(200_000,)]
        assert len(con.sql("FROM big").fetchall()) == 200_000


def test_an_answer_is_asked_for_once(served):
    with connected(served) as con:
        before = (served.folder / "log").read_text().count('"statement"')
        answer = dpsql.budget(con)
        for _ in range(3):
            answer.fetchall()
        str(answer)
        assert (served.folder / "log").read_text().count('"statement"') == before + 1


def test_refusals_have_the_servers_words_alone(served):
    with connected(served) as con:
        for text, said in (("CREATE TABLE a (b INTEGER)", "nothing is changed"), ("FROM raw", "raw")):
            with pytest.raises(DpsqlError, match=said) as refused:
                con.sql(text)
            assert "LINE 1" not in str(refused.value) and "Error:" not in str(refused.value)
        with pytest.raises(DpsqlError, match="custodian"):
            dpsql.protect(con, "adult", epsilon=1000.0)
        assert served.tokens["alice"] not in repr(con) + str(con.sql("FROM range(1)").sql_query())


def test_the_custodian_grants_over_the_wire(served):
    with connected(served, "carl") as con, connected(served, "nobody") as other:
        with pytest.raises(DpsqlError):
            dpsql.query(other, QUERY)
        assert dpsql.grant(con, "adult", analyst="nobody", epsilon=0.5).project("analyst, change").fetchall() == [("nobody", "granted")]
        assert len(dpsql.query(other, QUERY).fetchall()) == 2
        with pytest.raises(DpsqlError, match="k = 9"):
            dpsql.marginals(con, "adult", k=9, epsilon=0.1)


def test_a_server_that_comes_back(served):
    with connected(served) as con:
        first = dpsql.query(con, QUERY, epsilon=0.1).fetchall()
        port = served.port
        served.stop()
        with pytest.raises(DpsqlError, match="does not answer"):
            dpsql.budget(con)
        served.start(port=port)
        assert dpsql.query(con, QUERY, epsilon=0.1).fetchall() == first
        served.stop()
        served.start(port=port)  # not noticed before the next question
        assert dpsql.query(con, QUERY, epsilon=0.1).fetchall() == first


def test_a_token_that_nobody_has(served):
    with pytest.raises(DpsqlError, match="does not know this token") as refused:
        dpsql.connect(f"quack:localhost:{served.port}", token="dpsql_wrong")
    assert "dpsql_wrong" not in str(refused.value)
