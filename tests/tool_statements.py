"""Statements as charting tools write them: what Superset's and Metabase's drivers, Grafana's macros and Tableau's, Power BI's and
DBeaver's logs hold, over the tables of `test_tools_answered`. MySQL's dialect, but those of `DUCKDB`.

Each has the number of its first columns that are groups; what follows them is noisy.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple


class Said(NamedTuple):
    """A statement, how many columns of it are groups, and its parameters."""

    text: str
    groups: int = 1
    parameters: tuple[Any, ...] = ()


_JANUARY = "created_at >= STR_TO_DATE('2024-01-01 00:00:00.000000', '%Y-%m-%d %H:%i:%s.%f') AND created_at < STR_TO_DATE('2024-02-01', '%Y-%m-%d')"
_DAY = "created_at >= '2024-03-01 00:00:00.000000' AND created_at < '2024-03-02 00:00:00.000000'"
_GRAINS = {
    "DATE_ADD(DATE(created_at), INTERVAL (HOUR(created_at)*60*60 + MINUTE(created_at)*60 + SECOND(created_at)) SECOND)": "created_at >= '2024-03-01' AND created_at < '2024-03-01 00:01:00'",
    "DATE_ADD(DATE(created_at), INTERVAL (HOUR(created_at)*60 + MINUTE(created_at)) MINUTE)": "created_at >= '2024-03-01' AND created_at < '2024-03-01 01:00:00'",
    "DATE_ADD(DATE(created_at), INTERVAL HOUR(created_at) HOUR)": _DAY,
    "DATE(created_at)": _JANUARY,
    "DATE(DATE_SUB(created_at, INTERVAL DAYOFWEEK(created_at) - 1 DAY))": _JANUARY,
    "DATE(DATE_SUB(created_at, INTERVAL DAYOFMONTH(created_at) - 1 DAY))": "created_at > '2000-01-01'",
    "MAKEDATE(YEAR(created_at), 1) + INTERVAL QUARTER(created_at) QUARTER - INTERVAL 1 QUARTER": "amount > 10",
    "DATE(DATE_SUB(created_at, INTERVAL DAYOFYEAR(created_at) - 1 DAY))": "region = 'east'",
    "DATE(DATE_SUB(created_at, INTERVAL DAYOFWEEK(DATE_SUB(created_at, INTERVAL 1 DAY)) - 1 DAY))": _JANUARY,
}
SUPERSET = [
    *(Said(f"SELECT {grain} AS __timestamp, COUNT(*) AS count FROM orders WHERE {where} GROUP BY {grain} ORDER BY count DESC LIMIT 10000") for grain, where in _GRAINS.items()),
    Said("SELECT region AS region, SUM(amount) AS `SUM(amount)` FROM (SELECT region, amount FROM orders) AS virtual_table GROUP BY region ORDER BY `SUM(amount)` DESC LIMIT 1000"),
    Said("SELECT category AS category, sum(n) AS `SUM(n)` FROM (SELECT region, category, COUNT(*) AS n FROM orders GROUP BY region, category) AS virtual_table GROUP BY category ORDER BY `SUM(n)` DESC LIMIT 100"),
    Said("SELECT DATE(DATE_SUB(order_date, INTERVAL DAYOFYEAR(order_date) - 1 DAY)) AS __timestamp, product AS product, SUM(amount) AS `SUM(amount)` FROM orders JOIN (SELECT product AS product__, SUM(amount) AS mme_inner__ FROM orders GROUP BY product ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit ON product = product__ GROUP BY DATE(DATE_SUB(order_date, INTERVAL DAYOFYEAR(order_date) - 1 DAY)), product ORDER BY `SUM(amount)` DESC LIMIT 10000", 2),
    Said("SELECT category AS category, COUNT(DISTINCT customer) AS `COUNT_DISTINCT(customer)` FROM orders WHERE region IN ('east', 'west') AND (amount > 10) GROUP BY category ORDER BY `COUNT_DISTINCT(customer)` DESC LIMIT 50000"),
    Said("SELECT COUNT(*) AS count FROM orders WHERE order_date >= STR_TO_DATE('2024-02-01', '%Y-%m-%d') AND order_date < STR_TO_DATE('2024-06-01', '%Y-%m-%d') LIMIT 50000", 0),
    Said("SELECT region AS region FROM orders GROUP BY region ORDER BY region ASC LIMIT 1000"),
    Said("SELECT DISTINCT region AS region FROM orders LIMIT 1000"),
    Said("SELECT region, count(*) n FROM shop.orders GROUP BY region\nLIMIT 1001"),
    Said("SELECT region, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM orders GROUP BY region"),
    Said("SELECT COUNT(*) AS rowcount FROM (SELECT region AS region, category AS category FROM orders GROUP BY region, category LIMIT 50000) AS rowcount_qry", 1),
    Said("SELECT * FROM (SELECT region, category FROM orders) AS virtual_table LIMIT 0", 2),
]
_CREATED = "`orders`.`created_at`"
_PARTS = (
    f"STR_TO_DATE(CONCAT(DATE_FORMAT({_CREATED}, '%Y-%m'), '-01'), '%Y-%m-%d')",
    f"STR_TO_DATE(CONCAT(YEAR({_CREATED}), '-', ((QUARTER({_CREATED}) * 3) - 2), '-01'), '%Y-%m-%d')",
    f"MAKEDATE(YEAR({_CREATED}), 1)",
    *(f"{part}({_CREATED})" for part in ("DAYOFWEEK", "DAYOFMONTH", "MONTH", "QUARTER", "HOUR")),
    f"WEEK({_CREATED}, 3)",
)
_WEEKS = (
    f"STR_TO_DATE(CONCAT(YEARWEEK({_CREATED}), ' Sunday'), '%X%V %W')",
    f"CAST(DATE_ADD({_CREATED}, INTERVAL (1 - DAYOFWEEK({_CREATED})) DAY) AS DATE)",
    f"DATE({_CREATED})",
)
METABASE = [
    *(Said(f"-- Metabase:: userID: 1 queryType: MBQL queryHash: 0a\nSELECT {part} AS `created_at`, COUNT(*) AS `count` FROM `orders` GROUP BY {part} ORDER BY {part} ASC") for part in _PARTS),
    *(Said(f"SELECT {part} AS `created_at`, COUNT(*) AS `count` FROM `orders` WHERE {_CREATED} >= TIMESTAMP '2024-01-07 00:00:00.000' AND {_CREATED} < TIMESTAMP '2024-02-11 00:00:00.000' GROUP BY {part} ORDER BY {part} ASC") for part in _WEEKS),
    Said(f"SELECT STR_TO_DATE(DATE_FORMAT({_CREATED}, '%Y-%m-%d %H'), '%Y-%m-%d %H') AS `h`, COUNT(*) AS `count` FROM `orders` WHERE {_DAY} GROUP BY STR_TO_DATE(DATE_FORMAT({_CREATED}, '%Y-%m-%d %H'), '%Y-%m-%d %H') ORDER BY 1 ASC"),
    Said("SELECT `source`.`region` AS `region`, SUM(`source`.`amount`) AS `sum` FROM (SELECT `orders`.`region` AS `region`, `orders`.`amount` AS `amount` FROM `orders` WHERE `orders`.`amount` > 10) AS `source` GROUP BY `source`.`region` ORDER BY `source`.`region` ASC"),
    Said("SELECT FLOOR((`orders`.`amount` / 100.0)) * 100.0 AS `amount`, COUNT(*) AS `count` FROM `orders` GROUP BY FLOOR((`orders`.`amount` / 100.0)) * 100.0 ORDER BY FLOOR((`orders`.`amount` / 100.0)) * 100.0 ASC"),
    Said("SELECT ((FLOOR(((`orders`.`amount` - 0.0) / 125.0)) * 125.0) + 0.0) AS `amount`, COUNT(*) AS `count` FROM `orders` GROUP BY ((FLOOR(((`orders`.`amount` - 0.0) / 125.0)) * 125.0) + 0.0) ORDER BY 1 ASC"),
    Said("SELECT SUM(CASE WHEN `orders`.`amount` < 100 THEN 1 ELSE 0.0 END) AS `count-where`, CAST(SUM(CASE WHEN `orders`.`region` = 'east' THEN 1 ELSE 0.0 END) AS DOUBLE) / NULLIF(COUNT(*), 0.0) AS `share` FROM `orders`", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE `orders`.`created_at` >= DATE_ADD(NOW(6), INTERVAL -300 day) AND `orders`.`created_at` < NOW(6)", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE (DATE(`orders`.`created_at`) >= DATE(DATE_ADD(NOW(), INTERVAL -30 day)) AND DATE(`orders`.`created_at`) <= DATE(DATE_ADD(NOW(), INTERVAL -1 day)))", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE `orders`.`created_at` >= STR_TO_DATE(CONCAT(DATE_FORMAT(DATE_ADD(NOW(6), INTERVAL -6 month), '%Y-%m'), '-01'), '%Y-%m-%d') AND `orders`.`created_at` < STR_TO_DATE(CONCAT(DATE_FORMAT(NOW(6), '%Y-%m'), '-01'), '%Y-%m-%d')", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE LOWER(`orders`.`category`) LIKE '%chair%'", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE `orders`.`category` LIKE 'la%' AND `orders`.`region` NOT LIKE '%st' OR `orders`.`region` IS NULL", 0),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE (`orders`.`region` <> 'east' OR `orders`.`region` IS NULL) AND `orders`.`region` IS NOT NULL AND `orders`.`region` <> ''", 0),
    Said("SELECT `shop`.`orders`.`region` AS `region` FROM `orders` GROUP BY `orders`.`region` ORDER BY `orders`.`region` ASC LIMIT 1000"),
    Said("SELECT `source`.`substring1` FROM (SELECT `orders`.`region` AS `region`, SUBSTRING(`orders`.`region`, 1, 1234) AS `substring1` FROM `orders`) AS `source` LIMIT 0"),
    Said("SELECT `Regions`.`manager` AS `Regions__manager`, COUNT(*) AS `count` FROM `orders` LEFT JOIN `regions` AS `Regions` ON `orders`.`region` = `Regions`.`region` GROUP BY `Regions`.`manager` ORDER BY `Regions`.`manager` ASC"),
    Said("SELECT `Regions`.`manager` AS `Regions__manager`, AVG(`orders`.`amount`) AS `avg` FROM `orders` INNER JOIN `regions` `Regions` ON `orders`.`region` = `Regions`.`region` WHERE `Regions`.`target` > 15 GROUP BY `Regions`.`manager` ORDER BY `avg` DESC, `Regions`.`manager` ASC LIMIT 10"),
    Said("SELECT `source`.`m` AS `m`, SUM(`source`.`count`) OVER (ORDER BY `source`.`m` ASC ROWS UNBOUNDED PRECEDING) AS `cum` FROM (SELECT MONTH(`orders`.`order_date`) AS `m`, COUNT(*) AS `count` FROM `orders` GROUP BY MONTH(`orders`.`order_date`)) AS `source` ORDER BY `source`.`m` ASC"),
    Said("SELECT MONTH(`orders`.`order_date`) AS `m`, SUM(COUNT(*)) OVER (ORDER BY MONTH(`orders`.`order_date`) ASC ROWS UNBOUNDED PRECEDING) AS `sum` FROM `orders` GROUP BY MONTH(`orders`.`order_date`) ORDER BY MONTH(`orders`.`order_date`) ASC"),
    Said("SELECT MONTH(`orders`.`order_date`) AS `m`, COUNT(*) AS `count`, LAG(COUNT(*), 1) OVER (ORDER BY MONTH(`orders`.`order_date`) ASC) AS `previous` FROM `orders` GROUP BY MONTH(`orders`.`order_date`) ORDER BY 1 ASC"),
    Said("SELECT STDDEV_POP(`orders`.`amount`) AS `stddev`, VAR_POP(`orders`.`quantity`) AS `var`, AVG(`orders`.`amount`) AS `avg` FROM `orders`", 0),
    Said("SELECT CONCAT(`orders`.`region`, '-', `orders`.`category`) AS `x`, COUNT(*) AS `count` FROM `orders` GROUP BY CONCAT(`orders`.`region`, '-', `orders`.`category`) ORDER BY 1 ASC"),
    Said("SELECT COALESCE(`orders`.`region`, 'none') AS `x`, COUNT(*) AS `count` FROM `orders` GROUP BY COALESCE(`orders`.`region`, 'none') ORDER BY 1 ASC"),
    Said("SELECT TIMESTAMPDIFF(MONTH, DATE(`orders`.`order_date`), DATE('2026-01-01')) AS `months`, COUNT(*) AS `count` FROM `orders` GROUP BY TIMESTAMPDIFF(MONTH, DATE(`orders`.`order_date`), DATE('2026-01-01')) ORDER BY 1 ASC"),
    Said("SELECT `orders`.`region` AS `region`, COUNT(*) AS `count` FROM `orders` WHERE (`orders`.`quantity` >= ? AND `orders`.`quantity` <= ?) AND `orders`.`region` IN (?, ?) GROUP BY `orders`.`region` ORDER BY `count` DESC, `orders`.`region` ASC LIMIT 2000", 1, (2, 8, "east", "west")),
    Said("SELECT COUNT(*) AS `count` FROM `orders` WHERE `orders`.`created_at` >= ? AND `orders`.`created_at` < ?", 0, (dt.datetime(2024, 3, 1), dt.datetime(2024, 4, 1, 12, 30))),
    Said("SELECT `source`.`region` AS `region`, `source`.`count` AS `count` FROM (SELECT `orders`.`region` AS `region`, COUNT(*) AS `count` FROM `orders` GROUP BY `orders`.`region`) AS `source` WHERE `source`.`count` > 100 ORDER BY `source`.`count` DESC LIMIT 1048575"),
    Said("SELECT MONTH(CONVERT_TZ(`orders`.`created_at`, 'UTC', 'UTC')) AS `d`, COUNT(*) FROM `orders` GROUP BY MONTH(CONVERT_TZ(`orders`.`created_at`, 'UTC', 'UTC')) ORDER BY 1"),
]
TABLEAU = [
    Said("SELECT SUM(1) AS `cnt:TEMP(row count)(290714814)(0):qk` FROM `orders` HAVING (COUNT(1) > 0)", 0),
    Said("SELECT `orders`.`region` AS `region` FROM `orders` GROUP BY 1"),
    Said("SELECT `orders`.`region` AS `region`, SUM(`orders`.`amount`) AS `sum:amount:ok`, AVG(`orders`.`quantity`) AS `avg:quantity:ok` FROM `shop`.`orders` `orders` GROUP BY 1"),
    Said("SELECT ADDDATE( DATE_FORMAT( `orders`.`created_at`, '%Y-%m-01 00:00:00' ), INTERVAL 0 SECOND ) AS `tmn:created_at:ok`, SUM(`orders`.`amount`) AS `sum:amount:ok` FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT ADDDATE( DATE_FORMAT( `orders`.`order_date`, '%Y-%m-%d 00:00:00' ), INTERVAL 0 SECOND ) AS `tdy:order_date:ok`, COUNT(1) AS `n` FROM `orders` WHERE (`orders`.`order_date` >= DATE('2024-03-01')) AND (`orders`.`order_date` <= DATE('2024-03-20')) GROUP BY 1 ORDER BY 1"),
    Said("SELECT ADDDATE( DATE_FORMAT( `orders`.`created_at`, '%Y-%m-%d %H:00:00' ), INTERVAL 0 SECOND ) AS `thr:created_at:ok`, COUNT(1) AS `n` FROM `orders` WHERE (`orders`.`created_at` >= TIMESTAMP('2024-03-01 00:00:00')) AND (`orders`.`created_at` <= TIMESTAMP('2024-03-01 23:59:59')) GROUP BY 1 ORDER BY 1"),
    Said("SELECT ADDDATE( DATE_FORMAT( `orders`.`created_at`, '%Y-01-01 00:00:00' ), INTERVAL 0 SECOND ) AS `tyr:created_at:ok`, COUNT(1) AS `n` FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT YEAR(`orders`.`order_date`) AS `yr:order_date:ok`, QUARTER(`orders`.`order_date`) AS `qr:order_date:ok`, SUM(`orders`.`amount`) AS `s` FROM `orders` GROUP BY 1, 2 ORDER BY 1, 2", 2),
    Said("SELECT (CASE WHEN (`orders`.`amount` < 100) THEN 'low' WHEN NOT (`orders`.`amount` < 100) THEN 'high' ELSE NULL END) AS `Calculation_1`, COUNT(1) AS `cnt` FROM `orders` GROUP BY 1"),
    Said("SELECT (CASE WHEN (`orders`.`region` IN ('east', 'west')) THEN 'sides' ELSE `orders`.`region` END) AS `Region (group)`, SUM(`orders`.`quantity`) AS `q` FROM `orders` GROUP BY 1"),
    Said("SELECT (`orders`.`returned` <> 0) AS `returned`, COUNT(1) AS `n` FROM `orders` GROUP BY 1"),
    Said("SELECT ISNULL(`orders`.`region`) AS `x`, COUNT(1) AS `n` FROM `orders` GROUP BY 1"),
    Said("SELECT COUNT(DISTINCT `orders`.`customer`) AS `ctd:customer:ok` FROM `orders` HAVING (COUNT(1) > 0)", 0),
    Said("SELECT `orders`.`product` AS `product`, SUM(`orders`.`amount`) AS `sum:amount:ok` FROM `orders` INNER JOIN ( SELECT `orders`.`product` AS `product`, SUM(`orders`.`amount`) AS `$__alias__0` FROM `orders` GROUP BY 1 ORDER BY `$__alias__0` DESC LIMIT 2) `t0` ON (`orders`.`product` = `t0`.`product`) GROUP BY 1"),
    Said("SELECT `t0`.`region` AS `region`, AVG(`t0`.`X_measure__1`) AS `avg` FROM (SELECT `orders`.`region` AS `region`, `orders`.`category` AS `category`, SUM(`orders`.`amount`) AS `X_measure__1` FROM `orders` GROUP BY 1, 2) `t0` GROUP BY 1"),
    Said("SELECT `t1`.`X_measure__3` AS `a`, `t2`.`X_measure__1` AS `b` FROM (SELECT AVG(`t0`.`X_measure__2`) AS `X_measure__3` FROM (SELECT `orders`.`region` AS `region`, SUM(`orders`.`amount`) AS `X_measure__2` FROM `orders` GROUP BY 1) `t0` HAVING (COUNT(1) > 0)) `t1` CROSS JOIN (SELECT SUM(`orders`.`amount`) AS `X_measure__1` FROM `orders` HAVING (COUNT(1) > 0)) `t2`", 0),
    Said("SELECT SUM(`Custom SQL Query`.`amount`) AS `sum:amount:ok` FROM ( SELECT `region`, `amount` FROM `orders` WHERE `quantity` > 2 ) `Custom SQL Query` HAVING (COUNT(1) > 0)", 0),
    Said("SELECT * FROM ( SELECT `region`, `amount` FROM `orders` ) `Custom SQL Query` LIMIT 0", 2),
    Said("SELECT DAYOFWEEK(`orders`.`order_date`) AS `wd:order_date:ok`, COUNT(1) FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT FLOOR((7 + DAYOFYEAR(`orders`.`order_date`) - 1 + DAYOFWEEK(DATE_FORMAT(`orders`.`order_date`, '%Y-01-01 00:00:00')) - 1) / 7) AS `wk`, COUNT(1) FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT FLOOR((TO_DAYS(`orders`.`order_date`) - TO_DAYS('2024-01-01')) / 100) AS `bin`, COUNT(1) FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT FLOOR((`orders`.`amount` / 250)) AS `amount (bin)`, COUNT(1) AS `n` FROM `orders` GROUP BY 1 ORDER BY 1"),
    Said("SELECT IF(`orders`.`amount` >= 500, 'big', 'small') AS `size`, ROUND(AVG(`orders`.`amount`), 1) AS `a`, TRUNCATE(AVG(`orders`.`quantity`), 1) AS `q` FROM `orders` GROUP BY 1"),
    Said("SELECT `orders`.`region` AS `region`, COUNT(1) AS `n` FROM `orders` WHERE ((YEAR(`orders`.`order_date`) = 2024) AND (MONTH(`orders`.`order_date`) IN (1, 2, 3))) GROUP BY 1"),
    Said("SELECT MONTHNAME(`orders`.`order_date`) AS `m`, COUNT(1) FROM `orders` GROUP BY 1"),
]
POWER_BI_AND_EXCEL = [
    Said("select `rows`.`region` as `region`, sum(`rows`.`amount`) as `a0` from ( select `_`.`region`, `_`.`amount` from `shop`.`orders` `_` ) `rows` group by `region` limit 1000001"),
    Said("select `t0`.`region`, sum(`t0`.`amount`) as `a0` from ((select `$Table`.`region` as `region`, `$Table`.`category` as `category`, `$Table`.`amount` as `amount` from `shop`.`orders` as `$Table`)) as `t0` where `t0`.`category` = 'lamps' group by `t0`.`region` order by `t0`.`region` limit 1000001"),
    Said("select `_`.`region`, `_`.`t` from ( select `rows`.`region` as `region`, count(1) as `t` from `orders` `rows` group by `region` ) `_` order by `_`.`region` limit 1000"),
    Said("select count(1) as `a0`, max(`t0`.`a0`) as `a1` from (select `t0`.`region`, sum(`t0`.`quantity`) as `a0` from (select `region`, `quantity` from `orders`) as `t0` group by `t0`.`region`) as `t0`"),
    Said("select count(*) as `C1` from `orders` as `t` where not (`t`.`region` is null) and `t`.`amount` >= 0e0 and `t`.`amount` < 5e2", 0),
    Said("select * from `shop`.`orders` where 1 = 0", 9),
    Said("SELECT orders.region, Count(*), Sum(orders.amount), Avg(orders.amount) FROM shop.orders orders WHERE (orders.amount>=10) AND (orders.category='lamps') GROUP BY orders.region ORDER BY orders.region LIMIT 1048575"),
    Said("SELECT orders_0.region, SUM(orders_0.quantity) AS 'Sum of quantity' FROM shop.orders orders_0 GROUP BY orders_0.region"),
    Said("SELECT COUNT(*) FROM shop.orders orders WHERE orders.order_date>={d '2024-05-01'} AND orders.created_at<{ts '2025-01-01 00:00:00'}", 0),
    Said("SELECT {fn YEAR(orders.order_date)} AS y, COUNT(*) FROM {oj orders} GROUP BY {fn YEAR(orders.order_date)}"),
]
GRAFANA_AND_LOOKER = [
    Said('SELECT UNIX_TIMESTAMP(created_at) DIV 86400 * 86400 AS "time", count(*) AS value FROM orders WHERE created_at BETWEEN FROM_UNIXTIME(1709251200) AND FROM_UNIXTIME(1709856000) GROUP BY 1 ORDER BY 1'),
    Said("SELECT region, category, SUM(quantity) FROM shop.orders WHERE created_at BETWEEN FROM_UNIXTIME(1704067200) AND FROM_UNIXTIME(1767225599) GROUP BY region, category LIMIT 50", 2),
    Said("SELECT region AS metric, SUM(amount) FROM orders GROUP BY region ORDER BY SUM(amount) DESC LIMIT 50"),
    Said("SELECT DATE(orders.created_at ) AS `orders.created_date`, COUNT(*) AS `orders.count` FROM orders AS orders WHERE ((( orders.created_at ) >= ((TIMESTAMP('2024-05-01'))) AND ( orders.created_at ) < ((DATE_ADD(TIMESTAMP('2024-05-01'),INTERVAL 1 month))))) GROUP BY 1 ORDER BY DATE(orders.created_at ) DESC LIMIT 500"),
    Said("SELECT DATE_FORMAT(orders.created_at ,'%Y-%m') AS `orders.created_month`, COALESCE(SUM(orders.amount ), 0) AS `orders.total` FROM orders GROUP BY 1 ORDER BY DATE_FORMAT(orders.created_at ,'%Y-%m') DESC LIMIT 500"),
    Said("SELECT CASE WHEN orders.amount < 100 THEN 'Below 100' WHEN orders.amount >= 100 AND orders.amount < 500 THEN '100 to 499' WHEN orders.amount >= 500 THEN '500 or Above' ELSE 'Undefined' END AS `orders.amount_tier`, COUNT(*) AS `orders.count` FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 500"),
    Said("SELECT CONCAT(CAST(YEAR(orders.created_at) AS CHAR), '-Q', CAST(QUARTER(orders.created_at) AS CHAR)) AS q, COUNT(*) FROM orders GROUP BY 1 ORDER BY 1"),
]
DBT_PANDAS_DBEAVER = [
    Said("select count(*) as failures, count(*) != 0 as should_warn from ( select region from orders where amount > 500 ) dbt_internal_test", 0),
    Said("with all_values as (select region as value_field, count(*) as n_records from orders group by region) select * from all_values where value_field not in ('east','north')"),
    Said("with source as (select * from orders), renamed as (select region, category, amount as revenue from source), final as (select region, sum(revenue) as revenue from renamed group by 1) select * from final order by 1"),
    Said("SELECT orders.region, count(*) AS count_1, avg(orders.amount) AS avg_1 \nFROM orders \nWHERE orders.amount BETWEEN ? AND 500 GROUP BY orders.region", 1, (10,)),
    Said("SELECT category, SUM(amount) AS total FROM orders WHERE region = ? AND order_date >= ? AND quantity > ? GROUP BY category", 1, ("east", dt.date(2024, 6, 1), 3)),
    Said("SELECT region, category, COUNT(*) AS n FROM orders GROUP BY region, category ORDER BY region, category LIMIT 5, 5", 2),
    Said("SELECT o.* FROM shop.orders o LIMIT 0", 9),
    Said("SELECT COUNT(*) FROM (SELECT region, COUNT(*) FROM orders GROUP BY region) dbvrcnt"),
    Said("SELECT product, COUNT(*)\nFROM shop.orders o\nGROUP BY product\nORDER BY 2 DESC\nLIMIT 0, 200"),
]
BY_HAND = [
    Said("SELECT DATE_FORMAT(order_date, '%Y-%m-01') AS month, SUM(amount) AS revenue FROM orders GROUP BY month ORDER BY month"),
    Said("SELECT YEARWEEK(order_date, 1) AS w, COUNT(*) FROM orders WHERE order_date < '2024-03-01' GROUP BY w ORDER BY w"),
    Said("SELECT LAST_DAY(order_date) AS month_end, SUM(amount) FROM orders GROUP BY LAST_DAY(order_date) ORDER BY 1"),
    Said("SELECT COUNT(*) FROM orders WHERE order_date >= CURDATE() - INTERVAL 1 YEAR AND order_date <= CURRENT_DATE()", 0),
    Said("SELECT COUNT(*) FROM orders WHERE order_date BETWEEN '2024-03-01' AND '2024-03-01' + INTERVAL 1 MONTH", 0),
    Said("SELECT COUNT(*) FROM orders WHERE DATEDIFF('2026-01-01', order_date) <= 90", 0),
    Said("SELECT COUNT(*) FROM orders WHERE order_date >= DATE_FORMAT(NOW() - INTERVAL 6 MONTH, '%Y-%m-01') AND order_date < DATE_FORMAT(NOW(), '%Y-%m-01')", 0),
    Said("SELECT COUNT(*) FROM orders WHERE created_at >= DATE_SUB(CURDATE(), INTERVAL 5 YEAR) AND YEAR(order_date) = YEAR(CURDATE()) - 1", 0),
    Said("SELECT COUNT(*) FROM orders WHERE created_at > TIMESTAMPADD(MONTH, -3, '2026-01-01')", 0),
    Said("SELECT 'east' AS what, COUNT(*) AS n FROM orders WHERE region = 'east' UNION ALL SELECT 'west', COUNT(*) FROM orders WHERE region = 'west'"),
    Said("SELECT product, COUNT(*) AS n FROM orders GROUP BY product UNION ALL SELECT manager, target FROM regions WHERE target = 40"),
    Said("SELECT region, category, COUNT(*) FROM orders GROUP BY region, category WITH ROLLUP", 2),
    Said("SELECT COALESCE(region, 'total') AS region, COUNT(*) FROM orders GROUP BY region WITH ROLLUP"),
    Said("SELECT region, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 2) AS pct FROM orders GROUP BY region ORDER BY pct DESC"),
    Said("SELECT region, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM orders) AS pct FROM orders GROUP BY region"),
    Said("SELECT product, amount, RANK() OVER (ORDER BY amount DESC) AS r FROM (SELECT product, SUM(amount) AS amount FROM orders GROUP BY product) AS t"),
    Said("SELECT o.region, COUNT(*) AS n FROM orders o WHERE o.region IN (SELECT region FROM regions WHERE target > 15) GROUP BY o.region HAVING n > 10 ORDER BY n DESC"),
    Said("SELECT region, SUM(IF(category = 'chairs', amount, 0)) AS chairs, SUM(IF(category = 'lamps', amount, 0)) AS lamps FROM orders GROUP BY region"),
    Said("SELECT region, COUNT(IF(returned, 1, NULL)) AS returned, AVG(returned = 1) AS rate, SUM(returned = 1) AS s FROM orders GROUP BY region"),
    Said("SELECT COUNT(*) FROM orders WHERE returned = 1", 0),
    Said("SELECT COUNT(*) FROM orders WHERE region REGEXP '^(e|w)'", 0),
    Said("SELECT ELT(QUARTER(order_date), 'Q1', 'Q2', 'Q3', 'Q4') AS q, COUNT(*) FROM orders GROUP BY q ORDER BY q"),
    Said("SELECT region, COUNT(*) AS n FROM orders GROUP BY region ORDER BY FIELD(region, 'west', 'south', 'north', 'east')"),
    Said("SELECT CONCAT(YEAR(order_date), '-', LPAD(MONTH(order_date), 2, '0')) AS m, COUNT(*) FROM orders GROUP BY m ORDER BY m"),
    Said("SELECT EXTRACT(YEAR_MONTH FROM order_date) AS ym, COUNT(*) FROM orders GROUP BY ym ORDER BY ym"),
    Said("SELECT CAST(FLOOR(amount / 100) AS UNSIGNED) AS b, COUNT(*) FROM orders GROUP BY b ORDER BY b"),
    Said("SELECT ROUND(amount, -2) AS b, COUNT(*) FROM orders GROUP BY b ORDER BY b"),
    Said("SELECT quantity DIV 5 * 5 AS b, COUNT(*) FROM orders GROUP BY b ORDER BY b"),
    Said("SELECT DATE_FORMAT(created_at, '%b %Y') AS m, COUNT(*) FROM orders GROUP BY m"),
    Said("SELECT DATE_FORMAT(created_at, '%x-%v') AS w, COUNT(*) FROM orders WHERE created_at < '2024-02-01' GROUP BY w ORDER BY w"),
    Said("SELECT DATE_FORMAT(created_at, '%W') AS w, COUNT(*) FROM orders GROUP BY w ORDER BY w"),
    Said("SELECT product, COUNT(*) AS n FROM orders WHERE amount > 5 AND product IN (SELECT product FROM orders GROUP BY product ORDER BY COUNT(*) DESC LIMIT 2) GROUP BY product"),
    Said("WITH top AS (SELECT product, SUM(amount) AS s FROM orders GROUP BY product ORDER BY s DESC LIMIT 2) SELECT region, product, COUNT(*) AS n FROM orders JOIN top USING (product) GROUP BY region, product", 2),
]
DUCKDB = [
    Said('SELECT * FROM (SELECT "t0"."region", COUNT(*) AS "CountStar()", SUM("t0"."amount") AS "total" FROM "orders" AS "t0" GROUP BY 1) AS "t1" ORDER BY "t1"."total" DESC LIMIT 5'),
    Said('SELECT "t1"."month", AVG("t1"."amount") AS "m" FROM (SELECT "t0"."amount", DATE_TRUNC(\'MONTH\', "t0"."order_date") AS "month" FROM "orders" AS "t0" WHERE "t0"."amount" > CAST(10 AS TINYINT)) AS "t1" GROUP BY 1'),
    Said("""SELECT CAST(DATE_TRUNC('month', "main"."orders"."created_at") AS DATE) AS "created_at", COUNT(*) AS "count" FROM "main"."orders" GROUP BY CAST(DATE_TRUNC('month', "main"."orders"."created_at") AS DATE) ORDER BY 1 ASC"""),
    Said("""SELECT DATE_TRUNC('day', created_at) AS created_at, COUNT(*) AS count FROM main.orders WHERE created_at >= CAST('2024-03-01 00:00:00.000000' AS TIMESTAMP) AND created_at < CAST('2024-03-08' AS TIMESTAMP) GROUP BY DATE_TRUNC('day', created_at) ORDER BY count DESC LIMIT 10000"""),
    Said("""SELECT "product", DATE_TRUNC('year', "order_date") AS "__timestamp", SUM("amount") AS "SUM(amount)" FROM main.orders JOIN (SELECT "product" AS "product__", SUM("amount") AS "mme_inner__" FROM main.orders GROUP BY "product" ORDER BY "mme_inner__" DESC LIMIT 2) AS series_limit ON "product" = "product__" GROUP BY "product", DATE_TRUNC('year', "order_date") ORDER BY "SUM(amount)" DESC LIMIT 50000""", 2),
    Said("SELECT region, count(*) AS n FROM orders WHERE amount < ? AND region IN (?, ?) GROUP BY region", 1, (500, "east", "west")),
    Said("WITH by_region AS (SELECT region, count(*) AS n FROM orders GROUP BY region) SELECT manager, sum(n) AS n FROM by_region JOIN regions USING (region) GROUP BY manager ORDER BY manager"),
    Said("SELECT region, category, count(*) AS n FROM orders GROUP BY CUBE (region, category)", 2),
    Said("SELECT quantity // 5 * 5 AS b, count(*) FROM orders GROUP BY b ORDER BY b"),
    Said("SELECT time_bucket(INTERVAL '1 month', order_date) AS b, count(*) FROM orders GROUP BY b ORDER BY b"),
    Said("SELECT strftime(order_date, '%Y-%m') AS m, count(*) AS n FROM orders GROUP BY m ORDER BY m"),
    Said("SELECT count(*) FROM orders WHERE created_at <= now() AND order_date < current_date AND created_at > current_timestamp - INTERVAL 100 DAY", 0),
    Said("SELECT region, n / sum(n) OVER () AS share FROM (SELECT region, count(*) AS n FROM orders GROUP BY region)"),
    Said("SELECT region, category, sum(amount) AS s FROM orders GROUP BY region, category HAVING region IN (SELECT region FROM regions WHERE target > 15)", 2),
]
MYSQL = [*SUPERSET, *METABASE, *TABLEAU, *POWER_BI_AND_EXCEL, *GRAFANA_AND_LOOKER, *DBT_PANDAS_DBEAVER, *BY_HAND]
