r"""Events that are no noise on counts: mechanisms of bounded range, and thresholds that groups have to pass.

**Bounded range.** A mechanism is of range epsilon if for any two neighbours the log ratio L of the probabilities of an output lies
in an interval of length epsilon: L of two outputs differ by at most that. The exponential mechanism, P(t) proportional to exp(-
epsilon u(t) / (2 s)) with a penalty u of sensitivity s, is: the normalisations cancel in the difference, and each u moves by at
most s. Since L is neither positive everywhere nor negative everywhere, it is epsilon-DP too. But it costs less than that:

*zCDP, epsilon^2 / 8* (Cesar & Rogers 2021). By Hoeffding's lemma log E exp(s (L - E L)) <= s^2 epsilon^2 / 8 for all s,
under P. At s = -1: E exp(-L) = 1, so E L <= epsilon^2 / 8. So the Renyi divergence of order 1 + s is log(E exp(s L)) / s <=
E L + s epsilon^2 / 8 <= (1 + s) epsilon^2 / 8.

*GDP, mu = 2 Phi^-1(e^(epsilon / 2) / (1 + e^(epsilon / 2)))*: that of a pure mechanism of epsilon / 2. *Proof.* L lies in
some [t - epsilon, t], 0 <= t <= epsilon. The output can be drawn from one of two: likelihood ratios between e^(t - epsilon)
and e^t are mixtures of these two (which ratio x stands for is decided with a probability that is linear in x, so both laws
come out right). So the trade-off curve is above the polygon of the pair with an output of probability p under P and a under
Q, p = e^t a, 1 - p = e^(t - epsilon) (1 - a): its only corner is (a, 1 - p). That lies on or above the curve of mu-GDP iff
Phi^-1(p) - Phi^-1(a) <= mu, and then so does the polygon, since the curve is convex. Now logit(p) - logit(a) = epsilon, so
with h(x) = Phi^-1(1 / (1 + e^-x)) the left side is h(x + epsilon / 2) - h(x - epsilon / 2) for some x. h is odd; if it is
concave on x >= 0, its slope is even and falls with |x|, and the difference is largest at x = 0, where it is 2 h(epsilon /
2) = mu. It is: its inverse g(z) = logit(Phi(z)) has slope f / (F (1 - F)), f and F the normal density and distribution
function, whose logarithm has the slope -z - f / F + f / (1 - F). With D = 2 F - 1 that is not negative iff k(z) := 4 f D -
z (1 - D^2) >= 0. k(0) = 0; k' = 8 f^2 - (1 - D^2), positive at 0 (0.27) and 0 at infinity; k'' = 4 f (D - 4 z f), and D - 4
z f has slope f (4 z^2 - 2): it falls from 0, then rises to 1, so k' falls and then rises to 0: it changes its sign once,
from + to -. So k rises and then falls to its limit, which is 0: k >= 0. QED

The pair of D' and D is one of range epsilon too. So mechanisms of bounded range take part in the adaptive GDP filter with this mu,
in the zCDP filter with epsilon^2 / 8, and in plain sums with epsilon.

Privacy: events are public.

References
----------
Durfee & Rogers (2019), arXiv:1905.04273, for bounded range. Dong, Durfee & Rogers (2020), arXiv:1909.13830. Cesar & Rogers (2021),
arXiv:2004.07223.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from dpsql.accounting.checks import mechanisms, positive
from dpsql.accounting.zcdp import rho_of_pure
from dpsql.errors import ArgumentError


@dataclass(frozen=True)
class RangeEvent:
    """``count`` mechanisms of bounded range epsilon, each: exponential mechanisms that are epsilon-DP by twice the sensitivity.

    Not for mechanisms that are only known to be epsilon-DP (permute and flip, Laplace noise): these are ``PureEvent``.

    Parameters
    ----------
    epsilon : Fraction
        Of each of them.
    count : int

    Raises
    ------
    ArgumentError
        A parameter is not positive.
    """

    epsilon: Fraction
    count: int = 1
    kind: ClassVar[str] = "range"
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "count", mechanisms(self.count))

    @property
    def rho(self) -> Fraction:
        """Cost in zCDP: epsilon^2 / 8 each; that of a pure mechanism where it is less (a large epsilon)."""
        return self.count * min(self.epsilon**2 / 8, rho_of_pure(self.epsilon))

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {"event": self.kind, "epsilon": str(self.epsilon), "count": self.count}


@dataclass(frozen=True)
class ThresholdEvent:
    """``count`` thresholds: outputs that only one of two neighbours can have, of probability at most delta each, and no other loss.

    The rest of what the release does is told by its other events. For any two neighbours D, D' the release can be drawn in two
    steps: a coin shows heads with probability delta, on D as on D'; with tails the answer is one that the other events
    describe, for the same two neighbours; with heads it may be anything. (Groups that appear where a noisy number of units
    reaches a threshold: ``dpsql.estimates.thresholds``.) Alone it is (0, delta)-DP.

    Parameters
    ----------
    delta : Fraction, below 1
        Of each of them.
    count : int

    Raises
    ------
    ArgumentError
        A parameter is out of range.
    """

    delta: Fraction
    count: int = 1
    kind: ClassVar[str] = "threshold"
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", positive("delta", self.delta))
        object.__setattr__(self, "count", mechanisms(self.count))
        if self.delta >= 1:
            raise ArgumentError("delta", float(self.delta), "must be above 0 and below 1")

    @property
    def rho(self) -> Fraction:
        """Nothing, beside delta."""
        return Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """Nothing, beside delta."""
        return Fraction(0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {"event": self.kind, "delta": str(self.delta), "count": self.count}
