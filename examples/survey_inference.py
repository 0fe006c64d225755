"""Inference from several synthetic tables of one release: the mean of a column with its interval, in SQL."""

import duckdb

import dpsql

con = duckdb.connect()
con.execute(
    "CREATE TABLE survey AS SELECT i AS person, (400 + 200 * sin(i * 12.9898) + i % 100)::INTEGER AS income FROM range(4000) t(i)"
)
dpsql.load(con)
con.execute("CALL dp_protect('survey', epsilon := 10, delta := 1e-9, neighbors := 'replace_one')")
con.execute("CALL dp_declare('survey', 'income', lower := 0, upper := 1000, bins := 20, nullable := false)")

# Ten synthetic tables for epsilon = 5 in total
con.execute("CREATE TABLE synth AS FROM dp_synthesize('survey', method := 'modips', epsilon := 5, options := {'sets': 10})")
con.execute(
    "CREATE TABLE estimates AS SELECT set, avg(income) AS estimate, var_samp(income) / count(*) AS variance FROM synth GROUP BY set"
)
print(con.sql("FROM dp_combine((SELECT list(e) FROM estimates e))"))

estimate, lower, upper = con.execute("SELECT estimate, lower, upper FROM dp_combine((SELECT list(e) FROM estimates e))").fetchone()
truth = con.execute("SELECT avg(income) FROM survey").fetchone()[0]
assert lower < estimate < upper
assert abs(estimate - truth) < 15, (estimate, truth)
assert con.execute("SELECT releases FROM dp_budget('survey')").fetchone() == (1,)
