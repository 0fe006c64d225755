"""One Spark Connect server, and one session on it, for all tests of a process."""

from __future__ import annotations

from typing import Any

import pytest
import sail


@pytest.fixture(scope="session")
def spark() -> Any:
    """A session with the settings under which the rules of the translator hold."""
    sail.url()
    return sail.session()
