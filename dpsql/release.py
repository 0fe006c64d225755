"""Releases: stored noisy statistics with their provenance, one Parquet file each.

A release file holds the columns ``tbl, cell, n`` (position of the table or block in the plan, position in it, noisy count) and, as
Parquet metadata under the key ``dpsql``, a manifest in JSON: what was asked for, the plan with its public domain, the charge, the
contract and the versions. Where the released values are not those of a declared domain, a column ``value`` holds them; where only
some cells of the tables were measured, only those are there. It needs neither the raw data nor the books: copied to another machine
it can be sampled there.

The noise of one charge is drawn once. A finished file is first a *draft*, hidden and named by the SHA-256 of its noisy counts. Then
the ledger says that these are the release's, and only then the file gets its name, which holds the hash of the charge. So a crash,
another store or another database with a table of the same name never shows two draws, or one release in the place of another.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from dpsql import sqltypes
from dpsql.domain import Domain
from dpsql.errors import ReleaseError, first_line
from dpsql.methods import coarse
from dpsql.methods.base import Clique, CoarseTables, IntArray, Statistics
from dpsql.methods.flat_tables import AllCliques, FlatScales, FlatTables, FloatArray, by_order, cell_counts
from dpsql.relation import literal, parquet

FORMAT = 1
SUFFIX = ".release.parquet"
MAX_TABLES = 100_000_000
_HASHED = 1 << 22


@dataclass(frozen=True)
class Plan:
    """What a release measures: decided before a row is read, stored with the charge, never changed afterwards.

    Parameters
    ----------
    domain : Domain
        The public domain of the measured columns, in column order.
    cliques : sequence of cliques
        Positions of attributes, ascending.
    scales : tuple of Fraction
        Noise scale of each table, then of each coarse table: sigma of the discrete Gaussian, or b of the discrete Laplace.
    mechanism : str
        'gaussian' or 'laplace' noise on the tables, or what a method that draws its release itself calls its mechanism.
    public_total : bool
        Whether the number of rows is public (replace_one over a whole table).
    method : str or None
        Method that will be fitted, None for plain tables.
    options : mapping
        Options of the method, with defaults filled in.
    blocks : tuple of int or None
        Lengths of what a method draws itself; None where noisy tables are released.
    parameters : mapping
        What is drawn with, as priced.
    open : bool
        Whether the released values are part of the release, because no domain lists them. The domain then has one column
        without categories.
    sparse : bool
        Whether only some cells of the tables are released: which ones was decided by what was released before them.
    coarse : tuple of cliques
        Pairs among `cliques` whose coarse tables are released after the tables, see `dpsql.methods.coarse`.
    """

    domain: Domain
    cliques: Sequence[Clique]
    scales: tuple[Fraction, ...]
    mechanism: str
    public_total: bool
    method: str | None
    options: Mapping[str, Any]
    blocks: tuple[int, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False
    sparse: bool = False
    coarse: tuple[Clique, ...] = ()

    @property
    def listed(self) -> bool:
        """Whether a release lists what it holds, since that is not known beforehand."""
        return self.open or self.sparse

    @cached_property
    def lengths(self) -> IntArray:
        """Length of each table, then each coarse table, or of each block; none is known beforehand where a release lists them."""
        if self.listed:
            return np.zeros(0, np.int64)
        if self.blocks is not None:
            return np.asarray(self.blocks, np.int64)
        groups = np.asarray([math.prod(coarse.shape(self.domain, pair)) for pair in self.coarse], np.int64)
        return np.concatenate([self.table_lengths, groups])

    @cached_property
    def orders(self) -> list[tuple[IntArray, IntArray]]:
        """The cliques of each length: places among all, and an array of them."""
        return by_order(self.cliques)

    @cached_property
    def table_lengths(self) -> IntArray:
        """Length of each noisy table of the first round."""
        return cell_counts(self.domain.sizes, self.cliques)

    @property
    def cells(self) -> int:
        """Number of released integers over all tables or blocks; of sparse tables the most that there can be."""
        return sum(self.domain.cells(clique) for clique in self.cliques) if self.sparse else int(self.lengths.sum())

    @cached_property
    def scale_runs(self) -> list[tuple[Fraction, int]]:
        """Equal scales that follow each other, written once, with their number."""
        return [(scale, len(list(run))) for scale, run in itertools.groupby(self.scales)]

    @property
    def scale_numbers(self) -> FloatArray:
        """The scales as floats."""
        return np.repeat([float(scale) for scale, _ in self.scale_runs], [count for _, count in self.scale_runs])

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and dicts; runs of equal scales and full sets of tables are written short."""
        runs = [[str(scale), count] for scale, count in self.scale_runs]
        drawn = {} if self.blocks is None and not self.open else {
            "blocks": None if self.blocks is None else list(self.blocks), "parameters": dict(self.parameters), "open": self.open,
        }  # fmt: skip
        return {
            **drawn,
            **({"sparse": True, "parameters": dict(self.parameters)} if self.sparse else {}),
            **({"coarse": [list(pair) for pair in self.coarse]} if self.coarse else {}),
            "domain": self.domain.to_json(),
            "tables": _short(self.cliques, len(self.domain.attributes)),
            "scales": runs,
            "mechanism": self.mechanism,
            "public_total": self.public_total,
            "method": self.method,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Plan:
        """Read what ``to_json`` wrote."""
        domain = Domain.from_json(item["domain"])
        return cls(
            domain=domain,
            cliques=_long(item["tables"], len(domain.attributes)),
            scales=tuple(itertools.chain.from_iterable(itertools.repeat(Fraction(text), count) for text, count in item["scales"])),
            mechanism=item["mechanism"],
            public_total=item["public_total"],
            method=item["method"],
            options=item["options"],
            blocks=None if item.get("blocks") is None else tuple(item["blocks"]),
            parameters=item.get("parameters", {}),
            open=item.get("open", False),
            sparse=item.get("sparse", False),
            coarse=tuple(tuple(pair) for pair in item.get("coarse", ())),
        )


def _short(cliques: Sequence[Clique], attributes: int) -> dict[str, Any]:
    given = isinstance(cliques, AllCliques) and cliques.attributes == attributes
    orders = sorted(set(cliques.orders if isinstance(cliques, AllCliques) and given else map(len, cliques)))
    if AllCliques(attributes, orders) == cliques:
        return {"all_of_order": orders}
    return {"cliques": [list(clique) for clique in cliques]}


def _long(item: Mapping[str, Any], attributes: int) -> Sequence[Clique]:
    if "all_of_order" in item:
        found = AllCliques(attributes, item["all_of_order"])
        if len(found) > MAX_TABLES:
            raise ValueError("more tables than were ever measured")
        return found
    return tuple(tuple(clique) for clique in item["cliques"])


def slug(text: str) -> str:
    """Return a name as it stands in an identifier of a release.

    Examples
    --------
    >>> slug("by order")
    'by_order'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:40]


def release_id(source: str, operation: str, query: str, name: str) -> str:
    """Return the identifier of a release: readable, usable as a file name, and distinct for distinct keys.

    Examples
    --------
    >>> release_id("main.adult", "synthesize", "main.adult", "default")
    'adult-synthesize-default-c1eceb74'
    """
    key = json.dumps([source, operation, query, name], ensure_ascii=False)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    stem = source.rsplit("/", 1)[-1] if source.startswith("file:") else source.rsplit(".", 1)[-1]
    parts = [slug(part) for part in (stem, operation, name)]
    return "-".join([part for part in parts if part] + [digest])


@dataclass(frozen=True)
class Release:
    """A stored release: its manifest and where its file is."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def identifier(self) -> str:
        """Return the identifier under which it was bought."""
        return str(self.manifest["release"])

    @cached_property
    def plan(self) -> Plan:
        """What was measured."""
        return Plan.from_json(self.manifest["plan"])

    def statistics(self, cursor: duckdb.DuckDBPyConnection) -> Statistics:
        """Read the released integers back, shaped by the plan."""
        plan = self.plan
        wanted = "n, value" if plan.open else "n, tbl, cell" if plan.sparse else "n"
        found = cursor.execute(f"SELECT {wanted} FROM {parquet(self.path)} ORDER BY tbl, cell").fetchnumpy()  # noqa: S608
        flat = np.asarray(found["n"], dtype=np.int64)
        values = tuple(str(text) for text in found["value"]) if plan.open else ()
        places = np.stack([np.asarray(found[name], dtype=np.int64) for name in ("tbl", "cell")]) if plan.sparse else None
        wrong = (not plan.listed and flat.size != plan.cells) or fingerprint(flat, values, places) != self.manifest["sha256"]
        if wrong:
            raise ReleaseError(f"release {self.identifier!r}: {self.path} is damaged or was edited; restore it from a backup")
        return as_statistics(plan, flat, self.manifest["total"], values, places)


def fingerprint(flat: IntArray, values: Sequence[str] = (), places: IntArray | None = None) -> str:
    """Return the SHA-256 of what a release holds; ``places``: table and cell of each count, where they are part of it."""
    digest = hashlib.sha256()
    for start in range(0, flat.size, _HASHED):  # an interrupt waits for one of them
        digest.update(flat[start : start + _HASHED].tobytes())
    if places is not None:
        digest.update(places.tobytes())
    if values:
        digest.update(json.dumps(list(values), ensure_ascii=False).encode())
    return digest.hexdigest()


def as_statistics(
    plan: Plan, flat: IntArray, total: int | None, values: tuple[str, ...] = (), places: IntArray | None = None
) -> Statistics:
    """Cut the flat integers of a plan into its tables (with the coarse ones) or blocks; of sparse tables: table, cell, count."""
    count = len(plan.cliques)
    common: dict[str, Any] = {
        "sizes": plan.domain.sizes, "mechanism": plan.mechanism, "total": total, "domain": plan.domain,
        "parameters": plan.parameters, "values": values,
    }  # fmt: skip
    if plan.listed or plan.blocks is not None:
        pieces = (flat,) if plan.open else tuple(np.split(flat, np.cumsum(plan.lengths)[:-1]))
        blocks = pieces if places is None else (places[0], places[1], flat)
        scales = {clique: float(scale) for clique, scale in zip(plan.cliques, plan.scales[:count], strict=False)}
        return Statistics(tables={}, scales=scales, blocks=blocks, **common)
    first = int(plan.table_lengths.sum())
    tables = shaped(plan, flat[:first])
    second = _coarse(plan, tables, flat[first:]) if plan.coarse else CoarseTables()
    return Statistics(tables=tables, scales=FlatScales(plan.cliques, plan.scale_numbers[:count]), coarse=second, **common)


def shaped(plan: Plan, flat: IntArray) -> FlatTables:
    """Return the tables of a plan from their flat counts."""
    return FlatTables(plan.domain.sizes, plan.cliques, flat)


def _coarse(plan: Plan, tables: Mapping[Clique, IntArray], flat: IntArray) -> CoarseTables:
    """Give the coarse tables their groups again, which the released tables determine."""
    pieces = np.split(flat, np.cumsum(plan.lengths[len(plan.cliques) :])[:-1])
    return CoarseTables(
        coarse.groups(plan.domain, tables, itertools.chain.from_iterable(plan.coarse)),
        {pair: piece.reshape(coarse.shape(plan.domain, pair)) for pair, piece in zip(plan.coarse, pieces, strict=True)},
        {pair: float(scale) for pair, scale in zip(plan.coarse, plan.scales[len(plan.cliques) :], strict=True)},
    )


def valid_identifier(identifier: str) -> bool:
    """Return whether a text can be the identifier of a release (and so a file name)."""
    return re.fullmatch(r"[A-Za-z0-9_-]+", identifier) is not None


def path_of(store: Path, identifier: str, charge_hash: str) -> Path:
    """Return where the store keeps the release that a charge (the hash of its ledger entry) has paid for."""
    if not valid_identifier(identifier) or not re.fullmatch(r"[0-9a-f]{64}", charge_hash):
        raise ReleaseError(f"release = {identifier!r}: not an identifier of a release; FROM dp_releases() lists them")
    return store / f"{identifier}.{charge_hash[:16]}{SUFFIX}"


def stored_files(store: Path) -> list[tuple[str, Path]]:
    """Return identifier and path of every release in a store."""
    return sorted((path.name.split(".", 1)[0], path) for path in store.glob("*" + SUFFIX))


def check_store(cursor: duckdb.DuckDBPyConnection, store: Path) -> None:
    """Write and read back a one-row file, so that a store which cannot take a release is found before anything is charged."""
    probe = store / f".probe-{uuid.uuid4().hex}.parquet"
    try:
        store.mkdir(parents=True, exist_ok=True)
        cursor.execute(f"COPY (SELECT 1 AS probe) TO {literal(str(probe))} (FORMAT parquet)")
        cursor.execute(f"SELECT probe FROM {parquet(probe)}").fetchall()  # noqa: S608
    except (OSError, duckdb.Error) as error:
        raise ReleaseError(
            f"the release store {store} cannot be used ({first_line(error)}); no row was read and nothing "
            "more was charged. Give another one with dpsql.load(con, store='folder')"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def write(
    cursor: duckdb.DuckDBPyConnection,
    path: Path,
    plan: Plan,
    flat: IntArray,
    manifest: Mapping[str, Any],
    values: Sequence[str] = (),
    places: IntArray | None = None,
) -> str:
    """Write released integers (with values or places) and manifest to a draft of ``path``, complete and on disk; return a SHA-256.

    `publish` shows it, once the ledger knows this hash.
    """
    lengths = np.asarray([flat.size], np.int64) if plan.open else plan.lengths
    table = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    cell = np.arange(len(table)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if places is not None:
        table, cell = places[0].astype(np.int32), places[1]
    frame = pd.DataFrame({"tbl": table, "cell": cell, "n": flat})
    if plan.open:
        frame["value"] = pd.Series(list(values), dtype=object)
    contents = fingerprint(flat, values, places)
    full = {"format": FORMAT, **manifest, "plan": plan.to_json(), "sha256": contents}
    text = json.dumps(full, sort_keys=True, ensure_ascii=False)
    partial = draft_of(path, contents)
    name = f"dpsql_{uuid.uuid4().hex}"
    cursor.register(name, frame)
    try:
        options = f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{dpsql: {literal(text)}}})"
        columns = "tbl, cell, n, value::VARCHAR AS value" if plan.open else "tbl, cell, n"
        cursor.execute(f"COPY (SELECT {columns} FROM {name}) TO {literal(str(partial))} {options}")  # noqa: S608
        with partial.open("rb+") as handle:
            os.fsync(handle.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        cursor.unregister(name)
    return contents


def draft_of(path: Path, contents: str) -> Path:
    """Return the hidden name of a finished file that the ledger does not know yet."""
    return path.with_name(f".{path.name}.{contents}")


def publish(draft: Path, path: Path) -> None:
    """Give a finished file its name, surviving a crash at any point; nothing happens where there is no draft."""
    if not draft.is_file():
        return
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_leftovers(path: Path) -> None:
    """Remove drafts that a killed process left for this charge; only while the ledger knows none of them."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


def read(cursor: duckdb.DuckDBPyConnection, path: Path, contents: str | None = None) -> Release:
    """Open a stored or exported release; ``contents`` is the SHA-256 that the ledger has of its counts, where it has one.

    Raises
    ------
    ReleaseError
        There is no such file, DuckDB may not read it, it is not a release of a known format, or not the one in the ledger.
    """
    if not path.is_file():
        raise ReleaseError(
            f"{path} is not there: the release store was moved or cleaned; restore it from a backup, or "
            "name the store that it is in: dpsql.load(con, store='folder')"
        )
    try:
        rows = cursor.execute(
            f"SELECT decode(value) FROM parquet_kv_metadata({literal(str(path))}) WHERE decode(key) = 'dpsql'"  # noqa: S608
        ).fetchall()
    except duckdb.PermissionException as error:
        raise ReleaseError(f"{path} may not be read by this session: {first_line(error)}") from None
    except duckdb.Error:
        rows = []
    manifest = json.loads(rows[0][0]) if rows else {}
    if manifest.get("format") != FORMAT:
        raise ReleaseError(
            f"{path} is not a dpsql release of format {FORMAT} (found: {manifest.get('format')!r}); "
            "dp_export writes such files, a newer dpsql may read newer formats"
        )
    if contents is not None and manifest.get("sha256") != contents:
        raise ReleaseError(f"{path} is not the release that the ledger knows: it was edited or replaced; restore it from a backup")
    found = Release(path, manifest)
    check_plan(found)
    return found


def check_plan(found: Release) -> None:
    """Refuse a release whose plan is not one: an exported file comes from elsewhere, and its types become SQL text."""
    try:
        plan = found.plan
        good = valid_identifier(found.identifier) and all(
            sqltypes.parse(a.sql_type).family != "other" and a.kind in ("categorical", "numeric", "temporal")
            for a in plan.domain.attributes
        )
        listed = () if "all_of_order" in found.manifest["plan"]["tables"] else plan.cliques
        good = good and all(0 <= i < len(plan.domain.attributes) for clique in listed for i in clique)
        measured = set(plan.cliques) if plan.coarse else set()
        good = good and all(len(pair) == 2 and pair in measured for pair in plan.coarse)
        good = good and isinstance(found.manifest["charge"]["hash"], str)
        good = good and not (plan.sparse and (plan.open or plan.blocks is not None))
    except (KeyError, TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise ReleaseError(f"{found.path} is damaged or was edited: its plan cannot be read; restore it from a backup")
