"""Client properties by librdkafka's names become Java's, or are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError
from onceflow_connectors.kafka.client.java import reader_settings

PEM = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"


def settings(**given: str) -> Mapping[str, str]:
    properties = {name.replace("__", "."): value for name, value in given.items()}
    return reader_settings(Connection("host:9092", properties))


def test_readers_see_committed_records_and_never_jump() -> None:
    found = settings(fetch__min__bytes="7")
    assert found["isolation.level"] == "read_committed"
    assert found["auto.offset.reset"] == "none"
    assert found["bootstrap.servers"] == "host:9092"
    assert found["fetch.min.bytes"] == "7"
    assert "group.id" not in found


@pytest.mark.parametrize(
    ("name", "value", "java", "translated"),
    [
        ("fetch.wait.max.ms", "9", "fetch.max.wait.ms", "9"),
        ("fetch.message.max.bytes", "9", "max.partition.fetch.bytes", "9"),
        ("socket.timeout.ms", "9", "request.timeout.ms", "9"),
        ("security.protocol", "sasl_ssl", "security.protocol", "SASL_SSL"),
        (
            "ssl.endpoint.identification.algorithm",
            "none",
            "ssl.endpoint.identification.algorithm",
            "",
        ),
        ("check.crcs", "true", "check.crcs", "true"),
    ],
)
def test_names_and_values_are_translated(name: str, value: str, java: str, translated: str) -> None:
    assert reader_settings(Connection("host:9092", {name: value}))[java] == translated


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords_are_quoted(mechanism: str) -> None:
    found = settings(
        sasl__mechanism=mechanism,
        sasl__username='a"b',
        sasl__password="c\\d",
        security__protocol="sasl_ssl",
    )
    login = found["sasl.jaas.config"]
    assert login.endswith('LoginModule required username="a\\"b" password="c\\\\d";')
    assert ("Scram" in login) == mechanism.startswith("SCRAM")
    assert "sasl.username" not in found


def test_certificates_and_keys_are_pem(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text(PEM)
    found = settings(
        ssl__ca__location=str(file), ssl__certificate__location=str(file), ssl__key__pem=PEM
    )
    assert found["ssl.truststore.type"] == found["ssl.keystore.type"] == "PEM"
    assert found["ssl.truststore.certificates"] == PEM
    assert found["ssl.keystore.certificate.chain"] == found["ssl.keystore.key"] == PEM


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "queued.min.messages",
            "1",
            "queued.min.messages: Kafka's Java client has no such property",
        ),
        ("enable.ssl.certificate.verification", "false", "always verifies certificates"),
        ("ssl.key.pem", "-----BEGIN RSA PRIVATE KEY-----", "PKCS#8 only"),
        ("ssl.ca.location", "/none.pem", "ssl.ca.location: .*No such file"),
        ("security.protocol", "tls", "is none of plaintext, ssl"),
        ("sasl.username", "me", "cannot log in with mechanism"),
    ],
)
def test_what_java_does_not_have_is_refused_by_name(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        reader_settings(Connection("host:9092", {name: value}))


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigError) as refused:
        settings(sasl__mechanism="GSSAPI", sasl__username="me", sasl__password="correct-horse")
    assert "correct-horse" not in str(refused.value)
