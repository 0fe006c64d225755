"""Random statements over linked tables: joins along links, of siblings and on the unit, EXISTS and IN, groups, windows, set operations.

Privacy status: test data alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

JOINS = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", ",")
TABLES: dict[str, dict[str, dict[str, str]]] = {
    "patients": {"keys": {"patient": "patient"}, "numbers": {"age": "0, 90"}, "texts": {"sex": ""}},
    "visits": {
        "keys": {"visit": "visit", "patient": "patient"}, "numbers": {"cost": "0, 100"}, "texts": {}, "wards": {"ward": ""}, "days": {"day": ""},
    },
    '"lett ers"': {"keys": {"patient": "patient"}, "numbers": {'"größe 😀"': "0, 9"}, "texts": {'"select"': ""}},
    "procedures": {"keys": {"proc": "proc", "visit": "visit"}, "numbers": {"price": "0, 50"}, "texts": {"code": ""}},
    "labs": {"keys": {"visit": "visit"}, "numbers": {"value": "0, 4"}, "texts": {}, "wards": {"value": ""}},
    "items": {"keys": {"proc": "proc"}, "numbers": {'"order"': "0, 5"}, "texts": {}},
}  # fmt: skip
"""Tables of people: the keys that their columns hold, numbers with bounds, texts with declared values, wards, days."""

VALUES = {"sex": "f", "code": "c1", "floor": "first"}
"""A value of each column of texts."""


@dataclass
class Item:
    """A relation that the text may refer to: its columns by what they are, as they are written."""

    keys: dict[str, list[str]] = field(default_factory=dict)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    wards: list[str] = field(default_factory=list)
    days: list[str] = field(default_factory=list)

    def add(self, other: Item) -> None:
        for key, columns in other.keys.items():
            self.keys.setdefault(key, []).extend(columns)
        self.numbers += other.numbers
        self.texts += other.texts
        self.wards += other.wards
        self.days += other.days

    def under(self, alias: str) -> Item:
        """Return the columns of a subquery under an alias."""
        return Item(
            {key: [f"{alias}.{c}" for c in columns] for key, columns in self.keys.items()}, [(f"{alias}.{c}", b) for c, b in self.numbers],
            [f"{alias}.{c}" for c in self.texts], [f"{alias}.{c}" for c in self.wards], [f"{alias}.{c}" for c in self.days],
        )  # fmt: skip


@dataclass
class Statement:
    """A query, the arguments of its call, and how many of its columns are keys of groups."""

    sql: str
    more: str
    keys: int = 0


class Statements:
    """Random statements.

    Parameters
    ----------
    seed : int
    wrong : float
        The share of joins that compare what is no key: they are refused.
    """

    def __init__(self, seed: int, wrong: float = 0.05) -> None:
        self.rng, self.wrong, self.aliases = random.Random(seed), wrong, 0

    def statement(self) -> Statement:
        """Return a statement."""
        self.aliases = 0
        text, item, where = self.joined(self.rng.choice([0, 0, 1, 1, 1, 2, 2, 3]))
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        if self.rng.random() < 0.15 and item.keys:
            return self._by_person(text, item, clause)
        keys, private = self._groups(item)
        aggregates = ", ".join(self.aggregate(item) for _ in range(self.rng.choice([1, 1, 2, 3])))
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        more = ["groups := 'private'"] if private and keys else []
        if self.rng.random() < 0.6:
            more.append(f"max_rows_per_group := {self.rng.choice([1, 2, 3, 5, 12])}")
        if keys and self.rng.random() < 0.4:
            more.append(f"max_groups := {self.rng.choice([1, 2, 3])}")
        sql = f"SELECT {', '.join([*keys, aggregates])} FROM {text}{clause}{grouped}"
        return Statement(sql, ", ".join(more), len(keys))

    def _by_person(self, text: str, item: Item, clause: str) -> Statement:
        """Return aggregates over aggregates by a key."""
        key = self.rng.choice([c for columns in item.keys.values() for c in columns])
        number = self.rng.choice(["count(*)", *(f"{a}({c})" for c, _ in item.numbers for a in ("sum", "max", "avg"))])
        above = self.rng.choice(["count(*), avg(n)", "sum(n)", "n, count(*)"])
        grouped = " GROUP BY n" if above.startswith("n,") else ""
        more = "groups := 'private'" if grouped else "bounds := {'n': [0, 20]}"
        having = self.rng.choice(["", "", " HAVING count(*) > 1"])
        if self.rng.random() < 0.6:
            clause = f"{clause} AND {key} IS NOT NULL" if clause else f" WHERE {key} IS NOT NULL"
        return Statement(f"SELECT {above} FROM (SELECT {key}, {number} AS n FROM {text}{clause} GROUP BY {key}{having}){grouped}", more)

    def joined(self, joins: int, depth: int = 2) -> tuple[str, Item, list[str]]:
        """Return a FROM clause of so many joins, its columns, and conditions that stand in WHERE."""
        text, item = self.relation(depth)
        where: list[str] = []
        for _ in range(joins):
            if self.rng.random() < 0.25:
                text = f"{text} {self._public(item)}"
                continue
            other, columns = self.relation(depth - 1)
            shared = [key for key in item.keys if key in columns.keys]
            join = self.rng.choice(JOINS)
            if self.rng.random() < self.wrong and item.numbers and columns.numbers:
                conditions = [f"{item.numbers[0][0]} = {columns.numbers[0][0]}"]
            elif shared:
                key = self.rng.choice(shared)
                left, right = self.rng.choice(item.keys[key]), columns.keys[key][0]
                conditions = [f"{left} = {right}" if self.rng.random() < 0.8 else f"{right} = {left}"]
            else:
                continue
            if self.rng.random() < 0.35:
                conditions.append(self.predicate(item, columns))
            if join == ",":
                text, where = f"{text}, {other}", [*where, *conditions]
            else:
                text = f"{text} {join} {other} ON {' AND '.join(conditions)}"
            if join not in ("SEMI JOIN", "ANTI JOIN"):
                item.add(columns)
        if depth > 0 and self.rng.random() < 0.55:
            where.append(self.condition(item, depth))
        return text, item, where

    def relation(self, depth: int) -> tuple[str, Item]:
        """Return a table, or a subquery, under a fresh alias."""
        if depth > 0 and self.rng.random() < 0.3:
            text, item = self.rng.choice(self._subqueries())(depth)
            alias = self._alias()
            return f"({text}) AS {alias}", item.under(alias)
        return self.table()

    def table(self, key: str | None = None) -> tuple[str, Item]:
        """Return a table, that holds a key if one is named."""
        name = self.rng.choice([name for name, columns in TABLES.items() if key is None or key in columns["keys"]])
        alias = self._alias()
        columns = TABLES[name]
        item = Item(
            {key: [column] for key, column in columns["keys"].items()}, list(columns["numbers"].items()), list(columns["texts"]),
            list(columns.get("wards", ())), list(columns.get("days", ())),
        )  # fmt: skip
        return f"{name} AS {alias}", item.under(alias)

    def _subqueries(self) -> list[Callable[[int], tuple[str, Item]]]:
        return [self._grouped, self._grouped, self._united, self._distinct, self._windowed, self._narrowed, self._deep]

    def _grouped(self, depth: int) -> tuple[str, Item]:
        text, item, where = self.joined(self.rng.choice([0, 0, 1]), depth - 1)
        if not item.keys:
            return self._narrowed(depth)
        key = self.rng.choice(list(item.keys))
        column = self.rng.choice(item.keys[key])
        number = self.rng.choice(["count(*)", *(f"{a}({c})" for c, _ in item.numbers for a in ("sum", "min", "max", "avg"))])
        where += [f"{column} IS NOT NULL"] if self.rng.random() < 0.6 else []
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        extra = self.rng.choice(item.texts) if item.texts and self.rng.random() < 0.3 else None
        shown = f"{column} AS {key}, " + (f"{extra} AS t, " if extra else "")
        sql = f"SELECT {shown}{number} AS n FROM {text}{clause} GROUP BY {column}{f', {extra}' if extra else ''}"
        return sql, Item({key: [key]}, [("n", "0, 20")], ["t"] if extra else [])

    def _united(self, depth: int) -> tuple[str, Item]:
        key = self.rng.choice(["patient", "visit", "proc"])
        sides = []
        for _ in range(2):
            text, item = self.table(key)
            there = f" WHERE {item.keys[key][0]} IS NOT NULL" if self.rng.random() < 0.7 else ""
            sides.append(f"SELECT {item.keys[key][0]} AS {key}, CAST({item.numbers[0][0]} AS DOUBLE) AS n FROM {text}{there}")
        operation = self.rng.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        return f" {operation} ".join(sides), Item({key: [key]}, [("n", "0, 90")])

    def _distinct(self, depth: int) -> tuple[str, Item]:
        text, item = self.table()
        key = self.rng.choice(list(item.keys))
        column, number = item.keys[key][0], item.numbers[0][0]
        how = self.rng.choice(["DISTINCT", f"DISTINCT ON ({column})"])
        order = f" ORDER BY {number} DESC NULLS LAST" if "ON" in how else ""
        there = f" WHERE {column} IS NOT NULL" if self.rng.random() < 0.6 else ""
        return f"SELECT {how} {column} AS {key}, {number} AS n FROM {text}{there}{order}", Item({key: [key]}, [("n", "0, 90")])

    def _windowed(self, depth: int) -> tuple[str, Item]:
        text, item = self.table()
        key = self.rng.choice(list(item.keys))
        column, number = item.keys[key][0], item.numbers[0][0]
        over = f"OVER (PARTITION BY {column} ORDER BY {number} ASC)"
        there = f" WHERE {column} IS NOT NULL" if self.rng.random() < 0.6 else ""
        text += there
        window = self.rng.choice([f"row_number() {over}", f"lag({number}) {over}", f"count(*) OVER (PARTITION BY {column})", f"sum({number}) {over}"])
        if self.rng.random() < 0.4:
            sql = f"SELECT {column} AS {key}, {number} AS n FROM {text} QUALIFY row_number() {over} <= {self.rng.choice([1, 2])}"
        else:
            sql = f"SELECT {column} AS {key}, {window} AS n FROM {text}"
        return sql, Item({key: [key]}, [("n", "0, 90")])

    def _narrowed(self, depth: int) -> tuple[str, Item]:
        text, item = self.table()
        key = self.rng.choice(list(item.keys))
        column, number = item.keys[key][0], item.numbers[0]
        where = self.rng.choice([f" WHERE {column} IS NOT NULL", f" WHERE {self.condition(item, depth - 1)}", ""])
        return f"SELECT {column} AS {key}, {number[0]} AS n FROM {text}{where}", Item({key: [key]}, [("n", number[1])])

    def _deep(self, depth: int) -> tuple[str, Item]:
        text, item, where = self.joined(1, depth - 1)
        if not item.keys:
            return self._narrowed(depth)
        key = self.rng.choice(list(item.keys))
        number = self.rng.choice(item.numbers) if item.numbers else ("1", "0, 1")
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        return f"SELECT {self.rng.choice(item.keys[key])} AS {key}, {number[0]} AS n FROM {text}{clause}", Item({key: [key]}, [("n", number[1])])

    def _public(self, item: Item) -> str:
        """Return a join with a public table."""
        alias = self._alias()
        join = self.rng.choice(["JOIN", "LEFT JOIN"])
        if item.wards:
            column = self.rng.choice(item.wards)
            table = self.rng.choice(["wards", "beds"])
            item.texts.append(f"{alias}.floor")
            return f"{join} {table} AS {alias} ON {column} = {alias}.ward"
        item.texts.append(f"{alias}.floor")
        return f"CROSS JOIN wards AS {alias}"

    def predicate(self, item: Item, other: Item | None = None) -> str:
        """Return a condition on columns of one row, or of two."""
        numbers = [c for c, _ in item.numbers]
        if other is not None and numbers and other.numbers:
            return f"{self.rng.choice(numbers)} {self.rng.choice(['<', '<>', '>=', 'IS DISTINCT FROM'])} {other.numbers[0][0]}"
        found = [f"{c} {self.rng.choice(['>', '<=', '<>', '='])} {self.rng.choice([0, 1, 3, 20, 50])}" for c in numbers]
        found += [f"{c} IS {self.rng.choice(['', 'NOT '])}NULL" for c in numbers]
        found += [f"{c} {self.rng.choice(['=', '<>'])} '{VALUES.get(c.rpartition('.')[2], 'a')}'" for c in item.texts]
        found += [f"{c} >= DATE '2020-06-01'" for c in item.days]
        return self.rng.choice(found) if found else "1 = 1"

    def condition(self, item: Item, depth: int) -> str:
        """Return a condition, with a subquery or without."""
        if depth <= 0 or not item.keys or self.rng.random() < 0.35:
            one = self.predicate(item)
            return one if self.rng.random() < 0.8 else f"({one} OR {self.predicate(item)})"
        key = self.rng.choice(list(item.keys))
        outer = self.rng.choice(item.keys[key])
        text, inner = self.table(key)
        column = inner.keys[key][0]
        more = f" AND {self.predicate(inner)}" if self.rng.random() < 0.5 else ""
        more += f" AND {self.predicate(item, inner)}" if self.rng.random() < 0.25 else ""
        negated = self.rng.choice(["", "", "NOT "])
        kind = self.rng.random()
        if kind < 0.5:
            if self.rng.random() < 0.4:
                more += f" AND {self.condition(inner, depth - 1)}"
            if self.rng.random() < 0.3:
                beside, second = self.relation(0)
                shared = [k for k in inner.keys if k in second.keys]
                if shared:
                    return f"{negated}EXISTS (SELECT 1 FROM {text} JOIN {beside} ON {inner.keys[shared[0]][0]} = {second.keys[shared[0]][0]} WHERE {column} = {outer}{more})"
            return f"{negated}EXISTS (SELECT 1 FROM {text} WHERE {column} = {outer}{more})"
        if kind < 0.8:
            return f"{outer} {negated}IN (SELECT {column} FROM {text} WHERE {column} IS NOT NULL{more})"
        if kind < 0.9 and item.wards:
            return f"{self.rng.choice(item.wards)} {negated}IN (SELECT ward FROM wards WHERE floor = 'first')"
        if item.numbers and inner.numbers and self.rng.random() < self.wrong:
            value = f"SELECT {self.rng.choice(['max', 'avg', 'min'])}({inner.numbers[0][0]}) FROM {text} WHERE {column} = {outer}"
            return f"{self.rng.choice(item.numbers)[0]} >= ({value})"
        return self.predicate(item)

    def aggregate(self, item: Item) -> str:
        """Return an aggregate."""
        columns = [c for c, _ in item.numbers]
        found = ["count(*)", "count(*)"]
        found += [f"{name}({c})" for c in columns for name in ("sum", "avg", "sum", "count", "median", "max", "stddev")]
        found += [f"count(DISTINCT {c})" for c in (*item.texts, *(k for ks in item.keys.values() for k in ks))]
        chosen = self.rng.choice(found)
        return f"{chosen} FILTER (WHERE {self.predicate(item)})" if self.rng.random() < 0.12 else chosen

    def _groups(self, item: Item) -> tuple[list[str], bool]:
        """Return keys of groups, and whether they are to be chosen privately."""
        if self.rng.random() < 0.45:
            return [], False
        days = [f"date_trunc('quarter', {c})" for c in item.days]
        pool = [*item.texts, *item.wards, *days]
        if self.rng.random() < self.wrong:
            pool += [k for keys in item.keys.values() for k in keys]
        keys = self.rng.sample(pool, min(len(pool), self.rng.choice([1, 1, 2])))
        return keys, self.rng.random() < 0.6

    def _alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"
