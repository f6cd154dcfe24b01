"""Connection settings in the words of kafka-python, from those of librdkafka.

One set of settings describes how to reach the brokers, by librdkafka's names. Both clients read
certificates and keys from the same PEM files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.errors import ConfigError, Fault

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


def kafka_python_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of a kafka-python client that reaches the same brokers in the same way.

    They may hold secrets. Properties that are about neither security nor identity are left out: the
    two clients tune differently.

    Raises:
        ConfigError: there is a setting of security that kafka-python does not have, such as those
            of tokens (OAUTHBEARER).
    """
    untold = [name for name in properties if name.startswith(_FAMILIES) and name not in _NAMES]
    if untold:
        faults = tuple(Fault("kafka-python has no such setting", where=name) for name in untold)
        raise ConfigError("kafka-python cannot reach these brokers", faults=faults)
    return {_NAMES[name]: value for name, value in properties.items() if name in _NAMES}
