"""All calls, by name: where each is declared."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from dpsql.calls.declaration import Call

WHERE = {
    "protect": "custody:ProtectCall",
    "link": "custody:LinkCall",
    "unlink": "custody:UnlinkCall",
    "links": "custody:LinksCall",
    "remote": "custody:RemoteCall",
    "declare": "custody:DeclareCall",
    "rule": "custody:RuleCall",
    "grant": "granting:GrantCall",
    "domain": "custody:DomainCall",
    "dummy": "rows:DummyCall",
    "plan": "planning:PlanCall",
    "marginals": "tables:MarginalsCall",
    "aggregates": "tables:AggregatesCall",
    "histogram": "values:HistogramCall",
    "contributions": "tables:ContributionsCall",
    "query": "query:QueryCall",
    "query_exact": "query:QueryExactCall",
    "summarize": "query:SummarizeCall",
    "explain": "query:ExplainCall",
    "synthesize": "rows:SynthesizeCall",
    "synthesize_tables": "schemas:SynthesizeTablesCall",
    "sample": "stored:SampleCall",
    "ledger": "stored:LedgerCall",
    "budget": "stored:BudgetCall",
    "releases": "stored:ReleasesCall",
    "evaluate": "custody:EvaluateCall",
    "export": "stored:ExportCall",
    "import": "stored:ImportCall",
    "report": "stored:ReportCall",
}
"""The module and the class of each call, in the order in which they are documented; loaded when it is asked for."""


@cache
def declaration(name: str) -> type[Call]:
    """Return the type of a call; a KeyError where there is none."""
    module, _, class_name = WHERE[name].partition(":")
    declared: type[Call] = getattr(import_module(f"dpsql.calls.{module}"), class_name)
    return declared


def declarations() -> list[type[Call]]:
    """Return the types of all calls."""
    return [declaration(name) for name in WHERE]
