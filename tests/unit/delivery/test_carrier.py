"""The loop of a delivery: what is in the target equals the topic, whatever happens on the way."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import Event
from typing import Any

import pytest

from onceflow.columns import NO_COLUMNS, parse_columns
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.carrier import Carrier
from onceflow.delivery.decoding import Decoder
from onceflow.delivery.model import BatchLimits, Retry
from onceflow.delivery.pace import Pace
from onceflow.delivery.pending import Pending
from onceflow.delivery.rejects import Rejects
from onceflow.errors import (
    ConfigError,
    CorruptionError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow.protocol.dead_letter import DeadLetter
from onceflow_connectors.consumer import FilteringConsumer, Hooks, Position, Record
from onceflow_connectors.consumer.admission import STRICT
from onceflow_connectors.consumer.client import NO_PROPERTIES, Subscription
from tests.support.clock import ManualClock
from tests.support.contracts.consumer_steps import Written, sequenced
from tests.support.fakes.consumer import ADDRESS, FakeClient, FakeConsumerKafka
from tests.support.fakes.target import Failure, MemoryTarget, Store

TOPIC = "views"
COLUMNS = parse_columns("n BIGINT NOT NULL, page STRING")
AGE_MS = 60_000
DOWN = RetriableError("the server does not answer")


class QuickConsumer(FilteringConsumer):
    """Never waits: what is not here does not come. Before its polls, it calls `before_poll`."""

    before_poll: deque[Callable[[], object]]
    before_positions: deque[Callable[[], object]]

    def take(self, most: int, timeout_s: float) -> Sequence[Record]:
        if self.before_poll:
            self.before_poll.popleft()()
        # Partitions may be assigned in the first call.
        return super().take(most, 0.0) or super().take(most, 0.0)

    def take_positions(self) -> Sequence[Position]:
        if self.before_positions:
            self.before_positions.popleft()()
        return super().take_positions()


@dataclass
class Flag:
    """Set after it was asked this many times; never, if that is None."""

    asked_left: int | None = None

    def is_set(self) -> bool:
        if self.asked_left is None:
            return False
        self.asked_left -= 1
        return self.asked_left < 0


@dataclass
class Scene:
    """A topic, a target, and what is said about the way between them."""

    store: Store = field(default_factory=Store)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    kafka: FakeConsumerKafka = field(default_factory=FakeConsumerKafka)
    clock: ManualClock = field(default_factory=ManualClock)
    before_poll: deque[Callable[[], object]] = field(default_factory=deque)
    before_positions: deque[Callable[[], object]] = field(default_factory=deque)
    pace: Pace | None = None
    max_age_ms: int | None = None
    hooks: Hooks | None = None
    target: MemoryTarget = field(init=False)

    def __post_init__(self) -> None:
        self.target = MemoryTarget(self.store)
        if not self.kafka.topics():
            self.kafka.create_topic(TOPIC, 2)

    def write(self, *numbers: int, partition: int = 0, batch_id: int = 0) -> None:
        self.kafka.write(TOPIC, records(*numbers, partition=partition, batch_id=batch_id))

    def run(
        self,
        policy: Any = "dead_letter",
        stop: Flag | None = None,
        retry: Retry | None = None,
        limits: BatchLimits | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        def consumer(hooks: Hooks) -> FilteringConsumer:
            self.hooks = hooks
            subscription = Subscription(ADDRESS, "group", [TOPIC], NO_PROPERTIES)
            made = QuickConsumer(FakeClient(subscription, self.kafka), STRICT, hooks)
            made.before_poll = self.before_poll
            made.before_positions = self.before_positions
            return made

        ending = Carrier(
            consumer=consumer,
            target=self.target,
            claim=self.target.claim,
            decoder=decoder or Decoder(COLUMNS, COLUMNS.required, ("n",)),
            rejects=Rejects("to-memory", policy, self.letters_sink()),
            limits=limits or BatchLimits(),
            breaker=Breaker(retry or Retry(jitter=0), Random(1)),
            pace=self.pace,
            max_age_ms=self.max_age_ms,
            clock=self.clock,
            report=self.report,
            stop=stop or Flag(),
            is_finished=lambda *, is_idle: is_idle,
        ).run()
        self.report(ending)

    def letters_sink(self) -> Any:
        scene = self

        class Letters:
            def append(self, letters: Sequence[DeadLetter]) -> None:
                scene.letters += letters

        return Letters()

    def report(self, event: str, /, **facts: Any) -> None:
        self.events.append((event, facts))

    def named(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.events if name == event]

    @property
    def numbers(self) -> list[int]:
        return sorted(row[0] for row in self.store.rows)


def records(*numbers: int, partition: int = 0, batch_id: int = 0) -> list[Written]:
    """Records with these sequences, whose row has the same number."""
    written = sequenced(*numbers, partition=partition, tag=1 + partition, batch_id=batch_id)
    return [
        replace(each, value=payload(number)) for each, number in zip(written, numbers, strict=True)
    ]


def payload(number: int) -> bytes:
    return json.dumps({"n": number, "page": f"/{number}"}).encode()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_record_is_delivered_once_and_repeats_are_not(scene: Scene) -> None:
    scene.write(*range(1, 8))
    scene.write(*range(4, 12))
    scene.write(*range(1, 6), partition=1)
    scene.run()
    assert scene.numbers == sorted([*range(1, 12), *range(1, 6)])
    assert scene.events[-1] == ("caught_up", {})
    scene.write(9, 10, 11)
    scene.run()
    assert len(scene.store.rows) == 16


def test_a_target_without_columns_gets_records_as_they_came(scene: Scene) -> None:
    """A schema only says what to reject."""
    as_they_came = Decoder(NO_COLUMNS, frozenset(), (), makes_rows=False)
    checked = Decoder(COLUMNS, COLUMNS.required, (), makes_rows=False)
    assert checked.decode(b"key", None) is None
    scene.write(1, 2)
    scene.kafka.write(TOPIC, [replace(each, value=b"{}") for each in records(3)])
    scene.run(decoder=as_they_came)
    assert [each.value for each in scene.store.records] == [payload(1), payload(2), b"{}"]
    assert (scene.store.rows, scene.letters) == ([], [])
    scene.store = Store()
    scene.target = MemoryTarget(scene.store)
    scene.run(decoder=checked)
    assert [each.value for each in scene.store.records] == [payload(1), payload(2)]
    assert [each.value for each in scene.letters] == [b"{}"]


def test_a_batch_has_bounds(scene: Scene) -> None:
    scene.write(*range(1, 11))
    scene.run(limits=BatchLimits(max_records=4))
    assert scene.store.batches == [4, 4, 2]
    scene.write(*range(11, 15))
    scene.store.batches.clear()
    scene.run(limits=BatchLimits(max_bytes=2 * len(payload(11))))
    assert scene.store.batches == [2, 2]


def test_a_rate_spaces_batches_and_bounds_them(scene: Scene) -> None:
    scene.write(*range(1, 101))
    scene.pace = Pace(20)
    scene.run()
    assert scene.store.batches == [20] * 5
    # The last one goes when the four before it have had their second each.
    assert scene.clock.monotonic_s() == pytest.approx(4)
    assert scene.numbers == [*range(1, 101)]


def test_records_that_waited_for_too_long_are_dropped_and_a_gap_record_names_them(
    scene: Scene,
) -> None:
    scene.write(*range(1, 8))
    scene.write(*range(1, 4), partition=1)
    scene.max_age_ms = AGE_MS
    scene.run()
    assert scene.numbers == sorted([*range(1, 8), *range(1, 4)])
    assert scene.letters == []
    scene.write(*range(8, 31))
    scene.write(*range(4, 7), partition=1)
    scene.clock.sleep(AGE_MS / 1000 + 1)
    scene.run(limits=BatchLimits(max_records=15))
    assert scene.numbers == sorted([*range(1, 8), *range(1, 4)])
    gaps = [json.loads(each.value or b"") for each in scene.letters]
    found = [(g["partition"], g["first_offset"], g["last_offset"], g["records"]) for g in gaps]
    dropped = sum(each[3] for each in found)
    assert dropped == 26
    assert {(p, n) for p, first, last, _ in found for n in range(first, last + 1)} == {
        *((0, n) for n in range(7, 30)),
        *((1, n) for n in range(3, 6)),
    }
    assert {each.reason for each in scene.letters} == {"dropped_when_behind"}
    assert [each["dropped"] for each in scene.named("batch") if each["dropped"]] == [15, 11]
    # The position has passed them.
    scene.run()
    assert scene.numbers == sorted([*range(1, 8), *range(1, 4)])


def test_dropped_records_of_a_partition_that_is_lost_are_forgotten() -> None:
    pending = Pending()
    for partition in (0, 1, 1):
        pending.drop(Record(TOPIC, partition, 5, 0, None, b""))
    kept = pending.without_partitions(frozenset({(TOPIC, 0)}))
    assert [(place, each.count) for place, each in kept.dropped.items()] == [((TOPIC, 1), 2)]
    assert (len(pending), len(kept)) == (3, 2)


def test_a_target_that_is_down_is_probed_with_growing_delays_and_loses_nothing(
    scene: Scene,
) -> None:
    scene.write(*range(1, 4))
    scene.target.writes = deque([Failure(DOWN)])
    scene.target.probes = deque([DOWN, DOWN, DOWN])
    scene.run()
    assert scene.numbers == [1, 2, 3]
    assert [each["retry_in_s"] for each in scene.named("waiting")] == [1, 2, 4, 8]
    assert scene.clock.monotonic_s() == pytest.approx(15)
    assert scene.target.probed == 4
    assert len(scene.named("resumed")) == 1


def test_an_answer_that_is_lost_writes_nothing_twice(scene: Scene) -> None:
    scene.write(*range(1, 4))
    lost = OutcomeUnknownError("a commit was not answered")
    scene.target.writes = deque([Failure(lost, is_applied=True), Failure(lost)])
    scene.run()
    scene.write(4)
    scene.run()
    assert scene.numbers == [1, 2, 3, 4]


def test_a_delivery_gives_up_if_it_is_told_to(scene: Scene) -> None:
    scene.write(1)
    scene.target.writes = deque([Failure(DOWN)])
    scene.target.probes = deque([DOWN] * 9)
    with pytest.raises(RetriableError):
        scene.run(retry=Retry(attempts=3))
    assert len(scene.named("waiting")) == 3


def test_a_drain_ends_the_wait_and_the_next_start_goes_on(scene: Scene) -> None:
    scene.write(*range(1, 4))
    scene.target.writes = deque([Failure(DOWN)])
    scene.run(stop=Flag(4))
    assert scene.events[-1] == ("drained", {})
    assert scene.numbers == []
    scene.run()
    assert scene.numbers == [1, 2, 3]


def test_a_drain_lets_the_running_batch_be_written(scene: Scene) -> None:
    scene.write(*range(1, 4))
    scene.run(stop=Flag(2))
    assert scene.events[-1] == ("drained", {})
    assert scene.numbers == [1, 2, 3]


def test_the_next_batch_is_read_while_one_is_written(scene: Scene) -> None:
    read_on, was_read_on = Event(), []
    scene.write(*range(1, 7))
    scene.target.before_write = deque([lambda: was_read_on.append(read_on.wait(30))])
    scene.before_poll = deque([str, str, str, read_on.set])
    scene.run(limits=BatchLimits(max_records=2))
    assert was_read_on == [True]
    assert scene.store.batches == [2, 2, 2]


def test_partitions_are_given_away_after_the_batch_that_is_under_way(scene: Scene) -> None:
    revoked, written = Event(), []

    def write_late() -> None:
        # The rebalance is under way, and waits for this write.
        written.append(revoked.wait(0.2))

    def rebalance() -> None:
        assert scene.hooks is not None
        assert scene.hooks.on_revoked is not None
        scene.hooks.on_revoked([(TOPIC, 0), (TOPIC, 1)])
        revoked.set()

    scene.write(*range(1, 5))
    scene.target.before_write = deque([write_late])
    scene.before_poll = deque([str, str, rebalance])
    scene.run(limits=BatchLimits(max_records=2))
    assert written == [False]


def test_a_failed_write_ends_the_delivery_also_if_nothing_more_comes(scene: Scene) -> None:
    scene.write(1, 2)
    scene.target.writes = deque([Failure(ConfigError("the table is gone"))])
    with pytest.raises(ConfigError, match="the table is gone"):
        scene.run()


def test_an_error_of_the_topic_does_not_wait_for_a_target_that_is_down(scene: Scene) -> None:
    scene.write(1, 2)
    scene.write(9, batch_id=1)  # those before it are missing
    scene.target.writes = deque([Failure(DOWN)] * 1000)
    scene.target.probes = deque([DOWN] * 1_000_000)
    with pytest.raises(CorruptionError):
        scene.run(limits=BatchLimits(max_records=2))


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("write", range(3))
def test_a_crash_before_or_after_a_commit_loses_and_repeats_nothing(
    scene: Scene, write: int, is_applied: bool
) -> None:
    scene.write(*range(1, 10))
    applied = [Failure(DOWN, is_applied=True)] * write
    scene.target.writes = deque([*applied, Failure(Crash(), is_applied)])
    with pytest.raises(Crash):
        scene.run(limits=BatchLimits(max_records=3))
    scene.write(*range(7, 12))
    scene.run()
    assert scene.numbers == list(range(1, 12))


def test_a_record_that_the_target_never_takes_is_set_aside(scene: Scene) -> None:
    scene.write(*range(1, 6))
    scene.target.poison = frozenset({2, 4})
    scene.run()
    assert scene.numbers == [1, 3, 5]
    assert [(each.offset, each.text) for each in scene.letters] == [
        (1, "poisoned"),
        (3, "poisoned"),
    ]
    assert scene.letters[0].value == payload(2)
    assert not scene.letters[0].is_whole
    assert sum(each["rejected"] for each in scene.named("batch")) == 2


def test_a_record_that_cannot_be_decoded_is_set_aside(scene: Scene) -> None:
    good = records(1, 2, 3)
    scene.kafka.write(TOPIC, [good[0], replace(good[1], value=b'{"n": "two"}'), good[2]])
    scene.run()
    assert scene.numbers == [1, 3]
    [letter] = scene.letters
    assert letter.reason == "undecodable"
    assert letter.text == "n: expected bigint, found str 'two'"


def test_a_rejected_record_stops_a_delivery_that_says_so(scene: Scene) -> None:
    scene.write(1, 2, 3)
    scene.target.poison = frozenset({2})
    with pytest.raises(RecordError, match=r"views\[0\]@1; found poisoned"):
        scene.run("fail")
    assert scene.numbers == []
    scene.target.poison = frozenset()
    scene.run("fail")
    assert scene.numbers == [1, 2, 3]


def test_rejected_records_may_be_dropped(scene: Scene) -> None:
    scene.write(1, 2, 3)
    scene.target.poison = frozenset({2})
    scene.run("drop")
    assert scene.numbers == [1, 3]
    assert scene.letters == []


def test_an_instance_whose_partition_was_claimed_writes_nothing_under_the_old_claim(
    scene: Scene,
) -> None:
    scene.write(*range(1, 4))

    scene.target.before_write.append(lambda: scene.store.claim((TOPIC, 0)))
    scene.run()
    assert scene.numbers == [1, 2, 3]
    [warning] = scene.named("warning")
    assert "another instance has claimed this partition" in warning["text"]


def test_an_instance_that_was_expelled_forgets_what_it_read(scene: Scene) -> None:
    scene.write(*range(1, 8))
    successor = Scene(store=scene.store, kafka=scene.kafka)

    def take_over() -> None:
        scene.kafka.expel_all("group")
        successor.run()
        assert scene.numbers == list(range(1, 8))

    scene.before_poll = deque([str, str, str, take_over])
    scene.run()
    assert scene.numbers == list(range(1, 8))
    assert not scene.before_poll


def test_a_full_batch_waits_for_the_end_of_a_rebalance_and_keeps_polling(scene: Scene) -> None:
    def rebalance() -> None:
        raise RetriableError("offsets cannot be committed during a rebalance")

    scene.write(*range(1, 5))
    scene.before_positions = deque([str, rebalance, rebalance])
    scene.before_poll = deque([str] * 10)
    scene.run(limits=BatchLimits(max_records=1))
    assert scene.numbers == [1, 2, 3, 4]
    assert 3 in scene.store.batches


def test_positions_move_over_partitions_that_hold_only_repeats(scene: Scene) -> None:
    scene.write(1, 2)
    scene.run()
    scene.write(1, 2)
    scene.run()
    mark = scene.target.positions()[TOPIC, 0]
    assert mark.offset == 4
    assert scene.numbers == [1, 2]
