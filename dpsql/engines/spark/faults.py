"""Whether Spark itself was lost, or what it ran has failed. The two differ for a charge: the first is no function of a row.

A text of Spark is looked at from its beginning, where Spark alone writes, up to the name of the fault: what a value could write
stands behind that.

Privacy: says one bit, which is that of the cluster's health. A failure that is not known to be one of the cluster is one of the
rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TASK = r"Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\)"
_EXECUTOR = r"\([^\s()]+ executor [\w-]+\): ExecutorLostFailure \("
_STAGE = r"\w+Stage \d+ \([^\n]{0,200}?\) has failed the maximum allowable number of times: \d+\. Most recent failure reason:"
_FETCH = r"\s*org\.apache\.spark\.shuffle\.(?:Metadata)?FetchFailedException"
_LOST = (
    rf"Job aborted due to stage failure: {_TASK} {_EXECUTOR}",
    rf"Job aborted due to stage failure: {_STAGE}{_FETCH}",
    r"Job aborted due to stage failure: Master removed our application: [A-Z]+",
    r"Job \d+ cancelled because SparkContext was shut down",
    r"Job aborted due to stage failure: All masters are unresponsive",
    r"Cannot call methods on a stopped SparkContext\.",
    r"SparkContext (?:was|has been) (?:shut down|stopped)",
)
_LOST_TEXT = re.compile("|".join(f"(?:{text})" for text in _LOST))
_CONDITIONS = ("INVALID_HANDLE.SESSION_", "INVALID_HANDLE.OPERATION_NOT_FOUND", "INVALID_HANDLE.OPERATION_ABANDONED")
_UNREACHED = ("UNAVAILABLE",)
_DEEPEST = 12


def lost(error: BaseException) -> bool:
    """Return whether an error says that the server, the cluster or all executors of a task have gone."""
    return any(_of_connection(one) or _of_spark(one) for one in _chain(error))


def reason(error: BaseException) -> str:
    """Return what an error says, in a line: only where nothing depends on a protected row."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception): ", line)]
    told = raised[0] if raised else (lines or [""])[0]
    return f"{type(error).__name__}: {told[:400]}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_DEEPEST):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _of_connection(error: BaseException) -> bool:
    """Return whether the road to the server broke."""
    if isinstance(error, ConnectionError):
        return True
    code = getattr(error, "code", None)
    if callable(code) and type(error).__module__.startswith("grpc"):
        return getattr(code(), "name", "") in _UNREACHED
    return getattr(getattr(error, "_grpc_status_code", None), "name", "") in _UNREACHED


def _of_spark(error: BaseException) -> bool:
    condition = getattr(error, "getCondition", None)
    if callable(condition) and str(condition() or "").startswith(_CONDITIONS):
        return True
    if not type(error).__module__.startswith("pyspark."):
        return False
    return _LOST_TEXT.match(str(getattr(error, "_message", None) or getattr(error, "_desc", None) or error)) is not None
