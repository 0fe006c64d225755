"""Ten questions asked of two databases of linked rows: known answers, what children of wrong parents change, nothing there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpsql.custodian.linked_counts import Codes
from dpsql.custodian.linked_questions import Question, questions
from dpsql.domains.attributes import Attribute, Domain


def category(name: str, *values: str) -> Attribute:
    return Attribute(name, "VARCHAR", "categorical", values, nullable=False)


COST = Attribute("cost", "INTEGER", "numeric", edges=(0, 50, 100), nullable=False)
DOMAINS = [("p", Domain((category("sex", "f", "m"),))), ("v", Domain((category("ward", "a", "b"), COST)))]
ROOT = Codes((np.array([0, 0, 1]),), (2,), 3)
VISITS = Codes(
    (np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])), (2, 2), 4, parent=np.array([0, 0, 0, 2]), above=0,
    values={1: np.array([10.0, 60.0, 90.0, 80.0])},
)  # fmt: skip


def asked(raw: list[Codes], synthetic: list[Codes], domains: list[tuple[str, Domain]] = DOMAINS) -> dict[str, Question]:
    return {one.text: one for one in questions(raw, synthetic, domains, 1)}


def test_ten_questions_have_these_answers() -> None:
    found = asked([ROOT, VISITS], [ROOT, VISITS])
    assert len(found) == 10
    known = {
        "rows of v by p.sex": [3, 1],
        "units with a row of v by ward": [1, 2],
        "units with two rows of v alike by ward": [1, 0],
        "mean number of rows of v by p.sex": [1.5, 1],
        "mean of cost by p.sex": [160 / 3, 80],
        "median of cost by p.sex": [60, 80],
        ".9 quantile of cost by ward": [55, 89],
        "share of rows with cost > 70 by ward": [0, 1],
        "mean sum of cost of a unit by p.sex": [80, 80],
        "units with cost > 87 by p.sex": [1, 0],
    }
    answers = {text: one.raw.tolist() for text, one in found.items()}
    assert answers == {text: pytest.approx(answer) for text, answer in known.items()}
    assert all(one.errors(one.synthetic).max() == 0.0 for one in found.values())


def test_children_at_random_parents_are_noticed() -> None:
    rng = np.random.default_rng(1)
    root = Codes((rng.integers(0, 2, 4000),), (2,), 4000)
    parent = np.sort(rng.integers(0, 4000, 9000))
    ward = root.columns[0][parent]
    visits = Codes((ward, ward), (2, 2), 9000, parent, 0, {1: ward * 40.0 + rng.uniform(0, 50, 9000)})
    moved = replace(visits, parent=rng.permutation(parent))
    found = asked([root, visits], [root, moved])
    for text in ("mean of cost by p.sex", "median of cost by p.sex", "mean sum of cost of a unit by p.sex"):
        synthetic, shuffled = (found[text].errors(of).mean() for of in (found[text].synthetic, found[text].shuffled))
        assert synthetic > 0.2, text
        assert shuffled == pytest.approx(synthetic, rel=0.2), "which is what the yardstick says"
    alike = found["units with two rows of v alike by ward"]
    assert alike.errors(alike.synthetic).mean() > 0.04
    share = next(one for text, one in found.items() if text.startswith("share"))
    assert share.errors(share.synthetic).max() == 0.0, "what is inside a table stays"


def test_tables_without_rows_numbers_or_categories() -> None:
    empty = Codes((np.zeros(0, int), np.zeros(0, int)), (2, 2), 0, parent=np.zeros(0, int), above=0, values={1: np.zeros(0)})
    found = asked([ROOT, VISITS], [ROOT, empty])
    assert found["rows of v by p.sex"].errors(found["rows of v by p.sex"].synthetic).tolist() == [1, 1]
    assert found["mean of cost by p.sex"].errors(found["mean of cost by p.sex"].synthetic).tolist() == [1, 1], "no answer"
    assert len(asked([ROOT, empty], [ROOT, VISITS])) == 4
    nobody = Codes((np.zeros(0, int),), (2,), 0)
    assert all(np.isfinite(one.errors(one.synthetic)).all() for one in asked([nobody, empty], [nobody, empty]).values())
    bare = [("p", Domain(())), ("v", Domain(()))]
    plain = [Codes((), (), 2), Codes((), (), 3, parent=np.array([0, 1, 1]), above=0)]
    answers = {text: one.raw.tolist() for text, one in asked(plain, plain, bare).items()}
    assert answers == {
        "rows of v": [3], "units with a row of v": [2], "units with two rows of v alike": [1], "mean number of rows of v": [1.5],
    }  # fmt: skip


def test_numbers_that_are_not_there() -> None:
    values = np.array([10.0, np.nan, np.nan, 80.0])
    found = asked([ROOT, replace(VISITS, values={1: values})], [ROOT, VISITS])
    assert found["mean of cost by p.sex"].raw.tolist() == [10, 80]
    nothing = replace(VISITS, values={1: np.full(4, np.nan)})
    assert len(asked([ROOT, nothing], [ROOT, VISITS])) == 4
    assert found["rows of v by p.sex"].errors(np.array([np.nan, 1.0])).tolist() == [1, 0]
