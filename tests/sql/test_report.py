"""The report: one file, well-formed, true to the release, marked where it is not private."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
from report_pages import Page, check_self_contained
from struck import LONG

import dpsql
from dpsql.errors import DpsqlError

pytestmark = pytest.mark.any_duckdb

def report(con, release, path: Path, **given) -> tuple[str, Page]:
    dpsql.report(con, release, path=path, **given)
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture
def tables(con):
    con.execute("FROM dp_marginals('people', k := 2, epsilon := 1, release := 'pairs')")
    return con


def test_the_numbers_of_the_page_are_those_of_the_release(con, tmp_path, charges):
    released = con.execute("FROM dp_marginals('people', k := 1, epsilon := 1, mechanism := 'laplace', release := 'singles')").fetchall()
    text, page = report(con, "singles", tmp_path / "r.html")
    check_self_contained(text, page)
    shown = [(value, int(n.replace(",", ""))) for rows in page.rows_of("value", "released") for value, n, *_ in rows]
    assert shown == [("NULL" if values[0] is None else values[0], n) for _, values, n in released]
    (scale,) = con.execute("SELECT noise_scale FROM dp_plan('people', k := 1, epsilon := 1, mechanism := 'laplace')").fetchone()
    (measured,) = page.rows_of("What", "Tables")
    assert float(measured[0][4]) == pytest.approx(scale, rel=1e-3)
    assert float(measured[0][6]) == pytest.approx(scale * 2.9957, rel=1e-2)
    entry, hash_ = con.execute("SELECT entry, hash FROM dpsql.ledger WHERE action = 'charge'").fetchone()
    (ledger,) = page.rows_of("Entry", "Written")
    assert (ledger[0][0], ledger[0][5]) == (str(entry), hash_)
    assert charges() == 1


def test_the_page_needs_no_table_and_is_the_same_each_time(con, tmp_path, charges):
    con.execute("FROM dp_synthesize('people', epsilon := 1, columns := ['sex', 'region', 'member'], release := 'synth')").fetchall()
    path = tmp_path / "r.html"
    first, page = report(con, "synth", path)
    assert page.sections == ["cost", "guarantee", "accuracy", "columns", "pairs", "provenance"]
    con.execute("ALTER TABLE people RENAME TO hidden")
    con.execute(f"EXPLAIN FROM dp_report('synth', path := '{path}')").fetchall()
    row = con.execute(f"FROM dp_report('synth', path := '{path}')").fetchone()
    assert row[1:3] == (str(path), True)
    assert path.read_text(encoding="utf-8") == first
    assert charges() == 1
    with pytest.raises(duckdb.Error):
        con.execute(f"FROM dp_report('synth', path := '{tmp_path / 'c.html'}', compare := true)")
    assert not (tmp_path / "c.html").exists()


def test_synthetic_counts_are_those_of_the_synthetic_table(con, tmp_path):
    con.execute("CREATE TABLE s AS FROM dp_synthesize('people', epsilon := 1, columns := ['sex', 'age'], release := 'synth')")
    _, page = report(con, "synth", tmp_path / "r.html")
    shown = [dict((r[0], int(r[3].replace(",", ""))) for r in rows) for rows in page.rows_of("value", "released", "± 95 %", "synthetic")]
    assert shown[1]["f"], shown[1]["m"] == con.execute("SELECT count(*) FILTER (sex = 'f'), count(*) FILTER (sex = 'm') FROM s").fetchone()
    assert shown[0]["[18, 28)"] == con.execute("SELECT count(*) FROM s WHERE age < 28").fetchone()[0]


def test_what_is_not_private_says_so_in_every_part(tables, tmp_path):
    text, page = report(tables, "pairs", tmp_path / "c.html", compare=True)
    check_self_contained(text, page)
    assert page.headings and all(heading.endswith("not for publication") for heading in page.headings)
    assert "comparison" in page.sections
    assert "position:fixed" in text and "NOT FOR PUBLICATION</span>" in text and "<title>NOT FOR PUBLICATION" in text
    rows = dict((r[0], r[-1]) for table in page.rows_of("value", "released") for r in table)
    assert int(rows["north"]) == tables.execute("SELECT count(*) FROM people WHERE region = 'north'").fetchone()[0]
    plain, other = report(tables, "pairs", tmp_path / "p.html")
    assert not any("publication" in heading for heading in other.headings)
    assert "comparison" not in other.sections and "raw, not private" not in plain
    for here, kind in (("c.html", False), ("p.html", True)):
        with pytest.raises(DpsqlError, match="do not replace each other"):
            dpsql.report(tables, "pairs", path=tmp_path / here, compare=kind)


def test_other_files_are_not_replaced(tables, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    with pytest.raises(DpsqlError, match="was not replaced"):
        dpsql.report(tables, "pairs", path=mine)
    assert mine.read_text() == "mine"
    with pytest.raises(DpsqlError, match="folder does not exist"):
        dpsql.report(tables, "pairs", path=tmp_path / "no" / "x.html")
    with pytest.raises(DpsqlError, match="no such release"):
        dpsql.report(tables, "nothing", path=tmp_path / "x.html")
    assert sorted(p.name for p in tmp_path.glob("*.html")) == ["mine.html"]


def test_names_and_values_are_escaped(con, tmp_path):
    evil = "<script>alert('1')</script>\"&"
    con.execute("CREATE TABLE odd AS SELECT ? AS \"<img src=x onerror=alert(1)>\", 'ж–語' AS \"b'\" FROM range(100)", [evil])
    con.execute("CALL dp_protect('odd', epsilon := 9, delta := 1e-9)")
    con.execute("CALL dp_declare('odd', '<img src=x onerror=alert(1)>', categories := [?, '</svg>'], nullable := false)", [evil])
    con.execute("CALL dp_declare('odd', 'b''', categories := ['ж–語', '\u202eb'], nullable := false)")
    con.execute("FROM dp_synthesize('odd', epsilon := 2, release := 'odd')").fetchall()
    for compare in (False, True):
        text, page = report(con, "odd", tmp_path / f"{compare}.html", compare=compare)
        check_self_contained(text, page)
        assert evil in {row[0] for rows in page.rows_of("value", "released") for row in rows}
        assert "ж–語" in text and "\u202e" not in text


KINDS = {
    "latent_class": "dp_synthesize('people', columns := ['sex', 'region', 'age'], epsilon := 1, release := 'r')",
    "copula": "dp_synthesize('people', columns := ['sex', 'region'], method := 'gaussian_copula', epsilon := 1, release := 'r')",
    "one_hot": "dp_synthesize('people', columns := ['sex', 'region'], method := 'gaussian_copula', options := {'output': 'one_hot'}, "
    "epsilon := 1, release := 'r')",
    "triples": "dp_marginals('people', columns := ['sex', 'region', 'member'], k := 3, epsilon := 1, release := 'r')",
    "query": "dp_marginals('SELECT region, sex FROM people WHERE age > 30', k := 2, epsilon := 1, release := 'r')",
    "aggregates": "dp_aggregates('people', columns := ['sex', 'region', 'member'], reporting_length := 2, epsilon := 1, release := 'r')",
    "sets": "dp_synthesize('people', columns := ['region', 'sex'], method := 'laplace_sanitizer', epsilon := 1, options := {'sets': 3}, release := 'r')",
    "stable": "dp_histogram('people', 'region', epsilon := 1, release := 'r')",
    "universe": "dp_histogram('people', 'region', epsilon := 1, domain := ['north', 'south', 'west'], release := 'r')",
}
DRAWN = ("multinomial_dirichlet", "poisson_gamma", "dp_prior", "empirical_cdf", "modips", "smoothed_histogram")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("error")
def test_every_kind_of_release_has_a_page(con, tmp_path, kind):
    con.execute(f"FROM {KINDS[kind]}").fetchall()
    for compare in (False, True):
        text, page = report(con, "r", tmp_path / f"{compare}.html", compare=compare)
        check_self_contained(text, page)
        assert {"cost", "guarantee", "columns", "provenance"} <= set(page.sections)
        assert ("lists" in page.sections) == (kind in ("aggregates", "stable", "universe"))
        assert "nan" not in re.sub(r"[^\d.><=-]nan[a-z]", "", text.lower()).split("<main>")[1].replace("nance", "")
    assert page.rows_of("value")


@pytest.mark.parametrize("method", DRAWN)
def test_methods_that_draw_their_release_have_a_page(con, tmp_path, method):
    con.execute("CREATE TABLE answers AS SELECT ['a', 'b', 'c'][1 + (i * i) % 3] AS answer FROM range(300) t(i)")
    con.execute("CALL dp_protect('answers', epsilon := 9, delta := 1e-9, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('answers', 'answer', categories := ['a', 'b', 'c'], nullable := false)")
    con.execute(f"FROM dp_synthesize('answers', method := '{method}', epsilon := 2, release := 'r')").fetchall()
    text, page = report(con, "r", tmp_path / "r.html", compare=True)
    check_self_contained(text, page)
    (rows,) = page.rows_of("value")
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert "carry no error bands" in text
    assert "300" in text and "rows, public" in text


def test_a_copula_of_rank_correlations_has_a_page(con, tmp_path):
    con.execute("CREATE TABLE answers AS SELECT ['a', 'b', 'c'][1 + (i * i) % 3] AS answer, i % 7 AS x FROM range(300) t(i)")
    con.execute("CALL dp_protect('answers', epsilon := 90, delta := 1e-9, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('answers', 'answer', categories := ['a', 'b', 'c'], nullable := false)")
    con.execute("CALL dp_declare('answers', 'x', lower := 0, upper := 7, bins := 7, nullable := false)")
    con.execute("FROM dp_synthesize('answers', method := 'dpcopula_kendall', epsilon := 80, release := 'r')").fetchall()
    for compare in (False, True):
        text, page = report(con, "r", tmp_path / f"{compare}.html", compare=compare)
        check_self_contained(text, page)
        assert "on Kendall's tau of 1 pair" in text.replace("&#x27;", "'").replace("&#39;", "'")
        assert "rows, public" in text
        ((tables, taus),) = page.rows_of("What", "Tables", "Cells")
        assert tables[:3] == ["tables of 1 column", "2", "10"] and taus[:3] == ["Kendall's tau of 2 columns", "1", "1"]
        said = float(re.search(r"noise of scale ([\d.]+) / n on Kendall", text)[1])
        assert float(taus[4]) == pytest.approx(said / 300, rel=0.01)
        assert any(row[0] == "a" for rows in page.rows_of("value") for row in rows)


def test_an_empty_list_of_values_has_a_page(con, tmp_path):
    con.execute("CREATE TABLE few AS SELECT 'x' || i AS v FROM range(3) t(i)")
    con.execute("CALL dp_protect('few', epsilon := 9, delta := 1e-9)")
    con.execute("FROM dp_histogram('few', 'v', epsilon := 0.01, release := 'r')").fetchall()
    for compare in (False, True):
        report(con, "r", tmp_path / f"{compare}.html", compare=compare)


def test_a_wide_table_gives_a_small_page(con, tmp_path):
    columns = ", ".join(f"(i * {7 + j} % 5 < 2 + {j % 2})::BOOLEAN AS c{j}" for j in range(46))
    con.execute(f"CREATE TABLE wide AS SELECT {columns}, i % 5 < 2 AS twin FROM range(500) t(i)")
    con.execute("CALL dp_protect('wide', epsilon := 90, delta := 1e-9)")
    con.execute("CALL dp_declare('wide', 'twin', categories := ['true', 'false'], nullable := false)")
    con.execute("FROM dp_marginals('wide', k := 2, epsilon := 80, release := 'wide')").fetchall()
    text, page = report(con, "wide", tmp_path / "w.html")
    assert len(text) < 1_000_000
    assert "7 are left out" in text and "23 are left out" in text
    assert "columns that depend most on others" in text
    assert text.count("<figure>") == 41
    names = [f"c{j}" for j in range(44)]
    con.execute(f"FROM dp_marginals('wide', columns := {names}, k := 1, epsilon := 0.5, release := 'singles')").fetchall()
    text, _ = report(con, "singles", tmp_path / "s.html")
    assert "columns that come first; 4 are left out: c40, c41, c42, c43." in text


def test_an_imported_release_has_a_page_without_the_books(tables, tmp_path):
    tables.execute(f"FROM dp_export('pairs', '{tmp_path / 'x.parquet'}')").fetchall()
    with duckdb.connect() as other:
        dpsql.load(other)
        dpsql.import_release(other, str(tmp_path / "x.parquet"))
        text, page = report(other, "pairs", tmp_path / "r.html")
        check_self_contained(text, page)
        assert "is not in the database" in text and "hard limit: a request" not in text
        with pytest.raises(DpsqlError):
            dpsql.report(other, "pairs", path=tmp_path / "c.html", compare=True)


def test_the_file_is_named_after_the_release(tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (identifier,) = tables.execute("SELECT release FROM dp_releases()").fetchone()
    assert dpsql.report(tables, "pairs").fetchall()[0][:3] == (identifier, str(tmp_path / f"{identifier}.html"), True)
    assert dpsql.report(tables, "pairs", compare=True).fetchall()[0][1].endswith(f"{identifier}.not-for-publication.html")


def cells(page: Page) -> dict[tuple[str, ...], int]:
    """Return the cells of the first cross-table, by what they are called."""
    (names, heads, *lines), *_ = [table for table in page.tables if len(table) > 2 and len(table[0]) < len(table[2])]
    several = len(lines[0]) - len(heads)
    assert len(names) == several + 1  # the last one stands over the values across
    return {
        (*line[:several], head): int(n.replace(",", "")) for line in lines for head, n in zip(heads, line[several:], strict=True)
    }


@pytest.mark.parametrize("columns", [("region", "sex"), ("region", "sex", "member")])
def test_a_release_of_one_table_shows_that_table(con, tmp_path, columns):
    call = f"dp_marginals('people', columns := {list(columns)}, k := {len(columns)}, epsilon := 1, release := 'cross')"
    con.execute(f"FROM {call}").fetchall()
    bought = find(con, "cross")
    text, page = report(con, "cross", tmp_path / "r.html")
    check_self_contained(text, page)
    assert page.sections.index("tables") < page.sections.index("columns")
    names, labels, table = bought
    order = sorted(range(len(names)), key=lambda axis: -table.shape[axis])
    released = {
        tuple(labels[axis][index[axis]] for axis in order): int(table[index]) for index in itertools.product(*map(range, table.shape))
    }
    assert cells(page) == released
    assert "a count may be negative" in text and "not private" not in text.lower().split("<main>")[1].split('id="tables"')[1][:3000]
    if len(columns) == 2:
        _, compared = report(con, "cross", tmp_path / "c.html", compare=True)
        exact = [table for table in compared.tables if len(table) > 2 and len(table[0]) < len(table[2])][1]
        assert sum(int(n.replace(",", "")) for line in exact[2:] for n in line[1:]) == con.execute("SELECT count(*) FROM people").fetchone()[0]


def find(con, release: str):
    """Return the names, labels and counts of a stored release of one table."""
    from dpsql.udfs import instance_of

    from dpsql.page.figures import label_texts
    from dpsql.rows import drawing
    from dpsql.session.instance import open_context

    with open_context(instance_of(con), "memory", "main") as context:
        bought = drawing.find(context, release)
        ((clique, table),) = bought.statistics(context.cursor).tables.items()
        attributes = [bought.plan.domain.attributes[i] for i in clique]
        return [a.name for a in attributes], [label_texts(a) for a in attributes], table


def test_pairs_have_bands_and_released_pairs_only(tables, tmp_path):
    _, page = report(tables, "pairs", tmp_path / "r.html")
    (rows,) = page.rows_of("columns", "released", "95 % band")
    assert len(rows) == len({row[0] for row in rows}) > 2
    for _, value, band, *_ in rows:
        low, high = map(float, band.split(" to "))
        assert low <= high <= 1 and (low <= float(value) <= high or float(value) == 0)
    tables.execute("FROM dp_aggregates('people', columns := ['sex', 'region'], reporting_length := 2, epsilon := 1, release := 'agg')").fetchall()
    _, page = report(tables, "agg", tmp_path / "a.html")
    assert page.rows_of("columns", "synthetic") and not page.rows_of("columns", "released")


def test_it_says_what_is_counted_where_rows_are_capped(con, tmp_path):
    con.execute("CREATE TABLE visits AS SELECT i % 50 AS patient, i % 3 = 0 AS late FROM range(1000) t(i)")
    con.execute("CALL dp_protect('visits', epsilon := 9, delta := 1e-9, privacy_unit := 'patient', max_contributions := 4)")
    con.execute("FROM dp_marginals('visits', columns := ['late'], k := 1, epsilon := 4, release := 'late')").fetchall()
    text, page = report(con, "late", tmp_path / "r.html")
    check_self_contained(text, page)
    header, accuracy = text.split("</header>")[0], text.split('id="accuracy"')[1].split("</section>")[0]
    assert "kept rows, as released" in header and "1000" not in header and "1,000" not in header
    for part in (header, accuracy):
        assert "4 rows of each patient are kept" in part
    assert "from the exact number of what was counted" in accuracy
    con.execute("FROM dp_contributions('visits', epsilon := 1)").fetchall()
    (bought,) = con.execute("SELECT release FROM dp_releases() WHERE operation = 'contributions'").fetchone()
    text, _ = report(con, bought, tmp_path / "units.html")
    assert "units, as released" in text and "on at most" not in text
    chart = text.split('aria-label="Distribution of')[1].split("</svg>")[0]
    assert re.findall(r'class="label"[^>]*>([^<]*)<', chart)[:3] == ["1", "2", "3-4"]  # as declared: their order says something


MEASURE = """<script>addEventListener('load', () => {
  const clipped = [];
  for (const svg of document.querySelectorAll('svg.chart')) for (const t of svg.querySelectorAll('text')) {
    const a = svg.getBoundingClientRect(), b = t.getBoundingClientRect();
    if (b.left < a.left - 1 || b.right > a.right + 1 || b.top < a.top - 1 || b.bottom > a.bottom + 1) clipped.push(t.textContent);
  }
  for (const box of document.querySelectorAll('.scroll')) if (box.scrollWidth > box.clientWidth + 1) clipped.push(box.getAttribute('aria-label'));
  if (document.documentElement.scrollWidth > innerWidth + 1) clipped.push('the page');
  parent.postMessage('RESULT ' + innerWidth + ' ' + JSON.stringify(clipped), '*');
})</script>"""


def test_a_browser_finds_nothing_clipped(con, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    con.execute("""
        CREATE TABLE visits AS SELECT
            DATE '2021-01-01' + (i % 1000)::INT AS day, TIMESTAMP '2021-01-01' + to_hours(i % 9000) AS registered_at,
            ((i * i) % 50000)::DECIMAL(9, 2) AS charge_in_euros_and_cents, 'D' || (i * i) % 300 AS diagnosis, i % 3 = 0 AS emergency,
            ['Ophthalmology', 'Emergency department (adults and children)', '眼科と整形外科の待合室のとても長い名前', NULL][1 + i % 4] AS ward,
            i % 100 AS "a column with quite a long name, longer than a telephone is wide, and_one_word_without_any_break_in_it"
        FROM range(4000) t(i)""")
    con.execute("CALL dp_protect('visits', epsilon := 90, delta := 1e-9)")
    for column, given in {
        "day": "lower := '2021-01-01', upper := '2024-01-01', bins := 36",
        "registered_at": "lower := '2021-01-01', upper := '2022-01-01', bins := 12",
        "charge_in_euros_and_cents": "edges := [0, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000]",
        "diagnosis": "categories := [" + ", ".join(f"'D{i}'" for i in range(300)) + "]",
        "ward": "categories := ['Ophthalmology', 'Emergency department (adults and children)', '眼科と整形外科の待合室のとても長い名前']",
        "a column with quite a long name, longer than a telephone is wide, and_one_word_without_any_break_in_it": "lower := 0, upper := 100",
    }.items():
        con.execute(f"CALL dp_declare('visits', '{column}', {given})")
    con.execute("FROM dp_synthesize('visits', epsilon := 9, release := 'all')").fetchall()
    con.execute("FROM dp_marginals('visits', columns := ['ward', 'charge_in_euros_and_cents'], k := 2, epsilon := 9, release := 'cross')").fetchall()
    for release, compare in (("all", False), ("cross", True)):
        text, _ = report(con, release, tmp_path / f"{release}.html", compare=compare)
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("<details>", "<details open>") + MEASURE
        for width, printed in ((1280, False), (390, False), (688, True)):  # paper of 210 mm without its margins has 688 pixels
            (tmp_path / "measured.html").write_text(text.replace("@media print", "@media all") if printed else text)
            page = tmp_path / "frame.html"  # a window is never narrower than 500 pixels
            page.write_text(
                f'<iframe style="width:{width}px;height:2000px;border:0" src="measured.html"></iframe>'
                "<script>addEventListener('message', event => { document.title = event.data; })</script>"
            )
            command = [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}",
                "--window-size=1400,2000", "--virtual-time-budget=5000", "--dump-dom", page.as_uri(),
            ]
            dumped = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
            found = re.search(r"<title>RESULT (\d+) (.*?)</title>", dumped.stdout)
            assert found, dumped.stderr
            assert found.groups() == (str(width), "[]"), (release, printed)


def test_a_browser_shows_it_and_prints_it(tables, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    path = tmp_path / "r.html"
    report(tables, "pairs", path, compare=True)
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}"]
    dumped = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=False, timeout=LONG)
    assert dumped.returncode == 0 and "<section" in dumped.stdout, dumped.stderr
    pdf = tmp_path / "r.pdf"
    subprocess.run([*command, f"--print-to-pdf={pdf}", path.as_uri()], capture_output=True, check=False, timeout=LONG)
    assert pdf.read_bytes()[:4] == b"%PDF"
    text = shutil.which("pdftotext")
    if text is not None:
        pages = subprocess.run([text, pdf, "-"], capture_output=True, text=True, check=True).stdout.split("\f")[:-1]
        assert len(pages) > 1 and all("PUBLICATION" in page.upper() for page in pages)


@pytest.fixture
def two_groups(tmp_path):
    """Everybody of one group has 5, everybody of the other 900; one bin holds both."""
    con = duckdb.connect(str(tmp_path / "groups.duckdb"))
    dpsql.load(con)
    con.execute("CREATE TABLE t AS SELECT CASE WHEN i % 2 = 0 THEN 'low' ELSE 'high' END AS g, CASE WHEN i % 2 = 0 THEN 5 ELSE 900 END AS x FROM range(4000) t(i)")
    con.execute("CALL dp_protect('t', epsilon := 90, delta := 1e-9)")
    con.execute("CALL dp_declare('t', 'g', categories := ['low', 'high'], nullable := false)")
    con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 1000, bins := 1, nullable := false)")
    con.execute("FROM dp_synthesize('t', epsilon := 9, release := 'one', options := {'fine': 0})").fetchall()
    yield con
    con.close()


def test_a_comparison_sees_inside_bins(two_groups, tmp_path):
    text, page = report(two_groups, "one", tmp_path / "c.html", compare=True)
    check_self_contained(text, page)
    assert page.sections == ["cost", "guarantee", "accuracy", "columns", "values", "pairs", "comparison", "provenance"]
    (values,) = page.rows_of("Column", "KS distance")
    name, ks, moved, *shown, worst = values[0]
    assert name == "x" and float(ks) > 0.3 and float(moved) > 0.1
    assert shown[0] == "452.5" and 300 < float(shown[1].replace(",", "")) < 700
    assert worst.startswith("g = low: 5, synthetic ") and 300 < float(worst.split()[-1]) < 700
    (areas,) = page.rows_of("Predicted column", "AUC, trained on raw rows")
    assert areas[0][:2] == ["g", "1"]
    assert "an error inside a bin is not in these figures" in text and "no measure of privacy" in text
    assert 'class="raw" d="' in text and "raw, not private" in text


def test_where_values_lie_inside_bins_is_drawn_without_the_raw_table(two_groups, tmp_path):
    text, page = report(two_groups, "one", tmp_path / "p.html")
    check_self_contained(text, page)
    assert page.sections == ["cost", "guarantee", "accuracy", "columns", "values", "pairs", "provenance"]
    assert 'class="drawn" d="' in text and 'class="raw" d="' not in text and "not private" not in text.split("<main>")[1].split('id="values"')[1].split("</section>")[0]
    (lines,) = page.rows_of("value", "synthetic")
    two_groups.execute("CREATE TABLE s AS FROM dp_synthesize('t', epsilon := 9, release := 'one', options := {'fine': 0})")
    low, high = lines[0][0].strip("[)").split(", ")
    share = two_groups.execute(f"SELECT 100 * avg((x >= {low} AND x < {high})::INT) FROM s").fetchone()[0]
    assert len(lines) == 24 and float(lines[0][1].removesuffix(" %")) == pytest.approx(share, rel=0.01)
    assert sum(float(line[1].removesuffix(" %")) for line in lines) == pytest.approx(100, abs=0.5)
    two_groups.execute("ALTER TABLE t RENAME TO hidden")
    assert report(two_groups, "one", tmp_path / "p.html")[0] == text


def test_the_rules_of_then_are_on_the_page(tmp_path):
    con = duckdb.connect()
    dpsql.load(con, store=str(tmp_path), progress=False)
    con.execute("CREATE TABLE stays AS SELECT i % 40 AS first, i % 40 + i % 9 AS last, ['<a>', 'b'][1 + i % 2] AS ward FROM range(900) t(i)")
    con.execute("CALL dp_protect('stays', epsilon := 9, delta := 1e-9)")
    for column in ("first", "last"):
        con.execute(f"CALL dp_declare('stays', '{column}', lower := 0, upper := 50, bins := 5, nullable := false)")
    con.execute("CALL dp_declare('stays', 'ward', categories := ['<a>', 'b'], nullable := false)")
    bought = "FROM dp_synthesize('stays', epsilon := 1, release := '{}', options := {{'classes': 4, 'steps': 20}})"
    con.execute(bought.format("without"))
    rules = {'"last" >= "first"': "rows that break it were repaired", "\"ward\" <> '<a>' OR \"first\" < 51": "every value"}
    for rule in rules:
        con.execute("FROM dp_rule('stays', ?)", [rule])
    con.execute(bought.format("with"))
    con.execute("FROM dp_rule('stays', ?, remove := true)", [next(iter(rules))])
    con.execute("FROM dp_marginals('stays', columns := ['ward', 'first'], epsilon := 0.1, release := 'tables')")
    _, page = report(con, "with", tmp_path / "with.html")
    (shown,) = page.rows_of("Rule", "How it is kept")
    assert {rule for rule, _ in shown} == set(rules)  # as they were bought, whatever was taken back since
    assert all(rules[rule] in kept for rule, kept in shown)
    for release in ("without", "tables"):
        text, page = report(con, release, tmp_path / f"{release}.html")
        assert page.rows_of("Rule") == [] and "Rules that rows obey" not in text
