"""From a Connection to librdkafka settings: what every client of ours has in common.

In rising order: the defaults below, the user's properties, and the settings that the caller's
correctness depends on, which nobody can override.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from onceflow.contracts.connector import Connection

Setting: TypeAlias = str | int | float | bool
Settings: TypeAlias = dict[str, Setting]

READER_GROUP = "onceflow.reader"
"""Required by librdkafka, which also looks for its coordinator; partitions are assigned by hand, so
nobody ever joins it."""

_NO_SETTINGS: Mapping[str, Setting] = {}

_DEFAULTS: Mapping[str, Setting] = {
    "client.id": "onceflow",
    # Errors reach us as errors; librdkafka's own lines on stderr would tear the live panel. Not a
    # Python logger: its lines wait for a poll, and a worker's would be seen by nobody.
    "log_level": 2,
    # The default of 10 s would turn a restart of a broker into a pause of 10 s.
    "reconnect.backoff.max.ms": 1000,
}

_CONSUMER: Mapping[str, Setting] = {
    "group.id": READER_GROUP,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that does not exist is an error to explain, never a place to jump from.
    "auto.offset.reset": "error",
}

_PRODUCER_DEFAULTS: Mapping[str, Setting] = {
    # What a broker takes in one request. Topics have lower limits; by its own default, the client
    # would refuse records that they take.
    "message.max.bytes": 100_000_000,
}
_PRODUCER: Mapping[str, Setting] = {"acks": "all", "enable.idempotence": True}


def consumer_config(
    connection: Connection, overrides: Mapping[str, Setting] = _NO_SETTINGS
) -> Settings:
    """Settings of a read_committed consumer without group membership.

    Args:
        connection: how to reach the brokers.
        overrides: what the caller insists on, even against `connection.properties`.
    """
    return _config(connection, _CONSUMER, overrides)


def producer_config(
    connection: Connection, overrides: Mapping[str, Setting] = _NO_SETTINGS
) -> Settings:
    """Settings of an idempotent producer; `overrides` adds e.g. `transactional.id`."""
    return {**_PRODUCER_DEFAULTS, **_config(connection, _PRODUCER, overrides)}


def admin_config(connection: Connection) -> Settings:
    """Settings of an administrative client."""
    return _config(connection, _NO_SETTINGS, _NO_SETTINGS)


def _config(
    connection: Connection,
    required: Mapping[str, Setting],
    overrides: Mapping[str, Setting],
) -> Settings:
    return {
        **_DEFAULTS,
        **connection.properties,
        **required,
        **overrides,
        "bootstrap.servers": connection.bootstrap_servers,
    }
