"""dpsql: differentially private statistics and synthetic tables, native to DuckDB."""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING
from typing import Any as _Any

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
    evaluate,
    export_release,
    histogram,
    import_release,
    ledger,
    marginals,
    plan,
    protect,
    releases,
    report,
    sample,
    synthesize,
)
from dpsql.errors import (  # noqa: E402
    ArgumentError,
    BudgetExceeded,
    CalibrationError,
    DomainError,
    DpsqlError,
    LedgerError,
    NotProtected,
    ReleaseError,
    UnsupportedQuery,
)
from dpsql.running.interruption import Interrupted  # noqa: E402

if TYPE_CHECKING:
    from dpsql.answers.cards import show
    from dpsql.answers.combine import Combined, combine
    from dpsql.udfs import interrupt, load

_LOADED_WHEN_ASKED_FOR = {
    "Combined": "dpsql.answers.combine",
    "combine": "dpsql.answers.combine",
    "interrupt": "dpsql.udfs",
    "load": "dpsql.udfs",
    "show": "dpsql.answers.cards",
}
"""Names of this module that need what `import dpsql` does not load."""

__all__ = [
    "ArgumentError",
    "BudgetExceeded",
    "CalibrationError",
    "Combined",
    "DomainError",
    "DpsqlError",
    "Interrupted",
    "LedgerError",
    "NotProtected",
    "ReleaseError",
    "UnsupportedQuery",
    "aggregates",
    "budget",
    "combine",
    "declare",
    "domain",
    "evaluate",
    "export_release",
    "contributions",
    "histogram",
    "import_release",
    "interrupt",
    "ledger",
    "load",
    "marginals",
    "plan",
    "protect",
    "releases",
    "report",
    "sample",
    "show",
    "synthesize",
]


def __getattr__(name: str) -> _Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
