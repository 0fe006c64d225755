"""dpsql: differentially private statistics and synthetic tables, native to DuckDB."""

from pathlib import Path as _Path

_root = _Path(__file__).parent.parent
if (_root / "udfs" / "__init__.py").is_file() and (_root / "sql" / "schema.sql").is_file():
    # A checkout, first on the path because Python was started in it: udfs/ and sql/ stand beside dpsql/, not in it.
    __path__.append(str(_root))

from dpsql.answers.cards import show  # noqa: E402
from dpsql.answers.combine import Combined, combine  # noqa: E402
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
from dpsql.udfs import interrupt, load  # noqa: E402

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
