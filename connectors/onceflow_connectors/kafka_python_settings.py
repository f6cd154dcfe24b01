"""Connection settings in the words of kafka-python, from those of librdkafka.

One set of settings describes how to reach the brokers, by librdkafka's names. Both clients read
certificates and keys from the same PEM files.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from onceflow.clock import Clock, SystemClock
from onceflow.errors import ConfigError, Fault, RetriableError

_NAMES: Mapping[str, str] = {
    "client.id": "client_id",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""Settings by librdkafka's name -> by kafka-python's."""
_FAMILIES = ("enable.ssl.", "sasl.", "ssl.")
"""Beginnings of settings without which a secured broker may not be reached."""
_TOKENS = "sasl.oauthbearer."
_AUTHORITIES = "https.ca.location"
_TOKEN_NAMES = frozenset(
    _TOKENS + name
    for name in ("method", "client.id", "client.secret", "token.endpoint.url", "scope")
)
_ENDPOINT = f"{_TOKENS}token.endpoint.url"
TOKEN_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 256 * 1024
"""Of the token endpoint; a token has a few thousand."""
RENEWED_BEFORE_S = 30.0
"""A token is not used any more so shortly before it ends."""


def kafka_python_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Settings of a kafka-python client that reaches the same brokers in the same way.

    Args:
        properties: by librdkafka's names, such as `Connection.properties`. Those that are about
            neither security nor identity are left out: the two clients tune differently.

    Returns:
        Keyword arguments of `KafkaConsumer` and the like; may hold secrets.

    Raises:
        ConfigError: there is a setting of security that kafka-python does not have, or tokens would
            come from an endpoint without TLS.
    """
    untold = [
        name
        for name in properties
        if name.startswith(_FAMILIES) and name not in _NAMES and name not in _TOKEN_NAMES
    ]
    if not properties.get(_ENDPOINT, "https:").startswith("https:"):
        raise ConfigError(
            "tokens would cross the network in clear text",
            subject=_ENDPOINT,
            expected="`https://...`",
        )
    if untold:
        faults = tuple(Fault("kafka-python has no such setting", where=name) for name in untold)
        raise ConfigError("kafka-python cannot reach these brokers", faults=faults)
    settings: dict[str, Any] = {
        _NAMES[name]: value for name, value in properties.items() if name in _NAMES
    }
    if any(name in _TOKEN_NAMES for name in properties):
        from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415  an extra

        AbstractTokenProvider.register(TokenProvider)
        settings["sasl_oauth_token_provider"] = TokenProvider(properties, SystemClock())
    return settings


class TokenProvider:
    """Fetches tokens by client credentials (RFC 6749, section 4.4), as librdkafka does by itself.

    Args:
        properties: `sasl.oauthbearer.*` by librdkafka's names.
        clock: to know when a token ends.
    """

    def __init__(self, properties: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._settings = {name.removeprefix(_TOKENS): value for name, value in properties.items()}
        self._authorities = properties.get(_AUTHORITIES)
        self._token = ""
        self._ends_s = 0.0

    def token(self) -> str:
        """A token that is good for a while.

        Raises:
            RetriableError: the token endpoint does not answer, or not with a token.
        """
        if self._clock.monotonic_s() >= self._ends_s:
            answer = self._ask()
            self._token = str(answer["access_token"])
            lasts_s = float(answer.get("expires_in", 0))
            self._ends_s = self._clock.monotonic_s() + lasts_s - RENEWED_BEFORE_S
        return self._token

    def extensions(self) -> Mapping[str, str]:
        """None: asked for by kafka-python."""
        return {}

    def _ask(self) -> Mapping[str, Any]:
        told = self._settings
        endpoint = told["token.endpoint.url"]
        words = {"grant_type": "client_credentials"}
        if "scope" in told:
            words["scope"] = told["scope"]
        who = f"{told['client.id']}:{told['client.secret']}".encode()
        request = urllib.request.Request(  # noqa: S310  https only
            endpoint,
            data=urllib.parse.urlencode(words).encode(),
            headers={"Authorization": f"Basic {base64.b64encode(who).decode()}"},
        )
        context = ssl.create_default_context(cafile=self._authorities)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )
        try:
            with opener.open(request, timeout=TOKEN_TIMEOUT_S) as reply:
                answer = json.loads(reply.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            error.close()
            raise _no_token(endpoint, str(error)) from error
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise _no_token(endpoint, str(error)) from error
        if not isinstance(answer, dict) or "access_token" not in answer:
            raise _no_token(endpoint, "an answer without `access_token`")
        return answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret goes to the endpoint that was named, and to nobody it points at."""

    def redirect_request(self, *_: object) -> None:
        """None: urllib takes the answer for a failure."""


def _no_token(endpoint: str, found: str) -> RetriableError:
    return RetriableError(
        "no token to sign in with", subject=endpoint, expected="a JSON answer", found=found
    )
