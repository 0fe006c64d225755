"""Links that a dbt project declares in schema.yml: ``link`` of a table, with the arguments of ``dp_link``."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.calls.custody import LinkCall
from dpsql.custodian import linking
from dpsql.dbt.nodes import Node
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.session.instance import Context
from dpsql.source.analysis import TableId, find_table


def table_in(context: Context, relation: str) -> TableId | None:
    """Return the table that a relation is; None if it is not there."""
    try:
        return find_table(context.cursor, relation, database=context.database, schema=context.schema)
    except ArgumentError:
        return None


def parent_of(node: Node, nodes: Sequence[Node]) -> tuple[str, Node | None]:
    """Return the table that a node's ``parent`` means, as SQL, and its node if schema.yml has one.

    A name is that of a table of the same source, of ``source.table``, of a model, seed or snapshot, or else one that DuckDB knows.

    Examples
    --------
    >>> from dpsql.dbt.nodes import node
    >>> root, child = (node({"label": f"source raw.{name}", "name": name, "group": "raw", "relation": f'"d"."raw"."{name}"',
    ...                      "kind": "source", "meta": {"link": {"parent": "a"}} if name == "b" else {}}) for name in "ab")
    >>> parent_of(child, [root, child])[0]
    '"d"."raw"."a"'
    """
    parent = str((node.link or {}).get("parent"))
    for names in (
        {candidate.name: candidate for candidate in nodes if candidate.group == node.group},
        {f"{candidate.group}.{candidate.name}": candidate for candidate in nodes if candidate.group},
        {candidate.name: candidate for candidate in nodes if not candidate.group},
    ):
        if parent in names:
            return names[parent].relation, names[parent]
    return parent, None


def apply(context: Context, new: Sequence[Node], nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Link the tables of nodes, parents first; return what has to wait, by label.

    Raises
    ------
    DpsqlError
        A link is wrong. The text names the node.

    Notes
    -----
    Privacy: free; no row is read. A link that is there already writes nothing.
    """
    waits: dict[str, list[str]] = {}
    left = [node for node in new if node.link is not None]
    while left:
        labels = {node.label for node in left}
        ready = [node for node in left if (above := parent_of(node, nodes)[1]) is None or above.label not in labels]
        if not ready:
            raise DpsqlError(f"schema.yml, {left[0].label}: link leads in a circle, by its parent; one of these tables is the root")
        for node in ready:
            waits[node.label] = _link(context, node, nodes)
        left = [node for node in left if node not in ready]
    return waits


def _link(context: Context, node: Node, nodes: Sequence[Node]) -> list[str]:
    """Link one table; where its parent is made by the run itself, it waits for it."""
    arguments = dict(node.link or {})
    if "parent" in arguments:
        arguments["parent"], above = parent_of(node, nodes)
        if above is not None and not above.is_source and table_in(context, above.relation) is None:
            return [f"{node.label}: its parent {above.relation} is not there yet"]
    try:
        linking.link(context, LinkCall.parse({"source": node.relation, **arguments}))
    except DpsqlError as error:
        raise DpsqlError(f"schema.yml, {node.label}, link: {error}") from None
    return []
