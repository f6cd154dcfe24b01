"""An idempotent producer outside transactions: `contracts.sink.Appender` on librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import AbortableError, FencedError, OnceflowError
from onceflow_connectors.kafka.client.properties import Setting, Settings, producer_config
from onceflow_connectors.kafka.sink.outbox import QUEUE, Outbox

NAME = "the appender"

INSISTED: Mapping[str, Setting] = {
    # Where a record fails, none behind it is written: what a reader sees of a batch is a beginning.
    "enable.gapless.guarantee": True,
    # For ever: the caller has the deadline. A record that times out alone would leave a gap.
    "message.timeout.ms": 0,
}


class KafkaAppender:
    """Implements `contracts.sink.Appender` on one librdkafka producer, kept until it fails.

    Args:
        connection: how to reach the brokers; its properties go before `QUEUE`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox: Outbox | None = None

    def append(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        """See `Appender`."""
        if self._outbox is None:
            self._outbox = Outbox(NAME, self._settings())
        try:
            count = self._outbox.put(topic, records, deadline)
            self._outbox.flush(deadline)
        except FencedError as error:
            self.close()
            # Its producer id was lost or has expired. Nobody took it over: it has no name.
            raise AbortableError(error.what, subject=topic, found=error.found) from error
        except OnceflowError as error:
            self.close()
            error.then = "records before it in its partition may have been written"
            raise
        return count

    def close(self) -> None:
        """See `Appender`."""
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.discard()

    def _settings(self) -> Settings:
        return {**QUEUE, **producer_config(self._connection, INSISTED)}
