"""A full disk is said to be one, and neither loses nor doubles a charge."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import pytest

from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.calls import arguments
from dpsql.errors import ArgumentError

CALL = "FROM dp_marginals('people', columns := ['sex'], epsilon := 1.0)"
FULL = 'TransactionContext Error: Failed to commit: Could not write file "x.wal": No space left on device'


class Full:
    """A cursor whose COMMIT fails as DuckDB's does on a full disk."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, tries: list[str]) -> None:
        self.cursor, self.tries = cursor, tries

    def execute(self, statement: str, *given: Any) -> Any:
        if statement == "COMMIT":
            self.tries.append(statement)
            self.cursor.execute("ROLLBACK")
            raise duckdb.TransactionException(FULL)
        return self.cursor.execute(statement, *given)

    @property
    def description(self) -> Any:
        return self.cursor.description


@pytest.mark.parametrize("action", ["charge", "store"])
def test_a_full_disk_is_not_called_busy(con, charges, monkeypatch, action):
    tries: list[str] = []
    append = Ledger._append

    def on_a_full_disk(self: Ledger, decide: Any, *rest: Any, **more: Any) -> dict[str, Any] | None:
        fields = decide()
        if fields is None or fields["action"] != action:
            return append(self, decide, *rest, **more)
        books = Books(Full(self.books.cursor, tries), self.books.database)  # type: ignore[arg-type]
        return append(Ledger(books, self.source, self.who), lambda: fields, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_append", on_a_full_disk)
        with pytest.raises(duckdb.Error, match="no space is left on the disk") as caught:
            con.execute(CALL)
    assert "busy" not in str(caught.value).split("\n")[0]
    assert len(tries) == 1
    assert charges() == (action == "store")
    assert len(con.execute(CALL).fetchall()) == 3
    assert charges() == 1
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)


@pytest.mark.parametrize("value", [pd.DataFrame({"a": ["secret"]}), [["secret"]], pd.Series(["secret"]), object()])
@pytest.mark.parametrize("check", [arguments.text, arguments.number, arguments.boolean, arguments.names, arguments.options])
def test_an_error_shows_the_type_of_an_object_and_not_its_rows(check, value):
    with pytest.raises(ArgumentError) as caught:
        check({"source": value, "options": value}, *(() if check is arguments.options else ("source",)))
    assert "secret" not in str(caught.value)
    assert "of type" in str(caught.value)
