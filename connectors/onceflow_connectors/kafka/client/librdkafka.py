"""Makes librdkafka clients, from a `Connection` to their settings.

Settings in rising order: the defaults below, the user's properties, and those on which the caller's
correctness depends, which cannot be overridden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import KafkaException

from onceflow.contracts.connector import Connection
from onceflow_connectors.kafka.client.failures import Operation, failure, kafka_error

Setting: TypeAlias = str | int | float | bool
Settings: TypeAlias = dict[str, Setting]

READER_GROUP = "onceflow.reader"
"""librdkafka requires a group and looks for its coordinator. Partitions are assigned by hand, so no
client ever joins it."""

_Client = TypeVar("_Client")
_NO_SETTINGS: Mapping[str, Setting] = {}

_DEFAULTS: Mapping[str, Setting] = {
    "client.id": "onceflow",
    # Errors reach us as errors; librdkafka's own lines on stderr would tear the live panel. A
    # Python logger would wait for a poll, and the lines of a worker would be lost.
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
    # What a broker takes in one request. Topics have lower limits; with its own default, the client
    # would refuse records that they take.
    "message.max.bytes": 100_000_000,
}
_PRODUCER: Mapping[str, Setting] = {"acks": "all", "enable.idempotence": True}


def consumer_config(
    connection: Connection, overrides: Mapping[str, Setting] = _NO_SETTINGS
) -> Settings:
    """Return settings of a read_committed consumer without group membership.

    `overrides` go before `connection.properties`.
    """
    return _config(connection, _CONSUMER, overrides)


def producer_config(
    connection: Connection, overrides: Mapping[str, Setting] = _NO_SETTINGS
) -> Settings:
    """Return settings of an idempotent producer; `overrides` adds e.g. `transactional.id`."""
    return {**_PRODUCER_DEFAULTS, **_config(connection, _PRODUCER, overrides)}


def admin_config(connection: Connection) -> Settings:
    """Return settings of an administrative client."""
    return _config(connection, _NO_SETTINGS, _NO_SETTINGS)


def _config(
    connection: Connection, required: Mapping[str, Setting], overrides: Mapping[str, Setting]
) -> Settings:
    return {
        **_DEFAULTS,
        **connection.properties,
        **required,
        **overrides,
        "bootstrap.servers": connection.bootstrap_servers,
    }


def open_client(
    kind: Callable[[dict[str, Any]], _Client], settings: Settings, **callbacks: Callable[..., None]
) -> _Client:
    """Make a producer, a consumer or an administrative client.

    Nothing is sent; connections are made in the background.

    Raises:
        ConfigError: a setting is unknown or impossible.
    """
    try:
        return kind({**settings, **callbacks})
    except KafkaException as raised:
        raise failure(
            kafka_error(raised),
            Operation.ADMINISTER,
            "cannot make a Kafka client",
            subject=str(settings.get("bootstrap.servers", "")),
            then="correct the client properties",
        ) from raised
