"""Tables of attached databases: what their tests share. They need DuckDB's extensions.

An extension is found where DuckDB has it, or in a package of it (``duckdb-extension-postgres-scanner``).
"""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.engines.attached.reader import AttachedReader
from dpsql.engines.remote import Remote

ROWS = 3000
EPSILON = 50.0  # counts are off by less than 5 with a probability beyond 1 - 1e-9, by the tails of the discrete Gaussian


def load(con, extension):
    """Load an extension, from where DuckDB keeps it or from a package; skip where there is none."""
    try:
        con.execute(f"LOAD {extension}")
    except duckdb.Error:
        packages = [importlib.util.find_spec(name) for name in (f"duckdb_extension_{extension}", "duckdb_ext")]
        version = con.execute("SELECT version()").fetchone()[0]
        folders = [Path(folder) for spec in packages if spec for folder in spec.submodule_search_locations or ()]
        found = sorted(path for folder in folders for path in folder.rglob(f"{version}/**/{extension}.duckdb_extension"))
        if not found:
            pytest.skip(f"there is no extension {extension} for DuckDB {version}")
        con.execute(f"LOAD '{found[0]}'")


@contextmanager
def opened(instance):
    """Give a database of its own in an instance that has loaded an extension, which takes longer than a test."""
    con = instance.cursor()
    con.execute("ATTACH ':memory:' AS here; USE here")
    dpsql.load(con, progress=False)
    try:
        yield con
    finally:
        con.execute("USE memory")
        for (name,) in con.execute("SELECT database_name FROM duckdb_databases() WHERE database_name IN ('here', 'pg', 'lake')").fetchall():
            con.execute(f"DETACH {name}")
        con.close()


def protect(con, relation, name="people"):
    con.execute(f"CALL dp_remote('{name}', engine := 'duckdb', relation := '{relation}')")
    con.execute(f"CALL dp_protect('{name}', epsilon := 300, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    con.execute(f"CALL dp_declare('{name}', 'sex', categories := ['f', 'm'])")
    con.execute(f"CALL dp_declare('{name}', 'age', lower := 0, upper := 100, bins := 10)")


def counts(con, name="people", release="first"):
    rows = con.execute(f"FROM dp_marginals('{name}', columns := ['sex'], epsilon := {EPSILON}, release := '{release}')").fetchall()
    return {row[0]: row[1] for row in rows}


def charges(con):
    return con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


def raw(con, relation, columns):
    """Return what a reader takes for the rows, through the very SELECT that it puts into statements."""
    reader = reader_of(con, relation, columns)
    return reader.cursor.execute(reader.rows).fetchall()


def reader_of(con, relation, columns, unit=None):
    """Return what reads a relation where statements name "m"."s"."t"."""
    return AttachedReader(con.cursor(), Remote("duckdb", "", relation), '"m"."s"."t"', columns, unit, lambda files: None)


def check_answers(con):
    """Count by groups, over a public table, and over the table beside itself."""
    found = counts(con)
    assert abs(found["f"] - ROWS / 2) < 5
    assert abs(found["m"] - ROWS / 2) < 5
    con.execute("CREATE TABLE groups (k VARCHAR PRIMARY KEY); INSERT INTO groups VALUES ('k0'), ('k1'), ('k2')")
    con.execute("CALL dp_declare('people', 'k', categories := ['k0', 'k1', 'k2'])")
    text = "SELECT k, count(*) AS n FROM people JOIN groups USING (k) WHERE age >= 50 AND sex < ''z'' GROUP BY k"
    rows = con.execute(f"FROM dp_query('{text}', epsilon := {EPSILON})").fetchall()
    assert all(abs(n - ROWS / 6) < 5 for key, n in rows if key is not None)
    assert {key for key, _ in rows} >= {"k0", "k1", "k2"}
    local = "SELECT count(*) FROM (SELECT a.id FROM people a JOIN people b USING (id)) WHERE id > 0"
    assert abs(con.execute(f"FROM dp_query('{local}', epsilon := {EPSILON})").fetchone()[0] - ROWS) < 5
