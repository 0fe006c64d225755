"""A small room and small keys for tests of the MySQL door: a DuckDB of three tables, of which one may only be aggregated."""

import hashlib
import threading

import duckdb
import sqlglot
from sqlglot import exp

from dpsql.serve.mysql.translate import to_duckdb
from dpsql.serve.passed import Answer, Column, Refused, Table

TOKENS = {"alice": "dpsql_alices-own-token", "bob": "dpsql_another-token"}
DATABASE = "hospital"
_MADE = """
CREATE TABLE visits AS SELECT i AS patient_id, ['medicine', 'surgery', 'children'][1 + i % 3] AS ward,
    CAST(i * 1.25 AS DECIMAL(10, 2)) AS cost, TIMESTAMP '2024-01-01 00:00:00' + to_hours(i * 7) AS visit_at,
    ['F', 'M'][1 + i % 2] AS sex, CAST(i % 90 AS INTEGER) AS age FROM range(300) t(i);
CREATE TABLE wards AS SELECT * FROM (VALUES ('medicine', 'A'), ('surgery', 'B'), ('children', 'O''Brien ? "x" \\')) t(ward, building);
CREATE TABLE visits_synth AS SELECT * FROM visits WHERE patient_id < 20;
"""


class FakeRoom:
    """Answers every question by DuckDB itself, but no rows of visits; counts what it was asked."""

    database = DATABASE

    def __init__(self):
        self._connection, self._empty = duckdb.connect(), duckdb.connect()
        for connection in (self._connection, self._empty):
            connection.execute(f"ATTACH ':memory:' AS {DATABASE}; USE {DATABASE}")
        self._connection.execute(_MADE)
        for table in ("visits", "wards", "visits_synth"):
            names = self._connection.execute(f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index").fetchall()
            self._empty.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in names)})")
        self.asked, self.described = [], []
        self.hold = threading.Event()
        self.hold.set()
        self.waiting = threading.Event()

    def ask(self, analyst, text, dialect="duckdb", parameters=()):
        sql = self._text(text, dialect, parameters)
        self.asked.append((analyst, sql))
        if "'wait'" in sql:
            self.waiting.set()
            assert self.hold.wait(60)
        if "'trace'" in sql:
            raise RuntimeError("/home/secret/path.py, line 12")
        for kind in ("busy", "stopped", "failed", "refused"):
            if f"'{kind}'" in sql:
                raise Refused(kind, f"it is {kind}\nand more")
        return self._run(self._connection, sql)

    def describe(self, analyst, text, dialect="duckdb", parameters=()):
        sql = self._text(text, dialect, parameters)
        self.described.append((analyst, sql))
        return self._run(self._empty, sql).columns

    def places(self, analyst, text):
        return text.count("?")

    def schema(self, analyst):
        def table(name):
            columns = self._empty.execute(f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{name}' ORDER BY column_index").fetchall()
            return Table("main", name, tuple(Column(*column) for column in columns), name == "visits_synth", name == "visits")

        return tuple(map(table, ("visits", "visits_synth", "wards")))

    def _text(self, text, dialect, parameters):
        sql = to_duckdb(text, parameters) if dialect == "mysql" else text
        tree = sqlglot.parse_one(sql, read="duckdb")
        probe = tree.args.get("limit") and tree.args["limit"].expression.name == "0" or "1 = 0" in sql
        if any(table.name == "visits" for table in tree.find_all(exp.Table)) and not tree.find(exp.AggFunc) and not probe:
            raise Refused("refused", "rows of visits are not shown: ask for aggregates, mysql_query('census', '...') sends them as they are")
        return sql

    def _run(self, connection, sql):
        cursor = connection.cursor()
        try:
            cursor.execute(f"USE {DATABASE}")
            cursor.execute(sql)
            return Answer(tuple(Column(name, str(kind)) for name, kind, *_ in cursor.description), cursor.fetchall())
        except duckdb.CatalogException:
            raise Refused("no_table", "there is no such table or function") from None
        except duckdb.BinderException:
            raise Refused("no_column", "there is no such column") from None
        except duckdb.Error:
            raise Refused("unsupported", "this is not answered") from None


class FakeKeys:
    """The tokens of two analysts."""

    def __init__(self):
        self.tokens = dict(TOKENS)
        self.numbers = {"alice": 1, "bob": 2}

    def native(self, name):
        token = self.tokens.get(name)
        return None if token is None else hashlib.sha1(hashlib.sha1(token.encode()).digest()).digest()

    def admits(self, name, token):
        return self.numbers[name] if self.tokens.get(name) == token else None

    def of_token(self, token):
        return next(((name, self.numbers[name]) for name, known in self.tokens.items() if known == token), None)

    def number(self, name):
        return self.numbers.get(name)
