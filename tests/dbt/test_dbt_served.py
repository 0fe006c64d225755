"""Answers of a served database as sources of a dbt project: bought once, whatever dbt does; refusals are readable."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("dbt.adapters.duckdb")
pytest.importorskip("pymysql")

from dbt_projects import PROFILE, dbt, project
from mysql_room import TOKENS, FakeKeys
from served_room import served

from dpsql.serve.mysql.door import MysqlDoor

SCHEMA = """
sources:
  - name: census
    schema: census
    meta: {plugin: census}
    tables:
      - name: by_ward
        meta: {query: "SELECT ward, count(*) AS n, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"}
      - name: wards
      - {name: refused, meta: {query: "SELECT cost FROM visits"}}
"""
FILES = {
    "schema.yml": SCHEMA,
    "beds.sql": "{{ config(materialized='table') }} select ward, n / beds as visits_a_bed from {{ source('census', 'by_ward') }} join {{ source('census', 'wards') }} using (ward)",
    "shown.sql": "select * from {{ source('census', 'refused') }}",
}


def test_answers_are_sources(tmp_path):
    with served(tmp_path) as census:
        door = MysqlDoor(census.room, FakeKeys(), "127.0.0.1", 0)
        door.start()
        try:
            folder = project(tmp_path / "p", "SELECT 1", FILES)
            shutil.rmtree(folder / "dbt_packages")  # an analyst's project needs none of dpsql's
            (folder / "packages.yml").unlink()
            plugin = f"{{module: dpsql.dbt.served, alias: census, config: {{url: 'mysql://alice@127.0.0.1:{door.port}/census'}}}}"
            (folder / "profiles.yml").write_text(PROFILE.replace("{module: dpsql.dbt}", plugin))
            types = ["sql", "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'by_ward' ORDER BY column_index"]
            token = {"DPSQL_TOKEN": TOKENS["alice"]}
            first, beds, kinds, again = dbt(folder, ["build", "-s", "beds"], ["sql", "SELECT * FROM beds ORDER BY ALL"], types, ["build", "-s", "beds"], more=token)
            assert first["success"] and again["success"], first
            assert [ward for ward, _ in beds] == ["A", "B", "C"] and census.charges("alice") == 1
            assert kinds == [["ward", "VARCHAR"], ["n", "BIGINT"], ["mean", "DOUBLE"]]
            (failed,) = dbt(folder, ["build", "-s", "shown"], more=token)
            assert not failed["success"] and "rows of visits are never shown" in failed["printed"]
            (nobody,) = dbt(folder, ["build", "-s", "beds"], more={"DPSQL_TOKEN": "wrong-token"})
            assert not nobody["success"] and "Access denied" in nobody["printed"] and "wrong-token" not in nobody["printed"]
            assert TOKENS["alice"] not in str([first, again, failed])
        finally:
            door.stop()
