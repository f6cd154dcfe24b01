"""The Kafka incarnation beyond the contract: settings, slowness, silence, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random

import pytest

from onceflow.clock import Deadline
from onceflow.contracts.sink import Incarnation, OutputRecord
from onceflow.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    InvariantError,
    OutcomeUnknownError,
    RecordError,
)
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow_connectors.kafka.sink.incarnation import ABORT_TIMEOUT_S
from onceflow_connectors.kafka.sink.outbox import POLL_INTERVAL
from tests.support.brokers.children import ChildProcessBroker, ChildProcessCluster
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import Scene, head, head_record, record
from tests.support.eventually import eventually
from tests.support.threads import client_threads

SLACK_S = 3.0
"""How much longer than its budget a call may take on a busy machine."""


@contextmanager
def on(bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> Iterator[Scene]:
    sink = RealSink(bootstrap_servers, properties)
    scene = Scene(sink)
    yield scene
    scene.close()
    sink.broker.close()


@pytest.fixture
def scene(broker: RunningBroker) -> Iterator[Scene]:
    with on(broker.bootstrap_servers) as scene:
        yield scene


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[ChildProcessCluster]:
    """A broker that may be frozen and killed."""
    with ChildProcessCluster() as cluster:
        yield cluster


@pytest.fixture
def own_broker(own_cluster: ChildProcessCluster) -> Iterator[ChildProcessBroker]:
    (broker,) = own_cluster.brokers
    yield broker
    broker.thaw()


@pytest.fixture
def own_scene(own_cluster: ChildProcessCluster) -> Iterator[Scene]:
    with on(own_cluster.bootstrap_servers) as scene:
        assert scene.output
        assert scene.ledger_topic
        yield scene


@contextmanager
def at_most(scene: Scene, seconds: float) -> Iterator[Deadline]:
    """A budget, and the proof that a call kept to it."""
    started_s = scene.kafka.clock.monotonic_s()
    yield scene.within(seconds)
    assert scene.kafka.clock.monotonic_s() - started_s < seconds + SLACK_S


def send(scene: Scene, incarnation: Incarnation, *records: OutputRecord) -> None:
    incarnation.send(scene.output, records, scene.within())


# Settings


def test_a_queue_smaller_than_a_batch_loses_nothing(broker: RunningBroker) -> None:
    with on(broker.bootstrap_servers, {"queue.buffering.max.messages": "100"}) as scene:
        sent = [b"%d" % n for n in range(5 * POLL_INTERVAL)]
        scene.commit(scene.output, *map(record, sent))
        scene.assert_seen(*sent)


def test_the_users_properties_go_before_ours(broker: RunningBroker) -> None:
    with (
        on(broker.bootstrap_servers, {"transaction.timeout.ms": "1000000"}) as scene,
        pytest.raises(ConfigError, match="INVALID_TRANSACTION_TIMEOUT"),
    ):
        scene.initialise(scene.lane)


def test_an_unknown_property_is_refused(broker: RunningBroker) -> None:
    with (
        on(broker.bootstrap_servers, {"no.such.property": "1"}) as scene,
        pytest.raises(ConfigError, match=r"no\.such\.property"),
    ):
        scene.initialise(scene.lane)


# Refusals


def test_a_transaction_beyond_its_time_out_is_aborted_and_its_writer_fenced(
    broker: RunningBroker,
) -> None:
    with on(broker.bootstrap_servers, {"transaction.timeout.ms": "1000"}) as scene:
        slow = scene.leave_open(scene.output, record(b"slow"))
        eventually(lambda: scene.kafka.undecided(scene.output), lambda left: left == 0)
        with pytest.raises(FencedError):
            slow.commit(scene.within())
        scene.assert_seen()


def test_a_zombie_in_the_middle_of_a_batch_hears_that_it_is_fenced(scene: Scene) -> None:
    zombie = scene.leave_open(scene.output, record(b"zombie"))
    scene.initialise(scene.other_lane)
    batch = [record(b"zombie")] * POLL_INTERVAL

    def go_on() -> None:
        while True:  # until the fence is noticed
            send(scene, zombie, *batch)

    with pytest.raises(FencedError):
        go_on()


def test_a_compacted_topic_refuses_a_record_without_key_and_the_record_is_named(
    scene: Scene,
) -> None:
    with pytest.raises(RecordError, match=r"no key to onceflow\.ledger.*without a key"):
        scene.commit(scene.ledger_topic, head_record(0), OutputRecord(0, None, b"value"))


def test_what_a_broker_refuses_shows_in_a_later_send_with_its_cause(
    broker: RunningBroker,
) -> None:
    # Innocent ones must not become a batch that is itself too large.
    with on(broker.bootstrap_servers, {"batch.num.messages": "50"}) as scene:
        incarnation = scene.begin(scene.lane)
        send(scene, incarnation, record(Random(1).randbytes(50_000), 2))

        def go_on() -> None:
            while True:  # until the refusal has come back
                send(scene, incarnation, *[record(b"innocent")] * POLL_INTERVAL)

        with pytest.raises(RecordError, match=f"50003 bytes with key b'key' to {scene.output}-2"):
            go_on()


def test_a_commit_does_not_wait_for_records_that_were_sent_after_a_refused_one(
    broker: RunningBroker,
) -> None:
    """librdkafka keeps those, until the transaction is aborted, and would wait until its budget."""
    with on(broker.bootstrap_servers, {"batch.num.messages": "1"}) as scene:
        incarnation = scene.begin(scene.lane)
        large = record(Random(1).randbytes(50_000), 2)
        send(scene, incarnation, record(b"before", 2), large, *[record(b"after", 2)] * 20)
        started_s = scene.kafka.clock.monotonic_s()
        with pytest.raises(RecordError, match=f"50003 bytes with key b'key' to {scene.output}-2"):
            incarnation.commit(scene.within(30.0))
        assert scene.kafka.clock.monotonic_s() - started_s < 10.0
        incarnation.abort(scene.within())
        scene.assert_seen()


def test_offsets_below_zero_are_a_bug(scene: Scene) -> None:
    with pytest.raises(InvariantError):
        scene.begin(scene.lane).send_offsets(scene.group, {("t", 0): -1}, scene.within())


# Silence: the broker is frozen, connections stay open, nothing answers


def test_initialisation_keeps_to_its_deadline(
    own_scene: Scene, own_broker: ChildProcessBroker
) -> None:
    own_broker.freeze()
    with at_most(own_scene, 1.0) as deadline, pytest.raises(DeadlineError):
        own_scene.kafka.incarnation(own_scene.lane).initialise(deadline)


def test_sending_keeps_to_its_deadline_when_there_is_no_room(
    own_cluster: ChildProcessCluster, own_broker: ChildProcessBroker
) -> None:
    small = {"queue.buffering.max.messages": "100"}
    with on(own_cluster.bootstrap_servers, small) as scene:
        incarnation = scene.begin(scene.lane)
        batch = [record(b"x")] * 1000
        assert scene.output
        own_broker.freeze()
        with at_most(scene, 1.0) as deadline, pytest.raises(DeadlineError, match="no room"):
            incarnation.send(scene.output, batch, deadline)


def test_sending_offsets_keeps_to_the_time_out_of_a_request(
    own_cluster: ChildProcessCluster, own_broker: ChildProcessBroker
) -> None:
    with on(own_cluster.bootstrap_servers, {"socket.timeout.ms": "1000"}) as scene:
        offsets = {(scene.output, 0): 1}
        incarnation = scene.begin(scene.lane)
        own_broker.freeze()
        with at_most(scene, 1.0) as deadline, pytest.raises(DeadlineError):
            incarnation.send_offsets(scene.group, offsets, deadline)


def test_a_commit_that_nobody_answers_is_unknown_until_the_ledger_tells(
    own_scene: Scene, own_broker: ChildProcessBroker
) -> None:
    incarnation = own_scene.leave_open(own_scene.output, record(b"unknown"))
    incarnation.send(own_scene.ledger_topic, [head_record(0)], own_scene.within())
    eventually(lambda: own_scene.kafka.undecided(own_scene.ledger_topic))
    own_broker.freeze()
    with at_most(own_scene, 1.0) as deadline, pytest.raises(OutcomeUnknownError):
        incarnation.commit(deadline)
    incarnation.discard()
    own_broker.thaw()
    own_scene.initialise(own_scene.other_lane)
    # The request lay in the broker's socket, so this one was committed; the caller cannot know.
    assert own_scene.head() == head(0)
    own_scene.assert_seen(b"unknown")


def test_an_abort_that_nobody_answers_ends_soon_and_says_nothing(
    own_scene: Scene, own_broker: ChildProcessBroker
) -> None:
    incarnation = own_scene.leave_open(own_scene.output, record(b"x"))
    own_broker.freeze()
    with at_most(own_scene, 1.0) as deadline:
        incarnation.abort(deadline)
    assert own_scene.within().remaining_s() > ABORT_TIMEOUT_S


def test_discarding_waits_for_nobody(own_scene: Scene, own_broker: ChildProcessBroker) -> None:
    initialised = own_scene.initialise(own_scene.lane + "x")
    full = own_scene.leave_open(own_scene.output, record(b"x"))
    committing = own_scene.begin(own_scene.lane)
    committing.send(own_scene.output, [record(b"y")], own_scene.within())
    own_broker.freeze()
    full.send(own_scene.output, [record(bytes(1000))] * 20_000, own_scene.within())
    with pytest.raises(OutcomeUnknownError):
        committing.commit(own_scene.within(0.5))
    started_s = own_scene.kafka.clock.monotonic_s()
    for incarnation in (initialised, full, committing):
        incarnation.discard()
    assert own_scene.kafka.clock.monotonic_s() - started_s < 1.0


def test_a_discarded_client_is_gone(scene: Scene) -> None:
    assert scene.output
    # Clients of other tests may still be ending their own.
    others = client_threads()
    incarnation = scene.leave_open(scene.output, record(b"x"))
    started = client_threads() - others
    assert started
    incarnation.discard()
    eventually(lambda: client_threads() & started, lambda left: not left)


def test_a_ledger_read_keeps_to_its_deadline(
    own_scene: Scene, own_broker: ChildProcessBroker
) -> None:
    assert own_scene.head() is None
    own_broker.freeze()
    with at_most(own_scene, 1.0) as deadline, pytest.raises(DeadlineError):
        own_scene.ledger.read_head(DRIVER_SLOT, deadline)


# Restarts


def test_a_broker_that_restarts_under_a_transaction_leaves_all_of_it_or_nothing(
    own_cluster: ChildProcessCluster, own_scene: Scene, own_broker: ChildProcessBroker
) -> None:
    own_scene.commit(own_scene.ledger_topic, head_record(0))
    incarnation = own_scene.leave_open(own_scene.output, record(b"early"))
    own_broker.kill()
    incarnation.send(own_scene.output, [record(b"late", 1)], own_scene.within())
    incarnation.send(own_scene.ledger_topic, [head_record(1)], own_scene.within())
    own_broker.restart()
    own_cluster.wait_until_ready()
    incarnation.commit(own_scene.within(60.0))
    assert own_scene.head() == head(1)
    own_scene.assert_seen(b"early", b"late")
