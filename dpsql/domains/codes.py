"""The code of one value as a SQL expression: how a value becomes a place in its column's public domain.

The expressions never fail on a value and never show one: NULL, NaN, infinities and texts of any content have a code, or NULL
where the row is to be dropped. Short ones, because they run for every value of a table: a cast or a difference takes 2 to 5
nanoseconds, a tree of comparisons up to 200, a text looked up 50.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.sqltypes import SqlType

_WHOLE = 2**31  # places between these are differences of INTEGERs


def code_type(size: int) -> str:
    """Return the smallest unsigned type that holds the codes 0 to size - 1.

    Examples
    --------
    >>> code_type(256), code_type(257)
    ('UTINYINT', 'USMALLINT')
    """
    return "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"


def code_expression(attribute: Attribute, column: exp.Expression) -> exp.Expression:
    """Return the code of a value as a SQL expression; NULL where the row is to be dropped.

    Parameters
    ----------
    attribute : Attribute
        The column's public domain.
    column : sqlglot expression
        The column, of type ``attribute.sql_type``.

    Returns
    -------
    sqlglot expression
        Of the type ``code_type(attribute.size)``. It never fails, whatever the value.

    Notes
    -----
    Privacy: a function of one value alone. Numbers fall into bins as numpy.searchsorted(edges, value, side='right') - 1
    puts them, and the last bin includes its right edge.
    """
    if attribute.sql_type == "BOOLEAN" and attribute.values == 2:
        return _boolean_code(attribute, column)
    parsed = sqltypes.parse(attribute.sql_type)
    outside, null = _number(_outside_code(attribute)), _number(_null_code(attribute))
    missing: exp.Expression = column.copy().is_(exp.null())
    # NaN counts as NULL.
    if parsed.family == "float":
        missing = exp.or_(missing, exp.func("isnan", column.copy()))
    if attribute.kind == "categorical":
        code: exp.Expression = exp.Coalesce(this=_category_code(attribute, column), expressions=[outside.copy()])
    else:
        code = _bin_code(attribute, parsed, column, outside)
    whole = either(missing, null, code)
    return exp.Cast(this=whole, to=exp.DataType.build(code_type(attribute.size), dialect="duckdb"))


def number_expression(attribute: Attribute, column: exp.Expression) -> exp.Expression:
    """Return a value as a DOUBLE, on the scale of `dpsql.domains.grid`; beyond the bounds an infinity, NULL and NaN as NaN.

    Parameters
    ----------
    attribute : Attribute
        With bins.

    Notes
    -----
    Privacy: a function of one value alone; it never fails.
    """
    parsed = sqltypes.parse(attribute.sql_type)
    _, low, above = _comparisons(attribute, parsed, column)
    double = exp.DataType.build("DOUBLE", dialect="duckdb")
    value: exp.Expression = exp.Cast(this=_steps(parsed, column) if parsed.family == "temporal" else column.copy(), to=double)
    inside = either(low, _double("-inf"), either(above, _double("inf"), value))
    missing: exp.Expression = column.copy().is_(exp.null())
    if parsed.family == "float":
        missing = exp.or_(missing, exp.func("isnan", column.copy()))
    return exp.Coalesce(this=either(missing, exp.null(), inside), expressions=[_double("nan")])


def _double(text: str) -> exp.Expression:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _steps(parsed: SqlType, column: exp.Expression) -> exp.Expression:
    """Return the steps of a date or time since 1970 (since midnight for TIME); NULL where there are none."""
    if parsed.text == "DATE":
        day = exp.Cast(this=exp.Literal.string("1970-01-01"), to=exp.DataType.build("DATE"))
        days = exp.Anonymous(this="date_diff", expressions=[exp.Literal.string("day"), day, column.copy()])
        return either(exp.Anonymous(this="isfinite", expressions=[column.copy()]), days, exp.null())
    moment: exp.Expression = column.copy()
    if parsed.text in ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        moment = exp.TryCast(this=moment, to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
    micros = exp.Anonymous(this="epoch_us", expressions=[moment])
    factor = {"TIMESTAMP_S": 1_000_000, "TIMESTAMP_MS": 1000}.get(parsed.text, 1)
    return micros if factor == 1 else exp.IntDiv(this=micros, expression=exp.Literal.number(factor))


def _boolean_code(attribute: Attribute, column: exp.Expression) -> exp.Expression:
    """Return the code where both values are listed by a cast, a tenth of the work of looking up a text."""
    null, small = _null_code(attribute), exp.DataType.build(code_type(attribute.size), dialect="duckdb")
    reverse = attribute.categories == ("true", "false")
    value: exp.Expression = column.copy()
    if null is not None and null < 2:
        value = exp.Coalesce(this=value, expressions=[exp.true() if (null == 1) != reverse else exp.false()])
    code = exp.Cast(this=exp.Not(this=value) if reverse else value, to=small)
    if null is None or null < 2:
        return code
    return exp.Coalesce(this=code, expressions=[exp.cast(exp.Literal.number(null), small.copy())])


@lru_cache(maxsize=16)
def nanoseconds(domain: Domain) -> float:
    """Return what encoding a row takes of one core, about: for forecasts.

    Notes
    -----
    Privacy: a function of the public domain alone.
    """
    cost = 0.0
    for attribute in domain.attributes:
        parsed = sqltypes.parse(attribute.sql_type)
        if attribute.sql_type == "BOOLEAN" and attribute.values == 2:
            cost += 3
        elif attribute.kind == "categorical":
            cost += 10 if _first_of_run(attribute) is not None else 30 if parsed.family in ("text", "enum") else 50
        else:
            even = _even_places(attribute, parsed, exp.column("x")) is not None
            cost += 15 if even else 5 + 6 * attribute.values.bit_length() + 0.6 * attribute.values
    return cost


def _number(value: int | None) -> exp.Expression:
    return exp.null() if value is None else exp.Literal.number(value)


def either(test: exp.Expression, then: exp.Expression, otherwise: exp.Expression) -> exp.Expression:
    """Return CASE WHEN test THEN then ELSE otherwise END without the copies that when() and else_() make at every level."""
    return exp.Case(ifs=[exp.If(this=test, true=then)], default=otherwise)


def _outside_code(attribute: Attribute) -> int | None:
    """Return the code of a value that has no nearest value in the domain; None leaves the row out."""
    if attribute.outside == "clamp":
        return attribute.null_code if attribute.nullable else 0
    return attribute.other_code


def _null_code(attribute: Attribute) -> int | None:
    return attribute.null_code if attribute.nullable else _outside_code(attribute)


def comparable(attribute: Attribute, column: exp.Expression) -> exp.Expression:
    """Return the value such that equal numbers have one text: minus zero is zero."""
    if sqltypes.parse(attribute.sql_type).family != "float":
        return column.copy()
    return exp.Add(this=column.copy(), expression=exp.cast(exp.Literal.number(0), attribute.sql_type, dialect="duckdb"))


def _category_code(attribute: Attribute, column: exp.Expression) -> exp.Expression:
    """Position of the value in the list, NULL if it is not there: a hash lookup in an ENUM of the categories."""
    first = _first_of_run(attribute)
    if first is not None:
        low, high = (exp.Literal.number(number) for number in (first, first + attribute.values - 1))
        return either(exp.Between(this=column.copy(), low=low, high=high), _places(column, first, 1), exp.null())
    value = comparable(attribute, column)
    categories = [exp.Literal.string(text) for text in attribute.categories]
    listed = exp.DataType(this=exp.DataType.Type.ENUM, expressions=categories)
    text = exp.cast(value, exp.DataType.build("VARCHAR", dialect="duckdb"))
    code = exp.Anonymous(this="enum_code", expressions=[exp.TryCast(this=text, to=listed)])
    return exp.cast(code, exp.DataType.build("UINTEGER", dialect="duckdb"))


def _first_of_run(attribute: Attribute) -> int | None:
    """Return the first of the categories if they are whole numbers, each one more than the one before."""
    kind = sqltypes.parse(attribute.sql_type)
    if kind.family != "integer" or not attribute.categories:
        return None
    try:
        first = int(attribute.categories[0])
    except ValueError:
        return None
    run = all(text == str(first + i) for i, text in enumerate(attribute.categories))
    return first if run and first >= -_WHOLE and first + attribute.values <= _WHOLE else None


def _places(column: exp.Expression, first: int, width: int) -> exp.Expression:
    """Return (column - first) // width for values that are INTEGERs; it fails for none."""
    number = exp.cast(exp.TryCast(this=column.copy(), to=exp.DataType.build("INTEGER")), exp.DataType.build("BIGINT"))
    place: exp.Expression = exp.Sub(this=number, expression=exp.Literal.number(first)) if first else number
    if width > 1:
        place = exp.IntDiv(this=exp.Paren(this=place), expression=exp.Literal.number(width))
    return place


def _even_places(attribute: Attribute, parsed: SqlType, column: exp.Expression) -> exp.Expression | None:
    """Return the bin between the first and the last one by division, if the column is whole and the bins are equally wide."""
    bounds = sqltypes.grid(parsed, attribute.edges) if parsed.family == "integer" else None
    if bounds is None or attribute.values < 4:
        return None
    starts = bounds[:-1]
    width = starts[1] - starts[0]
    even = width >= 1 and all(b - a == width for a, b in zip(starts[:-1], starts[1:], strict=True))
    return _places(column, starts[0], width) if even and starts[0] >= -_WHOLE and starts[-1] < _WHOLE else None


def _bin_code(attribute: Attribute, parsed: SqlType, column: exp.Expression, outside: exp.Expression) -> exp.Expression:
    """Bin of a value that is neither NULL nor NaN: a balanced tree of comparisons with the inner edges."""
    below, low, high = _comparisons(attribute, parsed, column)

    def tree(first: int, last: int) -> exp.Expression:
        if first == last:
            return exp.Literal.number(first)
        middle = (first + last + 1) // 2
        return either(below(middle), tree(first, middle - 1), tree(middle, last))

    # Bins of one width have their place computed, which takes less time than comparisons; only the first and the last are compared.
    last = attribute.values - 1
    between = _even_places(attribute, parsed, column)
    if between is None:
        code = tree(0, last)
    else:
        inside = either(below(last), between, exp.Literal.number(last))
        code = either(below(1), exp.Literal.number(0), inside)
    if attribute.outside == "clamp":
        return code
    return either(exp.or_(low, high), outside.copy(), code)


def _comparisons(
    attribute: Attribute, parsed: SqlType, column: exp.Expression
) -> tuple[Callable[[int], exp.Expression], exp.Expression, exp.Expression]:
    """Return the test for values below the start of bin i, and those for values below the first and above the last bin."""
    target = exp.DataType.build("DOUBLE" if parsed.family == "float" else attribute.sql_type, dialect="duckdb")
    value = exp.cast(column.copy(), target) if attribute.sql_type == "FLOAT" else column

    def typed(text: str) -> exp.Expression:
        if parsed.family == "float":
            # With an exponent a literal is a DOUBLE and exact; without one it would be a DECIMAL, rounded in between.
            return exp.Literal.number(f"{float(text):.16e}")
        if parsed.family == "integer" and abs(int(text)) < 2**31:
            return exp.Literal.number(text)
        return exp.Cast(this=exp.Literal.string(text), to=target.copy())

    bounds = sqltypes.grid(parsed, attribute.edges)
    if bounds is None or parsed.family == "temporal":
        ends = [edge if isinstance(edge, str) else repr(edge) for edge in attribute.edges]
        above = exp.GT(this=value.copy(), expression=typed(ends[-1]))
        return (lambda i: _below(value, typed(ends[i]))), _below(value, typed(ends[0])), above

    def below(i: int) -> exp.Expression:
        # At the ends of the type's range the answer is known, and the bound may be no value of the type.
        if bounds[i] > parsed.high or bounds[i] <= parsed.low:
            return exp.true() if bounds[i] > parsed.high else exp.false()
        return _below(value, typed(sqltypes.unit_text(parsed, bounds[i])))

    return below, below(0), exp.Not(this=exp.Paren(this=below(len(bounds) - 1)))


def _below(value: exp.Expression, bound: exp.Expression) -> exp.Expression:
    return exp.LT(this=value.copy(), expression=bound)
