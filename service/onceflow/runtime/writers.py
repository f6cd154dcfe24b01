"""Makes the clients that write output, within the limits of the topic and of a batch's budget."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.contracts.connector import Connection, Connector, TopicInfo
from onceflow.contracts.sink import Appender, Incarnation
from onceflow.runtime.topic_settings import max_bytes

DEFAULT_BATCH_BYTES = 1_000_000
"""librdkafka's own."""
RECORD_LIMIT_PROPERTY = "message.max.bytes"
TIMEOUT_PROPERTY = "transaction.timeout.ms"


def record_limit_bytes(topic: TopicInfo | None, connection: Connection) -> int:
    """Largest record that can be written to a topic: by its limit, or a lower one of the client."""
    limit_bytes = max_bytes(topic)
    return min(limit_bytes, int(connection.properties.get(RECORD_LIMIT_PROPERTY, limit_bytes)))


@dataclass
class Writers:
    """What writes for one run.

    Args:
        connector: makes it.
        connection: of the user.
        transaction_timeout_s: what one batch may take.
        max_batch_bytes: of a request; the topic's limit is on requests of the client, which does
            not split them.
    """

    connector: Connector
    connection: Connection
    transaction_timeout_s: float
    max_batch_bytes: int = DEFAULT_BATCH_BYTES

    @property
    def timeout_ms(self) -> int:
        """Kafka's limit for an open transaction: what one batch may take."""
        return int(self.transaction_timeout_s * 1000)

    def incarnation(self, transactional_id: str) -> Incarnation:
        """A fresh one."""
        return self.connector.incarnation(transactional_id, self._writing())

    def appender(self) -> Appender:
        """A fresh one."""
        return self.connector.appender(self._writing())

    def _writing(self) -> Connection:
        properties = {
            **self.connection.properties,
            TIMEOUT_PROPERTY: str(self.timeout_ms),
            "batch.size": str(min(DEFAULT_BATCH_BYTES, self.max_batch_bytes)),
        }
        return Connection(self.connection.bootstrap_servers, properties)
