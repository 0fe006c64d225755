"""Patients, their visits, and the procedures of those: one budget for all rows of a person, queries along links, a copy of all."""

import duckdb

import dpsql

con = duckdb.connect()
con.execute(
    """
    CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex IN ('f', 'm')), born INTEGER NOT NULL);
    CREATE TABLE visits (
        visit_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (patient_id),
        ward VARCHAR NOT NULL, cost INTEGER
    );
    CREATE TABLE procedures (visit_id INTEGER NOT NULL REFERENCES visits (visit_id), code VARCHAR NOT NULL);
    INSERT INTO patients SELECT i, CASE WHEN i % 5 < 3 THEN 'f' ELSE 'm' END, 1930 + i * 7 % 90 FROM range(20_000) t(i);
    INSERT INTO visits  -- a patient goes to one ward again and again; older ones more often
        SELECT 10 * patient_id + v, patient_id, CASE WHEN patient_id % 4 = 0 THEN 'surgery' ELSE 'general' END,
            CASE WHEN patient_id % 4 = 0 THEN 500 ELSE 60 END + (patient_id * 31 + v * 17) % 100
        FROM patients, range(5) t(v) WHERE v < (CASE WHEN born < 1960 THEN 4 ELSE 2 END);
    INSERT INTO procedures
        SELECT visit_id, CASE WHEN ward = 'surgery' AND p = 0 THEN 'operation' ELSE 'blood test' END
        FROM visits, range(3) t(p) WHERE p < 1 + visit_id % 2;
    """
)
dpsql.load(con)

# The custodian, once: whose rows the rows are, how many of a person count, what values are possible
for statement in (
    "dp_protect('patients', epsilon := 4, delta := 1e-9, privacy_unit := 'patient_id')",
    "dp_link('visits', max_rows := 5)",  # the FOREIGN KEY says the rest
    "dp_link('procedures', max_rows := 2)",
    "dp_declare('patients', 'born', lower := 1920, upper := 2030, bins := 11)",
    "dp_declare('visits', 'ward', categories := ['general', 'surgery'])",
    "dp_declare('visits', 'cost', lower := 0, upper := 1000, bins := 10)",
    "dp_declare('procedures', 'code', categories := ['blood test', 'operation'])",
):
    con.execute(f"CALL {statement}")
print(con.sql("SELECT source, parent, root, max_rows FROM dp_links()"))

# Three queries over joins: of a child, along two links, and of persons
by_sex = "SELECT sex, count(*) AS n, avg(cost) AS cost FROM visits JOIN patients USING (patient_id) GROUP BY sex ORDER BY sex"
by_ward = (
    "SELECT ward, count(*) AS n FROM procedures JOIN visits USING (visit_id) JOIN patients USING (patient_id) "
    "WHERE code = ''operation'' AND born < 1960 GROUP BY ward ORDER BY ward"
)
frequent = (
    "SELECT count(*) AS patients, avg(n) AS visits FROM "
    "(SELECT p.patient_id, count(v.visit_id) AS n FROM patients p LEFT JOIN visits v USING (patient_id) GROUP BY p.patient_id)"
)
answers = []
for text, more in ((by_sex, ""), (by_ward, ""), (frequent, ", bounds := {'n': [0, 5]}")):
    answers.append(con.execute(f"FROM dp_query('{text}', epsilon := 0.8{more})").fetchall())
    print(con.sql(f"FROM dp_query('{text}', epsilon := 0.8{more})"))  # bought once; asked again, it is free

# The whole database, in one release, and how good the copy is (which only the custodian may see)
print(con.sql("FROM dp_synthesize_tables('patients', epsilon := 2, into_schema := 'synth', seed := 1)"))
summary = (
    "SELECT measure, round(error, 4) AS error, round(independent, 4) AS independent "
    "FROM dp_evaluate('patients', 'synth') WHERE level = 'summary'"
)
print(con.sql(summary))
print(con.sql("SELECT source, epsilon, epsilon_spent, epsilon_left, releases FROM dp_budget()"))

# Noise of 5 visits, or 10 procedures, of a person is below these bounds but for one run in a million
for (sex, n, cost), (_, true_n, true_cost) in zip(answers[0], con.execute(by_sex).fetchall(), strict=True):
    assert abs(n - true_n) < 1500 and abs(cost - true_cost) < 60, (sex, n, true_n, cost, true_cost)
truth = dict(con.execute(by_ward.replace("''", "'")).fetchall())
assert all(abs(n - truth.get(ward, 0)) < 1500 for ward, n in answers[1]), (answers[1], truth)
(patients, visits), (true_patients, true_visits) = answers[2][0], con.execute(frequent).fetchone()
assert abs(patients - true_patients) < 300 and abs(visits - true_visits) < 0.2, answers[2]
errors = {measure: (error, independent) for measure, error, independent in con.execute(summary).fetchall()}
assert errors["orphans"][0] == errors["duplicate keys"][0] == 0
assert errors["fan-out"][0] < 0.1 and errors["siblings"][0] < errors["siblings"][1], errors  # alike, as brothers and sisters are
assert con.execute("SELECT source, releases FROM dp_budget()").fetchall() == [("main.patients", 4)]
