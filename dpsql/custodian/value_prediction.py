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
    half = _length(sample) // 2  # of a random order
    train, test = ({i: values[part] for i, values in sample.items()} for part in (slice(0, half), slice(half, None)))
    synthetic = _rows(table, used, SYNTHETIC, half, seed)
    figures = []
    with one_blas_thread():
        models = [_Trained.of(table, predictors, rows, test) for rows in (train, synthetic)]
        for target in targets:
            interruption.check()
            figures.append(_figure(table, target, models, test))
    return figures, " ".join(left)


def _some(of: Sequence[int], most: int, rng: np.random.Generator) -> list[int]:
    return list(of) if len(of) <= most else sorted(int(of[i]) for i in rng.choice(len(of), most, replace=False))


def _rows(table: ValueTable, columns: Sequence[int], which: int, most: int, seed: int) -> Columns:
    """Return the columns of a random sample of rows, in a random order that the seed decides; NaN where a number is missing."""
    names = ", ".join(f"{'v' if i in table.numeric else 'g'}{i}::DOUBLE AS c{i}" for i in columns)
    key = f"hash(rowid, {seed}::HUGEINT)"
    query = (
        f"SELECT {names} FROM {table.name} WHERE s = {which} "  # noqa: S608 -- quoted
        f"ORDER BY {key} ASC, rowid ASC LIMIT {most}"
    )
    fetched: dict[str, Any] = guarded(table.cursor, query).fetchnumpy()
    return {i: np.ma.filled(np.ma.asarray(fetched[f"c{i}"], dtype=np.float64), np.nan) for i in columns}


def _length(sample: Columns) -> int:
    return len(next(iter(sample.values())))


def _figure(table: ValueTable, target: int, models: Sequence[_Trained], test: Columns) -> Figure:
    """Return the row of one predicted column."""
    classes = table.domain.attributes[target].values
    raw, synthetic = (_area(target, classes, trained, test[target]) for trained in models)
    notes = []
    if raw is None:
        notes.append(f"no value that {LEAST} tested rows have and {LEAST} have not")
    elif synthetic is None:
        notes.append("no synthetic rows to train on")
    counts = (_length(models[0].rows), _length(models[1].rows))
    return Figure("auc", counts, raw, synthetic, column=table.domain.names[target], notes=notes)


def _area(target: int, classes: int, trained: _Trained, tested: FloatArray) -> float | None:
    """Return the mean area over the classes, each against the rest; None where there is nothing to train on or to test."""
    labels = trained.rows[target]
    known, asked = labels < classes, tested < classes
    actual = tested[asked].astype(np.int64)
    counts = np.bincount(actual, minlength=classes)
    large = np.flatnonzero((counts >= LEAST) & (len(actual) - counts >= LEAST))
    if not large.size or not known.any():
        return None
    others = trained.owners != target
    learnt = fit(trained.features[known][:, others], labels[known].astype(np.int64), classes)
    scores = learnt.probabilities(trained.tested[asked][:, others])
    return float(np.mean([area_under_curve(scores[:, c], actual == c) for c in large]))


@dataclass(frozen=True)
class _Trained:
    """Training rows and tested rows as features, which the training rows decide on.

    Parameters
    ----------
    rows : columns of the training rows
    features, tested : sparse matrices of training and of tested rows
    owners : int array
        The column that each feature is of.
    """

    rows: Columns
    features: Any
    tested: Any
    owners: IntArray

    @classmethod
    def of(cls, table: ValueTable, predictors: Sequence[int], rows: Columns, test: Columns) -> _Trained:
        from scipy import sparse  # loaded when needed: scipy takes .2 s

        encoders = {i: _Number.of(rows[i]) if i in table.numeric else _Category.of(rows[i]) for i in predictors}
        parts = [[sparse.csr_matrix(encoders[i].features(some[i])) for i in predictors] for some in (rows, test)]
        owners = np.repeat(predictors, [part.shape[1] for part in parts[0]])
        features, tested = (sparse.hstack(part, "csr") for part in parts)
        return cls(rows, features, tested, owners)


@dataclass(frozen=True)
class _Number:
    """A number in standard deviations from the mean of the training rows, and whether it is missing."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: FloatArray) -> _Number:
        present = values[~np.isnan(values)]
        if not present.size:
            return cls(0.0, 0.0)
        size = max(1.0, float(np.abs(present).max()))  # squares of large numbers are more than a DOUBLE can be
        return cls(float((present / size).mean() * size), float((present / size).std() * size))

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
        distinct, counts = np.unique(values, return_counts=True)
        return cls(distinct[np.argsort(-counts, kind="stable")[:MOST_INDICATORS]])

    def features(self, values: FloatArray) -> Any:
        from scipy import sparse

        order = np.argsort(self.codes)
        if not len(order):
            return sparse.csr_matrix((len(values), 0))
        place = np.searchsorted(self.codes[order], values).clip(max=len(order) - 1)
        row = np.flatnonzero(self.codes[order][place] == values)
        return sparse.csr_matrix((np.ones(len(row)), (row, order[place[row]])), shape=(len(values), len(order)))
