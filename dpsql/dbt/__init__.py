"""dpsql in dbt: the plugin for dbt-duckdb. In profiles.yml: ``plugins: [{module: dpsql.dbt}]``.

It loads the ``dp_*`` macros on dbt's connections, and answers what the macros of the dbt package (``package/``, which
``dpsql dbt init`` copies into a project) ask. Budgets, domains, links and rules come from ``meta: {dpsql: ...}`` in schema.yml, see
`dpsql.dbt.declarations`; the materialization ``dp_synthetic`` asks `dpsql.dbt.models` before it buys, and so does ``dp_query``;
``dp_synthetic_table`` asks `dpsql.dbt.linked`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb

from dpsql.dbt import declarations, linked, models, spending
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.session.instance import Context, find_instance, open_context
from dpsql.udfs import instance_of, load

try:
    from dbt.adapters.duckdb.plugins import BasePlugin
    from dbt.adapters.events.logging import AdapterLogger
except ImportError as missing:
    raise ImportError("dpsql.dbt needs dbt-core and dbt-duckdb: pip install 'dpsql[dbt]', from a checkout '.[dbt]'") from missing

__all__ = ["Plugin"]

CALL = "__dp_dbt"
INTERFACE = 4
"""What the macros of the package and this module agree on; a copy of the package that is older or newer is refused."""

ACTIONS: dict[str, Callable[[Context, Mapping[str, Any]], Any]] = {
    "declare": declarations.declare,
    "check": models.check,
    "check_query": models.check_query,
    "linked_table": linked.linked_table,
    "within_error": models.within_error,
    "spent": spending.spent,
}
SETTINGS = ("store", "user")
_REASONS = 10  # that a failing test prints


class Plugin(BasePlugin):
    """What dbt-duckdb loads. ``config`` in profiles.yml may hold ``store`` and ``user``, as for `dpsql.load`."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Check the settings; dbt-duckdb adds those of the profile to them."""
        inherited = (self.creds.settings if self.creds is not None else None) or {}
        unknown = [name for name in plugin_config if name not in SETTINGS and name not in inherited]
        if unknown:
            raise ArgumentError("config", unknown[0], f"the dpsql plugin in profiles.yml takes {', '.join(SETTINGS)}")
        self._settings: dict[str, Any] = {name: plugin_config.get(name) for name in SETTINGS}

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Load dpsql on the connection that all threads share."""
        load(conn, **self._settings)
        register(conn)

    def configure_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Load the macros on a thread's cursor, which would lose them after ``USE``."""
        load(cursor)


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Register the function that the macros of the package call. Safe to repeat."""
    instance = instance_of(con)
    if instance is None:  # pragma: no cover -- load has just registered it
        raise DpsqlError("dpsql is not loaded on this connection: dpsql.load(con)")
    key = instance.key
    instance.say = lambda line: AdapterLogger("dpsql").info(line)

    def call(action: str, given: str, database: str, schema: str) -> str:
        try:
            return json.dumps(answer(key, action, json.loads(given), database, schema), ensure_ascii=False)
        except DpsqlError as error:
            raise error.with_traceback(None) from None  # DuckDB 1.x appends the trace to the text that dbt shows

    if con.execute("SELECT count(*) FROM duckdb_functions() WHERE function_name = ?", [CALL]).fetchall() == [(0,)]:
        instance.functions = (*instance.functions, call)
        con.create_function(CALL, call, ["VARCHAR"] * 4, "VARCHAR", side_effects=True)


def answer(key: str, action: str, given: Mapping[str, Any], database: str, schema: str) -> Any:
    """Run what a macro asks for."""
    if given.get("interface") != INTERFACE or action not in ACTIONS:
        raise DpsqlError("the folder dpsql_package of this dbt project is of another version: run `dpsql dbt init` there")
    with open_context(find_instance(key), database, schema) as context:
        reply = ACTIONS[action](context, given)
    if action == "within_error":
        _say(given, reply)
    if action == "spent":
        for line in reply:
            AdapterLogger("dpsql").info(line)
    return reply


def _say(given: Mapping[str, Any], reasons: Sequence[str]) -> None:
    """Print why a test fails: dbt itself shows no more than how many rows it gave, unless they are stored."""
    log = AdapterLogger("dpsql")
    show = log.warning if str(given.get("severity")).lower() == "warn" else log.error
    for reason in reasons[:_REASONS]:
        show(f"dp_within_error of {given['relation']}: {reason}")
    if len(reasons) > _REASONS:
        show(f"dp_within_error of {given['relation']}: {len(reasons) - _REASONS} more, which are less far off")
