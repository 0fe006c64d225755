"""What one look at a place found: its columns, and the SELECT that reads them as they were found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from dpsql.engines.remote import Described
from dpsql.errors import DpsqlError
from dpsql.source.kernel import FLOATS
from dpsql.text.relation import identifier


@dataclass(frozen=True)
class Looked:
    """What a place has now.

    Parameters
    ----------
    columns : list of Described
    select : function
        Takes columns with their types to a SELECT of them that fails for no value and reads each row once, at one moment. Settings
        that this depends on are set on the cursor of the look, for its session alone.
    files : sequence of str
        The files of this machine or another one that the SELECT reads.
    """

    columns: list[Described]
    select: Callable[[Mapping[str, str]], str]
    files: Sequence[str] = ()


Apart = Callable[[Sequence[str]], None]
"""Refuses files of which one has rows of another table of the books."""


def unasked(files: Sequence[str]) -> None:
    """Refuse: nobody has said whose files these are.

    Raises
    ------
    DpsqlError
    """
    raise DpsqlError("nobody has said whether rows of a place are those of another table as well; please report this")


@contextmanager
def withheld(refusal: DpsqlError) -> Iterator[None]:
    """Say this in the place of DuckDB's errors, whose texts may name files, be of rows, or hold credentials."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        raise refusal from None


def listed(columns: Mapping[str, str]) -> str:
    """Return the columns of files as they stand in a SELECT.

    Privacy: a condition over a number of a file may be decided without its rows, by the least and largest value that the writer
    noted, or by a filter of hashes. Many writers leave NaN out of the first, and -0.0 hashes otherwise than 0.0: then whether rows
    with these are read depends on *other* rows of the file, and one person's row could take a thousand of others along. TRY lets no
    condition through to the file, nor what its footer says; so each row counts by its own values.
    """
    names = ((identifier(name), kind in FLOATS) for name, kind in columns.items())
    return ", ".join(f"TRY({name}) AS {name}" if inexact else name for name, inexact in names)


@dataclass(frozen=True)
class AttachedTable:
    """A table of an attached database, which is attached as ``database``."""

    database: str
    schema: str
    name: str

    @property
    def text(self) -> str:
        """Return the name, quoted."""
        return identifier(self.database, self.schema, self.name)
