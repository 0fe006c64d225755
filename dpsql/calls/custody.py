"""The calls of the custodian: protect, declare, look, and compare with the raw table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsql.accounting import ACCOUNTANTS, NEIGHBORS
from dpsql.calls import arguments
from dpsql.calls.declaration import (
    FREE,
    NOT_PRIVATE,
    REQUIRED,
    Call,
    anything,
    argument,
    flag,
    one_of,
    optional,
    some_delta,
    some_discovery,
    some_epsilon,
    whole,
)
from dpsql.calls.words import COLUMN, DISCOVERED, RELEASE, SOURCE
from dpsql.domains.attributes import OUTSIDE

CALENDAR = ("hour", "day", "week", "month", "quarter", "year")
ENGINES = ("spark", "duckdb")
ORPHANS = ("drop", "unit")
REPORTS = ("tables", "tuples", "values")
_ATTRIBUTE = "column_name, type, kind, codes, labels, nullable, outside, status"


@dataclass(frozen=True)
class ProtectCall(Call):
    """Give a table a privacy budget, or raise or lower it (on the ledger).

    What is left out stays as it is; at first neighbors 'add_remove' and accountant 'zcdp'. A privacy_unit needs max_contributions,
    which is 1 where the column is declared unique.
    """

    name: ClassVar[str] = "protect"
    function: ClassVar[str] = "protect"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = "source, epsilon, delta, neighbors, privacy_unit, max_contributions, accountant, change; one row"

    source: str = argument(arguments.text, "The table: its name.", default=REQUIRED, python="str")
    epsilon: float | None = argument(
        some_epsilon, "The limit of everything that is ever released about the table, above 0, at most 1000.", python="float | None"
    )
    delta: float | None = argument(
        some_delta, "The limit's delta, from 1e-30 to 0.001, far below 1 / (number of people).", python="float | None"
    )
    neighbors: str | None = argument(
        optional(one_of(*NEIGHBORS)),
        "What one unit changes: 'add_remove' (is there or not) or 'replace_one' (has other values; the number of rows is public).",
        python="str | None",
        choices=NEIGHBORS,
    )
    privacy_unit: str | None = argument(
        optional(arguments.text), "The column that says whose row it is; without one every row is a unit.", python="str | None"
    )
    max_contributions: int | None = argument(
        whole(1, 1_000_000),
        "At most that many rows of each unit are kept, at random; noise grows with it (dp_contributions helps to choose).",
        python="int | None",
    )
    accountant: str | None = argument(
        optional(one_of(*ACCOUNTANTS)),
        "'zcdp': the tightest of several proofs; 'basic': epsilons and deltas are summed.",
        python="str | None",
        choices=ACCOUNTANTS,
    )
    anchor: str | None = argument(
        optional(arguments.text),
        "A file outside the database that every entry of the ledger is noted in: a ledger that was cut or restored is noticed.",
        python="str | Path | None",
        plain=True,
    )
    resume: bool = argument(
        flag,
        "true: after a reading failed, sources beyond plain ones may be bought again (stands alone).",
        python="bool | None",
    )

    def with_defaults(self, **kept: Any) -> ProtectCall:
        """Return the call with what it leaves out filled in."""
        return self.changed(**{name: value for name, value in kept.items() if getattr(self, name) is None})


def _order_column(given: Mapping[str, Any], name: str) -> str | None:
    """Return a column's name, or '' as it is."""
    return "" if given.get(name) == "" else optional(arguments.text)(given, name)


@dataclass(frozen=True)
class LinkCall(Call):
    """Say whose rows a table's rows are: those of the row of another table whose key they hold.

    A linked table is under the budget of its root, the table at the end of the way up; what a release protects are all rows of a
    unit in all tables. A FOREIGN KEY is offered: without column, the only one to the parent is taken. What is left out later stays
    as it is. `dp_unlink` takes a link back while no release has read the table.
    """

    name: ClassVar[str] = "link"
    function: ClassVar[str] = "link"
    privacy: ClassVar[str] = f"{FREE}; no row is read. A link is public knowledge"
    gives: ClassVar[str] = "source, column_name, parent, parent_column, root, max_rows, orphans, order_by, change; one row"

    source: str = argument(arguments.text, "The table that is linked: its name.", default=REQUIRED, python="str")
    column: str | None = argument(
        optional(arguments.text),
        "Its column that holds the parent's key (column_name in SQL, or the second argument; column is a reserved word).",
        python="str | None",
        also="column_name",
    )
    parent: str | None = argument(
        optional(arguments.text), "The table that it belongs to: it has a budget, or is linked itself.", python="str | None"
    )
    parent_column: str | None = argument(
        optional(arguments.text),
        "The parent's key, declared unique; its PRIMARY KEY or only UNIQUE column, if left out.",
        python="str | None",
    )
    max_rows: int | None = argument(
        whole(1, 1_000_000),
        "Rows of the table that a row of the parent may have. Of a unit a release keeps the product along the way up, at random; "
        "noise grows with it.",
        python="int | None",
    )
    orphans: str | None = argument(
        optional(one_of(*ORPHANS)),
        "Rows whose parent is NULL or not there: 'drop' (left out, the default) or 'unit' (all of them are rows of one unit).",
        python="str | None",
        choices=ORPHANS,
    )
    merge: bool = argument(
        flag,
        "true: what the table has spent of a budget of its own is added to what its root has spent.",
        default=False,
        python="bool",
    )
    order_by: str | None = argument(
        _order_column,
        "A number, date or time of the table, in whose order the rows of one parent row stand (the time of a visit): a synthetic "
        "database has first and next rows like the table's. '' takes it back.",
        python="str | None",
    )


@dataclass(frozen=True)
class UnlinkCall(Call):
    """Take a link back that no release has read through.

    The table then waits for a budget or another link, and is not public. What is linked to the table is unlinked
    first. Repeating the call changes nothing.
    """

    name: ClassVar[str] = "unlink"
    function: ClassVar[str] = "unlink"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = "source, parent, root, change; one row"

    source: str = argument(arguments.text, "The table that is linked: its name.", default=REQUIRED, python="str")


@dataclass(frozen=True)
class LinksCall(Call):
    """List the links of tables to those whose rows theirs are."""

    name: ClassVar[str] = "links"
    function: ClassVar[str] = "links"
    privacy: ClassVar[str] = f"{FREE}; from the books"
    gives: ClassVar[str] = "source, column_name, parent, parent_column, root, max_rows, orphans, order_by; a row a link"

    source: str | None = argument(
        optional(arguments.text), "A linked table, or a root: all that is linked to it; all, if left out.", python="str | None"
    )


@dataclass(frozen=True)
class RemoteCall(Call):
    """Give a table whose rows are elsewhere a name in this database: an empty table with its columns and types.

    It is protected, declared, planned and bought like others; its rows are counted where they are. Called again it looks again: a
    new address is taken, new columns are named, and what has changed is refused. Engine 'duckdb' reads what DuckDB itself reaches:
    a table of an attached DuckLake or Postgres ('pg.public.people'), a folder of Parquet files.
    """

    name: ClassVar[str] = "remote"
    function: ClassVar[str] = "remote"
    privacy: ClassVar[str] = f"{FREE}; names and types alone are read"
    gives: ClassVar[str] = "column_name, type, engine_type, status; a row a column"

    source: str = argument(arguments.text, "The name that the table gets here.", default=REQUIRED, python="str")
    engine: str = argument(
        one_of(*ENGINES),
        "What reads the rows: Spark, over Spark Connect, or DuckDB itself.",
        default=REQUIRED,
        python="str",
        choices=ENGINES,
    )
    relation: str = argument(
        arguments.text,
        "What that calls the table: a name, or files ('parquet:/folder'); without credentials.",
        default=REQUIRED,
        python="str",
    )
    url: str | None = argument(
        optional(arguments.text),
        "Where Spark is reached, 'sc://host:15002'; without credentials. DPSQL_SPARK_TOKEN in the environment has the token.",
        python="str | None",
    )


@dataclass(frozen=True)
class DeclareCall(Call):
    """Declare the public domain of a column.

    A number, date or time with bounds alone gets automatic bins: every release buys a fine histogram and cuts its own from it.
    With discover what cannot be named is bought and declared: bounds of a number (a noisy histogram over powers of two), the list
    of values of anything else (stable selection).
    """

    name: ClassVar[str] = "declare"
    function: ClassVar[str] = "declare"
    privacy: ClassVar[str] = f"{FREE}; the protected table is not read. With discover := true charged once per release"
    gives: ClassVar[str] = f"{_ATTRIBUTE}; one row"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    column: str = argument(arguments.text, COLUMN, python="str", also="column_name", needed=True)
    lower: Any = argument(anything, "Least value of a number, date or time.", python="Any", plain=True)
    upper: Any = argument(anything, "Largest value.", python="Any", plain=True)
    bins: Any = argument(anything, "Number of bins of equal width between them; left out: automatic.", python="int | None")
    edges: Any = argument(anything, "Edges of bins instead, ascending.", python="Sequence[Any] | None", plain=True)
    categories: Any = argument(anything, "The values, as a list.", python="Sequence[Any] | None", plain=True)
    categories_from: Any = argument(
        anything, "A public table's column that lists them: 'table.column'.", python="str | None"
    )
    nullable: bool | None = argument(
        arguments.boolean, "Whether NULL is a value of its own; as the column says, if left out.", python="bool | None"
    )
    outside: str | None = argument(
        optional(one_of(*OUTSIDE)),
        "What becomes of other values: 'clamp' (to the nearest bin, or NULL), 'other' (a value of its own), 'drop' (the row).",
        python="str | None",
        choices=OUTSIDE,
    )
    calendar: str | None = argument(
        optional(one_of(*CALENDAR)), "Bins of a date or timestamp between the bounds: one for each month, say.",
        python="str | None", choices=CALENDAR,
    )
    discover: bool | str = argument(
        some_discovery,
        "true: the bounds of a number, or the list of values of anything else, are bought; 'values': the list, of a number too.",
        default=False, python="bool | str",
    )
    epsilon: float | None = argument(some_epsilon, DISCOVERED.format("epsilon"), python="float | None")
    delta: float | None = argument(some_delta, DISCOVERED.format("delta"), python="float | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")


@dataclass(frozen=True)
class RuleCall(Call):
    """Declare a rule that every row obeys, or take one back.

    Rows of releases that are bought from then on obey it. It is a boolean SQL expression over the declared columns of one row.
    """

    name: ClassVar[str] = "rule"
    function: ClassVar[str] = "rule"
    privacy: ClassVar[str] = f"{FREE}; the protected table is not read. A rule is public knowledge"
    gives: ClassVar[str] = "source, rule, columns, shapes ('tables', 'rows', 'nothing'), change; one row"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    rule: str = argument(
        arguments.text,
        "What holds, e.g. 'visit_at >= date_of_birth'; of a linked table also 'count(*) FILTER (WHERE ...) = 1'.",
        default=REQUIRED,
        python="str",
    )
    remove: bool = argument(flag, "true: the rule is taken back; releases that were bought keep it.", default=False, python="bool")


@dataclass(frozen=True)
class DomainCall(Call):
    """List the declared attributes of a source, and its rules; undeclared columns are listed as left out."""

    name: ClassVar[str] = "domain"
    function: ClassVar[str] = "domain"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = f"{_ATTRIBUTE}; a row per column, then one per rule (kind 'rule', its text in labels)"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")


@dataclass(frozen=True)
class EvaluateCall(Call):
    """Compare a synthetic table with the raw one, or a schema of linked tables with a root and its linked tables.

    report 'tables' and 'tuples' count bins and categories: an error inside a bin is not in them. 'tuples': how well combinations
    of values are kept, by their count (bucket, preservation, errors, suppressed, fabricated, leaked). 'values' sees inside bins:
    per column KS and Wasserstein distance, mean and quartiles, also by group, equal rows, and how well a model learns.
    Of a schema, 'tables': fan-out, distances inside tables, of parent and child and of siblings, means by group, orphans.
    """

    name: ClassVar[str] = "evaluate"
    function: ClassVar[str] = "evaluate"
    privacy: ClassVar[str] = NOT_PRIVATE
    gives: ClassVar[str] = (
        "a row per kind of table: mean and largest errors, total variation distance, rows, shortfall; report 'values': "
        "a row per figure: measure, column_name, group_column, group_value, raw, synthetic, error, relative; "
        "of a schema: a row per figure, the summary first: "
        "level, measure, table_name, column_name, other_table, other_column, figures, raw, synthetic, error, largest, independent"
    )

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    synthetic: str = argument(
        arguments.text, "Name of the synthetic table or view, or of a schema of linked tables.", default=REQUIRED, python="str"
    )
    max_k: int = argument(
        whole(1, 3), "Tables of up to that many columns, 1 to 3; of 'values' 1: no groups and no models.", default=3, python="int"
    )
    queries: int | None = argument(
        whole(1, 10_000_000),
        "A sample of so many triples of columns, of 'values' pairs of a numeric and a categorical one; all if left out.",
        python="int | None",
    )
    seed: int = argument(whole(0, 2**62), "Of that sample, and of the rows that models are trained on.", default=7, python="int")
    report: str = argument(one_of(*REPORTS), "'tables', 'tuples' or 'values'.", default="tables", python="str", choices=REPORTS)

