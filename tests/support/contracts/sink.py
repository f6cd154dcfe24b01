"""Contract of every transactional sink. Subclasses provide a Kafka, real or fake."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Protocol

import pytest

from onceflow.clock import Clock, Deadline
from onceflow.contracts.sink import Appender, Incarnation, Ledger, OutputRecord
from onceflow.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    InvariantError,
    OutcomeUnknownError,
    RecordError,
)
from onceflow.protocol.identity import (
    DRIVER_SLOT,
    OWNER_PARTITION,
    BatchKey,
    FencingToken,
    Layout,
    head_partition,
    ledger_topic,
)
from onceflow.protocol.ledger import (
    HEAD_KEY,
    OWNER_KEY,
    BatchPlan,
    HeadEntry,
    OwnerEntry,
    RecordCounts,
    SinkState,
)
from tests.support.eventually import eventually

BUDGET_S = 20.0
"""For what must succeed."""
SHORT_BUDGET_S = 1.0
"""For what must run out of time."""
LEDGER_PARTITIONS = 2
PARTITIONS = 3
MAX_RECORD_BYTES = 20_000


class SinkKafka(Protocol):
    """A Kafka with one implementation of the sink's contracts."""

    clock: Clock

    def incarnation(self, transactional_id: str) -> Incarnation:
        """A fresh one, not initialised."""

    def appender(self) -> Appender:
        """A fresh one."""

    def ledger(self, pipeline: str) -> Ledger:
        """A reader of the pipeline's ledger."""

    def create_topic(self, name: str, partitions: int, max_record_bytes: int) -> None:
        """Create it, without retention, and wait until it can be written."""

    def committed(self, topic: str) -> Sequence[OutputRecord]:
        """Records that a read_committed reader sees at this moment, partition by partition."""

    def undecided(self, topic: str) -> int:
        """How many offsets lie between the last stable offsets and the high watermarks."""

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Offsets that lag tools see at this moment."""


def head(batch_id: int, pipeline: str = "p") -> HeadEntry:
    """A head that differs from others by its batch alone."""
    return HeadEntry(
        pipeline=pipeline,
        generation=1,
        batch=BatchKey("q", batch_id),
        token=FencingToken(1),
        run_id="r",
        plan=BatchPlan({"s": {"t": {0: (batch_id, batch_id + 1)}}}, 0, 0),
        sink=SinkState("out", PARTITIONS, Layout(1, 3)),
        records=RecordCounts(),
        digest="",
        plan_hash="",
    )


def owner(run_id: str) -> OwnerEntry:
    """An owner that differs from others by its run alone."""
    return OwnerEntry(FencingToken(1), run_id, "host", 0, Layout(1, 3))


def head_record(batch_id: int) -> OutputRecord:
    return OutputRecord(head_partition(DRIVER_SLOT), HEAD_KEY, head(batch_id).to_json())


def owner_record(run_id: str) -> OutputRecord:
    return OutputRecord(OWNER_PARTITION, OWNER_KEY, owner(run_id).to_json())


def record(value: bytes, partition: int = 0) -> OutputRecord:
    return OutputRecord(partition, b"key", value, b"h" * 32, 1_700_000_000_123)


UNWRITABLE = {
    "too large for the client": replace(record(b""), value=bytes(2_000_000)),
    "too large for the topic": replace(
        record(b""), value=Random(1).randbytes(2 * MAX_RECORD_BYTES)
    ),
    "no such partition": replace(record(b""), partition=PARTITIONS),
}
"""Records that no Kafka takes."""


class Scene:
    """One pipeline on a Kafka, with unique names."""

    def __init__(self, kafka: SinkKafka) -> None:
        self.kafka = kafka
        self.pipeline = f"p-{uuid.uuid4().hex[:12]}"
        self.lane = f"onceflow.{self.pipeline}.s0.l0"
        self.other_lane = f"onceflow.{self.pipeline}.s0.l1"
        self.owner_id = f"onceflow.{self.pipeline}.owner"
        self.group = f"onceflow.{self.pipeline}"
        self.ledger = kafka.ledger(self.pipeline)
        self.appender = kafka.appender()
        self._made: list[Incarnation] = []

    @cached_property
    def output(self) -> str:
        """A topic that exists."""
        self.kafka.create_topic(f"out-{self.pipeline}", PARTITIONS, MAX_RECORD_BYTES)
        return f"out-{self.pipeline}"

    @cached_property
    def ledger_topic(self) -> str:
        """Create the ledger and return its topic."""
        self.ledger.create(LEDGER_PARTITIONS, self.within())
        return ledger_topic(self.pipeline)

    def within(self, seconds: float = BUDGET_S) -> Deadline:
        return self.kafka.clock.within(seconds)

    def begin(self, transactional_id: str) -> Incarnation:
        """An incarnation with an open transaction."""
        incarnation = self.initialise(transactional_id)
        incarnation.begin()
        return incarnation

    def initialise(self, transactional_id: str) -> Incarnation:
        self._made.append(self.kafka.incarnation(transactional_id))
        self._made[-1].initialise(self.within())
        return self._made[-1]

    def commit(self, topic: str, *records: OutputRecord) -> None:
        """Write records in a transaction of their own."""
        incarnation = self.begin(self.lane)
        incarnation.send(topic, records, self.within())
        incarnation.commit(self.within())

    def abort(self, topic: str, *records: OutputRecord) -> None:
        """Write records in a transaction of their own, and abort it when they are in the log."""
        self._write(self.lane, topic, records).abort(self.within())

    def leave_open(self, topic: str, *records: OutputRecord) -> Incarnation:
        """Write records in a transaction of the other lane that stays open."""
        return self._write(self.other_lane, topic, records)

    def head(self) -> HeadEntry | None:
        return self.ledger.read_head(DRIVER_SLOT, self.within())

    def assert_seen(self, *values: bytes) -> None:
        """A reader of the output comes to see exactly these values."""

        def read() -> tuple[bytes | None, ...]:
            return tuple(seen.value for seen in self.kafka.committed(self.output))

        eventually(read, lambda seen: seen == values, clock=self.kafka.clock)

    def _write(
        self, transactional_id: str, topic: str, records: Sequence[OutputRecord]
    ) -> Incarnation:
        incarnation = self.begin(transactional_id)
        incarnation.send(topic, records, self.within())
        # An abort drops what is still on its way, and then there is nothing to be hidden.
        eventually(
            lambda: self.kafka.undecided(topic),
            lambda count: count >= len(records),
            clock=self.kafka.clock,
        )
        return incarnation

    def close(self) -> None:
        for incarnation in self._made:
            incarnation.discard()
        self.appender.close()
        self.ledger.close()


class OnAKafka:
    """Fixtures of a contract. `kafka` is the implementation's."""

    @pytest.fixture
    def kafka(self) -> SinkKafka:
        raise NotImplementedError

    @pytest.fixture
    def scene(self, kafka: SinkKafka) -> Iterator[Scene]:
        scene = Scene(kafka)
        yield scene
        scene.close()


class SinkContract(OnAKafka):
    """One test per promise."""

    # Atomicity

    def test_committed_records_are_read_as_they_were_sent_in_order(self, scene: Scene) -> None:
        sent = [record(b"%d" % n, n % PARTITIONS) for n in range(50)]
        incarnation = scene.begin(scene.lane)
        assert incarnation.send(scene.output, sent, scene.within()) == len(sent)
        incarnation.commit(scene.within())
        expected = sorted(sent, key=lambda each: each.partition)
        eventually(
            lambda: scene.kafka.committed(scene.output),
            lambda seen: seen == expected,
            clock=scene.kafka.clock,
        )

    def test_a_record_may_lack_key_value_header_and_timestamp(self, scene: Scene) -> None:
        scene.commit(scene.output, OutputRecord(0, None, None))
        (seen,) = eventually(lambda: scene.kafka.committed(scene.output), clock=scene.kafka.clock)
        assert (seen.key, seen.value, seen.header) == (None, None, None)

    def test_a_transaction_may_be_empty(self, scene: Scene) -> None:
        scene.begin(scene.lane).commit(scene.within())

    def test_records_of_an_open_transaction_are_not_seen(self, scene: Scene) -> None:
        scene.commit(scene.output, record(b"before"))
        scene.leave_open(scene.output, record(b"open"))
        scene.assert_seen(b"before")

    def test_records_of_an_aborted_transaction_are_never_seen(self, scene: Scene) -> None:
        scene.abort(scene.output, record(b"aborted"))
        scene.commit(scene.output, record(b"after"))
        scene.assert_seen(b"after")

    def test_records_ledger_and_offsets_become_visible_together(self, scene: Scene) -> None:
        offsets = {(scene.output, 1): 42}
        incarnation = scene.begin(scene.lane)
        incarnation.send(scene.output, [record(b"one")], scene.within())
        incarnation.send(scene.ledger_topic, [head_record(0)], scene.within())
        incarnation.send_offsets(scene.group, offsets, scene.within())
        assert scene.kafka.committed(scene.output) == []
        assert scene.kafka.group_offsets(scene.group) == {}
        incarnation.commit(scene.within())
        assert scene.head() == head(0)
        scene.assert_seen(b"one")
        eventually(
            lambda: scene.kafka.group_offsets(scene.group),
            lambda seen: seen == offsets,
            clock=scene.kafka.clock,
        )

    def test_offsets_of_an_aborted_transaction_are_never_seen(self, scene: Scene) -> None:
        aborted = scene.begin(scene.lane)
        aborted.send_offsets(
            scene.group, {(scene.output, 0): 41, (scene.output, 1): 41}, scene.within()
        )
        aborted.abort(scene.within())
        after = scene.begin(scene.lane)
        after.send_offsets(scene.group, {(scene.output, 0): 7}, scene.within())
        after.commit(scene.within())
        seen = eventually(lambda: scene.kafka.group_offsets(scene.group), clock=scene.kafka.clock)
        assert seen == {(scene.output, 0): 7}

    # Fencing

    def test_a_zombie_with_an_open_transaction_cannot_commit(self, scene: Scene) -> None:
        zombie = scene.begin(scene.lane)
        zombie.send(scene.output, [record(b"zombie")], scene.within())
        successor = scene.begin(scene.lane)
        with pytest.raises(FencedError):
            zombie.commit(scene.within())
        successor.send(scene.output, [record(b"successor")], scene.within())
        successor.commit(scene.within())
        scene.assert_seen(b"successor")

    def test_a_zombie_that_begins_later_cannot_commit(self, scene: Scene) -> None:
        zombie = scene.initialise(scene.lane)
        successor = scene.begin(scene.lane)
        zombie.begin()
        with pytest.raises(FencedError):
            _send_and_commit(scene, zombie, record(b"zombie"))
        successor.send(scene.output, [record(b"successor")], scene.within())
        successor.commit(scene.within())
        scene.assert_seen(b"successor")

    def test_a_zombie_cannot_send_offsets(self, scene: Scene) -> None:
        zombie = scene.begin(scene.lane)
        zombie.send(scene.output, [record(b"zombie")], scene.within())
        scene.begin(scene.lane)
        with pytest.raises(FencedError):
            zombie.send_offsets(scene.group, {(scene.output, 0): 1}, scene.within())

    def test_initialisation_leaves_nothing_undecided(self, scene: Scene) -> None:
        scene.commit(scene.ledger_topic, head_record(0))
        dead = scene.leave_open(
            scene.output, *(record(b"dead", partition) for partition in range(PARTITIONS))
        )
        dead.send(scene.ledger_topic, [head_record(1)], scene.within())
        dead.discard()
        scene.initialise(scene.other_lane)
        assert scene.kafka.undecided(scene.output) == 0
        assert scene.kafka.committed(scene.output) == []
        assert scene.head() == head(0)

    def test_initialisation_fences_no_other_id(self, scene: Scene) -> None:
        other = scene.begin(scene.other_lane)
        other.send(scene.output, [record(b"other")], scene.within())
        scene.initialise(scene.lane)
        other.commit(scene.within())
        scene.assert_seen(b"other")

    # One transaction, in order

    def test_an_incarnation_carries_one_transaction(self, scene: Scene) -> None:
        incarnation = scene.begin(scene.lane)
        with pytest.raises(InvariantError):
            incarnation.begin()
        incarnation = scene.begin(scene.lane)
        incarnation.commit(scene.within())
        with pytest.raises(InvariantError):
            incarnation.begin()
        with pytest.raises(InvariantError):
            incarnation.commit(scene.within())

    def test_an_aborted_incarnation_is_used_up(self, scene: Scene) -> None:
        incarnation = scene.begin(scene.lane)
        incarnation.abort(scene.within())
        with pytest.raises(InvariantError):
            incarnation.begin()

    def test_nothing_goes_before_initialisation(self, scene: Scene) -> None:
        fresh = scene.kafka.incarnation(scene.lane)
        assert fresh.transactional_id == scene.lane
        with pytest.raises(InvariantError):
            fresh.begin()

    def test_nothing_goes_after_discard_but_a_discard(self, scene: Scene) -> None:
        incarnation = scene.begin(scene.lane)
        incarnation.discard()
        incarnation.discard()
        with pytest.raises(InvariantError):
            incarnation.send(scene.output, [record(b"late")], scene.within())

    # What cannot be written

    @pytest.mark.parametrize("bad", UNWRITABLE.values(), ids=UNWRITABLE)
    def test_a_record_that_can_never_be_written_is_named_and_nothing_is_committed(
        self, scene: Scene, bad: OutputRecord
    ) -> None:
        incarnation = scene.begin(scene.lane)
        with pytest.raises(RecordError, match=f"{bad.key!r} to {scene.output}-{bad.partition}"):
            _send_and_commit(scene, incarnation, record(b"good", 1), bad)
        incarnation.abort(scene.within())
        scene.commit(scene.output, record(b"after", 1))
        scene.assert_seen(b"after")

    def test_after_a_refusal_nothing_can_be_committed(self, scene: Scene) -> None:
        incarnation = scene.begin(scene.lane)
        incarnation.send(scene.output, [record(b"good")], scene.within())
        with pytest.raises(RecordError):
            incarnation.send(scene.output, [record(bytes(2_000_000))], scene.within())
        with pytest.raises(InvariantError):
            incarnation.commit(scene.within())

    # Outcomes

    def test_a_commit_without_an_answer_is_decided_by_initialisation_and_ledger(
        self, scene: Scene
    ) -> None:
        incarnation = scene.begin(scene.lane)
        incarnation.send(scene.output, [record(b"unknown")], scene.within())
        incarnation.send(scene.ledger_topic, [head_record(0)], scene.within())
        with pytest.raises(OutcomeUnknownError):
            incarnation.commit(scene.within(0.0))
        incarnation.discard()
        scene.initialise(scene.lane)
        found = scene.head()
        assert found in (None, head(0))
        scene.assert_seen(*([b"unknown"] if found else []))

    # The ledger

    def test_without_a_ledger_there_is_nothing_to_read(self, scene: Scene) -> None:
        assert not scene.ledger.exists(scene.within())
        assert scene.ledger.read_owner(scene.within()) is None
        assert scene.head() is None
        assert list(scene.ledger.history(DRIVER_SLOT, scene.within())) == []

    def test_a_new_ledger_is_empty_and_may_be_created_again(self, scene: Scene) -> None:
        for _ in range(2):
            scene.ledger.create(LEDGER_PARTITIONS, scene.within())
        assert scene.ledger.exists(scene.within())
        assert scene.ledger.read_owner(scene.within()) is None
        assert scene.head() is None

    def test_a_ledger_with_too_few_partitions_is_refused(self, scene: Scene) -> None:
        scene.ledger.create(LEDGER_PARTITIONS, scene.within())
        with pytest.raises(ConfigError, match="2 partitions; expected 3"):
            scene.ledger.create(LEDGER_PARTITIONS + 1, scene.within())

    def test_a_commit_is_read_at_once_although_its_markers_are_late(self, scene: Scene) -> None:
        for batch_id in range(5):
            scene.commit(scene.ledger_topic, head_record(batch_id))
            assert scene.head() == head(batch_id)

    def test_an_open_transaction_hides_a_later_head_until_the_deadline(self, scene: Scene) -> None:
        foreign = scene.leave_open(scene.ledger_topic, head_record(7))
        scene.commit(scene.ledger_topic, head_record(0))
        with pytest.raises(DeadlineError):
            scene.ledger.read_head(DRIVER_SLOT, scene.within(SHORT_BUDGET_S))
        foreign.abort(scene.within())
        assert scene.head() == head(0)

    def test_an_open_lane_does_not_hide_the_owner(self, scene: Scene) -> None:
        scene.leave_open(scene.ledger_topic, head_record(0))
        scene.commit(scene.ledger_topic, owner_record("me"))
        assert scene.ledger.read_owner(scene.within()) == owner("me")

    def test_the_newest_owner_counts(self, scene: Scene) -> None:
        for run_id in ("first", "second"):
            scene.commit(scene.ledger_topic, owner_record(run_id))
        assert scene.ledger.read_owner(scene.within()) == owner("second")

    def test_a_head_is_found_below_many_aborted_ones(self, scene: Scene) -> None:
        scene.commit(scene.ledger_topic, head_record(0))
        for _ in range(3):
            scene.abort(scene.ledger_topic, *[head_record(1)] * 300)
        scene.initialise(scene.lane)
        assert scene.head() == head(0)

    def test_a_deleted_head_is_no_head(self, scene: Scene) -> None:
        deleted = replace(head_record(0), value=None)
        scene.commit(scene.ledger_topic, head_record(0), deleted)
        assert scene.head() is None

    def test_other_keys_beside_the_head_are_passed_over(self, scene: Scene) -> None:
        stray = replace(head_record(0), key=b"stray", value=b"?")
        scene.commit(scene.ledger_topic, head_record(0), stray)
        assert scene.head() == head(0)

    def test_history_holds_every_committed_head_oldest_first(self, scene: Scene) -> None:
        scene.commit(scene.ledger_topic, head_record(0))
        scene.commit(scene.ledger_topic, head_record(1))
        scene.abort(scene.ledger_topic, head_record(2))
        scene.commit(scene.ledger_topic, head_record(3))
        found = list(scene.ledger.history(DRIVER_SLOT, scene.within()))
        assert found == [head(0), head(1), head(3)]

    def test_a_ledger_can_be_read_while_its_history_streams(self, scene: Scene) -> None:
        for batch_id in range(3):
            scene.commit(scene.ledger_topic, head_record(batch_id))
        streamed = []
        for entry in scene.ledger.history(DRIVER_SLOT, scene.within()):
            assert scene.head() == head(2)
            streamed.append(entry.batch.batch_id)
        assert streamed == [0, 1, 2]


def _send_and_commit(scene: Scene, incarnation: Incarnation, *records: OutputRecord) -> None:
    """A refusal shows at the one or at the other."""
    incarnation.send(scene.output, records, scene.within())
    incarnation.commit(scene.within())
