"""Kafka's Java client signs in with the settings that serve every other client, and stays in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from pyspark.sql import SparkSession

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, Right, Task, find_connector
from onceflow.contracts.source import Split
from onceflow.errors import ConfigError
from onceflow.settings import Settings
from tests.support.brokers.secured import (
    PLAIN_PASSWORD,
    PLAIN_USER,
    SIGNED,
    SecuredBroker,
    secured_broker,
    settings_by_certificate,
)
from tests.support.drivers.here import engine
from tests.support.eventually import eventually
from tests.support.outside.topics import ANSWER_TIMEOUT_S, create_topic, ordered_producer
from tests.support.reading import rows_of
from tests.support.sites import token_endpoint
from tests.support.sites.token_endpoint import TokenEndpoint, answering

NAME, TOPIC = "jane", "views"
PASSWORD, SECRET, KEY_WORD = 'pw "marker" \\ 7f1', 'secret "marker"', "key-marker"
OFFSETS = pa.schema([("_offset", pa.int64())])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    issuer = TokenEndpoint({NAME: SECRET})
    with answering(issuer, folder / "tokens") as tokens, secured_broker(folder, tokens) as made:
        made.set_password(NAME, PASSWORD)
        create_topic(made.bootstrap_servers, TOPIC)
        connection = Connection(made.bootstrap_servers)
        rights = [Right(Task.RUN, "topic", TOPIC, False, "read", "to read")]
        for name in (NAME, PLAIN_USER):
            deadline = SystemClock().within(ANSWER_TIMEOUT_S)
            find_connector("kafka").grant(f"User:{name}", rights, connection, deadline)
        produce(made, 3)
        yield made


@pytest.fixture
def spark() -> SparkSession:
    return engine().open_session("")


def produce(broker: SecuredBroker, count: int) -> None:
    producer = ordered_producer(broker.bootstrap_servers)
    for _ in range(count):
        producer.produce(TOPIC, b"value")
    assert producer.flush(ANSWER_TIMEOUT_S) == 0


def by_password(
    broker: SecuredBroker,
    folder: Path,
    mechanism: str = "SCRAM-SHA-512",
    name: str = NAME,
    password: str = PASSWORD,
) -> dict[str, Any]:
    file = folder / "password"
    file.write_text(password)
    return {
        "bootstrap_servers": broker.address_of(SIGNED),
        "tls": {"ca_file": str(broker.authority.certificate)},
        "sasl": {"mechanism": mechanism, "username": name, "password_file": str(file)},
    }


def by_token(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    (folder / "client-secret").write_text(SECRET)
    sasl = {
        "mechanism": "OAUTHBEARER",
        "token_endpoint": broker.tokens.address,
        "client_id": NAME,
        "client_secret_file": str(folder / "client-secret"),
        "token_ca_file": str(broker.tokens.authority),
    }
    return {**by_password(broker, folder), "sasl": sasl}


def by_old_key(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    """With a key in the form that OpenSSL had before PKCS 8."""
    return _with_key(
        broker,
        folder,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def by_locked_key(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    settings = _with_key(
        broker,
        folder,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(KEY_WORD.encode()),
    )
    (folder / "key-word").write_text(KEY_WORD)
    tls = {**settings["tls"], "key_password_file": str(folder / "key-word")}
    return {**settings, "tls": tls}


def _with_key(
    broker: SecuredBroker,
    folder: Path,
    form: serialization.PrivateFormat,
    lock: serialization.KeySerializationEncryption,
) -> dict[str, Any]:
    settings = settings_by_certificate(broker, folder)
    file = Path(settings["tls"]["key_file"])
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    return settings


WAYS: Mapping[str, Callable[[SecuredBroker, Path], dict[str, Any]]] = {
    "PLAIN": lambda broker, folder: by_password(
        broker, folder, "PLAIN", PLAIN_USER, PLAIN_PASSWORD
    ),
    "SCRAM-SHA-256": lambda broker, folder: by_password(broker, folder, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": by_password,
    "OAUTHBEARER": by_token,
    "mutual TLS": settings_by_certificate,
    "mutual TLS, old key": by_old_key,
    "mutual TLS, locked key": by_locked_key,
}


def read(spark: SparkSession, settings: Mapping[str, Any], start: int, end: int) -> list[int]:
    connection = Settings.model_validate(settings).connection()
    rows = rows_of(spark, connection, [Split(TOPIC, 0, start, end)], OFFSETS)
    return [row["_offset"] for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_java_signs_in(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path, way: str
) -> None:
    assert read(spark, WAYS[way](broker, tmp_path), 0, 3) == [0, 1, 2]


def test_a_token_that_ends_is_renewed(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a connection with the token that it was made with."""
    monkeypatch.setattr(token_endpoint, "LASTS_S", 4)
    settings = by_token(broker, tmp_path)
    # Clients with the same settings to sign in share their tokens.
    settings["sasl"]["scope"] = "of-this-test"
    offset = 3
    assert read(spark, settings, 0, offset) == [0, 1, 2]
    issued = broker.tokens.issued
    for _ in range(2):
        eventually(lambda: len(issued), len(issued).__lt__)
        produce(broker, 1)
        assert read(spark, settings, offset, offset + 1) == [offset]
        offset += 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sasl": "password"}, "SaslAuthentication|SASL_AUTHENTICATION_FAILED"),
        ({"tls": {}}, "SslAuthentication|SSL"),
        ({"client": {"queued.min.messages": "1"}}, "queued.min.messages: Kafka's Java client"),
    ],
)
def test_who_cannot_read_is_told_why(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    settings = by_password(broker, tmp_path)
    if change.get("sasl"):
        (tmp_path / "password").write_text("wrong-marker")
    else:
        settings |= change
    with pytest.raises(ConfigError, match=told) as refused:
        read(spark, settings, 0, 3)
    assert PASSWORD not in str(refused.value)
    assert "marker" not in str(refused.value)


def test_who_gets_no_token_is_told_why(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path
) -> None:
    settings = by_token(broker, tmp_path)
    (tmp_path / "client-secret").write_text("wrong-marker")
    with pytest.raises(ConfigError, match=r"cannot make a Kafka client.*401") as refused:
        read(spark, settings, 0, 3)
    assert "marker" not in str(refused.value)


def test_who_may_not_read_is_told_why(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(spark, settings_by_certificate(broker, tmp_path, "mallory"), 0, 3)
