"""Encoding and the bounding of a unit's rows, on DuckDB."""

import itertools
import math
import re
import secrets
from collections import Counter

import duckdb
import numpy as np
import pytest
from scipy import stats

from dpsql.domains.attributes import Domain
from dpsql.domains.declare import declare
from dpsql.domains.encoding import canonical_categories, encode, encode_sql
from dpsql.errors import ArgumentError, DomainError, DpsqlError

LETTER = declare("v", "VARCHAR", nullable=False, categories=["a", "b", "c", "d"])
SALT = "0123456789abcdef" * 2


@pytest.fixture
def connection():
    with duckdb.connect() as found:
        yield found


def kept(connection, values, most, salt, attribute=LETTER):
    """Rows that survive the bounding, as sorted codes."""
    units, letters = (list(column) for column in zip(*values, strict=True))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE units AS SELECT unnest(?::VARCHAR[]) AS u, unnest(?::VARCHAR[]) AS v", [units, letters]
    )
    name = encode(
        connection, "SELECT v, u AS __dp_unit FROM units", Domain((attribute,)), unit=True, max_contributions=most, salt=salt
    )
    found = sorted(row[0] for row in connection.execute(f'FROM "{name}"').fetchall())
    connection.execute(f'DROP TABLE "{name}"')
    return found


def test_odd_identifiers_and_reserved_words(connection):
    names = ["select", 'quote"d', "spalte é", "a.b", "c0", "c1", "x; DROP TABLE odd", "__dp_source", "'", "UPPER"]
    listed = ", ".join('"' + name.replace('"', '""') + '"' + " INTEGER" for name in names)
    connection.execute(f"CREATE TABLE odd ({listed})")
    connection.execute(f"INSERT INTO odd VALUES ({', '.join(map(str, range(len(names))))})")
    domain = Domain(tuple(declare(name, "INTEGER", nullable=False, lower=0, upper=9, bins=10) for name in reversed(names)))
    name = encode(connection, "SELECT * FROM odd", domain)
    assert connection.execute(f'FROM "{name}"').fetchall() == [tuple(reversed(range(len(names))))]


def test_code_columns_take_the_smallest_type(connection):
    small = declare("v", "INTEGER", nullable=False, lower=0, upper=255, bins=256)
    large = declare("v", "INTEGER", nullable=True, lower=0, upper=255, bins=256)
    for attribute, kind in ((small, "UTINYINT"), (large, "USMALLINT")):
        name = encode(connection, "SELECT 7 AS v", Domain((attribute,)))
        assert connection.execute(f'SELECT typeof(c0) FROM "{name}"').fetchall() == [(kind,)]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(connection, rows):
    name = encode(connection, f"SELECT 'b' AS v FROM range({rows})", Domain((LETTER,)))
    assert connection.execute(f'FROM "{name}"').fetchall() == [(1,)] * rows


def test_a_changed_or_missing_column_is_named(connection):
    with pytest.raises(DomainError, match="column 'v' is INTEGER, its domain was declared for VARCHAR; declare it again"):
        encode(connection, "SELECT 1 AS v", Domain((LETTER,)))
    with pytest.raises(DomainError, match="no such column"):
        encode(connection, "SELECT 1 AS w", Domain((LETTER,)))


def test_an_error_of_duckdb_shows_no_value(connection):
    connection.execute("CREATE TABLE secret AS SELECT 'Jane Doe' AS v")
    number = declare("v", "INTEGER", nullable=False, lower=0, upper=9)
    with pytest.raises(DpsqlError, match="could not read it. The reason is withheld") as error:
        encode(connection, "SELECT v::INTEGER AS v FROM secret", Domain((number,)))
    assert "Jane" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_an_interruption_passes_through(connection):
    class Interrupted:
        def execute(self, statement):
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    with pytest.raises(duckdb.InterruptException):
        encode(Interrupted(), "SELECT 'a' AS v", Domain((LETTER,)))


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [("INTEGER", 1.5), ("INTEGER", "x"), ("DATE", "2020-01-01 12:00"), ("DECIMAL(3,1)", "1.25"), ("ENUM('a')", "b"), ("UUID", "q"),
     ("UTINYINT", 256), ("FLOAT", 1e300), ("BOOLEAN", "maybe"), ("INTEGER", None)],
)  # fmt: skip
def test_categories_that_are_no_values_of_the_type_are_refused(connection, sql_type, value):
    with pytest.raises(ArgumentError, match="categories = "):
        canonical_categories(connection, sql_type, [value])


def test_types_without_categories_are_refused(connection):
    for sql_type in ("TIMESTAMP WITH TIME ZONE", "INTEGER[]", "BLOB"):
        with pytest.raises(DomainError, match=f"{re.escape(sql_type)} column are not supported"):
            canonical_categories(connection, sql_type, ["2020-01-01"])


# Bounding: at most C rows of a unit, at random, by that unit's rows alone.


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_unit_keeps_at_most_so_many_rows(connection, most):
    rng = np.random.default_rng(1)
    values = [
        (None if u == 3 else f"u{u}", "abcd"[v]) for u, v in zip(rng.integers(0, 9, 200), rng.integers(0, 4, 200), strict=True)
    ]
    sizes = [len(list(group)) for _, group in itertools.groupby(sorted(values, key=lambda r: str(r[0])), key=lambda r: r[0])]
    assert len(kept(connection, values, most, SALT)) == sum(min(most, size) for size in sizes)


def test_null_is_one_unit(connection):
    assert len(kept(connection, [(None, "a"), (None, "b"), (None, "c"), ("x", "d")], 1, SALT)) == 2


def test_dropped_rows_do_not_use_up_the_bound(connection):
    attribute = declare("v", "VARCHAR", nullable=False, categories=["a"], outside="drop")
    values = [("x", "z")] * 50 + [("x", "a")]
    assert kept(connection, values, 1, SALT, attribute) == [0]


def test_what_one_unit_keeps_depends_on_no_other(connection):
    rng = np.random.default_rng(2)
    mine = [("me", v) for v in "abcdabca"]
    for _ in range(8):
        salt = secrets.token_hex(16)
        alone = kept(connection, mine, 2, salt)
        others = [(f"other {u}", "abcd"[v]) for u, v in zip(rng.integers(0, 30, 300), rng.integers(0, 4, 300), strict=True)]
        without = kept(connection, others, 2, salt)
        mixed = [*mine, *others]
        rng.shuffle(mixed)
        together = kept(connection, [tuple(row) for row in mixed], 2, salt)
        assert together == sorted(without + alone)


def chosen_by_units(connection, values, most, units):
    """The codes that each of so many units with the same rows keeps."""
    connection.execute(
        f"CREATE TABLE many AS SELECT u::VARCHAR AS u, v FROM range({units}) t(u), (SELECT unnest({list(values)!r}) AS v)"
    )
    marked = declare("u", "VARCHAR", nullable=False, categories=[str(u) for u in range(units)])
    name = encode(
        connection,
        "SELECT u, v, u AS __dp_unit FROM many",
        Domain((LETTER, marked)),
        unit=True,
        max_contributions=most,
        salt=secrets.token_hex(16),
    )
    return [tuple(codes) for (codes,) in connection.execute(f'SELECT list(c0 ORDER BY c0) FROM "{name}" GROUP BY c1').fetchall()]


@pytest.mark.parametrize(("values", "most"), [("abcd", 1), ("abcd", 2), ("abcd", 3), ("aaab", 1), ("aaaabcd", 1)])
def test_every_set_of_rows_is_kept_equally_often(connection, values, most):
    """Chi-square at 1e-7 over 4,000 independent units: simple random sampling, where no two rows are equal or one is kept."""
    units = 4000
    subsets = Counter(itertools.combinations(sorted("abcd".index(v) for v in values), most))
    seen = Counter(chosen_by_units(connection, values, most, units))
    assert seen.keys() <= subsets.keys()
    frequencies = [subsets[key] / subsets.total() * units for key in subsets]
    assert stats.chisquare([seen[key] for key in subsets], frequencies).pvalue > 1e-7


@pytest.mark.parametrize(("values", "most"), [("aaab", 2), ("aabbcd", 3), ("aaaabcd", 2), ("aaaaaaabbbc", 5)])
def test_of_equal_rows_a_proportional_part_is_kept(connection, values, most):
    """k equal rows of n keep k m / n rows, rounded up or down by chance: z-test of each at 7e-8 over 4,000 units."""
    units = 4000
    chosen = chosen_by_units(connection, values, most, units)
    assert {len(codes) for codes in chosen} == {most}
    for code, copies in Counter("abcd".index(v) for v in values).items():
        share = copies * most / len(values)
        found = [codes.count(code) for codes in chosen]
        assert set(found) <= {math.floor(share), math.ceil(share)}
        up = share - math.floor(share)
        above = sum(f > math.floor(share) for f in found) if up else 0
        assert abs(above - units * up) <= 5.4 * math.sqrt(units * up * (1 - up))


def test_units_with_equal_rows_choose_independently(connection):
    """Were the unit not part of the key, all of them would keep the same row, and the counts would be off by thousands."""
    values = [(f"u{u}", v) for u in range(2000) for v in "abcd"]
    assert stats.chisquare(np.bincount(kept(connection, values, 1, SALT), minlength=4)).pvalue > 1e-6


def test_another_salt_keeps_other_rows_of_the_same_unit(connection):
    seen = [kept(connection, [("x", v) for v in "abcd"], 1, secrets.token_hex(16))[0] for _ in range(150)]
    assert stats.chisquare(np.bincount(seen, minlength=4)).pvalue > 1e-7


def test_the_chance_test_would_notice_a_bias():
    """A share that is off by a tenth is rejected at these numbers, so that the tests above can fail."""
    assert stats.chisquare([1100, 900, 1100, 900]).pvalue < 1e-7


def test_bounding_needs_a_bound_and_a_salt():
    for most in (0, -1, 1.5):
        with pytest.raises(ArgumentError, match="max_contributions = .*a whole number from 1"):
            encode_sql("SELECT 1", Domain((LETTER,)), True, most, SALT)
    with pytest.raises(ArgumentError, match="salt = '.withheld.'"):
        encode_sql("SELECT 1", Domain((LETTER,)), True, 1, "short")
