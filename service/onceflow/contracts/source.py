"""The contract of a rewindable source. Plain Python and Arrow, so it can be tested without Spark.

A source has two halves: a `Planner` on the driver, which decides how far each batch reads, and a
`Reader` in the workers, which reads. Both are made by its block (`contracts.source_block`).

A *position* is a small JSON object. Spark logs the end position of a batch before it reads the
batch; all that a source needs to read the same records again must be in it.
`onceflow.testing.sources` checks any implementation against these promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from onceflow.protocol.ledger import Range

Position: TypeAlias = Mapping[str, Any]
"""JSON object. Compared as canonical text: equal positions must be equal JSON."""
TopicRanges: TypeAlias = Mapping[str, Mapping[int, Range]]
"""topic -> partition -> half-open range of offsets."""

META_COLUMNS: Mapping[str, pa.DataType] = {
    "_key": pa.binary(),
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": pa.timestamp("us", tz="UTC"),
    "_value": pa.binary(),
    "_headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""Columns of every source in addition to the decoded payload: the record as it was received."""
REJECT_COLUMN = "_reject"
"""If asked for, a payload that cannot be decoded becomes a row: this column holds the reason, and
those of the payload are null. If not asked for, such a payload is a `RecordError`."""

TICK_COLUMN = "_tick_at"
"""Reserved for ticks, which are not records: no column of a source has this name."""


@dataclass(frozen=True)
class SourceSpec:
    """One entry of `sources` in a pipeline file, but for the block of its kind.

    Args:
        name: of the view in the query.
        format: of the payloads: json, csv, text, binary, avro.
        schema: the columns that the query uses, in the order that `read` must yield them; names in
            `META_COLUMNS` are filled from the record itself, `REJECT_COLUMN` as described there,
            all others from its payload.
        format_options: the format's own settings, e.g. an Avro schema.
        lateness_ms: how far behind the newest event a record may be. None if the source has no
            event time; its partitions then need not advance together in time.
        folder: of the pipeline file: relative paths in the block are relative to it.
    """

    name: str
    format: str
    schema: pa.Schema
    format_options: Mapping[str, Any] = field(default_factory=dict)
    lateness_ms: int | None = None
    folder: str = ""


@dataclass(frozen=True)
class Split:
    """A range that one task reads. Pickled to the workers.

    Args:
        topic: where from. A name with a colon, such as `KIND:PLACE`, unless it is a topic of the
            pipeline's brokers: no topic has a colon in its name, so the two are never mixed up.
        partition: of the topic.
        start: first offset to read.
        end: next offset to read after this split; `start < end`.
        topic_id: of the topic that the split was planned for, so that a new topic of the same name
            is not read; empty if the origin has no ids.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""


class Planner(Protocol):
    """Decides what each batch reads. Lives in one process, on the driver."""

    def initial_position(self) -> Position:
        """Where a new pipeline starts, after the user's `starting`.

        Called again if batch 0 replays.

        Raises:
            ConfigError: the origin does not exist, or `starting` cannot be resolved.
        """

    def latest_position(self, start: Position, max_records: int | None) -> Position:
        """How far the next batch, which begins at `start`, may read.

        Guaranteed: every record before it is decided (committed or aborted); `start` itself,
        unchanged, if there is nothing new; never a partition behind `start`; the start of every
        partition that enters. If `start` came from `initial_position`, all of them enter, so that
        `splits` no longer depends on `start`. Does not wait for something new: the caller asks
        again.

        Args:
            start: where the batch begins.
            max_records: bound on the records of the batch, or None. Offsets without a record count.

        Raises:
            CorruptionError: the origin was deleted and created again, or is shorter than `start`.
        """

    def is_silent(self, position: Position) -> bool:
        """Whether there is nothing beyond `position`, not even an undecided record.

        Called from time to time while `latest_position` finds nothing new, and only if
        `Capabilities.tells_silence`.
        """

    def freeze_latest(self) -> None:
        """From now on, keep `latest_position` within what exists now."""

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        """Ranges between two positions, one for every partition of `end`, also if empty. Pure.

        `start` is the end of the previous batch, or None if there is none.
        """

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        """The position at the end of `ranges`, naming the start of each of them; for repairs.

        What ranges lack (topic ids) comes from `like`, a position of this source; what that lacks
        too is looked up.
        """

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Cut a batch into tasks; pure: a replay gets the same splits."""

    def close(self) -> None:
        """Let go of connections. The planner is not used again."""


class Reader(Protocol):
    """Reads what was planned. Lives in a worker, for one task, and shares nothing with others."""

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Read splits one after the other, each in offset order, with the columns of the spec.

        Guaranteed: exactly the committed records of the ranges; the same rows every time.

        Raises:
            RecordError: a payload cannot be decoded, and `REJECT_COLUMN` is not asked for; names
                topic, partition and offset.
            CorruptionError: part of the range no longer exists (retention), or the topic was
                deleted and created again; names the range and the cure.
            DeadlineError: the range could not be read to its end in time.
        """
