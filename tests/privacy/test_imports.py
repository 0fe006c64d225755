"""Files that somebody made by hand: never in the place of what was bought, and never more work than they are worth."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.kinds import measures
from dpsql.release import identity
from dpsql.release.contents import fingerprint
from dpsql.release.plan import Plan

pytestmark = pytest.mark.any_duckdb

CALL = "FROM dp_synthesize('people', columns := ['sex', 'member'], method := 'perturbed_histogram', epsilon := 1, release := 'official')"


@functools.cache
def writer() -> duckdb.DuckDBPyConnection:
    """A database of its own for what somebody made by hand: opening one takes longer than writing a file."""
    return duckdb.connect()


def write(path: Path, manifest: Any, frame: pd.DataFrame) -> Path:
    con = writer()
    text = json.dumps(manifest) if not isinstance(manifest, str) else manifest
    quoted = text.replace("'", "''")
    con.register("frame", frame)
    path.unlink(missing_ok=True)
    con.execute(f"COPY (SELECT * FROM frame) TO '{path}' (FORMAT parquet, KV_METADATA {{dpsql: '{quoted}'}})")
    con.unregister("frame")
    return path


def forged(path: Path, name: str, charge: str, plan: dict[str, Any], count: int = 12345) -> Path:
    """A release of anything, with the hash of a charge that everybody can read off the ledger."""
    parsed = Plan.from_json(plan)
    flat = np.full(parsed.cells, count, dtype=np.int64)
    lengths = parsed.lengths
    frame = pd.DataFrame(
        {
            "tbl": np.repeat(np.arange(len(lengths)), lengths).astype(np.int32),
            "cell": np.concatenate([np.arange(n) for n in lengths]).astype(np.int64),
            "n": flat,
        }
    )
    manifest = {
        "format": 1, "release": name, "source": "main.people", "operation": "synthesize", "query": "main.people", "parameters": {},
        "neighbors": "add_remove", "privacy_unit": None, "max_contributions": 1, "accountant": "zcdp",
        "charge": {"hash": charge, "rho": "0.01", "epsilon": "1", "delta": "1e-9", "events": []}, "total": None, "notes": [],
        "created": "2020-01-01T00:00:00+00:00", "versions": {}, "sha256": fingerprint(flat), "plan": plan,
    }
    return write(path, manifest, frame)


def charged(con: duckdb.DuckDBPyConnection) -> tuple[str, str, dict[str, Any]]:
    name, found, plan = con.execute("SELECT release, hash, plan FROM dpsql.ledger WHERE action = 'charge'").fetchone()
    return name, found, json.loads(plan)


@pytest.mark.parametrize("state", ["charged", "stored", "failed"])
def test_an_import_never_stands_where_a_purchase_stands(con, tmp_path, monkeypatch, state):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt if state == "charged" else ValueError

    with monkeypatch.context() as patch:
        if state != "stored":
            patch.setattr(measures, "measure", stop)
        with contextlib.suppress(KeyboardInterrupt, dpsql.ReleaseError):
            dpsql.synthesize(con, "people", columns=["sex", "member"], method="perturbed_histogram", epsilon=1.0, release="official")
    assert con.execute("SELECT status FROM dp_releases()").fetchall() == [(state,)]
    name, charge, plan = charged(con)
    file = forged(tmp_path / "evil.parquet", name, charge, plan)
    with pytest.raises(duckdb.Error, match="in whose place an imported file never stands"):
        con.execute(f"FROM dp_import('{file}')")
    # Put there by hand, or by an import of an older dpsql: not shown either.
    folder = tmp_path / "people.duckdb.dpsql"
    for place in (folder, identity.imports_of(folder)):
        place.mkdir(exist_ok=True)
        target = identity.path_of(place, name, charge)
        kept = target.read_bytes() if target.exists() else None
        target.write_bytes(file.read_bytes())
        for shown in (name, "official"):
            try:
                found = con.execute("SELECT count(*) FROM dp_sample(?)", [shown]).fetchone()
                assert state == "stored"
                assert found[0] < 5000
            except duckdb.Error as error:
                assert any(text in str(error) for text in ("not finished", "final result", "not the release that the ledger knows"))
        if kept is not None:
            target.write_bytes(kept)
    if state != "failed":
        assert len(con.execute(CALL).fetchall()) < 5000


def test_a_file_with_other_labels_and_the_same_counts_is_not_the_purchase(con, tmp_path):
    con.execute(CALL)
    name, charge, _ = charged(con)
    path = identity.path_of(tmp_path / "people.duckdb.dpsql", name, charge)
    frame = duckdb.connect().execute(f"FROM '{path}'").df()
    ((text,),) = duckdb.connect().execute(f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'").fetchall()
    manifest = json.loads(text)
    manifest["plan"]["domain"][0]["categories"].reverse()
    write(path, manifest, frame)
    for call in (CALL, f"FROM dp_sample('{name}')", f"FROM dp_report('{name}', path := '{tmp_path / 'r.html'}')"):
        with pytest.raises(duckdb.Error, match="its plan was edited"):
            con.execute(call)
    assert "cannot be read" in con.execute("SELECT notes FROM dp_releases()").fetchone()[0][0]


def test_an_import_cannot_make_the_name_of_a_purchase_mean_two_things_nor_lend_it_a_model(con, tmp_path):
    con.execute(CALL)
    name, charge, plan = charged(con)
    real = con.execute(f"SELECT sex, count(*) FROM dp_sample('{name}', rows := 500) GROUP BY 1 ORDER BY 1").fetchall()
    other = copy.deepcopy(plan)
    other["domain"][1] = {**other["domain"][1], "nullable": not other["domain"][1]["nullable"]}
    con.execute(f"FROM dp_import('{forged(tmp_path / 'evil.parquet', 'people-synthesize-official-00000000', charge, plan, 7)}')")
    assert con.execute("SELECT count(*) FROM dp_sample('people-synthesize-official-00000000', rows := 10)").fetchone() == (10,)
    for shown in ("official", name):
        assert con.execute(f"SELECT sex, count(*) FROM dp_sample('{shown}', rows := 500) GROUP BY 1 ORDER BY 1").fetchall() == real
    assert (tmp_path / "people.duckdb.dpsql" / "imported").is_dir()


def test_what_an_older_dpsql_imported_is_still_found(con, tmp_path):
    con.execute(CALL)
    name, charge, plan = charged(con)
    store = tmp_path / "people.duckdb.dpsql"
    file = forged(tmp_path / "old.parquet", "elsewhere-synthesize-x-00000000", charge, plan, 9)
    identity.path_of(store, "elsewhere-synthesize-x-00000000", charge).write_bytes(file.read_bytes())
    con.execute(f"FROM dp_import('{file}')")  # said again
    assert not identity.imports_of(store).exists()
    assert con.execute("SELECT count(*) FROM dp_sample('x', rows := 5)").fetchone() == (5,)


BAD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**63, 10**400, 1e308, "1e999999999", "1e-999999999", "1/0", "nan", "", "x", "'); DROP TABLE people; --", "NULL",
    [], [[]], [10**9] * 3, [[0, 0]], [[-1]], [["1e400", 1]], [["1", 10**18]], {}, {"all_of_order": [3]}, {"all_of_order": [10**9]}, {"x": None},
    "STRUCT(a INTEGER)[]", "ENUM('a')", "DECIMAL(99, 98)", [1.5, float("nan")], float("inf"),
)


def places(item: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a manifest."""
    inner = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    return [at, *(way for key, value in inner for way in places(value, (*at, key)))]


def changed(manifest: Any, way: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(manifest)
    inside = made
    for key in way[:-1]:
        inside = inside[key]
    if value is BAD:
        del inside[way[-1]]
    else:
        inside[way[-1]] = value
    return made


@pytest.mark.parametrize("kind", ["tables", "drawn", "open", "sparse"])
def test_mutated_manifests_are_read_or_refused(tmp_path, kind):
    con = duckdb.connect()
    make_people(con, 200)
    dpsql.load(con, store=tmp_path / "store", progress=False)
    protect_people(con, epsilon=20.0)
    call = {
        "tables": "dp_synthesize('people', epsilon := 1)",
        "drawn": "dp_synthesize('people', columns := ['sex'], method := 'perturbed_histogram', epsilon := 1)",
        "open": "dp_histogram('people', 'region', epsilon := 3)",
        "sparse": "dp_aggregates('people', reporting_length := 2, epsilon := 2)",
    }[kind]
    con.execute(f"FROM {call}")
    (path,) = (tmp_path / "store").glob("*.parquet")
    con.close()
    frame = duckdb.connect().execute(f"FROM '{path}'").df()
    ((text,),) = duckdb.connect().execute(f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'dpsql'").fetchall()
    manifest = json.loads(text)
    rng = random.Random(17)
    here = duckdb.connect()
    dpsql.load(here, store=tmp_path / "other", progress=False)
    here.execute(f"FROM dp_import('{write(tmp_path / 'same.parquet', manifest, frame)}')")
    ways = [way for way in places(manifest) if way]
    outcomes = {"read": 0, "refused": 0}
    texts = ["{", "[" * 100_000, '{"format": 1, "release": NaN}', "null", "[]", '{"format": 1}', '{"format": 1e999}']
    mutants = [*texts, *(changed(manifest, rng.choice(ways), rng.choice((BAD, *BAD))) for _ in range(70))]
    for mutant in mutants:
        made = mutant if isinstance(mutant, str) else json.dumps(mutant)
        try:
            here.execute(f"FROM dp_import('{write(tmp_path / 'm.parquet', made, frame)}')").fetchall()
            outcomes["read"] += 1
        except duckdb.Error as error:
            assert "ReleaseError" in str(error) or "another file is there" in str(error), (made[:2000], str(error)[:300])
            outcomes["refused"] += 1
    assert outcomes["refused"] > 20
    here.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.assign(n=f.n.astype(float)),
        lambda f: f.assign(n=f.n.astype(str)),
        lambda f: f.assign(n=f.n.astype("Int64").where(f.n.index > 0)),
        lambda f: f.iloc[:-1],
        lambda f: pd.concat([f, f]),
        lambda f: f.drop(columns="cell"),
        lambda f: f.assign(n=np.int64(-(2**63))),
        lambda f: f.assign(tbl=f.tbl + 1_000_000),
    ],
)
def test_mutated_counts_are_refused(con, tmp_path, change):
    con.execute(CALL)
    name, charge, plan = charged(con)
    frame = duckdb.connect().execute(f"FROM '{identity.path_of(tmp_path / 'people.duckdb.dpsql', name, charge)}'").df()
    good = forged(tmp_path / "good.parquet", "p-synthesize-x-00000000", charge, plan)
    ((text,),) = duckdb.connect().execute(f"SELECT decode(value) FROM parquet_kv_metadata('{good}') WHERE decode(key) = 'dpsql'").fetchall()
    bad = write(tmp_path / "bad.parquet", json.loads(text), change(frame))
    with pytest.raises(duckdb.Error, match="ReleaseError"):
        con.execute(f"FROM dp_import('{bad}')")
