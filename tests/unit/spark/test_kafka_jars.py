"""The jars of Kafka's client: only those of the lock are put on Spark's class path."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.cli.machine.doctor import Grade, client_check
from onceflow.devkit.demo.stage import provide_kafka_client
from onceflow.errors import ConfigError
from onceflow.java import compiled, kafka_jars
from onceflow.java.choice import find_java
from onceflow.runtime.spark.session import class_paths

NAME = "kafka-clients-4.3.1.jar"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment in which the jars are installed."""
    (tmp_path / NAME).write_bytes(installed().read_bytes())
    monkeypatch.setattr(compiled, "environment_folder", lambda: tmp_path / "environment")
    kafka_jars.install([tmp_path / NAME])
    return tmp_path


def installed() -> Path:
    return compiled.kafka_folder() / NAME


def test_those_that_are_installed_are_used(environment: Path) -> None:
    kafka_jars.require_kafka_jars()
    assert [file.name for file in compiled.kafka_folder().iterdir()] == [NAME]


def test_without_them_a_start_says_how_to_install_them(environment: Path) -> None:
    installed().unlink()
    with pytest.raises(ConfigError, match=f"no {NAME}; .*run `onceflow fetch kafka` once"):
        kafka_jars.class_path(find_java())


def test_one_that_is_damaged_is_told_by_its_hash(environment: Path) -> None:
    content = bytearray(installed().read_bytes())
    content[1000] ^= 1
    installed().write_bytes(content)
    with pytest.raises(ConfigError, match=r"found kafka-clients-4.3.1.jar with sha256 \w{12}"):
        kafka_jars.require_kafka_jars()


def test_one_of_another_version_is_named(environment: Path) -> None:
    installed().rename(installed().with_name("kafka-clients-3.9.2.jar"))
    with pytest.raises(ConfigError, match=rf"no {NAME}; kafka-clients-3\.9\.2\.jar"):
        kafka_jars.require_kafka_jars()


def test_they_are_replaced_as_a_whole_or_not_at_all(environment: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be installed: .*/kafka; expected"):
        kafka_jars.install([environment / NAME, environment / "none.jar"])
    kafka_jars.require_kafka_jars()


def test_doctor_names_the_cure(environment: Path) -> None:
    assert client_check().level is Grade.OK
    installed().unlink()
    check = client_check()
    assert check.level is Grade.FAULT
    assert "run `onceflow fetch kafka` once" in check.found


def test_the_demonstration_installs_them_itself(environment: Path) -> None:
    installed().unlink()
    provide_kafka_client()
    kafka_jars.require_kafka_jars()


def test_they_come_before_what_a_user_adds() -> None:
    given = {"spark.driver.extraClassPath": "/theirs.jar", "spark.jars": "/other.jar"}
    assert class_paths("/ours.jar", given) == {
        "spark.driver.extraClassPath": "/ours.jar:/theirs.jar",
        "spark.executor.extraClassPath": "/ours.jar",
    }
