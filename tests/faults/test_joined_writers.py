"""Writers in the transaction of a driver, at the broker: alone, late, dead, and as zombies.

The driver's client is librdkafka, and the writers are Kafka's Java client, as in `onceflow.sink`.
What a batch may not depend on is shown by what a zombie is allowed to do here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from onceflow.clock import Deadline, SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import FencedError, OnceflowError
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from tests.chaos import ChaosProxy, Rule
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.choice import RunningBroker
from tests.support.brokers.cluster import FaultyCluster, coordinator_of, leader_of, move_leader
from tests.support.drivers.joined import DONE, WriterProcess, compile_probe
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic

PARTITIONS = 4
HEAD = [OutputRecord(0, b"head", b"{}")]
OLD_EPOCH = r"(ProducerFenced|InvalidProducerEpoch)Exception"
LOST = rf"(TransactionAbortable|InvalidTxnState)Exception|{OLD_EPOCH}"
NO_PRODUCER = r"InvalidPidMappingException"


@dataclass
class Place:
    """A topic that writers write, the driver's topic, and a lane of the driver.

    Args:
        through: where all of them connect.
    """

    bootstrap_servers: str
    topic: str
    through: str
    stack: ExitStack
    properties: Mapping[str, str]

    @property
    def heads(self) -> str:
        return f"{self.topic}-heads"

    def lane(self) -> KafkaIncarnation:
        """Initialise the lane: what went before is decided."""
        connection = Connection(self.through, self.properties)
        incarnation = KafkaIncarnation(self.topic, connection, is_shared=True)
        self.stack.callback(incarnation.discard)
        incarnation.initialise(deadline())
        return incarnation

    def begun(self) -> KafkaIncarnation:
        """The same, in a transaction."""
        incarnation = self.lane()
        incarnation.begin()
        return incarnation

    def commit(self, incarnation: KafkaIncarnation) -> None:
        """As a driver does: `head` first."""
        incarnation.send(self.heads, HEAD, deadline())
        incarnation.commit(deadline())

    def visible(self) -> Mapping[str, int]:
        """Records of each writer that readers see. Waits for open transactions."""
        found = read_topic(self.bootstrap_servers, self.topic)
        return Counter((w.value or b"").rstrip(b"0123456789").decode() for w in found)


def deadline() -> Deadline:
    return SystemClock().within(40)


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_probe(tmp_path_factory.mktemp("probe"))


@contextmanager
def open_place(
    bootstrap_servers: str, name: str, through: str = "", **properties: str
) -> Iterator[Place]:
    for topic in (name, f"{name}-heads"):
        create_topic(bootstrap_servers, topic, PARTITIONS)
    with ExitStack() as stack:
        given = {key.replace("_", "."): value for key, value in properties.items()}
        yield Place(bootstrap_servers, name, through or bootstrap_servers, stack, given)


@pytest.fixture
def place(broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[Place]:
    with open_place(broker.bootstrap_servers, topic("p")) as opened:
        yield opened


@pytest.fixture(scope="module")
def writers(broker: RunningBroker, jar: Path) -> Iterator[WriterProcess]:
    """One process for the tests that do not harm it; writers have names of their own."""
    with WriterProcess(jar, broker.bootstrap_servers) as process:
        yield process


class Names:
    """Gives each writer of a test a name that no other test uses."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, name: str) -> str:
        return f"{name}.{self.place.topic}."


def test_several_write_and_the_driver_commits(place: Place, writers: WriterProcess) -> None:
    """Also a client that is used again, after a commit and after an abort."""
    name = Names(place)
    for turn in range(4):
        lane = place.begun()
        for writer, partitions in (("a", (0, 1)), ("b", (2, 3))):
            assert writers.join(name(writer), lane.transaction()) == DONE
            for partition in partitions:
                assert writers.write(name(writer), place.topic, partition) == DONE
            assert writers.leave(name(writer)) == DONE
        if turn == 1:
            lane.abort(deadline())
        else:
            place.commit(lane)
    place.lane()
    assert place.visible() == {name("a"): 60, name("b"): 60}


def test_nothing_is_committed_without_a_record_of_the_driver(
    place: Place, writers: WriterProcess
) -> None:
    """The client says that all is well: so `head` is in every transaction."""
    name, lane = Names(place), place.begun()
    assert writers.join(name("a"), lane.transaction()) == DONE
    assert writers.write(name("a"), place.topic, 0) == DONE
    lane.commit(deadline())
    place.lane()
    assert place.visible() == {}


@pytest.mark.parametrize("is_committed", [False, True], ids=["aborted", "committed"])
def test_a_zombie_between_the_end_and_the_next_initialisation(
    place: Place, writers: WriterProcess, *, is_committed: bool
) -> None:
    """It may open a transaction in the old epoch, which no client can commit."""
    name, lane = Names(place), place.begun()
    for writer, partition in (("a", 0), ("b", 1)):
        assert writers.join(name(writer), lane.transaction()) == DONE
        assert writers.write(name(writer), place.topic, partition) == DONE
    if is_committed:
        place.commit(lane)
    else:
        lane.send(place.heads, HEAD, deadline())
        lane.flush(deadline())
        lane.abort(deadline())
    expected = {name("a"): 10, name("b"): 10} if is_committed else {}
    assert place.visible() == expected  # The markers are written: until then, it is in time.
    assert_refused(writers.write(name("a"), place.topic, 0), LOST)
    assert writers.write(name("b"), place.topic, 2) == DONE
    place.lane()
    assert place.visible() == expected


def test_a_zombie_after_the_next_initialisation(place: Place, writers: WriterProcess) -> None:
    """Also while the next transaction is open, and on partitions that this one writes."""
    name, old = Names(place), place.begun()
    for zombie in ("a", "b", "c"):
        assert writers.join(name(zombie), old.transaction()) == DONE
    assert writers.write(name("a"), place.topic, 0) == DONE
    lane = place.begun()
    assert_refused(writers.write(name("a"), place.topic, 0), OLD_EPOCH)
    assert writers.join(name("new"), lane.transaction()) == DONE
    assert writers.write(name("new"), place.topic, 0) == DONE
    assert_refused(writers.write(name("b"), place.topic, 0), OLD_EPOCH)
    assert_refused(writers.write(name("c"), place.topic, 3), OLD_EPOCH)
    place.commit(lane)
    place.lane()
    assert place.visible() == {name("new"): 10}


def test_a_driver_that_was_replaced(place: Place, writers: WriterProcess) -> None:
    """Its writers had all acknowledged; it can commit nothing, and they can write nothing more."""
    name, old = Names(place), place.begun()
    for writer, partition in (("a", 0), ("b", 1)):
        assert writers.join(name(writer), old.transaction()) == DONE
        assert writers.write(name(writer), place.topic, partition) == DONE
    place.lane()
    assert place.visible() == {}
    for writer, partition in (("a", 0), ("b", 2)):
        assert_refused(writers.write(name(writer), place.topic, partition), OLD_EPOCH)
    with pytest.raises(FencedError):
        place.commit(old)
    assert place.visible() == {}


def test_a_writer_that_is_killed_while_it_writes(
    place: Place, writers: WriterProcess, jar: Path
) -> None:
    """The abort reaches no broker, because the driver wrote nothing; the initialisation does."""
    name, lane = Names(place), place.begun()
    with WriterProcess(jar, place.through, linger_ms="20000") as killed:
        assert writers.join(name("a"), lane.transaction()) == DONE
        assert killed.join(name("b"), lane.transaction()) == DONE
        assert writers.write(name("a"), place.topic, 0) == DONE
        assert killed.write(name("b"), place.topic, 1) == DONE
        assert killed.send(name("b"), place.topic, 2) == DONE
        killed.kill()
    lane.abort(deadline())
    following = place.begun()
    assert writers.join(name("c"), following.transaction()) == DONE
    assert writers.write(name("c"), place.topic, 1) == DONE
    place.commit(following)
    place.lane()
    assert place.visible() == {name("c"): 10}


def test_a_writer_that_is_frozen_before_it_reports(
    place: Place, writers: WriterProcess, jar: Path
) -> None:
    """It has not reported, so nothing is committed; what it sends when it wakes up is refused."""
    name, lane = Names(place), place.begun()
    with WriterProcess(jar, place.through, linger_ms="20000") as frozen:
        assert writers.join(name("a"), lane.transaction()) == DONE
        assert writers.write(name("a"), place.topic, 0) == DONE
        assert frozen.join(name("b"), lane.transaction()) == DONE
        assert frozen.write(name("b"), place.topic, 1) == DONE
        frozen.begin_write(name("b"), place.topic, 2)
        frozen.freeze()
        lane.abort(deadline())
        following = place.begun()
        frozen.thaw()
        frozen.answer()  # It may have sent everything before it was frozen.
        assert_refused(frozen.write(name("b"), place.topic, 3), OLD_EPOCH)
        assert writers.join(name("c"), following.transaction()) == DONE
        assert writers.write(name("c"), place.topic, 2) == DONE
        place.commit(following)
        place.lane()
        assert place.visible() == {name("c"): 10}


@pytest.mark.parametrize(
    ("differing", "answer"),
    [
        ({"producer_id": 1_000_000}, NO_PRODUCER),
        ({"transactional_id": "of-no-client"}, NO_PRODUCER),
        ({"producer_epoch": 30_000}, OLD_EPOCH),
    ],
    ids=["producer id", "transactional id", "producer epoch"],
)
def test_a_transaction_that_does_not_exist(
    place: Place, writers: WriterProcess, differing: Mapping[str, Any], answer: str
) -> None:
    name, lane = Names(place), place.begun()
    wrong = replace(lane.transaction(), **differing)
    assert writers.join(name("a"), wrong) == DONE
    assert_refused(writers.write(name("a"), place.topic, 0), answer)
    place.commit(lane)
    assert place.visible() == {}


@pytest.mark.parametrize("when", ["in it", "after the commit", "in the next one"])
def test_a_request_that_was_held_and_sent_again(
    broker: RunningBroker, topic: Callable[[str], str], jar: Path, when: str
) -> None:
    """The broker appends it once, wherever the copy arrives."""
    with ExitStack() as stack:
        proxy = stack.enter_context(ChaosProxy(broker.bootstrap_servers))
        place = stack.enter_context(open_place(broker.bootstrap_servers, topic("p")))
        settings = {"request_timeout_ms": "1500", "delivery_timeout_ms": "20000"}
        process = WriterProcess(jar, proxy.bootstrap_servers, **settings)
        writers = stack.enter_context(process)
        lane = place.begun()
        assert writers.join("a", lane.transaction()) == DONE
        assert writers.write("a", place.topic, 0) == DONE
        held = proxy.add(
            Rule(api="Produce", on="request", action="hold", times=1, transactional_id=place.topic)
        )
        assert writers.write("a", place.topic, 0) == DONE
        held.wait_fired(1)
        expected = 20
        if when == "in it":
            held.release()
        place.commit(lane)
        if when == "after the commit":
            held.release()
        lane = place.begun()
        if when == "in the next one":
            assert writers.join("b", lane.transaction()) == DONE
            assert writers.write("b", place.topic, 0) == DONE
            held.release()
            assert writers.write("b", place.topic, 0) == DONE
            place.commit(lane)
            place.lane()
            assert place.visible() == {"a": expected, "b": 20}
        else:
            assert place.visible() == {"a": expected}


HASTY_COORDINATOR = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


def test_a_transaction_that_times_out_while_a_writer_writes(
    jar: Path, topic: Callable[[str], str]
) -> None:
    with ExitStack() as stack:
        options = ClusterOptions(settings=HASTY_COORDINATOR)
        cluster = stack.enter_context(ChildProcessCluster(options))
        servers = cluster.bootstrap_servers
        place = stack.enter_context(open_place(servers, topic("p"), transaction_timeout_ms="1000"))
        writers = stack.enter_context(WriterProcess(jar, servers))
        lane = place.begun()
        assert writers.join("a", lane.transaction()) == DONE
        until = SystemClock().within(30)
        answer = DONE
        while answer == DONE and not until.is_over:
            answer = writers.write("a", place.topic, 0, count=1)
        assert_refused(answer, LOST)
        with pytest.raises(OnceflowError):
            place.commit(lane)
        place.lane()
        assert place.visible() == {}


def _kill_leader(cluster: FaultyCluster, place: Place) -> None:
    leader_of(cluster, place.topic, 0).kill()


def _kill_coordinator(cluster: FaultyCluster, place: Place) -> None:
    coordinator_of(cluster, place.topic).kill()


def _move_leader(cluster: FaultyCluster, place: Place) -> None:
    leader = leader_of(cluster, place.topic, 0)
    move_leader(cluster, place.topic, 0, next(b for b in cluster.brokers if b is not leader))


@pytest.mark.crash
@pytest.mark.parametrize("act", [_kill_leader, _kill_coordinator, _move_leader])
def test_a_cluster_that_changes_in_the_middle(
    cluster: FaultyCluster,
    topic: Callable[[str], str],
    jar: Path,
    act: Callable[[FaultyCluster, Place], None],
) -> None:
    """Each writer goes on, and all is committed; or one is refused, and nothing is."""
    with ExitStack() as stack:
        place = stack.enter_context(open_place(cluster.bootstrap_servers, topic("p")))
        writers = stack.enter_context(WriterProcess(jar, cluster.bootstrap_servers))
        lane = place.begun()
        for writer in ("a", "b"):
            assert writers.join(writer, lane.transaction()) == DONE
        assert writers.write("a", place.topic, 0) == DONE
        act(cluster, place)
        answers = [
            writers.write(writer, place.topic, partition)
            for writer, partition in (("a", 0), ("a", 1), ("b", 2), ("b", 3))
        ]
        assert answers == [DONE] * 4
        place.commit(lane)
        place.lane()
        assert place.visible() == {"a": 30, "b": 20}


def assert_refused(answer: str, kind: str) -> None:
    assert re.match(kind, answer), answer
