"""Nothing of pyspark's own loggers while Spark reads rows: they print errors, and an error quotes values, before it is withheld.

Spark's log in the JVM has a level of its own; these are loggers of Python, with handlers of their own on stderr: pyspark's
``SQLQueryContextLogger`` prints the whole text of an error as the exception is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FAMILIES = ("pyspark", "py4j", "grpc")
_ALONE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "PySparkLogger")


def _loggers() -> list[logging.Logger]:
    """Return the loggers that exist and may speak of what Spark says; those that pyspark makes late are made now."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before Spark 4
        early = []
    else:
        before = logging.getLoggerClass()
        early = [PySparkLogger.getLogger(name) for name in _ALONE[:2]]
        logging.setLoggerClass(before)  # pyspark leaves its own there, for every logger of the process
    known = [logger for logger in list(logging.Logger.manager.loggerDict.values()) if isinstance(logger, logging.Logger)]
    named = [one for one in known if one.name in _ALONE or one.name.split(".", 1)[0] in _FAMILIES]
    return list({id(one): one for one in [*early, *named]}.values())


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what this thread would log through pyspark and what is below it; other threads log on, and all is as it was after.

    Privacy: a message is an output, and none may have a value of a protected table in it.
    """
    thread = threading.get_ident()

    def speaks(record: logging.LogRecord) -> bool:
        return record.thread != thread if record.thread is not None else threading.get_ident() != thread

    loggers = _loggers()
    for logger in loggers:
        logger.addFilter(speaks)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(speaks)
