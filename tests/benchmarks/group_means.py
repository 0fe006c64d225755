"""What bounds the means by group of a numeric column of which only bounds were declared: the error of each stage by itself.

    python tests/benchmarks/group_means.py [--data adult acs ce visits] [--columns capital-gain capital-loss] [--seeds 8] [--epsilon 1]
        [--effort balanced]

Printed for each column: median relative error of its means by group, over the groups of values.py, medians over the seeds. Stages:

* ``resampled``: as many rows drawn from the raw ones, with no privacy.
* ``d``: raw rows, but the value is that of another row of the same bin: bins as cut, values inside a bin independent of the group.
* ``a, d``: raw rows and their bins, values inside bins as the released fine histogram says.
* ``b``: the released table of the column and the group alone, the mean of each bin and the size of each group known.
* ``c``: classes fitted to the tables without their noise, weighted and pulled as with it; means of bins known.
* ``b, c``: classes fitted to the released tables; means of bins known.
* ``a, b, c, d``: the same, values inside bins as released; no row is drawn.
* ``rows``: the rows. ``rows, means of all right``: each mean by group multiplied so that the mean of all rows is right.
* ``rows, a without noise``: the fine histogram is exact, and so bins are others; tables are noisy.
* ``rows, no noise``: all exact, and precisions as if epsilon were 1000.
* ``sums, the table's share``, ``..., all loss for the columns``, ``..., all loss for the column``: no rows and no tables, but sums by group
  with Gaussian noise, for the loss of the pair's table, or for that of the whole release spent on nothing but the sums of the
  columns by group, or of this one. Sizes of groups are known; values are clipped where it is best in hindsight, and sums
  multiplied by what makes the mean of all right.

The plan is that of a release bought through SQL; its noise is normal, rounded, with fixed seeds, the same for all stages.
The data are not part of the project, see accuracy.py; ``visits`` is made by values.py.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from values import DELTA, STUDIES, Study, declare, numbers

import dpsql
from dpsql.domains import sqltypes
from dpsql.domains.grid import edge_numbers
from dpsql.domains.within import Within
from dpsql.measure.fine import _cell_noise
from dpsql.methods.latent_class import LatentClass
from dpsql.release import refined, store
from dpsql.release.contents import as_statistics, shaped
from dpsql.release.plan import Plan
from dpsql.release.refined import Refinement
from dpsql.tables import coarse, fine
from dpsql.tables.statistics import Statistics
from dpsql.tables.tails import placed, trimmed

METHOD = LatentClass()
COLUMNS = {"adult": ["capital-gain", "capital-loss"], "acs": ["PINCP", "PWGTP"], "ce": ["Income", "Expenditure"], "visits": ["cost", "stay"]}
CLIPS = (0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.997, 0.999, 1.0)
SURE = 1000.0


def planned(study: Study, epsilon: float) -> Plan:
    """Return the plan of a release of all columns, which is bought of the table without the unit: each row is one."""
    con = duckdb.connect()
    with tempfile.TemporaryDirectory() as folder:
        dpsql.load(con, store=folder, progress=False)
        raw = study.frame  # noqa: F841 -- DuckDB reads it by name
        con.execute("CREATE TABLE t AS SELECT * FROM raw")
        con.execute("CALL dp_protect('t', epsilon := ?, delta := ?)", [max(2 * epsilon, 1.0), DELTA])
        declare(con, study, "automatic")
        con.execute(f"FROM dp_synthesize('t', epsilon := {epsilon}, rows := 1, options := {{'steps': 1, 'classes': 1}})").fetchall()
        (path,) = (found for found in Path(folder).rglob("*.parquet") if "drawn" not in found.parts)
        plan = store.read(con.cursor(), path).planned
        con.close()
    return replace(plan, options=dict(METHOD.options))


class Experiment:
    """A table with its plan, exact values and groups."""

    def __init__(self, study: Study, epsilon: float) -> None:
        if study.unit is not None:  # one row of each unit
            kept = study.frame.sample(frac=1, random_state=0).drop_duplicates(study.unit)
            study = replace(study, frame=kept.drop(columns=study.unit).reset_index(drop=True), unit=None)
        self.plan, self.rows = planned(study, epsilon), len(study.frame)
        attributes = self.plan.domain.attributes
        self.names = [attribute.name for attribute in attributes]
        self.values, self.codes = {}, {}
        for i, attribute in enumerate(attributes):
            column = study.frame[attribute.name]
            if attribute.kind == "categorical":
                self.codes[i] = pd.Categorical(column.astype(str), list(attribute.categories)).codes.astype(np.int64)
            else:
                steps = 1.0
                if attribute.kind == "temporal" and attribute.sql_type != "DATE":
                    steps = 86_400e6 / sqltypes.MICROSECONDS[sqltypes.parse(attribute.sql_type).text]
                self.values[i] = numbers(column) * steps
        self.groups = []
        for name in study.groups:
            j = self.names.index(name)
            for code in range(attributes[j].values):
                mine = self.codes[j] == code
                if mine.sum() >= study.least * self.rows:
                    self.groups.append((j, code, mine))
        self.sizes = np.asarray([mine.sum() for *_, mine in self.groups])

    def truth(self, i: int) -> np.ndarray:
        return np.asarray([np.nanmean(self.values[i][mine]) for *_, mine in self.groups])

    def first(self, seed: int, noise: float) -> tuple[Plan, Refinement, np.ndarray]:
        """Return the plan with bins cut from fine histograms, these, and the codes of all rows."""
        plan, rng, counts = self.plan, np.random.default_rng([seed, 1]), []
        for column in plan.fine:
            grid, values = refined.column_grid(plan, column), self.values[column.position]
            exact = np.bincount(grid.place(values[~np.isnan(values)]), minlength=grid.edges.size - 1)

            def draw(level, cells, exact=exact, column=column):
                deviation = noise * float(column.scales[level])
                return fine.counted(cells, exact) + np.rint(deviation * rng.standard_normal(cells.first.size)).astype(np.int64)

            counts.append(np.concatenate([found for _, found in fine.levels(grid, column.scales, column.mechanism, draw)]))
        cut = Refinement(tuple(counts), refined.cut_edges(plan, counts, _cell_noise(plan), exact=False))
        plan, codes = refined.resolved(plan, cut), []
        for i, attribute in enumerate(plan.domain.attributes):
            if i in self.codes:
                codes.append(self.codes[i])
                continue
            place = np.searchsorted(edge_numbers(attribute), np.nan_to_num(self.values[i]), side="right") - 1
            codes.append(np.where(np.isnan(self.values[i]), attribute.values, np.clip(place, 0, attribute.values - 1)))
        return plan, cut, np.stack(codes, 1)

    def second(self, plan: Plan, cut: Refinement, codes: np.ndarray, seed: int, noise: float) -> Statistics:
        """Return the tables over these bins."""
        rng, sizes, count, exact = np.random.default_rng([seed, 2]), plan.domain.sizes, len(plan.cliques), []
        for clique in plan.cliques:
            shape = [sizes[i] for i in clique]
            exact.append(np.bincount(np.ravel_multi_index([codes[:, i] for i in clique], shape), minlength=int(np.prod(shape))))
        secret = np.concatenate(exact)
        deviations = noise * np.repeat([float(scale) for scale in plan.scales[:count]], [table.size for table in exact])
        pieces = [secret + np.rint(deviations * rng.standard_normal(secret.size)).astype(np.int64)]
        groups = coarse.groups(plan.domain, shaped(plan, pieces[0]), itertools.chain.from_iterable(plan.coarse)) if plan.coarse else {}
        for pair, scale in zip(plan.coarse, plan.scales[count:], strict=True):
            table = coarse.coarsened(shaped(plan, secret)[pair], pair, groups, coarse.shape(plan.domain, pair)).ravel()
            pieces.append(table + np.rint(noise * float(scale) * rng.standard_normal(table.size)).astype(np.int64))
        return as_statistics(plan, np.concatenate(pieces), None, refinement=cut)

    def drawn(self, attribute, histogram, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return values for codes of bins, as rows get them; NaN for NULL."""
        found, there = np.full(codes.size, np.nan), codes < attribute.values
        if histogram is None:  # each bin is one value
            found[there] = edge_numbers(attribute)[codes[there]]
            return found
        parsed = sqltypes.parse(attribute.sql_type)
        unit = 10.0**parsed.scale if parsed.family not in ("temporal", "float") else 1.0
        found[there] = Within(attribute, histogram).draw(codes[there], rng) / unit
        return found

    def means(self, codes: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = [values[(codes[:, j] == code) & ~np.isnan(values)] for j, code, _ in self.groups]
        return np.asarray([mine.mean() if mine.size else 0.0 for mine in found])

    def model_means(self, mixture, sizes, i: int, of_bins: np.ndarray) -> np.ndarray:
        ends, found = np.cumsum((0, *sizes)), []
        mine = mixture.values[ends[i] : ends[i] + of_bins.size]
        for j, code, _ in self.groups:
            weight = mixture.shares * mixture.values[ends[j] + code]
            found.append((weight @ (of_bins @ mine)) / (weight @ mine.sum(0)))
        return np.asarray(found)

    def sums(self, i: int, deviation: float) -> float:
        """Return the error of means of clipped sums with this noise for each unit of the clip, where the clip is best."""
        rng, values, truth = np.random.default_rng(5), self.values[i], self.truth(i)
        noise, errors = rng.standard_normal((400, self.sizes.size)), []
        for clip in np.unique(np.nanquantile(np.abs(values), CLIPS)):
            if clip > 0.0:
                clipped = np.clip(values, -clip, clip)
                factor = np.nanmean(values) / np.nanmean(clipped)
                exact = np.asarray([np.nansum(clipped[mine]) for *_, mine in self.groups])
                errors.append(np.median(error((exact + deviation * clip * noise) / self.sizes * factor, truth)))
        return float(min(errors))


def error(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.median(np.abs(found - truth) / np.abs(truth), axis=-1)


def stages(given: Experiment, columns: list[int], seed: int, options: dict) -> dict[tuple[str, int], float]:
    """Return the error of every stage of one release."""
    rng, found = np.random.default_rng([seed, 3]), {}
    plan, cut, codes = given.first(seed, 1.0)
    released = given.second(plan, cut, codes, seed, 1.0)
    statistics = trimmed(released)
    places = placed(statistics)
    noisy, exact = (METHOD.fit(one, options) for one in (statistics, given.second(plan, cut, codes, seed, 0.0)))
    rows = np.concatenate(list(METHOD.sample(noisy, METHOD.total(noisy), rng))).astype(np.int64)
    picked = rng.integers(0, given.rows, given.rows)
    for i in columns:
        attribute, values, truth, mine = plan.domain.attributes[i], given.values[i], given.truth(i), codes[:, i]
        size, there = attribute.values, ~np.isnan(values)
        known = np.bincount(mine[there], values[there], size) / np.maximum(np.bincount(mine[there], minlength=size), 1)
        tried = np.repeat(np.arange(size), 4000)
        told = given.drawn(attribute, places.get(i), tried, rng).reshape(size, -1).mean(1)
        exchanged = np.empty_like(values)
        exchanged[np.argsort(mine, kind="stable")] = values[np.lexsort((rng.random(mine.size), mine))]
        direct = []
        for j, code, _ in given.groups:
            table = np.asarray(released.tables[min(i, j), max(i, j)])
            direct.append((table[:size, code] if i < j else table[code, :size]) @ known)
        written = given.drawn(attribute, places.get(i), rows[:, i], rng)
        by_group = given.means(rows, written)
        scaled = by_group * (np.nanmean(values) / np.nanmean(written))
        for name, means in {
            "resampled": given.means(codes[picked], values[picked]),
            "d": given.means(codes, exchanged),
            "a, d": given.means(codes, given.drawn(attribute, places.get(i), mine, rng)),
            "b": np.asarray(direct) / given.sizes,
            "c": given.model_means(exact.mixture, plan.domain.sizes, i, known),
            "b, c": given.model_means(noisy.mixture, plan.domain.sizes, i, known),
            "a, b, c, d": given.model_means(noisy.mixture, plan.domain.sizes, i, told),
            "rows": by_group,
            "rows, means of all right": scaled,
        }.items():
            found[name, i] = float(error(means, truth))
    return found


def without_noise(given: Experiment, columns: list[int], seed: int, options: dict, *, tables: bool) -> dict[tuple[str, int], float]:
    """Return the error of rows where fine histograms are exact, and the tables too, or with their noise."""
    rng, usual = np.random.default_rng([seed, 3]), given.plan
    if tables:
        given.plan = replace(usual, scales=tuple(scale / Fraction(SURE) for scale in usual.scales))
    plan, cut, codes = given.first(seed, 0.0)
    given.plan = usual
    statistics = trimmed(given.second(plan, cut, codes, seed, 0.0 if tables else 1.0))
    places, model, found = placed(statistics), METHOD.fit(statistics, options), {}
    rows = np.concatenate(list(METHOD.sample(model, METHOD.total(model), rng))).astype(np.int64)
    for i in columns:
        written = given.drawn(plan.domain.attributes[i], places.get(i), rows[:, i], rng)
        found["rows, no noise" if tables else "rows, a without noise", i] = float(error(given.means(rows, written), given.truth(i)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=STUDIES, default=["adult"])
    parser.add_argument("--columns", nargs="+")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--effort", choices=("fast", "balanced", "best"), default="balanced")
    asked = parser.parse_args()
    for name in asked.data:
        given, options = Experiment(STUDIES[name](), asked.epsilon), {"effort": asked.effort}
        columns = [given.names.index(column) for column in asked.columns or COLUMNS[name]]
        errors = defaultdict(list)
        for seed in range(asked.seeds):
            runs = [stages(given, columns, seed, options), without_noise(given, columns, seed, options, tables=False)]
            if seed == 0:  # nothing but the rows is random
                runs.append(without_noise(given, columns, seed, options, tables=True))
            for key, value in itertools.chain.from_iterable(run.items() for run in runs):
                errors[key].append(value)
        scales = [float(scale) for scale in (*given.plan.scales, *itertools.chain.from_iterable(column.scales for column in given.plan.fine))]
        whole, tables = sum(1.0 / scale**2 for scale in scales), len({j for j, *_ in given.groups})
        for i in columns:
            for told, deviation in {
                "the table's share": _cell_noise(given.plan), "all loss for the columns": (tables * len(columns) / whole) ** 0.5,
                "all loss for the column": (tables / whole) ** 0.5,
            }.items():
                errors[f"sums, {told}", i].append(given.sums(i, deviation))
        print(f"\n{name}: {given.rows:,} rows, {len(given.groups)} groups, epsilon {asked.epsilon}, delta {DELTA}, {asked.seeds} seeds, "
              f"{asked.effort}; noise of a cell of a table {_cell_noise(given.plan):.0f}")
        print(f"{'':28}" + "".join(f"{given.names[i]:>22}" for i in columns))
        for stage in dict.fromkeys(stage for stage, _ in errors):
            found = [np.asarray(errors[stage, i]) for i in columns]
            print(f"{stage:28}" + "".join(f"{np.median(x):>13.3f} ± {x.std() / x.size**0.5:.3f} " for x in found), flush=True)


if __name__ == "__main__":
    main()
