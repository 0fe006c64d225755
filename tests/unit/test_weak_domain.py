"""Words, patterns, universes; thresholds and releases at their ends; every message."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.accounting.events import LaplaceEvent
from dpsql.errors import ArgumentError, ReleaseError
from dpsql.mechanisms import stable_selection, weak_domain
from dpsql.mechanisms.binomial import Binomial, binomial
from dpsql.mechanisms.words import Listed, Pattern, Tuples, Universe, from_list, nth_missing
from dpsql.methods.base import Contract
from dpsql.methods.open_domains.weak_domain import WeakDomain
from dpsql.tables.statistics import Statistics

ADD_REMOVE = Contract("add_remove", 1, public_total=False)


def all_of(generator) -> list[str]:
    """Return every member, and check that place and member are inverse to each other."""
    members = [generator.unrank(i) for i in range(generator.size)]
    assert [generator.rank(member) for member in members] == list(range(generator.size))
    assert len(set(members)) == generator.size
    for beyond in (-1, generator.size):
        with pytest.raises(IndexError):
            generator.unrank(beyond)
    return members


def test_listed() -> None:
    words = Listed(["zebra", "ähre", "Ähre", "", "a b"])
    assert all_of(words) == ["zebra", "ähre", "Ähre", "", "a b"]
    assert words.rank("ZEBRA") is None
    assert words.rank("zebra ") is None
    assert words.rank("a\u0308hre") is None  # another way to write ähre: nothing is normalised


def test_tuples() -> None:
    words = ["a", "bc", ""]
    for repeat in (1, 2, 3):
        assert all_of(Tuples(words, repeat)) == ["-".join(parts) for parts in product(words, repeat=repeat)]
    pairs = Tuples(words, 2)
    assert [pairs.rank(text) for text in ("a", "a-bc-a", "a_bc", "a-x", "x-a", "A-a")] == [None] * 6


def test_tuples_of_many_words() -> None:
    words = Listed(f"w{i}" for i in range(171_476))
    pairs = Tuples(words, 2)
    assert pairs.size == 29_404_018_576
    for place in (0, 171_475, 171_476, 12_345_678_901, pairs.size - 1):
        assert pairs.rank(pairs.unrank(place)) == place
    many = Tuples(words, 20)
    assert many.size > 2**300
    assert many.rank(many.unrank(many.size - 12345)) == many.size - 12345


@pytest.mark.parametrize(
    ("words", "separator", "advice"),
    [(["a", "x-ray"], "-", "'_'"), (["a-"], "--", "'-'|'_'"), (["--a", "b"], "-", "'_'"), (["-_ | |/+~"], "-", "no word contains")],
)
def test_ambiguous_separator(words: list[str], separator: str, advice: str) -> None:
    with pytest.raises(ArgumentError, match=f"separator .*two tuples could give the same text.*({advice})"):
        Tuples(words, 2, separator)
    Tuples(words, 1, separator)  # nothing is joined


@pytest.mark.parametrize("separator", ["", None, 3])
def test_no_separator(separator: object) -> None:
    with pytest.raises(ArgumentError, match="separator .*at least one character"):
        Tuples(["a"], 2, separator)


@given(st.lists(st.text("ab-_", max_size=3), min_size=1, max_size=5, unique=True), st.text("-_", min_size=1, max_size=2), st.integers(1, 3))
def test_tuples_are_unambiguous_or_refused(words: list[str], separator: str, repeat: int) -> None:
    try:
        tuples = Tuples(words, repeat, separator)
    except ArgumentError as error:
        assert error.argument == "separator"
        return
    assert all_of(tuples) == [separator.join(parts) for parts in product(words, repeat=repeat)]
    for text in words:
        assert (tuples.rank(text) is not None) == (text in {separator.join(parts) for parts in product(words, repeat=repeat)})


@pytest.mark.parametrize(
    ("text", "size", "first", "last"),
    [
        ("abc", 1, "abc", "abc"),
        (r"[A-C]\d", 30, "A0", "C9"),
        (r"\w", 63, "0", "z"),
        (r"[c-ea-b]{2}", 25, "aa", "ee"),
        (r"[aab-da]", 4, "a", "d"),
        (r"[\d\-x]", 12, "-", "x"),
        (r"[-a]", 2, "-", "a"),
        (r"[a-]", 2, "-", "a"),
        (r"[\]\\.*+?(){}|$]", 12, "$", "}"),
        (r"\.\*\[\{\\", 1, ".*[{\\", ".*[{\\"),
        ("[äöü]-[α-γ]", 9, "ä-α", "ü-γ"),
        ("[\U0001f600-\U0001f602]é", 3, "\U0001f600é", "\U0001f602é"),
        ("[\ud7ff-\ue000]", 2, "\ud7ff", "\ue000"),
        ("a b-c", 1, "a b-c", "a b-c"),
        (r"[ ]{3}", 1, "   ", "   "),
    ],
)
def test_pattern(text: str, size: int, first: str, last: str) -> None:
    pattern = Pattern(text)
    assert pattern.size == size
    members = all_of(pattern)
    assert (members[0], members[-1]) == (first, last)
    assert members == sorted(members)
    for other in ("", first + first[:1], first[:-1], first[:-1] + "\x00"):
        assert pattern.rank(other) is None


def test_large_pattern() -> None:
    pattern = Pattern(r"[A-Z]{3}-\d{4}-[\u4e00-\u9fff]{200}".replace(r"\u4e00", "\u4e00").replace(r"\u9fff", "\u9fff"))
    assert pattern.size == 26**3 * 10**4 * 20992**200
    for place in (0, 10**700, pattern.size - 1):
        assert pattern.rank(pattern.unrank(place)) == place


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a.b", 2, "no known alphabet"),
        ("a|b", 2, "choices"),
        ("ab*", 3, "unlimited"),
        ("ab+", 3, "unlimited"),
        ("ab?", 3, "optional"),
        ("(ab)", 1, "groups"),
        ("ab)", 3, "groups"),
        ("^ab", 1, "leave \\^ out"),
        ("ab$", 3, r"leave \$ out"),
        ("{3}", 1, "nothing stands before"),
        ("a}", 2, "no { stands before"),
        ("a]", 2, r"no \[ stands before"),
        ("a{1,2}", 2, r"no \{m,n\}"),
        ("a{,2}", 2, r"no \{m,n\}"),
        ("a{}", 2, r"only \{n\}"),
        ("a{0}", 2, "at least 1"),
        ("a{x}", 2, r"only \{n\}"),
        ("a{²}", 2, r"only \{n\}"),
        ("a{2", 2, r"only \{n\}"),
        ("a{2}{3}", 5, "multiply"),
        ("a{1001}", 1, "more than 1000"),
        ("[^a]", 2, "excluding"),
        ("[]", 1, "empty"),
        ("[abc", 1, "not closed"),
        ("[a-", 1, "not closed"),
        ("[z-a]", 2, "to a later one"),
        (r"[a-\d]", 2, "to a later one"),
        (r"[\w-z]", 2, "to a later one"),
        ("[a[b]]", 3, "class within a class"),
        (r"\D", 1, r"only \\d, \\w"),
        (r"\s", 1, r"only \\d, \\w"),
        (r"a\n", 2, r"only \\d, \\w"),
        ("a\\", 2, r"only \\d, \\w"),
        ("\ud800", 1, "no character is left"),
    ],
)
def test_pattern_refusals(text: str, place: int, reason: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s)refused at character {place} .*{reason}") as caught:
        Pattern(text)
    assert caught.value.argument == "domain"


@pytest.mark.parametrize("text", ["", None, 3])
def test_no_pattern(text: object) -> None:
    with pytest.raises(ArgumentError, match="must be a pattern"):
        Pattern(text)


@pytest.mark.parametrize(("words", "reason"), [([], "at least one"), (["a", "b", "a"], "more than once"), (["a", None], "leave NULL out"), ([1], "cast")])
def test_listed_refusals(words: list[object], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        Listed(words)


def test_universe() -> None:
    letters = Listed("abcdefg")
    universe = Universe(["x", "c", "a"], letters)
    assert all_of(universe) == ["x", "c", "a", "b", "d", "e", "f", "g"]
    assert all_of(Universe(["x", "c", "a"], letters, 5)) == ["x", "c", "a", "b", "d"]
    assert all_of(Universe(["x", "c"], letters, 2)) == ["x", "c"]
    assert all_of(Universe([], letters, 3)) == ["a", "b", "c"]
    assert all_of(Universe(["q"], None)) == ["q"]
    assert universe.rank("h") is None
    assert universe.rank(None) is None
    assert Universe(["q"], None).rank("a") is None


@given(st.lists(st.sampled_from("abcdefghxyz"), unique=True, max_size=11), st.integers(1, 12))
def test_universe_of_any_size(declared: list[str], size: int) -> None:
    words = "abcdefgh"
    wanted = [*declared, *(w for w in words if w not in declared)]
    if max(1, len(declared)) <= size <= len(wanted):
        assert all_of(Universe(declared, Listed(words), size)) == wanted[:size]
        assert all_of(from_list(words, size, "-", declared)) == [*declared, *(p for p in _tuples(words, size) if p not in declared)][:size]
    else:
        with pytest.raises(ArgumentError, match="domain_size"):
            Universe(declared, Listed(words), size)


def _tuples(words: str, size: int) -> list[str]:
    return list(words) if size <= len(words) else ["-".join(parts) for parts in product(words, repeat=2)]


def test_from_list() -> None:
    words = ["a", "b", "c"]
    assert from_list(words, None).size == 3
    assert all_of(from_list(words, 3)) == words
    assert all_of(from_list(words, 4, "+")) == ["a+a", "a+b", "a+c", "b+a"]
    assert from_list(words, 10).unrank(9) == "b-a-a"
    assert from_list(words, 27, declared=["x"]).size == 27
    assert from_list([f"w{i}" for i in range(171_476)], 29_400_000_000).size == 29_400_000_000
    with pytest.raises(ArgumentError, match="domain_size = 2: .*larger list or a pattern"):
        from_list(["a"], 2)
    for size in (0, -1, True, 2.5):
        with pytest.raises(ArgumentError, match="domain_size"):
            from_list(words, size)
    with pytest.raises(ArgumentError, match="separator"):
        from_list(["a", "x-ray"], 3)
    with pytest.raises(ArgumentError, match="domain_size = 1: .*from 2"):
        Universe(["x", "y"], Listed("ab"), 1)
    with pytest.raises(ArgumentError, match="domain"):
        Universe([], None)


@given(st.sets(st.integers(0, 30)), st.integers(0, 40))
def test_nth_missing(taken: set[int], index: int) -> None:
    missing = [i for i in range(100) if i not in taken]
    assert nth_missing(sorted(taken), index) == missing[index]


def test_binomial_ends() -> None:
    half = lambda precision: (1 << (precision - 1),) * 2  # noqa: E731
    assert binomial(0, half) == 0
    assert binomial(10**50, lambda precision: (0, 0)) == 0
    assert {binomial(1, half) for _ in range(100)} == {0, 1}
    with pytest.raises(ArgumentError, match="at most 1/2"):
        Binomial(3, lambda precision: (3 << (precision - 2),) * 2)
    for trials in (-1, 1.5, True):
        with pytest.raises(ArgumentError, match="trials"):
            Binomial(trials, half)


@pytest.mark.parametrize("rho", [0, 1, -0.1, 1.5, float("nan"), float("inf"), None, True, "x", "1/0", Fraction(10**301 - 1, 10**301)])
def test_rho_refused(rho: object) -> None:
    for call in (lambda: weak_domain.threshold(1.0, rho, 10), lambda: weak_domain.integer_threshold(Fraction(1), rho, 10)):
        with pytest.raises(ArgumentError, match="rho .*above 0 and below 1"):
            call()


def test_rho_as_written() -> None:
    for rho in (0.9, "0.9", Decimal("0.9"), Fraction(9, 10), "9/10"):
        assert weak_domain.checked_rho(rho) == Fraction(9, 10)


def test_smallest_rho() -> None:
    assert weak_domain.threshold(1.0, Fraction(1, 4), 2) == pytest.approx(0, abs=1e-15)
    assert weak_domain.integer_threshold(Fraction(1), Fraction(1, 4), 2) == 1
    for call in (weak_domain.threshold, weak_domain.integer_threshold):
        with pytest.raises(ArgumentError, match=r"rho .*1 / 2\^2"):
            call(Fraction(1), Fraction(24, 100), 2)
    assert weak_domain.threshold(1.0, Fraction(1, 10**400), 10**10) > 0
    assert weak_domain.integer_threshold(Fraction(1), Fraction(1, 10**400), 10**10) >= 1


@pytest.mark.parametrize("size", [0, -3, True, 2.0, None])
def test_domain_size_refused(size: object) -> None:
    with pytest.raises(ArgumentError, match="domain_size"):
        weak_domain.threshold(1.0, 0.5, size)


def test_release_ends() -> None:
    universe = Universe(["a", "b"], Pattern("[a-z]{12}"))
    t = weak_domain.integer_threshold(Fraction(1, 50), 0.999999, universe.size)
    assert weak_domain.release({"b": 10**12, "a": 7, "A": 10**9, "": 10**9}, universe, Fraction(1, 50), t) == [("a", 7), ("b", 10**12)]
    assert weak_domain.release({}, universe, Fraction(1, 50), t) == []
    assert weak_domain.release((["b", None], np.array([9, 9])), universe, Fraction(1, 50), t) == [("b", 9)]


def test_release_refusals_carry_no_value() -> None:
    universe = Universe(["a"], Pattern("[a-z]{12}"))
    for counts in ((["secret", "secret"], np.array([1, 2])), (["secret"], np.array([1.0])), (["secret"], np.array([1, 2])), (["secret"], [1])):
        with pytest.raises(ArgumentError, match="counts") as caught:
            weak_domain.release(counts, universe, Fraction(1), 100)
        assert "secret" not in str(caught.value)
    for t in (0, -1, 2**61, 1.5, True):
        with pytest.raises(ArgumentError, match="threshold"):
            weak_domain.release({}, universe, Fraction(1), t)
    with pytest.raises(ArgumentError, match="threshold = 2: would release millions"):
        weak_domain.release({}, universe, Fraction(1), 2)
    with pytest.raises(ArgumentError, match="scale"):
        weak_domain.release({}, universe, Fraction(0), 100)


def test_selection_ends() -> None:
    assert stable_selection.select([], np.array([], dtype=np.int64), Fraction(1), 5) == []
    texts, counts = ["b", "a", "c", None], np.array([21, 22, 20, 99])
    assert stable_selection.select(texts, counts, Fraction(1, 50), 20) == [("a", 22), ("b", 21)]
    for given_counts in ([1, 0], [-1, 2]):
        with pytest.raises(ArgumentError, match="at least 1 each"):
            stable_selection.select(["a", "b"], np.array(given_counts), Fraction(1), 5)
    with pytest.raises(ArgumentError, match="each text once"):
        stable_selection.select(["a", "a"], np.array([1, 1]), Fraction(1), 5)
    with pytest.raises(ArgumentError, match="threshold"):
        stable_selection.select(["a"], np.array([1]), Fraction(1), 0)


def test_selection_parameters() -> None:
    scale, t = stable_selection.parameters(Fraction(1, 10), Fraction(1, 10**9), "add_remove", 3)
    twice, higher = stable_selection.parameters(Fraction(1, 10), Fraction(1, 10**9), "replace_one", 3)
    assert 30 <= scale <= 30 * (1 + Fraction(1, 2**19))
    assert 60 <= twice <= 60 * (1 + Fraction(1, 2**19))
    assert t == stable_selection.threshold(scale, 3, 1e-9)
    assert higher > t
    assert t == pytest.approx(-30 * math.log(2e-9 / 3), rel=0.01)
    for delta in (0, 1, -1, 2, None, True, "x", float("nan")):
        with pytest.raises(ArgumentError, match="delta"):
            stable_selection.parameters(1, delta, "add_remove", 1)
    with pytest.raises(ArgumentError, match="neighbors"):
        stable_selection.parameters(1, 1e-9, "neither", 1)
    with pytest.raises(ArgumentError, match="max_contributions"):
        stable_selection.parameters(1, 1e-9, "add_remove", 0)
    with pytest.raises(ArgumentError, match="epsilon"):
        stable_selection.parameters(0, 1e-9, "add_remove", 1)


@pytest.mark.parametrize(("relation", "rows", "l1"), [("add_remove", 1, 1), ("add_remove", 4, 4), ("replace_one", 1, 2), ("replace_one", 4, 8)])
def test_price(relation: str, rows: int, l1: int) -> None:
    size = 29_404_018_576
    price = WeakDomain().price(Contract(relation, rows, public_total=False), Fraction(1, 10), 0.0, WeakDomain.options, size)
    assert price.scale is not None
    assert 10 * l1 <= price.scale <= 10 * l1 * (1 + Fraction(1, 2**19))
    assert price.events == (LaplaceEvent(price.scale, l1),)
    assert price.events[0].epsilon <= Fraction(1, 10)
    t = weak_domain.integer_threshold(price.scale, 0.9, size)
    assert price.parameters == {"scale": str(price.scale), "threshold": t, "rho": "9/10", "domain_size": str(size)}
    assert any("0.9" in note and "0.11" in note for note in price.notes)


def test_method() -> None:
    class Resolved:
        members = from_list([f"w{i}" for i in range(1000)], 1_000_000, "-", ["Private", "State-gov"])

    method = WeakDomain()
    price = method.price(ADD_REMOVE, Fraction(50), 0.0, {**method.options, "rho": 0.999999}, Resolved.members.size)
    values, weights = method.select(["Private", "w1-w2", "nobody"], np.array([700, 300, 500]), Resolved(), price.parameters)
    assert values == ["Private", "w1-w2"]
    assert weights.dtype == np.int64
    assert np.abs(weights - [700, 300]).max() < 5
    model = method.fit(Statistics((), {}, {}, blocks=(weights,)), {})
    assert method.total(model) == weights.sum()
    codes = np.concatenate(list(method.sample(model, 100_000, np.random.default_rng(1))))
    assert codes.shape == (100_000, 1)
    assert abs(codes.mean() - weights[1] / weights.sum()) < 0.01
    with pytest.raises(ReleaseError):
        list(method.sample(np.array([], dtype=np.int64), 1, np.random.default_rng(1)))
