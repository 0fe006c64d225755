"""Rules that count the rows of one parent: of those that a parent has, exactly one, or at most one, fulfils a condition.

``count(*) FILTER (WHERE relation = 'head') = 1`` or ``<= 1``, of a table that is linked to a parent. Grouping by the parent is
implied by the link; a parent without rows is in no group, and the rule says nothing of it. The condition is a rule of one row as
`dpsql.rules.grammar` reads it; where it is NULL a row is not counted, as FILTER has it.

A condition must be *decided* by codes: every value that a combination of codes can be written as fulfils it, or none does. So rows
are counted as codes, before they have values.

Privacy: none; rules are public, and are evaluated on synthetic rows alone. Nothing is measured, and no noise is another one,
because of such a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import Clique
from dpsql.rules import across, grammar
from dpsql.rules.effects import places, together
from dpsql.rules.grammar import Rule, expression_of, render
from dpsql.rules.possible import possible
from dpsql.rules.reasoning import MAY_FALSE, MAY_NULL, MAY_TRUE, outcomes, single_valued

MOST_COUNTED = 32
"""Rules of a table that count."""
Codes = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]
_SIGNS: dict[type[exp.Expression], str] = {exp.EQ: "=", exp.LTE: "<="}
_FORM = (
    "of the rows of one parent a rule may say that exactly one fulfils a condition, count(*) FILTER (WHERE condition) = 1, or at "
    "most one, with <= 1"
)


@dataclass(frozen=True)
class Counted:
    """A rule that counts the rows of one parent.

    Parameters
    ----------
    condition : Rule
        Which rows are counted.
    exactly : bool
        One row for each parent that has any; else one at most.
    """

    condition: Rule
    exactly: bool

    @property
    def text(self) -> str:
        """Canonical SQL."""
        return f"count(*) FILTER (WHERE {self.condition.text}) {'=' if self.exactly else '<='} 1"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition looks at."""
        return self.condition.columns

    def renamed(self, names: Mapping[str, str]) -> Counted:
        """Return the rule with other names of columns."""
        return Counted(self.condition.renamed(lambda name: names[name]), self.exactly)


def read(text: str, own: tuple[str, Sequence[str]], above: Mapping[str, Sequence[str]]) -> Counted | None:
    """Read and check a rule that counts rows; None for a text that is another rule, or none.

    Parameters
    ----------
    text, own, above
        As for `dpsql.rules.across.read`.

    Raises
    ------
    ArgumentError
        It counts rows in another way, or its condition is no rule over columns of a row.

    Examples
    --------
    >>> rule = read("count(*) filter (a = 1) <= 1", ("t", ["A"]), {})
    >>> rule.text, rule.columns
    ('count(*) FILTER (WHERE "A" = 1) <= 1', ('A',))
    >>> read("a <= 1", ("t", ["a"]), {}) is None
    True
    """
    parts = _taken(text)
    if parts is None:
        return None
    try:
        rule = across.read(parts[0], own, above)
    except ArgumentError as error:
        raise ArgumentError("rule", text, error.expected) from None
    if not isinstance(rule, Rule):
        _refuse(text, f"{rule.shown()!r}: the condition looks at columns of the counted row alone")
    return Counted(rule, parts[1])


def is_counted(text: str) -> bool:
    """Return whether a rule that was written down counts rows; False where it is none."""
    try:
        return _taken(text) is not None
    except ArgumentError:
        return False


def stored(text: str) -> Counted:
    """Return a rule that was written down: in the books or in a release; checked as in `read`.

    Raises
    ------
    ArgumentError
    """
    parts = _taken(text)
    if parts is None:
        _refuse(text, _FORM)
    return Counted(grammar.stored(parts[0]), parts[1])


def _taken(text: str) -> tuple[str, bool] | None:
    """Return the text of the condition, unchecked, and whether exactly one row fulfils it; None where no rows are counted."""
    if isinstance(text, str) and "filter" not in text.lower():
        return None
    tree = expression_of(text)
    if not any(_counts(node) for node in tree.find_all(exp.Filter)):
        return None
    # One form counts rows: count(*) with a filter beside the literal 1; any other use of such a count is refused.
    counting, limit, where = tree.args.get("this"), tree.args.get("expression"), None
    if type(tree) in _SIGNS and _counts(counting) and type(limit) is exp.Literal and not limit.is_string and limit.name == "1":
        assert isinstance(counting, exp.Filter)  # noqa: S101 -- for the type checker
        called, where = counting.this.expressions, counting.expression
        if len(called) != 1 or type(called[0]) is not exp.Star or any(called[0].args.values()):
            where = None
    if type(where) is not exp.Where:
        _refuse(text, _FORM)
    try:
        return render(where.this), type(tree) is exp.EQ
    except (SqlglotError, RecursionError):
        _refuse(text, "cannot be written as DuckDB SQL; write it more plainly")


def _counts(node: object) -> bool:
    called = node.this if type(node) is exp.Filter else None
    return type(called) is exp.Anonymous and isinstance(called.this, str) and called.this.lower() == "count"


@dataclass(frozen=True)
class _OneRow(Rule):
    """A condition, or that it is not fulfilled, as a rule: false where the condition is NULL."""

    counted: bool = True

    @property
    def tree(self) -> exp.Expression:
        condition = exp.Coalesce(this=super().tree)
        return condition if self.counted else exp.Not(this=condition)


def one_row(rule: Counted, counted: bool) -> Rule:
    """Return the rule of one row that it is counted, or that it is not. Only for `dpsql.rules.reasoning` and the evaluator."""
    return _OneRow(rule.condition.text, rule.condition.columns, counted)


@dataclass(frozen=True)
class _Marked(Rule):
    """That a mark of a row, a boolean column, says whether a condition is fulfilled."""

    mark: str = ""

    @property
    def tree(self) -> exp.Expression:
        def mark() -> exp.Expression:
            return exp.column(self.mark, quoted=True)

        counted = exp.Coalesce(this=super().tree)
        return exp.Or(
            this=exp.Paren(this=exp.And(this=mark(), expression=counted)),
            expression=exp.Paren(this=exp.And(this=exp.Not(this=mark()), expression=exp.Not(this=counted.copy()))),
        )


def marked(rules: Sequence[Counted], domain: Domain) -> tuple[Domain, list[Rule]]:
    """Return a domain with a boolean attribute more for each rule, behind all others, and the rules that it says who is counted.

    Whoever keeps these attributes as they are, and obeys these rules, changes no count.
    """
    attributes, marks = list(domain.attributes), []
    for number, rule in enumerate(rules):
        name = f"counted {number}"
        while name in domain.names:
            name += "_"
        attributes.append(Attribute(name, "BOOLEAN", "categorical", ("false", "true"), nullable=False))
        marks.append(_Marked(rule.condition.text, (*rule.columns, name), name))
    return Domain(tuple(attributes)), list(marks)


@dataclass(frozen=True)
class Decided:
    """Which codes are counted.

    Parameters
    ----------
    positions : tuple of int
        Of the condition's attributes, ascending.
    cells : bool array
        One axis per attribute.
    """

    positions: Clique
    cells: npt.NDArray[np.bool_]

    def of(self, codes: Codes) -> Mask:
        """Return which rows are counted, of codes of shape (rows, attributes)."""
        return np.asarray(self.cells[tuple(codes[:, position] for position in self.positions)], np.bool_)


def decided(cursor: duckdb.DuckDBPyConnection, counted: Counted, domain: Domain) -> Decided | None:
    """Return which codes of a domain a rule counts; None where codes do not decide it, or there are too many of them.

    Bins that a release cuts are looked at as one bin: what it decides, bins inside it decide too.
    """
    positions = places(counted.condition, domain)
    known = [domain.attributes[position] for position in positions]
    may = outcomes(cursor, counted.condition, [a.bounded if a.automatic else a for a in known])
    if may is None or ((may & MAY_TRUE) & (may & (MAY_FALSE | MAY_NULL) != 0)).any():
        return None
    return Decided(positions, may == MAY_TRUE)


def undecided(counted: Counted, domain: Domain, source: str) -> str:
    """Return what is wrong with a condition that `decided` gives None for, and the way out."""
    attributes = [domain.attributes[position] for position in places(counted.condition, domain)]
    wide = [a.name for a in attributes if a.automatic or not single_valued(a)]
    if not wide:
        return "its condition looks at more than 1,000,000 combinations of values; look at fewer columns"
    return (
        f"its condition must hold for all rows of a bin or for none, and bins of {', '.join(wide)} have both, or it is not seen "
        f"which; CALL dp_declare('{source}', '{wide[0]}', ...) with edges where the condition changes, or with categories"
    )


def extremes(cells: Decided, counted: Counted, most: int) -> str | None:
    """Return why no family, or none of several rows, can obey a rule by itself; None where some can."""
    if counted.exactly and not cells.cells.any():
        return "no value of the declared domain fulfils its condition, so no parent could have rows"
    if cells.cells.all() and most > 1:
        return (
            "every value of the declared domain fulfils its condition, so no parent could have two rows; where that is so, "
            "dp_link(..., max_rows := 1) says it"
        )
    return None


def necessary(rules: Sequence[Counted], most: int) -> list[list[Rule]]:
    """Return what some row has to be, by itself, if families of one row and more are to obey: lists of rules of one row.

    Parameters
    ----------
    most : int
        Rows of one parent at most.
    """
    exact = [one_row(rule, counted=True) for rule in rules if rule.exactly]
    if most == 1:
        return [exact] if exact else []
    return [[rule] for rule in [*exact, *(one_row(rule, counted=False) for rule in rules)]]


def contradicted(
    cursor: duckdb.DuckDBPyConnection, rules: Sequence[Counted], others: Sequence[Rule], domain: Domain, most: int
) -> str | None:
    """Return why no row can be as rules that count rows need it beside other rules; None where that is not certain.

    Parameters
    ----------
    others : sequence of Rule
        Over the domain, which may hold columns of rows above.
    """
    for needed in necessary(rules, most):
        for some in together([*others, *needed]):
            known = sorted({position for rule in some for position in places(rule, domain)})
            attributes = [domain.attributes[position] for position in known]
            cells = possible(cursor, some, [a.bounded if a.automatic else a for a in attributes])
            if cells is not None and not cells.any():
                what = "no row" if isinstance(needed[0], _OneRow) and needed[0].counted else "no second row of a parent"
                listed = "; ".join(rule.text for rule in some)[:400]
                return f"no values of the declared domains obey {listed}, so there could be {what} that counting rules allow"
    return None


def _refuse(text: str, expected: str) -> NoReturn:
    raise ArgumentError("rule", text, expected)
