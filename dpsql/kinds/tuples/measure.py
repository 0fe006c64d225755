"""Measure counts of tuples: the levels one after the other, each chosen by what was released of the one before."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np

from dpsql import methods
from dpsql.engines.base import Codes
from dpsql.errors import ReleaseError
from dpsql.kinds.measured import Measurer
from dpsql.measure.candidates import Candidates, candidates
from dpsql.measure.fine import refined_by
from dpsql.measure.reading import Measured, reader_of
from dpsql.mechanisms.percentile import private_percentile
from dpsql.methods.aggregate_seeded.levels import level_scale
from dpsql.methods.base import TupleMethod, TuplePlan
from dpsql.noise import discrete
from dpsql.noise.entropy import fresh_salt
from dpsql.numerics.arrays import IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.release.refined import resolved
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.tables.tuple_index import tuple_index


class Tuples(Measurer):
    """Combinations of values over declared columns."""

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Count level by level, with noise on every candidate."""
        method = methods.of(plan.method)
        if not methods.counts_tuples(method):
            raise ReleaseError(f"method {plan.method!r} counts no tuples")
        reader = reader_of(context, protected)
        refinement = refined_by(reader, protected, plan, progress)
        plan = resolved(plan, refinement)
        with self.reading(protected, plan).encoded(reader, progress) as codes:
            return replace(_levels(context.cursor, plan, method, codes, progress), refinement=refinement)


def _levels(cursor: duckdb.DuckDBPyConnection, plan: Plan, method: TupleMethod, codes: Codes, progress: Progress) -> Measured:
    """Count the tuples of one level after the other: those whose parts were all kept at the level before.

    Privacy: a level's tuples are chosen by released counts and public numbers alone, and every one of them gets noise, those
    that nobody has too.
    """
    with progress.stage("count"):
        number = codes.total()
        tuples = method.tuples(plan.domain, plan.options)
        index = tuple_index(tuples.sizes, tuples.length)
        levels, most, notes = [], [], []
        kept = released = np.zeros(0, np.int64)
        for k in index.levels:
            chosen = candidates(cursor, index, k, kept, released)
            if chosen.extended < kept.size:
                notes.append(_cut(k, chosen, kept.size))
            keys = chosen.keys
            exact, bound = _level(codes, plan, tuples, k, keys)
            scale = plan.scales[index.first_tables[k - 1]]
            if tuples.empty:
                scale = level_scale(Fraction(plan.parameters["units"][k - 1]), bound)
            noisy = discrete.add_noise(exact, plan.mechanism, scale)
            above = noisy > method.threshold(k, scale, plan.options)
            kept, released = keys[above], noisy[above]
            levels.append((keys, noisy))
            most.append(bound)
    keys, flat = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    table = index.tables_of(keys)
    places = np.stack([table, keys - index.starts[table]])
    if tuples.empty:
        rows = np.asarray([number], dtype=np.int64)
        rows = rows if plan.public_total else discrete.add_noise(rows, plan.mechanism, plan.scales[-1])
        last = np.stack([np.full(1 + len(most), len(index.cliques)), np.arange(1 + len(most))])
        flat, places = np.concatenate([flat, rows, most]), np.concatenate([places, last], axis=1)
    return Measured(flat, [], number if plan.public_total else None, places, tuple(notes))


def _cut(k: int, chosen: Candidates, kept: int) -> str:
    """Return what the release says where not all kept tuples were extended. Post-processing of released counts."""
    return (
        f"k = {k}: of the {kept} tuples of k = {k - 1} that were kept, only the {chosen.extended} with the largest counts were "
        f"extended, since no more than {chosen.limit} are counted on this machine; the others' combinations are missing. Fewer "
        "columns, a smaller reporting_length or fabrication 'minimize' avoid that"
    )


def _level(codes: Codes, plan: Plan, tuples: TuplePlan, k: int, keys: IntArray) -> tuple[IntArray, int]:
    """Return exact counts of one level's tuples, and the number of them that a row has at most.

    Privacy: the bound is a private percentile, or public; the counts are secret.
    """
    index = tuple_index(tuples.sizes, tuples.length)
    bound = math.comb(len(tuples.sizes), k)
    if not tuples.empty or plan.parameters["share"] is None:
        return codes.tuples(index, keys, tuples.empty), bound
    with codes.widths(index, k, keys, tuples.empty) as widths:
        share, epsilon, sensitivity = (Fraction(plan.parameters[p]) for p in ("share", "epsilon_percentile", "penalty_sensitivity"))
        bound = private_percentile(widths.histogram, share, epsilon, sensitivity)
        return widths.counted(bound, fresh_salt()), bound
