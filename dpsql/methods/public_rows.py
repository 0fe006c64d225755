"""Methods that hold where the number of rows is public alone: what they want of a source, all of it at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsql.errors import ArgumentError


class Protected(Protocol):
    """What is asked of a `dpsql.methods.base.Contract`."""

    @property
    def neighbors(self) -> str:
        """'add_remove' or 'replace_one'."""

    @property
    def max_contributions(self) -> int:
        """Rows of a unit that count."""

    @property
    def public_total(self) -> bool:
        """Whether the number of rows is public."""

    @property
    def left_out(self) -> bool:
        """Whether rows of the table may be left out."""


@dataclass(frozen=True)
class PublicRows:
    """That a method wants a public number of rows, and what to say of it.

    Parameters
    ----------
    reason : str
        Why: what depends on the number of rows.
    instead : str
        Methods that do without.
    """

    reason: str
    instead: str

    def require(self, method: str, contract: Protected) -> None:
        """Refuse a method where n is private: says all that is wanted, and what of it is not so here.

        Raises
        ------
        ArgumentError

        Examples
        --------
        >>> from dpsql.methods.base import Contract
        >>> PublicRows("n is released", "method := 'latent_class'").require("modips", Contract("replace_one", 1, True))
        """
        here = [
            *([f"neighbors is {contract.neighbors!r}"] if contract.neighbors != "replace_one" else []),
            *([f"max_contributions is {contract.max_contributions}"] if contract.max_contributions != 1 else []),
        ]
        # Where nothing else is wrong the source itself must be.
        if contract.left_out or (not here and not contract.public_total):
            here.append(
                "the source is not the whole table (it filters, joins or computes, or a declaration drops rows: outside := 'drop')"
            )
        if here:
            raise ArgumentError(
                "method", method,
                f"{self.reason}, which must be public. It wants all of: dp_protect(..., neighbors := 'replace_one') from the first "
                "purchase on; no privacy_unit, or max_contributions := 1; the table itself as the source, no row filtered or "
                f"dropped (outside := 'drop'). Here {' and '.join(here)}. Without all that: {self.instead}",
            )


HISTOGRAMS = "method := 'laplace_sanitizer' or 'perturbed_histogram'"
