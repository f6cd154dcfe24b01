"""The contract of a rewindable source. Plain Python and Arrow, so it can be tested without Spark.

A source turns a *position* (a small JSON object) into records. Spark logs the end position of a
batch before it reads it; whatever a source needs to read the same records again must be in it.
`onceflow.devkit.conformance` checks any implementation against these promises.
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

MAX_RECORDS_OPTION = "max_records_per_batch"
"""Option that every source offers: bound on the records of one batch."""


@dataclass(frozen=True)
class Capabilities:
    """The promises of a source. Exactly once needs the first three.

    Args:
        is_replayable: a split can be read again later, within the retention of the origin.
        has_stable_ranges: the same split always holds the same records.
        is_ordered: a split yields its records in the same order every time.
        tells_silence: `is_silent` can be asked; `idle_after` needs it, exactly once does not.
    """

    is_replayable: bool
    has_stable_ranges: bool
    is_ordered: bool
    tells_silence: bool = False


@dataclass(frozen=True)
class SourceSpec:
    """One entry of `sources` in a pipeline file, after validation.

    Args:
        name: of the view in the query.
        options: the connector's own block, e.g. `topics`, `starting`, `max_records_per_batch`.
        format: how payloads are decoded: json, csv, text, binary, avro.
        format_options: the format's own settings, e.g. an Avro schema.
        schema: the columns that the query uses, in the order that `read` must yield them; names in
            `META_COLUMNS` are filled from the record itself, `REJECT_COLUMN` as described there,
            all others from its payload.
        lateness_ms: how far behind the newest event a record may be. None if the source has no
            event time; its partitions then need not advance together in time.
    """

    name: str
    options: Mapping[str, Any]
    format: str
    schema: pa.Schema
    format_options: Mapping[str, Any] = field(default_factory=dict)
    lateness_ms: int | None = None


@dataclass(frozen=True)
class Split:
    """A range that one task reads. Pickled to the workers.

    Args:
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


class Source(Protocol):
    """Reads one origin in ranges.

    Planning methods run in one process on the driver, `read` in many workers; an instance is
    pickled to each of them before its first use and shares nothing with the others.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this source."""

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

        Args:
            start: end of the previous batch, or None if there is none.
            end: end of this batch, as logged.
        """

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        """The position at the end of `ranges`, naming the start of each of them; for repairs.

        Args:
            like: a position of this source, for what ranges lack (topic ids). What it lacks too is
                looked up; all of it if None.
            ranges: of one batch, as `ranges` returned them.
        """

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Cut a batch into tasks; pure: a replay gets the same splits."""

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

    def committed(self, position: Position) -> None:
        """Everything before `position` is durable in the output. May free resources."""

    def close(self) -> None:
        """Close connections. The instance is not used again."""
