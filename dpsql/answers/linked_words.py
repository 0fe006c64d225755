"""What plans, releases and explanations say of linked tables. No row is read.

Privacy: public plans alone.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from dpsql.accounting import expected_absolute_error
from dpsql.release.linked import LinkedPlan
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.text.relation import at_most

KINDS = {
    "one": "one-way table", "pair": "two-way table of a row", "across": "table of a row and one above it",
    "sibling": "table of two rows of one parent", "first": "table of the first row of a parent",
    "next": "table of a row and the next one", "gap": "table of how far the next row is",
}  # fmt: skip
"""What is measured, by the kind of a block."""


def measures(linked: LinkedPlan) -> str:
    """Return in words what is measured.

    Examples
    --------
    >>> measures(LinkedPlan((), (), 1))
    'nothing'
    """
    by_kind: Counter[str] = Counter(block.kind for block in linked.blocks)
    counted = [f"{by_kind[kind]:,} {text if by_kind[kind] == 1 else plural(text)}" for kind, text in KINDS.items() if by_kind[kind]]
    if not counted:
        return "nothing"
    return f"{', '.join(counted)}; of {', '.join(table.name for table in linked.tables)}"


def plural(text: str) -> str:
    """Return the words of `KINDS` for several."""
    return text.replace("table", "tables", 1)


def columns(linked: LinkedPlan) -> list[str]:
    """Return the columns that are measured, as table.column."""
    return [f"{table.name}.{name}" for table in linked.tables for name in table.domain.names]


def scale(plan: Plan, linked: LinkedPlan) -> float | None:
    """Return the noise scale that most blocks have, in units; None where nothing is measured."""
    times = Counter(float(scale) / linked.one(block) for scale, block in zip(plan.scales, linked.blocks, strict=True))
    usual = max(times, key=lambda of_unit: (times[of_unit], of_unit)) if times else None
    return None if usual is None else float(usual)


def expected_error(plan: Plan, linked: LinkedPlan, k: int) -> float | None:
    """Return the mean absolute error that noise alone puts on a number of units in blocks of k columns."""
    sizes = [len(shape) for shape in linked.shapes]
    errors = {noise: expected_absolute_error(plan.mechanism, noise) for noise in set(plan.scales)}
    of_blocks = [
        errors[noise] / linked.one(block)
        for noise, block, size in zip(plan.scales, linked.blocks, sizes, strict=True) if size == k
    ]  # fmt: skip
    return None if not of_blocks else math.fsum(of_blocks) / len(of_blocks)


def bounding(linked: LinkedPlan) -> list[str]:
    """Return how rows are bounded, by link."""
    sentences = []
    for table in linked.tables[1:]:
        parent = linked.tables[table.parent or 0]
        rows = "1 row" if table.most == 1 else f"{table.most:,} rows"
        sentences.append(
            f"at most {rows} of {table.name} for each row of {parent.name} ({table.link} = {table.referred}), at random by its own "
            "rows; rows without a parent are left out"
        )
    return sentences


def explanation(release: Release, linked: LinkedPlan) -> list[tuple[str, str]]:
    """Return what a release of linked tables is made of: what it is about, and the words."""
    plan, charge = release.plan, release.manifest["charge"]
    scales = np.asarray(plan.scale_numbers) / np.asarray([linked.one(block) for block in linked.blocks])
    epsilon, delta = at_most(float(charge["epsilon"])), float(charge["delta"])
    lines = [("question", measures(linked))]
    lines += [("rows", text) for text in bounding(linked)]
    lines.append(("values", linked.weighing))
    noisy = f"{scales.min():.4g}" + (f" to {scales.max():.4g}" if scales.max() > scales.min() else "")
    lines.append(("noise", f"{plan.mechanism} noise on every cell, of scale {noisy} {'rows' if linked.independent else 'units'}"))
    public = "public" if plan.public_total else "noisy: read from the tables of the first table"
    lines.append(("values", f"the number of units is {public}"))
    lines.append(("price", f"epsilon = {epsilon:g} at delta = {delta:g}, charged once, as release {release.identifier}"))
    return lines
