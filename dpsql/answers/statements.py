"""DESCRIBE and SUMMARIZE before the text of a query: names and types of its answer, free; every declared column at a glance."""

from __future__ import annotations

from dataclasses import fields

from dpsql.answers import query as queries
from dpsql.answers import summary
from dpsql.calls.query import QueryCall, SummarizeCall
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.session.instance import Context
from dpsql.source.parse import tokens
from dpsql.text.relation import inline, literal

COLUMNS = dict.fromkeys(("column_name", "column_type", "null", "key", "default", "extra"), "VARCHAR")
"""What DESCRIBE gives."""
_TAKEN = ("sql", "epsilon", "delta", "release")
"""Arguments of dp_query that dp_summarize has too."""
_QUERY = ("SELECT", "WITH", "FROM", "(", "PIVOT", "VALUES")


def query(context: Context, call: QueryCall) -> str:
    """Return the answer of a text: of a query, or of DESCRIBE or SUMMARIZE."""
    word, text = told(call.sql)
    if word == "DESCRIBE":
        return described(context, call, text)
    if word == "SUMMARIZE":
        return summary.summarize(context, summarized(call, text))
    return queries.query(context, call)


def told(text: str) -> tuple[str, str]:
    r"""Return the word before a query, in capitals, and the rest; an empty word where a text has none.

    Raises
    ------
    UnsupportedQuery
        It is EXPLAIN.

    Examples
    --------
    >>> told("desc SELECT count(*) FROM t;"), told("-- all\nSUMMARIZE t"), told("SELECT 1")
    (('DESCRIBE', 'SELECT count(*) FROM t'), ('SUMMARIZE', 't'), ('', 'SELECT 1'))
    """
    read = tokens(text)
    word = read[0].text.upper() if len(read) > 1 and text[read[0].start] != '"' else ""
    word = {"DESC": "DESCRIBE"}.get(word, word)
    if word == "EXPLAIN":
        way = "FROM dp_plan('SELECT ...', epsilon := ...) says what a query costs, free; dp_explain what an answer is made of"
        raise UnsupportedQuery(word, way, "sql")
    if word not in ("DESCRIBE", "SUMMARIZE"):
        return "", text
    last = read[-2] if read[-1].text == ";" else read[-1]
    return word, text[read[1].start : last.end + 1]


def described(context: Context, call: QueryCall, text: str) -> str:
    """Return the names and types of the answer of a query, as DESCRIBE gives them.

    Privacy
    -------
    Free: the query is checked as if it was bought; no row is read.
    """
    if (tokens(text) or [None])[0].text.upper() not in _QUERY:
        way = f"describe a query, DESCRIBE SELECT ...; the columns of a table DuckDB itself shows: DESCRIBE {text}"
        raise UnsupportedQuery(f"DESCRIBE {text}", way, "sql")
    columns = context.cursor.execute(f"DESCRIBE FROM {queries.without_rows(context, call.changed(sql=text))}").fetchall()
    return inline(COLUMNS, [tuple(row[: len(COLUMNS)]) for row in columns])


def summarized(call: QueryCall, text: str) -> SummarizeCall:
    """Return the call of dp_summarize that ``SUMMARIZE text`` is.

    Raises
    ------
    ArgumentError
        An argument is given that it does not have.
    """
    usual = QueryCall(call.sql)
    for field in fields(call):
        if field.name not in _TAKEN and getattr(call, field.name) != getattr(usual, field.name):
            way = f"SUMMARIZE takes epsilon, delta and release: FROM dp_summarize({literal(text)}, epsilon := ...)"
            raise ArgumentError(field.name, getattr(call, field.name), way)
    return SummarizeCall(source=text, epsilon=call.epsilon, delta=call.delta, release=call.release)
