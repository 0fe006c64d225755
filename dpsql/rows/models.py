"""Fitted models of releases, the last ones kept: fitting takes longer than drawing."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any, NamedTuple

import duckdb

from dpsql import methods
from dpsql.books.entries import canonical_json
from dpsql.domains.attributes import Domain
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.rules.effects import shaped
from dpsql.rules.grammar import stored

_FITTED_MODELS = 4  # models kept in memory, so that drawing again does not fit again

_models: OrderedDict[str, Fitted] = OrderedDict()

_guard = threading.Lock()


class Fitted(NamedTuple):
    """A fitted model, and the domain of the rows that it gives."""

    model: Any
    domain: Domain


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
    key = f"{bought.path} {mark(bought)}"
    with _guard:
        if key in _models:
            _models.move_to_end(key)
            return _models[key]
    plan = bought.plan
    statistics = bought.statistics(cursor)
    if plan.rules:
        statistics = shaped(cursor, statistics, plan.domain, [stored(text) for text in plan.rules])
    model = Fitted(methods.get(plan.method or "").fit(statistics, plan.options), output_domain(plan, statistics.values))
    with _guard:
        _models[key] = model
        while len(_models) > _FITTED_MODELS:
            _models.popitem(last=False)
    return model
