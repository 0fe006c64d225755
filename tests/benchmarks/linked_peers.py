"""What synthetic databases of linked tables are compared with: a flat release of the joined table, and independent tables.

Both are made with `latent_class` of one table. Neither gives a database like the raw one: the flat release has no keys, and the
children of independent tables know nothing of their parents and siblings but how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
from linked_data import DELTA, Schema

from dpsql.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpsql.custodian import linked_counts as counts
from dpsql.custodian.linked_counts import Codes
from dpsql.custodian.linked_reading import ComparedTable, Reading
from dpsql.domains.attributes import Domain
from dpsql.domains.declare import declare as declared
from dpsql.methods.latent_class import LatentClass
from dpsql.methods.nested_classes import Shape, TableShape, blocks, shares
from dpsql.numerics.arrays import Clique
from dpsql.tables.statistics import Statistics

WHOLE = 1000
"""What a unit counts in weighted tables, which are whole numbers."""


def described(con: duckdb.DuckDBPyConnection, schema: Schema, selects: dict[str, str] | None = None) -> list[ComparedTable]:
    """Return the tables of a schema for `evaluate_linked`: as they are, or given by SELECTs."""
    found = []
    for name in schema.tables:
        kinds = {row[0]: row[1] for row in con.execute(f"DESCRIBE {name}").fetchall()}
        said = {column: con.execute(f"SELECT struct_pack({text})").fetchone()[0] for column, text in schema.declared[name].items()}
        domain = Domain(tuple(declared(column, kinds[column], **given) for column, given in said.items()))
        sql = (selects or {}).get(name, f"SELECT * FROM {name}")
        child = next((child for child in schema.children if child.name == name), None)
        if child is None:
            found.append(ComparedTable(name, domain, sql))
        else:
            found.append(ComparedTable(name, domain, sql, schema.tables.index(child.parent), child.column, child.key, child.most))
    return found


def of_joined_rows(schema: Schema, table: str) -> dict[str, str]:
    """Return SELECTs of a database in which each row of a joined table, with a column ``id``, is a unit with one row a table."""
    selects = {}
    for name in schema.tables:
        keys = [*(c.key for c in schema.children if c.parent == name), *(c.column for c in schema.children if c.name == name)]
        chosen = [*(f"id AS {key}" for key in dict.fromkeys(keys)), *schema.declared[name]]
        selects[name] = f"SELECT {', '.join(chosen)} FROM {table}"
    return selects


def joined(schema: Schema) -> str:
    """Return the SELECT of the last table's rows with those of all tables above them, and the unit as ``unit``."""
    columns = [f"{schema.root}.{schema.unit} AS unit", *(f"{name}.{column}" for name, of in schema.declared.items() for column in of)]
    joins = [f"JOIN {c.name} ON {c.name}.{c.column} = {c.parent}.{c.key}" for c in schema.children]
    return f"SELECT {', '.join(columns)} FROM {schema.root} {' '.join(joins)}"


def flat_release(con: duckdb.DuckDBPyConnection, schema: Schema, epsilon: float, seed: int) -> None:
    """Make the table ``flat``: `dp_synthesize` of the joined table, whose unit is the root's, as it would be released today."""
    most = int(np.prod([child.most for child in schema.children]))
    con.execute(f"CREATE OR REPLACE TABLE joined AS {joined(schema)}")
    con.execute(f"CALL dp_protect('joined', epsilon := 1000, delta := {DELTA}, privacy_unit := 'unit', max_contributions := {most})")
    for columns in schema.declared.values():
        for column, said in columns.items():
            con.execute(f"CALL dp_declare('joined', '{column}', {said})")
    call = f"dp_synthesize('joined', method := 'latent_class', epsilon := {epsilon}, release := 'flat{seed}', seed := {seed})"
    con.execute(f"CREATE OR REPLACE TABLE flat AS SELECT row_number() OVER () AS id, * FROM {call}")


def noise_of_linked(tables: Sequence[ComparedTable], epsilon: float) -> dict[Clique, float]:
    """Return the standard deviation, in units, that a release of linked tables has in the tables of the joined rows' columns."""
    shape = Shape(tuple(TableShape(one.name, one.above, one.domain.sizes, one.max_rows) for one in tables))
    starts = np.cumsum([0, *(len(one.domain.sizes) for one in tables)])
    measured = blocks(shape)
    rho = gaussian_mu(epsilon, DELTA) ** 2 / 2
    found: dict[Clique, float] = {}
    for block, share in zip(measured, shares(shape, measured), strict=True):
        sides = (block.left,) if block.right is None else (block.left, block.right)
        if block.kind != "sibling" and all(i < len(tables[t].domain.sizes) for t, i in sides):
            found[tuple(int(starts[t]) + i for t, i in sides)] = (2 * rho * share) ** -0.5
    return found


def flat_weighted(
    database: Sequence[Codes], epsilon: float, seed: int, noise: Mapping[Clique, float] | None = None
) -> list[Reading]:
    """Return a flat model's rows, fitted to the one- and two-way tables of the joined table in which every unit counts 1.

    Parameters
    ----------
    noise : mapping or None
        Standard deviation of each table, as `noise_of_linked` gives it; None: of a release in which nothing else is measured.

    Notes
    -----
    Rows of one unit have equal weights, level by level, as in the measured tables of a synthetic database.
    """
    rng = np.random.default_rng(seed)
    last = len(database) - 1
    places = [counts.rows_above(database, last, t) for t in range(len(database))]
    columns = [column[place] for codes, place in zip(database, places, strict=True) for column in codes.columns]
    sizes = tuple(size for codes in database for size in codes.sizes)
    weight = np.floor(WHOLE * counts.weights(database, last))
    method = LatentClass()
    plan = method.plan(_domain_of(sizes), {})
    rho = gaussian_mu(epsilon, DELTA) ** 2 / 2
    parts = np.array(plan.weights) / sum(plan.weights)
    tables, scales = {}, {}
    for clique, part in zip(plan.cliques, parts, strict=True):
        if len(clique) == 1:
            exact = np.bincount(columns[clique[0]], weights=weight, minlength=sizes[clique[0]])
        else:
            i, j = clique
            exact = counts.crossed(columns[i], columns[j], (sizes[i], sizes[j]), weight)
        scales[clique] = WHOLE * ((2 * rho * part) ** -0.5 if noise is None else noise[clique])
        tables[clique] = np.rint(exact + scales[clique] * rng.standard_normal(exact.shape)).astype(np.int64)
    model = method.fit(Statistics(sizes, tables, scales), {})
    rows = database[last].rows
    drawn = np.concatenate(list(method.sample(model, rows, rng)))
    found, start = [], 0
    for codes in database:
        width = len(codes.sizes)
        parent = None if codes.parent is None else np.arange(rows)
        own = tuple(drawn[:, start + i] for i in range(width))
        found.append(Reading(Codes(own, codes.sizes, rows, parent, codes.above), rows, 0, 0))
        start += width
    return found


def _domain_of(sizes: Sequence[int]) -> Domain:
    given = [declared(f"a{i}", "INTEGER", nullable=False, categories=list(range(size))) for i, size in enumerate(sizes)]
    return Domain(tuple(given))


def independent_tables(con: duckdb.DuckDBPyConnection, schema: Schema, epsilon: float, seed: int) -> None:
    """Make the schema ``apart``: each table released alone with `latent_class`, children attached at random as fan-outs say.

    Parameters
    ----------
    epsilon : float
        Of all releases together. They have equal parts of it as Gaussians add up: of mu^2.

    Notes
    -----
    Every table with children has their numbers as columns, which say how many children are attached to each synthetic row. The rows
    of a child count 1 each and its unit may have as many as links allow, as in a release of the table today.
    """
    rng = np.random.default_rng(seed)
    each = gaussian_epsilon(gaussian_mu(epsilon, DELTA) / len(schema.tables) ** 0.5, DELTA)
    con.execute("DROP SCHEMA IF EXISTS apart CASCADE; CREATE SCHEMA apart")
    needed: dict[str, np.ndarray] = {}
    above = f"SELECT {schema.unit} AS __unit, * FROM {schema.root}"
    for name in schema.tables:
        link = next((child for child in schema.children if child.name == name), None)
        if link is not None:
            above = f"SELECT parent.__unit, child.* FROM {name} AS child JOIN apart.raw_{link.parent} AS parent "
            above += f"ON child.{link.column} = parent.{link.key}"
        own = [child for child in schema.children if child.parent == name]
        numbers = "".join(f", least(coalesce(n_{c.name}, 0), {c.most})::INTEGER AS n_{c.name}" for c in own)
        joins = "".join(
            f" LEFT JOIN (SELECT {c.column} AS k_{c.name}, count(*) AS n_{c.name} FROM {c.name} GROUP BY ALL) ON t.{c.key} = k_{c.name}"
            for c in own
        )
        con.execute(f"CREATE TABLE apart.raw_{name} AS SELECT t.*{numbers} FROM ({above}) AS t{joins}")
        source, most = f"apart.raw_{name}", _most(schema, name)
        con.execute(
            f"CALL dp_protect('{source}', epsilon := 1000, delta := {DELTA}, privacy_unit := '__unit', max_contributions := {most})"
        )
        for column, said in schema.declared[name].items():
            con.execute(f"CALL dp_declare('{source}', '{column}', {said})")
        for child in own:
            listed = list(range(child.most + 1))
            con.execute(f"CALL dp_declare('{source}', 'n_{child.name}', categories := {listed}, nullable := false)")
        rows = "" if link is None else f", rows := {len(needed[name])}"
        call = f"dp_synthesize('{source}', method := 'latent_class', epsilon := {each!r}, release := 's{seed}', seed := {seed}{rows})"
        con.execute(f"CREATE TABLE apart.{name} AS SELECT * FROM {call}")
        frame = con.execute(f"FROM apart.{name}").df()
        frame = frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
        if link is not None:
            frame[link.column] = needed[name][: len(frame)]
        for child in own:
            key = np.arange(1, len(frame) + 1)
            frame[child.key] = key
            needed[child.name] = np.repeat(key, frame[f"n_{child.name}"].astype(int))
        types = {row[0]: row[1] for row in con.execute(f"DESCRIBE {name}").fetchall()}
        con.register("frame", frame)
        chosen = ", ".join(f"{column}::{kind} AS {column}" for column, kind in types.items() if column in frame)
        con.execute(f"CREATE OR REPLACE TABLE apart.{name} AS SELECT {chosen} FROM frame")
        con.unregister("frame")


def _most(schema: Schema, name: str) -> int:
    """Return how many rows of a table a unit may have."""
    found = 1
    while name != schema.root:
        link = next(child for child in schema.children if child.name == name)
        found, name = found * link.most, link.parent
    return found


