"""Which rows of a privacy unit are kept: at most so many, at random, in SQL, in one pass over the rows.

Everything here is text: no row is read, so that a plan may build it. What a caller needs to know is in `bounded_sql`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import ArgumentError
from dpsql.text.relation import identifier, literal

_PLACE, _ROWS, _PACK = "__dp_place", "__dp_rows", "__dp_pack"
_HELD, _HEAVY = "__dp_held", "__dp_heavy"
_PACK_BITS = 60
_FEW_BITS = 32
_EXACT_IN_BIGINT = 1 << 20  # (row_number + 2^31) * this is below 2^63 for any number of rows below 2^42


def bounded_sql(
    source_sql: str,
    units: Sequence[str],
    columns: Sequence[str],
    max_rows: int | None,
    salt: str,
    *,
    groups: Sequence[str] = (),
    max_groups: int | None = None,
) -> str:
    """Return a SELECT of some rows of a source: of each unit at most so many, or of each group of it, of at most so many groups.

    Parameters
    ----------
    source_sql : str
        A SELECT, or the quoted name of a relation, with the columns named below. It is read once.
    units : sequence of str, at least one
        Columns whose values together are a privacy unit. NULL is a value like others.
    columns : sequence of str, at least one
        Columns of the result, in this order; units and groups may be among them.
    max_rows : int, at least 1, or None
        Rows that are kept: of each unit, or of each group of a unit where there are groups. None: all of them.
    salt : str
        128 fresh random bits as hexadecimal digits: the source of the random choice. The same for all units of one reading,
        another for the next.
    groups : sequence of str
        Columns whose values together are a group; NULL is a value like others.
    max_groups : int, at least 1, or None
        Groups of each unit that are kept; None: all of them.

    Returns
    -------
    str
        A SELECT without ORDER BY.

    Raises
    ------
    ArgumentError
        A bound is no whole number from 1, the salt is too short, or columns are missing.

    Notes
    -----
    Privacy: let a unit, or a group of one, have n rows. They are numbered p = 1, ..., n, and row p is kept if (p + a) m mod n < m,
    where m is ``max_rows`` and a depends on nothing but the unit, the group and the salt. As p + a goes once through the residues
    mod n, (p + a) m goes through the multiples of g = gcd(m, n), g times through each, and m / g of them are below m: exactly
    min(m, n) rows are kept, with certainty, whatever the rows and whatever the hash. Groups are numbered 1, 2, ... within the
    unit by their values, after a hash of them, and kept up to ``max_groups``. Equal hashes of two rows, groups or units change
    none of this, for rows are put together by the values of ``units`` and ``groups`` themselves.

    The numbers follow a hash of (salt, unit, group, row) and then the values of the row. So, given the salt, which rows of a unit
    are kept is a function of this unit's rows alone: one unit more or fewer leaves all kept rows of others as they are, and
    changes the result by at most ``max_rows`` rows, or ``max_groups`` times ``max_rows``. This holds for each value of the salt,
    also one that is known: the guarantee needs neither a secret salt nor a cryptographic hash, and DuckDB's own is fast. What
    the hash is needed for is the choice itself: each row of a unit is kept with the same probability, over the salts.

    Equal rows of a unit stand side by side and are interchangeable; (p + a) m mod n takes m of n places at equal distances
    (systematic sampling), so of k equal rows it keeps k m / n, rounded up or down. Rows that are not equal stand in random order,
    and then it is a simple random sample.

    Units, groups and columns must be of types whose equality is that of bytes (no collation; a text as BLOB), as in
    `dpsql.source.keys`: only then is a unit or a group one for everybody. Columns of other types do no harm to the bound, but
    which of two equal rows stays (0.0 and -0.0, two spellings under a collation) may then depend on their place in the table.

    References
    ----------
    Madow & Madow 1944, On the theory of systematic sampling.

    Examples
    --------
    >>> import duckdb
    >>> text = bounded_sql("SELECT i % 3 AS u, i AS x FROM range(100) t(i)", ["u"], ["u", "x"], 4, "0123456789abcdef" * 2)
    >>> duckdb.sql(f"SELECT u, count(*), count(DISTINCT x) FROM ({text}) GROUP BY u ORDER BY u").fetchall()
    [(0, 4, 4), (1, 4, 4), (2, 4, 4)]
    """
    if not units or not columns:
        raise ArgumentError("units" if not units else "columns", [], "at least one column is required")
    if max_groups is not None and not groups:
        raise ArgumentError("max_groups", max_groups, "needs the columns of a group: groups = [...]")
    checked(salt, max_rows=max_rows, max_groups=max_groups)
    # Keys of rows and of groups are computed from these columns, so they go along even if nobody asks for them.
    everything = list(dict.fromkeys([*units, *groups, *columns]))
    select = _relation(source_sql)
    if max_groups is not None:
        select = f"({_groups(select, units, groups, everything, max_groups, salt)})"
    if max_rows is None:
        return f"SELECT {_listed(columns)} FROM {select} AS kept"  # noqa: S608
    return _rows(select, [*units, *groups], everything, columns, max_rows, salt)


def light_first_sql(
    source_sql: str,
    units: Sequence[str],
    columns: Sequence[str],
    max_rows: int | None,
    salt: str,
    *,
    groups: Sequence[str] = (),
    max_groups: int | None = None,
) -> str:
    """Return `bounded_sql` of the same arguments, with the rows of units that are within their bounds taken as they are.

    Only what heavy units have is sorted: where few units are, this takes a fifth of the time; where half of all rows are theirs, a
    tenth more.

    Notes
    -----
    Privacy: whether a unit is heavy, and which of its rows are kept, depends on its own rows alone. The source is read once and
    kept (MATERIALIZED), so that both halves see the same rows; a unit is in one of them, NULL too.

    Examples
    --------
    >>> import duckdb
    >>> rows = "SELECT least(i % 9, 3) AS u, i AS x FROM range(90) t(i)"
    >>> text = light_first_sql(rows, ["u"], ["u", "x"], 10, "0123456789abcdef" * 2)
    >>> duckdb.sql(f"SELECT u, count(*), count(DISTINCT x) FROM ({text}) GROUP BY u ORDER BY u").fetchall()
    [(0, 10, 10), (1, 10, 10), (2, 10, 10), (3, 10, 10)]
    """
    if max_rows is None:
        return bounded_sql(source_sql, units, columns, max_rows, salt, groups=groups, max_groups=max_groups)
    everything = list(dict.fromkeys([*units, *groups, *columns]))
    rows, heavy, listed = identifier(_HELD), identifier(_HEAVY), _listed(units)
    same = " AND ".join(f"{rows}.{identifier(name)} IS NOT DISTINCT FROM {heavy}.{identifier(name)}" for name in units)
    if groups:
        # A unit is heavy by its rows in any one group, or by the number of its groups.
        counted = f"SELECT {listed}, count(*) AS n FROM {rows} GROUP BY {_listed(list(dict.fromkeys([*units, *groups])))}"  # noqa: S608
        most = "" if max_groups is None else f" OR count(*) > {max_groups}"
        above = f"SELECT {listed} FROM ({counted}) GROUP BY {listed} HAVING max(n) > {max_rows}{most}"  # noqa: S608
    else:
        above = f"SELECT {listed} FROM {rows} GROUP BY {listed} HAVING count(*) > {max_rows}"  # noqa: S608
    theirs = f"SELECT {_listed(everything)} FROM {rows} SEMI JOIN {heavy} ON {same}"  # noqa: S608
    bounded = bounded_sql(theirs, units, columns, max_rows, salt, groups=groups, max_groups=max_groups)
    return (
        f"WITH {rows} AS MATERIALIZED (SELECT {_listed(everything)} FROM {_relation(source_sql)} AS held), "  # noqa: S608
        f"{heavy} AS MATERIALIZED ({above}) SELECT {_listed(columns)} FROM {rows} ANTI JOIN {heavy} ON {same} UNION ALL ({bounded})"
    )


def bounded_codes_sql(
    source_sql: str,
    units: Sequence[str],
    names: Sequence[str],
    sizes: Sequence[int],
    types: Sequence[str],
    others: Sequence[str],
    max_rows: int,
    salt: str,
) -> str:
    """Return `bounded_sql` of a source of codes, which are packed on the way: there is less to sort.

    Parameters
    ----------
    source_sql, units, max_rows, salt
        As in `bounded_sql`.
    names, sizes, types : sequences of the same length
        Columns with codes, never NULL; how many codes each has; DuckDB's types.
    others : sequence of str
        More columns.

    Returns
    -------
    str
        A SELECT of names and others.

    Notes
    -----
    Privacy: as `bounded_sql`. Where all codes of a row fit into 32 bits, the number that the rows of a unit are ordered by is half
    hash, half codes: equal numbers are equal rows.
    """
    checked(salt, max_rows=max_rows)
    codes = Packed(names, sizes, types)
    listed = [identifier(name) for name in others]
    packed = f"SELECT {', '.join([_listed(units), *codes.expressions, *listed])} FROM {_relation(source_sql)} AS coded"  # noqa: S608
    # One small integer for all codes: it stands in the low bits of the sort key itself, and there is one column to sort.
    if codes.few and not others:
        [pack] = codes.columns
        number = f"({_key(salt, 'row', [*units, pack])} & {(1 << 64) - (1 << _FEW_BITS)}) | {identifier(pack)}"
        packed = f"SELECT {_listed(units)}, {number} AS {identifier(pack)} FROM ({packed}) AS packed"  # noqa: S608
        bounded = _rows(f"({packed})", units, [*units, pack], [pack], max_rows, salt, f"{identifier(pack)} ASC")
    else:
        bounded = bounded_sql(packed, units, [*codes.columns, *others], max_rows, salt)
    return f"SELECT {', '.join([*codes.codes, *listed])} FROM ({bounded}) AS bounded"  # noqa: S608


def checked(salt: str, **bounds: int | None) -> None:
    """Refuse a bound that is no whole number from 1, and a salt that is too short.

    Raises
    ------
    ArgumentError
        The salt is not shown.
    """
    for name, most in bounds.items():
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise ArgumentError(name, most, "a whole number from 1 is required")
    if len(salt) < 32 or not salt.isalnum():
        raise ArgumentError("salt", "(withheld)", "at least 32 hexadecimal digits are required")


class Packed:
    """Codes of a row in as few integers as hold them: less to sort, and to carry.

    Parameters
    ----------
    names : sequence of str
        Columns with codes; no NULL.
    sizes : sequence of int
        How many codes each has.
    types : sequence of str
        DuckDB's type of each.

    Notes
    -----
    Privacy: None: one integer for each combination of codes, and back.

    Examples
    --------
    >>> packed = Packed(["c0", "c1"], [3, 300], ["UTINYINT", "USMALLINT"])
    >>> packed.columns, len(packed.expressions)
    (['__dp_pack0'], 1)
    """

    def __init__(self, names: Sequence[str], sizes: Sequence[int], types: Sequence[str]) -> None:
        self.columns: list[str] = []
        """Names of the integers."""
        self.expressions: list[str] = []
        """The integers from the codes, with their names."""
        self.codes: list[str] = []
        """The codes from the integers, with their names and types."""
        parts: list[str] = []
        used = 0
        for name, size, kind in zip(names, sizes, types, strict=True):
            bits = max(size - 1, 1).bit_length()
            # A pack is full: the next code begins another integer.
            if used + bits > _PACK_BITS and parts:
                self._add(parts)
                parts, used = [], 0
            parts.append(f"{identifier(name)}::UBIGINT * {1 << used}")
            place = identifier(f"{_PACK}{len(self.columns)}")
            self.codes.append(f"((({place} >> {used}) & {(1 << bits) - 1})::{kind}) AS {identifier(name)}")
            used += bits
        if parts:
            self._add(parts)
        self.few = len(self.columns) == 1 and used <= _FEW_BITS
        """Whether there is one integer, of 32 bits at most."""

    def _add(self, parts: Sequence[str]) -> None:
        name = f"{_PACK}{len(self.columns)}"
        self.columns.append(name)
        self.expressions.append(f"{' + '.join(parts)} AS {identifier(name)}")


def _relation(source_sql: str) -> str:
    text = source_sql.strip()
    return text if text.startswith('"') else f"(\n{source_sql}\n)"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(identifier(name) for name in names)


def _order(names: Sequence[str]) -> str:
    return ", ".join(f"{identifier(name)} ASC NULLS LAST" for name in names)


def _key(salt: str, purpose: str, names: Sequence[str]) -> str:
    """Return 64 bits that look random over the salts.

    Twice, because DuckDB combines the hash of a last argument by XOR: keys of a unit would differ from salt to salt by one
    constant, which leaves near ones together, and the order is then none of all orders with equal probability.
    """
    return f"hash(hash({literal(purpose + salt)}, {_listed(names)}))"


def _groups(select: str, units: Sequence[str], groups: Sequence[str], everything: Sequence[str], most: int, salt: str) -> str:
    """Keep at most ``most`` groups of each unit: groups differ, so the first ones in a random order are a simple random sample."""
    order = f"{_key(salt, 'group', [*units, *groups])} ASC, {_order(groups)}"
    place = f"dense_rank() OVER (PARTITION BY {_listed(units)} ORDER BY {order}) AS {identifier(_PLACE)}"
    ranked = f"SELECT {_listed(everything)}, {place} FROM {select} AS ungrouped"  # noqa: S608
    return f"SELECT {_listed(everything)} FROM ({ranked}) AS ranked WHERE {identifier(_PLACE)} <= {most}"  # noqa: S608


def _rows(
    select: str, by: Sequence[str], everything: Sequence[str], columns: Sequence[str], most: int, salt: str, order: str = ""
) -> str:
    """Keep exactly ``most`` rows of each partition that has more, see `bounded_sql`."""
    if not order:
        values = [name for name in everything if name not in set(by)]
        order = ", ".join([f"{_key(salt, 'row', everything)} ASC", *([_order(values)] if values else [])])
    partition = f"PARTITION BY {_listed(by)}"
    # Two plain functions over one partition share one sort. No frame, and not row_number() <= most alone: newer versions turn
    # that into an aggregate with room for ``most`` rows in every unit, which is slower and cannot leave the memory.
    place = f"row_number() OVER ({partition} ORDER BY {order}) AS {identifier(_PLACE)}"
    number = f"count(*) OVER ({partition}) AS {identifier(_ROWS)}"
    placed = f"SELECT {_listed(everything)}, {place}, {number} FROM {select} AS unplaced"  # noqa: S608
    kind = "BIGINT" if most <= _EXACT_IN_BIGINT else "HUGEINT"
    offset = f"({_key(salt, 'first', by)} >> 33)::{kind}"
    kept = f"(({identifier(_PLACE)} + {offset}) * {most}) % {identifier(_ROWS)} < {most}"
    return f"SELECT {_listed(columns)} FROM ({placed}) AS placed WHERE {kept}"  # noqa: S608
