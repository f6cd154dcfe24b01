"""Kafka as a rewindable source: `contracts.source.Source` on librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Capabilities, Position, SourceSpec, Split, TopicRanges
from onceflow_connectors.kafka.source import position as positions
from onceflow_connectors.kafka.source.batches import BatchBuilder, merged
from onceflow_connectors.kafka.source.consumers import leased_reader
from onceflow_connectors.kafka.source.planner import Planner

_CLOCK = SystemClock()


class KafkaSource:
    """Implements `contracts.source.Source`.

    Args:
        spec: what to read.
        connection: how to reach the brokers.
        clock: measures time-outs and the age of metadata.
    """

    def __init__(self, spec: SourceSpec, connection: Connection, clock: Clock = _CLOCK) -> None:
        self._spec = spec
        self._connection = connection
        self._clock = clock
        self._builder: BatchBuilder | None = None
        self._planner: Planner | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Travels without its clients; the copy makes its own."""
        return (KafkaSource, (self._spec, self._connection, self._clock))

    @property
    def capabilities(self) -> Capabilities:
        """A log of which every offset is decided once."""
        return Capabilities(
            is_replayable=True, has_stable_ranges=True, is_ordered=True, tells_silence=True
        )

    def initial_position(self) -> Position:
        """See `Source`."""
        return self._planning().initial_position()

    def latest_position(self, start: Position, max_records: int | None) -> Position:
        """See `Source`. Costs one request if nothing is new, and two if all of it fits."""
        return self._planning().latest_position(start, max_records)

    def is_silent(self, position: Position) -> bool:
        """See `Source`. Costs one request."""
        return self._planning().is_silent(position)

    def freeze_latest(self) -> None:
        """See `Source`."""
        self._planning().freeze()

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        """See `Source`."""
        return positions.ranges(start, end)

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        """See `Source`."""
        known = positions.decode(like) if like is not None else {}
        ids = {topic: at.topic_id for topic, at in known.items()}
        # A pattern may have found a topic with this very batch.
        if missing := ranges.keys() - ids.keys():
            ids |= self._planning().topic_ids(sorted(missing))
        return positions.at_end_of(ranges, ids)

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """See `Source`."""
        return positions.splits(start, end)

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        if self._builder is None:
            self._builder = BatchBuilder(self._spec)
        with leased_reader(self._connection, self._clock) as reader:
            for records in merged(reader.chunks(splits)):
                yield self._builder.batch(records)

    def committed(self, position: Position) -> None:
        """See `Source`. Nothing to free: group offsets are written by the sink's transaction."""

    def close(self) -> None:
        """See `Source`."""
        if self._planner is not None:
            self._planner.close()

    def _planning(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._spec, self._connection, self._clock)
        return self._planner
