"""All that a method which draws its own output wants of a source and a call, at the first refusal and not one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dpsql.calls.buying import BuyingCall
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError, DomainError, DpsqlError
from dpsql.kinds.planned import Measurable, check_meant, contract_of, measurable, no_delta
from dpsql.methods.base import DrawnMethod
from dpsql.protected.source import ProtectedSource
from dpsql.source.analysis import OutputColumn
from dpsql.text.names import fold
from dpsql.text.relation import literal


@dataclass
class _Unmet:
    """What is in the way of a call, in the order in which it was found."""

    errors: list[DpsqlError] = field(default_factory=list)

    @contextmanager
    def noted(self, more: str = "") -> Iterator[None]:
        try:
            yield
        except ArgumentError as error:
            self.errors.append(ArgumentError(error.argument, error.value, error.expected + more))
        except DomainError as error:
            self.errors.append(error)

    def refuse(self, method: str) -> None:
        """Raise what was found; several things as one error, numbered."""
        reasons = list(dict.fromkeys(str(error) for error in self.errors))
        if len(reasons) == 1:
            raise self.errors[0]
        if reasons:
            listed = " ".join(f"({place}) {text}." for place, text in enumerate(reasons, 1))
            raise ArgumentError("method", method, f"{len(reasons)} things are in the way, and nothing was charged. {listed}")


def wanted(
    protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any], method: DrawnMethod, options: Mapping[str, Any]
) -> Measurable:
    """Return what a call would measure.

    Raises
    ------
    ArgumentError, DomainError
        Columns have no domain or one that the method cannot take, n is private where it has to be public, a delta is named:
        everything that is so, with the SQL that mends it.

    Notes
    -----
    Privacy: free; looks at declarations and at the contract, no row is read.
    """
    unmet, to_measure = _Unmet(), None
    with unmet.noted():
        to_measure = measurable(protected, call, parameters)
        check_meant(protected, call, to_measure)
    domain = _as_if_declared(protected, call) if to_measure is None or unmet.errors else to_measure.domain
    if unmet.errors and domain.attributes:
        with unmet.noted():
            method.plan(domain, options)
    contract = contract_of(protected, domain)
    if method.public_rows is not None:
        with unmet.noted(_protecting(protected, call)):
            method.public_rows.require(method.name, contract)
    with unmet.noted():
        no_delta(method, parameters)
    unmet.refuse(method.name)
    if to_measure is None:
        raise TypeError("nothing is measurable, and nothing was refused")
    return to_measure


def _protecting(protected: ProtectedSource, call: BuyingCall) -> str:
    """Return the call that makes n public, '' where the contract is not what is in the way."""
    protection = protected.protection
    if protection.neighbors == "replace_one" and protection.max_contributions == 1:
        return ""
    table = call.source if protected.source.bare else protected.key
    terms = [f"epsilon := {float(protection.budget.epsilon)!r}", f"delta := {float(protection.budget.delta)!r}"]
    if protection.budget.accountant != "zcdp":
        terms.append(f"accountant := {literal(protection.budget.accountant)}")
    terms.append("neighbors := 'replace_one'")
    if protection.privacy_unit is not None:
        terms += [f"privacy_unit := {literal(protection.privacy_unit)}", "max_contributions := 1"]
    return f". Before anything is bought of it: CALL dp_protect({literal(table)}, {', '.join(terms)})"


def _as_if_declared(protected: ProtectedSource, call: BuyingCall) -> Domain:
    """Return the domain of the columns of a call, where those without one are declared as plainly as can be.

    So what a method does not take of them is said beside that they want a declaration.
    """
    try:
        declared, without = protected.attributes()
    except DomainError:  # one was declared as another type: that is said already
        return Domain(())
    names = None if call.columns is None else {fold(name) for name in call.columns}
    by_name = {fold(a.name): a for a in declared.attributes}
    by_name |= {fold(c.name): _plain(c) for c in without if not protected.is_unit(c)}
    return Domain(tuple(a for name, a in by_name.items() if names is None or name in names))


def _plain(column: OutputColumn) -> Attribute:
    parsed = sqltypes.parse(column.sql_type)
    if parsed.binned:
        return Attribute(column.name, column.sql_type, parsed.kind, edges=(0.0, 1.0), nullable=column.nullable)
    return Attribute(column.name, column.sql_type, "categorical", categories=("0", "1"), nullable=column.nullable)
