"""Client properties by librdkafka's names become Java's, or are refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError
from onceflow.foreign_settings import CLIENT
from onceflow_connectors.kafka.client import java
from onceflow_connectors.kafka.client.java import reader_settings
from tests.support.pipelines import pipeline_text

ROOT = Path(__file__).parents[3]

SUITES = (
    "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256,"
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_CBC_SHA,"
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
)
ENCRYPTED = """-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
-----END RSA PRIVATE KEY-----"""
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
        ("topic.metadata.refresh.interval.ms", "9", "metadata.max.age.ms", "9"),
        ("connections.max.idle.ms", "0", "connections.max.idle.ms", "-1"),
        ("connections.max.idle.ms", "9", "connections.max.idle.ms", "9"),
        ("socket.receive.buffer.bytes", "0", "receive.buffer.bytes", "-1"),
        (
            "ssl.cipher.suites",
            "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA,DHE-RSA-CHACHA20-POLY1305",
            "ssl.cipher.suites",
            SUITES,
        ),
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


def test_authorities_may_have_names_in_any_alphabet(tmp_path: Path) -> None:
    file = tmp_path / "authorities.pem"
    file.write_bytes(b"# Autoridad de Certificaci\xf3n, \xc3\xa9\n" + PEM.encode())
    assert PEM in settings(ssl__ca__location=str(file))["ssl.truststore.certificates"]


@pytest.mark.parametrize("kind", ["", "ENCRYPTED "])
def test_a_password_goes_with_a_key_that_needs_it(kind: str) -> None:
    key = PEM.replace("PRIVATE", f"{kind}PRIVATE")
    found = settings(ssl__key__pem=key, ssl__certificate__pem=PEM, ssl__key__password="word")
    assert ("ssl.key.password" in found) == bool(kind)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "queued.min.messages",
            "1",
            "queued.min.messages: Kafka's Java client, which reads the sources, has no such",
        ),
        ("enable.ssl.certificate.verification", "false", "always verifies certificates"),
        (
            "ssl.key.pem",
            ENCRYPTED,
            "encrypted keys in PKCS 8 only",
        ),
        ("ssl.cipher.suites", "HIGH:!aNULL", "Java has no cipher suite HIGH"),
        ("broker.address.family", "v4", "takes addresses of every family"),
        ("socket.keepalive.enable", "false", "always keeps connections alive"),
        ("sasl.oauthbearer.method", "default", "by client credentials only"),
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


NOT_OF_JAVA = {
    "broker.address.ttl",
    "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "socket.max.fails",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "topic.metadata.refresh.fast.interval.ms",
}
VALUES = {
    "broker.address.family": "any",
    "socket.keepalive.enable": "true",
    "socket.nagle.disable": "true",
    "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256",
}


def test_every_setting_that_may_be_set_is_translated_or_refused_by_its_name() -> None:
    refused = set()
    for name in CLIENT:
        try:
            reader_settings(Connection("host:9092", {name: VALUES.get(name, "1")}))
        except ConfigError as error:
            (fault,) = error.faults
            refused.add(fault.where)
    assert refused == NOT_OF_JAVA


def test_the_page_names_those_that_are_refused() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    (block,) = re.findall(r"<!-- not of Java's client -->\n```text\n(.*?)```", page, re.S)
    assert set(block.split()) == NOT_OF_JAVA


@pytest.mark.parametrize("kind", ["PKCS1", "PKCS8"])
@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP521R1()),
    ],
)
def test_keys_of_older_forms_become_those_that_java_reads(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kind: str
) -> None:
    form = {
        "PKCS1": serialization.PrivateFormat.TraditionalOpenSSL,
        "PKCS8": serialization.PrivateFormat.PKCS8,
    }
    no_password = serialization.NoEncryption()
    given = key.private_bytes(serialization.Encoding.PEM, form[kind], no_password).decode()
    found = settings(ssl__key__pem=given, ssl__certificate__pem="certificate")["ssl.keystore.key"]
    assert found.startswith("-----BEGIN PRIVATE KEY-----\n")
    read = serialization.load_pem_private_key(found.encode(), None)
    assert read.private_numbers() == key.private_numbers()  # type: ignore[union-attr]


def test_tokens_are_fetched_by_java_itself(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    found = settings(
        sasl__mechanism="OAUTHBEARER",
        sasl__oauthbearer__method="oidc",
        sasl__oauthbearer__token__endpoint__url="https://issuer/token",
        sasl__oauthbearer__client__id="me",
        sasl__oauthbearer__client__secret='a"b',
        https__ca__location=str(file),
    )
    assert found["sasl.jaas.config"].endswith(
        'OAuthBearerLoginModule required clientId="me" clientSecret="a\\"b"'
        ' ssl.truststore.certificates="-----BEGIN CERTIFICATE-----\\nabc\\n'
        '-----END CERTIFICATE-----\\n" ssl.truststore.type="PEM";'
    )
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://issuer/token"
    assert found["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")


def test_without_authorities_those_of_the_machine_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not those that a Java comes with. Only the name of the file is sent to executors."""
    there = tmp_path / "there.pem"
    there.touch()
    monkeypatch.setattr(java, "AUTHORITIES", (str(tmp_path / "none.pem"), str(there)))
    found = settings(security__protocol="ssl")
    assert found["ssl.truststore.type"] == "PEM"
    assert found["ssl.truststore.location"] == str(there)
    assert "ssl.truststore.location" not in settings()


def test_validate_names_a_setting_that_java_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no secret: passwords and keys are for the machine that runs the file."""
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(pipeline_text())
    Path("onceflow.yaml").write_text(
        "client: {queued.min.messages: 1, ssl.crl.location: x}\n"
        "tls: {ca_file: none.pem}\n"
        "sasl: {mechanism: PLAIN, username: me, password_file: none}\n"
    )
    done = CliRunner().invoke(build_app(), ["validate", "pipeline.yaml"])
    assert done.exit_code == ConfigError.exit_code
    for name in ("queued.min.messages", "ssl.crl.location"):
        assert f"{name}: Kafka's Java client" in " ".join(done.stdout.split())
