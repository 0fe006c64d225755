"""From arguments to a plan: what would be measured, with which noise, at what cost. No row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql import methods
from dpsql.accounting import CALIBRATIONS, MECHANISMS, Calibration, calibrate, charge_for, sensitivities
from dpsql.accounting.rules import selection_delta
from dpsql.calls import arguments
from dpsql.domains import multi_value, sqltypes, unit_rows
from dpsql.domains.attributes import Domain, open_attribute
from dpsql.errors import ArgumentError, DomainError
from dpsql.methods.base import Contract, DrawnMethod, MeasurementPlan, Method, OpenMethod, Price, TupleMethod
from dpsql.planning import tuple_pricing
from dpsql.protected import columns, universes
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context
from dpsql.tables.flat import AllCliques, total_cells
from dpsql.tables.tuple_index import tuple_index
from dpsql.text.names import fold

NOISE_OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "accountant": None}
"""Options of every method that measures noisy tables: the noise, and how it is calibrated.

By default the tightest that the ledger accepts.
"""

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
    if operation == "aggregates":
        given = as_aggregates(given)
    if operation == "marginals":
        found["k"] = arguments.integer(given, "k", 1, 3) or arguments.usual_k(found["columns"])
    if operation in ("marginals", "contributions"):
        found["mechanism"] = arguments.choice(given, "mechanism", MECHANISMS)
        return found
    method = methods.get(methods.DEFAULT if given.get("method") is None else arguments.text(given, "method"))
    options = {**(NOISE_OPTIONS if methods.measures_tables(method) else {}), **method.options}
    for key, value in arguments.options(given).items():
        if key not in options:
            known = ", ".join(map(repr, options)) or "none"
            raise ArgumentError("options", {key: value}, f"{method.name} has no such option; it has {known}")
        options[key] = value
    if methods.measures_tables(method):
        arguments.choice(options, "mechanism", MECHANISMS)
        if options["accountant"] is not None:
            arguments.choice(options, "accountant", CALIBRATIONS[options["mechanism"]])
    return {**found, "method": method.name, "options": options}


AGGREGATES = "aggregate_seeded"


def as_aggregates(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a ``dp_aggregates`` call as those of the method that counts tuples."""
    options = arguments.options(given)
    for argument, option in (("reporting_length", "reporting_length"), ("fabrication", "fabrication_mode")):
        if given.get(argument) is not None:
            if option in options and options[option] != given[argument]:
                raise ArgumentError(argument, given[argument], f"options say {option} = {options[option]!r}; leave one of them out")
            options[option] = given[argument]
    return {**given, "method": AGGREGATES, "options": options}


def method_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are the method's own: without the ones that choose the noise."""
    return {name: value for name, value in parameters.get("options", {}).items() if name not in NOISE_OPTIONS}


def release_name(given: Mapping[str, Any]) -> str:
    """Return the name of the release: the caller's, else the columns', else 'default'.

    So calls about other columns of a source are other releases without being named.

    Examples
    --------
    >>> release_name({"columns": ["Race", "age"]}), release_name({"release": "mine"}), release_name({})
    ('age race', 'mine', 'default')
    """
    if given.get("release") is not None:
        return arguments.text(given, "release")
    named = arguments.names(given, "columns")
    return "default" if named is None else " ".join(sorted(fold(name) for name in named))


def request(context: Context, protected: ProtectedSource, operation: str, given: Mapping[str, Any]) -> Request:
    """Plan and price a call.

    Parameters
    ----------
    operation : {'marginals', 'contributions', 'aggregates', 'synthesize', 'histogram', 'discover'}
    given : mapping
        The caller's arguments.

    Raises
    ------
    ArgumentError, DomainError, CalibrationError
        Something is missing or out of range. Nothing has been charged.
    """
    parameters = canonical_parameters(operation, given)
    if operation == "contributions":
        plan, calibration, notes = _units_plan(protected, parameters)
        return Request(operation, release_name(given), parameters, plan, calibration, (), notes)
    method = None if operation == "marginals" else methods.get(parameters["method"])
    if methods.is_open(method):
        plan, calibration, notes = _open_plan(context, protected, method, parameters)
        return Request(operation, release_name(given), parameters, plan, calibration, (), notes)
    domain, left_out = columns.chosen(protected, given, parameters["columns"])
    if operation == "marginals":
        columns.check_k(given, parameters["k"], domain, left_out)
    if methods.counts_tuples(method):
        domain = multi_value.expanded(domain, method_options(parameters))
    measured = _measurement(method, domain, parameters)
    if not methods.counts_tuples(method) and total_cells(domain.sizes, measured.cliques) > MAX_CELLS:
        raise DomainError(
            f"the tables over columns {list(domain.names)!r} have more than {MAX_CELLS} cells; "
            "choose fewer columns, a smaller k, or coarser bins"
        )
    if methods.is_drawn(method):
        plan, calibration, notes = _drawn_plan(protected, method, domain, measured, parameters)
    elif methods.counts_tuples(method):
        plan, calibration, notes = _tuple_plan(protected, method, domain, measured, parameters)
    else:
        plan, calibration, notes = _noisy_plan(protected, domain, measured, parameters)
    if parameters["columns"] is None and left_out and not protected.declared():
        raise DomainError(
            f"no column was declared; by their types alone {list(domain.names)!r} would be released and the rest left out. "
            "CALL dp_declare(source, 'column', ...) first, or say columns := [...] if that is meant"
        )
    outside = tuple(c.name for c in left_out) if parameters["columns"] is None else ()
    return Request(operation, release_name(given), parameters, plan, calibration, outside, notes)


Planned = tuple[Plan, Calibration, tuple[str, ...]]


def _noisy_plan(
    protected: ProtectedSource, domain: Domain, measured: MeasurementPlan, parameters: Mapping[str, Any]
) -> Planned:
    """Plan noisy contingency tables."""
    options = parameters.get("options", {})
    mechanism = parameters.get("mechanism") or options["mechanism"]
    protection = protected.protection
    coarse = measured.coarse if mechanism == "gaussian" else ()
    weights = (*(measured.weights or (1.0,) * len(measured.cliques)), *measured.coarse_weights)
    calibration = calibrate(
        mechanism=mechanism,
        tables=len(measured.cliques) + len(coarse),
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=protection.neighbors,
        max_contributions=protection.max_contributions,
        accountant=protection.budget.accountant,
        calibration=options.get("accountant"),
        weights=weights if mechanism == "gaussian" and len(set(weights)) > 1 else None,
    )
    plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=total_is_public(protected, domain),
        method=parameters.get("method"),
        options=method_options(parameters),
        coarse=coarse,
    )
    return plan, calibration, (*measured.notes, *calibration.notes)


def _units_plan(protected: ProtectedSource, parameters: Mapping[str, Any]) -> Planned:
    """Plan the histogram of rows per unit: one table in which every unit counts once, whatever max_contributions is."""
    held, mechanism = protected.protection, parameters["mechanism"]
    if held.privacy_unit is None:
        raise ArgumentError(
            "source",
            protected.key,
            "has no privacy_unit: every row is a unit of its own. CALL dp_protect(..., privacy_unit := 'column', "
            "max_contributions := ...) declares one before anything is bought",
        )
    calibration = calibrate(
        mechanism=mechanism,
        tables=1,
        epsilon=parameters["epsilon"],
        delta=release_delta(protected, parameters["delta"], mechanism),
        neighbors=held.neighbors,
        max_contributions=1,
        accountant=held.budget.accountant,
        calibration=None,
        weights=None,
    )
    plan = Plan(
        domain=unit_rows.domain(),
        cliques=((0,),),
        scales=calibration.scales,
        mechanism=mechanism,
        public_total=False,
        method=None,
        options={},
        units=True,
    )
    return plan, calibration, (f"counts units ({held.privacy_unit}), each once: the noise does not depend on max_contributions",)


def _tuple_plan(
    protected: ProtectedSource, method: TupleMethod, domain: Domain, measured: MeasurementPlan, parameters: Mapping[str, Any]
) -> Planned:
    """Plan counts of tuples, level by level."""
    delta = release_delta(protected, parameters["delta"], "gaussian")
    if not delta:
        raise ArgumentError("delta", delta, "Gaussian noise needs a delta above 0, e.g. delta := 1e-10")
    held, options = protected.protection, method_options(parameters)
    contract = contract_of(protected, domain)
    wanted = method.tuples(domain, options, parameters["epsilon"], delta)
    found = tuple_pricing.price(wanted, contract, parameters["epsilon"], delta, held.budget.accountant)
    index = tuple_index(wanted.sizes, wanted.length)
    scales = [found.scales[len(clique) - 1] for clique in index.cliques]
    plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=(*scales, found.rows_scale) if found.rows_scale is not None else tuple(scales),
        mechanism="gaussian",
        public_total=contract.public_total,
        method=method.name,
        options=options,
        parameters=found.parameters,
        sparse=True,
    )
    _, l2 = sensitivities(held.neighbors, held.max_contributions)
    notes = method.notes(domain, found.scales, parameters["epsilon"], delta, l2, options)
    return plan, Calibration("gaussian", plan.scales, found.charge, found.calibration), (*measured.notes, *notes)


def _drawn_plan(
    protected: ProtectedSource, method: DrawnMethod, domain: Domain, measured: MeasurementPlan, parameters: Mapping[str, Any]
) -> Planned:
    """Plan a release that the method draws itself."""
    _no_delta(method, parameters)
    options = method_options(parameters)
    contract = contract_of(protected, domain)
    with _named(parameters):
        price = method.price(domain, contract, exact_epsilon(parameters), options)
    plan = Plan(
        domain=domain,
        cliques=measured.cliques,
        scales=() if price.scale is None else (price.scale,),
        mechanism=price.mechanism,
        public_total=contract.public_total,
        method=method.name,
        options=options,
        blocks=method.lengths(domain, options),
        parameters=price.parameters,
    )
    return plan, _calibration(protected, price, 0.0), (*measured.notes, *price.notes)


def _open_plan(context: Context, protected: ProtectedSource, method: OpenMethod, parameters: Mapping[str, Any]) -> Planned:
    """Plan the release of a column whose values no declared domain lists."""
    named = parameters["columns"] or []
    if len(named) != 1:
        raise ArgumentError("columns", parameters["columns"], f"{method.name} releases one column: columns := ['name']")
    columns.check_known("columns", named, [c.name for c in protected.source.columns])
    column = protected.column(named[0])
    if sqltypes.parse(column.sql_type).family == "other":
        raise ArgumentError(
            "columns",
            named,
            f"{method.name} takes texts, numbers and dates; {column.name!r} is {column.sql_type}: cast it to VARCHAR in a view",
        )
    options = method_options(parameters)
    domain = Domain((open_attribute(column.name, column.sql_type),))
    universe = universes.resolve(context, protected, column, options) if method.universe else None
    delta = _no_delta(method, parameters) if method.universe else _selection_delta(protected, parameters["delta"])
    contract = contract_of(protected, domain)
    with _named(parameters):
        price = method.price(contract, exact_epsilon(parameters), delta, options, universe.size if universe else 0)
    plan = Plan(
        domain=domain,
        cliques=((0,),),
        scales=() if price.scale is None else (price.scale,),
        mechanism=price.mechanism,
        public_total=False,
        method=method.name,
        options=options,
        parameters={**price.parameters, **({"universe": universe.fingerprint} if universe else {})},
        open=True,
    )
    return plan, _calibration(protected, price, float(delta)), (*price.notes, *((universe.note,) if universe else ()))


def _calibration(protected: ProtectedSource, price: Price, delta: float) -> Calibration:
    budget = protected.protection.budget
    held = float(budget.delta) if budget.accountant == "zcdp" else delta
    charge = charge_for(price.events, delta=held, accountant=budget.accountant)
    return Calibration(price.mechanism, () if price.scale is None else (price.scale,), charge, "basic")


@contextmanager
def _named(parameters: Mapping[str, Any]) -> Iterator[None]:
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
    held = protected.protection
    return Contract(held.neighbors, held.max_contributions, total_is_public(protected, domain))


def _no_delta(method: Method, parameters: Mapping[str, Any]) -> Fraction:
    """Refuse a delta that a pure release would not spend."""
    if parameters["delta"]:
        raise ArgumentError("delta", parameters["delta"], f"{method.name} spends none: it is epsilon-DP; leave it out")
    return Fraction(0)


def _selection_delta(protected: ProtectedSource, given: float | None) -> Fraction:
    """Return the delta of a stable selection: a share of the source's under 'zcdp'; under 'basic' it has to be named."""
    budget = protected.protection.budget
    if given is not None:
        return Fraction(repr(given))
    if budget.accountant == "zcdp":
        return Fraction(selection_delta(budget.delta))
    raise ArgumentError("delta", None, "under the 'basic' accountant name what a selection may spend, e.g. delta := 1e-10")


def _measurement(method: Method | None, domain: Domain, parameters: Mapping[str, Any]) -> MeasurementPlan:
    if method is not None:
        return method.plan(domain, method_options(parameters))
    return MeasurementPlan(AllCliques(len(domain.attributes), [parameters["k"]]))


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
