"""No consumer can be told to take anybody for the broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest

from onceflow.errors import ConfigError
from onceflow_connectors.consumer import Consumer as ConfluentConsumer
from onceflow_connectors.consumer import FilteringConsumer
from onceflow_connectors.consumer.kafka_python import Consumer as KafkaPythonConsumer


@pytest.mark.parametrize(
    ("flavour", "properties"),
    [
        (ConfluentConsumer, {"enable.ssl.certificate.verification": "false"}),
        (ConfluentConsumer, {"enable.ssl.certificate.verification": False}),
        (ConfluentConsumer, {"ssl.endpoint.identification.algorithm": "none"}),
        (ConfluentConsumer, {"enable.sasl.oauthbearer.unsecure.jwt": "true"}),
        (KafkaPythonConsumer, {"ssl_check_hostname": False}),
        (KafkaPythonConsumer, {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}),
    ],
)
def test_tls_is_verified(
    flavour: Callable[..., FilteringConsumer], properties: dict[str, Any]
) -> None:
    made = flavour("127.0.0.1:1", group="readers", topics=["views"], properties=properties)
    with pytest.raises(ConfigError, match="would let another server pose as the broker"), made:
        pass
