"""Two owners of one slot, step by step, on a real broker: the older one must not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import FencedError, OnceflowError
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.gateway.owners import Owner, OwnerBoard
from onceflow_connectors.kafka.gateway.slot import LANES, Part, SlotWriter
from onceflow_connectors.kafka.gateway.topics import KeyTopics, prepare_topics
from tests.chaos import ChaosProxy, Rule
from tests.support.brokers.choice import RunningBroker
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic

CLOCK = SystemClock()
TIMEOUT_S = 60.0
HOUR_MS = 3_600_000


class Rivals:
    """Instances of one gateway, each with a view of the slot's owner of its own."""

    def __init__(self, address: str, topic: str, stack: ExitStack) -> None:
        self.address = address
        self.topic = topic
        self.name = "g-" + topic[-20:].strip("-_").replace("_", "-")
        self._stack = stack
        self._topics = self._prepared()
        create_topic(address, topic)

    def instance(self, name: str, address: str = "") -> SlotWriter:
        connection = Connection(address or self.address)
        board = OwnerBoard(self._topics.owners, connection, Owner(name, f"http://{name}"))
        writer = SlotWriter(self.name, 0, self._topics, connection, board, CLOCK)
        self._stack.callback(board.close)
        self._stack.callback(writer.close)
        return writer

    def write(self, by: SlotWriter, value: bytes) -> None:
        part = Part(self.topic, [OutputRecord(0, None, value)])
        by.write([part], lambda places: [(value, b"{}")], CLOCK.within(TIMEOUT_S))

    @property
    def written(self) -> list[bytes | None]:
        return [record.value for record in read_topic(self.address, self.topic)]

    def _prepared(self) -> KeyTopics:
        broker = KafkaBroker(Connection(self.address))
        self._stack.callback(broker.close)
        return prepare_topics(self.name, 1, HOUR_MS, broker, CLOCK.within(TIMEOUT_S))


@pytest.fixture
def rivals(broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[Rivals]:
    with ExitStack() as stack:
        yield Rivals(broker.bootstrap_servers, topic("posts"), stack)


def taken(writer: SlotWriter) -> set[bytes]:
    return {key for key, _ in writer.take(CLOCK.within(TIMEOUT_S))}


def test_a_new_owner_knows_what_was_written_and_the_old_one_writes_no_more(rivals: Rivals) -> None:
    old, new = rivals.instance("old"), rivals.instance("new")
    assert taken(old) == set()
    rivals.write(old, b"a")
    assert taken(new) == {b"a"}
    rivals.write(new, b"b")
    with pytest.raises(FencedError):
        rivals.write(old, b"c")
    assert old.is_claimed_by_another(CLOCK.within(TIMEOUT_S))
    assert taken(old) == {b"b"}  # it had written the other one itself
    assert rivals.written == [b"a", b"b"]


def test_an_id_carries_another_transaction_only_if_nothing_was_sent_twice(
    rivals: Rivals, broker: RunningBroker
) -> None:
    with ChaosProxy(broker.bootstrap_servers) as proxy:
        writer = rivals.instance("one", proxy.bootstrap_servers)
        taken(writer)
        initialised = proxy.add(Rule(on="request", action="pass", api="InitProducerId"))
        for number in range(12):
            rivals.write(writer, b"%d" % number)
        assert initialised.fired < 12 - LANES  # on a slow machine, some took too long
        for number in range(12, 12 + LANES):
            # The client never hears of the commit, so it sends the EndTxn again.
            lost = proxy.add(Rule(on="response", action="close", api="EndTxn", times=1))
            before = initialised.fired
            rivals.write(writer, b"%d" % number)
            lost.wait_fired(1, timeout_s=TIMEOUT_S)
            initialised.wait_fired(before + 1, timeout_s=TIMEOUT_S)
    assert rivals.written == [b"%d" % number for number in range(12 + LANES)]


def test_one_that_initialises_an_id_after_it_was_fenced_sees_the_newer_claim(
    rivals: Rivals, broker: RunningBroker
) -> None:
    with ChaosProxy(broker.bootstrap_servers) as proxy:
        old, new = rivals.instance("old", proxy.bootstrap_servers), rivals.instance("new")
        taken(old)
        # After a slow transaction, its id is initialised again.
        proxy.add(Rule(on="response", action="delay", api="EndTxn", delay_ms=300, times=1))
        late = proxy.add(Rule(on="request", action="hold", api="InitProducerId", times=1))
        rivals.write(old, b"a")
        late.wait_fired(1, timeout_s=TIMEOUT_S)
        assert taken(new) == {b"a"}
        late.release()
        # Now one of its ids is the newest of its name, and none may be used.
        for _ in range(LANES):
            with pytest.raises(FencedError):
                rivals.write(old, b"never")
        for _ in range(LANES):  # that id has fenced one of the new owner's, once
            try:
                rivals.write(new, b"b")
            except OnceflowError:
                assert not new.is_claimed_by_another(CLOCK.within(TIMEOUT_S))
                taken(new)
        old.close()
    assert set(rivals.written) == {b"a", b"b"}
