"""dpsql: differentially private statistics and synthetic tables, native to DuckDB."""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

_root = _Path(__file__).parent.parent
if (_root / "udfs" / "__init__.py").is_file() and (_root / "sql" / "schema.sql").is_file():
    # A checkout, first on the path because Python was started in it: udfs/ and sql/ stand beside dpsql/, not in it.
    __path__.append(str(_root))

from dpsql.api import (  # noqa: E402
    aggregates,
    budget,
    contributions,
    declare,
    domain,
    dummy,
    evaluate,
    explain,
    export_release,
    grant,
    histogram,
    import_release,
    ledger,
    link,
    links,
    marginals,
    plan,
    protect,
    query,
    query_exact,
    releases,
    remote,
    report,
    rule,
    sample,
    summarize,
    synthesize,
    synthesize_tables,
    unlink,
)
from dpsql.errors import (  # noqa: E402
    ArgumentError,
    BudgetExceeded,
    CalibrationError,
    DomainError,
    DpsqlError,
    LedgerError,
    LinkBroken,
    NotProtected,
    ReleaseError,
    UnsupportedQuery,
    UntriedDuckDB,
)

if TYPE_CHECKING:
    from dpsql.answers.cards import show
    from dpsql.answers.combine import Combined, combine
    from dpsql.client import Served, connect
    from dpsql.running.interruption import Interrupted
    from dpsql.udfs import interrupt, load

_LATER = {
    "Combined": "answers.combine",
    "Interrupted": "running.interruption",
    "Served": "client",
    "combine": "answers.combine",
    "connect": "client",
    "interrupt": "udfs",
    "load": "udfs",
    "show": "answers.cards",
}
"""Loaded when they are asked for, so that ``import dpsql`` takes no longer than what is used."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'dpsql' has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(f"dpsql.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ArgumentError",
    "BudgetExceeded",
    "CalibrationError",
    "Combined",
    "DomainError",
    "DpsqlError",
    "Interrupted",
    "LedgerError",
    "LinkBroken",
    "NotProtected",
    "ReleaseError",
    "Served",
    "UnsupportedQuery",
    "UntriedDuckDB",
    "aggregates",
    "budget",
    "combine",
    "connect",
    "contributions",
    "declare",
    "domain",
    "dummy",
    "evaluate",
    "explain",
    "export_release",
    "grant",
    "histogram",
    "import_release",
    "interrupt",
    "ledger",
    "link",
    "links",
    "load",
    "marginals",
    "plan",
    "protect",
    "query",
    "query_exact",
    "releases",
    "remote",
    "report",
    "rule",
    "sample",
    "show",
    "summarize",
    "synthesize",
    "synthesize_tables",
    "unlink",
]
