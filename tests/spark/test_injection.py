"""A pipeline file is a query, and names: nothing in it runs, reads or writes anything else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onceflow.errors import Fault
from onceflow.pipeline.analysis.analysis import Analysis
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.plan.plan import jvm_of
from tests.support.pipelines import CLICKS

Faults = Callable[..., tuple[Fault, ...]]
SECRET = "not to be read"


class Listener(HTTPServer):
    """Answers nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Ignores all reports."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT TRANSFORM(page) USING 'touch WITNESS' AS (page STRING) FROM clicks",
        "SELECT java_method('java.lang.Runtime', 'getRuntime') AS x FROM clicks",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x FROM clicks",
        "SELECT try_reflect('java.lang.System', 'getenv', 'HOME') AS x FROM clicks",
        "SELECT c.page FROM clicks c JOIN text.`FILE` t ON t.value = c.page",
        "SELECT c.page FROM clicks c JOIN csv.`FILE` t ON t._c0 = c.page",
        "SELECT c.page FROM clicks c WHERE c.page IN (SELECT value FROM text.`FILE`)",
        "SELECT page, (SELECT max(value) FROM text.`FILE`) AS x FROM clicks",
        "SELECT page FROM python_worker_logs()",
        "INSERT OVERWRITE DIRECTORY 'WITNESS' USING csv SELECT page FROM clicks",
        "CREATE TABLE x USING csv LOCATION 'WITNESS' AS SELECT 1 AS a",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.String'",
        "ADD JAR 'FILE'",
        "SET spark.sql.ansi.enabled=false",
        "SELECT page FROM clicks; CREATE TABLE x USING csv LOCATION 'WITNESS' AS SELECT 1 AS a",
        "EXPLAIN SELECT page FROM clicks",
        "BEGIN SELECT page FROM clicks; END",
        "EXECUTE IMMEDIATE 'SELECT page FROM clicks'",
    ],
)
def test_a_query_reaches_nothing_but_its_sources(
    faults: Faults, tmp_path: Path, query: str
) -> None:
    file, witness = tmp_path / "file", tmp_path / "was-here"
    file.write_text(SECRET)
    found = faults(query.replace("WITNESS", str(witness)).replace("FILE", str(file)))
    assert not witness.exists()
    assert SECRET not in str(found)
    assert all(fault.where == "query" for fault in found)


@pytest.mark.parametrize(
    "query",
    [
        # The whole file as the name of a column, and then in a message.
        "SELECT * FROM csv.`FILE` WITH ('header'='true', 'lineSep'='\\u0001', 'sep'='\\u0002')",
        "SELECT * FROM json.`FILE`",
        "SELECT c.page FROM clicks c JOIN json.`FILE` j ON j.secret = c.page",
        "WITH j AS (SELECT * FROM json.`FILE`) SELECT secret FROM j, clicks",
        "SELECT page FROM clicks, LATERAL (SELECT secret FROM json.`FILE`)",
        "FROM clicks |> JOIN json.`FILE` |> SELECT secret",
        "SELECT * FROM IDENTIFIER('json.`FILE`')",
        "SELECT * FROM IDENTIFIER(concat('json.', '`FILE`'))",
        "SELECT * FROM xml.`FILE` WITH ('rowTag'='a', 'rowValidationXSDPath'='URL')",
        "SELECT * FROM binaryFile.`FILE`",
        "SELECT * FROM text.`FILE` TIMESTAMP AS OF '2020-01-01'",
        "SELECT * FROM parquet.`URL`",
        "SELECT from_xml(page, 'a STRING', map('rowValidationXSDPath', 'URL')) AS x FROM clicks",
        "SELECT from_xml(page, 'a STRING', map('ROWvalidationxsdpath', 'URL')) AS x FROM clicks",
        "SELECT from_xml(page, 'a INT', map('rowValidation' || 'XSDPath', 'URL')) AS x FROM clicks",
        "SELECT from_xml(page, schema_of_xml('a', map('rowValidationXSDPath', 'URL'))) FROM clicks",
        "SELECT x FROM VALUES (schema_of_xml('<a/>', map('rowValidationXSDPath', 'URL'))) AS t(x)",
        "SELECT from_json(page, 'a STRING', str_to_map('mode=FAILFAST')) AS x FROM clicks",
        "SELECT from_json(page, java_method('java.lang.System', 'getenv', 'A')) AS x FROM clicks",
        "SELECT from_avro(_key, '{}', map('avroSchemaUrl', 'URL')) AS x FROM clicks",
        "SELECT from_protobuf(_key, 'Person', 'FILE') AS x FROM clicks",
        "SELECT builtin.reflect('java.lang.System', 'getenv', 'HOME') AS x FROM clicks",
        "SELECT system.builtin.current_user() AS x FROM clicks",
        "SELECT page, count(*) OVER w FROM clicks WINDOW w AS (ORDER BY reflect('a', 'b'))",
        "SELECT /*+ REPARTITION(3) */ page FROM clicks",
        "SELECT page FROM clicks WHERE user = :name",
        "SELECT page FROM clicks WATERMARK at DELAY OF INTERVAL 1 SECOND",
        "SELECT current_user AS x FROM clicks",
        "SELECT session_user AS x FROM clicks",
        "SELECT current_catalog() || current_schema() AS x FROM clicks",
        "SELECT x FROM VALUES (version()) AS t(x)",
    ],
)
def test_no_query_reads_a_file_or_asks_a_server(
    faults: Faults, tmp_path: Path, listener: Listener, query: str
) -> None:
    file = tmp_path / "file"
    file.write_text(f'{{"{SECRET}": 1}}\n')
    found = faults(query.replace("FILE", str(file)).replace("URL", f"{listener.url}/x"))
    assert SECRET not in str(found)
    assert Rule.NOT_ALLOWED in {fault.rule for fault in found}
    assert listener.requests == []


@pytest.mark.parametrize(
    "event_time", ["now()", "(SELECT max(at) FROM parquet.`URL`)", "version()"]
)
def test_an_event_time_reaches_nothing_either(
    faults: Faults, listener: Listener, event_time: str
) -> None:
    written = event_time.replace("URL", f"{listener.url}/x")
    found = faults(sources=CLICKS.replace("event_time: at", f'event_time: "{written}"'))
    assert found[0].where == "sources.clicks.event_time"
    assert listener.requests == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user, now() AS x FROM clicks",
        "SELECT user FROM clicks WHERE at > now() - INTERVAL 1 HOUR",
        "SELECT user FROM clicks WHERE at > TIMESTAMP 'now'",
        "SELECT user FROM clicks WHERE at > TIMESTAMP 'n\\u006fw'",
        "SELECT user FROM clicks WHERE at > 'yesterday'",
        "SELECT user, CAST('tomorrow' AS DATE) AS x FROM clicks",
        "SELECT user, to_timestamp('no' || 'w') AS x FROM clicks",
        "SELECT user, CAST('12:30' AS TIMESTAMP) AS x FROM clicks",
        "SELECT user, TIMESTAMP 'T12:30' AS x FROM clicks",
    ],
)
def test_a_clock_that_a_replay_does_not_set_back_is_not_read(faults: Faults, query: str) -> None:
    assert "clock" in str(faults(query))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user, current_timestamp() AS x FROM clicks",
        "SELECT user FROM clicks WHERE at > TIMESTAMP '2024-01-01 12:30:00'",
        "SELECT user FROM clicks WHERE at > '2024-01-01' AND at < DATE '2025-01-01'",
        "SELECT user, to_timestamp('12:30', 'HH:mm') AS x FROM clicks",
        "SELECT from_json(page, 'a STRING', map('mode', 'FAILFAST')).a AS x FROM clicks",
        "SELECT from_json(page, schema_of_json('{}')) IS NULL AS x FROM clicks",
        "SELECT from_xml(page, 'a STRING', map('rowTag', 'a')).a AS x FROM clicks",
        "SELECT page FROM (SELECT * FROM clicks) AS c WHERE page IN ('/', '/cart')",
        "FROM clicks |> WHERE ms > 5 |> SELECT page",
        "SELECT page, x FROM clicks LATERAL VIEW explode(split(page, '/')) t AS x",
        "SELECT c.page FROM clicks c JOIN VALUES ('/', 1) AS t(page, n) ON t.page = c.page",
    ],
)
def test_what_has_been_judged_may_be_used(analysed: Callable[..., Analysis], query: str) -> None:
    analysed(query)


@pytest.mark.parametrize("written", ["${env:HOME}", "${system:user.name}", "${spark.app.name}"])
def test_nothing_is_replaced_in_a_query(
    spark: SparkSession, analysed: Callable[..., Analysis], written: str
) -> None:
    analysed(f"SELECT '{written}' AS x FROM clicks")
    row = spark.sql(f"SELECT '{written}' AS x").first()
    assert row is not None
    assert row.x == written


def test_spark_itself_reads_no_file_that_a_query_names(spark: SparkSession, tmp_path: Path) -> None:
    """Should a query get past the allow list."""
    (tmp_path / "file").write_text(SECRET)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM text.`{tmp_path / 'file'}`")


def test_spark_itself_asks_no_server(spark: SparkSession, listener: Listener) -> None:
    """Should an option get past the allow list; and markup in records may name any address."""
    url = listener.url
    markup = f'<!DOCTYPE a SYSTEM "{url}/a.dtd"><a>x</a>'
    asked = f"SELECT from_xml('<a/>', 'a STRING', map('rowValidationXSDPath', '{url}/x.xsd')) AS x"
    with pytest.raises(Exception, match="accessExternalDTD"):
        spark.sql(f"SELECT xpath_string('{markup}', 'a') AS x").collect()
    with pytest.raises(Exception, match=r"onceflow\.no\.such|XSD|xsd"):
        spark.sql(asked).collect()
    with pytest.raises(Exception, match=r"onceflow\.no\.such"):
        spark.read.text(f"{url}/x").collect()
    assert listener.requests == []


def test_java_itself_follows_no_schema(spark: SparkSession, listener: Listener) -> None:
    java = jvm_of(spark)
    schema = (
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">'
        f'<xs:include schemaLocation="{listener.url}/y.xsd"/></xs:schema>'
    )
    stream = java.java.io.ByteArrayInputStream(schema.encode())
    factory = java.javax.xml.validation.SchemaFactory.newInstance(
        "http://www.w3.org/2001/XMLSchema"
    )
    with suppress(Py4JJavaError):
        factory.newSchema(java.javax.xml.transform.stream.StreamSource(stream))
    assert listener.requests == []


def test_a_misspelt_column_is_compared_with_declared_ones_only(faults: Faults) -> None:
    assert SECRET not in str(faults(f"SELECT pag FROM (SELECT page AS `{SECRET}` FROM clicks)"))


def test_markup_does_not_read_files(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing refuses it: Spark's parser follows no reference to a file."""
    file = tmp_path / "file"
    file.write_text(SECRET)
    markup = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{file}">]><a>&x;</a>'
    found = spark.sql(f"SELECT xpath_string('{markup}', 'a') AS x").first()
    assert found is not None
    assert SECRET not in str(found.x)
