"""The tables of a report about values: the figures of ``dp_evaluate(..., report := 'values')`` for reading. NOT PRIVATE."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.custodian.value_table import COLUMNS, Row
from dpsql.domains.attributes import Attribute, Domain
from dpsql.page.content import Listing
from dpsql.page.markup import number

LEAST_SHARE = 0.01
"""Share of the raw rows that a group needs to be named as the worst one."""
_NAMES = list(COLUMNS)
_EPOCH = dt.datetime(1970, 1, 1)  # without a zone, as values are stored


def listings_of(rows: Sequence[Row], domain: Domain) -> list[Listing]:
    """Return the tables; none where there are no figures."""
    figures = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    listings = [_columns(figures, domain), _areas(figures)]
    return [listing for listing in listings if listing.rows]


def _columns(figures: Sequence[Mapping[str, Any]], domain: Domain) -> Listing:
    by_name = {a.name: a for a in domain.attributes}
    alone = {(f["column_name"], f["measure"]): f for f in figures if f["group_column"] is None}
    rows = []
    for (name, measure), ks in alone.items():
        if measure != "ks":
            continue
        attribute, moved = by_name[name], alone[name, "wasserstein"]
        shown = [written(attribute, alone[name, of][which]) for of in ("mean", "median") for which in ("raw", "synthetic")]
        rows.append((name, number(ks["error"], 3), number(moved["relative"], 3), *shown, _worst(figures, attribute)))
    head = [
        "Column",
        "KS distance",
        "Wasserstein distance in interquartile ranges",
        "Mean, raw",
        "Mean, synthetic",
        "Median, raw",
        "Median, synthetic",
        "Group whose mean is farthest off",
    ]
    counts = {f["measure"]: f for f in figures if f["measure"] == "duplicates"}
    note = (
        "KS distance: the largest difference of the two distribution functions. Wasserstein distance: how far a value has to be "
        f"moved on average. Groups have at least {100 * LEAST_SHARE:g} % of the raw rows."
    )
    if counts:
        of = counts["duplicates"]
        note += (
            f" {of['synthetic']:,.0f} of {of['synthetic_rows']:,} synthetic rows equal a raw row in every column; "
            f"{of['raw']:,.0f} of {of['rows']:,} raw rows equal another raw row. Rows that many people have are equal by chance: "
            "this is no measure of privacy."
        )
    return Listing("Values against the raw ones (dp_evaluate, report 'values')", head, rows, tuple(range(1, 7)), note)


def _worst(figures: Sequence[Mapping[str, Any]], attribute: Attribute) -> str:
    """Return the group of at least `LEAST_SHARE` of the rows whose mean has the largest error."""
    means = [f for f in figures if f["measure"] == "mean" and f["column_name"] == attribute.name and f["group_column"] is not None]
    large = [f for f in means if f["error"] is not None and (f["share"] or 0.0) >= LEAST_SHARE]
    if not large:
        return "–"
    worst = max(large, key=lambda f: f["error"])
    value = "NULL" if worst["group_value"] is None else worst["group_value"]
    raw, synthetic = (written(attribute, worst[which]) for which in ("raw", "synthetic"))
    return f"{worst['group_column']} = {value}: {raw}, synthetic {synthetic}"


def _areas(figures: Sequence[Mapping[str, Any]]) -> Listing:
    rows = [(f["column_name"], number(f["raw"], 3), number(f["synthetic"], 3)) for f in figures if f["measure"] == "auc"]
    note = (
        "A logistic regression predicts the column from all others, and is tested on raw rows that it was not trained on. "
        "Area under the ROC curve: 1 is perfect, 0.5 is guessing; the mean over the values, each against the rest."
    )
    head = ["Predicted column", "AUC, trained on raw rows", "AUC, trained on synthetic rows"]
    return Listing("What a model learns from synthetic rows", head, rows, (1, 2), note)


def written(attribute: Attribute, value: float | None) -> str:
    """Return a number of a column for reading: of dates and times the date and time.

    Examples
    --------
    >>> day, time = Attribute("d", "DATE", "temporal"), Attribute("t", "TIME", "temporal")
    >>> written(day, 1.5), written(time, 3661.0), written(Attribute("x", "DOUBLE", "numeric"), 2.5), written(day, None)
    ('1970-01-02 12:00', '01:01:01', '2.5', '–')
    """
    if value is None or attribute.kind != "temporal":
        return number(value)
    try:
        moment = _EPOCH + dt.timedelta(seconds=value * (86_400 if attribute.sql_type == "DATE" else 1))
    except OverflowError:
        return number(value)
    if attribute.sql_type == "TIME":
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
