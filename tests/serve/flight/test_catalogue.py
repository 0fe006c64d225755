"""What Flight SQL asks of the catalogue: names and types that the analyst may see, and nothing else."""

import pyarrow as pa
import pytest
from flight_raw import bearer, message

from dpsql.serve.flight.catalogue import like


def names(client, *fields):
    return [f"{row['db_schema_name']}.{row['table_name']}" for row in client.ask(message("CommandGetTables", *fields)).to_pylist()]


def test_tables(alice):
    everything = ["main.over_notes", "main.over_visits", "main.over_wards", "main.visits", "main.wards", "other.places"]
    assert names(alice) == everything
    assert names(alice, (1, "census"), (2, "%"), (3, "%")) == everything
    assert names(alice, (1, "hospital")) == names(alice, (1, "")) == names(alice, (2, "dpsql")) == names(alice, (3, "payroll")) == []
    assert names(alice, (2, "oth_r")) == ["other.places"] and names(alice, (3, "%wards")) == ["main.over_wards", "main.wards"]
    assert names(alice, (4, ["TABLE"])) == ["main.visits", "main.wards", "other.places"] and names(alice, (4, ["TABLE", "VIEW"])) == everything
    assert names(alice, (3, "over\\_wards")) == ["main.over_wards"] and names(alice, (3, "over\\%")) == []


def test_their_columns(alice):
    table = alice.ask(message("CommandGetTables", (3, "places"), (5, True)))
    schema = pa.ipc.read_schema(pa.py_buffer(table["table_schema"][0].as_py()))
    assert schema.names == ["place", "width", "since"] and schema.types == [pa.string(), pa.decimal128(9, 2), pa.date32()]
    assert schema.field("width").metadata == {b"ARROW:FLIGHT:SQL:TYPE_NAME": b"DECIMAL(9,2)"}
    assert table.schema.field("table_schema").type == pa.binary() and not table.schema.field("table_name").nullable


def test_the_rest(alice):
    assert alice.ask(message("CommandGetCatalogs")).to_pylist() == [{"catalog_name": "census"}]
    assert alice.ask(message("CommandGetTableTypes")).to_pylist() == [{"table_type": "TABLE"}, {"table_type": "VIEW"}]
    schemas = alice.ask(message("CommandGetDbSchemas")).to_pylist()
    assert schemas == [{"catalog_name": "census", "db_schema_name": name} for name in ("main", "other")]
    assert alice.ask(message("CommandGetDbSchemas", (2, "m%"))).num_rows == 1 and alice.ask(message("CommandGetDbSchemas", (1, "x"))).num_rows == 0


def test_another_analyst_sees_hers(house):
    house.keys.tokens["carol"], house.keys.numbers["carol"] = "dpsql_carols", 7
    with bearer(house.port, "dpsql_carols") as carol:
        assert names(carol, (3, "%visits")) == []


def test_what_the_server_says_of_itself(alice):
    told = {row["info_name"]: row["value"] for row in alice.ask(message("CommandGetSqlInfo")).to_pylist()}
    assert told[0] == "dpsql" and told[3] is True and told[8] == 0 and told[504] == '"' and told[10] is False
    some = alice.ask(message("CommandGetSqlInfo", (1, [3, 0, 99999, 2**32 - 1])))
    assert [row["info_name"] for row in some.to_pylist()] == [3, 0]
    packed = alice.ask(message("CommandGetSqlInfo", (1, bytes([3, 0, 8]))))
    assert [row["info_name"] for row in packed.to_pylist()] == [3, 0, 8] and some.schema == packed.schema


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "", True), ("", "a", False), ("%", "", True), ("_", "", False), ("_", "a", True), ("a%c", "abc", True), ("a%c", "abcd", False), ("a%b%c", "a1b2b3c", True),
        ("%%b", "aab", True), ("a\\_c", "a_c", True), ("a\\_c", "abc", False), ("a\\\\", "a\\", True), ("a\\", "a\\", True), (".*", "ab", False), ("A", "a", False), ("%a%a%", "a", False),
    ],
)  # fmt: skip
def test_like(pattern, name, fits):
    assert like(pattern, name) is fits
