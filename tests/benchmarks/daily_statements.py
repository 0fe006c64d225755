"""Two hundred statements that people and charting tools write daily, over visits, orders, web events and a survey.

    python tests/benchmarks/queries.py --daily

Values come from a hash of the row's number: the same every time, and nobody's. An answered statement has DuckDB's columns and types.
"""

from __future__ import annotations

import re

import duckdb

import dpsql

TABLES = """
CREATE TABLE visits AS
SELECT hash(i) % 4000 AS patient_id, ['surgery', 'medicine', 'er', 'maternity'][1 + hash(i, 1) % 4] AS ward, 'c' || hash(i, 2) % 60 AS code,
    (hash(i, 3) % 100)::INTEGER AS age, ['f', 'm'][1 + hash(i, 4) % 2] AS sex, (hash(i, 5) % 20)::INTEGER AS stay,
    (hash(i, 6) % 500000 / 100)::DECIMAL(10, 2) AS cost, DATE '2024-01-01' + (hash(i, 7) % 366)::INTEGER AS day, hash(i, 8) % 5 = 0 AS urgent,
    (hash(i, 9) % 400 / 10 + 15)::DOUBLE AS bmi
FROM range(20000) t(i);
CREATE TABLE wards (ward VARCHAR, building VARCHAR NOT NULL, floor INTEGER, beds INTEGER, opened DATE);
INSERT INTO wards VALUES ('surgery', 'A', 1, 20, '1990-05-01'), ('medicine', 'A', 2, 40, '1985-02-01'), ('er', 'B', 1, 12, '2001-01-01'),
    ('maternity', 'B', 3, 18, '1999-09-09');
CREATE TABLE orders AS
SELECT hash(i) % 3000 AS customer_id, i AS order_id, ['new', 'paid', 'shipped', 'returned'][1 + hash(i, 1) % 4] AS status,
    ['web', 'store', 'phone'][1 + hash(i, 2) % 3] AS channel, (hash(i, 3) % 100000 / 100)::DOUBLE AS amount, (1 + hash(i, 4) % 9)::INTEGER AS quantity,
    TIMESTAMP '2024-01-01' + to_minutes((hash(i, 5) % 525600)::BIGINT) AS created_at, ['de', 'fr', 'it', 'es'][1 + hash(i, 6) % 4] AS country,
    CASE WHEN hash(i, 7) % 4 > 0 THEN (hash(i, 8) % 30)::INTEGER END AS discount
FROM range(20000) t(i);
CREATE TABLE countries (country VARCHAR, name VARCHAR, region VARCHAR, population INTEGER);
INSERT INTO countries VALUES ('de', 'Germany', 'north', 84), ('fr', 'France', 'west', 68), ('it', 'Italy', 'south', 59), ('es', 'Spain', 'south', 48);
CREATE TABLE events AS
SELECT hash(i) % 2500 AS user_id, ['view', 'click', 'cart', 'buy'][1 + hash(i, 1) % 4] AS event, '/page/' || hash(i, 2) % 40 AS path,
    ['mobile', 'desktop', 'tablet'][1 + hash(i, 3) % 3] AS device, TIMESTAMP '2024-06-01' + to_seconds((hash(i, 4) % 7776000)::BIGINT) AS happened_at,
    (hash(i, 5) % 30000)::INTEGER AS duration_ms, ['ads', 'mail', 'direct'][1 + hash(i, 6) % 3] AS source
FROM range(20000) t(i);
CREATE TABLE survey AS
SELECT i AS person, (18 + hash(i, 1) % 70)::SMALLINT AS age, ['north', 'south', 'east', 'west'][1 + hash(i, 2) % 4] AS region,
    (1 + hash(i, 3) % 5)::TINYINT AS satisfied, CASE WHEN hash(i, 4) % 10 > 0 THEN (hash(i, 5) % 8000)::INTEGER END AS income,
    ['none', 'school', 'college'][1 + hash(i, 6) % 3] AS education, hash(i, 7) % 3 = 0 AS smoker, (hash(i, 8) % 60)::INTEGER AS hours
FROM range(8000) t(i);
"""
UNITS = {"visits": "patient_id", "orders": "customer_id", "events": "user_id", "survey": "person"}
DECLARED = {
    "visits": ["'ward', categories := ['surgery', 'medicine', 'er', 'maternity']", "'age', lower := 0, upper := 110", "'sex', categories := ['f', 'm']",
               "'stay', lower := 0, upper := 30", "'cost', lower := 0, upper := 5000", "'day', lower := DATE '2024-01-01', upper := DATE '2024-12-31'",
               "'bmi', lower := 10, upper := 60"],
    "orders": ["'status', categories := ['new', 'paid', 'shipped', 'returned']", "'channel', categories := ['web', 'store', 'phone']",
               "'amount', lower := 0, upper := 1000", "'quantity', lower := 1, upper := 9", "'country', categories := ['de', 'fr', 'it', 'es']",
               "'created_at', lower := TIMESTAMP '2024-01-01', upper := TIMESTAMP '2024-12-31 23:59:59'", "'discount', lower := 0, upper := 30"],
    "events": ["'event', categories := ['view', 'click', 'cart', 'buy']", "'device', categories := ['mobile', 'desktop', 'tablet']",
               "'happened_at', lower := TIMESTAMP '2024-06-01', upper := TIMESTAMP '2024-08-31 23:59:59'", "'duration_ms', lower := 0, upper := 30000",
               "'source', categories := ['ads', 'mail', 'direct']"],
    "survey": ["'age', lower := 18, upper := 90", "'region', categories := ['north', 'south', 'east', 'west']", "'satisfied', lower := 1, upper := 5",
               "'income', lower := 0, upper := 8000", "'education', categories := ['none', 'school', 'college']", "'hours', lower := 0, upper := 60"],
}
STATEMENTS = """
SELECT count(*) FROM visits
SELECT count(*) AS n FROM visits WHERE urgent
SELECT count(1) FROM visits WHERE age >= 65
SELECT count(*) FROM visits WHERE ward = 'er' AND sex = 'f'
SELECT count(*) FROM visits WHERE ward IN ('er', 'surgery')
SELECT count(*) FROM visits WHERE ward NOT IN ('er')
SELECT count(*) FROM visits WHERE age BETWEEN 18 AND 65
SELECT count(*) FROM visits WHERE NOT urgent OR age < 10
SELECT count(*) FROM visits WHERE code LIKE 'c1%'
SELECT count(*) FROM visits WHERE day >= DATE '2024-07-01'
SELECT count(*) FROM visits WHERE day >= DATE '2024-12-31' - INTERVAL '3 months'
SELECT count(*) FROM visits WHERE day >= '2024-03-01' AND day < '2024-04-01'
SELECT count(*) FROM visits WHERE day BETWEEN DATE '2024-01-01' AND DATE '2024-01-31'
SELECT count(*) FROM visits WHERE year(day) = 2024 AND month(day) = 2
SELECT count(DISTINCT patient_id) FROM visits
SELECT count(DISTINCT patient_id) AS patients FROM visits WHERE ward = 'er'
SELECT count(DISTINCT ward) FROM visits
SELECT count(DISTINCT code) FROM visits
SELECT sum(cost) FROM visits
SELECT sum(cost) AS total, avg(cost) AS mean FROM visits
SELECT round(avg(age), 1) AS mean_age FROM visits
SELECT avg(stay) FROM visits WHERE ward = 'surgery'
SELECT min(age), max(age) FROM visits
SELECT median(cost) FROM visits
SELECT quantile_cont(cost, 0.9) AS p90 FROM visits
SELECT quantile_cont(cost, [0.25, 0.5, 0.75]) FROM visits
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY stay) FROM visits
SELECT stddev(bmi), variance(bmi) FROM visits
SELECT corr(age, bmi) FROM visits
SELECT regr_slope(cost, age), regr_intercept(cost, age) FROM visits
SELECT ward, count(*) FROM visits GROUP BY ward
SELECT ward, count(*) AS n FROM visits GROUP BY 1 ORDER BY n DESC
SELECT ward, sex, count(*) FROM visits GROUP BY ward, sex ORDER BY ALL
SELECT ward, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY mean DESC LIMIT 3
SELECT ward, count(*) FROM visits GROUP BY ward HAVING count(*) > 100
SELECT ward, median(stay) FROM visits GROUP BY ward
SELECT ward, count(DISTINCT patient_id) AS patients FROM visits GROUP BY ward
SELECT code, count(*) AS n FROM visits GROUP BY code ORDER BY n DESC LIMIT 10
SELECT upper(ward) AS w, count(*) FROM visits GROUP BY w
SELECT age // 10 * 10 AS decade, count(*) FROM visits GROUP BY decade ORDER BY decade
SELECT floor(age / 5) * 5 AS band, count(*) FROM visits GROUP BY band ORDER BY band
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'old' END AS g, count(*) FROM visits GROUP BY g
SELECT CASE WHEN urgent THEN 'yes' ELSE 'no' END AS u, avg(stay) FROM visits GROUP BY u
SELECT urgent, count(*) FROM visits GROUP BY urgent
SELECT month(day) AS m, count(*) FROM visits GROUP BY m ORDER BY m
SELECT date_trunc('month', day) AS m, sum(cost) FROM visits GROUP BY m ORDER BY m
SELECT date_trunc('week', day) AS w, count(*) FROM visits GROUP BY w ORDER BY w
SELECT CAST(date_trunc('quarter', day) AS DATE) AS q, count(*) FROM visits GROUP BY q ORDER BY q
SELECT strftime(day, '%Y-%m') AS ym, count(*) FROM visits GROUP BY ym ORDER BY ym
SELECT dayname(day) AS d, count(*) FROM visits GROUP BY d
SELECT extract(dow FROM day) AS dow, avg(stay) FROM visits GROUP BY dow ORDER BY dow
SELECT year(day) AS y, quarter(day) AS q, count(*) FROM visits GROUP BY ALL ORDER BY ALL
SELECT time_bucket(INTERVAL '1 month', day) AS b, count(*) FROM visits GROUP BY b ORDER BY b
SELECT day, count(*) FROM visits GROUP BY day ORDER BY day
SELECT ward, count(*) FILTER (WHERE urgent) AS urgent, count(*) AS n FROM visits GROUP BY ward
SELECT ward, count(*) FILTER (WHERE urgent) / count(*) AS share FROM visits GROUP BY ward
SELECT 100.0 * count(*) FILTER (WHERE age > 65) / count(*) AS pct FROM visits
SELECT sum(CASE WHEN urgent THEN 1 ELSE 0 END) AS u FROM visits
SELECT count_if(urgent), count_if(age > 80) FROM visits
SELECT ward, sum(cost) / sum(stay) AS per_day FROM visits GROUP BY ward
SELECT ward, n, n * 100.0 / sum(n) OVER () AS share FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)
SELECT ward, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place FROM visits GROUP BY ward
SELECT m, n, n - lag(n) OVER (ORDER BY m) AS change FROM (SELECT month(day) AS m, count(*) AS n FROM visits GROUP BY m) ORDER BY m
SELECT m, sum(n) OVER (ORDER BY m) AS running FROM (SELECT month(day) AS m, count(*) AS n FROM visits GROUP BY m) ORDER BY m
WITH by_ward AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward) SELECT max(n), min(n) FROM by_ward
WITH a AS (SELECT ward, count(*) AS n FROM visits WHERE month(day) <= 6 GROUP BY ward), b AS (SELECT ward, count(*) AS n FROM visits WHERE month(day) > 6 GROUP BY ward) SELECT ward, a.n, b.n, b.n / a.n AS r FROM a JOIN b USING (ward)
SELECT avg(k) FROM (SELECT patient_id, count(*) AS k FROM visits GROUP BY patient_id)
SELECT k, count(*) FROM (SELECT patient_id, least(count(*), 5) AS k FROM visits GROUP BY patient_id) GROUP BY k ORDER BY k
SELECT avg(total) FROM (SELECT patient_id, least(sum(cost), 20000) AS total FROM visits GROUP BY patient_id)
SELECT count(*) FROM (SELECT DISTINCT patient_id, ward FROM visits)
SELECT count(DISTINCT patient_id) FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.urgent)
SELECT count(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM visits WHERE ward = 'er')
SELECT ward, count(*) FROM (SELECT patient_id, ward, row_number() OVER (PARTITION BY patient_id ORDER BY day) AS r FROM visits) WHERE r = 1 GROUP BY ward
SELECT building, count(*) FROM visits JOIN wards USING (ward) GROUP BY building
SELECT w.building, w.floor, count(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY ALL ORDER BY ALL
SELECT building, avg(cost) FROM visits LEFT JOIN wards USING (ward) GROUP BY building
SELECT w.ward, count(v.patient_id) FROM wards w LEFT JOIN visits v ON v.ward = w.ward GROUP BY w.ward
SELECT count(*) FROM visits JOIN wards USING (ward) WHERE beds > 15
SELECT sum(w.beds) FROM visits v JOIN wards w USING (ward)
SELECT year(opened) AS y, count(*) FROM visits JOIN wards USING (ward) GROUP BY y ORDER BY y
SELECT count(*) FROM visits WHERE ward = (SELECT ward FROM wards WHERE beds = 40)
SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM wards WHERE building = 'A')
SELECT ward, beds, count(*) / beds AS per_bed FROM visits JOIN wards USING (ward) GROUP BY ward, beds
SELECT ward, sex, count(*) FROM visits GROUP BY ROLLUP (ward, sex)
SELECT ward, sex, count(*) FROM visits GROUP BY CUBE (ward, sex)
SELECT ward, sex, count(*) FROM visits GROUP BY GROUPING SETS ((ward), (sex), ())
SELECT mode(ward) FROM visits
SELECT histogram(ward) FROM visits
SELECT bool_or(urgent), bool_and(urgent) FROM visits
SELECT DISTINCT ward FROM visits
SELECT coalesce(ward, 'none') AS w, count(*) FROM visits GROUP BY w
SELECT length(code) AS l, count(*) FROM visits GROUP BY l
SELECT substring(code, 1, 2) AS s, count(*) FROM visits GROUP BY s
SELECT left(code, 2) AS s, count(*) FROM visits GROUP BY s
SELECT split_part(code, 'c', 2) AS s, count(*) FROM visits GROUP BY s
SELECT * FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) LIMIT 0
SELECT count(*) FROM (SELECT * FROM visits WHERE urgent) t
SELECT count(*) FROM orders
SELECT sum(amount) AS revenue FROM orders WHERE status <> 'returned'
SELECT sum(amount * quantity) AS revenue FROM orders
SELECT avg(amount) FROM orders WHERE channel = 'web'
SELECT channel, sum(amount) AS revenue, count(*) AS n, sum(amount) / count(*) AS mean FROM orders GROUP BY channel
SELECT status, channel, count(*) FROM orders GROUP BY ALL
SELECT country, sum(amount) FROM orders GROUP BY country ORDER BY 2 DESC
SELECT date_trunc('day', created_at) AS d, count(*) FROM orders GROUP BY d ORDER BY d LIMIT 30
SELECT CAST(created_at AS DATE) AS d, sum(amount) FROM orders GROUP BY d ORDER BY d
SELECT date_trunc('month', created_at) AS m, count(DISTINCT customer_id) FROM orders GROUP BY m ORDER BY m
SELECT hour(created_at) AS h, count(*) FROM orders GROUP BY h ORDER BY h
SELECT date_part('hour', created_at) AS h, avg(amount) FROM orders GROUP BY h
SELECT dayofweek(created_at) AS d, hour(created_at) AS h, count(*) FROM orders GROUP BY ALL
SELECT strftime(created_at, '%Y-%m') AS ym, sum(amount) FROM orders GROUP BY ym ORDER BY ym
SELECT CAST((CAST(date_trunc('week', (created_at + INTERVAL '1 day')) AS TIMESTAMP) + INTERVAL '-1 day') AS DATE) AS w, count(*) FROM orders GROUP BY w
SELECT time_bucket(INTERVAL '7 days', created_at) AS b, sum(amount) FROM orders GROUP BY b ORDER BY b
SELECT count(*) FROM orders WHERE created_at >= TIMESTAMP '2024-06-01' AND created_at < TIMESTAMP '2024-07-01'
SELECT count(*) FROM orders WHERE created_at > TIMESTAMP '2024-12-31' - INTERVAL 30 DAY
SELECT count(*) FROM orders WHERE created_at::DATE = DATE '2024-05-05'
SELECT count(*) FROM orders WHERE date_diff('day', created_at, TIMESTAMP '2024-12-31') < 90
SELECT count(discount), count(*) - count(discount) AS without FROM orders
SELECT avg(coalesce(discount, 0)) FROM orders
SELECT count(*) FROM orders WHERE discount IS NULL
SELECT discount IS NOT NULL AS had, avg(amount) FROM orders GROUP BY had
SELECT avg(discount) FROM orders WHERE discount > 0
SELECT median(amount), quantile_disc(quantity, 0.9) FROM orders
SELECT channel, median(amount) FROM orders GROUP BY channel
SELECT quantity, count(*) FROM orders GROUP BY quantity ORDER BY quantity
SELECT width_bucket, count(*) FROM (SELECT customer_id, CAST(floor(amount / 100) AS INTEGER) AS width_bucket FROM orders) GROUP BY 1 ORDER BY 1
SELECT CASE WHEN amount < 50 THEN 'small' WHEN amount < 500 THEN 'medium' ELSE 'large' END AS size, count(*), sum(amount) FROM orders GROUP BY size
SELECT count(*) FILTER (WHERE status = 'returned') * 100.0 / count(*) AS return_rate FROM orders
SELECT channel, count(*) FILTER (WHERE status = 'returned') / count(*) AS r FROM orders GROUP BY channel ORDER BY r DESC
SELECT name, sum(amount) FROM orders JOIN countries USING (country) GROUP BY name
SELECT region, count(*), sum(amount) FROM orders o JOIN countries c ON o.country = c.country GROUP BY region
SELECT c.region, count(DISTINCT o.customer_id) FROM orders o LEFT JOIN countries c ON o.country = c.country GROUP BY c.region
SELECT name, count(*) / max(population) AS per_million FROM orders JOIN countries USING (country) GROUP BY name
SELECT c.name, o.n FROM countries c JOIN (SELECT country, count(*) AS n FROM orders GROUP BY country) o USING (country) ORDER BY o.n DESC
SELECT avg(n) AS orders_per_customer FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id)
SELECT count(*) FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING count(*) > 3)
SELECT n, count(*) AS customers FROM (SELECT customer_id, least(count(*), 10) AS n FROM orders GROUP BY customer_id) GROUP BY n ORDER BY n
SELECT avg(spent) FROM (SELECT customer_id, least(sum(amount), 5000) AS spent FROM orders GROUP BY customer_id)
SELECT month(first) AS m, count(*) FROM (SELECT customer_id, min(created_at) AS first FROM orders GROUP BY customer_id) GROUP BY m ORDER BY m
SELECT channel, count(*) FROM (SELECT DISTINCT ON (customer_id) customer_id, channel FROM orders ORDER BY created_at) GROUP BY channel
SELECT count(*) FROM orders WHERE customer_id IN (SELECT customer_id FROM orders WHERE status = 'returned')
SELECT sum(amount) FILTER (WHERE channel = 'web') AS web, sum(amount) FILTER (WHERE channel = 'store') AS store FROM orders
SELECT m, revenue, revenue / lag(revenue) OVER (ORDER BY m) - 1 AS growth FROM (SELECT month(created_at) AS m, sum(amount) AS revenue FROM orders GROUP BY m) ORDER BY m
SELECT channel, status, count(*) AS n FROM orders GROUP BY channel, status QUALIFY row_number() OVER (PARTITION BY channel ORDER BY count(*) DESC) = 1
SELECT 'all' AS what, count(*) AS n FROM orders UNION ALL SELECT channel, count(*) FROM orders GROUP BY channel
SELECT round(stddev_samp(amount), 2) FROM orders
SELECT sum(quantity ^ 2) FROM orders
SELECT avg(ln(amount + 1)) FROM orders
SELECT sum(greatest(amount - 100, 0)) FROM orders
SELECT event, count(*) FROM events GROUP BY event
SELECT event, count(DISTINCT user_id) AS users FROM events GROUP BY event
SELECT device, avg(duration_ms) / 1000 AS seconds FROM events GROUP BY device
SELECT path, count(*) AS n FROM events GROUP BY path ORDER BY n DESC LIMIT 20
SELECT path, count(DISTINCT user_id) AS users FROM events WHERE event = 'view' GROUP BY path
SELECT CAST(happened_at AS DATE) AS d, count(DISTINCT user_id) AS dau FROM events GROUP BY d ORDER BY d
SELECT date_trunc('week', happened_at) AS w, count(DISTINCT user_id) AS wau FROM events GROUP BY w ORDER BY w
SELECT date_trunc('hour', happened_at) AS h, count(*) FROM events WHERE happened_at >= TIMESTAMP '2024-07-01' AND happened_at < TIMESTAMP '2024-07-03' GROUP BY h
SELECT source, count(*) FILTER (WHERE event = 'buy') / count(*) FILTER (WHERE event = 'view') AS conversion FROM events GROUP BY source
SELECT device, event, count(*) FROM events GROUP BY device, event
SELECT quantile_cont(duration_ms, [0.5, 0.95, 0.99]) FROM events
SELECT device, quantile_cont(duration_ms, 0.95) AS p95 FROM events GROUP BY device
SELECT count(*) FROM events WHERE path LIKE '/page/1%'
SELECT count(*) FROM events WHERE starts_with(path, '/page/2')
SELECT regexp_extract(path, '[0-9]+') AS p, count(*) FROM events GROUP BY p
SELECT avg(clicks) FROM (SELECT user_id, least(count(*) FILTER (WHERE event = 'click'), 20) AS clicks FROM events GROUP BY user_id)
SELECT count(*) FROM (SELECT user_id FROM events WHERE event = 'view' INTERSECT SELECT user_id FROM events WHERE event = 'buy')
SELECT count(*) FROM (SELECT user_id FROM events WHERE event = 'cart' EXCEPT SELECT user_id FROM events WHERE event = 'buy')
SELECT count(DISTINCT a.user_id) FROM events a JOIN events b USING (user_id) WHERE a.event = 'cart' AND b.event = 'buy' AND b.happened_at > a.happened_at
SELECT avg(gap) FROM (SELECT user_id, least(date_diff('hour', lag(happened_at) OVER (PARTITION BY user_id ORDER BY happened_at), happened_at), 500) AS gap FROM events)
SELECT hour(happened_at) AS h, device, count(*) FROM events GROUP BY ALL ORDER BY ALL
SELECT (duration_ms // 1000) AS s, count(*) FROM events WHERE duration_ms < 10000 GROUP BY s ORDER BY s
SELECT strftime(happened_at, '%H:00') AS h, count(*) FROM events GROUP BY h ORDER BY h
SELECT count(*) FROM events WHERE dayofweek(happened_at) IN (0, 6)
SELECT event, round(100.0 * count(*) / sum(count(*)) OVER (), 1) AS pct FROM events GROUP BY event
SELECT region, count(*) FROM survey GROUP BY region
SELECT avg(satisfied), stddev(satisfied) FROM survey
SELECT satisfied, count(*) FROM survey GROUP BY satisfied ORDER BY satisfied
SELECT education, avg(income) FROM survey WHERE income IS NOT NULL GROUP BY education
SELECT region, median(income) FROM survey GROUP BY region
SELECT education, region, count(*), avg(satisfied) FROM survey GROUP BY ALL
SELECT smoker, avg(hours) FROM survey GROUP BY smoker
SELECT corr(income, hours), covar_samp(income, hours) FROM survey
SELECT regr_slope(income, age) FROM survey WHERE age < 65
SELECT count(*) FILTER (WHERE satisfied >= 4) / count(*) AS top2 FROM survey
SELECT region, count(*) FILTER (WHERE satisfied >= 4) * 1.0 / count(*) AS top2 FROM survey GROUP BY region ORDER BY top2 DESC
SELECT CASE WHEN age < 30 THEN '18-29' WHEN age < 50 THEN '30-49' ELSE '50+' END AS band, avg(income) FROM survey GROUP BY band ORDER BY band
SELECT age, count(*) FROM survey GROUP BY age ORDER BY age
SELECT count(*) FROM survey WHERE income > (SELECT max(population) FROM countries)
SELECT count(*) AS n, count(income) AS answered, 1 - count(income) / count(*) AS missing FROM survey
SELECT quantile_cont(income, [0.1, 0.5, 0.9]) AS deciles FROM survey
SELECT avg(CASE WHEN smoker THEN 1.0 ELSE 0.0 END) AS smokers FROM survey
SELECT sum(income) / count(income) AS mean FROM survey
SELECT region, avg(income) - (SELECT 4000) AS above FROM survey GROUP BY region
SELECT region, var_pop(hours) FROM survey GROUP BY region
SELECT education, smoker, count(*) FROM survey GROUP BY CUBE (education, smoker)
SELECT max(satisfied) FROM survey
PIVOT (SELECT region, education FROM survey) ON education USING count(*) GROUP BY region
SELECT avg(income) FROM survey TABLESAMPLE 10%
SELECT string_agg(region, ',') FROM survey
SELECT max(region) FROM survey
PIVOT (SELECT region, education, count(*) AS n FROM survey GROUP BY ALL) ON education IN ('none', 'school', 'college') USING sum(n)
SELECT region, COLUMNS(* EXCLUDE (region)) / 100 FROM (SELECT region, count(*) AS n, sum(hours) AS h FROM survey GROUP BY region)
SELECT region, geomean(age) FROM survey GROUP BY region
SELECT avg(income) AS mean, sem(income) AS error FROM survey
SELECT count(DISTINCT (ward, code)) AS pairs FROM visits
SELECT month(day) AS m, count(DISTINCT (patient_id, ward)) AS seen FROM visits GROUP BY m
SELECT count(DISTINCT ward || '-' || code) FROM visits
SELECT date_trunc('month', created_at AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS m, count(*) FROM orders GROUP BY m
SELECT CAST(happened_at AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York' AS DATE) AS d, count(*) FROM events GROUP BY d
SELECT hour(happened_at AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo') AS h, count(*) FROM events GROUP BY h
SELECT kurtosis(hours) FROM survey
""".strip().splitlines()


def make(con: duckdb.DuckDBPyConnection) -> None:
    """Make the tables, protected and declared."""
    con.execute(re.sub(r"hash\(([^)]*)\)", r"(hash(\1) >> 33)::BIGINT", TABLES))
    dpsql.load(con, progress=False)
    for table, unit in UNITS.items():
        most = 1 if table == "survey" else 10
        con.execute(f"CALL dp_protect('{table}', epsilon := 1000, delta := 1e-6, privacy_unit := '{unit}', max_contributions := {most})")
        for declared in DECLARED[table]:
            nullable = "" if "income" in declared or "discount" in declared else ", nullable := false"
            con.execute(f"CALL dp_declare('{table}', {declared}{nullable})")
