"""Why a statement of an analyst is refused: a closed set of one-line texts, whose holes take the analyst's own words alone.

No text says what the database holds: a table that is hidden and one that does not exist give the same.
"""

from __future__ import annotations

from typing import NoReturn

LETTERS = 60
"""So many letters of the analyst's own words are shown."""

REASONS = {
    "empty": "there is no statement in the text: write one SELECT",
    "several": "the text holds several statements: send them one at a time",
    "long": "the text is too long, or holds a letter that is not Unicode or is NUL: send a shorter, plain one",
    "deep": "the text is nested too deeply: use fewer brackets or subqueries",
    "syntax": "DuckDB does not read the text as SQL: check its spelling",
    "statement": "only SELECT, FROM, VALUES, DESCRIBE, SHOW TABLES and SUMMARIZE are answered here: nothing is changed, attached, "
    "copied, set or explained",
    "pivot": "PIVOT takes its columns from rows unless they are written: PIVOT ... ON column IN ('a', 'b') USING ...",
    "clause": "WITH DIFFERENTIAL_PRIVACY is for a query of a protected table: leave it out elsewhere, dp_query('...') takes "
    "arguments",
    "option": "an option of WITH DIFFERENTIAL_PRIVACY is not known here, or its value is not: epsilon, delta, "
    "max_groups_contributed, max_rows_contributed, min_privacy_units_per_group and group_selection_strategy are",
    "unit": "privacy_unit_column is the custodian's to say: leave it out",
    "table": "table {} does not exist: SHOW TABLES lists what there is",
    "function": "function {} cannot be used here: docs/serve.md says which can",
    "table_function": "table function {} cannot be used here: range, generate_series, unnest and the open dp_* calls can",
    "call": "{} is for the custodian alone: dp_query, dp_summarize, dp_synthesize, dp_marginals, dp_budget and others are open",
    "argument": "argument {} of {} cannot be given here: leave it out",
    "constant": "the arguments of {} must be constants: write the values themselves",
    "twice": "argument {} of {} is given twice: leave one out",
    "calls": "a statement has at most {} dp_* calls: split it",
    "source": "argument {} of {} is no table and no SELECT over tables: name a table that SHOW TABLES lists",
    "domain": "argument domain takes a list of values or 'pattern:...' here: write one of those",
    "mixed": "a protected table outside of dp_query(...) cannot stand beside dp_* calls or the catalogue: put its query into "
    "dp_query('...')",
    "two": "a statement can be about one protected table: ask about one at a time",
    "summarize": "SUMMARIZE is not answered for a protected table: FROM dp_summarize('table', epsilon := ...)",
    "describe": "DESCRIBE of a query over a protected table is not answered: DESCRIBE the table itself",
    "recursive": "WITH RECURSIVE is not answered over a protected table: write the query without it",
    "protected": "{} is not answered over a protected table: write the query without it",
    "type": "type {} cannot be used here: use one of DuckDB's own",
    "parameter": "parameters ($1, ?) have no values here: write the values themselves",
    "syntax_part": "{} is not on the list of what is answered here: write it otherwise",
    "size": "the size that {} makes must be written as a number, at most {}: write it so",
    "sizes": "the sizes in the statement, one times the other, are more than {}: make smaller values",
    "pattern": "a pattern must be written itself, with at most {} wildcards; LIKE without _ may have more: use regexp_matches",
    "format": "the format of {} must be written itself, without widths of more than 3 digits: write it so",
    "show": "SHOW {} is not answered here: SHOW TABLES and DESCRIBE are",
    "read": "DuckDB cannot write the statement back as it was read: write it more plainly",
}
"""The texts by the name of the reason; {} is one of the analyst's own words."""


class Refusal(Exception):  # noqa: N818 -- an answer, not a fault
    """A statement is refused; ``kind`` is a name of `REASONS`."""

    def __init__(self, kind: str, *words: object) -> None:
        self.kind = kind
        self.reason = REASONS[kind].format(*map(own, words))
        super().__init__(self.reason)


def refuse(kind: str, *words: object) -> NoReturn:
    """Refuse a statement for a reason of the list."""
    raise Refusal(kind, *words)


def own(word: object) -> str:
    """Return an analyst's word as a text may show it: printable, on one line, cut.

    Examples
    --------
    >>> own("a" * 70 + chr(10)) == "a" * 59 + "…", own("x" + chr(7) + "y")
    (True, 'x y')
    """
    text = "".join(letter if letter.isprintable() else " " for letter in str(word))
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
