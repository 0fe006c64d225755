"""What stands in a statement without a guard has a value for every row: tried on extreme values of every type, in every pair.

The generator of `test_kernel_generator.py` tries all that the kernel accepts without guards. Here what is called total by its types
alone is tried: comparisons and arithmetic of every two types, with constants, and what is built of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pytest
from case_counts import cases
from kernel_expressions import make_table
from sqlglot import exp

from dpsql.algebra.functions import FUNCTIONS, NAMED_FIRST
from dpsql.algebra.parts import PARTS
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.session.settings import pin
from dpsql.source import rehearsal
from dpsql.source.catalog import Catalog
from dpsql.source.expressions import Rewriter
from dpsql.source.model import Column
from dpsql.source.parse import parse, render
from dpsql.source.scope import Item, Scope
from dpsql.source.total import is_total

CONSTANTS = ("7", "0.05", "300", "3000000000", "999999999999999999", "0.123456789012345678", "'a'", "DATE '2020-02-29'", "'2020-02-29'", "'2020-02-30'", "NULL", "true")
PAIRS = ("{a} = {b}", "{a} < {b}", "{a} * {b}", "{a} + {b}", "{a} - {b}", "{a} IS DISTINCT FROM {b}", "{a} BETWEEN {b} AND {c}")
BUILT = (
    "NOT ({a} = {b}) OR {a} IS NULL", "CASE WHEN {a} = {b} THEN 1 ELSE 0 END", "{a} IN ({b}, {c})", "({a} * {b}) * ({a} + 1)",
    "({a} - {b}) * (1 - {b}) < {c}", "{a} = {b} AND {b} = {c}", "CASE WHEN {a} = {b} THEN {a} END", "(1 - {a}) * {b} * (1 + {c})",
)


class Rows:
    """A table of extremes, as the only relation that an expression sees."""

    def __init__(self) -> None:
        made = duckdb.connect(":memory:")
        self.columns = make_table(made, rows=60)
        self.con = made.cursor()
        pin(self.con)
        items = [Item("p", "p", exp.to_table("p"), [Column(n, n, t, None) for n, t in self.columns.items()])]
        self.scope = Scope(Catalog(self.con.cursor()), items, [])
        self.tried = 0

    def total(self, text: str) -> exp.Expression | None:
        """Return the generated expression if it is accepted, and stands without a guard."""
        try:
            found = Rewriter(self.scope)(parse(f"SELECT {text} AS x").selects[0].this)
        except (UnsupportedQuery, ArgumentError):
            return None
        return found if is_total(found) else None

    def check(self, texts: Iterator[str]) -> None:
        """Run all that are total, over all rows, without a guard."""
        found = {text: node for text in texts if (node := self.total(text)) is not None}
        self.tried += len(found)
        for batch in _batches(found):
            self._run(batch)

    def _run(self, batch: list[tuple[str, exp.Expression]]) -> None:
        """Run a batch, or each of it where one fails; the types are those that the next step of the induction relies on."""
        listed = [f"count({render(node)}), any_value(typeof({render(node)}))" for _, node in batch]
        try:
            _, *kinds = self.con.execute(f"SELECT 1, {', '.join(listed)} FROM memory.main.p").fetchall()[0]
        except duckdb.Error:
            assert len(batch) > 1, batch[0]
            for one in batch:
                self._run([one])
            return
        assert kinds[1::2] == [node.meta["dpsql_total"] for _, node in batch], [text for text, _ in batch]


def _batches(found: dict[str, exp.Expression]) -> Iterator[list[tuple[str, exp.Expression]]]:
    listed = list(found.items())
    return (listed[i : i + 50] for i in range(0, len(listed), 50))


@pytest.fixture(scope="module")
def rows() -> Iterator[Rows]:
    made = Rows()
    yield made
    made.con.close()


def test_two_columns(rows: Rows) -> None:
    names = [name for name in rows.columns if not name.endswith("2")]
    before = rows.tried
    rows.check(
        form.format(a=a, b=b, c=a) for i, (a, b) in enumerate(itertools.product(names, names)) for j, form in enumerate(PAIRS)
        if (i + j) % len(PAIRS) < cases(2)
    )
    assert rows.tried - before > 30


def test_a_column_and_a_constant(rows: Rows) -> None:
    before = rows.tried
    rows.check(form.format(a=a, b=b, c=a) for a in rows.columns for b in CONSTANTS for form in PAIRS[: 3 if cases(1) == 1 else None])
    assert rows.tried - before > 100


def test_what_is_built_of_them(rows: Rows) -> None:
    numbers = [name for name, kind in rows.columns.items() if "INT" in kind or kind.startswith("DECIMAL")]
    before = rows.tried
    triples = list(itertools.permutations(numbers, 3))
    rows.check(
        form.format(a=a, b=b, c=c) for i, (a, b, c) in enumerate(triples) for j, form in enumerate(BUILT)
        if (i + 37 * j) % 320 < cases(1)
    )
    assert rows.tried - before > 30


def test_parts_and_truncations_of_moments(rows: Rows) -> None:
    """Every function that the table calls total, of every column of the types that it is total of, and of conditions on them."""
    moments = [name for name, kind in rows.columns.items() if kind in ("DATE", "TIMESTAMP")]
    listed = {name: one for name, one in FUNCTIONS.items() if one.total}
    assert {"year", "date_trunc", "date_part", "dayname", "last_day", "epoch"} <= set(listed)
    texts = [
        f"{name}({part}{column})" for name, one in listed.items() for column in moments
        for part in ([f"'{each}', " for each in sorted(NAMED_FIRST[one.unit])] if one.unit else [""])
    ]
    texts += [f"{one} = {other}" for one, other in itertools.pairwise(texts[:: len(moments)])]
    texts += [f"{name}(CASE WHEN {a} < {b} THEN {a} ELSE {b} END)" for name in ("year", "last_day") for a in moments for b in moments]
    before = rows.tried
    rows.check(iter(texts))
    assert rows.tried - before >= len(moments) * (len(listed) - 2 + len(PARTS))
    zoned = [name for name, kind in rows.columns.items() if kind == "TIMESTAMP WITH TIME ZONE"]
    assert zoned and all(rows.total(f"year({name})") is None for name in zoned)


def test_a_part_without_its_guard_fails(rows: Rows) -> None:
    """What the test above would find if moments were not NULL far away: DuckDB raises for some of these rows."""
    [column] = [name for name, kind in rows.columns.items() if kind == "DATE" and not name.endswith("2")]
    with pytest.raises(duckdb.Error):
        rows.con.execute(f"SELECT count(last_day({column})) FROM memory.main.p").fetchall()


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("i = 5", True), ("i = 5.5", True), ("h = 5", False), ("h = 5.5", False), ("s = 5", False), ("s = 'a'", True), ("i = '5'", False), ("d = '2020-02-29'", True), ("d = '2020-02-30'", False),
        ("d = CAST('x' AS DATE)", False), ("i < CAST(300 AS TINYINT)", False), ("t >= TIMESTAMP '2020-01-01 00:00:00'", True), ("s = i", False), ("d = DATE '2020-01-01'", True),
        ("d = t", False), ("i + l", True), ("l * l", True), ("i / l", False), ("i // l", False), ("x * x", True), ("x / x", False), ("x * l", False), ("x < 5", True),
        ("m * m", True), ("m * (1 - m)", True), ("w * w", True), ("upper(s) = 'A'", False), ("NOT (i = 5 AND s = 'a')", True),
        ("CASE WHEN i = 5 THEN 'a' ELSE 'b' END", True), ("CASE WHEN i = 5 THEN i END", True), ("CASE WHEN i = 5 THEN s ELSE upper(s) END", False),
        ("i IN (1, 2)", True), ("s IN ('a', 5)", False), ("x IS NULL", True), ("CAST(i AS BIGINT)", True), ("CAST(x AS BIGINT)", False), ("s LIKE 'a%'", False),
        ("year(d)", True), ("date_trunc('month', t)", True), ("EXTRACT(month FROM d) = 3", True), ("dayname(d) = 'Monday'", True), ("hour(t) < 5", True),
        ("year(z)", False), ("year(CAST(s AS DATE))", False), ("strftime(d, '%Y')", False), ("d + INTERVAL 1 DAY", False), ("year(d) / 2", False),
    ],
)
def test_which_are_total(text: str, total: bool) -> None:
    con = duckdb.connect(":memory:")
    kinds = {"i": "INTEGER", "l": "BIGINT", "h": "HUGEINT", "s": "VARCHAR", "d": "DATE", "t": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE", "x": "DOUBLE",
             "m": "DECIMAL(15,2)", "w": "DECIMAL(38,10)"}
    item = Item("p", "p", exp.to_table("p"), [Column(n, n, t, None) for n, t in kinds.items()])
    found = Rewriter(Scope(Catalog(con), [item], []))(parse(f"SELECT {text} AS x").selects[0].this)
    assert is_total(found) is total, render(found)
    con.close()


def test_conditions_have_guards_of_their_own() -> None:
    """An equality of columns stands outside, where DuckDB sees a join; what could fail beside it does not."""
    tree = parse("SELECT a FROM p WHERE (b = 1 AND upper(c) = 'X') AND d = 2")
    assert isinstance(tree, exp.Select)
    for node in tree.find_all(exp.EQ):
        if not isinstance(node.this, exp.Upper | exp.Anonymous):
            node.meta["dpsql_total"] = "BOOLEAN"
    text = render(rehearsal.guarded(tree))
    assert text.count("TRY(") == 1 and "b = 1" in text.split("TRY(")[0]
