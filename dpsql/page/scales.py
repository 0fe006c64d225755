"""Where the bins of a chart stand: to scale, on a straight axis or, where they grow by factors, on one of logarithms.

Privacy: None: a function of the declared domain.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsql.numerics.arrays import FloatArray

_NARROWEST = 1 / 150  # of the axis: two pixels or so; with narrower bins another axis is tried
_MOST_TICKS = 12
_SECOND = datetime.timedelta(seconds=1)
_DAY = datetime.timedelta(days=1)
_STEPS = (
    *(_SECOND * step for step in (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 43_200)),
    *(_DAY * step for step in (1, 2, 7, 14)),
)
_MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12_000, 24_000, 60_000)
Ticks = list[tuple[float, str]]


@dataclass(frozen=True)
class Scale:
    """From numbers to places between 0 and 1, and back.

    Parameters
    ----------
    low, high : float
        The numbers at 0 and at 1.
    size : float
        Their largest absolute value: differences of bounds may be larger than a DOUBLE can be.
    turn : float or None
        Beyond this share of ``size`` from 0, on both sides, the scale is logarithmic; None: it is straight.

    Examples
    --------
    >>> straight, bent = Scale(0.0, 40.0, 40.0), Scale(0.0, 100.0, 100.0, 0.01)
    >>> straight.places(np.array([0.0, 10.0, 40.0])).tolist(), straight.numbers(np.array([0.25])).tolist()
    ([0.0, 0.25, 1.0], [10.0])
    >>> bent.places(np.array([1.0, 10.0])).round(2).tolist(), bent.numbers(bent.places(np.array([0.5, 7.0]))).round(9).tolist()
    ([0.18, 0.59], [0.5, 7.0])
    """

    low: float
    high: float
    size: float
    turn: float | None = None

    def places(self, numbers: FloatArray) -> FloatArray:
        """Return where numbers stand."""
        low, high = self._bent(np.asarray([self.low, self.high]) / self.size)
        places: FloatArray = (self._bent(numbers / self.size) - low) / (high - low)
        return places

    def numbers(self, places: FloatArray) -> FloatArray:
        """Return the numbers that stand at some places."""
        low, high = self._bent(np.asarray([self.low, self.high]) / self.size)
        bent = low + places * (high - low)
        if self.turn is None:
            return np.asarray(bent * self.size)
        sizes = np.abs(bent)
        unbent = np.where(sizes <= 1, sizes, np.exp(np.maximum(sizes, 1) - 1)) * self.turn
        return np.asarray(np.sign(bent) * unbent * self.size)

    def _bent(self, scaled: FloatArray) -> FloatArray:
        if self.turn is None:
            return scaled
        sizes = np.abs(scaled) / self.turn
        return np.asarray(np.sign(scaled) * np.where(sizes <= 1, sizes, 1 + np.log(np.maximum(sizes, 1))))


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from 0 to 1.

    Parameters
    ----------
    edges : array
        Where bins begin, and the last one ends.
    ticks : sequence of lists
        Places and texts to choose from: the first that fits.
    scale : Scale
        Of numbers; of times the seconds after the first edge.
    note : str
        What to know about the axis, if it is not straight.
    """

    edges: FloatArray
    ticks: Sequence[Ticks]
    scale: Scale
    note: str = ""


def ticks(high: float, low: float = 0.0, count: int = 4) -> list[float]:
    """Return round numbers from low to high.

    Examples
    --------
    >>> ticks(930.0), ticks(3.0, -1.0)
    ([0.0, 250.0, 500.0, 750.0], [-1.0, 0.0, 1.0, 2.0, 3.0])
    """
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if s * power >= raw * 0.999)
    digits = 3 - math.floor(math.log10(step))
    return [round(i * step, digits) + 0.0 for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Return a number for an axis.

    Examples
    --------
    >>> [short(v) for v in (0.0, 2020.0, 12500.0, 1e6, -0.25, 1e12)]
    ['0', '2020', '12.5k', '1M', '-0.25', '1e+12']
    """
    if 1e4 <= abs(value) < 1e9:
        unit, sign = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / unit:.6g}{sign}"
    return f"{value:.6g}"


_ZERO = 1e-12
"""Part of the largest edge below which an edge is taken to be zero where an axis turns logarithmic."""
_SLIVER = 0.02
"""Part of an axis that a bin of one number is drawn with, at least."""


def axis_of(edges: Sequence[float] | Sequence[str]) -> Axis:
    """Return the axis of declared bins.

    Examples
    --------
    >>> axis_of((0.0, 10.0, 20.0, 40.0)).edges.tolist()
    [0.0, 0.25, 0.5, 1.0]
    >>> axis = axis_of((0.0, 1.0, 10.0, 100.0, 1000.0))
    >>> axis.edges.round(2).tolist(), axis.note
    ([0.0, 0.13, 0.42, 0.71, 1.0], 'The axis is logarithmic beyond 1.')
    >>> axis_of(("2021-01-01", "2022-01-01", "2023-01-01")).ticks[-2]
    [(0.0, '2021'), (0.5, '2022'), (1.0, '2023')]
    """
    if isinstance(edges[0], str):
        return _of_times([str(edge) for edge in edges])
    values = np.asarray([float(edge) for edge in edges])
    texts = _texts(values.tolist())
    scale = Scale(float(values[0]), float(values[-1]), float(np.abs(values).max()))
    straight = scale.places(values)
    # Bins too narrow to be seen to scale: the axis is bent, if that makes the narrowest one wider.
    if float(np.diff(straight).min()) < _NARROWEST:
        sizes = np.abs(values) / scale.size
        turn = float(sizes[sizes > _ZERO].min())
        curved = replace(scale, turn=turn)
        bent = curved.places(values)
        if float(np.diff(straight).min()) <= 0.0:  # a bin of one number, such as zero
            widened = np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(bent), _SLIVER))])
            bent = widened / widened[-1]
        if float(np.diff(bent).min()) > float(np.diff(straight).min()):
            at = next(text for text, size in zip(texts, sizes, strict=True) if size == turn).removeprefix("-")
            return Axis(bent, [list(zip(bent.tolist(), texts, strict=True))], curved, f"The axis is logarithmic beyond {at}.")
    low, high = float(values[0]), float(values[-1])
    choices = [
        [((tick - low) / (high - low), text) for tick, text in zip(marks, _texts(marks), strict=True)]
        for marks in (ticks(high, low, count) for count in ((8, 6, 5, 4, 3, 2, 1) if math.isfinite(high - low) else ()))
    ]
    return Axis(straight, [*choices, list(zip(straight.tolist(), texts, strict=True))], scale)


def _texts(values: Sequence[float]) -> list[str]:
    """Return numbers for an axis, with more digits where they would look alike."""
    texts = [short(value) for value in values]
    return texts if len(set(texts)) == len(values) else [f"{value:.15g}" for value in values]


def _of_times(edges: Sequence[str]) -> Axis:
    """Return the axis of dates, times or timestamps, with round times on it."""
    moments = [_moment(edge) for edge in edges]
    first, span = moments[0], moments[-1] - moments[0]
    places = np.asarray([(moment - first) / span for moment in moments])
    choices: list[Ticks] = []
    # From the finest that there may be room for to the coarsest; the chart takes the first that fits.
    for step in _STEPS:
        if span / step <= _MOST_TICKS:
            choices.append([((t - first) / span, _written(t, step, span)) for t in _every(first, moments[-1], step)])
    for months in _MONTHS:
        if span / (_DAY * 30 * months) <= _MOST_TICKS:
            shape = "%Y" if months >= 12 else "%Y-%m"
            choices.append([((t - first) / span, t.strftime(shape)) for t in _every_months(first, moments[-1], months)])
    ends = [(0.0, edges[0]), (1.0, edges[-1])]
    seconds = span / _SECOND
    return Axis(places, [*(choice for choice in choices if len(choice) > 1), ends], Scale(0.0, seconds, seconds))


def _moment(text: str) -> datetime.datetime:
    """Read an edge; a time of day is one of some day."""
    dated = text if "-" in text[:7] else f"2000-01-01 {text}"
    return datetime.datetime.fromisoformat(dated).replace(tzinfo=None)


def _every(first: datetime.datetime, last: datetime.datetime, step: datetime.timedelta) -> list[datetime.datetime]:
    """Return the multiples of a step, counted from midnight of the first day."""
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    start = -((midnight - first) // step)
    return [midnight + i * step for i in range(start, (last - midnight) // step + 1)]


def _every_months(first: datetime.datetime, last: datetime.datetime, months: int) -> list[datetime.datetime]:
    number = range(first.year * 12 // months * months, last.year * 12 + 12, months)
    begun = [datetime.datetime(n // 12, n % 12 + 1, 1) for n in number if 12 <= n < 120_000]
    return [moment for moment in begun if first <= moment <= last]


def _written(moment: datetime.datetime, step: datetime.timedelta, span: datetime.timedelta) -> str:
    if step >= _DAY:
        return f"{moment:%Y-%m-%d}"
    if step >= 60 * _SECOND:
        return f"{moment:%m-%d %H:%M}" if span > _DAY else f"{moment:%H:%M}"
    return f"{moment:%H:%M:%S}" if step >= _SECOND else f"{moment:%S.%f}"


def reference(widths: FloatArray) -> int | None:
    """Return the bin for which heights are counts: one of the most common width; None where all are about as wide.

    Examples
    --------
    >>> reference(np.array([1.0, 1.0, 1.05])), reference(np.array([2.0, 1.0, 1.0, 5.0]))
    (None, 1)
    """
    if float(widths.max()) <= 1.15 * float(widths.min()):  # months are
        return None
    rounded = [f"{width:.3g}" for width in widths]
    return rounded.index(max(rounded, key=lambda width: (rounded.count(width), -rounded.index(width))))


def fitting(spans: Sequence[tuple[float, float]], gap: float) -> list[int]:
    """Return which of some texts (from, to) stay if none may meet another: the ends before those between them.

    Examples
    --------
    >>> fitting([(0, 10), (5, 15), (12, 22), (20, 30)], 1)
    [0, 3]
    """
    chosen: list[int] = []
    for i in sorted(range(len(spans)), key=lambda i: (i not in (0, len(spans) - 1), i)):
        if all(spans[i][0] >= spans[j][1] + gap or spans[i][1] + gap <= spans[j][0] for j in chosen):
            chosen.append(i)
    return sorted(chosen)
