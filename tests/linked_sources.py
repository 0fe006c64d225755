"""Linked tables for tests of sources: a chain of three, two children of one parent, and random rows with orphans in all of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import duckdb

from dpsql.session.settings import pin, sound_plans
from dpsql.source.analysis import Source, TableId, analyse
from dpsql.source.linked import Hop, Lineage, Orphans

PUBLIC = "CREATE TABLE wards(ward INTEGER PRIMARY KEY, floor INTEGER); INSERT INTO wards VALUES (0, 0), (1, 0), (2, 1);"
NAMES = ("patients", "visits", "procedures", "labs")
KEYS = {"INTEGER": [1, 2, 3, 4], "VARCHAR": ["a", "A", "é", "b"]}


def table(name: str) -> TableId:
    return TableId("memory", "main", name)


@dataclass
class Linked:
    """A database: patients <- visits <- procedures, labs.

    ``unit``: the privacy unit column of the root, 'family' is none of its keys and may be NULL; None: a row is a person.
    """

    kind: str = "INTEGER"
    unit: str | None = "patient"
    orphans: Orphans = "drop"
    collation: str = ""
    sources: dict[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.con = duckdb.connect(":memory:")
        key, child = self.kind, f"{self.kind} {self.collation}"
        self.con.execute(
            f"CREATE TABLE patients(patient {key} PRIMARY KEY, family {key}, age INTEGER);"
            f"CREATE TABLE visits(visit INTEGER UNIQUE, patient {child}, ward INTEGER, cost DOUBLE);"
            "CREATE TABLE procedures(visit INTEGER, code VARCHAR, price DECIMAL(9,2));"
            f"CREATE TABLE labs(visit INTEGER, value INTEGER); {PUBLIC}"
        )
        self.cursor = self.con.cursor()
        pin(self.cursor)
        sound_plans(self.cursor)  # as before every reading of joins
        first = Hop(table("visits"), "patient", table("patients"), "patient", 4, self.orphans)
        self.ways = {table("visits"): Lineage(table("visits"), table("patients"), (first,))}
        for name in ("procedures", "labs"):
            hop = Hop(table(name), "visit", table("visits"), "visit", 3, self.orphans)
            self.ways[table(name)] = Lineage(table(name), table("patients"), (hop, first))

    def source(self, text: str, *, local: bool = True) -> Source:
        if text not in self.sources:
            unit = {"patients": self.unit or "patient"}
            self.sources[text] = analyse(
                self.cursor, text, database="memory", schema="main", local=local, protected=lambda t: t.name in unit, is_root=lambda t: t.name == "patients",
                unit_column=lambda t: unit.get(t.name), lineage=self.ways.get,
            )  # fmt: skip
        return self.sources[text]

    def fill(self, rows: dict[str, list[tuple]]) -> None:
        for name in reversed(NAMES):
            self.con.execute(f"DELETE FROM {name}")
        for name, given in rows.items():
            if given:
                self.con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(given[0]))})", given)

    def read(self, text: str) -> Counter:
        return Counter(tuple(str(v) for v in row) for row in self.cursor.execute(self.source(text).sql).fetchall())

    def units(self, rows: dict[str, list[tuple]]) -> dict[str, list[object]]:
        """Return whose row each one is, by the definition, in Python; 'nobody' for an orphan that is dropped."""
        lost: object = "nobody" if self.orphans == "drop" else None
        of_patient = {row[0]: row[1] if self.unit == "family" else row[0] for row in rows["patients"]}
        visits = [of_patient.get(row[1], lost) for row in rows["visits"]]
        of_visit = {row[0]: unit for row, unit in zip(rows["visits"], visits, strict=True) if row[0] is not None}
        found: dict[str, list[object]] = {"patients": [of_patient[row[0]] for row in rows["patients"]], "visits": visits}
        for name in ("procedures", "labs"):
            found[name] = [of_visit.get(row[0], lost) for row in rows[name]]
        return found

    def without(self, rows: dict[str, list[tuple]], unit: object, rng: random.Random) -> tuple[dict[str, list[tuple]], dict[str, list[tuple]]]:
        """Return the rows of all others, in another order, and those of one unit alone."""
        units = self.units(rows)
        others, own = {}, {}
        for name, given in rows.items():
            pairs = list(zip(given, units[name], strict=True))
            others[name] = [row for row, whose in pairs if whose != unit]
            own[name] = [row for row, whose in pairs if whose == unit]
            rng.shuffle(others[name])
        return others, own

    def random_rows(self, rng: random.Random, size: int) -> dict[str, list[tuple]]:
        keys = KEYS[self.kind]
        unknown = 9 if self.kind == "INTEGER" else "z"
        there = rng.sample(keys, rng.randint(1, len(keys)))
        patients = [(key, rng.choice([*keys[:2], None]), rng.randrange(3)) for key in there]
        ids = rng.sample(range(3 * size), size)
        visits = [
            (rng.choice([i, i, i, None]), rng.choice([*keys, None, unknown]), rng.randrange(4), rng.choice([0.1, 0.2, 0.3, 1e16, None]))
            for i in ids
        ]
        known = [*ids, None, 10_000]
        procedures = [(rng.choice(known), rng.choice(["x", "y", None]), rng.choice(["0.10", "2.00", None])) for _ in range(2 * size)]
        labs = [(rng.choice(known), rng.randrange(3)) for _ in range(2 * size)]
        return {"patients": patients, "visits": visits, "procedures": procedures, "labs": labs}

    def violations(self, texts, seed: int, size: int = 6) -> list[str]:
        """Return the texts for which taking out all rows of one unit moves another's rows, or leaves some of its own."""
        rng = random.Random(seed)
        rows = self.random_rows(rng, size)
        units = {repr(u): u for column in self.units(rows).values() for u in column if u != "nobody"}
        gone = rng.choice(list(units.values()))
        others, own = self.without(rows, gone, rng)
        found = []
        for part in (rows, own, others):
            self.fill(part)
            found.append({text: self.read(text) for text in texts})
        whole, alone, after = found
        return [
            text
            for text in texts
            if whole[text] != alone[text] + after[text]
            or len(units_in(alone[text])) > 1
            or units_in(alone[text]) & units_in(after[text])
        ]


def units_in(rows: Counter) -> set[str]:
    return {row[-1] for row in rows}


ROWS = (
    "visits",
    "procedures",
    "SELECT code, price FROM procedures WHERE price > 1",
    "SELECT v.cost, w.floor FROM visits v LEFT JOIN wards w ON v.ward = w.ward",
)
"""Row by row."""
LOCAL = (
    "SELECT p.age, v.cost FROM visits v JOIN patients p ON v.patient = p.patient",
    "SELECT p.age, v.cost FROM patients p LEFT JOIN visits v USING (patient)",
    "SELECT p.age, v.cost FROM patients p RIGHT JOIN visits v USING (patient)",
    "SELECT p.age, v.cost FROM patients p FULL JOIN visits v USING (patient)",
    "SELECT p.age, v.cost, q.code FROM procedures q, visits v, patients p WHERE q.visit = v.visit AND v.patient = p.patient",
    "SELECT p.age, v.cost, q.code FROM patients p LEFT JOIN visits v USING (patient) LEFT JOIN procedures q ON q.visit = v.visit",
    "SELECT p.age, q.code, w.floor FROM procedures q, wards w, visits v, patients p WHERE v.ward = w.ward AND q.visit = v.visit AND v.patient = p.patient",
    "SELECT p.age, q.code, a.value FROM patients p JOIN visits v ON p.patient = v.patient JOIN procedures q ON q.visit = v.visit AND q.price > 1 JOIN labs a ON a.visit = v.visit",
    "SELECT v.cost, q.code FROM visits v LEFT JOIN procedures q ON q.visit = v.visit AND q.price > 1",
    "SELECT v.cost, q.code, o.code AS other FROM visits v LEFT JOIN procedures q ON q.visit = v.visit LEFT JOIN procedures o ON o.visit = q.visit",
    "SELECT v.cost, r.visit FROM procedures q JOIN visits v ON q.visit = v.visit AND v.cost > 0.1 LEFT JOIN visits r ON r.patient = v.patient, patients p WHERE p.patient = r.patient",
    "SELECT v.patient, a.visit, x.ward FROM visits v RIGHT JOIN labs a ON v.visit = a.visit LEFT JOIN (SELECT w.patient, w.ward FROM labs b LEFT JOIN visits w ON w.visit = b.visit) x ON v.patient = x.patient",
    "SELECT a.value, b.code FROM labs a JOIN procedures b ON a.visit = b.visit",
    "SELECT a.value, b.code FROM labs a FULL JOIN procedures b USING (visit)",
    "SELECT a.value, b.value AS other FROM labs a JOIN labs b USING (visit) JOIN wards w ON a.value = w.ward",
    "SELECT visit, sum(price) AS s, count(*) AS n FROM procedures GROUP BY visit",
    "SELECT a.s, v.cost FROM visits v JOIN (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit) a ON a.visit = v.visit",
    "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit AND q.code = 'x')",
    "SELECT cost FROM visits v WHERE NOT EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit)",
    "SELECT age FROM patients WHERE patient IN (SELECT patient FROM visits WHERE cost > 0.1)",
    "SELECT code FROM procedures WHERE visit IN (SELECT visit FROM labs WHERE value = 1)",
    "SELECT code FROM procedures WHERE visit > 0 AND visit NOT IN (SELECT visit FROM labs WHERE value = 1 AND visit IS NOT NULL)",
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM labs a WHERE a.visit = q.visit AND a.value > 0)",
    "SELECT code FROM procedures q WHERE NOT EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.price > q.price)",
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.code = q.code AND r.price <> q.price AND r.price > 0)",
    "SELECT code FROM procedures q WHERE EXISTS (SELECT 1 FROM procedures r WHERE q.visit = r.visit AND r.price > q.price AND r.code <> q.code)",
    "SELECT cost FROM visits v, procedures q, wards w WHERE q.visit = v.visit AND w.ward = v.ward AND NOT EXISTS (SELECT 1 FROM labs a WHERE a.visit = q.visit AND a.value = w.floor) AND EXISTS (SELECT 1 FROM procedures r WHERE r.visit = v.visit AND r.code = 'x')",
    "SELECT age FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND cost > 0.1)",
    "SELECT p.age FROM patients p LEFT JOIN visits v USING (patient) WHERE NOT EXISTS (SELECT 1 FROM procedures q WHERE q.visit = v.visit)",
    "SELECT s FROM (SELECT visit, sum(price) AS s FROM procedures GROUP BY visit) a WHERE EXISTS (SELECT 1 FROM labs b WHERE b.visit = a.visit)",
    "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a JOIN procedures q USING (visit) WHERE a.visit = v.visit AND q.code = 'x')",
    "SELECT cost FROM visits v WHERE EXISTS (SELECT 1 FROM labs a, wards w WHERE a.visit = v.visit AND a.value = w.floor)",
    "SELECT cost FROM visits v WHERE v.visit NOT IN (SELECT a.visit FROM labs a WHERE a.visit = v.visit AND a.value > 0)",
    "SELECT age FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND NOT EXISTS (SELECT 1 FROM labs a WHERE a.visit = v.visit))",
    "SELECT code, row_number() OVER (PARTITION BY visit ORDER BY price ASC) AS n FROM procedures",
    "SELECT DISTINCT visit, code FROM procedures",
    "SELECT visit FROM procedures UNION SELECT visit FROM labs",
    "SELECT visit FROM procedures EXCEPT SELECT visit FROM labs",
    "SELECT visit FROM procedures INTERSECT ALL SELECT visit FROM labs",
    "SELECT code AS c FROM procedures UNION ALL SELECT CAST(value AS VARCHAR) FROM labs",
)
"""Combine rows of one unit, whatever tells the units apart."""
BY_UNIT = (
    "SELECT patient, sum(cost) AS s, count(*) AS n FROM visits GROUP BY patient",
    "SELECT v.patient, sum(q.price) AS s FROM visits v JOIN procedures q USING (visit) GROUP BY v.patient",
    "SELECT a.cost, b.cost AS other FROM visits a JOIN visits b USING (patient) WHERE a.visit < b.visit",
    "SELECT a.n, p.age FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) a JOIN patients p USING (patient)",
    "SELECT DISTINCT ON (patient) patient, cost FROM visits ORDER BY cost DESC NULLS LAST",
)
"""Where the column that links is the unit itself."""
