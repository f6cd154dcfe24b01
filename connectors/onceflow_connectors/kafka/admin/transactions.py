"""Finds the transactions that hold a last stable offset, with kafka-python.

librdkafka lacks the requests of KIP-664: the leader of a partition knows its open transactions by
producer id, the coordinators know the transactional ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, OpenTransaction
from onceflow.errors import ConfigError, DeadlineError
from onceflow_connectors.kafka_python_settings import kafka_python_settings

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

MIN_TIMEOUT_S = 1.0
_WHAT = "cannot look up open transactions"


def open_transactions(
    connection: Connection, topic: str, partitions: Sequence[int], deadline: Deadline
) -> Sequence[OpenTransaction]:
    """Implements `Broker.open_transactions`."""
    with _administration(connection, deadline) as admin:
        from kafka.structs import TopicPartition  # noqa: PLC0415  an extra

        places = [TopicPartition(topic, partition) for partition in partitions]
        producers = {
            (place.partition, producer.producer_id): producer
            for place, found in admin.describe_producers(places).items()
            for producer in found.active_producers
            if producer.current_transaction_start_offset >= 0
        }
        ids = [producer_id for _, producer_id in producers]
        listed = admin.list_transactions(producer_id_filters=ids) if ids else {}
        names = {
            one.producer_id: one.transactional_id for every in listed.values() for one in every
        }
        described = admin.describe_transactions(names.values())
    found = []
    for (partition, producer_id), producer in producers.items():
        name = names.get(producer_id)
        known = described.get(name)
        if known is not None and known.producer_epoch != producer.producer_epoch:
            known = None  # it has gone on to others, and will not end this one
        transaction = OpenTransaction(
            topic=topic,
            partition=partition,
            start_offset=producer.current_transaction_start_offset,
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=producer.producer_epoch,
            started_ms=known.transaction_start_time_ms if known else producer.last_timestamp,
            timeout_ms=known.transaction_timeout_ms if known else None,
            coordinator=known.coordinator_id if known else None,
        )
        found.append(transaction)
    return sorted(found, key=lambda transaction: transaction.started_ms)


@contextmanager
def _administration(connection: Connection, deadline: Deadline) -> Iterator[KafkaAdminClient]:
    try:
        import kafka  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigError(
            _WHAT,
            subject=connection.bootstrap_servers,
            expected="the package kafka-python",
            then="pip install 'onceflow[kafka-python]', or ask kafka-transactions.sh",
        ) from None
    timeout_ms = int(max(MIN_TIMEOUT_S, deadline.remaining_s()) * 1000)
    try:
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=connection.bootstrap_servers.split(","),
            bootstrap_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            **kafka_python_settings(connection.properties),
        )
        try:
            yield admin
        finally:
            admin.close()
    except kafka.errors.KafkaError as error:
        kind = DeadlineError if getattr(error, "retriable", False) else ConfigError
        raise kind(_WHAT, subject=connection.bootstrap_servers, found=str(error)) from error
