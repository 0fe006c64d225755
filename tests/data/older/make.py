"""Write a database of this version of dpsql, its release store and an exported release."""

import json
import pathlib
import shutil
import sys

import duckdb

import dpsql

out = pathlib.Path(sys.argv[1])
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
con = duckdb.connect()
con.execute(f"ATTACH '{out}/older.duckdb' AS older (BLOCK_SIZE 16384)")
con.execute("USE older")
dpsql.load(con, store=out / "store")
con.execute(
    "CREATE TABLE people AS SELECT i AS person, (CASE WHEN i%3=0 THEN 'f' WHEN i%7=0 THEN NULL ELSE 'm' END) AS sex, (i*37)%90 AS age, DATE '2020-01-01' + (i%300)::INTEGER AS day, 'w'||(i%6) AS word FROM range(400) t(i)"
)
con.execute("CREATE TABLE visits AS SELECT i%100 AS patient, (i%4)::VARCHAR AS ward FROM range(300) t(i)")
con.execute("CALL dp_protect('people', epsilon := 20, delta := 1e-9)")
con.execute(
    "CALL dp_protect('visits', epsilon := 5, delta := 1e-9, neighbors := 'add_remove', privacy_unit := 'patient', max_contributions := 3)"
)
con.execute("CALL dp_declare('people', 'sex', categories := ['f','m'])")
con.execute("CALL dp_declare('people', 'age', lower := 0, upper := 90, bins := 9)")
con.execute("CALL dp_declare('people', 'day', lower := '2020-01-01', upper := '2021-01-01', bins := 4)")
con.execute("CALL dp_declare('visits', 'ward', categories := ['0','1','2','3'])")
CALLS = [
    "FROM dp_marginals('people', columns := ['sex'], epsilon := 1.0)",
    "FROM dp_marginals('people', columns := ['sex', 'age', 'day'], k := 2, epsilon := 1.0, release := 'pairs', mechanism := 'laplace')",
    "FROM dp_synthesize('people', columns := ['sex', 'age', 'day'], epsilon := 1.0, rows := 5, seed := 1, release := 'lc')",
    "FROM dp_synthesize('people', columns := ['sex', 'age', 'day'], method := 'gaussian_copula', epsilon := 1.0, rows := 5, seed := 1, release := 'gc')",
    "FROM dp_synthesize('people', columns := ['sex'], method := 'perturbed_histogram', epsilon := 1.0, rows := 5, seed := 1, release := 'ph')",
    "FROM dp_aggregates('people', columns := ['sex', 'age'], reporting_length := 2, epsilon := 1.0, release := 'tuples')",
    "FROM dp_histogram('people', column_name := 'word', epsilon := 1.0)",
    "FROM dp_histogram('people', column_name := 'word', epsilon := 1.0, domain := ['w1','w2','zz'], release := 'weak')",
    "FROM dp_marginals('SELECT ward FROM visits WHERE patient < 50', epsilon := 0.5)",
]
answers = {}
for c in CALLS:
    try:
        rows = con.execute(c).fetchall()
    except duckdb.Error:
        c2 = c.replace("column_name := ", '"column" := ')
        rows = con.execute(c2).fetchall()
        c = c2
    answers[c] = [[v if isinstance(v, (int, float, str, type(None), list)) else str(v) for v in row] for row in rows]
name = con.execute("SELECT release FROM dp_releases() WHERE release LIKE '%pairs%'").fetchone()[0]
con.execute(f"FROM dp_export('{name}', '{out}/exported.dpsql.parquet')")
budget = [
    [str(v) for v in r] for r in con.execute("SELECT source, epsilon, delta, epsilon_spent FROM dp_budget() ORDER BY 1").fetchall()
]
ledger = con.execute("SELECT source, entry, action, hash FROM dpsql.ledger ORDER BY 1,2").fetchall()
(out / "answers.json").write_text(json.dumps({"answers": answers, "budget": budget, "ledger": ledger}, indent=1, default=str))
con.close()
print(sorted((str(p.relative_to(out)), p.stat().st_size) for p in out.rglob("*") if p.is_file()))
