"""Settings of Spark that follow from others."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.errors import ConfigError

session = pytest.importorskip("onceflow.runtime.spark.session")

CHECKSUM = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.parametrize(
    ("most", "least"),
    [
        ("2g", "-Xms512m"),
        ("1G", "-Xms256m"),
        ("1500m", "-Xms384000k"),
        ("4194304k", "-Xms1073741824"),
        ("2gb", "-Xms512m"),
        # Written in a way that Spark may understand and we do not: Java decides.
        ("2048", ""),
        ("a lot", ""),
    ],
)
def test_the_heap_begins_with_a_quarter_of_its_bound(most: str, least: str) -> None:
    assert session.least_heap(most) == least


@pytest.mark.parametrize(
    ("location", "checksum", "manager"),
    [
        ("/data/checkpoint", "false", "org.apache.spark"),
        ("s3a://bucket/checkpoint", "false", session.FILE_MANAGER),
        ("hdfs://node/checkpoint", None, ""),
    ],
)
def test_a_file_has_one_checksum_and_is_written_on_condition_on_s3(
    location: str, checksum: str | None, manager: str
) -> None:
    """The checksum is Hadoop's on a disk, the store's own on S3, Spark's elsewhere."""
    conf = session.spark_conf(session.SessionSettings(), location, "")
    assert conf.get(CHECKSUM) == checksum
    assert conf.get(MANAGER, "").startswith(manager)
    assert (MANAGER in conf) == bool(manager)
    wanted = session.SessionSettings(conf={CHECKSUM: "true"})
    assert session.spark_conf(wanted, location, "")[CHECKSUM] == "true"


def test_a_local_session_is_alone_and_outlives_a_task_without_memory() -> None:
    unsafe = {
        "spark.authenticate": "false",
        "spark.authenticate.secret.file": "/etc/onceflow/spark/secret",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.executor.killOnFatalError.depth": "5",
    }
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        conf = session.spark_conf(session.SessionSettings(master=master, conf=unsafe), "/data", "")
        assert conf["spark.authenticate"] == "true"
        # Spark takes a file of the secret for executors on Kubernetes only, and ends otherwise.
        assert "spark.authenticate.secret.file" not in conf
        assert conf["spark.driver.bindAddress"] == "127.0.0.1"
        is_one_process = master == "local[2]"
        assert (conf["spark.executor.killOnFatalError.depth"] == "0") == is_one_process
        assert ("spark.authenticate.secret" in conf) != is_one_process


def test_no_setting_lets_a_query_reach_more() -> None:
    for name in ("spark.sql.runSQLOnFiles", "spark.sql.variable.substitute"):
        with pytest.raises(ConfigError, match="keeps queries to their sources"):
            session.check_conf({name: "true"})
        session.check_conf({name: "false"})
    with pytest.raises(ConfigError, match="keeps queries to their sources"):
        session.check_conf({"spark.hadoop.fs.http.impl": "org.example.HttpFileSystem"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.jars", "/jars/a.jar,/jars/kafka-clients-3.9.2.jar"),
        ("spark.jars.packages", "org.apache.kafka:kafka-clients:3.9.2"),
        ("spark.driver.extraClassPath", "/jars/kafka-clients-3.9.2.jar"),
    ],
)
def test_a_second_client_of_kafka_is_refused_rather_than_hidden(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: Kafka's client would be there twice"):
        session.check_conf({name: value})
    session.check_conf({name: value.replace("kafka-clients", "other")})


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("spark.sql.ansi.enabled", False),
        ("spark.sql.extensions", False),
        ("spark.sql.catalog.lake", False),
        ("spark.sql.legacy.timeParserPolicy", False),
        ("spark.sql.session.timeZone", False),
        ("spark.sql.adaptive.enabled", True),
        ("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", True),
        ("spark.executor.memory", True),
        ("spark.hadoop.fs.s3a.endpoint", True),
    ],
)
def test_settings_of_spark_sql_must_have_been_judged(name: str, is_allowed: bool) -> None:
    if is_allowed:
        session.check_conf({name: "true"})
        return
    with pytest.raises(ConfigError) as refused:
        session.check_conf({name: "true"})
    assert [fault.where for fault in refused.value.faults] == [name]


def test_javas_own_fences_come_after_what_a_user_says() -> None:
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        settings = session.SessionSettings(conf={name: "-Djavax.xml.accessExternalDTD=all"})
        options = session.spark_conf(settings, "", "")[name].split()
        assert options[-2:] == [
            "-Djavax.xml.accessExternalDTD=",
            "-Djavax.xml.accessExternalSchema=",
        ]


class _AskedError(Exception):
    """Spark was about to be started."""


@pytest.mark.parametrize("has_processors", [False, True])
def test_the_jvm_compiles_sooner_where_python_keeps_state(
    monkeypatch: pytest.MonkeyPatch, *, has_processors: bool
) -> None:
    def asked(settings: Any, checkpoint: str, java_options: str) -> None:
        found = session_conf(settings, checkpoint, java_options)["spark.driver.extraJavaOptions"]
        thresholds = [each for each in found.split() if "Tier4InvocationThreshold" in each]
        # The last of two counts.
        wanted = 50_000 if has_processors else 500_000
        assert thresholds[-1] == f"-XX:Tier4InvocationThreshold={wanted}"
        raise _AskedError

    session_conf = session.spark_conf
    monkeypatch.setattr(session, "use_java", lambda: None)
    monkeypatch.setattr(session, "use_spark_home", lambda **_: None)
    monkeypatch.setattr(session, "spark_conf", asked)
    engine = session.SharedEngine(session.SessionSettings(), has_processors=has_processors)
    monkeypatch.setattr(session, "sharing_options", lambda _: "")
    with pytest.raises(_AskedError):
        engine.open_session("")
