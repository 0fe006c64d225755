-- The raw table, as some loader would bring it: 3,000 invented people. Run: dpsql run load_people.sql --database people.duckdb
CREATE SCHEMA IF NOT EXISTS raw;
CREATE TABLE raw.people AS
SELECT
    i AS id,
    18 + (i * 7919) % 70 AS age,
    CASE WHEN (i * 31) % 100 < 52 THEN 'Female' ELSE 'Male' END AS sex,
    1000 + (i * 104729) % 3000 + 40 * ((i * 7919) % 70) AS income,
    CASE WHEN i % 11 < 7 THEN 'employed' WHEN i % 11 < 9 THEN 'retired' END AS status
FROM range(3000) t(i);
