"""dp_protect: a table gets a privacy budget, or another one. No row is read."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from dpsql.accounting import Budget
from dpsql.books.anchor import Anchor
from dpsql.books.entries import Protection
from dpsql.books.ledger import Ledger
from dpsql.calls import arguments
from dpsql.calls.custody import ProtectCall
from dpsql.errors import ArgumentError
from dpsql.protected.home import catalog_of, named_files
from dpsql.protected.linked import root_key
from dpsql.protected.source import ledger_of, remote_of
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table, relation_columns
from dpsql.source.keys import KINDS, is_unit
from dpsql.text.names import fold
from dpsql.text.relation import inline, literal

_CHOOSE = (
    "a privacy_unit needs it: at most that many rows of each {unit} are kept, at random, and noise grows with it; 1 keeps one row "
    "of each. Begin with what is usual for one {unit}, e.g. max_contributions := 5: FROM dp_plan({table}, epsilon := ...) then "
    "compares 1, 2, 5, 10, 20 and 50, FROM dp_contributions({table}, epsilon := 0.05) sells a noisy histogram of rows per {unit}, "
    "and until anything else is bought dp_protect can change the number"
)
_LARGEST_DELTA = 1e-3
PROTECTION_COLUMNS = {
    "source": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER", "accountant": "VARCHAR", "change": "VARCHAR",
}


def protect(context: Context, call: ProtectCall) -> str:
    """Give a table a privacy budget, or change it. Returns a relation of one row.

    Privacy
    -------
    Free: no row is read. The budget is a hard limit on everything that is ever released about this table.
    """
    context.known.clear()
    table = find_table(context.cursor, call.source, database=context.database, schema=context.schema)
    root = root_key(context, table)
    if root is not None:
        raise ArgumentError(
            "source",
            call.source,
            f"is linked, and under the budget of {root}: CALL dp_protect({literal(root)}, ...) changes that (FROM dp_links())",
        )
    ledger = ledger_of(context, table)
    ledger.check_chain()
    if call.resume:
        return _resumed(ledger, call)
    remote = remote_of(context, table)
    if remote is not None and ledger.protection() is None:
        named_files(context).check_name(table.database, ledger.source, remote)
    anchor = _anchor(call.anchor)
    current, stated = ledger.standing(), call.max_contributions
    call = call.with_defaults(**_in_force(current))
    accountant, delta = call.accountant or "", call.delta
    if accountant == "zcdp" and not delta:
        raise ArgumentError(
            "delta",
            delta,
            "under the 'zcdp' accountant a budget needs a delta above 0, far below 1 / (number of people), e.g. delta := 1e-9",
        )
    if call.delta != _in_force(current).get("delta") and (delta or 0) > _LARGEST_DELTA:
        raise ArgumentError(
            "delta",
            delta,
            "is the probability with which nothing is promised to anybody: at most 0.001, and far below 1 / (number of people), "
            "e.g. delta := 1e-9",
        )
    unit, contributions = call.privacy_unit, call.max_contributions or 1
    if unit is not None:
        columns = {fold(c.name): c for c in relation_columns(context.cursor, table)}
        column = columns.get(fold(unit))
        if column is None:
            names = [c.name for c in columns.values()]
            raise ArgumentError("privacy_unit", unit, f"must be a column of the table; it has {names!r}")
        if not is_unit(column.sql_type):
            several = f"is {column.sql_type}, whose equal values have several forms"
            raise ArgumentError("privacy_unit", unit, f"{several}; add a column that is {KINDS}, and name that")
        unit = column.name
        unsaid = stated is None and (current is None or fold(current.privacy_unit or "") != fold(unit))
        if unsaid and not table.is_file and fold(unit) in catalog_of(context).single_keys(table):
            contributions = 1  # the schema says so; and were it wrong, one row of each unit is kept all the same
        elif unsaid:
            raise ArgumentError("max_contributions", None, _CHOOSE.format(unit=unit, table=literal(call.source)))
    elif contributions != 1:
        raise ArgumentError("max_contributions", contributions, "needs a privacy_unit: the column that tells whose rows these are")
    budget = Budget(Decimal(repr(arguments.epsilon({"epsilon": call.epsilon}))), Decimal(repr(delta or 0.0)), accountant)
    neighbors = call.neighbors or ""
    change = ledger.protect(Protection(ledger.source, budget, neighbors, unit, contributions), anchor)
    context.known.clear()
    return inline(
        PROTECTION_COLUMNS,
        [(ledger.source, float(budget.epsilon), float(budget.delta), neighbors, unit, contributions, accountant, change)],
    )


def _anchor(named: str | None) -> Path | None:
    """Return the file that the heads of the ledger are to be appended to, if one is named."""
    if named is None:
        return None
    path = Path(named).expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise ArgumentError("anchor", str(path), "a file is required, in a folder that exists; best where others cannot write")
    if not Anchor(path).is_one():
        raise ArgumentError("anchor", str(path), "holds other things, and is left as it is; name a new file, or an anchor")
    return path


def _resumed(ledger: Ledger, call: ProtectCall) -> str:
    """Let sources beyond plain ones be bought again after readings failed or were interrupted; the answer names an entry."""
    stated = {name: value for name, value in call.stated().items() if name not in ("source", "resume")}
    for name, value in stated.items():
        raise ArgumentError(name, value, "resume := true stands alone; change the budget in a call of its own")
    protection = ledger.protection()
    if protection is None:
        raise ArgumentError("resume", True, f"{ledger.source} is not protected; there is nothing to resume")
    failed = ledger.resume()
    note = "no reading has failed or was interrupted" if failed is None else (
        f"look at entry {failed}: FROM dp_ledger('{ledger.source}') shows the release and the query whose reading failed or was "
        "interrupted"
    )
    budget = protection.budget
    row = (
        ledger.source, float(budget.epsilon), float(budget.delta), protection.neighbors, protection.privacy_unit,
        protection.max_contributions, budget.accountant, "resume", note,
    )
    return inline({**PROTECTION_COLUMNS, "note": "VARCHAR"}, [row])


def _in_force(current: Protection | None) -> dict[str, Any]:
    """Return what stays where a call leaves it out, so that raising a budget cannot drop a privacy unit."""
    if current is None:
        return {"neighbors": "add_remove", "max_contributions": 1, "accountant": "zcdp"}
    return {
        "epsilon": float(current.budget.epsilon),
        "delta": float(current.budget.delta),
        "neighbors": current.neighbors,
        "privacy_unit": current.privacy_unit,
        "max_contributions": current.max_contributions,
        "accountant": current.budget.accountant,
    }
