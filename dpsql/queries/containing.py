"""Whether a bought release gives the aggregates of a later question: by what it measures, not by the text that bought it.

A vector of sums of x also gives the number of rows, a mean and a variance; one of a pair also those of each variable; a histogram
all quantiles and the number of rows. What was measured is what the question would measure where bounds, or lists of values, are the
same.

Privacy: none; post-processing of released numbers. Public plans and texts alone are looked at here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpsql.estimates.measures import Measure, Variable
from dpsql.queries.asked import Asked, Wanted
from dpsql.queries.choosing import UNKNOWN_VALUES, Argument, variable
from dpsql.queries.estimating import Estimates
from dpsql.release.plan import Plan

NOT_NUMBERED = -1
"""Stands for the condition of a count that a release has no number for: that its argument is not NULL."""
ADDITIVE = ("count", "moments", "scaled", "values", "tree")
"""Kinds of measures whose counters of a coarser group are the sums of those of its parts, whatever rows a unit has in them."""


def translated(asked: Asked, question: Mapping[str, Any]) -> list[Wanted] | None:
    """Return the aggregates with the positions that their arguments and conditions have in a release.

    Parameters
    ----------
    question : mapping
        ``arguments`` and ``conditions``: texts, in the order of the release's positions.

    Returns
    -------
    list of Wanted or None
        None where an argument or condition is not among those of the release.
    """
    arguments, conditions = list(question["arguments"]), list(question["conditions"])
    out = []
    for one in asked.wanted:
        texts = [asked.argument_texts[place] for place in one.arguments]
        if one.function == "count":
            texts = [one.counted] if one.counted in arguments else []
        condition = None if one.condition is None else asked.condition_texts[one.condition]
        if any(text not in arguments for text in texts) or (condition is not None and condition not in conditions):
            return None
        there = one.there
        if there is not None:
            text = asked.condition_texts[there]
            there = conditions.index(text) if text in conditions else NOT_NUMBERED
        out.append(
            replace(
                one,
                arguments=tuple(arguments.index(text) for text in texts),
                condition=None if condition is None else conditions.index(condition),
                there=there,
            )
        )
    return out


def contained(
    asked: Asked, question: Mapping[str, Any], plan: Plan, known: Mapping[int, Argument], has_value: Callable[[str], bool],
    *, bought: Plan | None = None, coarser: bool = False,
) -> list[Wanted] | None:
    """Return the aggregates of a question as a release gives them, or None if it does not give all of them.

    Parameters
    ----------
    asked : Asked
        The question.
    question : mapping
        What the release was bought for.
    plan : Plan
        What it measures.
    known : mapping
        What is known today of the arguments of the question, by position: bounds must be those of the release.
    has_value : callable
        The text of an argument -> whether it is never NULL; then its count is that of rows.
    bought : Plan, optional
        The plan before bounds were learned, if they were.
    coarser : bool
        Whether groups of the release are to be added up.
    """
    wanted = translated(asked, question)
    if wanted is None or plan.query is None:
        return None
    estimates = Estimates(plan, [])
    before = plan.query if bought is None or bought.query is None else bought.query
    found = []
    for one, same in zip(asked.wanted, wanted, strict=True):
        form = same
        places = estimates.find(form)
        if not places and one.there is not None and has_value(one.counted):
            form = replace(same, arguments=(), there=None)
            places = estimates.find(form)
        used = places if form.function == "count" else places[:1]
        if not used:
            return None
        if coarser and not all(_adds_up(plan.query.measures[place], one_row=estimates.query.max_rows == 1) for place in used):
            return None
        if form.function not in ("count", "count_units"):
            arguments = dict(zip(form.arguments, one.arguments, strict=True))
            if not _alike(plan.query.measures[used[0]], before.measures[used[0]], arguments, known):
                return None
        found.append(form)
    return found


def _adds_up(measure: Measure, *, one_row: bool) -> bool:
    """Return whether counters of a coarser group are sums; units are where each has one row in all."""
    return measure.kind in ADDITIVE or (measure.kind == "units" and one_row)


def _alike(measure: Measure, before: Measure, arguments: Mapping[int, int], known: Mapping[int, Argument]) -> bool:
    """Return whether the arguments have the bounds, or the list of values, with which a measure was bought.

    ``arguments``: position in the release -> position in the question. Bounds that are to be learned are alike where the release
    has learned them.
    """
    for held, planned in zip(measure.variables, before.variables, strict=True):
        if held.position not in arguments:
            continue
        today = known.get(arguments[held.position])
        if today is None:
            return False
        if measure.kind == "values":
            if measure.values != (today.values or ()):
                return False
        elif measure.kind == "distinct":
            if held.upper != (float(len(today.values)) if today.values else UNKNOWN_VALUES):
                return False
        elif not _bounded_alike(held, planned, today):
            return False
    return True


def _bounded_alike(held: Variable, planned: Variable, today: Argument) -> bool:
    if today.learned is not None:
        return planned.learned is not None
    if planned.learned is not None or today.lower is None or today.upper is None:
        return False
    wanted = variable(held.position, today)
    return (held.lower, held.upper, held.whole) == (wanted.lower, wanted.upper, wanted.whole)


def spread(plan: Plan, wanted: Sequence[Wanted], added: int = 1) -> float:
    """Return how large the noise on all aggregates is: the mean logarithm, to compare releases that give the same ones.

    Parameters
    ----------
    added : int
        Released counters that are added up in each group, at most.
    """
    estimates = Estimates(plan, [], added)
    found = [math.log(max(estimates.spread(one), 1e-300)) for one in wanted]
    return math.fsum(found) / len(found) if found else 0.0
