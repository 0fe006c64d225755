"""Which function answers a call: arguments are parsed here, once, and from here on a call is a value of its own type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import duckdb

from dpsql.calls.registry import declaration
from dpsql.errors import DpsqlError, first_line, foreign
from dpsql.running import interruption
from dpsql.running.progress_bar import switch
from dpsql.session.instance import NOTES, Context, Instance, open_context

ANSWERS = {
    "protect": "custodian.protect:protect",
    "link": "custodian.linking:link",
    "unlink": "custodian.linking:unlink",
    "links": "custodian.linking:links",
    "remote": "custodian.remote:remote",
    "declare": "custodian.declaring:declare",
    "rule": "custodian.ruling:rule",
    "grant": "custodian.granting:grant",
    "domain": "custodian.declaring:domain",
    "dummy": "answers.dummy:dummy",
    "plan": "answers.forecast:plan",
    "marginals": "answers.tables:marginals",
    "aggregates": "answers.tables:aggregates",
    "histogram": "answers.tables:histogram",
    "contributions": "answers.tables:contributions",
    "query": "answers.statements:query",
    "query_exact": "custodian.exact_query:query_exact",
    "summarize": "answers.summary:summarize",
    "explain": "answers.explaining:explain",
    "synthesize": "answers.rows:synthesize",
    "synthesize_tables": "answers.schemas:synthesize_tables",
    "sample": "answers.rows:sample",
    "ledger": "answers.books:ledger",
    "budget": "answers.books:budget",
    "releases": "answers.books:releases",
    "evaluate": "custodian.evaluating:evaluate",
    "export": "answers.files:export",
    "import": "answers.files:import_release",
    "report": "answers.report:report",
}
"""The function that answers each call of `dpsql.calls.registry`; loaded when the call comes."""


@cache
def answer(name: str) -> Callable[[Context, Any], str]:
    """Return the function that answers a call with the text of a relation."""
    module, _, attribute = ANSWERS[name].partition(":")
    function: Callable[[Context, Any], str] = getattr(import_module(f"dpsql.{module}"), attribute)
    return function


def _after(told: str, bought: int) -> str:
    """Return what a refusal says where the call, or the statement that it stands in, had bought releases before it.

    Examples
    --------
    >>> _after("exceeded; nothing was charged.", 2)
    'exceeded; nothing more was charged. 2 releases were bought before that and are kept: asked again they are free'
    """
    if "othing was charged" not in told:
        return told
    kept = "1 release was bought before that and is kept: asked again it is" if bought == 1 else (
        f"{bought} releases were bought before that and are kept: asked again they are"
    )
    return f"{told.replace('othing was charged', 'othing more was charged').removesuffix('.')}. {kept} free"


def run(
    instance: Instance,
    name: str,
    given: Mapping[str, Any],
    *,
    database: str,
    schema: str,
    progress: object = None,
    analyst: str | None = None,
    answered: Callable[[Context, Any], str] | None = None,
    paid: list[Any] | None = None,
    notes: list[str] | None = None,
) -> str:
    """Run a call and return the text of the relation that answers it.

    Parameters
    ----------
    progress : object
        What the session's variable ``dpsql_progress`` says, None where it is not set.
    analyst : str, optional
        Of a served database, whose call it is: for the ledger, and what others have bought is not there for her.
    answered : callable, optional
        Answers it instead of the call's own function.
    paid : list, optional
        Gets what the call has paid for (`dpsql.purchase.uses.Paid`), also where it fails after that.
    notes : list, optional
        Gets what is to be said beside the answer, instead of standard error.

    Raises
    ------
    Interrupted
        Ctrl-C stopped it; a KeyboardInterrupt.
    duckdb.InterruptException
        `dpsql.interrupt` stopped it.
    """
    if name not in ANSWERS:
        raise DpsqlError(
            f"dp_{name} is not known to this dpsql: the file's macros are newer; update dpsql, or call dpsql.load(con) again"
        )
    with open_context(instance, database, schema, switch(progress), analyst) as context:
        running = interruption.Running(context.cursor)
        try:
            with instance.listed(running), interruption.call(running):
                # what a dbt project declares is declared before anything is asked
                if instance.prepare is not None:
                    instance.prepare(context)
                context.known["call"] = name
                if notes is not None:
                    context.known[NOTES] = notes
                return (answered or answer(name))(context, declaration(name).parse(given))
        except interruption.Stopped as stopped:
            raise duckdb.InterruptException(str(stopped)) from None
        except DpsqlError as error:
            bought = len([*(paid or ()), *context.known.get("paid", ())])
            if bought:
                error.args = (_after(str(error), bought),)
            raise
        except duckdb.Error as error:  # of a look-up: DuckDB lists all attached databases, also one whose server is gone
            if foreign(error):
                raise DpsqlError(first_line(error)) from None
            raise
        finally:
            # what was paid for is told where the call failed as well
            if paid is not None:
                paid += context.known.get("paid", ())
