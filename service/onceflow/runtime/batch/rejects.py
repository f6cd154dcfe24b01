"""Handles records that no query sees, and rows that the output topic does not take.

Counting them costs no pass over the data. Only a batch that has some reads its exact range again,
and only if they are to be kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onceflow.contracts.sink import OutputRecord
from onceflow.contracts.source import META_COLUMNS
from onceflow.errors import CorruptionError, RecordError
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.query.rejects import REASON_COLUMN, Reason, with_reason
from onceflow.protocol.dead_letter import NOWHERE, DeadLetter, in_order
from onceflow.protocol.digest import Row
from onceflow.runtime.batch.executed import Execution
from onceflow.runtime.records.output import collect
from onceflow.runtime.records.rows import KEY_COLUMN, VALUE_COLUMN, size_bytes

RECORD_OVERHEAD_BYTES = 150
"""Added by a record batch with a single record to its key and value: 61 of the batch, the
rest of the record, of which the header is the most."""


@dataclass(frozen=True)
class RejectDesk:
    """Finds them, and makes dead letters of them."""

    pipeline: Pipeline
    reread: Callable[[str, Execution], DataFrame]
    partitions: Mapping[str, int]
    letter_bytes: Mapping[str, int]
    max_result_bytes: int
    max_record_bytes: Callable[[], int]
    """Looks up the output topic's limit, when a record was refused."""

    def recounted(self, execution: Execution) -> Execution:
        """The same with counts that are exact; reads the range again only if they are doubtful."""
        if not execution.is_doubtful:
            return execution
        counts = {**execution.counts}
        for source in execution.positions:
            marked = self._marked(source, execution)
            both = marked.agg(F.count(F.lit(1)).alias("read"), F.count(REASON_COLUMN).alias("not"))
            (row,) = collect(both, self.max_result_bytes).to_pylist()
            counts[source] = row["read"], row["not"]
        return replace(execution, counts=counts)

    def of_input(self, execution: Execution, batch_id: int) -> list[DeadLetter]:
        """The rejected records of a batch; none where they are only counted.

        Raises:
            RecordError: the pipeline wants to stop at the first one; names it.
            CorruptionError: they cannot be read a second time.
        """
        letters = []
        for source, (_, rejected) in execution.counts.items():
            policy = self.pipeline.on_reject(source)
            if rejected == 0 or policy == "drop":
                continue
            found = self._read_again(source, execution, batch_id)
            if len(found) != rejected:
                raise _unreadable(source, batch_id, rejected, len(found))
            if policy == "fail":
                raise _refusal(found[0])
            letters += found
        return letters

    def of_steps(self, execution: Execution, batch_id: int) -> list[DeadLetter]:
        """Letters of records that processors failed on; none where they are only counted.

        A record of this batch is sent as it came. One that has waited for the event watermark, or
        that a query made, is sent as JSON.

        Raises:
            CorruptionError: they cannot be read a second time.
        """
        letters = []
        for step, texts in execution.step_rejects.items():
            if texts and self.pipeline.on_reject_by_step(step) == "dead_letter":
                letters += self._of_step(step, [*map(json.loads, texts)], execution, batch_id)
        return letters

    def _of_step(
        self, step: str, told: Sequence[Mapping[str, Any]], execution: Execution, batch_id: int
    ) -> list[DeadLetter]:
        block, clock_ms = self.pipeline.process[step], execution.batch_timestamp_ms
        source = block.input
        if source not in self.pipeline.sources or block.when == "watermark":
            return [self._of_row(each, step, batch_id, clock_ms) for each in told]
        texts = {_place_of(each): each["text"] for each in told}
        frame = self.reread(source, execution).select(
            *_RECORD_COLUMNS, F.unix_millis("_timestamp").alias("timestamp_ms")
        )
        wanted = reduce(
            or_,
            (
                (F.col("_topic") == topic)
                & (F.col("_partition") == number)
                & F.col("_offset").isin(offsets)
                for (topic, number), offsets in _by_partition(texts).items()
            ),
        )
        rows = collect(frame.filter(wanted), self.max_result_bytes).to_pylist()
        if len(rows) != len(texts):
            raise _unreadable(source, batch_id, len(texts), len(rows))
        code = Reason.PROCESSOR_FAILED.value
        return in_order(
            letter_of(
                {**row, "source": source},
                code,
                texts[_place_of(row, "_")],
                self.pipeline.name,
                batch_id,
            )
            for row in rows
        )

    def _of_row(
        self, told: Mapping[str, Any], step: str, batch_id: int, clock_ms: int
    ) -> DeadLetter:
        return DeadLetter(
            key=None,
            value=json.dumps(told["row"], sort_keys=True).encode(),
            headers=(),
            reason=Reason.PROCESSOR_FAILED.value,
            text=told["text"],
            pipeline=self.pipeline.name,
            batch_id=batch_id,
            source=step,
            topic=told.get("topic", ""),
            partition=told.get("partition", NOWHERE),
            offset=told.get("offset", NOWHERE),
            timestamp_ms=clock_ms,
        )

    def without_null_keys(self, table: pa.Table) -> tuple[pa.Table, Sequence[Row]]:
        """Part the rows that have a key from those that must have one and have not.

        Raises:
            RecordError: the pipeline wants to stop at such a row.
        """
        is_keyed = self.pipeline.sink.kafka.key is not None
        if not is_keyed or not (nulls := table.column(KEY_COLUMN).null_count):
            return table, ()
        sink = self.pipeline.sink.kafka.topic
        if self.pipeline.on_reject_by_sink == "fail":
            raise RecordError(
                "the key column is null",
                subject=f"output topic {sink}",
                expected="a key in every row",
                found=f"{nulls} rows without one",
                then="stopping; nothing of this batch was written; filter them, use coalesce(), or"
                " see `on_reject`",
            )
        has_key = pc.is_valid(table.column(KEY_COLUMN))
        refused = table.filter(pc.invert(has_key)).column(VALUE_COLUMN).to_pylist()
        return table.filter(has_key), [(NOWHERE, None, value) for value in sorted(refused)]

    def too_large(self, rows: Sequence[Row], refusal: RecordError) -> Sequence[Row]:
        """Find the rows that the output topic may have refused for their size; none under `fail`.

        Or if something else was refused, such as the timestamp: rows that compress well may be
        larger than the limit and fit.

        A broker measures what arrives, compressed, and names one record only. So all rows that are
        larger than its limit before they are compressed are meant.
        """
        is_size = any(code in refusal.found for code in _SIZE_CODES)
        if self.pipeline.on_reject_by_sink == "fail" or not is_size:
            return ()
        limit_bytes = self.max_record_bytes() - RECORD_OVERHEAD_BYTES
        return [row for row in rows if size_bytes(row) > limit_bytes]

    def of_output(
        self, rows: Iterable[Row], reason: Reason, batch_id: int, clock_ms: int
    ) -> list[DeadLetter]:
        """Letters of rows that the output topic does not take; none where they are only counted."""
        if self.pipeline.on_reject_by_sink != "dead_letter":
            return []
        return [
            DeadLetter(
                key=key,
                value=value,
                headers=(),
                reason=reason.value,
                text=_SINK_TEXTS[reason],
                pipeline=self.pipeline.name,
                batch_id=batch_id,
                source="",
                topic=self.pipeline.sink.kafka.topic,
                partition=NOWHERE,
                offset=NOWHERE,
                timestamp_ms=clock_ms,
            )
            for _, key, value in rows
        ]

    def records(
        self, letters: Sequence[DeadLetter], clock_ms: int
    ) -> Mapping[str, Sequence[OutputRecord]]:
        """Encode letters as records for their topics.

        With the batch's clock as timestamp: under its own, a broker may delete it at once.
        """
        found = {}
        for block, is_late in ((self.pipeline.dead_letter, False), (self.pipeline.late, True)):
            own = [each for each in letters if (each.reason == Reason.LATE) is is_late]
            if block is not None and own:
                found[block.topic] = self._records(own, block.topic, clock_ms)
        return found

    def _records(
        self, letters: Sequence[DeadLetter], topic: str, clock_ms: int
    ) -> Sequence[OutputRecord]:
        partitions = self.partitions[topic]
        limit_bytes = self.letter_bytes[topic] - RECORD_OVERHEAD_BYTES
        return [
            OutputRecord(
                letter.partition_of(partitions),
                letter.key,
                letter.value,
                timestamp_ms=clock_ms,
                more_headers=letter.to_headers(),
            )
            for letter in (each.within(limit_bytes) for each in in_order(letters))
        ]

    def _read_again(self, source: str, execution: Execution, batch_id: int) -> list[DeadLetter]:
        rejected = (
            self._marked(source, execution)
            .filter(F.col(REASON_COLUMN).isNotNull())
            .select(*_COLUMNS, F.unix_millis("_timestamp").alias("timestamp_ms"))
        )
        table = collect(rejected, self.max_result_bytes)
        return in_order(self._letters(table, source, batch_id))

    def _marked(self, source: str, execution: Execution) -> DataFrame:
        frame = self.reread(source, execution)
        clock = F.timestamp_millis(F.lit(execution.batch_timestamp_ms))
        return with_reason(self.pipeline.sources[source], frame, clock)

    def _letters(self, table: pa.Table, source: str, batch_id: int) -> Iterator[DeadLetter]:
        for row in table.to_pylist():
            code, _, text = row[REASON_COLUMN].partition(": ")
            record = {**row, "source": source}
            yield letter_of(record, code, text, self.pipeline.name, batch_id)


_SIZE_CODES = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE")
_RECORD_COLUMNS = tuple(name for name in META_COLUMNS if name != "_timestamp")
_COLUMNS = (*_RECORD_COLUMNS, REASON_COLUMN)
_SINK_TEXTS: Mapping[Reason, str] = {
    Reason.NULL_KEY: "the key column is null",
    Reason.TOO_LARGE: "the output topic refused a record of this batch for its size",
}


def _place_of(record: Mapping[str, Any], prefix: str = "") -> tuple[str, int, int]:
    topic, partition, offset = (record[prefix + name] for name in ("topic", "partition", "offset"))
    return topic, partition, offset


def _by_partition(
    places: Iterable[tuple[str, int, int]],
) -> Mapping[tuple[str, int], Sequence[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in places:
        found.setdefault((topic, partition), []).append(offset)
    return found


def _unreadable(source: str, batch_id: int, expected: int, found: int) -> CorruptionError:
    return CorruptionError(
        "rejected records cannot be read a second time",
        subject=f"source {source}, batch {batch_id}",
        expected=f"{expected} records",
        found=f"{found}",
        then="nothing of this batch was written; did retention overtake it?",
    )


def letter_of(
    record: Mapping[str, Any], reason: str, text: str, pipeline: str, batch_id: int
) -> DeadLetter:
    """Make a letter of a record that was read again, with its columns and its `source`."""
    return DeadLetter(
        key=record["_key"],
        value=record["_value"],
        headers=tuple((str(each["key"]), each["value"]) for each in record["_headers"] or ()),
        reason=reason,
        text=text,
        pipeline=pipeline,
        batch_id=batch_id,
        source=record["source"],
        topic=record["_topic"],
        partition=record["_partition"],
        offset=record["_offset"],
        timestamp_ms=-1 if record["timestamp_ms"] is None else record["timestamp_ms"],
    )


def _refusal(letter: DeadLetter) -> RecordError:
    return RecordError(
        "a record is rejected",
        subject=f"offset {letter.offset} of {letter.topic}-{letter.partition}",
        found=f"{letter.reason}: {letter.text}",
        then="stopping; nothing of this batch was written; see `on_reject`",
    )
