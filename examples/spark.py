"""Rows behind a server of Spark Connect: counted there; books, noise and the synthetic table are here."""

import shutil
import sys
import tempfile
from pathlib import Path

import duckdb

import dpsql
from dpsql.demo import DECLARE, PROTECT, create_people

try:
    from pysail.spark import SparkConnectServer
except ImportError:
    print("skipped: pip install 'dpsql[spark]' pysail")
    sys.exit()

lake = Path(tempfile.mkdtemp())  # what a lakehouse has already: Parquet files of protected rows, and a server
with duckdb.connect() as elsewhere:
    create_people(elsewhere, rows=20_000)
    elsewhere.execute(f"COPY people TO '{lake / 'people'}' (FORMAT parquet, PER_THREAD_OUTPUT)")
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
host, port = server.listening_address

con = duckdb.connect()  # the books, and an empty table: names and types
dpsql.load(con)
dpsql.remote(con, "people", engine="spark", url=f"sc://{host}:{port}", relation=f"parquet:{lake / 'people'}")
for statement in (PROTECT, *DECLARE):
    con.execute(statement)
assert con.execute("SELECT count(*) FROM people").fetchall() == [(0,)]

query = "SELECT education, count(*) AS n FROM people GROUP BY ALL ORDER BY n DESC"
print(con.execute("FROM dp_query($1, epsilon := 0.5)", [query]).fetchall())

# The model is fitted here, to noisy counts; the rows that it draws become files where the source is.
target = lake / "people_synth"
bought = "dp_synthesize('people', epsilon := 1.0, release := 'first', into_table := $1)"
print(con.execute(f"FROM {bought}", [f"spark:parquet:{target}"]).fetchall())

rows = duckdb.execute(f"SELECT count(*) FROM '{target}/*.parquet'").fetchone()[0]
assert abs(rows - 20_000) < 500, "the synthetic table has another size than it should"
assert con.execute("SELECT releases FROM dp_budget('people')").fetchall() == [(2,)]
con.close()
server.stop()
shutil.rmtree(lake)
