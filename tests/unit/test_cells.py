"""Numbers as texts: DuckDB reads every one back, as the number rounded to the type, or as the type's nearest end."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpsql.answers.cells import cell_text, cell_texts, list_texts
from dpsql.domains import sqltypes

_ENDS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324, 2.0**53 + 2, 2.0**62, -(2.0**62), 2.0**63, 2.0**127, 2.5, 3.5, -2.5]
_WHOLE = ["TINYINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "UBIGINT", "UHUGEINT"]
_DECIMAL = ["DECIMAL(4,2)", "DECIMAL(3,3)", "DECIMAL(18,6)", "DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(38,37)"]


@pytest.fixture
def values():
    generator = np.random.default_rng(5)
    return np.concatenate([_ENDS, generator.normal(size=2_000) * 10.0 ** generator.integers(-8, 40, 2_000)])


@pytest.mark.parametrize("kind", [*_WHOLE, *_DECIMAL])
def test_whole_numbers_and_decimals_are_rounded_and_end_at_the_ends(kind, values):
    parsed = sqltypes.parse(kind)
    texts = cell_texts(values, kind)
    with duckdb.connect() as con:
        read = con.execute(f"SELECT CAST(CAST(t AS {kind}) AS VARCHAR) FROM (SELECT unnest($1::VARCHAR[]) AS t)", [texts]).fetchall()
    assert [text and Fraction(text) for (text,) in read] == [text and Fraction(text) for text in texts]
    unit = Fraction(1, 10**parsed.scale)
    for value, text in zip(values.tolist(), texts, strict=True):
        if np.isnan(value):
            assert text is None
            continue
        shown = Fraction(text)
        low, high = parsed.low * unit, parsed.high * unit
        nearest = (high if value > 0 else low) if np.isinf(value) else min(max(Fraction(value), low), high)
        # the product of a number and a power of ten is rounded to 53 bits before it is rounded to a whole number
        assert abs(shown - nearest) <= unit / 2 + abs(nearest) * Fraction(1, 2**52), (value, text)


@pytest.mark.parametrize("kind", ["DOUBLE", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "BOOLEAN"])
def test_one_and_many_are_the_same_and_are_read_back(kind):
    values = np.array([0.0, 1.0, -3.25, 86_399.5, np.nan, 19_000.0, np.inf])
    texts = cell_texts(values, kind)
    assert texts == [cell_text(value, kind) for value in values]
    with duckdb.connect() as con:
        count = con.execute(f"SELECT count(CAST(t AS {kind})) FROM (SELECT unnest($1::VARCHAR[]) AS t)", [texts]).fetchone()
    assert count == (sum(text is not None for text in texts),) and texts[4] is None


def test_rows_are_lists():
    assert list_texts(np.array([[1.0, np.nan], [2.4, 3.0]]), "INTEGER") == ["[1, NULL]", "[2, 3]"]
    assert list_texts(np.zeros((2, 0)), "DOUBLE") == ["[]", "[]"] and list_texts(np.zeros((0, 3)), "DOUBLE") == []
