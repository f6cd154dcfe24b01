"""An idempotent producer outside transactions: `contracts.sink.Appender` on librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import AbortableError, FencedError, OnceflowError
from onceflow_connectors.kafka.client.librdkafka import Setting, Settings, producer_config
from onceflow_connectors.kafka.sink.outbox import QUEUE, Outbox

NAME = "the appender"

INSISTED: Mapping[str, Setting] = {
    # After a record that fails, none is written: readers see the beginning of a batch.
    "enable.gapless.guarantee": True,
    # No limit: the caller has the deadline. A record that times out alone would leave a gap.
    "message.timeout.ms": 0,
}


class KafkaAppender:
    """Implements `contracts.sink.Appender` on one librdkafka producer, kept until it fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox: Outbox | None = None

    def append(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        if self._outbox is None:
            self._outbox = Outbox(NAME, self._settings())
        try:
            count = self._outbox.put(topic, records, deadline)
            self._outbox.flush(deadline)
        except FencedError as error:
            self.close()
            # The producer id was lost or has expired. No other took it over: it has no name.
            raise AbortableError(error.what, subject=topic, found=error.found) from error
        except OnceflowError as error:
            self.close()
            error.then = "records before it in its partition may have been written"
            raise
        return count

    def close(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.discard()

    def _settings(self) -> Settings:
        return {**QUEUE, **producer_config(self._connection, INSISTED)}
