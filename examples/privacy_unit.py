"""Several rows per person: the guarantee covers the person, not the row."""

import duckdb

import dpsql

con = duckdb.connect()
con.execute(
    """
    CREATE TABLE visits AS
    SELECT i % 4000 AS patient,
        (CASE WHEN i % 7 < 3 THEN 'fever' WHEN i % 7 < 5 THEN 'injury' ELSE 'check-up' END) AS reason,
        i % 4 = 0 AS admitted
    FROM range(12000) t(i)
    """
)
dpsql.load(con)
con.execute("CALL dp_protect('visits', epsilon := 2, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3)")
con.execute("CALL dp_declare('visits', 'reason', categories := ['fever', 'injury', 'check-up'], nullable := false)")
print(con.sql("FROM dp_contributions('visits', epsilon := 0.2)"))  # how many patients have 1, 2, 3-4, ... rows
plan = "FROM dp_plan('visits', columns := ['reason'], k := 1, epsilon := 1.0)"
print(con.sql(f"SELECT noise_scale, noise_by_contributions, notes {plan}"))
rows = con.execute("FROM dp_marginals('visits', columns := ['reason'], epsilon := 1.0)").fetchall()
truth = dict(con.execute("SELECT reason, count(*) FROM visits GROUP BY 1").fetchall())
for reason, n, low, high in rows:
    print(f"{reason:10} released {n:6} ({low} to {high})  true {truth[reason]:6}")

assert all(abs(n - truth[reason]) < 200 for reason, n, _, _ in rows)
con.close()
