"""Makes sure, batch by batch, that the output topic is still the one that the ledger knows."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.clock import Clock
from onceflow.contracts.connector import Broker
from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow.protocol.ledger import SinkState

MISSING_FOR_S = 5.0
"""How long a topic must be missing before we believe it: a broker that has just come back may not
know every topic yet."""
LOOK_INTERVAL_S = 0.2


@dataclass(frozen=True)
class OutputTopic:
    """The topic that a pipeline was registered with.

    Clients write to topics by name. One that was deleted and created again takes the next batch
    silently, although everything committed before is gone.
    """

    broker: Broker
    clock: Clock
    look_up_timeout_s: float

    def check(self, sink: SinkState) -> None:
        """Compare; one request to a broker.

        A topic that is replaced between this look and the commit of the batch is noticed at the
        next look, and by consumers, which see a gap in the sequences.

        Raises:
            CorruptionError: it is gone, or another one. Nothing was written.
            DeadlineError: no broker answered in time.
        """
        if not sink.topic_id:
            return
        found = self._find(sink.topic)
        if found != sink.topic_id:
            raise CorruptionError(
                "the output topic was deleted"
                + (" and created again: what was committed is gone" if found else ""),
                subject=sink.topic,
                expected=f"topic id {sink.topic_id}, as recorded in the ledger",
                found=f"topic id {found}" if found else "no such topic",
                then="halting; nothing of this batch was written;"
                f" to write the output again, {NEW_GENERATION}",
            )

    def _find(self, topic: str) -> str | None:
        patience = self.clock.within(MISSING_FOR_S)
        while True:
            deadline = self.clock.within(self.look_up_timeout_s)
            found = self.broker.topic_id(topic, deadline)
            if found is not None or patience.is_over:
                return found
            self.clock.sleep(LOOK_INTERVAL_S)
