"""From a raw table to a synthetic one, in SQL; ends with the number that matters."""

import duckdb

import dpsql
from dpsql.demo import DECLARE, PROTECT, create_people

con = duckdb.connect()
create_people(con, rows=20_000)
dpsql.load(con)
for statement in (PROTECT, *DECLARE):
    con.execute(statement)

con.execute("CREATE TABLE people_synth AS FROM dp_synthesize('people', epsilon := 1.0)")
print(con.sql("FROM people_synth LIMIT 5"))

errors = con.execute("SELECT k, tvd FROM dp_evaluate('people', 'people_synth')").fetchall()
print("mean total variation distance:", {k: round(tvd, 4) for k, tvd in errors})

# A question that the synthetic table answers: mean income by education, against the truth.
query = "SELECT education, avg(income) FROM {} WHERE income IS NOT NULL GROUP BY 1 ORDER BY 1"
truth = dict(con.execute(query.format("people")).fetchall())
synthetic = dict(con.execute(query.format("people_synth")).fetchall())
for level, mean in truth.items():
    print(f"{level:12} {mean:10,.0f} {synthetic[level]:10,.0f}")

assert dict(errors)[2] < 0.10, "the two-way tables are further off than they should be"
assert con.execute("SELECT releases FROM dp_budget('people')").fetchone() == (1,)
con.close()
