"""One served database for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from served_room import Served, served


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A database with protected, public and hidden tables, and the room over it."""
    with served(tmp_path_factory.mktemp("served")) as found:
        yield found
