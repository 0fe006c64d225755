"""One session of Spark for all tests of the translator; they are skipped where Spark or Java is missing."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.engines.spark.translate import SETTINGS


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of Spark with the settings under which the rules hold."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("dpsql tests").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "4")
        session = builder.getOrCreate().newSession()
        session.sparkContext.setLogLevel("ERROR")
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    yield session
