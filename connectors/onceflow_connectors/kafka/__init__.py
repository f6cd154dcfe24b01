"""Apache Kafka: source, transactional sink, ledger and look-ups, on librdkafka."""

from onceflow_connectors.kafka.connector import connector

__all__ = ["connector"]
