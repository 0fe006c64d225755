"""Nested latent classes: a model of linked tables, fitted to noisy tables of shares of units."""

from dpsql.methods.nested_classes.apart import fit_apart, total
from dpsql.methods.nested_classes.draw import Drawn, draw, draw_parts
from dpsql.methods.nested_classes.efforts import EFFORTS, USUAL, fit
from dpsql.methods.nested_classes.lines import Ordering, Scale
from dpsql.methods.nested_classes.model import NestedClasses, expected, uniform
from dpsql.methods.nested_classes.nobody import absent, barred, without
from dpsql.methods.nested_classes.order import ordered
from dpsql.methods.nested_classes.shapes import (
    GAPS,
    GROUPS,
    ORDERED,
    Block,
    Shape,
    TableShape,
    blocks,
    cut,
    folded,
    shares,
    spread,
    unfolded,
)

__all__ = [
    "EFFORTS",
    "GAPS",
    "GROUPS",
    "ORDERED",
    "USUAL",
    "Block",
    "Drawn",
    "NestedClasses",
    "Ordering",
    "Scale",
    "Shape",
    "TableShape",
    "absent",
    "barred",
    "blocks",
    "cut",
    "draw",
    "draw_parts",
    "expected",
    "fit",
    "fit_apart",
    "folded",
    "ordered",
    "shares",
    "spread",
    "total",
    "unfolded",
    "uniform",
    "without",
]
