"""What dp_query makes of 300 statements is what it was: their rows, groups, measures and SQL, line by line."""

from __future__ import annotations

import difflib

import golden_plans
import pytest

pytestmark = pytest.mark.any_duckdb  # what a text is taken apart into; the texts of DuckDB's own refusals differ


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return dict(golden_plans.texts())


@pytest.mark.parametrize("name", ["visits", "orders", "events", "survey", "sales"])
def test_it_is_what_it_was(now: dict[str, str], name: str) -> None:
    before = (golden_plans.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    changed = list(difflib.unified_diff(before.splitlines(), now[name].splitlines(), "before", "now", lineterm="", n=3))
    assert not changed, "\n".join(["python tests/golden_plans.py writes it anew; look at what changes:", *changed[:60]])


def test_there_are_hundreds_and_few_are_refused(now: dict[str, str]) -> None:
    asked, refused = ("\n".join(now.values()).count(word) for word in ("=" * 20, "\nrefused: "))
    assert asked >= 280 and refused <= 40
