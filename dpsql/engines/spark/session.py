"""Sessions of Spark Connect: settings that counting depends on are asked for, and no credential is kept or shown."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from dpsql.engines.spark.quiet import quiet
from dpsql.engines.spark.translate import SETTINGS
from dpsql.errors import ArgumentError, DpsqlError, EngineLost

TOKEN = "DPSQL_SPARK_TOKEN"  # noqa: S105 -- the name of a variable
"""The environment variable with the token of a server; it is added to the url when it is used, and kept nowhere."""
_URL = re.compile(r"sc://([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?(/(;\w+=[\w./ -]*)*)?")
"""What passes may be written down: a host, and parameters whose values are plain words."""
_HARMLESS = frozenset({"user_id", "use_ssl", "user_agent", "session_id"})
"""Parameters of a url that may be written down."""
_SECRET = r"(token|passw\w*|pwd|secret|authorization|credential|api-?key|access_?key|signature|sig)\s*="  # noqa: S105 -- a pattern
_FILES = re.compile(r"\w+:[^?#;%@]*|(\w+:)?(abfss?|wasbs?)://[A-Za-z0-9$-]{1,63}@[A-Za-z0-9.-]+(/[^?#;%@]*)?")
"""Files whose address has no room for a credential: no parameters, and before @ the name of a container alone."""
_CHANNEL = [("grpc.use_local_subchannel_pool", 1)]
"""A channel of each session's own: others wait before they try an address again that did not answer them."""
RETRIES = 5
"""How often a client asks again where the server does not answer; the waits are 0.05 s, and each one four times the one before."""

FIRST_RETRIES = 4
"""How often where it has not answered yet: four seconds, since nothing is lost then."""


def checked_url(url: str) -> str:
    """Return a url that may be written down.

    Raises
    ------
    ArgumentError
        It is none of Spark Connect, or holds credentials.

    Examples
    --------
    >>> checked_url("sc://spark.example:15002")
    'sc://spark.example:15002'
    """
    shown = re.sub(r"//[^/]*@", "//...@", re.split(r"(?<=[^/:])[/;?#]", url)[0])
    names = [part.partition("=")[0].strip().lower() for part in url.split(";")[1:] if part.strip()]
    if "@" in url or re.search(_SECRET, url, re.IGNORECASE):
        way = f"set the environment variable {TOKEN} for a token, and leave it out of the url, which is written to the books"
        raise ArgumentError("url", shown, f"holds credentials: {way}")
    if not _URL.fullmatch(url):
        raise ArgumentError("url", shown, "is none of Spark Connect, as 'sc://host:15002'")
    if not _HARMLESS.issuperset(names):
        refused = f"has parameters; dpsql takes {sorted(_HARMLESS)!r} alone"
        raise ArgumentError("url", shown, f"{refused}: others may be credentials, and the url is written to the books")
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
    of_files = re.match(r"\w+:", relation) is not None
    if re.search(_SECRET, relation, re.IGNORECASE) or (of_files and not _FILES.fullmatch(relation)):
        shown = re.split(r"\W", relation)[0] + "..."
        way = "give them to Spark (its configuration, a role of the machine), and leave them out of what is written to the books"
        raise ArgumentError(argument, shown, f"holds credentials, or may (an address with one of ? # ; % @): {way}")


def session(url: str) -> Any:
    """Return a new session of a server, with settings and temporary views of its own; `close` ends it.

    Raises
    ------
    DpsqlError
        The client is missing.
    EngineLost
        The server cannot be reached.
    """
    # Of pandas 3, none of whose frames are used; of settings that a server does not have; of retries that have come to an end.
    warnings.filterwarnings("ignore", module=r"pyspark(\.|$)")
    try:
        with as_of_a_file():
            import pyspark.sql.connect  # noqa: F401 -- it looks around when it is imported first
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError:  # PySpark's own errors about what it needs are of this kind, too
        raise DpsqlError("engine = 'spark': the client of Spark Connect is not installed; pip install 'dpsql[spark]'") from None
    token = os.environ.get(TOKEN)
    secret = f"{'' if '/' in url[5:] else '/'};token={token}" if token else ""
    try:
        with quiet():
            own = SparkSession(DefaultChannelBuilder(url + secret, _CHANNEL))
            # a wrong address is to be noticed soon; a server that has answered once is worth waiting for
            own.client.set_retry_policies([DefaultPolicy(max_retries=min(RETRIES, FIRST_RETRIES))])
            for name, value in SETTINGS.items():
                own.conf.set(name, value)
            own.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
    except Exception as error:
        raise EngineLost(
            f"url = {url!r}: Spark cannot be reached ({type(error).__name__}). Is the address right, does the server run, does it "
            f"take the token (the environment variable {TOKEN}){', and speak TLS, which a token needs' if token else ''}?"
        ) from None
    return own


@contextlib.contextmanager
def as_of_a_file() -> Iterator[None]:
    """Let pyspark be imported where the interpreter runs no file: ``python -c``, a worker of a pool, another program.

    It takes one without a file and without a prompt for a run of its own doctests, looks for a folder of Spark that a client does
    not have, and ends the process.
    """
    main = sys.modules.get("__main__")
    if main is None or hasattr(main, "__file__"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__


def close(own: Any) -> None:
    """End a session, with its views and what it kept; the server may have gone."""
    with contextlib.suppress(Exception), quiet():
        own.client.set_retry_policies([])
        own.stop()
