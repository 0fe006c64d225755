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
plan = "FROM dp_plan('visits', columns := ['reason'], k := 1, epsilon := 1.0)"
print(con.sql(f"SELECT noise_scale, expected_error_1way, notes {plan}"))
rows = con.execute("FROM dp_marginals('visits', columns := ['reason'], k := 1, epsilon := 1.0)").fetchall()
truth = dict(con.execute("SELECT reason, count(*) FROM visits GROUP BY 1").fetchall())
for _, (reason,), n in rows:
    print(f"{reason:10} released {n:6}  true {truth[reason]:6}")

assert all(abs(n - truth[reason]) < 200 for _, (reason,), n in rows)
con.close()
