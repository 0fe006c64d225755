"""Statements over a table ``visits`` whose rows belong to patients, for the tests of unit-local sources.

Privacy status: test data alone.
"""

from __future__ import annotations

COLUMNS = """age INTEGER, cost DOUBLE, day DATE, kind VARCHAR, note VARCHAR COLLATE NOCASE, ok BOOLEAN, price DECIMAL(9, 2),
wide DECIMAL(38, 0), big HUGEINT, ts TIMESTAMP"""
PUBLIC = """
CREATE TABLE region(kind VARCHAR PRIMARY KEY, label VARCHAR);
INSERT INTO region VALUES ('k0', 'zero'), ('k1', NULL), ('k9', 'nine');
CREATE TABLE loose(kind VARCHAR, w INTEGER, low INTEGER, high INTEGER);
INSERT INTO loose VALUES ('k0', 1, 0, 50), ('k0', 2, 40, 60), ('k9', 3, 0, 100), (NULL, 4, 10, 20);
CREATE VIEW per_patient AS SELECT patient, count(*) AS n, max(cost) AS most FROM visits GROUP BY patient;
CREATE VIEW latest AS SELECT DISTINCT ON (patient) patient, kind, day, cost FROM visits ORDER BY day DESC;
"""

EXACT = (
    # GROUP BY
    "SELECT patient, count(*) AS n FROM visits GROUP BY patient",
    "SELECT patient, kind, count(cost) AS n, count(DISTINCT age) AS d FROM visits GROUP BY patient, kind",
    "SELECT patient, kind, count(*) AS n FROM visits GROUP BY 1, 2",
    "SELECT patient AS p, lower(kind) AS k, min(day) AS first_day FROM visits GROUP BY p, k",
    "SELECT patient, max(age) AS a, min(note) AS t FROM visits WHERE age > 3 GROUP BY ALL",
    "SELECT patient, sum(age) AS s, sum(price) AS p, sum(ok) AS o FROM visits GROUP BY patient HAVING count(*) > 1 AND s > 0",
    "SELECT patient, sum(age) FILTER (WHERE ok) AS s, count(*) FILTER (WHERE NOT ok) AS c FROM visits GROUP BY patient",
    "SELECT patient, bool_and(ok) AS a, bool_or(ok) AS o, count_if(age > 40) AS c FROM visits GROUP BY patient",
    "SELECT patient, avg(age) AS a, sum(DISTINCT age) AS s FROM visits GROUP BY patient",
    "SELECT patient, quantile_disc(age, 0.5) AS q, quantile_disc(day, 0.25) AS d FROM visits GROUP BY patient",
    "SELECT patient, max(age) - min(age) AS spread, upper(min(kind)) AS k FROM visits GROUP BY patient",
    "SELECT n, count(*) AS c, patient FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) GROUP BY n, patient",
    "SELECT age // 10 AS decade, count(*) AS n FROM visits GROUP BY patient, age // 10",
    "SELECT CASE WHEN n > 2 THEN 'many' ELSE 'few' END AS c FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient)",
    "SELECT patient, date_trunc('month', day) AS m, count(*) AS n FROM visits GROUP BY patient, m",
    # windows
    "SELECT patient, rank() OVER (PARTITION BY patient ORDER BY age) AS r FROM visits",
    "SELECT patient, dense_rank() OVER (PARTITION BY patient ORDER BY age DESC NULLS FIRST) AS r FROM visits",
    "SELECT patient, percent_rank() OVER (PARTITION BY patient ORDER BY age) AS r, cume_dist() OVER (PARTITION BY patient ORDER BY age) AS c FROM visits",
    "SELECT patient, count(*) OVER (PARTITION BY patient) AS n, sum(age) OVER (PARTITION BY patient, kind) AS s FROM visits",
    "SELECT patient, sum(age) OVER (PARTITION BY patient ORDER BY day) AS running FROM visits",
    "SELECT patient, max(age) OVER (PARTITION BY patient) - age AS below FROM visits",
    "SELECT patient, kind, rank() OVER (PARTITION BY patient ORDER BY sum(age)) AS r FROM visits GROUP BY patient, kind",
    "SELECT patient, kind, sum(sum(age)) OVER (PARTITION BY patient) AS r FROM visits GROUP BY patient, kind",
    "SELECT patient, age FROM visits QUALIFY age = max(age) OVER (PARTITION BY patient)",
    "SELECT patient, count(*) OVER w AS c, min(age) OVER w AS m FROM visits WINDOW w AS (PARTITION BY patient ORDER BY kind)",
    "SELECT patient, count(*) FILTER (WHERE ok) OVER (PARTITION BY patient) AS c FROM visits",
    # DISTINCT and set operations
    "SELECT DISTINCT patient FROM visits",
    "SELECT DISTINCT patient, kind, ok FROM visits",
    "SELECT patient, age FROM visits UNION ALL SELECT patient, age + 1 AS age FROM visits WHERE ok",
    "SELECT patient, kind FROM visits UNION SELECT patient, kind FROM visits",
    "SELECT patient, kind FROM visits EXCEPT SELECT patient, kind FROM visits WHERE age > 50",
    "SELECT patient, kind FROM visits EXCEPT ALL SELECT patient, kind FROM visits WHERE age > 50",
    "SELECT patient, kind FROM visits INTERSECT SELECT patient, kind FROM visits WHERE ok",
    "SELECT patient, kind FROM visits INTERSECT ALL SELECT patient, kind FROM visits WHERE ok",
    "SELECT kind FROM (SELECT patient, kind FROM visits UNION ALL SELECT patient, note FROM visits)",
    # the table with itself
    "SELECT a.age, b.age AS other FROM visits a JOIN visits b ON a.patient = b.patient AND a.age < b.age",
    "SELECT v.age, p.n FROM visits v JOIN per_patient p USING (patient)",
    "SELECT v.age, p.n FROM visits v LEFT JOIN (SELECT patient, n FROM per_patient WHERE n > 2) p ON v.patient = p.patient",
    "SELECT v.age, p.n FROM (SELECT patient, n FROM per_patient WHERE n > 2) p RIGHT JOIN visits v ON v.patient = p.patient",
    "SELECT patient, a.age, b.kind FROM (SELECT patient, age FROM visits WHERE ok) a FULL JOIN (SELECT patient, kind FROM visits WHERE NOT ok) b USING (patient)",
    "SELECT a.age FROM visits a, visits b WHERE a.patient = b.patient AND a.kind = b.kind",
    "WITH x AS (SELECT patient, age FROM visits), y AS (SELECT patient, max(age) AS m FROM x GROUP BY patient) SELECT x.age, y.m FROM x JOIN y ON x.patient = y.patient",
    "SELECT a.age FROM visits a SEMI JOIN (FROM visits WHERE ok) b USING (patient)",
    "SELECT a.age FROM visits a ANTI JOIN (SELECT patient FROM visits WHERE age > 80) b ON a.patient = b.patient",
    # EXISTS and IN
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day)",
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.kind = v.kind AND v.age <> w.age) AND ok",
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day AND w.age <> v.age)",
    "SELECT age FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.age > v.age) AND ok",
    "SELECT age FROM visits WHERE patient IN (SELECT patient FROM visits GROUP BY patient HAVING count(*) > 2)",
    "SELECT age FROM visits v WHERE kind IN (SELECT kind FROM visits w WHERE w.patient = v.patient AND w.ok)",
    "SELECT age FROM visits v WHERE kind NOT IN (SELECT kind FROM visits w WHERE w.patient = v.patient AND w.ok)",
    "SELECT age FROM visits WHERE kind IN (SELECT kind FROM region)",
    "SELECT age FROM visits WHERE kind NOT IN (SELECT kind FROM region)",
    "SELECT age FROM visits v WHERE kind NOT IN (SELECT kind FROM loose l WHERE l.w < v.age)",
    "SELECT age FROM visits v WHERE NOT EXISTS (SELECT 1 FROM loose l WHERE l.kind = v.kind AND v.age BETWEEN l.low AND l.high)",
    # public relations
    "SELECT v.age, l.w FROM visits v JOIN loose l ON v.kind = l.kind",
    "SELECT v.age, l.w FROM visits v LEFT JOIN loose l ON v.age BETWEEN l.low AND l.high",
    "SELECT v.age, l.w FROM loose l JOIN visits v USING (kind) WHERE l.w > 1",
    "SELECT v.age, l.w FROM loose l RIGHT JOIN visits v ON v.kind = l.kind",
    "SELECT v.age, l.w FROM visits v CROSS JOIN loose l",
    "SELECT v.age, l.w FROM visits v, loose l WHERE v.kind = l.kind AND v.age > l.low + 3",
    "SELECT v.age, l.n FROM visits v JOIN (SELECT kind, count(*) AS n FROM loose GROUP BY kind) l ON v.kind = l.kind",
    "SELECT v.age, c.y FROM visits v JOIN (VALUES (1, 'a'), (30, 'b'), (60, NULL)) AS c(x, y) ON v.age > c.x",
    "SELECT r.label, p.n FROM latest v JOIN region r ON v.kind = r.kind JOIN per_patient p ON p.patient = v.patient",
)
"""What the text gives and what the source gives are the same rows, where no patient is NULL and no two rows tie."""

TIED = (
    "SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY age) AS r, cost FROM visits",
    "SELECT cost FROM (SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY day DESC) AS r, cost FROM visits) WHERE r = 1",
    "SELECT patient, cost FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY kind) <= 2",
    "SELECT DISTINCT ON (patient) patient, cost, note FROM visits ORDER BY kind",
    "SELECT DISTINCT ON (patient, kind) kind, cost FROM visits",
    "FROM latest",
    "SELECT patient, lag(cost) OVER (PARTITION BY patient ORDER BY kind) AS l, lead(note, 2, 'none') OVER (PARTITION BY patient) AS m FROM visits",
    "SELECT patient, ntile(2) OVER (PARTITION BY patient ORDER BY kind) AS t, cost FROM visits",
    "SELECT first_value(cost) OVER (PARTITION BY patient ORDER BY kind) AS f, last_value(note) OVER (PARTITION BY patient ORDER BY kind ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM visits",
    "SELECT nth_value(cost, 2) OVER (PARTITION BY patient ORDER BY kind ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING) AS f FROM visits",
    "SELECT patient, sum(age) OVER (PARTITION BY patient ORDER BY kind ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM visits",
    "SELECT patient, arg_max(cost, kind) AS a, arg_min(note, ok) AS b, any_value(cost) AS c, mode(note) AS m FROM visits GROUP BY patient",
    "SELECT patient, mode(cost) AS m, mode(age) AS a, first(day) AS f, last(kind) AS l FROM visits GROUP BY patient",
    "SELECT day - lag(day) OVER (PARTITION BY patient ORDER BY kind) AS gap FROM visits QUALIFY gap IS NOT NULL",
)
"""Where rows tie, the text leaves open what comes out, and the source must not."""

FLOATING = (
    "SELECT patient, sum(cost) AS s, avg(cost) AS a, sum(wide) AS w, sum(big) AS b FROM visits GROUP BY patient",
    "SELECT patient, var_pop(cost) AS a, var_samp(age) AS b, stddev_pop(cost) AS c, stddev(cost) AS d, variance(price) AS e FROM visits GROUP BY patient",
    "SELECT patient, median(cost) AS m, quantile_cont(cost, 0.25) AS q, quantile_cont(age, 0.9) AS r, median(price) AS p FROM visits GROUP BY patient",
    "SELECT patient, sum(cost) OVER (PARTITION BY patient ORDER BY kind) AS s FROM visits",
    "SELECT patient, avg(cost) OVER (PARTITION BY patient ORDER BY kind ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM visits",
    "SELECT patient, stddev_samp(cost) OVER (PARTITION BY patient) AS s, median(cost) OVER (PARTITION BY patient ORDER BY kind) AS m FROM visits",
    "SELECT cost / sum(cost) OVER (PARTITION BY patient) AS share FROM visits",
    "SELECT DISTINCT patient, cost FROM visits",
    "SELECT patient, cost, count(*) AS n FROM visits GROUP BY patient, cost",
    "SELECT patient, cost FROM visits EXCEPT SELECT patient, -cost FROM visits",
    "SELECT patient, min(cost) AS a, max(-cost) AS b, count(DISTINCT cost) AS c, quantile_disc(cost, 0.5) AS q FROM visits GROUP BY patient",
)
"""Of floating-point numbers, whose sums depend on the order of their terms."""

EVERY = (*EXACT, *TIED, *FLOATING)
