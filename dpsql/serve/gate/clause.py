"""``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (...)`` as a statement: its options become arguments of the query.

DuckDB does not read the clause, so it is cut out before; what is left is read and checked as any other statement.
"""

from __future__ import annotations

from typing import Any

from dpsql.errors import DpsqlError
from dpsql.queries import clause
from dpsql.serve.gate.reasons import refuse
from dpsql.source.parse import tokens
from dpsql.text.names import fold

_CLAUSE = "differential_privacy"
_ONE_GROUP = {"max_groups": 1}


def has(text: str, word: str = _CLAUSE) -> bool:
    """Return whether a word stands in a text, outside of its strings; for the wording of refusals, and nothing else."""
    return any(fold(token.text) == word and not token.text.startswith("'") for token in tokens(text))


def cut(text: str) -> tuple[str, dict[str, Any]]:
    """Return the text without the clause, and the arguments of ``dp_query`` that its options are.

    Raises
    ------
    Refusal
        An option is not known, or its value is none.
    """
    try:
        left, said = clause.cut(text)
    except DpsqlError:
        refuse("option")
    if "privacy_unit" in said:
        refuse("unit")
    if "max_rows" in said:
        said = {**said, **_ONE_GROUP, "max_rows_per_group": said["max_rows"]}
        del said["max_rows"]
    return left, said
