"""What every method refuses in the same words: options that it does not have, and rows that are no number of rows."""

import numpy as np
import pytest

from dpsql import methods
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.methods.options import is_number, is_whole, row_count

DOMAIN = Domain((Attribute("smoker", "VARCHAR", "categorical", ("no", "yes"), nullable=False),))
WITH_OPTIONS = [name for name in methods.names() if not methods.is_open(methods.get(name))]


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_an_unknown_option_is_refused_with_those_that_there_are(name):
    known = ", ".join(map(repr, methods.get(name).options))
    with pytest.raises(ArgumentError) as refused:
        methods.get(name).plan(DOMAIN, {"colour": 1})
    assert str(refused.value) == f"options = 'colour': not an option; there are {known}"


@pytest.mark.parametrize("rows", [-1, True, 2.0, "3", None, float("nan")])
def test_rows_are_a_whole_number(rows):
    with pytest.raises(ArgumentError, match="rows .*: a whole number of at least 0"):
        row_count(rows)
    assert (row_count(0), row_count(np.int64(7))) == (0, 7)


def test_numbers_are_no_truth_values_and_in_their_range():
    assert not any(is_number(value, 0, 1) for value in (True, "0.5", None, float("nan"), -0.1, 1.1))
    assert all(is_number(value, 0, 1) for value in (0, 1, 0.5))
    assert not any(is_whole(value, 0, 1) for value in (True, 1.0, "1", None, 2, -1))
    assert all(is_whole(value, 0, 1) for value in (0, 1))
