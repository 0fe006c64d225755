"""From arguments to a plan: what would be measured, with which noise, at what cost. No row is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql import arguments, methods
from dpsql.accounting import CALIBRATIONS, MECHANISMS, Calibration, calibrate
from dpsql.domain import Domain
from dpsql.errors import ArgumentError, DomainError
from dpsql.methods.base import MeasurementPlan
from dpsql.protected import ProtectedSource
from dpsql.release import Plan

NOISE_OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "accountant": None}
"""Options of every method: the noise, and how it is calibrated (default: the tightest that the ledger accepts)."""

MAX_CELLS = 200_000_000


@dataclass(frozen=True)
class Request:
    """A call that could be bought: its canonical parameters, its plan and its price.

    ``parameters`` identify what is bought: another value of one of them is another release.
    """

    operation: str
    name: str
    parameters: Mapping[str, Any]
    plan: Plan
    calibration: Calibration
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def canonical_parameters(operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a release besides source and name; defaults filled in, numbers in one form.

    ``rows``, ``seed`` and ``into`` are not among them: they draw again from what was bought.
    """
    found: dict[str, Any] = {
        "epsilon": arguments.epsilon(given),
        "delta": arguments.delta(given),
        "columns": arguments.names(given, "columns"),
    }
    if operation == "marginals":
        found["k"] = arguments.integer(given, "k", 1, 3) or 1
        found["mechanism"] = arguments.choice(given, "mechanism", MECHANISMS)
        return found
    method = methods.get(arguments.text({**given, "method": given.get("method") or methods.DEFAULT}, "method"))
    options = {**NOISE_OPTIONS, **method.options}
    for key, value in arguments.options(given).items():
        if key not in options:
            known = ", ".join(map(repr, options))
            raise ArgumentError("options", {key: value}, f"{method.name} has no such option; it has {known}")
        options[key] = value
    arguments.choice(options, "mechanism", MECHANISMS)
    if options["accountant"] is not None:
        arguments.choice(options, "accountant", CALIBRATIONS[options["mechanism"]])
    return {**found, "method": method.name, "options": options}


def method_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are the method's own: without the ones that choose the noise."""
    return {name: value for name, value in parameters.get("options", {}).items() if name not in NOISE_OPTIONS}


def release_name(given: Mapping[str, Any]) -> str:
    """Return the name that the caller gave the release."""
    return arguments.text({"release": "default", **{k: v for k, v in given.items() if v is not None}}, "release")


def request(protected: ProtectedSource, operation: str, given: Mapping[str, Any]) -> Request:
    """Plan and price a call.

    Parameters
    ----------
    operation : {'marginals', 'synthesize'}
    given : mapping
        The caller's arguments.

    Raises
    ------
    ArgumentError, DomainError, CalibrationError
        Something is missing or out of range. Nothing has been charged.
    """
    parameters = canonical_parameters(operation, given)
    declared, left_out = protected.attributes()
    domain = select(declared, parameters["columns"])
    measured = _measurement(operation, domain, parameters)
    if sum(domain.cells(clique) for clique in measured.cliques) > MAX_CELLS:
        raise DomainError(
            f"the tables over columns {list(domain.names)!r} have more than {MAX_CELLS} cells; "
            "choose fewer columns, a smaller k, or coarser bins"
        )
    options = parameters.get("options", {})
    mechanism = parameters.get("mechanism") or options["mechanism"]
    protection = protected.protection
    calibration = calibrate(
        mechanism=mechanism,
        tables=len(measured.cliques),
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=protection.neighbors,
        max_contributions=protection.max_contributions,
        accountant=protection.budget.accountant,
        calibration=options.get("accountant"),
        weights=measured.weights if len(set(measured.weights)) > 1 else None,
    )
    plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=total_is_public(protected, domain),
        method=parameters.get("method"),
        options=method_options(parameters),
    )
    outside = tuple(c.name for c in left_out) if parameters["columns"] is None else ()
    return Request(operation, release_name(given), parameters, plan, calibration, outside, measured.notes)


def select(declared: Domain, columns: list[str] | None) -> Domain:
    """Return the domain of the wanted columns (all declared ones by default), matching names as DuckDB does."""
    if columns is None:
        if not declared.attributes:
            raise DomainError(
                "no column of the source has a declared domain; CALL dp_declare(source, 'column', categories := [...]) "
                "or lower, upper, bins declares one"
            )
        return declared
    spelled = {name.casefold(): name for name in declared.names}
    return declared.select([spelled.get(name.casefold(), name) for name in columns])


def _measurement(operation: str, domain: Domain, parameters: Mapping[str, Any]) -> MeasurementPlan:
    if operation == "synthesize":
        return methods.get(parameters["method"]).plan(domain.sizes, method_options(parameters))
    k, m = parameters["k"], len(domain.attributes)
    if k > m:
        raise ArgumentError("k", k, f"there are only {m} columns with a domain: {list(domain.names)!r}")
    return MeasurementPlan(tuple(itertools.combinations(range(m), k)))


def release_delta(protected: ProtectedSource, given: float | None, mechanism: str) -> float:
    """Return the delta of a release: under 'zcdp' the source's, unless named; under 'basic' none, unless named."""
    budget = protected.protection.budget
    if given is not None:
        return given
    if budget.accountant == "zcdp":
        return float(budget.delta)
    if mechanism == "gaussian":
        raise ArgumentError(
            "delta", None,
            "under the 'basic' accountant Gaussian noise spends delta: name the release's share, e.g. delta := 1e-10, "
            "or use mechanism := 'laplace'",
        )
    return 0.0


def total_is_public(protected: ProtectedSource, domain: Domain) -> bool:
    """Return whether the number of measured rows is public.

    Privacy: only under replace_one, where no row can be filtered, joined or dropped away, and where a unit has exactly one row.
    """
    whole = not protected.source.filtered and all(a.outside != "drop" for a in domain.attributes)
    one_row = protected.protection.privacy_unit is None or protected.protection.max_contributions == 1
    return protected.protection.neighbors == "replace_one" and whole and one_row
