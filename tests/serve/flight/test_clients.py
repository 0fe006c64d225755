"""Stock clients at the door: ADBC, and what stands on it (pandas, polars)."""

import datetime as dt
import shutil
import ssl
import subprocess
from decimal import Decimal

import pytest
from mysql_room import TOKENS

adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the driver adbc-driver-flightsql is not there")
manager = pytest.importorskip("adbc_driver_manager")

AGGREGATE = "SELECT ward, count(*) AS n, avg(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"


def connect(port, name="alice", token=None, scheme="grpc", **given):
    who = {"username": name, "password": TOKENS["alice"] if token is None else token}
    return adbc.connect(f"{scheme}://localhost:{port}" if scheme != "grpc" else f"grpc://127.0.0.1:{port}", db_kwargs={**who, **given}, autocommit=True)


@pytest.fixture(scope="module")
def con(house):
    with connect(house.port) as made:
        yield made


def rows(con, text, *values):
    with con.cursor() as cursor:
        cursor.execute(text, *values)
        return cursor.fetchall()


def test_questions(house, con):
    before = house.served.charges()
    assert rows(con, AGGREGATE) == house.served.ask(AGGREGATE) and rows(con, AGGREGATE) and house.served.charges() == before + 1
    assert len(rows(con, "SELECT ward, count(*) FROM visits WHERE cost > ? AND ward = ? GROUP BY ward", (30, "A"))) == 1
    assert rows(con, "SELECT ward FROM wards WHERE building <> ? ORDER BY ward", ("O'Brien ?",)) == [("A",), ("B",), ("C",)]
    assert rows(con, "SELECT * FROM visits LIMIT 0") == [] and len(rows(con, "FROM dp_query('SELECT count(*) FROM visits', epsilon := 0.2)")) == 1
    assert len(rows(con, "SELECT * FROM dp_marginals('visits', columns := ['ward'], epsilon := 1)")) == 3


def test_values(con):
    values = (None, True, 2**40, -1.5, Decimal("1.250"), "ä", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.time(1, 2))
    assert rows(con, f"SELECT {', '.join('?' * len(values))}", values) == [values]


def test_the_catalogue(con):
    (census,) = con.adbc_get_objects(depth="all").read_all().to_pylist()
    assert census["catalog_name"] == "census"
    tables = {table["table_name"]: table for schema in census["catalog_db_schemas"] for table in schema["db_schema_tables"]}
    assert set(tables) == {"over_notes", "over_visits", "over_wards", "visits", "wards", "places"}
    assert [(column["column_name"], column["xdbc_type_name"]) for column in tables["places"]["table_columns"]] == [("place", "VARCHAR"), ("width", "DECIMAL(9,2)"), ("since", "DATE")]
    assert con.adbc_get_table_schema("wards").names == ["ward", "beds", "building"] and con.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert con.adbc_get_info()["vendor_name"] == "dpsql"
    with con.cursor() as cursor:
        assert cursor.adbc_execute_schema(AGGREGATE).names == ["ward", "n", "mean"]
        assert len(cursor.adbc_prepare("SELECT beds + ?, ? FROM wards")) == 2


def test_pandas_and_polars(con):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pandas.read_sql(AGGREGATE, con)
    assert list(frame["ward"]) == ["A", "B", "C"] and frame["n"].dtype == "int64" and frame["mean"].dtype == "float64"
    assert polars.read_database(AGGREGATE, con)["ward"].to_list() == ["A", "B", "C"]


@pytest.mark.parametrize("text", ["SELECT * FROM visits", "DELETE FROM wards", "FROM payroll", "CREATE TABLE x (a INT)", "SELECT nothing FROM wards"])
def test_refusals(con, text):
    with pytest.raises(manager.Error) as refused:
        rows(con, text)
    assert "\n" not in str(refused.value) and ".py" not in str(refused.value)


def test_nothing_is_put_in(house, con):
    pa, before = pytest.importorskip("pyarrow"), house.served.state()
    with con.cursor() as cursor:
        for call in (lambda: cursor.executemany("SELECT ?", [(1,), (2,)]), lambda: cursor.adbc_ingest("wards", pa.table({"a": [1]}), mode="append")):
            with pytest.raises(manager.Error, match="nothing is changed or put in"):
                call()
    assert house.served.state() == before


@pytest.mark.parametrize(("name", "token"), [("alice", "dpsql_wrong"), ("alice", ""), ("nobody", TOKENS["alice"]), ("bob", None)])
def test_nobody_else_comes_in(house, name, token):
    with pytest.raises(manager.ProgrammingError, match="access denied"):
        connect(house.port, name, token)


def test_a_token_alone(house):
    with adbc.connect(f"grpc://127.0.0.1:{house.port}", db_kwargs={"adbc.flight.sql.authorization_header": f"Bearer {TOKENS['alice']}"}, autocommit=True) as con:
        assert rows(con, "SELECT 1") == [(1,)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(opening, tmp_path):
    """Everybody is encrypted, and the certificate is looked at."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", cert], check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with opening(tls=context) as made:
        with connect(made.port, scheme="grpc+tls", **{"adbc.flight.sql.client_option.tls_root_certs": cert.read_text()}) as con:
            assert rows(con, "SELECT 1") == [(1,)] and len(rows(con, "SELECT a FROM (SELECT 1 AS a) t, visits_synth")) == 20
        for scheme in ("grpc+tls", "grpc+tcp"):  # an authority that the client does not know; no encryption
            with pytest.raises(manager.Error):
                connect(made.port, scheme=scheme)
