"""Which of other systems' test statements dp_query answers, which it refuses and why; and its exact answers beside theirs.

    python tests/benchmarks/queries.py --peers [dpsqlplus qrlew smartnoise compliance analyzer tpch] [--all]
    python tests/benchmarks/queries.py --conformance
    python tests/benchmarks/queries.py --daily

The statements are not part of the project: the folder `queries` in the one DPSQL_SHARED names (`shared` next to the project's). They
run over made-up tables (`query_tables.py`). A statement counts if DuckDB runs it over these tables without privacy and it asks for
aggregates of people of one protected table: listed apart are those for which DuckDB has no syntax, function or table, raw rows, groups
of one unit each, joins of two protected tables, and statements without a protected table. `--all` lists every statement.

`--daily` asks what people and charting tools write daily (`daily_statements.py`, of our own): how many are answered with DuckDB's names
and types, and why the others are refused.

The exit code is 1 where a call fails with anything but one of dpsql's own errors.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import daily_statements
import duckdb
import query_tables as tables
from accuracy import shared_folder

import dpsql
from dpsql.errors import DpsqlError
from dpsql.queries.clause import cut

DIFFERENCES = {
    "an empty group has NULL there, 0 here": r"unnest\(\[9999",
    "where there is no value: the middle of the bounds there, NULL here": r"TestTableWithUid4",
    "five rows of a unit count there, all of its 20 here": r"TestTableWithUid3",
    "AVG is the mean of the units' means there, of the rows here": r"\bavg\(\w+.*TestTableWithUid2",
    "a unit's total is clipped there, each row here": r"\bsum\(\w+, contribution_bounds_per_group.*TestTableWithUid2",
}
"""Why an exact answer differs from GoogleSQL's -> statements that it holds for."""
PEERS = ("dpsqlplus", "qrlew", "smartnoise", "compliance", "analyzer", "tpch")
FILES = {"dpsqlplus": "dpsqlplus_ly", "qrlew": "qrlew_dp", "compliance": "googlesql_compliance", "analyzer": "googlesql_analyzer_half"}
APART = {
    "raw rows": r"at raw rows",
    "groups of one unit": r"privacy unit: whose row|is the privacy unit|GROUP BY the privacy unit",
    "no protected table": r"no protected table is in it",
    "not a SELECT": r"only SELECT can be answered",
}
"""Why a statement is listed apart -> what the refusal says."""
CONSTRUCTS = {
    "count": r"\bcount\b", "sum": r"\bsum\b", "avg": r"\bavg\b", "var, stddev": r"\b(var|stddev)\w*\s*\(", "covar": r"\bcovar",
    "quantiles": r"quantile|percentile|median", "min, max": r"\b(min|max)\s*\(", "DISTINCT": r"\bdistinct\b",
    "GROUP BY": r"group\s+by", "HAVING": r"\bhaving\b", "ORDER, LIMIT": r"order\s+by|\blimit\b", "JOIN": r"\bjoin\b",
    "WITH": r"\bwith\s+\w+\s+as\b", "subquery": r"\(\s*select\b", "set operation": r"\b(union|intersect|except)\b",
    "CASE": r"\bcase\b", "WHERE": r"\bwhere\b",
}


@dataclass(frozen=True)
class Statement:
    """A test statement: what dp_query and DuckDB are asked, and whether its system accepts it."""

    peer: str
    place: str
    text: str
    accepted: bool = True
    why: str = ""
    protected: tuple[tuple[str, str], ...] = ()
    bounds: dict[str, list[float]] = field(default_factory=dict)
    result: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a statement: 'answered', 'refused', 'apart' or 'crashed', and why."""

    statement: Statement
    kind: str
    why: str = ""


# -- statements ------------------------------------------------------------------------------------------------------------


def statements(peer: str, folder: Path) -> list[Statement]:
    """Return the statements of one system."""
    if peer == "tpch":
        parts = (folder / "tpch.sql").read_text().split("-- id: ")[1:]
        return [Statement(peer, part.split("\n", 1)[0], part.split("\n", 1)[1].strip().rstrip(";")) for part in parts]
    lines = [json.loads(line) for line in (folder / f"{FILES.get(peer, peer)}.jsonl").read_text().splitlines()]
    found = []
    for place, line in enumerate(lines):
        if line.get("kind") == "setup":
            continue
        accepted = line.get("expect", "accept") == "accept"
        text = line.get("duckdb") or line["sql"]
        why = "" if accepted else str(line.get("error") or "rejected")
        one = Statement(peer, str(place), text.strip().rstrip(";"), accepted, why, result=line.get("result", ""))
        found.append({"dpsqlplus": _dpsqlplus, "compliance": _compliance}.get(peer, lambda same: same)(one))
    return found


def _dpsqlplus(one: Statement) -> Statement:
    """Take the protection out of the text, and inline bounds."""
    protected, bounds = {}, {}
    for name, unit in re.findall(r"alter private_table (\S+)\s+options \(privacy_unit_column = (?:\w+\.)?(\w+)\);", one.text, re.I):
        protected[name] = unit
    text = re.sub(r"alter private_table [^;]*;", "", one.text, flags=re.I)
    text = re.sub(r"PRIVATE_QUERY OPTIONS\([^)]*\)", "", text)
    for column, low, high in re.findall(r"\w+\((\w+), ([\d.]+), ([\d.]+)\)", text):
        bounds[column] = [float(low), float(high)]
    text = re.sub(r"(\w+\(\w+), [\d.]+, [\d.]+\)", r"\1)", text).strip()
    return Statement(one.peer, one.place, text, one.accepted, one.why, tuple(sorted(protected.items())), bounds)


def _compliance(one: Statement) -> Statement:
    """Take out epsilon and delta, which the call gives, and name the column of UNNEST as DuckDB does."""
    text = re.sub(r"\b(epsilon|delta)\s*=\s*[\d.e+]+\s*(,|(?=\)))", "", one.text) if one.accepted else one.text
    text = re.sub(r"(unnest\(\[[^]]*\]\))\s+as\s+(\w+)", r"\1 AS _t(\2)", text, flags=re.I)
    text = re.sub(r",\s*\)", ")", text).replace('report_format => "', "report_format => '")
    text = re.sub(r"(report_format => '\w+)\"", r"\1'", text)
    return Statement(one.peer, one.place, text, one.accepted, one.why, result=one.result)


def plain(text: str) -> str:
    """Return a statement without what it says about privacy."""
    text = cut(text)[0] if re.search("differential_privacy", text, re.I) else text
    return re.sub(r",\s*contribution_bounds_per_\w+ =>\s*\([^)]*\)", "", text)


# -- running ---------------------------------------------------------------------------------------------------------------


class Runs:
    """Databases with the tables of each system, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[tuple[object, ...], duckdb.DuckDBPyConnection] = {}

    def connection(self, one: Statement) -> duckdb.DuckDBPyConnection:
        """Return a database with the tables that a statement names."""
        key = (one.peer, one.protected)
        if key not in self._made:
            connection = duckdb.connect()
            dpsql.load(connection, user="benchmark")
            if one.peer == "compliance":
                _setup(connection, self.folder)
            for table in self._tables(one):
                tables.make(connection, table)
            self._made[key] = connection
        return self._made[key]

    def _tables(self, one: Statement) -> tuple[tables.Table, ...]:
        fixed = {"qrlew": tables.QRLEW, "smartnoise": tables.SMARTNOISE, "analyzer": tables.GOOGLESQL, "tpch": tables.TPCH}
        return tables.dpsqlplus(dict(one.protected)) if one.peer == "dpsqlplus" else fixed.get(one.peer, ())

    def outcome(self, one: Statement) -> Outcome:
        """Ask a statement, and say what became of it."""
        connection = self.connection(one)
        bounds = {"bounds": one.bounds} if one.bounds else {}
        given = {} if re.search(r"\bepsilon\s*=", one.text) else {"epsilon": 1.0}
        try:
            dpsql.query(connection, one.text, **given, **bounds).fetchall()
            return Outcome(one, "answered")
        except DpsqlError as error:
            kind, why = "refused", " ".join(str(error).split())
        except Exception:  # a crash is what is looked for
            kind, why = "crashed", traceback.format_exc(limit=-4)
        for reason, pattern in APART.items():
            if re.search(pattern, why):
                return Outcome(one, "apart", f"{reason}: {why}")
        if not one.accepted:
            return Outcome(one, kind, why)
        try:
            connection.execute(f"FROM ({plain(one.text)})").fetchall()
        except (duckdb.Error, DpsqlError) as error:
            return Outcome(one, "apart", f"not DuckDB's: {' '.join(str(error).split())[:100]}")
        if kind == "refused" and len(self._protected(one)) > 1:
            return Outcome(one, "apart", f"two protected tables: {why}")
        return Outcome(one, kind, why)

    def _protected(self, one: Statement) -> set[str]:
        """Return the protected tables that a statement names."""
        names = {table.name for table in self._tables(one) if table.unit is not None}
        return {name for name in names if re.search(rf"\b{re.escape(name)}\b", one.text, re.I)}


def _setup(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Make the tables of GoogleSQL's compliance tests, which stand in its file."""
    for line in (folder / "googlesql_compliance.jsonl").read_text().splitlines():
        item = json.loads(line)
        made = re.match(r"CREATE TABLE (\w+)\s+(OPTIONS \(userid_column=uid\) )?AS\s+(.*)", item["sql"], re.S)
        if item["kind"] != "setup" or not made:
            continue
        name, protected, rows = made.groups()
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS {re.sub('int64', 'BIGINT', rows).replace('BIGINT_val', 'int64_val')}")
        if protected:
            most = 20
            dpsql.protect(connection, name, epsilon=tables.EPSILON, delta=tables.DELTA, privacy_unit="uid", max_contributions=most)
            for column in ("int64_val", "double_val"):
                connection.execute(f"CALL dp_declare('{name}', '{column}', lower := -20, upper := 20)")


# -- reports ---------------------------------------------------------------------------------------------------------------


def peers(chosen: list[str], folder: Path, *, everything: bool) -> int:
    """Print what becomes of every statement; return the number of crashes."""
    runs = Runs(folder)
    found = [runs.outcome(one) for peer in chosen for one in statements(peer, folder)]
    accepted = [one for one in found if one.statement.accepted]
    print("| statements of | accepted | apart | answered | refused | crashed | share |\n| --- | --- | --- | --- | --- | --- | --- |")
    for peer in [*chosen, "all"]:
        those = [one for one in accepted if peer in ("all", one.statement.peer)]
        print(f"| {peer} | {len(those)} | {_row(those)} |")
    print("\n| with | answered | refused | crashed | share |\n| --- | --- | --- | --- | --- |")
    for name, pattern in CONSTRUCTS.items():
        those = [one for one in accepted if re.search(pattern, one.statement.text, re.I) and one.kind != "apart"]
        print(f"| {name} | {_row(those).split(' | ', 1)[1]} |")
    for kind in ("crashed", "refused", "apart"):
        print(f"\n{kind}:")
        reasons = defaultdict(list)
        for one in accepted:
            if one.kind == kind:
                reasons[one.why if kind != "apart" else one.why.split(": ")[0]].append(one)
        for why, those in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
            print(f"  {len(those)} x {why}\n      {', '.join(_place(one) for one in those)}")
    print("\nrejected by their system:")
    for one in found:
        if not one.statement.accepted:
            print(f"  {_place(one)}: {one.kind}: {one.why[:150]}" + ("" if one.kind == "apart" else f"\n      {_short(one.statement.text)}"))
    if everything:
        for one in accepted:
            print(f"{_place(one)}: {one.kind}: {one.why}\n      {_short(one.statement.text)}")
    return sum(one.kind == "crashed" for one in found)


def conformance(folder: Path) -> int:
    """Print GoogleSQL's compliance cases beside the exact answers; return the number of crashes and of differences without a reason."""
    runs, counts, bad = Runs(folder), Counter[str](), 0
    for one in statements("compliance", folder):
        if not one.accepted:
            continue
        wanted = expected(one.result)
        try:
            groups = None if re.search("public_groups|right outer", one.text, re.I) else "private"  # as by default there
            found = dpsql.query_exact(runs.connection(one), one.text, groups=groups).fetchall()
            same = sorted(map(_rounded, found), key=str) == sorted(map(_rounded, wanted), key=str)
            kind = "equal" if same else difference(one.text)
            shown = f"{found} beside {wanted}"
        except DpsqlError as error:
            kind, shown = "not answered", " ".join(str(error).split())[:150]
            kind = "of another dialect or output format" if OTHER_DIALECT.search(one.text) else kind
        except Exception:  # a crash is what is looked for
            kind, shown = "crashed", traceback.format_exc(limit=-3)
        counts[kind] += 1
        bad += kind in ("crashed", "without a reason")
        if kind != "equal":
            print(f"compliance {one.place}: {kind}: {shown[:300]}\n      {_short(one.text)}")
    print("\n| exact answers | statements |\n| --- | --- |")
    for kind, count in counts.most_common():
        print(f"| {kind} | {count} |")
    return bad


def daily() -> int:
    """Ask what is asked daily; return how many statements crash."""
    con = duckdb.connect()
    daily_statements.make(con)
    counts: Counter[str] = Counter()
    for sql in daily_statements.STATEMENTS:
        plain_one = con.sql(sql)
        try:
            answer = dpsql.query(con, sql, epsilon=1.0)
            same = answer.columns == plain_one.columns and list(map(str, answer.types)) == list(map(str, plain_one.types))
            kind, why = ("answered", "") if same else ("answered with other names or types", f"{answer.columns} {answer.types}")
            answer.fetchall()
        except DpsqlError as error:
            kind, why = "refused", str(error).split("\n", 1)[0]
        except Exception:  # a crash is what is looked for
            kind, why = "crashed", traceback.format_exc(limit=-2)
        counts[kind] += 1
        if kind != "answered":
            print(f"{kind}: {_short(sql)}\n      {why[:200]}")
    print("\n| daily statements | |\n| --- | --- |")
    for kind, count in counts.most_common():
        print(f"| {kind} | {count} ({count / len(daily_statements.STATEMENTS):.1%}) |")
    return counts["crashed"]


def expected(result: str) -> list[tuple[object, ...]]:
    """Return the rows of a result as GoogleSQL's tests write it: ``ARRAY<STRUCT<..>>[unknown order:{1, NULL}, {2, 3.5}]``."""
    words = {"NULL": None, "true": True, "false": False}
    rows = re.findall(r"\{([^{}]*)\}", result.split(">>", 1)[-1])
    return [tuple(words[v] if v in words else float(v) if re.fullmatch(r"-?[\d.e+-]+", v) else v for v in map(str.strip, row.split(",")))
            for row in rows]


def _rounded(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(float(f"{float(v):.9g}") if isinstance(v, int | float | Decimal) and not isinstance(v, bool) else v for v in row)


OTHER_DIALECT = re.compile(r"report_format|approx_quantiles|offset\(|\|>|group_selection_epsilon|percentile_(cont|disc)\([^)]*\) over", re.I)


def difference(text: str) -> str:
    """Return why an exact answer differs from GoogleSQL's, which bounds a unit's contribution to a group where rows are bounded here."""
    for reason, pattern in DIFFERENCES.items():
        if re.search(pattern, text, re.I | re.S):
            return reason
    return "without a reason"


def _row(those: list[Outcome]) -> str:
    kinds = Counter(one.kind for one in those)
    counted = len(those) - kinds["apart"]
    share = f"{kinds['answered'] / counted:.1%}" if counted else ""
    return f"{kinds['apart']} | {kinds['answered']} | {kinds['refused']} | {kinds['crashed']} | {share}"


def _place(one: Outcome) -> str:
    return f"{one.statement.peer} {one.statement.place}"


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="*", choices=PEERS)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--conformance", action="store_true")
    parser.add_argument("--daily", action="store_true")
    asked = parser.parse_args()
    if asked.daily:
        return 1 if daily() else 0
    folder = shared_folder() / "queries"
    if asked.conformance:
        return 1 if conformance(folder) else 0
    if asked.peers is None:
        parser.print_help()
        return 0
    return 1 if peers(asked.peers or list(PEERS), folder, everything=asked.all) else 0


if __name__ == "__main__":
    sys.exit(main())
