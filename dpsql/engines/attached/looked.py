"""What one look at a place found: its columns, and the SELECT that reads them as they were found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpsql.engines.remote import Described
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
    """

    columns: list[Described]
    select: Callable[[Mapping[str, str]], str]


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
