"""What the plans of all kinds share: the domain, the contract, the delta, what a price charges. No row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from dpsql.accounting import Calibration, calibrate, charge_for
from dpsql.calls.buying import NOISE_OPTIONS, BuyingCall
from dpsql.calls.tables import MarginalsCall
from dpsql.domains import multi_value
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError, DomainError
from dpsql.methods.base import Contract, MeasurementPlan, Method, Price
from dpsql.protected import columns
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context
from dpsql.tables.flat import AllCliques, total_cells

MAX_CELLS = 200_000_000


@dataclass(frozen=True)
class Planned:
    """A plan with its price.

    Parameters
    ----------
    left_out : tuple of str
        Columns of the source that have no domain, where none were named.
    notes : tuple of str
        What the user should know (shown by ``dp_plan``).
    """

    plan: Plan
    calibration: Calibration
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


class Planner(Protocol):
    """The first half of a kind: from a call to a plan and its price."""

    def __call__(self, context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
        """Plan and price a call.

        Parameters
        ----------
        parameters : mapping
            `BuyingCall.canonical`.

        Raises
        ------
        ArgumentError, DomainError, CalibrationError
            Something is missing or out of range. Nothing has been charged, no row was read.
        """
        ...


@dataclass(frozen=True)
class Measurable:
    """What a call over declared columns would measure: their domain, the tables, the columns without a domain."""

    domain: Domain
    tables: MeasurementPlan
    left_out: tuple[str, ...]


def measurable(
    protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any], split: Mapping[str, Any] | None = None
) -> Measurable:
    """Return what a call over declared columns would measure.

    Parameters
    ----------
    split : mapping, optional
        The options by which columns of several values are split into columns of their own; None where none is.

    Raises
    ------
    ArgumentError
        There is no such column, or fewer than k.
    DomainError
        A column has no domain, or the tables have too many cells.
    """
    names = None if call.columns is None else list(call.columns)
    domain, left_out = columns.chosen(protected, call.source, names)
    if isinstance(call, MarginalsCall):
        columns.check_k(call.source, names, call.order, domain, left_out)
    method = call.release_method
    if split is not None:
        domain = multi_value.expanded(domain, split)
    tables = _tables(method, domain, parameters)
    if split is None and total_cells(domain.sizes, tables.cliques) > MAX_CELLS:
        raise DomainError(
            f"the tables over columns {list(domain.names)!r} have more than {MAX_CELLS} cells; "
            "choose fewer columns, a smaller k, or coarser bins"
        )
    return Measurable(domain, tables, tuple(c.name for c in left_out) if names is None else ())


def check_meant(protected: ProtectedSource, call: BuyingCall, to_measure: Measurable) -> None:
    """Refuse a call that names no columns over a table of which none was declared: it would release those of public types."""
    if call.columns is None and to_measure.left_out and not protected.declared():
        _, left_out = protected.attributes()
        way = columns.declarations(call.source, [column for column in left_out if column.name in to_measure.left_out])
        names = list(to_measure.domain.names)
        raise DomainError(
            f"no column was declared; by type and constraint alone {names!r} would be released, others not. "
            f"Declare them first: {way}; or say columns := [...] if that is meant"
        )


def _tables(method: Method | None, domain: Domain, parameters: Mapping[str, Any]) -> MeasurementPlan:
    if method is not None:
        return method.plan(domain, method_options(parameters))
    return MeasurementPlan(AllCliques(len(domain.attributes), [parameters["k"]]))


def method_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are the method's own: without the ones that choose the noise."""
    return {name: value for name, value in parameters.get("options", {}).items() if name not in NOISE_OPTIONS}


def one_table(
    protected: ProtectedSource,
    parameters: Mapping[str, Any],
    domain: Domain,
    mechanism: str,
    note: str,
    *,
    max_contributions: int,
    units: bool = False,
) -> Planned:
    """Plan and price the noisy table of a domain of one attribute, for the epsilon and delta of a call.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    note : str
        Shown by ``dp_plan``.
    max_contributions : int
        Rows of the table that one privacy unit has, at most.
    units : bool
        Whether each privacy unit is one row of the table.
    """
    protection = protected.protection
    calibration = calibrate(
        mechanism=mechanism,
        tables=1,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=protection.neighbors,
        max_contributions=max_contributions,
        accountant=protection.budget.accountant,
    )
    release_plan = Plan(
        domain=domain,
        cliques=((0,),),
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=False,
        method=None,
        options={},
        units=units,
    )
    return Planned(release_plan, calibration, (), (note,))


def calibration_of(protected: ProtectedSource, price: Price, delta: float) -> Calibration:
    """Return what a price charges."""
    budget = protected.protection.budget
    charged_delta = float(budget.delta) if budget.accountant == "zcdp" else delta
    charge = charge_for(price.events, delta=charged_delta, accountant=budget.accountant)
    return Calibration(price.mechanism, () if price.scale is None else (price.scale,), charge, "basic")


@contextmanager
def naming_epsilon(parameters: Mapping[str, Any]) -> Iterator[None]:
    """Name the argument where a method finds that its noise scale is out of range."""
    try:
        yield
    except ArgumentError as error:
        if error.argument != "scale":
            raise
        expected = "is too small: the noise would pass the largest scale, 2^40; ask for more, for fewer sets or fewer rows per unit"
        raise ArgumentError("epsilon", parameters["epsilon"], expected) from None


def exact_epsilon(parameters: Mapping[str, Any]) -> Fraction:
    """Return the epsilon that was asked for, as the decimal it prints as."""
    return Fraction(repr(parameters["epsilon"]))


def contract_of(protected: ProtectedSource, domain: Domain) -> Contract:
    """Return what a method has to know of the source's contract."""
    protection = protected.protection
    left_out = protected.source.filtered or any(a.outside == "drop" for a in domain.attributes)
    return Contract(protection.neighbors, protection.max_contributions, total_is_public(protected, domain), left_out)


def no_delta(method: Method, parameters: Mapping[str, Any]) -> Fraction:
    """Refuse a delta that a pure release would not spend."""
    if parameters["delta"]:
        raise ArgumentError("delta", parameters["delta"], f"{method.name} spends none: it is epsilon-DP; leave it out")
    return Fraction(0)


def release_delta(protected: ProtectedSource, stated: float | None, mechanism: str) -> float:
    """Return the delta of a release: under 'zcdp' the source's, unless named; under 'basic' none, unless named."""
    budget = protected.protection.budget
    if stated is not None:
        return stated
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
