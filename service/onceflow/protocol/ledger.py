"""The two entries of the ledger, `owner` and `head`: their fields, their JSON and its checks.

The ledger is the only truth about what was committed. Its values are canonical JSON (sorted keys,
no blanks), so that equal entries are equal bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from onceflow.errors import CorruptionError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.order import SORTED, Order
from onceflow.protocol.record import FIRST_SEQUENCE, BatchOrder
from onceflow.protocol.references import ReferenceVersion, versions_from_json, versions_to_json
from onceflow.protocol.state_sample import StateSample

OWNER_KEY = b"owner"
HEAD_KEY = b"head"
VERSION = 1
NOTHING_COMMITTED = -1
"""`batch_id` of a head that was registered and has no batch yet."""
FIRST_GENERATION = 1

Range: TypeAlias = tuple[int, int]
"""Half-open range of source offsets: first to read, next to read."""
SourceRanges: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Range]]]
"""source name -> topic -> partition -> range. Every partition of the position, also empty ones."""


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no blanks: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True)
class OwnerEntry:
    """The driver that may write.

    Args:
        token: one more than the previous owner's; from 1.
        run_id: of the take-over attempt. A driver is the owner if and only if this is its own.
        host, started_at_ms: of the claimer, when it claimed; for people.
        max_layout: covers every lane that any owner so far has used.
    """

    token: FencingToken
    run_id: str
    host: str
    started_at_ms: int
    max_layout: Layout

    def to_json(self) -> bytes:
        """Encode as canonical JSON."""
        return canonical_json(
            {
                "v": VERSION,
                "token": self.token,
                "run_id": self.run_id,
                "host": self.host,
                "started_at_ms": self.started_at_ms,
                "max_slots": self.max_layout.slots,
                "max_lanes": self.max_layout.lanes,
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> OwnerEntry:
        """Decode. Raises CorruptionError if a field is missing or of another type."""
        fields = _fields(OWNER_KEY, data)
        try:
            layout = Layout(_int(fields["max_slots"]), _int(fields["max_lanes"]))
            return cls(
                FencingToken(_int(fields["token"])),
                _str(fields["run_id"]),
                _str(fields["host"]),
                _int(fields["started_at_ms"]),
                layout,
            )
        except (KeyError, TypeError) as error:
            raise _unreadable(OWNER_KEY, data) from error


@dataclass(frozen=True)
class RecordCounts:
    """Counts of records.

    Args:
        read: input records from the sources.
        late: of `read`, records older than the event watermark.
        rejected: of `read`, records kept from the query.
        written: output records.
        refused: rows of the result that the output topic did not take.
        diverged: rows that a replay computed differently from what was committed.
        duplicates: of `read`, records kept from the query because it had seen one with their key.
    """

    read: int = 0
    late: int = 0
    rejected: int = 0
    written: int = 0
    refused: int = 0
    diverged: int = 0
    duplicates: int = 0

    def of_replays(self) -> RecordCounts:
        """Keep only the counts that a replay needs, so that nothing is counted twice."""
        return RecordCounts(refused=self.refused, diverged=self.diverged)

    def __add__(self, other: RecordCounts) -> RecordCounts:
        """Add each count."""
        mine, more = asdict(self), asdict(other)
        return RecordCounts(**{name: count + more[name] for name, count in mine.items()})


@dataclass(frozen=True)
class SinkState:
    """The output at one point of its history.

    Args:
        partitions: pinned at registration.
        layout: slots and lanes of the writer.
        sequence: partition -> (first, last) sequence of this batch; for a partition that the batch
            did not touch, first is last + 1. Holds every partition that was ever written.
        topic_id: changes when the topic is deleted and created again. Empty in entries of versions
            that did not record it.
    """

    topic: str
    partitions: int
    layout: Layout
    sequence: Mapping[int, Range] = field(default_factory=dict)
    topic_id: str = ""

    def next_sequence(self, partition: int) -> int:
        """Sequence of the next record in `partition`."""
        if partition not in self.sequence:
            return FIRST_SEQUENCE
        return self.sequence[partition][1] + 1

    def advanced(self, counts: Mapping[int, int]) -> SinkState:
        """State after a batch that adds `counts[partition]` records to each partition."""
        sequence = {}
        for partition in sorted({*self.sequence, *counts}):
            first = self.next_sequence(partition)
            sequence[partition] = (first, first + counts.get(partition, 0) - 1)
        return replace(self, sequence=sequence)


@dataclass(frozen=True)
class BatchPlan:
    """Spark's plan of a batch, pinned before it runs; a replay has exactly the same.

    Args:
        event_watermark_ms: Spark's watermark during the batch.
        batch_timestamp_ms: the batch's clock; also the timestamp of its output records.
        parameters: name -> value, as text, for each that is set; the others have their default.
        references: name -> which rows it has.
    """

    sources: SourceRanges
    event_watermark_ms: int
    batch_timestamp_ms: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, ReferenceVersion] = field(default_factory=dict)

    def tag(self) -> int:
        """32-bit mark for record headers: crc32 of the canonical JSON."""
        return zlib.crc32(canonical_json(_plan_json(self)).encode())


NO_PLAN = BatchPlan({}, 0, 0)
"""For a registration, which has no batch yet."""


@dataclass(frozen=True)
class Origin:
    """The batch after which a copy of a checkpoint goes on."""

    pipeline: str
    generation: int
    lineage: int
    batch: BatchKey

    def __str__(self) -> str:
        return f"batch {self.batch.batch_id} of {self.pipeline}, generation {self.generation}"

    @classmethod
    def of(cls, entry: HeadEntry) -> Origin:
        """The position of an entry."""
        return cls(entry.pipeline, entry.generation, entry.lineage, entry.batch)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "pipeline": self.pipeline,
            "generation": self.generation,
            "lineage": self.lineage,
            "query_id": self.batch.query_id,
            "batch_id": self.batch.batch_id,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Origin:
        """Inverse of `to_json`. Raises KeyError or TypeError if a field is not as it should be."""
        return cls(
            _str(value["pipeline"]),
            _int(value["generation"]),
            _int(value["lineage"]),
            BatchKey(_str(value["query_id"]), _int(value["batch_id"])),
        )


@dataclass(frozen=True)
class HeadEntry:
    """The last committed batch of a writer slot: the position of the pipeline.

    Args:
        generation: from 1.
        batch: the batch id is `NOTHING_COMMITTED` after a registration.
        token, run_id: of the owner that wrote the entry.
        sink: the output after the batch.
        records: counts of this batch.
        totals: counts of all batches of this generation; since the last rebuild, if there was one.
        waivers: rules of determinism that were waived when the batch was computed.
        digest: `digest_of` the output rows; empty for a registration.
        plan_hash: sha256 of query, schema and the settings that change results.
        plan_parts: the parts of `plan_hash`, by name; empty in entries of versions without.
        note: why an operator wrote it (new generation, adopt, rebuild); empty for a batch.
        at_risk: output partition -> (first, last) sequence that may never be written: those of this
            batch under at_most_once, where records follow `head`, and of the batches before it back
            to the last one that its writer knew to be written. So a batch is known to be written
            if the next entry does not name it.
        newest_event_ms: newest event time of this and all earlier batches, ticks included. None if
            there was none, and in entries of versions that did not record it.
        lineage: drawn at a registration and kept from then on; 0 if a version without lineages
            registered the pipeline. A new lineage tells readers that sequences began again at 1.
        order: of the batch's records; a replay is compared under it.
        next_order: of the next batch's records, whichever driver writes it.
        origin: what the state was copied from, of another pipeline or of this one; None if it
            never was.
        state: of the query, as of an earlier batch; None if it has none, or it was not sampled yet.
    """

    pipeline: str
    generation: int
    batch: BatchKey
    token: FencingToken
    run_id: str
    plan: BatchPlan
    sink: SinkState
    records: RecordCounts
    digest: str
    plan_hash: str
    note: str = ""
    plan_parts: Mapping[str, str] = field(default_factory=dict)
    totals: RecordCounts = field(default_factory=RecordCounts)
    waivers: tuple[str, ...] = ()
    delivery: Delivery = Delivery.EXACTLY_ONCE
    at_risk: Mapping[int, Range] = field(default_factory=dict)
    newest_event_ms: int | None = None
    lineage: int = 0
    order: Order = SORTED
    next_order: Order = SORTED
    origin: Origin | None = None
    state: StateSample | None = None

    @property
    def is_moved(self) -> bool:
        """Whether the state was copied within the pipeline."""
        return self.origin is not None and self.origin.pipeline == self.pipeline

    @property
    def batch_order(self) -> BatchOrder:
        """Orders the batches of a pipeline."""
        return self.generation, self.batch.batch_id

    def under(self, delivery: Delivery) -> HeadEntry:
        """Set the delivery mode; at most once adds the batch's own records to `at_risk`."""
        if delivery is not Delivery.AT_MOST_ONCE:
            return replace(self, delivery=delivery)
        at_risk = dict(self.at_risk)
        for partition, (first, last) in self.sink.sequence.items():
            if first <= last:
                at_risk[partition] = (at_risk.get(partition, (first, last))[0], last)
        return replace(self, delivery=delivery, at_risk=at_risk)

    def known_to_be_written(self) -> HeadEntry:
        """Clear `at_risk`, once the records were acknowledged."""
        return replace(self, at_risk={})

    def ordering(self, order: Order, token: FencingToken, run_id: str) -> HeadEntry:
        """The same position; the next batches are written in another order."""
        note = f"records are written in another order from here on: {order}"
        return replace(self.written_again(token, run_id, note), next_order=order)

    def diverged(self, token: FencingToken, run_id: str, rows: int) -> HeadEntry:
        """The same position; a replay has computed this many rows differently."""
        note = f"a replay computed {rows} rows differently; what was committed stays"
        again = self.written_again(token, run_id, note)
        totals = self.totals + RecordCounts(diverged=rows)
        return replace(again, records=replace(again.records, diverged=rows), totals=totals)

    def written_again(self, token: FencingToken, run_id: str, note: str) -> HeadEntry:
        """The same position, without the batch's records: those are counted already."""
        return replace(
            self,
            token=token,
            run_id=run_id,
            sink=self.sink.advanced({}),
            records=self.records.of_replays(),
            note=note,
        )

    def to_json(self) -> bytes:
        """Encode as canonical JSON.

        Fields that came later are left out where they say nothing, so that such entries stay as
        they were.
        """
        is_plain = self.delivery is Delivery.EXACTLY_ONCE
        is_sorted = self.order == self.next_order == SORTED
        order = {"batch": self.order.to_json(), "next": self.next_order.to_json()}
        later = {
            "plan_parts": dict(self.plan_parts) or None,
            "waivers": list(self.waivers) or None,
            "delivery": None if is_plain else self.delivery.value,
            "at_risk": _partitions_json(self.at_risk) or None,
            "newest_event_ms": self.newest_event_ms,
            "lineage": self.lineage or None,
            "order": None if is_sorted else order,
            "origin": self.origin.to_json() if self.origin else None,
            "state": asdict(self.state) if self.state else None,
        }
        sink = {
            "topic": self.sink.topic,
            "topic_id": self.sink.topic_id,
            "partitions": self.sink.partitions,
            "slots": self.sink.layout.slots,
            "lanes": self.sink.layout.lanes,
            "sequence": _partitions_json(self.sink.sequence),
        }
        return canonical_json(
            {
                "v": VERSION,
                "pipeline": self.pipeline,
                "generation": self.generation,
                "query_id": self.batch.query_id,
                "batch_id": self.batch.batch_id,
                "token": self.token,
                "run_id": self.run_id,
                **_plan_json(self.plan),
                "sink": sink,
                "records": asdict(self.records),
                "totals": asdict(self.totals),
                "digest": self.digest,
                "plan": self.plan_hash,
                "note": self.note,
                **{name: value for name, value in later.items() if value is not None},
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> HeadEntry:
        """Decode. Raises CorruptionError if a field is missing or of another type."""
        fields = _fields(HEAD_KEY, data)
        newest_ms = fields.get("newest_event_ms")
        try:
            sink = fields["sink"]
            return cls(
                pipeline=_str(fields["pipeline"]),
                generation=_int(fields["generation"]),
                batch=BatchKey(_str(fields["query_id"]), _int(fields["batch_id"])),
                token=FencingToken(_int(fields["token"])),
                run_id=_str(fields["run_id"]),
                plan=BatchPlan(
                    sources_from_json(fields["sources"]),
                    _int(fields["event_watermark_ms"]),
                    _int(fields["batch_timestamp_ms"]),
                    {n: _str(v) for n, v in fields.get("parameters", {}).items()},
                    versions_from_json(fields.get("references", {})),
                ),
                sink=SinkState(
                    _str(sink["topic"]),
                    _int(sink["partitions"]),
                    Layout(_int(sink["slots"]), _int(sink["lanes"])),
                    _partitions(sink["sequence"]),
                    _str(sink.get("topic_id", "")),
                ),
                records=_counts(fields["records"]),
                digest=_str(fields["digest"]),
                plan_hash=_str(fields["plan"]),
                note=_str(fields["note"]),
                plan_parts={n: _str(v) for n, v in fields.get("plan_parts", {}).items()},
                totals=_counts(fields.get("totals", {})),
                waivers=tuple(_str(each) for each in fields.get("waivers", ())),
                delivery=Delivery(fields.get("delivery", Delivery.EXACTLY_ONCE)),
                at_risk=_partitions(fields.get("at_risk", {})),
                newest_event_ms=None if newest_ms is None else _int(newest_ms),
                lineage=_int(fields.get("lineage", 0)),
                order=_order(fields, "batch"),
                next_order=_order(fields, "next"),
                origin=Origin.from_json(fields["origin"]) if "origin" in fields else None,
                state=StateSample.from_json(fields["state"]) if "state" in fields else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unreadable(HEAD_KEY, data) from error


def sources_to_json(sources: SourceRanges) -> dict[str, Any]:
    """Ranges as JSON values: partitions become text, ranges become lists."""
    return {
        name: {t: _partitions_json(ranges) for t, ranges in topics.items()}
        for name, topics in sources.items()
    }


def sources_from_json(value: Mapping[str, Any]) -> SourceRanges:
    """Inverse of `sources_to_json`.

    Raises:
        TypeError, ValueError, AttributeError: something is not where it should be.
    """
    return {
        name: {t: _partitions(ranges) for t, ranges in topics.items()}
        for name, topics in value.items()
    }


def _partitions_json(ranges: Mapping[int, Range]) -> dict[str, list[int]]:
    return {str(partition): list(bounds) for partition, bounds in ranges.items()}


def _partitions(value: Mapping[str, Any]) -> dict[int, Range]:
    return {int(partition): _range(bounds) for partition, bounds in value.items()}


def _plan_json(plan: BatchPlan) -> dict[str, Any]:
    return {
        "sources": sources_to_json(plan.sources),
        "event_watermark_ms": plan.event_watermark_ms,
        "batch_timestamp_ms": plan.batch_timestamp_ms,
        **({"parameters": dict(plan.parameters)} if plan.parameters else {}),
        **({"references": versions_to_json(plan.references)} if plan.references else {}),
    }


def _fields(key: bytes, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise _unreadable(key, data) from error
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        raise _unreadable(key, data)
    return fields


def _int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _counts(value: Mapping[str, object]) -> RecordCounts:
    return RecordCounts(**{name: _int(count) for name, count in value.items()})


def _order(fields: Mapping[str, Any], which: str) -> Order:
    orders = fields.get("order")
    return Order.from_json(orders[which]) if orders is not None else SORTED


def _range(value: Sequence[object]) -> Range:
    first, second = value
    return _int(first), _int(second)


def _unreadable(key: bytes, data: bytes) -> CorruptionError:
    return CorruptionError(
        "unreadable ledger entry",
        subject=key.decode(),
        expected=f"an entry of version {VERSION}",
        found=repr(data[:120]),
        then="stopping; if a newer version of Onceflow wrote it, use that one; otherwise keep a"
        " copy of the ledger's topic, delete the topic, and run `onceflow ledger rebuild FILE"
        " --reason ...`, which reconstructs it from the output",
    )
