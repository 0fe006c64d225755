"""Whether an expression is known to have a value in every row: never NULL, for values that keep to their declarations.

What would raise is NULL in a source (`dpsql.source`), wherever it stands in the expression. So an expression has a value where
nothing in it can raise (`_total`) and nothing gives NULL (`_filled`).

Privacy: none; public declarations and the text of the query alone.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.queries.bounds import Known, extent
from dpsql.queries.naming import bare, plain
from dpsql.queries.universes import Universe

Universes = Callable[[exp.Column], Universe | None]
FAR = 1e15
"""Sums and products within it overflow no floating-point type."""
_ANY = frozenset(["coalesce", "ifnull", "least", "greatest"])
"""Have a value where one of their arguments has."""
_ROUNDED = frozenset(["floor", "ceil", "ceiling", "round", "trunc", "sign"])
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_SUMS = (exp.Add, exp.Sub, exp.Mul)
_QUOTIENTS = (exp.Div, exp.IntDiv, exp.Mod)


def never_null(node: exp.Expression, universes: Universes, known: Known) -> bool:
    """Return whether an expression has a value in every row; False where that is not clear.

    Parameters
    ----------
    node : sqlglot expression
    universes : callable
        A column -> what is known of its values, NULL among them; None if nothing is.
    known : Known
        Ranges of the columns.

    Examples
    --------
    >>> from dpsql.queries.naming import read_expression
    >>> from dpsql.queries.ranges import Range
    >>> age = Universe("INTEGER", None, Range(0, 120, True), nullable=False)
    >>> columns = lambda column: age if column.name == "age" else None
    >>> known = Known(lambda column: age.range)
    >>> texts = ["age", "2 * age + 1", "greatest(other, age)", "other", "1 / age", "CASE WHEN age > 9 THEN 1 END"]
    >>> [never_null(read_expression(text, "sql"), columns, known) for text in texts]
    [True, True, True, False, False, False]
    """
    of = _Of(universes, known)
    try:
        node = plain(node)
        return of.total(node) and of.filled(node)
    except RecursionError:
        return False


class _Of:
    def __init__(self, universes: Universes, known: Known) -> None:
        self.universes, self.known = universes, known

    def total(self, node: exp.Expression) -> bool:
        """Whether nothing in it can raise, whatever values the columns have within their declarations, NULL included."""
        if isinstance(node, exp.Column | exp.Literal | exp.Boolean | exp.Null):
            return True
        if isinstance(node, exp.Paren | exp.Not | exp.Is):
            return self.total(node.this)
        if isinstance(node, exp.And | exp.Or):
            return self.total(node.this) and self.total(node.expression)
        if isinstance(node, _COMPARED):
            return self._alike(node.this, node.expression)
        if isinstance(node, exp.Between):
            return all(self._alike(node.this, node.args[end]) for end in ("low", "high"))
        if isinstance(node, exp.In):
            return bool(node.expressions) and all(self._alike(node.this, one) for one in node.expressions)
        if isinstance(node, (*_SUMS, exp.Neg)):
            parts = [node.this] if isinstance(node, exp.Neg) else [node.this, node.expression]
            return all(self.total(part) for part in parts) and self._near(node)
        if isinstance(node, _QUOTIENTS):
            divisor = node.expression
            zero = not isinstance(divisor, exp.Literal) or divisor.is_string or not divisor.name.strip("0.")
            return not zero and self.total(node.this) and self._near(node)
        if isinstance(node, exp.Case):
            conditions = [one.this for one in node.args["ifs"]]
            return node.this is None and all(self.total(part) for part in [*conditions, *_branches(node)])
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
            return name in _ANY | _ROUNDED and bool(node.expressions) and all(self.total(part) for part in node.expressions)
        return False

    def filled(self, node: exp.Expression) -> bool:
        """Whether it is not NULL, where nothing raises."""
        if isinstance(node, exp.Column):
            found = self.universes(node)
            return found is not None and not found.nullable
        if isinstance(node, exp.Literal | exp.Boolean | exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
            return True
        if isinstance(node, exp.Case):
            return node.args.get("default") is not None and all(self.filled(part) for part in _branches(node))
        if isinstance(node, exp.Between):
            return all(self.filled(node.args[part]) for part in ("this", "low", "high"))
        if isinstance(node, exp.In):
            return all(self.filled(part) for part in (node.this, *node.expressions))
        if isinstance(node, exp.Anonymous):
            of_any = str(node.this).lower() in _ANY
            return (any if of_any else all)(self.filled(part) for part in node.expressions)
        if isinstance(node, exp.Paren | exp.Not | exp.Neg):
            return self.filled(node.this)
        return isinstance(node, exp.Binary) and self.filled(node.this) and self.filled(node.expression)

    def _near(self, node: exp.Expression) -> bool:
        """Whether arithmetic stays within `FAR`, and in the type of each integer in it; of DECIMAL columns nothing is said."""
        found = extent(node, self.known)
        if not found.finite or max(abs(found.lower), abs(found.upper)) > FAR:
            return False
        for column in node.find_all(exp.Column):
            universe = self.universes(column)
            kind = None if universe is None else sqltypes.parse(universe.sql_type)
            if kind is None or kind.family not in ("integer", "float"):
                return False
            if kind.family == "integer" and not (kind.low <= found.lower and found.upper <= kind.high):
                return False
        return True

    def _alike(self, left: exp.Expression, right: exp.Expression) -> bool:
        """Whether two sides can be compared without a CAST that may raise."""
        if not (self.total(left) and self.total(right)):
            return False
        sorts = {self._sort(left), self._sort(right)}
        return len(sorts) == 1 and "" not in sorts

    def _sort(self, node: exp.Expression) -> str:
        """Return 'number', 'text' or 'truth'; '' for anything else."""
        node = bare(node)
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else "number"
        if isinstance(node, (*_SUMS, *_QUOTIENTS, exp.Neg)):
            return "number"
        if isinstance(node, exp.Boolean):
            return "truth"
        found = self.universes(node) if isinstance(node, exp.Column) else None
        family = "" if found is None else sqltypes.parse(found.sql_type).family
        numbers = {"integer": "number", "decimal": "number", "float": "number", "boolean": "truth"}
        return "text" if found is not None and found.sql_type == "VARCHAR" else numbers.get(family, "")


def _branches(node: exp.Case) -> list[exp.Expression]:
    default = node.args.get("default")
    return [*(one.args["true"] for one in node.args["ifs"]), *([] if default is None else [default])]
