"""What a rule may say: a boolean expression over the columns of one row, made of the constructs and functions listed here.

A rule is text that becomes SQL, also where it comes out of a file that somebody has edited. So it is read into a tree, every node
of the tree is on a list, and the SQL that runs is written from the tree: no subquery, table, aggregate, window, parameter or
volatile function can be in it. That it is boolean, and total over the column types, is checked where types are known.

Privacy: none; rules are public, and are evaluated on synthetic rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from dpsql.algebra.functions import called
from dpsql.errors import ArgumentError
from dpsql.text.names import fold
from dpsql.text.strict import StrictDuckDB

LONGEST = 4_000
"""Characters of a rule."""
MOST_RULES = 200
"""Rules of a source."""
_MOST_NODES = 600

_TWO = frozenset({"this", "expression"})
_ONE = frozenset({"this"})
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_NODES: dict[type[exp.Expression], frozenset[str]] = {
    **dict.fromkeys((exp.And, exp.Or, *COMPARISONS, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Mul, exp.Mod), _TWO),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Div, exp.IntDiv, exp.DPipe), _TWO | {"typed", "safe"}),
    **dict.fromkeys((exp.Like, exp.ILike), _TWO | {"negate"}),
    **dict.fromkeys((exp.Not, exp.Paren, exp.Neg), _ONE),
    exp.Column: frozenset({"this", "table"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true"}),
    exp.Cast: frozenset({"this", "to", "requires_string"}),
    exp.TryCast: frozenset({"this", "to", "requires_string", "safe"}),
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: _ONE,
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Null: frozenset(),
    exp.Boolean: _ONE,
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Interval: frozenset({"this", "unit"}),
    exp.Var: _ONE,
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Extract: _TWO,
}
_OF_ONE_PIECE = (*COMPARISONS, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Column, exp.Anonymous, exp.Paren)
"""What stands between AND and OR without brackets."""
_TYPES = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "INT128", "FLOAT", "DOUBLE",
    "DECIMAL", "VARCHAR", "TEXT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "UUID",
})
_SUBQUERY = "its value depends on other rows or tables; a rule looks at the columns of one row"
_REASONS: dict[type[exp.Expression], tuple[str, str]] = {
    exp.Window: ("a window function", _SUBQUERY),
    exp.Subquery: ("a subquery", _SUBQUERY),
    exp.Select: ("a subquery", _SUBQUERY),
    exp.Exists: ("EXISTS", _SUBQUERY),
    exp.Star: ("*", "a rule names its columns"),
    exp.Placeholder: ("a parameter", "write the value into the text"),
    exp.Parameter: ("a parameter", "write the value into the text"),
}


@dataclass(frozen=True)
class Rule:
    """A rule that was read.

    Parameters
    ----------
    text : str
        Canonical SQL: written from the checked tree, columns spelled and quoted as the relation has them.
    columns : tuple of str
        The columns it looks at, in the order in which they occur.
    """

    text: str
    columns: tuple[str, ...]

    @property
    def tree(self) -> exp.Expression:
        """The checked tree; a copy."""
        return _tree(self.text).copy()

    def renamed(self, names: Callable[[str], str]) -> Rule:
        """Return the rule with other names of columns."""
        tree = self.tree
        for column in list(tree.find_all(exp.Column)):
            column.set("this", exp.to_identifier(names(column.name), quoted=True))
        return Rule(render(tree), tuple(dict.fromkeys(names(name) for name in self.columns)))


def read(text: str, columns: Sequence[str]) -> Rule:
    """Read and check a rule.

    Parameters
    ----------
    text : str
        A boolean expression, up to 4,000 characters.
    columns : sequence of str
        The columns of the relation; names compare as DuckDB compares them.

    Raises
    ------
    ArgumentError
        It is not one expression, holds what is not on the list, or names no column or one that is not there.

    Examples
    --------
    >>> read("A>=b -- always", ["a", "B"])
    Rule(text='"a" >= "B"', columns=('a', 'B'))
    """
    tree = _parsed(text)
    spelled = {fold(name): name for name in columns}
    used: dict[str, None] = {}
    for column in list(tree.find_all(exp.Column, bfs=False)):
        _check_plain(text, column)
        name = spelled.get(fold(column.name))
        if name is None:
            _refuse(text, f"{column.name!r} is not a column of the source; it has {list(columns)[:40]!r}")
        column.set("this", exp.to_identifier(name, quoted=True))
        used[name] = None
    if not used:
        _refuse(text, "looks at no column; write what holds for every row, e.g. 'visit_at >= date_of_birth'")
    return Rule(render(tree), tuple(used))


def stored(text: str) -> Rule:
    """Return a rule that was written down: in the books, in a release, in a CHECK constraint; checked as in `read`.

    Raises
    ------
    ArgumentError
    """
    tree = _tree(text).copy()
    names: dict[str, None] = {}
    for column in list(tree.find_all(exp.Column, bfs=False)):
        _check_plain(text, column)
        column.set("this", exp.to_identifier(column.name, quoted=True))
        names[column.name] = None
    if not names:
        _refuse(text, "looks at no column")
    return Rule(render(tree), tuple(names))


def tree_of(text: str) -> exp.Expression:
    """Return the checked tree of a rule, whose columns may be of named tables; a copy.

    Raises
    ------
    ArgumentError
    """
    return _tree(text).copy()


def _check_plain(text: str, column: exp.Column) -> None:
    if column.args.get("table") is not None:
        allowed = "a rule names columns of the source itself; a rule of a linked table also those of the tables above it"
        _refuse(text, f"{column.table!r}.{column.name!r}: {allowed}")


def render(tree: exp.Expression) -> str:
    """Return the SQL text of a checked tree, without comments."""
    return str(tree.sql(dialect=StrictDuckDB, comments=False, unsupported_level=ErrorLevel.RAISE))


@lru_cache(maxsize=4096)
def _tree(text: str) -> exp.Expression:
    return _parsed(text)


def _parsed(text: str) -> exp.Expression:
    """Return the checked tree of a text, outer brackets taken away."""
    tree = expression_of(text)
    try:
        for number, node in enumerate(tree.walk()):
            if number > _MOST_NODES:
                _refuse(text, "has too many parts; write several rules")
            _check(text, node)
        tree = _plain(tree)
        again = render(tree)
    except (SqlglotError, RecursionError):
        again = ""
    # A tree that cannot be written again could not be stored.
    if not again or len(again) > 4 * LONGEST:
        _refuse(text, "cannot be written as DuckDB SQL; write it more plainly")
    return tree


def expression_of(text: str) -> exp.Expression:
    """Return the tree of a text that is one SQL expression, outer brackets taken away. What is in it has not been checked.

    Raises
    ------
    ArgumentError
    """
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST or "\0" in text:
        raise ArgumentError("rule", text, f"a boolean expression of up to {LONGEST} characters is required, e.g. 'a <= b'")
    try:
        # In brackets and with a line break: the text can neither close the statement nor comment the rest away.
        statements = [statement for statement in sqlglot.parse(f"SELECT ({text}\n)", dialect=StrictDuckDB) if statement is not None]
        select = statements[0] if len(statements) == 1 else None
    except (SqlglotError, RecursionError):
        select = None
    listed = select.expressions if isinstance(select, exp.Select) and _used(select) == {"expressions"} else []
    if len(listed) != 1 or type(listed[0]) is not exp.Paren:
        _refuse(text, "is not understood as one SQL expression; write what holds for every row, e.g. 'a <= b OR c IS NULL'")
    tree: exp.Expression = listed[0]
    while type(tree) is exp.Paren:
        tree = tree.this
    tree.pop()
    return tree


def _plain(tree: exp.Expression) -> exp.Expression:
    """Return the tree without brackets that change nothing: a rule and the CHECK constraint that says it are one text."""
    root = exp.Paren(this=tree)
    for node in list(root.find_all(exp.Paren)):
        if node.parent is not None and type(node.parent) in (exp.And, exp.Or, exp.Paren) and type(node.this) in _OF_ONE_PIECE:
            node.replace(node.this)
    plain: exp.Expression = root.this
    while type(plain) is exp.Paren:
        plain = plain.this
    plain.pop()
    return plain


def _check(text: str, node: exp.Expression) -> None:
    """Refuse a node that is not on the list, in its exact class and with nothing but the arguments that are looked at."""
    kind = type(node)
    if kind not in _NODES:
        what, why = _REASONS.get(kind, (node.key.upper().replace("_", " "), "not on the list of what a rule may say"))
        _refuse(text, f"{what}: {why}")
    extra = _used(node) - _NODES[kind]
    if extra:
        _refuse(text, f"{node.key.upper()} with {min(extra).upper()}: not on the list of what a rule may say")
    names = (node.this, node.args.get("table")) if kind is exp.Column else ()
    if any(name is not None and type(name) is not exp.Identifier for name in names):
        _refuse(text, "a rule names its columns one by one")
    if kind is exp.Anonymous and (not isinstance(node.this, str) or called(node) is None):
        _refuse(text, f"function {str(node.this)[:60]!r}: not on the list of functions of one row that a rule may call")
    if kind is exp.Is and type(node.expression) not in (exp.Null, exp.Boolean):
        _refuse(text, "IS: only NULL, TRUE and FALSE may follow")
    if kind is exp.DataType and (not isinstance(node.this, exp.DataType.Type) or node.this.value not in _TYPES):
        _refuse(text, f"CAST to {node.sql(dialect='duckdb')[:60]}: use a plain type")
    if kind is exp.Interval and not (type(node.this) is exp.Literal and type(node.args.get("unit")) is exp.Var):
        _refuse(text, "INTERVAL: write d + INTERVAL 5 DAY")
    if kind is exp.Var and not (isinstance(node.this, str) and node.this.isalpha()):
        _refuse(text, f"{str(node.this)[:60]!r}: not on the list of what a rule may say")


def _used(node: exp.Expression) -> set[str]:
    return {key for key, value in node.args.items() if value is not None and value is not False and value != []}


def _refuse(text: str, expected: str) -> NoReturn:
    raise ArgumentError("rule", text, expected)
