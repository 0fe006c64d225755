"""The calls about what is there already: stored releases, and the books. All free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsql.calls import arguments
from dpsql.calls.declaration import FREE, NOT_PRIVATE, REQUIRED, Call, argument, flag, optional, whole
from dpsql.calls.words import INTO_SCHEMA, ROWS, SCOPE, SEED, STORED

MAX_ROWS = 10_000_000_000
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SampleCall(Call):
    """Draw other rows of a stored release.

    Of linked tables another database is drawn into a schema; rows are those of the first table.
    """

    name: ClassVar[str] = "sample"
    function: ClassVar[str] = "sample"
    privacy: ClassVar[str] = f"{FREE}: post-processing"
    gives: ClassVar[str] = "the columns of the source, in its types; of linked tables as dp_synthesize_tables"

    release: str = argument(arguments.text, STORED, default=REQUIRED, python="str")
    rows: int | None = argument(whole(0, MAX_ROWS), ROWS, python="int | None")
    seed: int | None = argument(whole(0, MAX_SEED), SEED, python="int | None")
    into_schema: str | None = argument(
        optional(arguments.text), f"Of linked tables: {INTO_SCHEMA[0].lower()}{INTO_SCHEMA[1:]}", python="str | None"
    )


@dataclass(frozen=True)
class LedgerCall(Call):
    """Show every entry of the books, and whether the chain of hashes holds."""

    name: ClassVar[str] = "ledger"
    function: ClassVar[str] = "ledger"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "a row per entry"

    source: str | None = argument(optional(arguments.text), SCOPE, python="str | None")


@dataclass(frozen=True)
class BudgetCall(Call):
    """Show limit, spent and left of every protected table, and whether dpsql was tried with this DuckDB.

    ``epsilon_spent`` is what the releases so far would guarantee together if their number and noise had been fixed beforehand; the
    limit, ``epsilon``, is what is guaranteed however they were chosen.
    """

    name: ClassVar[str] = "budget"
    function: ClassVar[str] = "budget"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "a row per protected table"

    source: str | None = argument(optional(arguments.text), SCOPE, python="str | None")


@dataclass(frozen=True)
class ReleasesCall(Call):
    """Show what was bought: of which rows, with which parameters, at what cost."""

    name: ClassVar[str] = "releases"
    function: ClassVar[str] = "releases"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "a row per release"

    source: str | None = argument(optional(arguments.text), SCOPE, python="str | None")


@dataclass(frozen=True)
class ExportCall(Call):
    """Copy a release (noisy statistics and provenance only) to a file that opens on another machine."""

    name: ClassVar[str] = "export"
    function: ClassVar[str] = "export_release"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "release, path; one row"

    release: str = argument(arguments.text, STORED, default=REQUIRED, python="str")
    path: str = argument(
        arguments.text, "The file, or a folder; nothing is replaced.", default=REQUIRED, python="str | Path", plain=True
    )


@dataclass(frozen=True)
class ImportCall(Call):
    """Open an exported release; dp_sample then draws from it."""

    name: ClassVar[str] = "import"
    function: ClassVar[str] = "import_release"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "release, source, method, columns; one row"

    path: str = argument(arguments.text, "The file.", default=REQUIRED, python="str | Path", plain=True)


@dataclass(frozen=True)
class ReportCall(Call):
    """Write one self-contained HTML page about a release.

    It says what was measured, its cost, the guarantee, and shows charts with error bands.
    """

    name: ClassVar[str] = "report"
    function: ClassVar[str] = "report"
    privacy: ClassVar[str] = f"{FREE}; with compare := true {NOT_PRIVATE}"
    gives: ClassVar[str] = "release, path, publishable, note; one row"

    release: str = argument(arguments.text, STORED, default=REQUIRED, python="str")
    path: str | None = argument(
        optional(arguments.text),
        "The file, or a folder; a file of the release's name in the working directory, if left out.",
        python="str | Path | None",
        plain=True,
    )
    compare: bool = argument(flag, "true: with the raw table beside the release.", default=False, python="bool")
