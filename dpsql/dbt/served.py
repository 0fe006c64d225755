"""A served database as a source of dbt: answers of `dpsql serve` become tables of the project's own DuckDB.

In profiles.yml ``plugins: [{module: dpsql.dbt.served, alias: census, config: {url: 'mysql://alice@localhost:3306/census'}}]``, the
token in the environment's DPSQL_TOKEN. In schema.yml sources have ``meta: {plugin: census}``, their tables ``meta: {query: ...}``.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from dpsql.client import connect
from dpsql.errors import ArgumentError
from dpsql.text.relation import identifier

try:
    from dbt.adapters.duckdb.plugins import BasePlugin
except ImportError as missing:
    raise ImportError("dpsql.dbt.served needs dbt-core and dbt-duckdb: pip install 'dpsql[dbt]'") from missing

__all__ = ["Plugin"]

SETTINGS = ("url", "ca", "tls")


class Plugin(BasePlugin):
    """What dbt-duckdb loads. ``config`` holds ``url``, and ``ca`` and ``tls`` as for `dpsql.connect`."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Check the settings; dbt-duckdb gives those of the profile where there are none."""
        self._where = {name: plugin_config[name] for name in SETTINGS if name in plugin_config}
        if "url" not in self._where:
            raise ArgumentError("config", None, f"the plugin dpsql.dbt.served in profiles.yml takes {', '.join(SETTINGS)}")

    def load(self, source_config: Any) -> Any:
        """Return the answer to a source's query, or the rows of the published table of its name."""
        text = source_config.get("query") or f"FROM {identifier(source_config.identifier)}"
        with connect(**self._where) as served:  # one for each, since dbt's threads come at once
            answer = served.sql(text)
            return answer.df() if importlib.util.find_spec("pyarrow") is None else answer.to_arrow_table()
