"""The first wall by itself: what the kernel accepts fails for no value, under no setting, on this version of DuckDB.

Expressions are made from the kernel's own tables over extreme values of every type; the rehearsal and the net of TRY are taken down.
``DPSQL_KERNEL_EXPRESSIONS`` says how many are made (default 360 a run, 7,200 when thorough, about half of which the kernel accepts; each batch runs under
every setting of the list). ``DPSQL_KERNEL_SEED`` says which ones: the same seed makes the same expressions on one version of DuckDB.
"""

from __future__ import annotations

import functools
import os
from collections import Counter

import duckdb
import pytest
from case_counts import cases
from kernel_expressions import SETTINGS, Generator, make_table

from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.session.settings import pin
from dpsql.source import leaves
from dpsql.source.binder import check
from dpsql.source.catalog import Catalog
from dpsql.source.leaves import View
from dpsql.source.model import TableId
from dpsql.source.parse import parse, render
from dpsql.source.relations import Analysis
from dpsql.source.scope import shortening, with_relations

PARTS = 4
ASKED = int(os.environ.get("DPSQL_KERNEL_EXPRESSIONS", str(cases(360))))
SEED = int(os.environ.get("DPSQL_KERNEL_SEED", "1000"))
BATCH = 25
TABLE = TableId("memory", "main", "p")
HOME = ("memory", "main")


class Gate:
    """A table of extremes, and what became of the expressions over it."""

    def __init__(self, seed: int) -> None:
        self.con = duckdb.connect(":memory:")
        self.columns = make_table(self.con, seed=seed)
        self.catalog = Catalog(self.con.cursor())
        self.catalog.changed_function = lambda names: None  # nobody has changed one; asking takes longer than all the rest
        self.catalog.collated = functools.cache(self.catalog.collated)  # nobody changes the table either
        self.catalog.find = functools.cache(self.catalog.find)
        self.cursors: dict[str, duckdb.DuckDBPyConnection] = {}
        self.generator = Generator(self.columns, seed)
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def accepted(self, text: str):
        """Return the generated SELECT of one expression, and the columns of its table; None if it is refused."""
        def taken(texts):
            analysis = Analysis(self.catalog, lambda t: True, lambda t: (), lambda t: None, HOME, texts=texts)
            return analysis.select(parse(f"SELECT {text} AS x FROM p"), View((HOME,))), analysis

        try:
            return shortening(taken)
        except (UnsupportedQuery, ArgumentError):
            self.counts["refused"] += 1
            return None

    def run(self, batch: list) -> None:
        """Check a batch against the kernel and run it under every setting; halve it where it is refused or fails."""
        tree = batch[0][1][0].select.copy()
        tree.set("expressions", [r.select.expressions[0].this.copy().as_(f"x{i}") for i, (_, (r, _)) in enumerate(batch)])
        analysis = batch[0][1][1]
        try:
            check(self.catalog, render(tree), analysis.probe(tree), [TABLE], [])
        except UnsupportedQuery:
            self._halves(batch, "refused")
            return
        counted = ", ".join(f"count(x{i})" for i in range(len(batch)))
        try:
            for setting in SETTINGS:
                self._under(setting, f"SELECT {counted} FROM ({render(tree)})")
                self.counts["runs"] += len(batch)
        except duckdb.Error as error:
            if len(batch) == 1:
                self.failed.append(f"{batch[0][0]}  under {setting}: {error}"[:300])
            self._halves(batch, "failed")
            return
        self.counts["accepted"] += len(batch)

    def _under(self, setting: str, query: str) -> None:
        name = setting.split(" = ")[0]
        self.con.execute(f"SET GLOBAL {setting}")
        try:
            if setting not in self.cursors:  # one that was opened and pinned under the setting, for each
                self.cursors[setting] = self.con.cursor()
                pin(self.cursors[setting])
            self.cursors[setting].execute(query).fetchall()
        finally:
            self.con.execute(f"RESET GLOBAL {name}")

    def _halves(self, batch: list, outcome: str) -> None:
        if len(batch) == 1:
            self.counts[outcome] += 1
            return
        self.run(batch[: len(batch) // 2])
        self.run(batch[len(batch) // 2 :])


@pytest.fixture(autouse=True)
def read_once(monkeypatch) -> None:
    """The CREATE TABLE of the wide table is read once, not for every expression."""
    monkeypatch.setattr(leaves, "generated_columns", functools.cache(leaves.generated_columns))


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_kernel_accepts_never_fails(part, record_property):
    gate = Gate(seed=SEED + part)
    batch: list = []
    for _ in range(ASKED // PARTS):
        text = gate.generator.expression(gate.generator.rng.choice((1, 1, 2)))
        found = gate.accepted(text)
        if found is not None:
            batch.append((text, found))
        if len(batch) == BATCH:
            gate.run(batch)
            batch = []
    if batch:
        gate.run(batch)
    record_property("counts", dict(gate.counts))
    print(f"kernel gate, DuckDB {duckdb.__version__}, seed {SEED + part}: {dict(gate.counts)}")
    assert gate.failed == []
    assert gate.counts["accepted"] > ASKED // PARTS // 4 and gate.counts["refused"] > 0


def test_no_text_grows(tmp_path):
    """Every text that a source computes is short, whatever is put into it, and long sources of texts are refused."""
    gate = Gate(seed=7)
    gate.con.execute("CREATE OR REPLACE TABLE p AS SELECT repeat('a', 3_000_000) AS s, 'b' AS g")
    gate.catalog = Catalog(gate.con.cursor())
    calls = (
        "upper(s)", "reverse(s)", "concat(s, s, s)", "concat_ws('-', s, s)", "s || s || s", "trim(s)", "replace(s, 'a', 'bbbbbbbb')",
        "translate(s, 'a', 'b')", "substring(s, 1)", "left(s, -1)", "right(s, 1000000)", "regexp_replace(s, 'a', 'bcd', 'g')", "regexp_extract(s, '.*')",
        "split_part(s, 'b', 1)", "strip_accents(s)", "CAST(concat(s, s) AS VARCHAR)", "coalesce(NULL, concat(s, s))",
    )
    for text in calls:
        relation, _ = gate.accepted(text)
        assert gate.con.execute(f"SELECT length(x) FROM ({render(relation.select)})").fetchone()[0] <= 10_000, text
    for text in (
        "replace(s, 'a', repeat('b', 101))", f"replace(s, 'a', '{'b' * 101}')", f"regexp_replace(s, '', '{'b' * 101}')", "repeat(s, 2)", "lpad(s, 9, 'a')",
        f"concat({', '.join(['s'] * 500)})", "replace(s, g, g)", f"concat({', '.join(['concat(s, s, s, s)'] * 100)})",
    ):
        assert gate.accepted(text) is None, text


def test_made_up_rows_stand_for_no_table():
    """The rehearsal reads no row: its SQL names no table."""
    gate = Gate(seed=8)
    relation, analysis = gate.accepted("upper(s)")
    assert '"p"' in render(relation.select)
    assert '"p"' not in render(with_relations(relation.select, analysis.leaves, lambda columns, alias: f"(SELECT 1 AS s) AS {alias}"))
