"""Columns with bounds of every type that can have bins, at ordinary and extreme places: what tests of fine histograms go through."""

from __future__ import annotations

import math
from collections import Counter

from pairwise import WHOLE

from dpsql.domains.attributes import Attribute
from dpsql.domains.declare import declare

LARGEST, TINY = 1.7976931348623157e308, 5e-324

BOUNDS: list[tuple[str, object, object]] = [
    ("TINYINT", -128, 127), ("UTINYINT", 0, 255), ("SMALLINT", -32768, 32767), ("USMALLINT", 0, 65535),
    ("INTEGER", 0, 120), ("INTEGER", 0, 1), ("INTEGER", 5, 6), ("INTEGER", -2147483648, 2147483647), ("INTEGER", -300, -250),
    ("INTEGER", 0, 100_000), ("INTEGER", 1000, 9999), ("INTEGER", 0.5, 99.5), ("UINTEGER", 0, 4294967295),
    ("BIGINT", 0, 10**7), ("BIGINT", -10**7, 10**3), ("BIGINT", -2**63, 2**63 - 1), ("BIGINT", 2**62, 2**62 + 4096), ("BIGINT", -10**15, -10**3),
    ("BIGINT", 1, 10**15), ("UBIGINT", 0, 2**64 - 1), ("HUGEINT", -2**127, 2**127 - 1), ("HUGEINT", 10**30, 10**31), ("HUGEINT", -5, 10**38),
    ("UHUGEINT", 0, 2**128 - 1), ("HUGEINT", 0, 1000),
    ("DECIMAL(4,2)", -99.99, 99.99), ("DECIMAL(10,2)", 0, 1_000_000), ("DECIMAL(18,3)", -10**12, 10**12), ("DECIMAL(38,0)", -1e37, 1e37),
    ("DECIMAL(38,37)", -9.9, 9.9), ("DECIMAL(38,38)", 0, 0.5), ("DECIMAL(9,4)", 1.5, 1.75), ("DECIMAL(38,10)", 1e20, 1e27),
    ("FLOAT", 0, 1), ("FLOAT", -3.4028234663852886e38, 3.4028234663852886e38), ("FLOAT", 1e-45, 1e-40), ("FLOAT", 100, 100.001), ("FLOAT", -1e20, 1e-20),
    ("DOUBLE", 0, 1), ("DOUBLE", 0, 100_000), ("DOUBLE", -LARGEST / 2, LARGEST / 2.1), ("DOUBLE", 0, LARGEST), ("DOUBLE", -LARGEST, 0), ("DOUBLE", -1, 1),
    ("DOUBLE", 0, TINY), ("DOUBLE", -TINY, TINY), ("DOUBLE", TINY, 1e-320), ("DOUBLE", 1e-310, 1e-300), ("DOUBLE", 1, math.nextafter(1, 2)),
    ("DOUBLE", 1e15, 1e15 + 1), ("DOUBLE", -1000, -1), ("DOUBLE", 36.5, 42.0), ("DOUBLE", 1e300, LARGEST), ("DOUBLE", 1e-300, 1e300), ("DOUBLE", 100, 101),
    ("DOUBLE", -1e38, 3.0), ("DOUBLE", -2.5, -1e-9),
    ("DATE", "2020-01-01", "2020-01-02"), ("DATE", "2020-01-01", "2020-12-31"), ("DATE", "0001-01-01", "9999-12-31"), ("DATE", "1900-01-01", "2030-01-01"),
    ("TIMESTAMP", "2020-01-01", "2020-01-01 00:00:00.000001"), ("TIMESTAMP", "0001-01-01", "9999-12-31 23:59:59.999999"),
    ("TIMESTAMP", "2019-12-31 23:59:59.999999", "2021-06-01"), ("TIMESTAMP_S", "2020-01-01", "2020-01-03"), ("TIMESTAMP_MS", "1969-12-31", "1970-01-02"),
    ("TIMESTAMP_NS", "1677-09-22", "2262-04-11"), ("TIMESTAMP_NS", "2020-01-01", "2020-01-01 00:00:00.000001"), ("TIMESTAMP_NS", "2020-01-01", "2022-01-01"),
    ("TIMESTAMP WITH TIME ZONE", "1990-01-01", "2030-01-01"), ("TIME", "00:00:00", "23:59:59.999999"), ("TIME", "08:00:00", "08:00:00.000010"),
    ("TIME", "08:15:00", "17:45:00"),
]


def some(turn: int) -> list[tuple[str, object, object]]:
    """Return cases of every type, every other one where a type has several; ``turn``: which of these; all when thorough."""
    place: Counter[str] = Counter()
    found = []
    for case in BOUNDS:
        several = sum(kind == case[0] for kind, *_ in BOUNDS) > 1
        if WHOLE or not several or place[case[0]] % 2 == turn % 2:
            found.append(case)
        place[case[0]] += 1
    return found


def bounded(sql_type: str, lower: object, upper: object, **more: object) -> Attribute:
    """Return the attribute that `dp_declare` with these bounds makes."""
    return declare("x", sql_type, lower=lower, upper=upper, **{"nullable": True, **more})  # type: ignore[arg-type]


def named(case: tuple[str, object, object]) -> str:
    """Return a short name of a case for pytest."""
    return " ".join(str(part)[:24] for part in case)
