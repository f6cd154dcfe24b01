"""One set of settings, in the words of kafka-python."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.errors import ConfigError, RetriableError
from onceflow_connectors.kafka_python_settings import TokenProvider, kafka_python_settings
from tests.support.clock import ManualClock
from tests.support.token_endpoint import LASTS_S, TokenEndpoint, answering

BY_TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "jane",
    "sasl.oauthbearer.client.secret": "hush",
}


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


@pytest.mark.parametrize("name", ["ssl.cipher.suites", "sasl.kerberos.keytab"])
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


def test_tokens_do_not_cross_the_network_in_clear_text() -> None:
    told = {**BY_TOKEN, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    with pytest.raises(ConfigError, match="in clear text"):
        kafka_python_settings(told)


def by_token(endpoint: TokenEndpoint) -> dict[str, str]:
    return {
        **BY_TOKEN,
        "sasl.oauthbearer.token.endpoint.url": endpoint.address,
        "https.ca.location": str(endpoint.authority),
    }


def test_a_token_is_kept_until_shortly_before_its_end(tmp_path: Path) -> None:
    clock = ManualClock()
    with answering(TokenEndpoint({"jane": "hush"}), tmp_path) as endpoint:
        provider = TokenProvider(by_token(endpoint), clock)
        first = provider.token()
        assert provider.token() == first
        clock.sleep(LASTS_S - 31)
        assert provider.token() == first
        clock.sleep(2)
        provider.token()
    assert endpoint.issued == ["jane", "jane"]


def test_a_refused_client_is_told_so_without_its_secret(tmp_path: Path) -> None:
    with (
        answering(TokenEndpoint({"jane": "another"}), tmp_path) as endpoint,
        pytest.raises(RetriableError, match="401") as refused,
    ):
        TokenProvider(by_token(endpoint), ManualClock()).token()
    assert "hush" not in str(refused.value)


def test_an_endpoint_that_nobody_vouches_for_gets_no_secret(tmp_path: Path) -> None:
    with answering(TokenEndpoint({"jane": "hush"}), tmp_path) as endpoint:
        told = by_token(endpoint)
        del told["https.ca.location"]
        with pytest.raises(RetriableError, match="CERTIFICATE_VERIFY_FAILED"):
            TokenProvider(told, ManualClock()).token()


def test_the_secret_is_not_sent_where_an_endpoint_points_at(tmp_path: Path) -> None:
    issuer, other = TokenEndpoint({}), TokenEndpoint({"jane": "hush"})
    with answering(issuer, tmp_path) as endpoint, answering(other, tmp_path / "other") as elsewhere:
        endpoint.moved_to = elsewhere.address.replace("https:", "http:")
        with pytest.raises(RetriableError, match="302"):
            TokenProvider(by_token(endpoint), ManualClock()).token()
    assert other.issued == []


def test_an_endpoint_that_is_not_there_is_told() -> None:
    told = {**BY_TOKEN, "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}
    with pytest.raises(RetriableError, match="no token to sign in with"):
        TokenProvider(told, ManualClock()).token()
