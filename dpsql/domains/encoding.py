"""Codes of a public domain, in SQL: which code each value of a protected table has, and which rows of a unit are kept.

The SQL never fails on a value and never shows one: NULL, NaN, infinities and texts of any content have a code, or drop the
row where the declaration says so.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import duckdb
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.domains.bounding import bounded_codes_sql, checked
from dpsql.domains.codes import code_expression, code_type, comparable, either
from dpsql.domains.declare import category_text
from dpsql.domains.sqltypes import SqlType
from dpsql.errors import ArgumentError, DomainError, DpsqlError
from dpsql.text.names import fold
from dpsql.text.relation import identifier

UNIT_COLUMN = "__dp_unit"
ROW_COLUMN = "__dp_row"
SOURCE_NAME = "__dp_source"


def guarded(cursor: duckdb.DuckDBPyConnection, statement: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
    """Execute a statement that reads protected rows, without letting the text of an error out.

    Raises
    ------
    DpsqlError
        DuckDB failed. Its text is withheld, because it may quote a value of a row; an interruption passes through.

    Notes
    -----
    Privacy: whether a read fails at all may depend on the data, so sources should use TRY_CAST; the text says so.
    """
    with withheld():
        return cursor.execute(statement, parameters) if parameters is not None else cursor.execute(statement)


@contextmanager
def withheld() -> Iterator[None]:
    """Replace an error of DuckDB by one without its text; see `guarded`."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        raise DpsqlError(
            "source: DuckDB could not read it. The reason is withheld because it may quote a protected value; as the "
            "custodian run the source's SELECT by itself to see it (a CAST that fails? use TRY_CAST. Out of memory? "
            "SET memory_limit)"
        ) from None


def code_text(attribute: Attribute) -> str:
    """Return `code_expression` of a column of the source, as text: thousands of columns of a few kinds are written at once."""
    before = _code_template(replace(attribute, name=""))
    return identifier(SOURCE_NAME, attribute.name).join(before)


@lru_cache(maxsize=256)
def _code_template(attribute: Attribute) -> tuple[str, ...]:
    """Return the text around every place where the column's name goes."""
    mark = exp.column(f"__dp_value_{secrets.token_hex(16)}", SOURCE_NAME, quoted=True)  # no text in a domain can be this one
    whole = code_expression(attribute, mark).sql(dialect="duckdb")
    return tuple(whole.split(mark.sql(dialect="duckdb")))


def value_text(attribute: Attribute) -> exp.Expression:
    """Return the text of a value without a declared list, as a category of it would have it, in UTF-8 (BLOB).

    NULL stays NULL, and what no category can be (NaN, infinities, texts with a NUL character) becomes NULL.

    Notes
    -----
    Privacy: a function of one value alone; it never fails. Bytes, because a collation would count texts together that are
    not equal, and show the spelling of one of them.
    """
    value = comparable(attribute, exp.column(attribute.name, SOURCE_NAME, quoted=True))
    text = exp.cast(value, exp.DataType.build("VARCHAR", dialect="duckdb"))
    bad: exp.Expression = exp.func("contains", text.copy(), exp.func("chr", exp.Literal.number(0)))
    if sqltypes.parse(attribute.sql_type).family == "float":
        bad = exp.or_(exp.func("isnan", value.copy()), exp.func("isinf", value.copy()))
    return either(bad, exp.null(), exp.Anonymous(this="encode", expressions=[text]))


def fixed_point(attribute: Attribute) -> exp.Expression:
    """Return the place of a number between its bounds: floor((x - lower) / (upper - lower) FINE), within 0 ... FINE - 1.

    Notes
    -----
    Privacy: a function of one value alone; it never fails. NULL and NaN count as the lower bound.
    """
    # The factor of the fixed point has to be a number itself.
    low, high = float(attribute.edges[0]), float(attribute.edges[-1])
    if not 0 < high - low < math.inf or FINE / (high - low) == math.inf:
        bounds = f"bounds {low!r} to {high!r}"
        raise DomainError(f"column {attribute.name!r}: {bounds} are too far apart or too close for sums of values")
    double = exp.DataType.build("DOUBLE", dialect="duckdb")
    lower, upper, factor = (exp.Literal.number(f"{number:.16e}") for number in (low, high, FINE / (high - low)))
    number = exp.cast(exp.column(attribute.name, SOURCE_NAME, quoted=True), double)
    value = either(exp.func("isnan", number.copy()), exp.null(), number)
    inside = exp.func("least", exp.func("greatest", exp.Coalesce(this=value, expressions=[lower.copy()]), lower.copy()), upper)
    place = exp.func("floor", exp.Mul(this=exp.Paren(this=exp.Sub(this=inside, expression=lower)), expression=factor))
    top = exp.func("least", place, exp.Literal.number(FINE - 1))
    return exp.cast(exp.func("greatest", top, exp.Literal.number(0)), exp.DataType.build("INTEGER", dialect="duckdb"))


def encode_sql(
    source_sql: str,
    domain: Domain,
    unit: bool,
    max_contributions: int,
    salt: str,
    *,
    extra: Mapping[str, exp.Expression] | None = None,
    distinct: bool = False,
    numbered: bool = False,
) -> str:
    """Return the SELECT that turns a source into codes.

    Parameters
    ----------
    source_sql : str
        A checked SELECT with the domain's columns, of the domain's types; with a privacy unit also ``__dp_unit``, of a type whose
        equality is that of bytes.
    domain : Domain
        The attributes to encode.
    unit : bool
        Whether rows are bounded by unit.
    max_contributions : int, at least 1
        Rows of one unit that are kept, at random; NULL is one unit.
    salt : str
        128 fresh random bits as hexadecimal digits: the source of the random choice.
    extra : mapping of column name to expression, optional
        More columns, from `value_text` or `fixed_point`; rows where one of them is NULL are left out.
    distinct : bool
        Whether equal rows of one unit count once.
    numbered : bool
        Whether the source has a join, and ``__dp_row``, the number of the protected table's row.

    Returns
    -------
    str
        A SELECT with columns c0, c1, ... of the types ``code_type(size)``, without the rows that 'drop' leaves out.

    Notes
    -----
    Privacy: rows that 'drop' leaves out go before the bounding, so that a unit's share is not spent on rows that are not
    counted; both steps look at one unit's rows alone. Which rows of a unit are kept depends on its own rows and the salt, and
    on no other unit, so one unit more or fewer changes at most ``max_contributions`` rows of the result
    (`dpsql.domains.bounding.bounded_sql`). Equal rows of a unit are interchangeable.
    """
    more = extra or {}
    codes = [f"c{i}" for i in range(len(domain.attributes))]
    columns = [*codes, *more]
    listed = [f"{code_text(attribute)} AS {identifier(name)}" for attribute, name in zip(domain.attributes, codes, strict=True)]
    listed += [f"{expression.sql(dialect='duckdb')} AS {identifier(name)}" for name, expression in more.items()]
    listed += [identifier(UNIT_COLUMN)] if unit else []
    listed += [identifier(ROW_COLUMN)] if numbered else []
    coded = exp.Var(this=f"SELECT {', '.join(listed)} FROM {SOURCE_NAME}")  # noqa: S608
    # Where rows with values outside are left out, the code of such a value is NULL.
    dropping = [name for name, a in zip(codes, domain.attributes, strict=True) if a.outside == "drop"] + list(more)
    inner = exp.Subquery(this=coded, alias=exp.TableAlias(this=exp.to_identifier("coded")))
    kept = exp.select("*").from_(inner, copy=False)
    if dropping:
        kept = kept.where(*(exp.column(name, quoted=True).is_(exp.null()).not_() for name in dropping), copy=False)
    if numbered:
        kept = _each_once(kept, [*columns, UNIT_COLUMN] if unit else columns)
    if unit and distinct:
        kept = kept.distinct(copy=False)
    text = _bounded(kept, domain, list(more), max_contributions, salt) if unit else kept.sql(dialect="duckdb")
    # The source stays as it was checked: it is not parsed and written again.
    return f"WITH {SOURCE_NAME} AS (\n{source_sql}\n) {text}"


def _each_once(kept: exp.Select, columns: Sequence[str]) -> exp.Select:
    """Make the copies of one row of the protected table one row."""
    values = [exp.alias_(exp.Min(this=exp.column(name, quoted=True)), name, quoted=True) for name in columns]
    return kept.select(*values, append=False, copy=False).group_by(exp.column(ROW_COLUMN, quoted=True), copy=False)


def _bounded(kept: exp.Select, domain: Domain, extra: Sequence[str], most: int, salt: str) -> str:
    """Keep at most ``most`` rows of each unit (`dpsql.domains.bounding`); their codes are packed on the way."""
    checked(salt, max_contributions=most)
    names = [f"c{i}" for i in range(len(domain.attributes))]
    types = [code_type(size) for size in domain.sizes]
    return bounded_codes_sql(kept.sql(dialect="duckdb"), [UNIT_COLUMN], names, domain.sizes, types, extra, most, salt)


def encode(
    cursor: duckdb.DuckDBPyConnection,
    source_sql: str,
    domain: Domain,
    *,
    unit: bool = False,
    max_contributions: int = 1,
    salt: str = "",
    extra: Mapping[str, exp.Expression] | None = None,
    distinct: bool = False,
    numbered: bool = False,
) -> str:
    """Materialise the codes of a source as a TEMP table and return its name; the caller drops it.

    `dpsql.engines.duckdb.counting.count_select` counts `encode_sql` without a table, which is less work where one pass is enough.

    Parameters
    ----------
    cursor : DuckDB cursor
        The table lives on this cursor alone.
    source_sql, domain, unit, max_contributions, salt, extra, distinct, numbered
        As in `encode_sql`.

    Raises
    ------
    DomainError
        A column has another type than its domain was declared for.
    DpsqlError
        The source cannot be read; the reason is withheld.

    Notes
    -----
    Privacy: the table holds protected rows. Drop it when they have been counted.
    """
    check_types(column_types(cursor, source_sql), domain)
    name = f"__dp_codes_{secrets.token_hex(8)}"
    statement = encode_sql(
        source_sql, domain, unit, max_contributions, salt, extra=extra, distinct=distinct, numbered=numbered
    )
    guarded(cursor, f"CREATE TEMP TABLE {identifier(name)} AS {statement}")
    return name


def column_types(cursor: duckdb.DuckDBPyConnection, source_sql: str) -> dict[str, str]:
    """Return the column names and types of a SELECT. No row is read."""
    rows = guarded(cursor, f"DESCRIBE {source_sql}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


def check_types(types: dict[str, str], domain: Domain) -> None:
    """Refuse a relation whose columns are not those that the domain was declared for."""
    by_name = {fold(name): kind for name, kind in types.items()}
    for attribute in domain.attributes:
        actual = by_name.get(fold(attribute.name))
        if actual is None:
            raise DomainError(f"column {attribute.name!r} has a declared domain, but the relation has no such column")
        if actual != attribute.sql_type:
            raise DomainError(
                f"column {attribute.name!r} is {actual}, its domain was declared for {attribute.sql_type}; declare it again: "
                f"CALL dp_declare(source, '{attribute.name}', ...)"
            )


def canonical_categories(cursor: duckdb.DuckDBPyConnection, sql_type: str, values: Sequence[object]) -> list[str]:
    """Cast declared categories to a column's type and back to text, as DuckDB will cast the column's values.

    Parameters
    ----------
    values : sequence
        Texts, numbers, booleans, dates as the custodian wrote them.

    Returns
    -------
    list of str
        In the same order, e.g. '1.0' for 1 in a DOUBLE column.

    Raises
    ------
    ArgumentError
        A value does not cast to the type, or only by changing it (1.5 to INTEGER).
    DomainError
        The type cannot have categories.

    Notes
    -----
    Privacy: none needed, only the custodian's list is read.
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family == "other" or sql_type == "TIMESTAMP WITH TIME ZONE":
        raise DomainError(f"categories of a {sql_type} column are not supported; declare bins, or cast the column in a view")
    if any(value is None for value in values):
        raise ArgumentError("categories", list(values)[:10], "NULL cannot be listed; nullable := true makes it a value of its own")
    texts = [category_text(value) for value in values]
    if parsed.family == "text" or not texts:
        return texts
    column = exp.column("v")
    to_type = exp.TryCast(this=column, to=exp.DataType.build(sql_type, dialect="duckdb"))
    varchar = exp.DataType.build("VARCHAR", dialect="duckdb")
    typed: exp.Expression = to_type
    # Adding zero turns -0.0 into the 0.0 that it equals.
    if parsed.family == "float":
        typed = exp.Add(this=to_type, expression=exp.cast(exp.Literal.number(0), sql_type, dialect="duckdb"))
    moment = exp.TryCast(this=column.copy(), to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
    query = exp.select(exp.alias_(exp.cast(typed, varchar), "canonical"), exp.alias_(exp.cast(moment, varchar), "moment")).from_(
        exp.select(exp.alias_(exp.Anonymous(this="unnest", expressions=[exp.Placeholder()]), "v")).subquery("given")
    )
    rows = cursor.execute(query.sql(dialect="duckdb"), [texts]).fetchall()
    for value, text, (canonical, seen) in zip(values, texts, rows, strict=True):
        if canonical is None or not _same(parsed, text, canonical, seen):
            raise ArgumentError("categories", value, f"is not a value of the column's type {sql_type}; list values of that type")
    return [str(row[0]) for row in rows]


def _same(parsed: SqlType, text: str, canonical: str, moment: str | None) -> bool:
    """Return whether a cast kept the value: no rounding, no time of day cut off."""
    if parsed.family in ("integer", "decimal"):
        try:
            return Decimal(text) == Decimal(canonical)
        except InvalidOperation:
            return False
    if parsed.text == "DATE":
        return moment is None or moment.removesuffix(" 00:00:00") == canonical
    if parsed.family == "float":
        return canonical not in ("inf", "-inf", "nan")
    return True
