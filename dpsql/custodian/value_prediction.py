"""How well a model that was trained on synthetic rows predicts raw ones. NOT PRIVATE.

Every binary or categorical column is predicted from all others by a logistic regression, once trained on half of a sample of raw
rows, once on as many synthetic ones; both are tested on the other half of the raw rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.custodian.value_table import RAW, SYNTHETIC, Figure, ValueTable
from dpsql.domains.encoding import guarded
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.empirical import area_under_curve
from dpsql.numerics.logistic import fit
from dpsql.running import interruption
from dpsql.running.blas import one_blas_thread

MOST_ROWS = 20_000
"""Raw rows of the sample, of which half are trained on; of the synthetic rows as many as that half."""
MOST_TARGETS = 20
MOST_VALUES = 20
"""Of a column that is predicted."""
MOST_PREDICTORS = 100
MOST_INDICATORS = 50
"""Values of a categorical predictor that are told apart, the most frequent of the training rows."""
LEAST = 10
"""Test rows that a class needs, and that all others together need, to be counted."""
_FARTHEST = 10.0  # standard deviations: a value of the test rows may be far outside of those trained on
Columns = dict[int, npt.NDArray[np.float64]]


def predictions(table: ValueTable, seed: int) -> tuple[list[Figure], str]:
    """Return the area under the ROC curve of each predicted column, and what is left out.

    Parameters
    ----------
    table : ValueTable
    seed : int
        Of the sample of rows, and of columns where there are too many.
    """
    attributes = table.domain.attributes
    able = [i for i in table.categorical if 2 <= attributes[i].values <= MOST_VALUES]
    rng = np.random.default_rng(seed)
    targets, predictors = _some(able, MOST_TARGETS, rng), _some(range(len(attributes)), MOST_PREDICTORS, rng)
    left = []
    if len(targets) < len(able):
        left.append(f"{len(targets)} of {len(able)} columns are predicted")
    if len(predictors) < len(attributes):
        left.append(f"from {len(predictors)} of {len(attributes)} columns")
    if not targets or len(attributes) < 2:
        return [], ""
    used = sorted({*targets, *predictors})
    sample = _rows(table, used, RAW, MOST_ROWS, seed)
    half = _length(sample) // 2
    train, test = ({i: values[part] for i, values in sample.items()} for part in (slice(0, half), slice(half, None)))
    made = _rows(table, used, SYNTHETIC, half, seed)
    found = []
    with one_blas_thread():
        for target in targets:
            interruption.check()
            others = [i for i in predictors if i != target]
            found.append(_figure(table, target, others, train, made, test))
    return found, " ".join(left)


def _some(of: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    return list(of) if len(of) <= most else sorted(int(of[i]) for i in rng.choice(len(of), most, replace=False))


def _rows(table: ValueTable, columns: Sequence[int], which: int, most: int, seed: int) -> Columns:
    """Return the columns of a random sample of rows, in a random order that the seed decides; NaN where a number is missing."""
    names = ", ".join(f"{'v' if i in table.numeric else 'g'}{i}::DOUBLE AS c{i}" for i in columns)
    query = (
        f"SELECT {names} FROM {table.name} WHERE s = {which} "  # noqa: S608 -- quoted
        f"ORDER BY hash(rowid, {seed}::HUGEINT) ASC, rowid ASC LIMIT {most}"
    )
    fetched: dict[str, Any] = guarded(table.cursor, query).fetchnumpy()
    return {i: np.ma.filled(np.ma.asarray(fetched[f"c{i}"], dtype=np.float64), np.nan) for i in columns}


def _length(sample: Columns) -> int:
    return len(next(iter(sample.values())))


def _figure(table: ValueTable, target: int, others: Sequence[int], train: Columns, made: Columns, test: Columns) -> Figure:
    """Return the row of one predicted column."""
    classes = table.domain.attributes[target].values
    raw, synthetic = (_area(table, target, others, classes, rows, test) for rows in (train, made))
    counts = (_length(train), _length(made))
    notes = []
    if raw is None:
        notes.append(f"no value that {LEAST} tested rows have and {LEAST} have not")
    elif synthetic is None:
        notes.append("no synthetic rows to train on")
    name = table.domain.names[target]
    return Figure("auc", counts, raw, synthetic, column=name, notes=notes)


def _area(table: ValueTable, target: int, others: Sequence[int], classes: int, train: Columns, test: Columns) -> float | None:
    """Return the mean area over the classes, each against the rest; None where there is nothing to train on or to test."""
    known, asked = (rows[target] < classes for rows in (train, test))
    wanted = test[target][asked].astype(np.int64)
    counts = np.bincount(wanted, minlength=classes)
    tested = np.flatnonzero((counts >= LEAST) & (len(wanted) - counts >= LEAST))
    if not tested.size or not known.any():
        return None
    scores = _scores(table, others, classes, _where(train, known), train[target][known].astype(np.int64), _where(test, asked))
    return float(np.mean([area_under_curve(scores[:, c], wanted == c) for c in tested]))


def _where(rows: Columns, kept: npt.NDArray[np.bool_]) -> Columns:
    return {i: values[kept] for i, values in rows.items()}


def _scores(
    table: ValueTable, others: Sequence[int], classes: int, train: Columns, labels: IntArray, test: Columns
) -> FloatArray:
    """Return the probability of each class for each tested row."""
    from scipy import sparse  # loaded when needed: scipy takes .2 s

    encoders: list[_Number | _Category] = [
        _Number.of(train[i]) if i in table.numeric else _Category.of(train[i]) for i in others
    ]
    known, asked = (
        sparse.hstack([sparse.csr_matrix(encoder.features(rows[i])) for i, encoder in zip(others, encoders, strict=True)], "csr")
        for rows in (train, test)
    )
    return fit(known, labels, classes).probabilities(asked)


@dataclass(frozen=True)
class _Number:
    """A number in standard deviations from the mean of the training rows, and whether it is missing."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: FloatArray) -> _Number:
        there = values[~np.isnan(values)]
        if not there.size:
            return cls(0.0, 0.0)
        size = max(1.0, float(np.abs(there).max()))  # squares of large numbers are more than a DOUBLE can be
        return cls(float((there / size).mean() * size), float((there / size).std() * size))

    def features(self, values: FloatArray) -> FloatArray:
        missing = np.isnan(values)
        # Halves, because a difference may be more than a DOUBLE can be; a constant column says nothing.
        away = (values / 2 - self.mean / 2) / (self.deviation / 2) if self.deviation else np.zeros(len(values))
        return np.stack([np.clip(np.where(missing, 0.0, away), -_FARTHEST, _FARTHEST), missing.astype(np.float64)], axis=1)


@dataclass(frozen=True)
class _Category:
    """An indicator of each of the most frequent values of the training rows; NULL is a value."""

    codes: FloatArray

    @classmethod
    def of(cls, values: FloatArray) -> _Category:
        found, counts = np.unique(values, return_counts=True)
        return cls(found[np.argsort(-counts, kind="stable")[:MOST_INDICATORS]])

    def features(self, values: FloatArray) -> Any:
        from scipy import sparse

        order = np.argsort(self.codes)
        place = np.searchsorted(self.codes[order], values).clip(max=len(order) - 1)
        row = np.flatnonzero(self.codes[order][place] == values)
        return sparse.csr_matrix((np.ones(len(row)), (row, order[place[row]])), shape=(len(values), len(order)))
