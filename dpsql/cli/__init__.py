"""The command line: `dpsql shell`, `run`, `demo`, `budget`, `ledger`, `releases`, `plan`, `report`."""

from dpsql.cli.commands import main

__all__ = ["main"]
