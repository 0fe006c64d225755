"""Why a statement of an analyst is refused: a closed set of one-line texts, whose holes take the analyst's own words alone.

No text says what the database holds: a table that is hidden and one that does not exist give the same.
"""

from __future__ import annotations

from typing import NoReturn

from dpsql.serve.passed import Kind, Refused
from dpsql.text.names import printable

LETTERS = 60
"""So many letters of the analyst's own words are shown."""

REASONS: dict[str, tuple[Kind, str]] = {
    "empty": ("syntax", "there is no statement in the text: write one SELECT"),
    "several": ("refused", "the text holds several statements: send them one at a time"),
    "long": ("syntax", "the text is too long, or holds a letter that is not Unicode or is NUL: send a shorter, plain one"),
    "deep": ("syntax", "the text is nested too deeply: use fewer brackets or subqueries"),
    "expansion": (
        "refused",
        "written out, the statement is too large: WITH, aliases, stars, CUBE that stand in each other double it. Use fewer of them",
    ),
    "syntax": ("syntax", "DuckDB does not read the text as SQL: check its spelling"),
    "statement": (
        "refused",
        "only SELECT, FROM, VALUES, DESCRIBE, SHOW TABLES and SUMMARIZE are answered here: nothing is changed, attached, copied, "
        "set or explained",
    ),
    "table": ("no_table", "table {} does not exist: SHOW TABLES lists what there is"),
    "function": ("refused", "function {} cannot be used here"),
    "table_function": (
        "refused", "table function {} cannot be used here: range, generate_series, unnest and the open dp_* calls can",
    ),
    "call": ("refused", "{} is for the custodian alone: dp_query, dp_summarize, dp_budget and others are open"),
    "argument": ("refused", "argument {} of {} cannot be given here: leave it out"),
    "constant": ("refused", "the arguments of {} must be constants: write the values themselves"),
    "twice": ("refused", "argument {} of {} is given twice: leave one out"),
    "epsilon": ("refused", "epsilon of {} is at most {} here: ask for less"),
    "many": ("refused", "argument {} of {} is at most {} here: ask for less"),
    "calls": ("refused", "a statement has at most {} dp_* calls: split it"),
    "source": (
        "refused", "argument {} of {} is no table and no SELECT over tables: name a table that SHOW TABLES lists",
    ),
    "release": ("no_table", "release {} does not exist: FROM dp_releases() lists yours"),
    "domain": ("refused", "argument domain takes a list of values or 'pattern:...' here: write one of those"),
    "mixed": (
        "refused",
        "a protected table outside of dp_query(...) cannot stand beside dp_* calls or the catalogue: put its query into "
        "dp_query('...')",
    ),
    "two": ("refused", "a statement can be about one protected table: ask about one at a time"),
    "rows": ("refused", "rows of {} are never shown: ask for aggregates, SELECT ..., count(*) FROM {} GROUP BY ..."),
    "scan": (
        "refused",
        "rows of {} are never shown: ask for aggregates, SELECT ..., count(*) FROM {} GROUP BY ...; from an attached database, "
        "where not every aggregate is sent as one: FROM mysql_query('{}', 'SELECT ... GROUP BY ...')",
    ),
    "summarize": ("refused", "SUMMARIZE is not answered for a protected table: FROM dp_summarize('table', epsilon := ...)"),
    "describe": ("refused", "DESCRIBE of a query over a protected table is not answered: DESCRIBE the table itself"),
    "recursive": ("refused", "WITH RECURSIVE is not answered over a protected table: write the query without it"),
    "protected": ("refused", "{} is not answered over a protected table: write the query without it"),
    "type": ("refused", "type {} cannot be used here: use one of DuckDB's own"),
    "parameter": ("syntax", "the text has other parameters than there are values: give a value for each, and no other"),
    "value": ("unsupported", "a parameter is a number, text, date, time, UUID, true, false or NULL: give one of these"),
    "syntax_part": ("unsupported", "{} is not on the list of what is answered here: write it otherwise"),
    "size": ("refused", "the size that {} makes must be written as a number, at most {}: write it so"),
    "sizes": ("refused", "the sizes in the statement, one times the other, are more than {}: make smaller values"),
    "pattern": (
        "refused", "a pattern must be written itself, with at most {} wildcards; LIKE without _ may have more: use regexp_matches",
    ),
    "format": ("refused", "the format of {} must be written itself, without widths of more than 3 digits: write it so"),
    "show": ("refused", "SHOW {} is not answered here: SHOW TABLES and DESCRIBE are"),
    "read": ("unsupported", "DuckDB cannot write the statement back as it was read: write it more plainly"),
}
"""By the name of the reason: what it is about, and the text; {} is one of the analyst's own words."""


class Refusal(Refused):
    """A statement is refused; ``reason`` is a name of `REASONS`."""

    def __init__(self, reason: str, *words: object) -> None:
        kind, text = REASONS[reason]
        super().__init__(kind, text.format(*map(own, words)))
        self.reason = reason


def refuse(reason: str, *words: object) -> NoReturn:
    """Refuse a statement for a reason of the list."""
    raise Refusal(reason, *words)


def own(word: object) -> str:
    """Return an analyst's word as a text may show it: printable, on one line, cut.

    Examples
    --------
    >>> own("a" * 70 + chr(10)) == "a" * 59 + "…", own("x" + chr(7) + "y")
    (True, 'x y')
    """
    text = printable(str(word))
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
