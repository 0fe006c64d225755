"""Codes and labels of attributes."""

import dataclasses
import json

import pytest

from dpsql.domains.attributes import OTHER_LABEL, Attribute, Domain
from dpsql.errors import DomainError

COLOUR = Attribute("colour", "VARCHAR", "categorical", categories=("red", "green"), nullable=False)


@pytest.mark.parametrize(
    ("outside", "nullable", "other", "null", "size"),
    [
        ("clamp", False, None, None, 2),
        ("clamp", True, None, 2, 3),
        ("drop", True, None, 2, 3),
        ("other", False, 2, None, 3),
        ("other", True, 2, 3, 4),
    ],
)
def test_codes_are_values_then_other_then_null(outside, nullable, other, null, size):
    attribute = dataclasses.replace(COLOUR, outside=outside, nullable=nullable)
    assert (attribute.other_code, attribute.null_code, attribute.size) == (other, null, size)
    labels = attribute.labels()
    assert len(labels) == size
    assert other is None or labels[other] == OTHER_LABEL
    assert null is None or labels[null] is None


def test_labels_of_bins_show_which_edge_is_included():
    attribute = Attribute("x", "DOUBLE", "numeric", edges=(0.0, 0.5, 1.0), nullable=False)
    assert attribute.labels() == ("[0, 0.5)", "[0.5, 1]")


def test_domain_survives_json():
    dates = Attribute("d", "DATE", "temporal", edges=("2020-01-01", "2021-01-01"), outside="drop")
    domain = Domain((COLOUR, dates))
    assert Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain


def test_cells_multiply_and_select_keeps_the_order_asked_for():
    domain = Domain((COLOUR, Attribute("x", "DOUBLE", "numeric", edges=(0.0, 0.5, 1.0))))
    assert domain.cells((0, 1)) == 6
    assert domain.cells(()) == 1
    assert domain.select(["x", "colour"]).names == ("x", "colour")
    with pytest.raises(DomainError, match="'y' has no declared domain; declared are .*dp_declare"):
        domain.select(["y"])
