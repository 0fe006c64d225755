"""Values that columns have together in the rows of a public table, as a condition on the list of a query's groups. Texts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.source.model import literal, quoted

_PUBLIC = "__dp_p"


@dataclass(frozen=True)
class Listed:
    """A column of the list of groups.

    Parameters
    ----------
    sql, sql_type : str
    declared : frozenset of str or None
        Its values, where `OTHER_LABEL` stands in the list for all others.
    """

    sql: str
    sql_type: str
    declared: frozenset[str] | None = None

    def label(self, text: str | None) -> str | None:
        """Return the text that stands for a value in the list."""
        return text if self.declared is None or text is None or text in self.declared else OTHER_LABEL


@dataclass(frozen=True)
class Combinations:
    """Values that columns have together, in rows of a public table.

    Parameters
    ----------
    columns : tuple of str
        In one form.
    rows : tuple of tuple
        The texts of their values, None for NULL.
    types : tuple of str
        Of the table's columns.
    absent : tuple of str
        Columns that are NULL together where no row of the table is met; the others may have any value then.
    complete : bool
        Whether a row of the table is met wherever it has the values of the others.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    types: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    complete: bool = False

    def condition(self, listed: Sequence[Listed]) -> str | None:
        """Return the condition on the list that its values stand together in the table, or may; None where the texts do not say it.

        Parameters
        ----------
        listed : sequence of Listed
            One for each column.
        """
        # '01' is equal to the number 1: texts and numbers are compared as numbers
        pairs = zip((column.sql_type for column in listed), self.types, strict=False)
        if any(len({sqltypes.parse(kind).family in ("text", "enum") for kind in pair}) > 1 for pair in pairs):
            return None
        every = range(len(listed))
        met = self._met(listed, every)
        if not self.absent:
            return met
        absent = [place for place in every if self.columns[place] in self.absent]
        others = [place for place in every if place not in absent]
        # no row is met: of a label it is not known whose value it is
        alone = [f"{listed[place].sql} IS NULL" for place in absent]
        alone += [f"NOT {self._met(listed, others, labelled=False)}"] if self.complete and others else []
        return f"({met} OR {' AND '.join(alone)})"

    def _met(self, listed: Sequence[Listed], places: Sequence[int], *, labelled: bool = True) -> str:
        """Return whether some row has the values of some columns; ``labelled``: or may have, of values that a label stands for."""
        rows = []
        for row in self.rows:
            texts = [listed[place].label(row[place]) if labelled else row[place] for place in places]
            rows.append(f"({', '.join('NULL' if text is None else literal(text) for text in texts)})")
        named = ", ".join(quoted(f"c{place}") for place in places)
        same = " AND ".join(
            f"TRY_CAST({quoted(_PUBLIC, f'c{place}')} AS {listed[place].sql_type}) IS NOT DISTINCT FROM {listed[place].sql}"
            for place in places
        )
        given = ", ".join(dict.fromkeys(rows)) or f"({', '.join('NULL' for _ in places)})"
        none = "" if rows else " AND false"
        return f"EXISTS (SELECT 1 FROM (VALUES {given}) AS {quoted(_PUBLIC)}({named}) WHERE {same}{none})"  # noqa: S608 -- quoted
