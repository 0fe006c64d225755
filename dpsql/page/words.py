"""The guarantee in words: what is promised to whom, what is assumed, what is not promised. True for every release of dpsql.

Privacy: None: a function of the contract and the charge.
"""

from __future__ import annotations

import math

from dpsql.page.markup import number
from dpsql.text.relation import at_most


def unit_words(privacy_unit: str | None, max_contributions: int | None) -> str:
    """Return whom the guarantee protects; ``max_contributions`` is None where all rows of a unit were looked at.

    Examples
    --------
    >>> unit_words(None, 1)
    'one row of the table'
    >>> unit_words("patient", 5)
    'one value of the column “patient” with all its rows (the release was measured on at most 5 of them)'
    """
    if privacy_unit is None:
        return "one row of the table"
    whom = f"one value of the column “{privacy_unit}” with all its rows"
    return whom if max_contributions is None else f"{whom} (the release was measured on at most {max_contributions} of them)"


def most_often_right(wrong: float, epsilon: float, delta: float) -> float:
    """Return how often a test can be right about a unit at most, if it is wrong about absent ones with this probability.

    Any (epsilon, delta) guarantee bounds the power of any test so (Wasserman & Zhou 2010, Theorem 2.4; Kairouz et al. 2015).

    Examples
    --------
    >>> round(most_often_right(0.05, 1.0, 0.0), 4), most_often_right(0.05, 0.0, 0.0), most_often_right(0.05, 50.0, 0.0)
    (0.1359, 0.05, 1.0)
    """
    first = math.exp(min(epsilon, 700.0)) * wrong + delta
    second = 1.0 - math.exp(-epsilon) * max(0.0, 1.0 - delta - wrong)
    return min(1.0, first, second)


def promise(epsilon: float, delta: float, neighbors: str, unit: str) -> list[str]:
    """Return what is promised, as sentences."""
    differs = (
        "had not been in the protected table, or had been added to it"
        if neighbors == "add_remove"
        else "had had any other contents in the protected table (how many rows the table has is public)"
    )
    chance = "" if delta == 0 else f", except with probability {number(delta)}"
    shown = math.ceil(most_often_right(0.05, epsilon, delta) * 1000) / 10
    tells = "was in the table" if neighbors == "add_remove" else "had certain contents rather than certain others"
    return [
        f"Whoever sees this release learns almost the same as if any {unit} {differs}: the probability of any conclusion "
        "differs by at most "
        f"a factor e^{number(at_most(epsilon), 5)} = {number(at_most(math.exp(min(epsilon, 700.0))), 5)}{chance}. This "
        "holds whatever else is known, by whatever means the "
        "release is studied, now and later.",
        f"What that means for a single {'person' if 'column' in unit else 'record'}: suppose somebody wants to tell from "
        "this release whether one "
        f"of them {tells}, by any method, and accepts to say so wrongly in 5 of 100 cases. Then they will say so rightly in "
        f"at most {shown:g} of 100 "
        "cases. With no release at all it would be 5.",
    ]


def over_all(budget: tuple[float, float] | None) -> str:
    """Return what holds for this release together with all others."""
    if budget is None:
        return (
            "Other releases of the same table add to the loss. The ledger of the custodian's database counts all of them "
            "and enforces a limit; "
            "it is not part of this page."
        )
    return (
        f"The same holds for everything that was released about this table together, with epsilon = {number(budget[0])} and "
        "delta = "
        f"{number(budget[1])}: the budget in force when this page was made. It is a hard limit: a request over it fails "
        "before a row is read. "
        "Should the custodian change it, the ledger shows that."
    )


def assumed() -> list[str]:
    """Return what the guarantee rests on."""
    return [
        "What was declared of the table is public knowledge and was not read off the data: possible values, bounds and bins, "
        "keys of joined tables, whose rows belong together, the joined public tables themselves.",
        "The operating system gives random numbers that nobody can predict, and nobody but the custodian has the database.",
        "The protected data have no copy with a budget of its own that the same persons are in.",
    ]


def not_promised() -> list[str]:
    """Return what the guarantee does not cover."""
    return [
        "What follows from the population rather than from a single person: that smoking harms is a conclusion about "
        "smokers who are not in the table.",
        "Access to the database itself: whoever holds its file, memory or queries on the raw table needs no release. "
        "Releases and synthetic tables are what may be given out.",
        "Comparisons with the raw table (dp_evaluate, and this page where it is marked as not for publication), which are "
        "not private.",
        "How long a computation took, which depends on the number of rows.",
    ]


def synthetic_rows() -> str:
    """Return what synthetic rows are."""
    return (
        "Synthetic rows are drawn from the released statistics alone; none of them is a person's row. One may resemble a "
        "real row by chance, "
        "or because many people are alike; the guarantee above covers that too. Drawing more rows costs no privacy."
    )
