"""Two databases that differ in one row look the same, byte for byte, wherever no noise was added.

The noise is replaced by one that ignores the counts. Whatever still differs between the two databases (a message, a plan,
a ledger entry, a file and its length) would be a leak that no noise covers.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sample_tables import DELTA, make_people

import dpsql
from dpsql.kinds.tuples import measure as measuring
from dpsql.mechanisms import stable_selection, weak_domain

CALLS = [
    "CALL dp_protect('people', epsilon := 2.0, delta := 1e-9)",
    "CALL dp_declare('people', 'age', lower := 18, upper := 78, bins := 6)",
    "CALL dp_declare('people', 'region', categories := ['north', 'south'])",
    "CALL dp_declare('people', 'joined', lower := '2000-01-01', upper := '2010-01-01', bins := 5, outside := 'drop')",
    "CALL dp_rule('people', 'age >= 20 OR region = ''north''')",
    "CALL dp_rule('people', 'age > 200')",
    "CALL dp_rule('people', 'region <> ''north'' AND age < 20')",
    "FROM dp_domain('people')",
    "FROM dp_dummy('people', rows := 200)",
    "FROM dp_plan('people', epsilon := 1.0)",
    "EXPLAIN FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 30})",
    "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 30})",
    "FROM dp_marginals('people', k := 2, epsilon := 0.3)",
    "FROM dp_marginals('SELECT region, sex FROM people WHERE age > 40', k := 1, epsilon := 0.3)",
    "FROM dp_synthesize('people', method := 'laplace_sanitizer', columns := ['region'], epsilon := 0.05)",
    "FROM dp_synthesize('people', method := 'dp_prior', columns := ['region'], epsilon := 0.05)",
    "FROM dp_synthesize('people', method := 'poisson_gamma', columns := ['region'], epsilon := 0.05)",
    "FROM dp_synthesize('people', method := 'dpcopula_kendall', columns := ['region', 'age'], epsilon := 0.05)",
    "FROM dp_aggregates('people', reporting_length := 3, epsilon := 0.05)",
    "FROM dp_aggregates('people', reporting_length := 2, epsilon := 0.05, options := {'empty': true}, release := 'sparse')",
    "FROM dp_aggregates('people', reporting_length := 2, epsilon := 0.05, options := {'multi_value_columns': {'region': ';'}}, release := 'split')",
    "FROM dp_sample('sparse', rows := 50)",
    "FROM dp_histogram('people', 'region', epsilon := 0.05, domain := ['north', 'the moon'])",
    "FROM dp_histogram('people', 'region', epsilon := 0.05, release := 'open')",
    "FROM dp_plan('people', columns := ['region'], method := 'stable_selection', epsilon := 0.05, release := 'open')",
    "CALL dp_declare('people', 'region', discover := true, epsilon := 0.05)",
    "FROM dp_plan('people', epsilon := 0.5, release := 'later')",
    "FROM dp_synthesize('people', epsilon := 2.0, release := 'too much')",
    "FROM dp_synthesize('people', epsilon := 0.9)",
    "FROM dp_marginals('SELECT CAST(region AS INTEGER) AS age FROM people', k := 1, epsilon := 0.01)",
    "FROM dp_marginals('SELECT count(*) AS age FROM people', k := 1, epsilon := 0.01)",
    "CALL dp_declare('people', 'person', categories_from := 'people.person')",
    "CALL dp_protect('people', epsilon := 0.001, delta := 1e-9)",
    "SELECT * EXCLUDE (written_at, previous, hash) FROM dp_ledger()",
    "FROM dp_budget()",
    "SELECT * EXCLUDE (charged_at) FROM dp_releases()",
]
TIMES = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|(?<!numbers \(SHA-256\)</dt><dd>)[0-9a-f]{64}"
"""What a page shows of the time; the hash of an entry holds it too, and that of the released numbers does not."""
ODD_ROW = "INSERT INTO people VALUES (777, 99, 'm', 'the moon', true, DATE '2031-05-05')"


def observe(folder: Path, caplog: pytest.LogCaptureFixture, extra: str | None, calls: list[str] = CALLS) -> dict[str, Any]:
    folder.mkdir()
    path = folder / "people.duckdb"
    con = duckdb.connect(str(path))
    make_people(con)
    if extra:
        con.execute(extra)
    dpsql.load(con, user="tester")
    seen: dict[str, Any] = {}
    with caplog.at_level(logging.DEBUG):
        for call in calls:
            try:
                seen[call] = con.execute(call).fetchall()
            except duckdb.Error as error:
                seen[call] = str(error)
        for release in ("sparse", "split", "open") if calls is CALLS else ():
            con.execute("FROM dp_report(?, path := ?)", [release, str(folder / f"{release}.html")]).fetchall()
            page = (folder / f"{release}.html").read_text(encoding="utf-8")
            seen[f"{release}.html"] = re.sub(TIMES, "", page)
    con.close()
    seen["log"] = caplog.text
    caplog.clear()
    for file in sorted((folder / "people.duckdb.dpsql").rglob("*")):
        if file.is_file():
            content = re.sub(rb'"(created|hash)": "[^"]*"', b"", file.read_bytes())
            seen[re.sub(r"\.([0-9a-f]{16}|[0-9a-f]{24})\.", ".charge.", file.name)] = content  # the hash of an entry holds its time
    return seen


def test_nothing_but_the_noisy_counts_depends_on_a_row(tmp_path, caplog, monkeypatch, capfd):
    from dpsql.noise import discrete

    def blind(counts: np.ndarray, mechanism: str, scale: Any) -> np.ndarray:
        return np.arange(counts.size, dtype=np.int64).reshape(counts.shape) % 7

    monkeypatch.setattr(discrete, "add_noise", blind)
    monkeypatch.setattr(measuring, "private_percentile", lambda histogram, *_: 2)
    for mechanism, name in ((weak_domain, "release"), (stable_selection, "select")):
        monkeypatch.setattr(mechanism, name, lambda *_: [("north", 7), ("south", 5)])
    less = "DELETE FROM people WHERE person = 3 AND age = (SELECT min(age) FROM people WHERE person = 3)"
    seen = []
    for folder, row in (("one", None), ("other", ODD_ROW), ("less", less)):  # one line of code for all: DuckDB 1.x quotes it
        seen.append(observe(tmp_path / folder, caplog, row) | {"printed": str(capfd.readouterr())})
    one, *others = seen
    assert sum(name.endswith(".parquet") for name in one) >= 5
    for operation in ("histogram", "discover", "synthesize-region", "aggregates-default", "aggregates-sparse", "aggregates-split"):
        assert any(f"people-{operation}" in name for name in one), operation
    for other in others:
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert scrub(value) == scrub(other[name]), name


def scrub(value: Any) -> Any:
    """Remove what may differ: the folder of the run."""
    if isinstance(value, str):
        return re.sub(r"/\S*/(one|other|less)/", "", value)
    if isinstance(value, bytes):
        return re.sub(rb"/[^\s\"]*/(one|other|less)/", b"", value)
    return re.sub(r"/\S*/(one|other|less)/", "", repr(value))


@pytest.mark.any_duckdb
def test_the_comparison_can_fail(tmp_path, caplog, monkeypatch):
    """With noise that keeps the counts, the two databases must look different, in rows, in tables and in files."""
    from dpsql.noise import discrete

    monkeypatch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts)
    rows, table = (call for call in CALLS if call.startswith(("FROM dp_synthesize('people', epsilon := 1.0", "FROM dp_marginals('people'")))
    calls = [*CALLS[:3], rows, table]
    one, other = (observe(tmp_path / folder, caplog, extra, calls) for folder, extra in (("one", None), ("other", ODD_ROW)))
    differing = [name for name, value in one.items() if scrub(value) != scrub(other.get(name))]
    assert {rows, table} < {*differing} and any(name.endswith(".parquet") for name in differing)


def test_replace_one_publishes_the_number_of_rows_and_nothing_else(tmp_path):
    con = duckdb.connect()
    make_people(con)
    dpsql.load(con)
    con.execute(f"CALL dp_protect('people', epsilon := 2, delta := {DELTA}, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('people', 'region', categories := ['north', 'south'])")
    assert con.execute("SELECT count(*) FROM dp_synthesize('people', epsilon := 1.0)").fetchone() == (600,)
    filtered = "FROM dp_synthesize('SELECT sex, region FROM people WHERE age > 40', epsilon := 0.5)"
    exact = con.execute("SELECT count(*) FROM people WHERE age > 40").fetchone()[0]
    counts = {con.execute(f"SELECT count(*) {filtered[:-1]}, release := 'r{i}')").fetchone()[0] for i in range(4)}
    assert counts != {exact}
    con.close()
