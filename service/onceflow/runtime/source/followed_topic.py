"""A topic that is followed in the process that plans a source: it has parameters or a reference.

Its records go into offsets and into the checkpoint, not into Spark, and the planner of a user's own
source has no Spark in its process. So they are read by the client that reads the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.record import Record
from onceflow.contracts.source import Planner, Position, SourceSpec
from onceflow.contracts.source_block import find_source
from onceflow.errors import CorruptionError

READ_TIMEOUT_S = 300.0
"""For all that is new, which at first is the whole topic."""


class FollowedTopic:
    """Plans as a source of Kafka does, and reads what was planned.

    Args:
        what: it has, for messages.
        topic: its name.
        connection: to the pipeline's brokers.
        clock: measures.
    """

    def __init__(self, what: str, topic: str, connection: Connection, clock: Clock) -> None:
        block = find_source("kafka").model_validate({"topics": [topic]})
        self.planner: Planner = block.planner(SourceSpec(what, "binary", pa.schema([])), connection)
        self._broker = find_connector("kafka").broker(connection)
        self._topic, self._clock = topic, clock

    def read(self, start: Position, end: Position) -> Iterator[Record]:
        """Yield the committed records between two positions, partition by partition, in order.

        Raises:
            CorruptionError: some no longer exist, or the topic is another one now.
            DeadlineError: they could not be read in time.
        """
        splits = self.planner.splits(start, end)
        if not splits:
            return
        until = self._clock.within(READ_TIMEOUT_S)
        yield from self._broker.read(
            self._topic, self.planner.ranges(start, end)[self._topic], until
        )
        # Asked last: no topic comes back once another has its name, so all was read of this one.
        found = self._broker.topic_id(self._topic, until)
        if found != splits[0].topic_id:
            raise CorruptionError(
                "a topic was deleted and created again while it was read",
                subject=self._topic,
                expected=f"topic id {splits[0].topic_id}",
                found=f"topic id {found}" if found else "no such topic",
            )

    def close(self) -> None:
        """Let go of connections."""
        self.planner.close()
        self._broker.close()
