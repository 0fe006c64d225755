"""Methods that turn noisy statistics into synthetic rows: a file or a folder each, named as in SQL. Pure mathematics."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeGuard, cast

from dpsql.errors import ArgumentError

if TYPE_CHECKING:
    from dpsql.methods.base import DrawnMethod, Method, OpenMethod, ReportingMethod, TupleMethod

DEFAULT = "latent_class"
_WHERE = {
    "gaussian_copula": "gaussian_copula.method:GaussianCopula",
    "dpcopula_kendall": "dpcopula_kendall.method:DpcopulaKendall",
    "latent_class": "latent_class:LatentClass",
    "laplace_sanitizer": "histograms.laplace_sanitizer:LaplaceSanitizer",
    "perturbed_histogram": "histograms.laplace_sanitizer:PerturbedHistogram",
    "multinomial_dirichlet": "histograms.multinomial_dirichlet:MultinomialDirichlet",
    "beta_binomial": "histograms.multinomial_dirichlet:BetaBinomial",
    "poisson_gamma": "histograms.poisson_gamma:PoissonGamma",
    "dp_prior": "histograms.dp_prior:DpPrior",
    "smoothed_histogram": "histograms.dp_prior:SmoothedHistogram",
    "empirical_cdf": "histograms.empirical_cdf:EmpiricalCdf",
    "modips": "modips.method:Modips",
    "weak_domain": "open_domains.weak_domain:WeakDomain",
    "stable_selection": "open_domains.stable_selection:StableSelection",
    "aggregate_seeded": "aggregate_seeded.method:AggregateSeeded",
}
"""The class of each method; loaded when it is asked for, since scipy takes longer than most calls."""


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_WHERE)


@cache
def _loaded(name: str) -> Method:
    module, _, class_name = _WHERE[name].partition(":")
    return cast("Method", getattr(import_module(f"dpsql.methods.{module}"), class_name)())


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
    if name not in _WHERE:
        raise ArgumentError("method", name, f"not a method; there are {', '.join(map(repr, _WHERE))}")
    return _loaded(name)


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
