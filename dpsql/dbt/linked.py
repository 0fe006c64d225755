"""A model for each table of a synthetic database: all of them are rows of one release, which is charged once.

The root's ``synthesize`` in schema.yml says what the release is; no model does, so that every model, alone or with others, in any
order, asks for the same one. The first that is built buys it and puts its tables into a schema beside the models; models copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from dpsql.answers.schemas import synthesize_tables
from dpsql.calls import arguments
from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.dbt.declarations import declared
from dpsql.dbt.links import table_in
from dpsql.errors import DomainError, DpsqlError
from dpsql.kinds.linked.schema import schema_of
from dpsql.protected.linked import key_of
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.release import identity
from dpsql.release.linked import LinkedTable
from dpsql.session.instance import Context
from dpsql.source.parse import parse, render
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_SHAPE = "its SELECT may only name columns of one linked table: select * from {{ source('raw', 'visits') }}"


def linked_table(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SELECT that stands for a model over one of several linked tables, buying their release if nobody has.

    Parameters
    ----------
    given : mapping
        ``source`` (the model's SQL) and ``label`` of the model.

    Returns
    -------
    dict
        ``sql``: over the synthetic copy; no table of the source is in it. ``release``: the identifier. ``spent``: what
        `dpsql.dbt.spending` takes.

    Raises
    ------
    DpsqlError
        The model is no SELECT of columns of one linked table, its root has no ``synthesize``, or the release cannot be bought.

    Notes
    -----
    Privacy: charges the root's budget once, whatever models are built how often.
    """
    if context.instance.prepare is not None:
        context.instance.prepare(context)
    label = str(given["label"])
    relation, selected = _read(label, arguments.text(given, "source"))
    try:
        table = resolve(context, relation)
    except DpsqlError as error:
        raise DpsqlError(f"{label}: {error}") from None
    if not table.source.bare:
        raise DpsqlError(f"{label}: {relation} is no table of its own; {_SHAPE}")
    root, call = _call(context, label, table)
    copied = {member.source: member for member in schema_of(context, root).tables}[table.own]
    columns = _columns(label, copied, selected)
    name = identity.release_id(root.key, call.operation, root.query, str(call.release), root.ledger.owner)
    before = [] if root.ledger.purchase(name) is None else [name]
    synthesize_tables(context, call)
    into = f"{call.into_schema}.{identifier(copied.name)}"
    sql = f"select {', '.join(identifier(name) for name in columns)} from {into}"  # noqa: S608 -- names of a plan, quoted
    return {"sql": sql, "release": name, "spent": {"label": label, "releases": [name], "before": before}}


def _read(label: str, sql: str) -> tuple[str, list[str] | None]:
    """Return the table and the columns that a model selects; None for all of them."""
    try:
        select = parse(sql)
    except DpsqlError as error:
        raise DpsqlError(f"{label}: {_SHAPE} ({error})") from None
    origin = select.args.get("from_") or select.args.get("from")
    table = None if origin is None else origin.this
    clauses = [name for name, value in select.args.items() if value and name not in ("from_", "from", "expressions", "kind")]
    if clauses or not isinstance(table, exp.Table) or any(table.args.get(name) for name in ("joins", "pivots", "sample")):
        raise DpsqlError(f"{label}: {_SHAPE}")
    bare = table.copy()
    bare.set("alias", None)
    names: list[str] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) and len(select.expressions) == 1 and not any(item.args.values()):
            return render(bare), None
        if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star):
            raise DpsqlError(f"{label}: {_SHAPE}")
        names.append(item.name)
    return render(bare), names


def _call(context: Context, label: str, table: ProtectedSource) -> tuple[ProtectedSource, SynthesizeTablesCall]:
    """Return the root of a table, and the call that schema.yml says the release of its tables is."""
    for node in declared(context):
        place = None if node.synthesize is None else table_in(context, node.relation)
        if place is None or (place.database, key_of(place)) != (table.source.table.database, table.key):
            continue
        options = dict(node.synthesize or {})
        into = str(options.pop("into_schema", None) or f"dpsql_{place.schema}_{place.name}")
        release = f"{place.name}.{options.pop('release', None) or 'default'}"
        options |= {"source": node.relation, "into_schema": identifier(context.database, into), "release": release}
        try:
            return resolve(context, node.relation), SynthesizeTablesCall.parse(options)
        except DpsqlError as error:
            raise DpsqlError(f"schema.yml, {node.label}, synthesize: {error}") from None
    raise DpsqlError(
        f"{label}: schema.yml does not say what the release of {table.key} and the tables linked to it is: under the table that "
        "has the budget, meta: {dpsql: {protect: ..., synthesize: {epsilon: 1.0}}}"
    )


def _columns(label: str, table: LinkedTable, selected: list[str] | None) -> list[str]:
    """Return the columns of the copy that a model has, as it spells them."""
    copied = {fold(column.name): column.name for column in table.columns}
    if selected is None:
        return list(copied.values())
    missing = [name for name in selected if fold(name) not in copied]
    if missing:
        raise DomainError(
            f"{label}: {missing[0]!r} is no column of the synthetic {table.name}: it has no declared domain, or is not in the "
            "table. Declare it in schema.yml under the source's columns (meta: {dpsql: {lower: ..., upper: ...}}, or categories)"
        )
    return selected
