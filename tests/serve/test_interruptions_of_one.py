"""Nobody alone stops what others may buy: interrupted readings are counted for each analyst, too."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from served_room import Served

from dpsql.purchase import buying


def test_two_of_one_and_three_of_all(hospital: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(who: str, cost: int) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(buying, "measure", lambda context, protected, *given: _note(protected, *given))
            return hospital.refused(f"SELECT count(*) FROM visits WHERE cost > {cost}", (), who).text

    def _note(protected: Any, *given: Any) -> None:
        protected.ledger.interrupted("x")
        raise duckdb.InterruptException("struck")

    for cost in (71, 72):
        interrupted("alice", cost)
    assert "interrupted 2 times" in hospital.refused("SELECT count(*) FROM visits WHERE cost > 73").text
    assert len(hospital.ask("SELECT count(*) FROM visits WHERE cost > 73", (), "bob")) == 1
    interrupted("bob", 74)
    for who in ("alice", "bob"):
        assert "interrupted 3 times" in hospital.refused("SELECT count(*) FROM visits WHERE cost > 75", (), who).text
