"""Regular expressions: what passes gives the same matches on both engines, for every text; the rest is refused by name."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_values import TEXTS, both, show

from dpsql.engines.spark.translate import translated
from dpsql.engines.spark.translate.patterns import pattern
from dpsql.errors import UnsupportedQuery
from dpsql.source.analysis import analyse

pytestmark = pytest.mark.any_duckdb
MORE = (
    "a\n", "\na", "a\r\nb", "a\r", "x\u0085y", "a\u2028b", "\x0b", "foo@bar.org", "AB-1234", "ab-1234 cd-99", "K", "\u212a", "kK\u212a", "s\u017fS", "__x1", "a.b.c", "12:34:56", "$1", "\\$",
    "aaa", "aab", "abab", "ba", "naïve café", "é1é", "1é", "e\u0301a", "a😀😀a", "😀" * 40 + "a" + "😀b" * 400, "a" * 1500, "ab" * 700, "2020-01-31", "[x]", "x-y", "{}", "^a$", "\x7f", "\ud7ff\ue000",
)  # fmt: skip
PATTERNS = (
    "a", "", ".", "..", "^", "$", "^$", "^a", "a$", "^a$", "a.b", "a.*b", "^.*$", ".+", "a|b", "^(?:a|b|ab)$", "(a|ab)(c|bcd)?", "(a+)(b*)", "(a*)(a*)", "(a*?)(a*)", "(a{1,2}?)(a*)", "a{2}", "a{2,}", "a{2,3}", "a{0,1}b",
    "[ab]+", "[^ab]+", "[a-c][x-z]?", "[\\d]+", "\\d{1,3}", "\\D+", "\\w+", "\\W", "\\s", "\\S+", "[\\s\\d]", "[^\\W]", "[[:alpha:]]+", "[^[:space:]]", "[[:punct:]]", "\\.", "\\\\", "\\$", "\\n", "\\t|\\r", "\\x41", "\\x{1F600}",
    "é", "[é-ü]", "[^é]", "😀+", "[😀a]{2,5}", "日.", "(\\w+)@(\\w+)\\.(\\w+)", "([A-Z]{2})-(\\d+)", "^(\\d+)-(\\d+)-(\\d+)$", "(?i)k", "(?i)[^k]", "(?i)S+", "(?i)ab", "(?i)[a-c]+x", "(?s)a.b", "(?is)A.B",
    "(a)?(b)?", "((a)|b)c?", "(?:a|)b", "(|a)b", "x*", "[-a]", "[a-]", "[.^$*]", "\\A\\s*\\z", "()a", "(?:(a)|(b))x?", "[\\]]", "a??b", "(.*?)b", "(.+?)(\\d)", "[[:word:]]+-", "\\^a\\$", "[\\x00-\\x1f]", "[\\-x]", "(?:é|e\u0301)", "[[a]x",
)  # fmt: skip


def table(con: duckdb.DuckDBPyConnection) -> None:
    texts = [*TEXTS, *MORE]
    con.execute("CREATE TABLE t (n BIGINT, x VARCHAR)")
    con.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate([*texts, None])))


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def calls(written: str) -> list[str]:
    """Return calls with a pattern; where it matches no character, it is not replaced."""
    found = pattern(written)
    given = quoted(written)
    listed = [f"regexp_matches(x, {given})", f"regexp_full_match(x, {given})", f"regexp_matches(x, {given}, 's')", f"regexp_extract(x, {given})"]
    listed += [f"regexp_extract(x, {given}, {group})" for group in range(found.groups + 1)]
    if found.least:
        listed += [f"regexp_replace(x, {given}, '<1>')", f"regexp_replace(x, {given}, '2', 'g')", f"regexp_replace(x, {given}, '')", f"regexp_replace(x, {given}, '\u00e9', 'gs')"]
    return listed


def check(spark: Any, tmp_path: Path, expressions: list[str]) -> int:
    """Compare expressions on both engines; return how many values there were."""
    con = duckdb.connect()
    table(con)
    relations = show(spark, con, tmp_path, "t")
    wrong, seen = [], 0
    for start in range(0, len(expressions), 40):
        some = expressions[start : start + 40]
        listed = ", ".join(f"{text} AS r{place}" for place, text in enumerate(some))
        source = analyse(con.cursor(), f"SELECT n, {listed} FROM t", database="memory", schema="main", protected=lambda table: True)
        mine, theirs = both(spark, con, source.sql, relations)
        ours = {row[0]: row for row in mine}
        assert len(ours) == len(theirs) == len(TEXTS) + len(MORE) + 1
        texts = [*TEXTS, *MORE, None]
        for row in theirs:
            for text, one, other in zip(some, ours[row[0]][1:], row[1:], strict=True):
                seen += 1
                if one != other:
                    wrong.append((text, texts[row[0]], one, other))
    assert not wrong, wrong[:5]
    return seen


def test_both_engines_match_alike(spark: Any, tmp_path: Path) -> None:
    assert check(spark, tmp_path, [call for written in PATTERNS for call in calls(written)]) > 50_000


READ = (
    ("^-?\\d{1,18}$", "BIGINT"), ("[-+]?[0-9]{1,11}", "INTEGER"), ("\\d\\d?\\d?\\d?\\d?\\d?", "SMALLINT"), ("^\\d{3}", "TINYINT"), ("-?\\d{0,9}", "BIGINT"), ("^[-+]?\\d{0,20}\\.?\\d{0,20}$", "DOUBLE"),
    ("-?[0-9]{1,15}\\.[0-9]{2}", "DOUBLE"), ("[1-9]\\d{3}-\\d{2}-\\d{2}", "DATE"), ("^[12][0-9][0-9]{2}-[01][0-9]-[0-3][0-9]$", "DATE"),
)  # fmt: skip
NUMBERS = (
    "0", "-0", "007", "-007", "+5", "+-5", "-", "+", ".", "-.", "5.", "-.5", "+.5", "127", "128", "-129", "32768", "99999", "2147483648", "-2147483649", "999999999999999999", "9223372036854775808",
    "0.1", "-0.30000000000000004", "123456789012345678.25", "9007199254740993", "9007199254740992.99999999999999999", "0.00000000000000000001", "179769313486231570000", "1_000", "0x1F", "1e3", " 7 ", "12345.67",
    "2020-02-29", "2021-02-29", "1999-12-31", "2020-00-10", "2020-13-01", "2020-12-32", "0000-01-01", "1000-01-01", "x 2024-05-06 y", "20240506", "٣", "１",
)  # fmt: skip
NOT_READ = {
    "x": "INTEGER", "regexp_extract(x, '\\d+')": "INTEGER", "regexp_extract(x, '\\d{1,19}')": "BIGINT", "regexp_extract(x, '-{1,2}\\d')": "BIGINT", "regexp_extract(x, '\\d-\\d')": "BIGINT", "regexp_extract(x, '(\\d)')": "BIGINT",
    "regexp_extract(x, '\\d|a')": "BIGINT", "regexp_extract(x, '\\d(?:\\d)?')": "BIGINT", "regexp_extract(x, '\\d\\.')": "BIGINT", "regexp_extract(x, '\\w')": "BIGINT", "regexp_extract(x, '\\d\\.\\d\\.')": "DOUBLE", "regexp_extract(x, '\\d{4}-\\d{2}-\\d{2}')": "DATE",
    "regexp_extract(x, '[1-9]\\d{3}-\\d{2}-\\d{1,2}')": "DATE", "regexp_extract(x, '')": "BIGINT", "regexp_extract(x, '\\d')": "DECIMAL(9,2)", "lower(regexp_extract(x, '\\d'))": "BIGINT", "regexp_extract(x, '(\\d)', 1)": "BIGINT",
}  # fmt: skip


def test_both_engines_read_plain_texts_alike(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    random_ones = ["".join(rng.choice("0123456789+-.") for _ in range(rng.randint(1, 12))) for _ in range(200)]
    monkeypatch.setitem(globals(), "MORE", (*MORE, *NUMBERS, *random_ones))
    assert check(spark, tmp_path, [f"TRY_CAST(regexp_extract(x, '{written}') AS {kind})" for written, kind in READ]) > 2_000


@pytest.mark.parametrize("value", NOT_READ)
def test_texts_that_are_not_read(value: str) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x VARCHAR)")
    kind = NOT_READ[value]
    with pytest.raises(UnsupportedQuery) as refused:
        translated(con, f'SELECT TRY_CAST({value} AS {kind}) AS y FROM "memory"."main"."t"', {'"memory"."main"."t"': "`t`"})
    assert refused.value.construct == f"CAST(VARCHAR AS {kind})"


def made(rng: random.Random, depth: int) -> str:
    """Return a random pattern; not every one passes."""
    way = rng.random()
    if depth == 0 or way < 0.35:
        atom = rng.choice(["a", "b", "é", "😀", ".", "[ab]", "[^a]", "\\w", "\\W", "\\s", "\\d", "[^\\s1]", "\\n", "\\.", "[a-zé-ü]", "-", "^", "$"])
        return atom + (rng.choice(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}?"]) if atom not in ("^", "$") else "")
    if way < 0.7:
        return "".join(made(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if way < 0.85:
        return "(?:" + "|".join(made(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")" + rng.choice(["", "", "?", "??"])
    return f"({made(rng, depth - 1)})" + rng.choice(["", "", "?"])


def test_random_patterns(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    found: list[str] = []
    while len(found) < 120:
        written = rng.choice(["", "", "(?i)", "(?s)"]) + made(rng, 3)
        try:
            found += calls(written)
        except UnsupportedQuery:
            continue
    check(spark, tmp_path, found)


REFUSED = {
    "(a)*": "a group that is repeated", "(?:ab)+": "a group that is repeated", "(a|b){2}": "a group that is repeated", "a**": "a repetition of a repetition", "a++": "a repetition of a repetition",
    "a*+": "a repetition of a repetition", "(?=a)": "(?", "(?!a)": "(?", "(?<=a)b": "(?", "(?i:a)": "(?", "(?P<x>a)": "(?", "(?m)^a": "(?", "(?U)a*": "(?", "\\1": "\\1", "(a)\\1": "\\1", "\\pL": "\\p", "\\B": "\\B", "a\\b": "\\b", "\\Qa\\E": "\\Q",
    "\\K": "\\K", "\\G": "\\G", "\\Z": "\\Z", "\\h": "\\h", "a{256}": "{ that counts otherwise", "a{,2}": "{ that counts otherwise", "a{2,1}": "a count of that kind", "a{0}": "a count of that kind", "{": "an unescaped {", "}": "an unescaped }",
    "]": "an unescaped ]", "[]a]": "[ and ] in it", "[a-\\d]": "a range of that kind", "[c-a]": "a range of that kind", "[a-b-c]": "a range of that kind", "[[:nothing:]]": "[: of that kind", "[[:^alpha:]]": "[: of that kind", "[": "a pattern that ends too early",
    "(": "( without )", ")": ") without (", "\\": "ends too early", "^*": "an anchor that is repeated", "(?i)é": "letters beyond ASCII", ".*.*.*.*x": "so many repetitions", "\\x{110000}": "\\x of that kind", "\\x{d800}": "\\x of that kind",
    "[^\\s\\S]": "a class of no characters",
}  # fmt: skip


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_refused(written: str) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        pattern(written)
    assert REFUSED[written] in refused.value.construct


def test_calls_that_are_refused() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x VARCHAR, p VARCHAR)")
    for call, told in {
        "regexp_matches(x, p)": "constant text", "regexp_matches(x, 'a', 'l')": "the option 'l'", "regexp_replace(x, 'a*', 'b')": "no characters", "regexp_replace(x, 'a', '\\1')": "backslash", "regexp_replace(x, '(a)', '$1')": "backslash or $",
        "regexp_extract(x, '(a)', 2)": "this group",
    }.items():  # fmt: skip
        with pytest.raises(UnsupportedQuery, match=re.escape(told)):
            translated(con, f'SELECT {call} AS y FROM "memory"."main"."t"', {'"memory"."main"."t"': "`t`"})


def test_long_texts_do_not_fill_the_stack() -> None:
    """A repetition with counts is one call of Java's for each; the largest count passes, and one more does not."""
    assert pattern("[^a]{0,255}b").least == 1
    with pytest.raises(UnsupportedQuery):
        pattern("[^a]{0,256}b")
