"""Makes librdkafka clients; settings that it refuses become ConfigError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from onceflow_connectors.kafka.client.failures import Operation, failure, kafka_error
from onceflow_connectors.kafka.client.properties import Settings

_Client = TypeVar("_Client")
_NO_CALLBACKS: Mapping[str, Callable[..., None]] = {}


def open_producer(settings: Settings, callbacks: Mapping[str, Callable[..., None]]) -> Producer:
    """Make a producer. Nothing is sent; connections are made in the background.

    Raises:
        ConfigError: a setting is unknown or impossible.
    """
    return _open(Producer, {**settings, **callbacks})


def open_consumer(
    settings: Settings, callbacks: Mapping[str, Callable[..., None]] = _NO_CALLBACKS
) -> Consumer:
    """Make a consumer; as `open_producer`."""
    return _open(Consumer, {**settings, **callbacks})


def open_admin(settings: Settings, callbacks: Mapping[str, Callable[..., None]]) -> AdminClient:
    """Make an administrative client; as `open_producer`."""
    return _open(AdminClient, {**settings, **callbacks})


def _open(kind: Callable[[dict[str, Any]], _Client], settings: dict[str, Any]) -> _Client:
    try:
        return kind(settings)
    except KafkaException as raised:
        raise failure(
            kafka_error(raised),
            Operation.ADMINISTER,
            "cannot make a Kafka client",
            subject=str(settings.get("bootstrap.servers", "")),
            then="correct the client properties",
        ) from raised
