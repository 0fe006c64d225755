"""dp_evaluate: a synthetic table or database beside the raw one. NOT PRIVATE, for the custodian only."""

from __future__ import annotations

import duckdb

from dpsql.calls.custody import EvaluateCall
from dpsql.custodian.evaluate import COLUMNS as EVALUATION_COLUMNS
from dpsql.custodian.evaluate import evaluate as compare
from dpsql.custodian.evaluate_tuples import COLUMNS as TUPLE_COLUMNS
from dpsql.custodian.evaluate_tuples import evaluate_tuples
from dpsql.custodian.evaluate_values import evaluate_values
from dpsql.custodian.evaluating_linked import evaluate_schema, schema_named
from dpsql.custodian.value_table import COLUMNS as VALUE_COLUMNS
from dpsql.errors import ArgumentError, DomainError, DpsqlError, first_line
from dpsql.protected import columns
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table
from dpsql.text.names import fold
from dpsql.text.relation import inline, packed


def evaluate(context: Context, call: EvaluateCall) -> str:
    """Compare a synthetic table, or a schema of linked ones, with the raw one. Returns the error table as a relation.

    Privacy
    -------
    NOT PRIVATE: the errors are computed from raw counts. For the custodian; nothing is charged and nothing is stored.
    """
    protected, name = resolve(context, call.source), call.synthetic
    protected.check_rows_here("dp_evaluate")
    try:
        if _is_table(context, name) or (schema := schema_named(context, name)) is None:
            return _of_table(context, call, protected)
        return evaluate_schema(context, protected, schema, call.report)
    except duckdb.Error as error:
        kind = type(error).__name__
        raise DpsqlError(f"dp_evaluate failed ({kind}); the text is withheld because it could show a value") from None


def _of_table(context: Context, call: EvaluateCall, protected: ProtectedSource) -> str:
    """Compare one table; see `evaluate`."""
    name = call.synthetic
    domain_, _ = columns.chosen(protected, call.source, None)
    synthetic, present = _synthetic(context, name)
    names = [a.name for a in domain_.attributes if fold(a.name) in present]
    if not names:
        raise ArgumentError("synthetic", name, f"has none of the declared columns {list(domain_.names)!r}")
    compared = domain_.select(names)
    if call.report == "values":
        lacking = [name for name in domain_.names if name not in names]
        figures = evaluate_values(
            context.cursor, protected.source.sql, synthetic, compared, call.max_k, call.queries, call.seed, lacking=lacking
        )
        return packed(VALUE_COLUMNS, figures)
    if call.report == "tuples":
        tuples = evaluate_tuples(context.cursor, protected.source.sql, synthetic, compared, call.max_k)
        return inline(TUPLE_COLUMNS, tuples)
    rows = compare(
        context.cursor,
        protected.source.sql,
        synthetic,
        compared,
        max_k=call.max_k,
        queries=call.queries,
        seed=call.seed,
    )
    return inline(EVALUATION_COLUMNS, rows)


def _is_table(context: Context, name: str) -> bool:
    """Return whether a table or view has this name; a schema of the same name is not asked then."""
    try:
        find_table(context.cursor, name, database=context.database, schema=context.schema, views=True)
    except ArgumentError:
        return False
    return True


def _synthetic(context: Context, name: str) -> tuple[str, set[str]]:
    """Return a SELECT of the synthetic relation and the names of its columns."""
    try:
        table = find_table(context.cursor, name, database=context.database, schema=context.schema, views=True)
    except ArgumentError as error:
        raise ArgumentError("synthetic", name, error.expected) from None
    text = f"SELECT * FROM {table.sql}"  # noqa: S608 -- quoted by TableId
    try:
        rows = context.cursor.execute(f"DESCRIBE {text}").fetchall()
    except duckdb.Error as error:
        raise DomainError(f"synthetic = {name!r}: {first_line(error)}") from None
    return text, {fold(row[0]) for row in rows}
