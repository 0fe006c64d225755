"""Aggregate queries, answered privately: what they cost, are made of, and give for free; ends with the number that matters."""

import duckdb

import dpsql
from dpsql.demo import DECLARE, PROTECT, create_people

con = duckdb.connect()
create_people(con, rows=20_000)
dpsql.load(con)
for statement in (PROTECT, *DECLARE):
    con.execute(statement)

QUERY = """
SELECT education, count(*) AS people, avg(income) AS income, median(age) AS age
FROM people GROUP BY education ORDER BY income DESC
"""
print(con.sql(f"SELECT measures, affordable, epsilon_left_after FROM dp_plan($${QUERY}$$, epsilon := 0.5)"))
answer = dpsql.query(con, QUERY, epsilon=0.5, confidence=0.95, release="by education")
print(answer)
print(con.sql("FROM dp_explain('by education')"))

# Other arithmetic, HAVING, ORDER BY and intervals are computed from what was bought: no epsilon, no charge.
SHARES = "SELECT education, round(count(*) / sum(count(*)) OVER (), 3) AS share FROM people GROUP BY ALL ORDER BY share DESC"
print(dpsql.query(con, SHARES))
assert con.execute("SELECT releases FROM dp_budget('people')").fetchall() == [(1,)], "something was charged twice"

truth = dict(con.execute("SELECT education, avg(income) FROM people GROUP BY education").fetchall())
found = con.execute(f"SELECT education, people, income FROM dp_query($${QUERY}$$, release := 'by education')").fetchall()
errors = {level: abs(income / truth[level] - 1) for level, people, income in found if people > 2000}
print("relative errors of the mean incomes of large groups:", {level: round(error, 4) for level, error in errors.items()})

assert max(errors.values()) < 0.5, "mean incomes are further off than they should be"
con.close()
