"""How many rows of a database of linked tables break its rules. NOT PRIVATE: for the custodian."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql.custodian.linked_reading import ComparedTable, key_text, number_of
from dpsql.domains.encoding import column_types
from dpsql.rules import across, counted
from dpsql.text.names import fold
from dpsql.text.relation import identifier


def rows_breaking(cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable], position: int) -> list[int]:
    """Return how many rows of a table break each of its rules, and how many parents those that count; a NULL rule is kept.

    Parameters
    ----------
    tables : sequence of ComparedTable
        The root first, parents before children.
    position : int
        Of the table.

    Raises
    ------
    DpsqlError
        A rule fails on some row; the text is withheld.

    Notes
    -----
    Privacy: NOT PRIVATE. A row without one of the rows above that a rule names is not counted: it is an orphan.
    """
    table = tables[position]
    broken = [
        number_of(cursor, f"SELECT count(*) FROM ({table.sql}) AS t WHERE NOT ({rule}\n)")  # noqa: S608 -- canonical
        for rule in table.rules
    ]
    for text in table.across:
        rule = across.stored(text)
        chain = _chain(cursor, tables, position)
        aliases = {tables[place].name: f"t{place}" for place in chain if place != position}
        own = f"t{position}"
        names = {column: f"c{i}" for i, column in enumerate(dict.fromkeys(rule.columns))}
        chosen = ", ".join(
            f"{identifier(own if above is None else aliases[above], name)} AS {called}" for (above, name), called in names.items()
        )
        rows = f"SELECT {chosen} FROM {' JOIN '.join(chain.values())}"  # noqa: S608 -- quoted
        flat = rule.flat(names).text
        broken.append(number_of(cursor, f"SELECT count(*) FROM ({rows}) WHERE NOT ({flat}\n)"))  # noqa: S608 -- canonical
    for text in table.counted:
        counting = counted.stored(text)
        places = {name: f"c{i}" for i, name in enumerate(counting.columns)}
        chosen = ", ".join(f"{identifier('child', name)} AS {called}" for name, called in places.items())
        link, key = _sides(cursor, tables, position, "child", "parent")
        on = f"({tables[table.above or 0].sql}) AS parent ON {link} = {key}"
        rows = f"SELECT {link} AS k, {chosen} FROM ({table.sql}) AS child SEMI JOIN {on}"  # noqa: S608 -- quoted
        families = f"SELECT k FROM ({rows}) GROUP BY k HAVING NOT ({counting.renamed(places).text}\n)"  # noqa: S608 -- canonical
        broken.append(number_of(cursor, f"SELECT count(*) FROM ({families})"))  # noqa: S608 -- canonical
    return broken


def _sides(
    cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable], position: int, child: str, parent: str
) -> tuple[str, str]:
    """Return the two sides of a table's link as texts, under these aliases: rows meet where they are equal."""
    table, above = tables[position], tables[tables[position].above or 0]
    kinds = [{fold(name): kind for name, kind in column_types(cursor, side.sql).items()} for side in (table, above)]
    return key_text(child, table.link, kinds[0]), key_text(parent, table.key, kinds[1])


def _chain(cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable], position: int) -> dict[int, str]:
    """Return a table and those above it as they stand in a FROM clause, by position, the root last."""
    relations = {position: f"({tables[position].sql}) AS t{position}"}
    place, above = position, tables[position].above
    while above is not None:
        link, key = _sides(cursor, tables, place, f"t{place}", f"t{above}")
        relations[above] = f"({tables[above].sql}) AS t{above} ON {link} = {key}"
        place, above = above, tables[above].above
    return relations
