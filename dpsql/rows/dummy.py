"""Made-up rows of a public domain, to try queries on before anything is bought. No table and no release is looked at.

Each column is drawn by itself: uniform over its categories or bins, and inside a bin; NULL once in twenty where it may be.

Privacy: none needed, a function of public declarations and a seed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder, cast
from dpsql.errors import ReleaseError
from dpsql.rows.obeying import mender
from dpsql.rules.effects import together
from dpsql.rules.evaluating import fetched
from dpsql.rules.grammar import Rule
from dpsql.text.relation import identifier

_NULLS = 0.05
_MOST_ROWS_OF_A_UNIT = 10
_MOST_CHARACTERS, _NUMBER = 1 << 25, 24
"""How long an answer may be, which is a text; what a number or a date counts as."""
_ROW = "__dp_row"

Codes = npt.NDArray[np.int32]


def made_up(
    cursor: duckdb.DuckDBPyConnection, domain: Domain, rules: Sequence[Rule], rows: int, seed: int
) -> list[tuple[str | None, ...]]:
    """Return made-up rows as DuckDB's texts of their values: the same domain, rules and seed give the same ones.

    Parameters
    ----------
    cursor : DuckDB cursor
        No table is read on it.
    domain : Domain
        At least one attribute; values are declared ones, not those that stand for what is outside.
    rules : sequence of Rule
        Over columns of the domain. They hold, unless none of a quarter of a million rows obeys those that share columns.
    rows : int
    seed : int, at least 0
    """
    domain, rng = _inside(domain), np.random.default_rng(seed)
    codes = _codes(domain, rows, rng)
    decoders = [Decoder(attribute, f"v{place}") for place, attribute in enumerate(domain.attributes)]
    arrays: Columns = {}
    for place, decoder in enumerate(decoders):
        arrays.update(decoder.arrays(codes[:, place], rng))
    for group in together(rules):
        arrays = _obeying(cursor, domain, group, codes, arrays, rng)
    return _texts(cursor, decoders, arrays, rows)


def most_rows(domain: Domain) -> int:
    """Return how many rows fit into an answer."""
    return _MOST_CHARACTERS // sum(max([_NUMBER, *map(len, attribute.categories)]) for attribute in domain.attributes)


def units(rows: int, most: int, seed: int) -> list[int]:
    """Return whose row each row is, as numbers from 1 on: a unit has from one row to ``most``, at most ten, one after the other."""
    sizes = np.random.default_rng([seed, 1]).integers(1, min(most, _MOST_ROWS_OF_A_UNIT) + 1, rows)
    owners: list[int] = np.repeat(np.arange(1, rows + 1), sizes)[:rows].tolist()
    return owners


def identity(sql_type: str, number: int) -> str:
    """Return the text of a made-up privacy unit, a value of any type that a unit may have; distinct where the type has as many.

    Examples
    --------
    >>> identity("BIGINT", 7), identity("VARCHAR", 7), identity("DATE", 7), identity("BOOLEAN", 7)
    ('7', 'unit 7', '1970-01-08', 'false')
    >>> identity("TINYINT", 128), identity("DECIMAL(9,2)", 7), identity("UUID", 7)
    ('1', '0.07', '00000000-0000-0000-0000-000000000007')
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family in ("integer", "decimal"):
        return sqltypes.unit_text(parsed, 1 + (number - 1) % parsed.high)
    if parsed.family == "temporal":
        return sqltypes.step_text(parsed, number)
    if parsed.family == "uuid":
        return str(uuid.UUID(int=number))
    # Types of few values repeat themselves: units share an identity then.
    members = ("false", "true") if parsed.family == "boolean" else parsed.members
    if members:
        return members[(number - 1) % len(members)]
    return str(number) if parsed.family == "float" else f"unit {number}"


def _inside(domain: Domain) -> Domain:
    """Return the domain of declared values alone, with one bin wherever bins are automatic."""
    return Domain(tuple(replace(a.bounded if a.automatic else a, outside="clamp") for a in domain.attributes))


def _codes(domain: Domain, rows: int, rng: np.random.Generator) -> Codes:
    codes = np.empty((rows, len(domain.attributes)), np.int32)
    for place, attribute in enumerate(domain.attributes):
        codes[:, place] = rng.integers(0, attribute.values, rows)
        if attribute.null_code is not None:
            codes[rng.random(rows) < _NULLS, place] = attribute.null_code
    return codes


def _obeying(
    cursor: duckdb.DuckDBPyConnection,
    domain: Domain,
    rules: Sequence[Rule],
    codes: Codes,
    arrays: Columns,
    rng: np.random.Generator,
) -> Columns:
    """Return the arrays such that rules which share columns hold; as they are where no row is found that obeys."""
    mending = mender(cursor, domain, [rule.text for rule in rules], lambda: codes[:0], "dummy")
    if mending is None:
        return arrays
    try:
        return mending.mended(codes, arrays, rng)
    except ReleaseError:
        return arrays


def _texts(
    cursor: duckdb.DuckDBPyConnection, decoders: Sequence[Decoder], arrays: Columns, rows: int
) -> list[tuple[str | None, ...]]:
    import pandas as pd  # loaded when needed: pandas takes .3 s

    frame = pd.DataFrame({**arrays, _ROW: np.arange(rows)}, copy=False)
    texts = [f'{cast(d.expression(), "VARCHAR").sql(dialect="duckdb")} AS "c{place}"' for place, d in enumerate(decoders)]
    select = f"SELECT {', '.join(texts)} FROM "  # noqa: S608 -- expressions of ours
    columns = fetched(cursor, select, f" ORDER BY {identifier(_ROW)} ASC", frame)
    return list(zip(*(columns[f"c{place}"].tolist() for place in range(len(decoders))), strict=True))
