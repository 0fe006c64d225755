"""The report of a release of linked tables: from the release alone, true to it, whatever tables are called and hold."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
from dpsql.udfs import instance_of
from report_pages import Page, check_self_contained

import dpsql
from dpsql.answers.linked_figures import LinkedFigures, Measure
from dpsql.errors import DpsqlError
from dpsql.methods.nested_classes import Block, order
from dpsql.purchase import buying
from dpsql.rows import drawing
from dpsql.session.instance import open_context

pytestmark = pytest.mark.any_duckdb

FAST = "options := {'effort': 'fast'}"
BUY = f"FROM dp_synthesize_tables('patients', epsilon := 3, into_schema := 'synth', {FAST})"


def make(con: duckdb.DuckDBPyConnection, patients: int = 500, visits: int = 1500) -> None:
    con.execute(
        f"""
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER);
        CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER, cost INTEGER, day DATE, CHECK (cost >= 0));
        CREATE TABLE procedures (visit_id INTEGER, urgent BOOLEAN);
        INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2], 20 + i % 60 FROM range({patients}) t(i);
        INSERT INTO visits SELECT i, i // 3, CASE WHEN i // 3 % 2 = 0 THEN 100 ELSE 400 END, DATE '2024-01-01' + (i % 300)::INTEGER
            FROM range({visits}) t(i);
        INSERT INTO procedures SELECT i * 2, i % 4 = 0 FROM range({visits}) t(i);
        """
    )
    dpsql.load(con)
    con.execute(
        """
        CALL dp_protect('patients', epsilon := 9, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1);
        CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20);
        CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 2);
        CALL dp_declare('patients', 'sex', categories := ['f', 'm'], nullable := false);
        CALL dp_declare('patients', 'age', lower := 0, upper := 100, bins := 10, nullable := false);
        CALL dp_declare('visits', 'cost', lower := 0, upper := 500, bins := 5, nullable := false);
        CALL dp_declare('visits', 'day', lower := '2024-01-01', upper := '2024-12-31', bins := 6, nullable := false);
        CALL dp_link('visits', order_by := 'day');
        """
    )


def report(con: duckdb.DuckDBPyConnection, release: str, path: Path) -> tuple[str, Page]:
    dpsql.report(con, release, path=path)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    check_self_contained(text, page)
    return text, page


def plain(text: str) -> str:
    """Return what is the same however often a page is made of a release: all but the lines of the ledger."""
    return re.sub(r'<section id="provenance">.*?</section>', "", text, flags=re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """How well an order is fitted is not asked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "_MOST_UNITS", 1_000)
        yield


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory):
    """A database and a release of all tests that only read it."""
    with duckdb.connect(str(tmp_path_factory.mktemp("report") / "a.duckdb")) as con:
        make(con)
        yield con, con.execute(BUY).fetchone()[3]


@pytest.fixture
def bought(released, tmp_path: Path):
    return *released, tmp_path / "r.html"


def test_the_page_has_a_section_a_table_and_one_on_links(bought):
    con, release, path = bought
    text, page = report(con, release, path)
    assert page.sections == [
        "cost", "guarantee", "accuracy", "database", "table-1", "table-2", "table-3", "links", "provenance",
    ]  # fmt: skip
    assert page.headings[4:7] == ["Table patients", "Table visits", "Table procedures"]
    (listed,) = page.rows_of("Table", "Belongs to")
    assert [row[:5] for row in listed] == [
        ["patients", "–", "–", "–", "–"],
        ["visits", "patients", "patient_id = patient_id", "20", "day"],
        ["procedures", "visits", "visit_id = visit_id", "2", "–"],
    ]
    rows = {name: con.execute(f"SELECT count(*) FROM synth.{name}").fetchone()[0] for name in ("patients", "visits", "procedures")}
    assert {row[0]: int(row[6].replace(",", "")) for row in listed} == rows
    entry, hash_ = con.execute("SELECT entry, hash FROM dpsql.ledger WHERE action = 'charge'").fetchone()
    (ledger,) = page.rows_of("Entry", "Written")
    assert (ledger[0][0], ledger[0][5]) == (str(entry), hash_)
    assert "visits.cost" in text and "A row of visits and the next one, by day" in text
    assert "day: how far the next row is" in text and "cost of the first row" in text
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)


def test_the_numbers_are_those_of_the_release(bought):
    con, release, path = bought
    _, page = report(con, release, path)
    with open_context(instance_of(con), "a", "main") as context:
        found = drawing.find(context, release)
        blocks = found.statistics(context.cursor).blocks
    linked = found.plan.linked
    places = {(block.kind, block.left): place for place, block in enumerate(linked.blocks) if block.right is None}
    shown = page.rows_of("value", "released")
    fan_out = places["one", (0, linked.shape.fan_out(1))]
    released = (blocks[fan_out] / linked.weight).tolist()
    together = [released[0], *(sum(released[start : start + 2]) for start in range(1, 21, 2))]
    (chart,) = [rows for rows in shown if [row[0] for row in rows][:3] == ["0", "1 to 2", "3 to 4"]]
    assert [float(row[1].replace(",", "")) for row in chart] == pytest.approx(together, rel=1e-3, abs=0.6)
    sex = (blocks[places["one", (0, 0)]] / linked.weight).tolist()
    (chart,) = [rows for rows in shown if [row[0] for row in rows] == ["f", "m"]]
    assert [float(row[1].replace(",", "")) for row in chart] == pytest.approx(sex, rel=1e-3, abs=0.6)
    scale = float(found.plan.scales[places["one", (0, 0)]]) / linked.weight
    if found.plan.mechanism == "gaussian":
        assert float(chart[0][2].replace(",", "")) == pytest.approx(1.96 * scale, rel=1e-3)
    measured = page.rows_of("What", "Tables", "Cells")[0]
    assert sum(int(row[1].replace(",", "")) for row in measured) == len(linked.blocks)
    assert sum(int(row[2].replace(",", "")) for row in measured) == sum(linked.lengths)
    # Synthetic families of a chart are those that were written. An empty family is one of them.
    families = dict(con.execute(
        "SELECT (n + 1) // 2, count(*) FROM (SELECT count(visit_id) AS n FROM synth.patients LEFT JOIN synth.visits "
        "USING (patient_id) GROUP BY patients.patient_id) GROUP BY ALL"
    ).fetchall())  # fmt: skip
    (chart,) = [rows for rows in shown if [row[0] for row in rows][:3] == ["0", "1 to 2", "3 to 4"]]
    assert [float(row[3].replace(",", "")) for row in chart] == [families.get(place, 0) for place in range(len(chart))]


def test_the_dependence_of_siblings_and_of_parents_is_found(tmp_path):
    """Costs are the same in a family, and of two values in five bins: V is 1 / sqrt(4) but for noise, which moves it by about 0.005.

    False alarms: below 1e-9 for the released V, 0.1 away. Of a tenth of the units it would be 0.08, and skewed.
    """
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        make(con, patients=5000, visits=15000)
        _, page = report(con, con.execute(BUY).fetchone()[3], tmp_path / "r.html")
    pairs = {tuple(row[:2]): row[2:] for rows in page.rows_of("Column", "With") for row in rows}
    released, _, synthetic, *_ = pairs["visits.cost", "visits.cost"]
    assert 0.4 < float(released) < 0.6 and 0.3 < float(synthetic) < 0.6


def test_nothing_but_the_release_is_read(tmp_path):
    """The page is the same after every protected row is gone: no exact count can be on it."""
    path = tmp_path / "r.html"
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        make(con)
        release = con.execute(BUY).fetchone()[3]
        text, _ = report(con, release, path)
        con.execute("DELETE FROM procedures; DELETE FROM visits; DELETE FROM patients")
        con.execute("DROP SCHEMA synth CASCADE")
        again, _ = report(con, release, path)
        assert plain(text) == plain(again)
        con.execute("DROP TABLE procedures; DROP TABLE visits; DROP TABLE patients")
        gone, _ = report(con, release, path)
        assert plain(gone) == plain(text)


def test_a_comparison_is_refused_with_the_way_out(bought):
    con, release, path = bought
    with pytest.raises(DpsqlError, match="dp_evaluate"):
        dpsql.report(con, release, path=path, compare=True)
    assert not path.exists()


def test_a_release_that_is_not_finished_has_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        make(con)
        monkeypatch.setattr(buying, "measure", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(BaseException):  # noqa: B017 -- killed after the charge
            con.execute(BUY)
        monkeypatch.undo()
        releases = con.execute("SELECT release FROM dpsql.ledger WHERE action = 'charge'").fetchall()
        assert len(releases) == 1
        with pytest.raises(DpsqlError, match="release"):
            dpsql.report(con, releases[0][0], path=tmp_path / "r.html")
        assert not (tmp_path / "r.html").exists()
        finished = con.execute(BUY).fetchone()[3]
        report(con, finished, tmp_path / "r.html")
        assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)


@pytest.mark.parametrize(("patients", "visits"), [(0, 0), (300, 0)])
def test_empty_tables(tmp_path: Path, patients: int, visits: int):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        make(con, patients, visits)
        text, page = report(con, con.execute(BUY).fetchone()[3], tmp_path / "r.html")
        assert "nan" not in re.findall(r"\bnan\b|\binf\b", text)
        assert len(page.rows_of("Table", "Belongs to")[0]) == 3


def test_odd_names(tmp_path: Path):
    parent, child, key, column = 'select <b>"x"</b>', "Größe & 'länge'; --", "order", "<script>alert('統')</script>"
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (parent, child, key, column)]
    p, c, k, x = quoted
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        con.execute(
            f"""
            CREATE TABLE {p} ({k} INTEGER PRIMARY KEY, {x} VARCHAR);
            CREATE TABLE {c} (id INTEGER PRIMARY KEY, {k} INTEGER, {x} VARCHAR);
            INSERT INTO {p} SELECT i, ['<i>', 'NULL'][1 + i % 2] FROM range(200) t(i);
            INSERT INTO {c} SELECT i, i // 2, ['</td>', 'b'][1 + i % 2] FROM range(400) t(i);
            """
        )
        dpsql.load(con)
        dpsql.protect(con, p, epsilon=9, delta=1e-9, privacy_unit=key, max_contributions=1)
        dpsql.link(con, c, column=key, parent=p, max_rows=3)
        dpsql.declare(con, p, column, categories=["<i>", "NULL"])
        dpsql.declare(con, c, column, categories=["</td>", "b"])
        release = dpsql.synthesize_tables(con, p, epsilon=3, into_schema='"odd <u>"', options={"effort": "fast"}).fetchall()[0][3]
        text, page = report(con, release, tmp_path / "r.html")
    assert f"Table {parent}" in page.headings and f"Table {child}" in page.headings
    assert not page.elements & {"i", "u", "script"}
    assert text.count("<b>") == text.count('<div class="tile"><b>')
    assert {parent, child} == {row[0] for row in page.rows_of("Table", "Belongs to")[0]}


def test_no_declared_columns_and_one_child_a_parent(tmp_path: Path):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        con.execute("CREATE TABLE a (id INTEGER PRIMARY KEY, x BOOLEAN); CREATE TABLE b (id INTEGER UNIQUE, y INTEGER)")
        con.execute("INSERT INTO a SELECT i, i % 2 = 0 FROM range(300) t(i); INSERT INTO b SELECT i, i FROM range(200) t(i)")
        dpsql.load(con)
        con.execute("CALL dp_protect('a', epsilon := 9, delta := 1e-9, neighbors := 'replace_one')")
        con.execute("CALL dp_link('b', 'id', parent := 'a', max_rows := 1)")
        release = con.execute(f"FROM dp_synthesize_tables('a', epsilon := 3, into_schema := 's', {FAST})").fetchone()[3]
        text, _ = report(con, release, tmp_path / "r.html")
        assert "It has no declared columns" in text and "units, public" in text
        assert "one row of the table with all rows of the linked tables that belong to it" in text


@pytest.mark.parametrize(("mechanism", "deviation", "error"), [("gaussian", 1, math.sqrt(2 / math.pi)), ("laplace", math.sqrt(2), 1)])
@pytest.mark.parametrize("scale", [0.125, 20.0])
def test_noise_is_of_parts_of_a_unit(mechanism, deviation, error, scale):
    """Whole numbers with a scale of an eighth would be 0 almost always."""
    cell = np.ones(1)
    measure = Measure(Block("one", (0, 0)), cell, scale, None, cell, None, 1)
    found = LinkedFigures(SimpleNamespace(mechanism=mechanism), SimpleNamespace(one=lambda _: 1 << 20), None, 1, [], {})
    assert found.deviation(measure) == pytest.approx(deviation * scale, rel=1e-4)
    assert found.mean_error(measure) == pytest.approx(error * scale, rel=1e-4)
    assert found.half_width(measure) == pytest.approx((1.96 if mechanism == "gaussian" else math.log(20)) * scale, rel=1e-3)
