"""Methods that turn noisy statistics into synthetic rows, one file a method."""

from __future__ import annotations

from typing import TypeGuard

from dpsql.errors import ArgumentError
from dpsql.methods.aggregate_seeded.method import AggregateSeeded
from dpsql.methods.base import DrawnMethod, Method, OpenMethod, ReportingMethod, TupleMethod
from dpsql.methods.gaussian_copula.method import GaussianCopula
from dpsql.methods.histograms.dp_prior import DpPrior, SmoothedHistogram
from dpsql.methods.histograms.empirical_cdf import EmpiricalCdf
from dpsql.methods.histograms.laplace_sanitizer import LaplaceSanitizer, PerturbedHistogram
from dpsql.methods.histograms.multinomial_dirichlet import BetaBinomial, MultinomialDirichlet
from dpsql.methods.latent_class import LatentClass
from dpsql.methods.modips.method import Modips
from dpsql.methods.open_domains.stable_selection import StableSelection
from dpsql.methods.open_domains.weak_domain import WeakDomain

DEFAULT = "latent_class"
_METHODS: tuple[Method, ...] = (
    GaussianCopula(),
    LatentClass(),
    LaplaceSanitizer(),
    PerturbedHistogram(),
    MultinomialDirichlet(),
    BetaBinomial(),
    DpPrior(),
    SmoothedHistogram(),
    EmpiricalCdf(),
    Modips(),
    WeakDomain(),
    StableSelection(),
    AggregateSeeded(),
)
_REGISTERED: dict[str, Method] = {method.name: method for method in _METHODS}


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_REGISTERED)


def get(name: str) -> Method:
    """Return the method of this name.

    Raises
    ------
    ArgumentError
        There is none.

    Examples
    --------
    >>> get("gaussian_copula").name
    'gaussian_copula'
    """
    if name not in _REGISTERED:
        raise ArgumentError("method", name, f"not a method; there are {', '.join(map(repr, _REGISTERED))}")
    return _REGISTERED[name]


def of(name: str | None) -> Method | None:
    """Return the method of a plan; None for plain tables, which have none."""
    return None if name is None else get(name)


def is_drawn(method: Method | None) -> TypeGuard[DrawnMethod]:
    """Return whether a method draws its private output itself, from the counts of a declared domain."""
    return hasattr(method, "draw")


def is_open(method: Method | None) -> TypeGuard[OpenMethod]:
    """Return whether the values of the column are part of what a method releases."""
    return hasattr(method, "select")


def reports(method: Method | None) -> TypeGuard[ReportingMethod]:
    """Return whether a method reports on its fitted model."""
    return hasattr(method, "report")


def counts_tuples(method: Method | None) -> TypeGuard[TupleMethod]:
    """Return whether a method measures tuples level by level."""
    return hasattr(method, "aggregates")


def measures_tables(method: Method | None) -> bool:
    """Return whether a method is fitted to noisy contingency tables."""
    return not is_drawn(method) and not is_open(method) and not counts_tuples(method)
