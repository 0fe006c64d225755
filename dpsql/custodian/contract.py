"""What the custodian does: protect a table, declare public domains, look at them, evaluate a synthetic table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from dpsql.accounting import ACCOUNTANTS, NEIGHBORS, Budget
from dpsql.books.anchor import Anchor
from dpsql.books.entries import Protection
from dpsql.books.ledger import Ledger
from dpsql.calls import arguments
from dpsql.custodian.evaluate import COLUMNS as EVALUATION_COLUMNS
from dpsql.custodian.evaluate import evaluate as compare
from dpsql.custodian.evaluate_tuples import COLUMNS as TUPLE_COLUMNS
from dpsql.custodian.evaluate_tuples import evaluate_tuples
from dpsql.domains import encoding, sqltypes
from dpsql.domains.attributes import OUTSIDE, Attribute
from dpsql.domains.declare import MAX_VALUES, self_declared
from dpsql.domains.declare import declare as build_attribute
from dpsql.errors import ArgumentError, DomainError, DpsqlError, first_line
from dpsql.protected import columns, public
from dpsql.protected.source import ProtectedSource, key_of, ledger_of, resolve
from dpsql.session.instance import Context
from dpsql.source.analysis import OutputColumn, TableId, find_table, relation_columns
from dpsql.source.catalog import Catalog
from dpsql.source.keys import KINDS, is_unit
from dpsql.text.names import fold
from dpsql.text.relation import inline, literal

_CHOOSE = (
    "a privacy_unit needs it: at most that many rows of each {unit} are kept, at random, and noise grows with it; 1 keeps one row "
    "of each. Begin with what is usual for a {unit}, e.g. max_contributions := 5: FROM dp_plan({table}, epsilon := ...) then "
    "compares 1, 2, 5, 10, 20 and 50, FROM dp_contributions({table}, epsilon := 0.05) sells a noisy histogram of rows per {unit}, "
    "and until anything else is bought dp_protect can change the number"
)
REPORTS = ("tables", "tuples")
_MOST_SHOWN, _WIDEST = 12, 60
PROTECTION_COLUMNS = {
    "source": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER", "accountant": "VARCHAR", "change": "VARCHAR",
}  # fmt: skip
ATTRIBUTE_COLUMNS = {
    "column_name": "VARCHAR",
    "type": "VARCHAR",
    "kind": "VARCHAR",
    "codes": "INTEGER",
    "labels": "VARCHAR",
    "nullable": "BOOLEAN",
    "outside": "VARCHAR",
    "status": "VARCHAR",
}


def protect(context: Context, given: Mapping[str, Any]) -> str:
    """Give a table a privacy budget, or change it. Returns a relation of one row.

    Privacy
    -------
    Free: no row is read. The budget is a hard limit on everything that is ever released about this table.
    """
    table = find_table(
        context.cursor, arguments.text(given, "source"), database=context.database, schema=context.schema
    )
    ledger = ledger_of(context, table)
    ledger.check_chain()
    if arguments.boolean(given, "resume"):
        return _resumed(ledger, given)
    anchor = _anchor(given)
    current, stated = ledger.protection(), given.get("max_contributions")
    given = _with_current(current, given)
    accountant = arguments.choice(given, "accountant", ACCOUNTANTS)
    delta = arguments.delta(given)
    if accountant == "zcdp" and not delta:
        raise ArgumentError(
            "delta",
            delta,
            "under the 'zcdp' accountant a budget needs a delta above 0, far below 1 / (number of people), e.g. delta := 1e-9",
        )
    unit = given.get("privacy_unit")
    contributions = arguments.integer(given, "max_contributions", 1, 1_000_000) or 1
    if unit is not None:
        columns = {fold(c.name): c for c in relation_columns(context.cursor, table)}
        column = columns.get(fold(unit)) if isinstance(unit, str) else None
        if column is None:
            unit = arguments.text(given, "privacy_unit")
            names = [c.name for c in columns.values()]
            raise ArgumentError("privacy_unit", unit, f"must be a column of the table; it has {names!r}")
        if not is_unit(column.sql_type):
            several = f"is {column.sql_type}, whose equal values have several forms"
            raise ArgumentError("privacy_unit", unit, f"{several}; add a column that is {KINDS}, and name that")
        unit = column.name
        if stated is None and (current is None or fold(current.privacy_unit or "") != fold(unit)):
            raise ArgumentError("max_contributions", None, _CHOOSE.format(unit=unit, table=literal(str(given["source"]))))
    elif contributions != 1:
        raise ArgumentError("max_contributions", contributions, "needs a privacy_unit: the column that tells whose rows these are")
    budget = Budget(Decimal(repr(arguments.epsilon(given))), Decimal(repr(delta or 0.0)), accountant)
    neighbors = arguments.choice(given, "neighbors", NEIGHBORS)
    change = ledger.protect(Protection(ledger.source, budget, neighbors, unit, contributions), anchor)
    return inline(
        PROTECTION_COLUMNS,
        [(ledger.source, float(budget.epsilon), float(budget.delta), neighbors, unit, contributions, accountant, change)],
    )


def _anchor(given: Mapping[str, Any]) -> Path | None:
    """Return the file that the heads of the ledger are to be appended to, if one is named."""
    if given.get("anchor") is None:
        return None
    path = Path(arguments.text(given, "anchor")).expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise ArgumentError("anchor", str(path), "a file is required, in a folder that exists; best where others cannot write")
    if not Anchor(path).is_one():
        raise ArgumentError("anchor", str(path), "holds other things, and is left as it is; name a new file, or an anchor")
    return path


def _resumed(ledger: Ledger, given: Mapping[str, Any]) -> str:
    """Let sources beyond plain ones be bought again after a reading failed; the answer names the entry to look at."""
    named = [name for name, value in given.items() if value is not None and name not in ("source", "resume")]
    if named:
        raise ArgumentError(named[0], given[named[0]], "resume := true stands alone; change the budget in a call of its own")
    held = ledger.protection()
    if held is None:
        raise ArgumentError("resume", True, f"{ledger.source} is not protected; there is nothing to resume")
    failed = ledger.resume()
    note = "no reading has failed" if failed is None else (
        f"look at entry {failed}: FROM dp_ledger('{ledger.source}') shows the release and the query whose reading failed"
    )
    row = (
        ledger.source, float(held.budget.epsilon), float(held.budget.delta), held.neighbors, held.privacy_unit,
        held.max_contributions, held.budget.accountant, "resume", note,
    )  # fmt: skip
    return inline({**PROTECTION_COLUMNS, "note": "VARCHAR"}, [row])


def _with_current(current: Protection | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill what the caller left out: what is in force stays, so that raising a budget cannot drop a privacy unit."""
    kept: dict[str, Any] = {"neighbors": "add_remove", "max_contributions": 1, "accountant": "zcdp"}
    if current is not None:
        kept = {
            "epsilon": float(current.budget.epsilon),
            "delta": float(current.budget.delta),
            "neighbors": current.neighbors,
            "privacy_unit": current.privacy_unit,
            "max_contributions": current.max_contributions,
            "accountant": current.budget.accountant,
        }
    return {**kept, **{name: value for name, value in given.items() if value is not None}}


def declare(context: Context, given: Mapping[str, Any]) -> str:
    """Declare the public domain of a column. Returns a relation of one row.

    Privacy
    -------
    Free: the protected table is not read. What is declared must be public knowledge.
    """
    protected, column, nullable, outside = declarable(context, given)
    categories = _categories(context, given, column.sql_type)
    attribute = build_attribute(
        column.name,
        column.sql_type,
        nullable=nullable,
        lower=given.get("lower"),
        upper=given.get("upper"),
        bins=given.get("bins"),
        edges=given.get("edges"),
        categories=categories,
        outside=outside,
    )
    protected.books.declare(protected.query, attribute, context.user)
    return inline(ATTRIBUTE_COLUMNS, [_shown(attribute, "declared")])


def declarable(context: Context, given: Mapping[str, Any]) -> tuple[ProtectedSource, OutputColumn, bool, str]:
    """Check what every declaration says; return source, column, nullable and outside, with defaults filled in."""
    protected = resolve(context, arguments.text(given, "source"))
    name = arguments.text(given, "column")
    column = protected.column(name)
    unit = protected.protection.privacy_unit
    if unit is not None and fold(column.origin or column.name) == fold(unit):
        raise ArgumentError("column", name, "is the privacy unit: it says whose row this is and cannot be data at the same time")
    nullable = arguments.boolean(given, "nullable")
    outside = given.get("outside")
    if outside is None:
        outside = "other" if arguments.boolean(given, "discover") else "clamp"
    checked = arguments.choice({"outside": outside}, "outside", OUTSIDE)
    return protected, column, column.nullable if nullable is None else nullable, checked


def check_discoverable(context: Context, given: Mapping[str, Any]) -> None:
    """Refuse, before anything is bought, a column whose bought values could not be declared."""
    for name in ("lower", "upper", "bins", "edges", "categories", "categories_from"):
        if given.get(name) is not None:
            raise ArgumentError(name, given[name], "leave it out where discover := true buys the list of values")
    _, column, _, _ = declarable(context, given)
    if sqltypes.parse(column.sql_type).family in ("enum", "boolean"):
        expected = f"is {column.sql_type}: its values are public by its type, nothing need be bought"
        raise ArgumentError("column", given["column"], expected)
    encoding.canonical_categories(context.cursor, column.sql_type, [])


def _categories(context: Context, given: Mapping[str, Any], sql_type: str) -> list[str] | None:
    listed, taken = given.get("categories"), given.get("categories_from")
    if listed is not None and taken is not None:
        raise ArgumentError("categories_from", taken, "give categories or categories_from, not both")
    if taken is not None:
        listed = public.column_values(context, "categories_from", taken, MAX_VALUES)
    if listed is None:
        return None
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise ArgumentError("categories", listed, "a list is required, e.g. ['Female', 'Male']")
    return encoding.canonical_categories(context.cursor, sql_type, listed)


def domain(context: Context, given: Mapping[str, Any]) -> str:
    """List the declared attributes of a source, and the columns that are left out. Free: no row is read."""
    protected = resolve(context, arguments.text(given, "source"))
    declared, left_out = protected.attributes()
    own = protected.declarations().keys()
    by_name = {a.name: _shown(a, _status(a, own)) for a in declared.attributes}
    for column in left_out:
        status = "the privacy unit" if columns.is_unit(protected, column) else "left out: no domain declared"
        by_name[column.name] = (column.name, column.sql_type, None, None, None, None, None, status)
    return inline(ATTRIBUTE_COLUMNS, [by_name[c.name] for c in protected.source.columns])


def _status(attribute: Attribute, own: Set[str]) -> str:
    by_type = self_declared(attribute.name, attribute.sql_type, attribute.nullable)
    return "declared" if by_type is None or attribute.name in own else "by its type"


def _shown(attribute: Attribute, status: str) -> tuple[Any, ...]:
    return (
        attribute.name, attribute.sql_type, attribute.kind, attribute.size, labels_text(attribute),
        attribute.nullable, attribute.outside, status,
    )  # fmt: skip


def labels_text(attribute: Attribute) -> str:
    """Return what values an attribute may take, on one line.

    Examples
    --------
    >>> labels_text(Attribute("sex", "VARCHAR", "categorical", ("f", "m")))
    "'f', 'm', NULL"
    >>> labels_text(Attribute("age", "INTEGER", "numeric", edges=(0.0, 5.0, 10.0), outside="other", nullable=False))
    '2 bins from 0 to 10, others'
    """
    if attribute.kind == "categorical":
        parts = [literal(text) for text in attribute.categories[:_MOST_SHOWN]]
        while len(parts) > 1 and len(", ".join(parts)) > _WIDEST:
            parts.pop()
        if len(parts) < attribute.values:
            parts.append(f"... ({attribute.values:,} values)")
    else:
        first, last = (edge if isinstance(edge, str) else f"{edge:.15g}" for edge in (attribute.edges[0], attribute.edges[-1]))
        parts = [f"{attribute.values:,} bin{'' if attribute.values == 1 else 's'} from {first} to {last}"]
    parts += ["others"] if attribute.outside == "other" else []
    parts += ["NULL"] if attribute.nullable else []
    return ", ".join(parts)


def evaluate(context: Context, given: Mapping[str, Any]) -> str:
    """Compare a synthetic table with the raw one. Returns the error table as a relation.

    Privacy
    -------
    NOT PRIVATE: the errors are computed from raw counts. For the custodian; nothing is charged and nothing is stored.
    """
    protected = resolve(context, arguments.text(given, "source"))
    name = arguments.text(given, "synthetic")
    domain_, _ = columns.chosen(protected, given, None)
    synthetic, present = _synthetic(context, name)
    wanted = [a.name for a in domain_.attributes if fold(a.name) in present]
    if not wanted:
        raise ArgumentError("synthetic", name, f"has none of the declared columns {list(domain_.names)!r}")
    report = arguments.choice({"report": "tables", **_stated(given)}, "report", REPORTS)
    longest = arguments.integer({"max_k": 3, **given}, "max_k", 1, 3) or 3
    try:
        if report == "tuples":
            found = evaluate_tuples(context.cursor, protected.source.sql, synthetic, domain_.select(wanted), longest)
            return inline(TUPLE_COLUMNS, found)
        rows = compare(
            context.cursor,
            protected.source.sql,
            synthetic,
            domain_.select(wanted),
            max_k=longest,
            queries=arguments.integer(given, "queries", 1, 10_000_000),
            seed=arguments.integer({"seed": 7, **given}, "seed", 0, 2**62) or 0,
        )
    except duckdb.Error as error:
        name = type(error).__name__
        raise DpsqlError(f"dp_evaluate failed ({name}); the text is withheld because it could show a value") from None
    return inline(EVALUATION_COLUMNS, rows)


def _stated(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _synthetic(context: Context, name: str) -> tuple[str, set[str]]:
    """Return a SELECT of the synthetic relation and the names of its columns."""
    try:
        table = find_table(context.cursor, name, database=context.database, schema=context.schema, views=True)
    except ArgumentError as error:
        raise ArgumentError("synthetic", name, error.expected) from None
    text = f"SELECT * FROM {table.sql}"  # noqa: S608 -- quoted by TableId
    try:
        rows = context.cursor.execute(f"DESCRIBE {text}").fetchall()
    except duckdb.Error as error:
        raise DomainError(f"synthetic = {name!r}: {first_line(error)}") from None
    return text, {fold(row[0]) for row in rows}


def describe_key(context: Context, text: str) -> tuple[str, str]:
    """Return the database and the key in its books of a table named by the user, for the reports; of a view: of its table."""
    table = find_table(context.cursor, text, database=context.database, schema=context.schema, views=True)
    if not table.is_file and _is_view(context, table):
        protected = resolve(context, text)
        return protected.books.database, protected.key
    return ledger_of(context, table).books.database, key_of(table)


def _is_view(context: Context, table: TableId) -> bool:
    entry = Catalog(context.cursor).find(table.database, table.schema, table.name)
    return entry is not None and entry.is_view
