"""Fitted models of releases, the last ones kept: fitting takes longer than drawing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import duckdb

from dpsql import methods
from dpsql.books.entries import canonical_json
from dpsql.domains.attributes import Domain
from dpsql.domains.grid import Histogram
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.rows.recent import Recent
from dpsql.rules.effects import shaped
from dpsql.rules.grammar import stored
from dpsql.tables.tails import placed, trimmed


class Fitted(NamedTuple):
    """A fitted model, the domain of the rows that it gives, and where in their bins the values of a column lie."""

    model: Any
    domain: Domain
    histograms: Mapping[str, Histogram]


_models: Recent[Fitted] = Recent(4)  # drawing again does not fit again


def output_domain(plan: Plan, values: tuple[str, ...] = ()) -> Domain:
    """Return the domain of the rows that a release gives; ``values`` are those of an open domain."""
    if plan.open:
        return Domain((replace(plan.domain.attributes[0], categories=values),))
    return methods.get(plan.method or "").output_domain(plan.domain, plan.options)


def mark(bought: Release) -> str:
    """Return what tells this release from any other of its name: what was charged, what was measured, and what was drawn."""
    plan = canonical_json(bought.manifest["plan"])
    text = f"{bought.manifest['charge']['hash']} {bought.manifest['sha256']} {plan}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fitted(cursor: duckdb.DuckDBPyConnection, bought: Release) -> Fitted:
    """Return the model of a release, fitting it if this process has not done so lately."""
    return _models.get(f"{bought.path} {mark(bought)}", lambda: _fit(cursor, bought))


def _fit(cursor: duckdb.DuckDBPyConnection, bought: Release) -> Fitted:
    plan = bought.plan
    statistics = trimmed(bought.statistics(cursor))
    if plan.rules:
        statistics = shaped(cursor, statistics, plan.domain, [stored(text) for text in plan.rules])
    inside = {plan.domain.names[position]: histogram for position, histogram in placed(statistics).items()}
    model = methods.get(plan.method or "").fit(statistics, plan.options)
    return Fitted(model, output_domain(plan, statistics.values), inside)
