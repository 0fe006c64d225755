"""Made-up tables under the names and types that other systems' test statements use, protected and declared generously.

Values come from a hash of the row's number: the same every time, and nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

import dpsql

ROWS, UNITS = 2_000, 500
EPSILON, DELTA = 1_000.0, 1e-6


@dataclass(frozen=True)
class Table:
    """A table to be made.

    Parameters
    ----------
    name : str
        With its schema, if it has one.
    columns : str
        ``name kind``, separated by ``;``. Kinds: ``id n`` (n values), ``int lo hi``, ``float lo hi``, ``money lo hi``, ``bool``,
        ``date``, ``time``, ``cat a,b,c``, ``text``, ``list``.
    unit : str or None
        Its privacy unit; '' for one of rows; None where it is public.
    rows : int
    """

    name: str
    columns: str
    unit: str | None = None
    rows: int = ROWS


def _value(kind: str, given: list[str], salt: str) -> tuple[str, str, str]:
    """Return the type and value of a column over the number ``i`` of a row, and what is declared of it."""
    drawn = f"(hash(i, '{salt}') % 1000003)"
    if kind == "id":
        return "BIGINT", f"{drawn} % {given[0]}", ""
    if kind in ("int", "float", "money"):
        low, high = given
        sql_type = {"int": "BIGINT", "float": "DOUBLE", "money": "DECIMAL(12,2)"}[kind]
        return sql_type, f"{low} + ({high} - ({low})) * ({drawn} / 1000003)", f"lower := {low}, upper := {high}"
    if kind == "date":
        return "DATE", f"DATE '1992-01-01' + CAST({drawn} % 2500 AS INTEGER)", "lower := '1992-01-01', upper := '1998-12-31'"
    if kind == "time":
        return "TIMESTAMP", f"TIMESTAMP '2023-01-01' + INTERVAL 1 HOUR * ({drawn} % 8000)", "lower := '2023-01-01', upper := '2024-01-01'"
    if kind == "bool":
        return "BOOLEAN", f"{drawn} % 3 = 0", ""
    if kind == "cat":
        listed = ", ".join(f"'{text}'" for text in " ".join(given).split(","))
        return "VARCHAR", f"[{listed}][1 + CAST({drawn} % {listed.count(',') + 1} AS BIGINT)]", f"categories := [{listed}]"
    if kind == "list":
        return "BIGINT[]", f"[{drawn} % 3, {drawn} % 5]", ""
    if kind == "text":
        return "VARCHAR", f"'t' || CAST({drawn} % 20 AS VARCHAR)", ""
    raise ValueError(kind)


def make(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Make a table, protect it and declare its columns."""
    parts = [column.split(None, 2) for column in table.columns.split(";")]
    made = [(name, *_value(kind, rest[0].split(" ") if rest else [], table.name + name)) for name, kind, *rest in parts]
    if "." in table.name:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {table.name.split('.')[0]}")
    listed = ", ".join(f'CAST({sql} AS {sql_type}) AS "{name}"' for name, sql_type, sql, _ in made)
    connection.execute(f"CREATE OR REPLACE TABLE {table.name} AS SELECT {listed} FROM range({table.rows}) AS numbers(i)")
    if table.unit is None:
        return
    bounded = {"privacy_unit": table.unit, "max_contributions": 10} if table.unit else {}
    dpsql.protect(connection, table.name, epsilon=EPSILON, delta=DELTA, **bounded)
    for name, _, _, declared in made:
        if declared and name != table.unit:
            connection.execute(f"CALL dp_declare('{table.name}', '{name}', {declared})")


_SIMPLE = (
    "int32 int 0 10; int64 int 0 10; uint32 int 0 10; uint64 int 0 10; string text; bytes text; bool bool; float float 0 10; "
    "double float 0 10; date date; timestamp time; numeric money 0 10"
)
GOOGLESQL = (
    Table("SimpleTypesWithAnonymizationUid", f"{_SIMPLE}; uid id {UNITS}", "uid"),
    Table("SimpleTypes", _SIMPLE, rows=20),
    Table("KeyValue", "Key int 0 10; Value text", rows=20),
    Table("KitchenSinkWithUidValueTable", f"string_val id {UNITS}; int64_val int 0 10; int32_val int 0 10", "string_val"),
    Table("TestStructWithUidValueTable", f"a id {UNITS}; b text", "a"),
    Table("T1StringAnonymizationUid", f"a id {UNITS}; b text", "a"),
    Table("ArrayWithAnonymizationUid", f"int64_array list; uid id {UNITS}", "uid"),
)
_WORK = "workclass cat Private,Gov,Self; education cat HS-grad,Bachelors,Masters; marital_status cat Divorced,Married,Single"
_LIFE = "occupation cat Tech,Sales; relationship cat Wife,Husband; race cat White,Black; sex cat Female,Male"
QRLEW = (
    Table("census", f"id id {UNITS}; age int 17 90; {_WORK}; {_LIFE}; fnlwgt int 10000 1500000; education_num int 1 16; capital_gain int 0 "
          "99999; capital_loss int 0 4356; hours_per_week int 1 99; native_country cat Cuba,Italy,England; income cat <=50K,>50K", "id"),
    Table("order_table", f"id id 1000; user_id id {UNITS}; description text; date date", "user_id"),
    Table("user_table", f"id id {UNITS}; name text; age int 0 110; city cat Paris,London", "id"),
    Table("item_table", "order_id int 0 200; item cat pen,ink; price float 0 50", ""),
    Table("retail_transactions", f"household_id id {UNITS}; store_id int 1 9; basket_id id 900; product_id int 1 20; quantity int 0 9; "
          "sales_value float 0 100; retail_disc float 0 10; coupon_disc float 0 1; transaction_timestamp time", "household_id"),
    Table("retail_demographics", f"household_id id {UNITS}; age cat 19-24,25-34; income cat low,high; home_ownership cat own,rent",
          "household_id"),
    Table("retail_products", "product_id int 1 20; manufacturer_id int 1 9; department cat A,B; brand cat X,Y; product_category cat P,Q",
          rows=30),
)
SMARTNOISE = (
    Table("Telemetry.Crashes", f"ReportID id 2000; DeviceID id {UNITS}; Region cat LATAM,EMEA; Building cat B1,B2; Refurbished bool; "
          "Temperature float 30 100; Crashes int 0 20", "DeviceID"),
    Table("PUMS.PUMS", f"age int 0 100; sex cat 0,1; educ int 1 16; race int 1 6; income float 0 500000; married bool; pid id {UNITS}",
          "pid"),
)
TPCH = (
    Table("customer", f"c_custkey id {UNITS}; c_name text; c_address text; c_nationkey int 0 24; c_phone text; c_acctbal money -999 9999; "
          "c_mktsegment cat BUILDING,AUTOMOBILE; c_comment text", "c_custkey"),
    Table("orders", f"o_orderkey id 1000; o_custkey id {UNITS}; o_orderstatus cat F,O; o_totalprice money 0 500000; o_orderdate date; "
          "o_orderpriority cat 1-URGENT,2-HIGH,3-MEDIUM; o_clerk text; o_shippriority int 0 1; o_comment text", "o_custkey"),
    Table("lineitem", "l_orderkey id 1000; l_partkey int 0 50; l_suppkey int 0 10; l_linenumber int 1 7; l_quantity money 0 50; "
          "l_extendedprice money 0 100000; l_discount money 0 0.1; l_tax money 0 0.1; l_returnflag cat A,N,R; l_linestatus cat F,O; "
          "l_shipdate date; l_commitdate date; l_receiptdate date; l_shipinstruct cat NONE,DELIVER IN PERSON; "
          "l_shipmode cat AIR,AIR REG,MAIL,SHIP; l_comment text", "l_orderkey"),
    Table("part", "p_partkey int 0 50; p_name text; p_mfgr text; p_brand cat Brand#12,Brand#23,Brand#34; p_type cat PROMO,ECONOMY; "
          "p_size int 1 50; p_container cat SM CASE,MED BOX; p_retailprice money 0 2000; p_comment text", rows=50),
    Table("supplier", "s_suppkey int 0 10; s_name text; s_address text; s_nationkey int 0 24; s_phone text; s_acctbal money -999 9999; "
          "s_comment text", rows=10),
    Table("partsupp", "ps_partkey int 0 50; ps_suppkey int 0 10; ps_availqty int 0 9999; ps_supplycost money 0 1000; ps_comment text",
          rows=100),
    Table("nation", "n_nationkey int 0 24; n_name text; n_regionkey int 0 4; n_comment text", rows=25),
    Table("region", "r_regionkey int 0 4; r_name text; r_comment text", rows=5),
)


def dpsqlplus(protected: dict[str, str]) -> tuple[Table, ...]:
    """Return the tables of DPSQL+'s tests, of which those that a statement names are protected, each with its unit."""
    shared = "col int 0 10; col1 int 0 10; col2 int 0 10; a int 0 10; b int 0 10; c int 0 10; age int 0 100; name text; price float 0 100"
    found = []
    for name in ("ptbl", "ptbl2", "tbl", "tbl2", "a", "db.table", "table1", "db1.table1", "db1.ptbl", "db.tbl2"):
        unit = protected.get(name)
        if name.endswith("table1"):
            columns, unit = f"column1 id {UNITS}; column2 int 0 10; column3 int 0 10", "column1"
        else:
            columns = f"pcol id {UNITS}; pcol1 id {UNITS}; pcol2 id {UNITS}; hoge text; {shared}"
        found.append(Table(f'"{name}"' if name == "a" else name.replace("db.table", 'db."table"'), columns, unit))
    return tuple(found)
