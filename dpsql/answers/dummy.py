"""dp_dummy: made-up rows in the columns and types of a source, out of what is declared."""

from __future__ import annotations

from dpsql.calls.rows import DummyCall
from dpsql.errors import ArgumentError
from dpsql.protected.columns import chosen
from dpsql.protected.ruled import in_force
from dpsql.protected.source import resolve
from dpsql.rows import dummy as making
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, packed


def dummy(context: Context, call: DummyCall) -> str:
    """Return made-up rows.

    Privacy
    -------
    Free: a function of declarations, rules, schema, contract and seed, all of which are public (`dp_domain`, `dp_budget`). No row
    and no statistic of the table is looked at, and of what was bought only what was declared (``discover``).
    """
    protected = resolve(context, call.source)
    domain, _ = chosen(protected, call.source, None)
    if call.rows > making.most_rows(domain):
        expected = f"at most {making.most_rows(domain):,} rows of so many columns, and categories of that length, are made up"
        raise ArgumentError("rows", call.rows, expected)
    rules = [declared.rule for declared in in_force(context.cursor, protected, domain)]
    rows = making.made_up(context.cursor, domain, rules, call.rows, call.seed)
    whose = making.units(call.rows, protected.protection.max_contributions, call.seed)
    kept = {name: f"c{place}" for place, name in enumerate(domain.names)}
    columns, texts, selected = dict.fromkeys(kept.values(), "VARCHAR"), rows, []
    for column in protected.source.columns:
        packed_name = kept.get(column.name)
        if packed_name is None and protected.is_unit(column):
            packed_name = f"u{len(columns)}"
            columns[packed_name] = "VARCHAR"
            texts = [(*row, making.identity(column.sql_type, unit)) for row, unit in zip(texts, whose, strict=True)]
        value = "NULL" if packed_name is None else identifier(packed_name)
        selected.append(f"CAST({value} AS {column.sql_type}) AS {identifier(column.name)}")
    return f"(SELECT {', '.join(selected)} FROM {packed(columns, texts)})"  # noqa: S608 -- quoted
