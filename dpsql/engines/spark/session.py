"""A session of dpsql's own on a Spark that runs already, or a local one; settings that counting depends on are pinned."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import threading
from typing import Any

from dpsql.engines.spark.faults import classic, stopped
from dpsql.engines.spark.translate import SETTINGS
from dpsql.errors import ArgumentError, DpsqlError, EngineLost

TOKEN = "DPSQL_SPARK_TOKEN"  # noqa: S105 -- the name of a variable
"""The environment variable with the token of a Spark Connect server; it is added to the url when it is used, and kept nowhere."""
URLS = "'local[2]', 'spark://host:7077', 'sc://host:15002', or 'active' for the session that this Python process has"
_LOCAL = re.compile(r"local(\[(\*|[1-9][0-9]{0,3})\])?")
_HARMLESS = frozenset({"user_id", "use_ssl", "user_agent", "session_id"})
"""Parameters of a url of Spark Connect that may be written down."""
_SECRET = r"(token|passw\w*|pwd|secret|authorization|credential|api-?key|access_?key|signature|sig)\s*="  # noqa: S105 -- a pattern
_HELD = (r"://[^/@\s]*:[^/@\s]*@", r"://[^/:@\s]+:(?!\d+(?:/|$))[^@\s]*@", rf"[;?&].*{_SECRET}")
_sessions: dict[str, Any] = {}
_WIDE = ("spark.sql.codegen.maxFields", "2000")
"""Tables of more columns than this (100 unless told) are read row by row from Parquet, without compiled code: 7 times the CPU."""
_RETRIES = 6
"""The waits are 0.05 s, and each one four times the one before."""
_ours: list[Any] = []
"""Those whose driver dpsql has begun."""
_lock = threading.Lock()


def checked_url(url: str) -> str:
    """Return a url that may be written down.

    Raises
    ------
    ArgumentError
        It is of no known kind, or holds credentials.

    Examples
    --------
    >>> checked_url("sc://spark.example:15002")
    'sc://spark.example:15002'
    """
    shown = re.sub(r"//[^/]*@", "//...@", re.split(r"[;?#]", url)[0])
    if not (url == "active" or _LOCAL.fullmatch(url) or re.fullmatch(r"(spark|sc)://[^/\s]\S*", url)):
        raise ArgumentError("url", shown, f"is not known; one of {URLS}")
    names = [part.partition("=")[0].strip().lower() for part in url.split(";")[1:] if part.strip()]
    if "@" in url or re.search(_SECRET, url, re.IGNORECASE):
        way = f"set the environment variable {TOKEN} for a token, and leave it out of the url, which is written to the books"
        raise ArgumentError("url", shown, f"holds credentials: {way}")
    if not _HARMLESS.issuperset(names) or re.search(r"[?#]", url):
        taken = f"has parameters; dpsql takes {sorted(_HARMLESS)!r} alone"
        raise ArgumentError("url", shown, f"{taken}: others may be credentials, and the url is written to the books")
    return url


def check_relation(relation: str, argument: str = "relation") -> None:
    """Refuse a relation or target with credentials: it is written to the books, and shown by errors.

    Raises
    ------
    ArgumentError
        The text shows none of them.

    Examples
    --------
    >>> check_relation("parquet:abfss://container@account.dfs.core.windows.net/people")
    """
    if any(re.search(pattern, relation, re.IGNORECASE) for pattern in _HELD):
        shown = re.split(r"//|[;?]", relation)[0] + "..."
        way = "give them to Spark (its configuration, a role of the machine), and leave them out of what is written to the books"
        raise ArgumentError(argument, shown, f"holds credentials: {way}")


def session(url: str) -> Any:
    """Return a new SparkSession with settings and temporary views of its own; what it runs on is kept for the process.

    Raises
    ------
    DpsqlError
        pyspark or Java is missing, or the cluster cannot be reached.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DpsqlError("engine = 'spark': pyspark is not installed; pip install 'dpsql[spark]'") from None
    with _lock:
        found = _sessions.get(url)
        if found is None or stopped(found):
            if found is not None:
                _forget(found)
            found = _sessions[url] = _begun(SparkSession, url)
    try:
        own = found.newSession()
        if not classic(own):
            _impatient(own)
        for name, value in SETTINGS.items():
            own.conf.set(name, value)
        with contextlib.suppress(Exception):  # an engine that has no such setting does as it does
            own.conf.set(*_WIDE)
    except Exception as error:
        with _lock:
            _sessions.pop(url, None)
        raise _unreached(url, error) from None
    return own


def give_up(own: Any) -> None:
    """Stop the driver of a session that has lost its cluster, where dpsql began it: the next call begins another one.

    A driver that has lost its master waits for that very master, and a new one at the same address does not know it.
    """
    with _lock:
        for url, found in list(_sessions.items()):
            if classic(found) and found in _ours and (found.sparkContext is own.sparkContext):
                del _sessions[url]
                _ours.remove(found)
                with contextlib.suppress(Exception):  # the JVM may have gone
                    found.stop()
                _forget(found)


def _forget(found: Any) -> None:
    """Let pyspark forget a JVM that has died: it would go on talking to that."""
    if not classic(found):
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # noqa: SLF001 -- pyspark has no other way
    try:
        alive = gateway is None or gateway.jvm.java.lang.System.nanoTime() is not None
    except Exception:
        alive = False
    if not alive:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
        SparkSession._instantiatedSession = None  # noqa: SLF001


def _begun(sessions: Any, url: str) -> Any:
    if url == "active":
        found = sessions.getActiveSession()
        if found is None:
            raise DpsqlError("url = 'active': this Python process has no Spark session; make one, or name a cluster")
        return found
    if not url.startswith("sc://") and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise DpsqlError(
            "engine = 'spark': no Java was found, which Spark needs here (17 or newer): install it (Debian: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME; a Spark Connect server, url := 'sc://...', needs none"
        )
    try:
        if url.startswith("sc://"):
            token = os.environ.get(TOKEN)
            secret = f"{'' if '/' in url[5:] else '/'};token={token}" if token else ""
            return sessions.builder.remote(url + secret).create()
        builder = sessions.builder.master(url).appName("dpsql").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "OFF")
        if url.startswith("local"):  # workers are processes of this machine: they get this Python, not the first in the path
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = builder.config("spark.sql.shuffle.partitions", "8").config("spark.driver.host", "localhost")
        from pyspark import SparkContext

        there = SparkContext._active_spark_context is not None  # noqa: SLF001 -- pyspark has no other name for it
        found = builder.getOrCreate()
    except Exception as error:
        raise _unreached(url, error) from None
    master = found.sparkContext.master
    if master != url:
        raise DpsqlError(
            f"url = {url!r}: this Python process has a Spark session on {master!r} already; name that one, or 'active', or use "
            "another process"
        )
    if not there:
        _ours.append(found)
    return found


def _impatient(own: Any) -> None:
    """Let a client of Spark Connect try again for a minute where the server does not answer; by itself it would for ten."""
    with contextlib.suppress(Exception):  # a comfort, by names that are not promised
        from pyspark.sql.connect.client.retries import DefaultPolicy

        own.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])


def _unreached(url: str, error: BaseException) -> EngineLost:
    return EngineLost(
        f"url = {url!r}: Spark cannot be reached or started ({type(error).__name__}). Is the address right, does the server run, "
        "has it this version of Spark? (Where Spark worked before: restart Python)"
    )
