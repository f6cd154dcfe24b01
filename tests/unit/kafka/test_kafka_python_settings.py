"""One set of settings, in the words of kafka-python."""

from __future__ import annotations

import pytest

from onceflow.errors import ConfigError
from onceflow_connectors.kafka_python_settings import kafka_python_settings


def test_security_is_translated_and_tuning_left_out() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "jane",
        "sasl.password": "hush",
        "ssl.ca.location": "/ca.pem",
        "linger.ms": "5",
    }
    assert kafka_python_settings(given) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "jane",
        "sasl_plain_password": "hush",
        "ssl_cafile": "/ca.pem",
    }


@pytest.mark.parametrize(
    "name", ["ssl.cipher.suites", "sasl.kerberos.keytab", "sasl.oauthbearer.client.id"]
)
def test_what_it_does_not_know_of_security_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: kafka-python has no such setting"):
        kafka_python_settings({name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.password",
        "sasl.oauthbearer.config",
    ],
)
def test_nothing_weakens_tls(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: kafka-python has no such setting"):
        kafka_python_settings({name: "false"})
