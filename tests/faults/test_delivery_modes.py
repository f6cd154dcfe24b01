"""Every delivery mode under every fault of a commit: only the anomalies that it allows occur.

One pipeline for each mode, on a real broker. Fault after fault strikes one batch of it, at a driver
without Spark; the owner of the pipeline then runs that batch again, as Spark would, and a further
one in peace. What is in the topic is told by a plain client, and by the real consumer library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.crashpoints import CrashPoint
from onceflow.errors import AbortableError, FencedError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.lane import LanePhase
from onceflow.protocol.record import RecordHeader
from onceflow.repair.verification import verify
from onceflow.runtime.commit import committer
from onceflow_connectors.consumer import Consumer, Divergence, Gap, Hooks
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.driver import NOW_MS, Driver
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import Stage, open_stage
from tests.support.eventually import eventually
from tests.support.outside.history import Written, read_ledger, read_topic
from tests.support.outside.judge import anomalies

RECORDS = 40
"""Of every batch; the first half of them goes to partition 0."""
HALF = RECORDS // 2
READ_S = 30.0
P = CrashPoint
SETTLED = {LanePhase.READY, LanePhase.BUSY, LanePhase.FENCED}


class Death(BaseException):
    """The process ends here: nothing of the product may catch it."""


@dataclass
class Trial:
    """One pipeline in one mode, from fault to fault."""

    stage: Stage
    delivery: Delivery
    patch: pytest.MonkeyPatch
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.owner = self.successor()

    def successor(self) -> Driver:
        """A successor takes over.

        Not while the owner renews a lane: that may fence its successor, who then writes again.
        """
        if hasattr(self, "owner"):
            lanes = self.owner.pool.lanes.values()
            eventually(lambda: {lane.phase for lane in lanes}, lambda found: found <= SETTLED)
        self.owner = self.stage.driver(
            delivery=self.delivery,
            wrap=self.faults.wrap,
            wrap_appender=self.faults.wrap_appender,
        )
        self.owner.take_over()
        return self.owner

    def commit(self, batch_id: int) -> None:
        self.owner.commit(batch_id, values(batch_id))

    @contextmanager
    def at(self, point: CrashPoint, act: Callable[[], None]) -> Iterator[None]:
        """The first driver at `point` acts; fails if none comes there."""
        left = [act]

        def reach(found: CrashPoint) -> None:
            if found is point and left:
                left.pop()()

        with self.patch.context() as patch:
            patch.setattr(committer, "reach", reach)
            yield
        assert not left


def values(batch_id: int) -> list[bytes]:
    return [b'{"batch":%d,"n":%d}' % (batch_id, n) for n in range(RECORDS)]


# ---- faults: each strikes one batch, and ends when it has been run again


def crash(trial: Trial, batch_id: int, point: CrashPoint) -> None:
    with trial.at(point, _die), pytest.raises(Death):
        trial.commit(batch_id)
    trial.successor().commit(batch_id, values(batch_id))


def crash_after_lost_answer(trial: Trial, batch_id: int) -> None:
    trial.faults.loses_answer = 1
    crash(trial, batch_id, P.COMMIT_UNKNOWN)


def crash_after_lost_request(trial: Trial, batch_id: int) -> None:
    trial.faults.loses_request = 1
    crash(trial, batch_id, P.COMMIT_UNKNOWN)


def lives_on_after(trial: Trial, batch_id: int, fault: str) -> None:
    setattr(trial.faults, fault, 1)
    trial.commit(batch_id)


def records_refused(trial: Trial, batch_id: int) -> None:
    """At most once ends there, because it cannot try again."""
    in_transaction = trial.delivery is Delivery.EXACTLY_ONCE
    setattr(trial.faults, "refuses_records" if in_transaction else "refuses_append", 1)
    if trial.delivery is not Delivery.AT_MOST_ONCE:
        trial.commit(batch_id)
        return
    with pytest.raises(AbortableError, match="is committed and not written again: at_most_once"):
        trial.commit(batch_id)
    trial.successor().commit(batch_id, values(batch_id))


def zombie(trial: Trial, batch_id: int, point: CrashPoint, *, clock_ms: int = NOW_MS) -> None:
    """Held at a point while its successor runs the batch and the next one; then it goes on."""
    held = trial.owner

    def take_over() -> None:
        trial.successor().commit(batch_id, values(batch_id))
        trial.commit(batch_id + 1)

    def go_on() -> None:
        held.commit(batch_id, values(batch_id), clock_ms=clock_ms)
        held.commit(batch_id + 1, values(batch_id + 1))

    with trial.at(point, take_over), pytest.raises(FencedError):
        go_on()
    held.pool.close()
    trial.successor()


def _die() -> None:
    raise Death


Strike: TypeAlias = Callable[[Trial, int], None]
FAULTS: Mapping[str, Strike] = {
    **{f"crash {p.value}": lambda t, b, p=p: crash(t, b, p) for p in (  # type: ignore[misc]
        P.BEFORE_BEGIN, P.MID_PRODUCE, P.BEFORE_HEAD, P.BEFORE_COMMIT, P.AFTER_COMMIT,
    )},
    "crash commit_unknown, committed": crash_after_lost_answer,
    "crash commit_unknown, not committed": crash_after_lost_request,
    "answer lost": lambda t, b: lives_on_after(t, b, "loses_answer"),
    "answered fenced": lambda t, b: lives_on_after(t, b, "answers_fenced"),
    "request lost": lambda t, b: lives_on_after(t, b, "loses_request"),
    "records refused": records_refused,
    **{f"zombie {p.value}": lambda t, b, p=p: zombie(t, b, p) for p in (  # type: ignore[misc]
        P.BEFORE_BEGIN, P.MID_PRODUCE, P.BEFORE_COMMIT, P.AFTER_COMMIT,
    )},
    "zombie of another plan": lambda t, b: zombie(t, b, P.BEFORE_BEGIN, clock_ms=NOW_MS + 1),
}  # fmt: skip
OTHER_PLAN = [*FAULTS].index("zombie of another plan") * 2
"""The batch that it strikes."""

REPEATED = {
    "crash mid_produce": HALF,
    "crash before_head": RECORDS,
    "crash before_commit": RECORDS,
    "crash commit_unknown, not committed": RECORDS,
    "request lost": RECORDS,
    "records refused": HALF // 2,
    "zombie before_begin": RECORDS,
    "zombie mid_produce": RECORDS,
    "zombie before_commit": RECORDS,
    "behind zombie after_commit": RECORDS,
    "zombie of another plan": RECORDS,
}
"""How many records of the batch are there once more, at least once; none after other faults."""
LOST = {
    "crash mid_produce": HALF,
    "crash after_commit": RECORDS,
    "crash commit_unknown, committed": RECORDS,
    "records refused": RECORDS - HALF // 2,
}
"""How many records of the batch are missing, at most once; none after other faults."""
LATE = {"zombie mid_produce": HALF, "zombie after_commit": RECORDS}
"""How many come, at most once, behind those of the next batch: a reader takes them for repeats."""


@pytest.fixture
def trial(
    broker: RunningBroker,
    topic: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    delivery: Delivery,
) -> Iterator[Trial]:
    with open_stage(broker.bootstrap_servers, topic(delivery.value[:8])) as stage:
        yield Trial(stage, delivery, monkeypatch)


@dataclass(frozen=True)
class Found:
    """As a plain client sees it: the topic, the ledger, and each batch's anomalies by its fault."""

    written: Sequence[Written]
    heads: Sequence[Mapping[str, Any]]

    @property
    def copies(self) -> Counter[bytes | None]:
        return Counter(record.value for record in self.written)

    def repeated(self) -> Mapping[str, int]:
        return self._counted({v: n - 1 for v, n in self.copies.items() if n > 1})

    def lost(self) -> Mapping[str, int]:
        return self._counted({v: 1 for b in batches() for v in values(b) if not self.copies[v]})

    def _counted(self, surplus: Mapping[bytes | None, int]) -> Mapping[str, int]:
        """By fault, for the batch that it struck and for the next one."""
        names = [name for fault in FAULTS for name in (fault, f"behind {fault}")]
        counts = {
            name: sum(surplus.get(value, 0) for value in values(batch_id))
            for batch_id, name in enumerate(names)
        }
        return {name: count for name, count in counts.items() if count}

    def at_risk(self, batch_id: int) -> Mapping[int, Sequence[int]]:
        """Partition -> (first, last) as the entry of a batch names them."""
        (entry,) = (head for head in self.heads if head["batch_id"] == batch_id)
        return {int(p): bounds for p, bounds in entry.get("at_risk", {}).items()}


def batches() -> range:
    return range(2 * len(FAULTS))


def play(trial: Trial) -> Found:
    """Every fault, one after the other; what is left of it."""
    for number, strike in enumerate(FAULTS.values()):
        strike(trial, 2 * number)
        if trial.owner.head is not None and trial.owner.head.batch.batch_id == 2 * number:
            trial.commit(2 * number + 1)
    servers, name = trial.stage.bootstrap_servers, trial.stage.name
    found = Found(read_topic(servers, name), read_ledger(servers, name))
    assert [h["batch_id"] for h in found.heads if h["batch_id"] >= 0] == [*batches()]
    assert {head.get("delivery", "exactly_once") for head in found.heads} == {trial.delivery.value}
    return found


def verified(trial: Trial) -> tuple[int, int, int]:
    """Counts of `onceflow ledger verify`: repeats, flagged and lost; it may find no fault."""
    soon = SystemClock().within(READ_S)
    connection = Connection(trial.stage.bootstrap_servers)
    broker = find_connector("kafka").broker(connection)
    try:
        history = [*trial.owner.ledger.history(DRIVER_SLOT, soon)]
        told = verify(broker, history, soon)
    finally:
        broker.close()
    assert told.findings == []
    return told.repeats, told.flagged, told.lost


@dataclass
class Reading:
    """The consumer library's view of a topic, under its strictest rules."""

    values: list[bytes | None] = field(default_factory=list)
    discarded: int = 0
    gaps: list[Gap] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)


def read(trial: Trial, count: int) -> Reading:
    """Read `count` records, whatever becomes of them."""
    reading = Reading()
    hooks = Hooks(on_gap=reading.gaps.append, on_divergence=reading.divergences.append)
    stage, patience = trial.stage, SystemClock().within(READ_S)
    consumer = Consumer(
        stage.bootstrap_servers, group=f"of-{stage.name}", topics=[stage.name], hooks=hooks
    )
    with consumer:
        while consumer.counters.delivered + consumer.counters.discarded < count:
            patience.check("not everything was read")
            record = consumer.poll(1.0)
            if record is not None:
                reading.values.append(record.value)
        reading.discarded = consumer.counters.discarded
    return reading


@pytest.mark.parametrize("delivery", [Delivery.EXACTLY_ONCE])
def test_exactly_once_allows_nothing(trial: Trial) -> None:
    found = play(trial)
    assert (found.repeated(), found.lost()) == ({}, {})
    assert anomalies(found.written, found.heads) == []  # type: ignore[arg-type]
    assert {RecordHeader.unpack(w.header or b"").flags & 0b11000 for w in found.written} == {0}
    reading = read(trial, len(found.written))
    assert Counter(reading.values) == Counter(v for b in batches() for v in values(b))
    assert (reading.discarded, reading.gaps, reading.divergences) == (0, [], [])
    assert verified(trial) == (0, 0, 0)


@pytest.mark.parametrize("delivery", [Delivery.AT_LEAST_ONCE])
def test_at_least_once_repeats_with_the_same_sequences_and_loses_nothing(trial: Trial) -> None:
    found = play(trial)
    assert (found.repeated(), found.lost()) == (REPEATED, {})
    copies: dict[bytes | None, set[tuple[int, int]]] = {}
    plans: dict[int, set[int]] = {}
    for record in found.written:
        header = RecordHeader.unpack(record.header or b"")
        copies.setdefault(record.value, set()).add((record.partition, header.sequence))
        plans.setdefault(header.batch_id, set()).add(header.plan_tag)
    assert {len(places) for places in copies.values()} == {1}
    assert {b: len(tags) for b, tags in plans.items() if len(tags) > 1} == {OTHER_PLAN: 2}
    reading = read(trial, len(found.written))
    # Of the zombie of another plan alone is everything delivered, and flagged.
    flagged = [divergence.record.value for divergence in reading.divergences]
    assert sorted(flagged, key=str) == sorted(values(OTHER_PLAN), key=str)
    once = Counter(v for b in batches() for v in values(b))
    assert Counter(reading.values) == once + Counter(flagged)
    assert reading.discarded == sum(REPEATED.values()) - RECORDS
    assert reading.gaps == []
    assert verified(trial) == (reading.discarded, RECORDS, 0)


@pytest.mark.parametrize("delivery", [Delivery.AT_MOST_ONCE])
def test_at_most_once_repeats_nothing_and_names_what_may_be_lost(trial: Trial) -> None:
    found = play(trial)
    assert (found.repeated(), found.lost()) == ({}, LOST)
    for batch_id in batches():
        sequences = _sequences(found, batch_id)
        missing = sequences - {(w.partition, w.sequence) for w in found.written}
        # The entry of a batch names it; the next one does unless it was seen to be written.
        assert sequences <= _named(found, batch_id)
        if batch_id + 1 in batches():
            assert missing <= _named(found, batch_id + 1)
    reading = read(trial, len(found.written))
    assert max(Counter(reading.values).values()) == 1
    assert reading.discarded == sum(LATE.values())
    assert len(reading.values) == len(found.written) - reading.discarded
    named = set().union(*(_named(found, b) for b in batches() if _is_named_behind(found, b)))
    missed = {
        (gap.record.partition, sequence)
        for gap in reading.gaps
        for sequence in range(gap.first_missing, gap.last_missing + 1)
    }
    assert missed <= named
    assert len(missed) == sum(LOST.values()) + sum(LATE.values())
    assert reading.divergences == []
    assert verified(trial) == (0, 0, sum(LOST.values()))


def test_a_batch_that_its_writer_saw_written_is_not_named_by_the_next(
    broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    with open_stage(broker.bootstrap_servers, topic("named")) as stage:
        driver = stage.driver(delivery=Delivery.AT_MOST_ONCE)
        driver.take_over()
        driver.commit(0, values(0))
        driver.commit(1, values(1))
        _, first, second = read_ledger(stage.bootstrap_servers, stage.name)
        assert first["at_risk"] == {"0": [1, HALF], "1": [1, HALF]}
        assert second["at_risk"] == {"0": [HALF + 1, RECORDS], "1": [HALF + 1, RECORDS]}


def _sequences(found: Found, batch_id: int) -> set[tuple[int, int]]:
    (entry,) = (head for head in found.heads if head["batch_id"] == batch_id)
    return _flat({int(p): bounds for p, bounds in entry["sink"]["sequence"].items()})


def _named(found: Found, batch_id: int) -> set[tuple[int, int]]:
    return _flat(found.at_risk(batch_id))


def _is_named_behind(found: Found, batch_id: int) -> bool:
    following = batch_id + 1
    return following in batches() and _sequences(found, batch_id) <= _named(found, following)


def _flat(bounds: Mapping[int, Sequence[int]]) -> set[tuple[int, int]]:
    return {(p, n) for p, (first, last) in bounds.items() for n in range(first, last + 1)}
