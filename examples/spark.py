"""Rows in a lake that Spark reads: count them there, keep the books here, and let Spark draw the synthetic table."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import duckdb

import dpsql
from dpsql.demo import DECLARE, PROTECT, create_people

try:
    import pyspark  # noqa: F401
except ImportError:
    print("skipped: pyspark is not installed (pip install 'dpsql[spark]')")
    sys.exit()
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    print("skipped: there is no Java, which a local Spark needs (Debian: apt install openjdk-17-jre-headless)")
    sys.exit()

lake = Path(tempfile.mkdtemp())  # what a lakehouse has already: Parquet files of protected rows
with duckdb.connect() as elsewhere:
    create_people(elsewhere, rows=20_000)
    elsewhere.execute(f"COPY people TO '{lake / 'people'}' (FORMAT parquet, PER_THREAD_OUTPUT)")

con = duckdb.connect()  # the books, and an empty table: names and types
dpsql.load(con)
con.execute("CALL dp_remote('people', engine := 'spark', url := 'local[2]', relation := $1)", [f"parquet:{lake / 'people'}"])
for statement in (PROTECT, *DECLARE):
    con.execute(statement)
assert con.execute("SELECT count(*) FROM people").fetchall() == [(0,)]

query = "SELECT education, count(*) AS n FROM people GROUP BY ALL ORDER BY n DESC"
print(con.execute("FROM dp_query($1, epsilon := 0.5)", [query]).fetchall())

# The model is fitted here, to noisy counts; Spark's workers draw the rows and write them.
target = lake / "people_synth"
bought = "dp_synthesize('people', epsilon := 1.0, release := 'first', into_table := $1)"
print(con.execute(f"FROM {bought}", [f"spark:parquet:{target}"]).fetchall())
print(duckdb.sql(f"FROM '{target}/*.parquet' LIMIT 5"))

release = con.execute("SELECT release FROM dp_releases() WHERE contains(release, 'first')").fetchall()[0][0]
page = con.execute("SELECT path, publishable FROM dp_report($1, path := $2)", [release, str(lake / "people.html")]).fetchall()
print("report:", page)

rows = duckdb.execute(f"SELECT count(*) FROM '{target}/*.parquet'").fetchone()[0]
assert abs(rows - 20_000) < 500, "the synthetic table has another size than it should"
assert con.execute("SELECT releases FROM dp_budget('people')").fetchall() == [(2,)]
con.close()
shutil.rmtree(lake)
