"""The consumer without a client library: the contract, and histories of crashes and rebalances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.errors import AbortableError, RetriableError
from onceflow_connectors.consumer import Hooks, Partition, Position, Record
from tests.support.contracts.consumer import ConsumerContract
from tests.support.contracts.consumer_steps import Notes, expect, sequenced, settle
from tests.support.contracts.lineage import LineageContract
from tests.support.fakes.consumer import FakeConsumerKafka

TOPIC, GROUP, PARTITIONS = "out", "readers", 3


class TestConsumer(ConsumerContract, LineageContract):
    @pytest.fixture
    def kafka(self) -> FakeConsumerKafka:
        return FakeConsumerKafka()


def test_a_commit_during_a_rebalance_is_refused_rather_than_forgotten() -> None:
    kafka = FakeConsumerKafka()
    kafka.create_topic(TOPIC, 1)
    kafka.write(TOPIC, sequenced(1))
    with kafka.consumer([TOPIC], GROUP) as one:
        expect(one, "0/1")
        with kafka.consumer([TOPIC], GROUP) as other:
            assert one.poll(0.0) is None  # lets go, and waits for the other one
            with pytest.raises(RetriableError, match="poll, then commit again"):
                one.commit()
            assert other.poll(0.0) is None
            assert one.poll(0.0) is None  # has it again
            one.commit()
    assert kafka.committed(GROUP, TOPIC, 0) is not None


@pytest.mark.parametrize("storing", [False, True], ids=["committing", "storing"])
def test_a_partition_that_another_member_had_in_between_is_read_from_where_that_one_stopped(
    storing: bool,
) -> None:
    """one: 1 2, misses a generation | other: 1 2, stores, leaves | one: 3, and 1 2 are not its."""
    kafka = FakeConsumerKafka()
    kafka.create_topic(TOPIC, 2)
    kafka.write(TOPIC, sequenced(1, 2, partition=1))
    notes, stored = Notes(), dict[Partition, Position]()
    hooks = notes.hooks((lambda *partition: stored.get(partition)) if storing else None)
    with kafka.consumer([TOPIC], GROUP, hooks=hooks) as one:
        expect(one, "1/1", "1/2")
        with kafka.consumer([TOPIC], GROUP, hooks=replace(hooks, on_revoked=None)) as other:
            assert one.poll(0.0) is None  # lets go
            expect(other, "1/1", "1/2")
            stored[TOPIC, 1] = other.position(TOPIC, 1)
            other.commit()
        kafka.write(TOPIC, sequenced(3, partition=1))
        expect(one, "1/3")
    assert notes.revoked == [(TOPIC, 1)]


def test_a_position_that_was_handed_out_counts_as_stored() -> None:
    kafka = FakeConsumerKafka()
    kafka.create_topic(TOPIC, 2)
    kafka.write(TOPIC, sequenced(1, 2, partition=0))
    notes, stored = Notes(), dict[Partition, Position]()
    hooks = notes.hooks(lambda *partition: stored.get(partition))
    with kafka.consumer([TOPIC], GROUP, hooks=hooks) as one:
        expect(one, "0/1")
        stored[TOPIC, 0] = one.position(TOPIC, 0)
        expect(one, "0/2")  # gathered, not stored yet
        with kafka.consumer([TOPIC], GROUP, hooks=hooks) as other:
            assert settle(one, other, partitions=2) == []
            assert one.assignment() == [(TOPIC, 0)]
            kafka.write(TOPIC, sequenced(3, partition=0))
            expect(one, "0/3")
            assert notes.revoked == [(TOPIC, 1)]


@dataclass
class World:
    """A topic, the programs that read it, and what they achieved.

    Args:
        written: partition -> last sequence written.
        applied: partition -> effects that are durable, in their order.
        positions: of programs that store them with their effects.
    """

    kafka: FakeConsumerKafka = field(default_factory=FakeConsumerKafka)
    written: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    applied: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    positions: dict[Partition, Position] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)

    def write(self, partition: int, count: int) -> None:
        last = self.written[partition]
        news = range(last + 1, last + count + 1)
        self.kafka.write(TOPIC, sequenced(*news, batch_id=last, partition=partition))
        self.written[partition] += count

    def write_again(self, partition: int, _: int) -> None:
        """An at-least-once writer after a crash: the last record or two once more."""
        everything = self.kafka.log((TOPIC, partition)).entries.values()
        again = [entry for entry in list(everything)[-2:] if entry is not None]
        self.kafka.write(TOPIC, again)


class Program:
    """Reads, gathers effects, and makes them durable in one step with the position.

    It is the best that a user can do, so nothing may be missing or doubled in what it achieves.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.gathered: list[Record] = []
        self.is_alive = True
        self.consumer = world.kafka.consumer([TOPIC], GROUP, hooks=self.hooks())
        self.consumer.__enter__()
        self.member = world.kafka.group(GROUP).members[-1]

    def hooks(self) -> Hooks:
        return Hooks(on_revoked=self.forget)

    def forget(self, partitions: Sequence[Partition]) -> None:
        kept = [r for r in self.gathered if (r.topic, r.partition) not in partitions]
        self.gathered = kept

    def poll(self) -> None:
        record = self.consumer.poll(0.0)
        if record is not None:
            self.gathered.append(record)

    def store(self) -> None:
        try:
            self.consumer.commit()
        except (RetriableError, AbortableError):
            return  # nothing was stored; what was gathered stays, or is revoked at the next poll
        self.apply()

    def apply(self) -> None:
        for record in self.gathered:
            assert record.header is not None
            self.world.applied[record.partition].append(record.header.sequence)
        self.gathered.clear()

    def leave(self) -> None:
        self.consumer.__exit__(None, None, None)
        self.is_alive = False

    def die(self) -> None:
        """No goodbye: the group notices when the session ends, which here is at once."""
        self.world.kafka.group(GROUP).remove(self.member)
        self.is_alive = False

    def be_expelled(self) -> None:
        """Too slow for the group, but alive and unaware."""
        self.world.kafka.group(GROUP).remove(self.member)


class StoringProgram(Program):
    """Stores positions with its effects, record by record, and never moves one back."""

    def hooks(self) -> Hooks:
        return Hooks(
            load_position=lambda *partition: self.world.positions.get(partition),
            on_revoked=self.forget,
        )

    def poll(self) -> None:
        super().poll()
        for record in self.gathered:
            place = (record.topic, record.partition)
            stored = self.world.positions.get(place)
            if stored is not None and stored.offset > record.offset:
                self.die()  # another member is ahead: this one was taken over
                return
            self.world.positions[place] = self.consumer.position(*place)
        self.apply()

    def store(self) -> None:
        """Done with each record."""


Action: TypeAlias = tuple[str, int, int]
WRITES = {"write": World.write, "write again": World.write_again}
MOVES: dict[str, Callable[[Program], None]] = {
    "poll": Program.poll,
    "poll more": Program.poll,
    "store": Program.store,
    "leave": Program.leave,
    "die": Program.die,
    "expel": Program.be_expelled,
}
actions = st.lists(
    st.tuples(
        st.sampled_from([*WRITES, *MOVES, *(["poll"] * 8), *(["store"] * 2), *(["join"] * 2)]),
        st.integers(0, PARTITIONS - 1),
        st.integers(1, 3),
    ),
    min_size=20,
    max_size=100,
)


def perform(world: World, program: type[Program], action: Action) -> None:
    name, choice, count = action
    if name in WRITES:
        WRITES[name](world, choice, count)
    elif name == "join":
        world.programs.append(program(world))
    elif world.programs:
        chosen = world.programs[choice % len(world.programs)]
        getattr(chosen, MOVES[name].__name__)()
    world.programs = [each for each in world.programs if each.is_alive]


def finish(world: World, program: type[Program]) -> None:
    """Everybody dies, and one more program reads to the end."""
    for each in world.programs:
        each.die()
    last = program(world)
    expected = sum(world.written.values())
    for _ in range(10 + 4 * sum(log.end for log in world.kafka.logs())):
        last.poll()
        last.store()
    assert sum(map(len, world.applied.values())) == expected


@pytest.mark.parametrize("program", [Program, StoringProgram])
@given(history=actions)
@settings(max_examples=60)
def test_effects_stored_with_their_position_happen_once_and_in_order(
    program: type[Program], history: list[Action]
) -> None:
    world = World()
    world.kafka.create_topic(TOPIC, PARTITIONS)
    for action in history:
        perform(world, program, action)
    finish(world, program)
    for partition in range(PARTITIONS):
        assert world.applied[partition] == list(range(1, world.written[partition] + 1))
