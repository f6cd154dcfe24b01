"""Look-ups, plain reads and plain writes against a real Kafka."""

from __future__ import annotations

import gc
import uuid
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, TopicSpec
from onceflow.errors import ConfigError, CorruptionError, DeadlineError, RecordError
from onceflow.runtime.topics.table import read_table
from onceflow_connectors.kafka.admin.administration import MIN_PATIENCE_S, Administration
from onceflow_connectors.kafka.admin.broker import NO_ANSWER_S
from tests.support.brokers.choice import RunningBroker
from tests.support.clock import ManualClock
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import MAX_RECORD_BYTES, PARTITIONS, Scene, record
from tests.support.eventually import eventually
from tests.support.outside.topics import delete_before, delete_topic
from tests.support.threads import client_threads

NOBODY = "127.0.0.1:1"
SLACK_S = 3.0


def test_a_topic_is_read_as_a_table(broker: RunningBroker) -> None:
    sink = RealSink(broker.bootstrap_servers)
    topic = f"table-{uuid.uuid4().hex[:8]}"
    with pytest.raises(ConfigError, match=f"the topic does not exist: {topic}"):
        read_table(sink.broker, topic, 100, sink.within())
    sink.broker.create_topic(TopicSpec(topic, 1), sink.within())
    assert read_table(sink.broker, topic, 100, sink.within()) == []
    records = [(b"a", b"1"), (None, b"2"), (b"b", b"3"), (b"a", b"4"), (b"b", None), (None, b"5")]
    sink.broker.publish(topic, records, sink.within())
    assert read_table(sink.broker, topic, 3, sink.within()) == [b"2", b"4", b"5"]
    with pytest.raises(ConfigError, match="expected 2 bytes at most"):
        read_table(sink.broker, topic, 2, sink.within())


# Who is there


def test_brokers_are_counted_and_tell_their_settings(sink: RealSink) -> None:
    assert sink.broker.brokers(sink.within()) >= 1
    config = sink.broker.broker_config(sink.within())
    assert int(config["transaction.state.log.min.isr"]) >= 1


@pytest.mark.parametrize("address", [NOBODY, "no-broker.invalid:9092"])
def test_nobody_at_the_address_is_told_in_one_sentence_within_seconds(address: str) -> None:
    clock = SystemClock()
    sink = RealSink(address)
    started_s = clock.monotonic_s()
    # All of them may be down and come back: a supervisor of pipelines must try again.
    with pytest.raises(DeadlineError) as raised:
        sink.broker.brokers(sink.within(60.0))
    assert not raised.value.is_permanent
    assert clock.monotonic_s() - started_s < NO_ANSWER_S + SLACK_S
    assert str(raised.value).startswith(f"no Kafka broker answers: {address}; expected")
    assert "\n" not in str(raised.value)
    assert "refused" in str(raised.value) or "resolve" in str(raised.value)


def test_a_property_that_no_client_knows_is_a_matter_of_configuration() -> None:
    sink = RealSink(NOBODY, {"no.such.property": "1"})
    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        sink.broker.brokers(sink.within())


def test_a_closed_client_is_gone_without_the_collector(broker: RunningBroker) -> None:
    """The collector may run in the client's own thread, where its end would abort the process."""
    sink = RealSink(broker.bootstrap_servers)
    others = client_threads()
    gc.disable()
    try:
        # The error that caused this answer keeps the client in a cycle of references.
        assert sink.broker.topic("no-such-topic", sink.within()) is None
        started = client_threads() - others
        assert started
        sink.broker.close()
        eventually(lambda: client_threads() & started, lambda left: not left)
    finally:
        gc.enable()


@pytest.mark.parametrize("budget_s", [0.0, 0.01, 1.2, 3.7])
def test_no_request_is_made_in_a_hurry(budget_s: float) -> None:
    """A request whose time is up at once corrupts the memory of the process."""
    clock = ManualClock()
    given: list[float] = []

    def nobody_answers(_: AdminClient, timeout_s: float) -> None:
        given.append(timeout_s)
        clock.sleep(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    administration = Administration(Connection(NOBODY))
    with pytest.raises(DeadlineError):
        administration.ask("no answer", "t", nobody_answers, clock.within(budget_s))
    administration.close()
    assert min(given) >= MIN_PATIENCE_S
    assert clock.monotonic_s() <= max(budget_s, MIN_PATIENCE_S)


def test_a_connection_never_shows_its_properties() -> None:
    assert "hunter2" not in repr(Connection(NOBODY, {"sasl.password": "hunter2"}))


# Topics


def test_a_topic_is_described_as_it_was_created(scene: Scene, sink: RealSink) -> None:
    config = {"cleanup.policy": "compact", "max.message.bytes": "12345"}
    sink.broker.create_topic(TopicSpec(scene.pipeline, 5, 1, config), scene.within())
    found = sink.broker.topic(scene.pipeline, scene.within())
    assert found is not None
    assert (found.name, found.partitions, found.replication) == (scene.pipeline, 5, 1)
    assert config.items() <= found.config.items()


def test_a_topic_that_does_not_exist_is_none_and_has_no_offsets(
    scene: Scene, sink: RealSink
) -> None:
    assert sink.broker.topic(scene.pipeline, scene.within()) is None
    assert sink.broker.offsets(scene.pipeline, scene.within()) == {}


def test_a_topic_that_was_made_anew_has_another_id(
    scene: Scene, sink: RealSink, broker: RunningBroker
) -> None:
    def topic_id() -> str:
        sink.broker.create_topic(TopicSpec(scene.pipeline, 1), scene.within())
        found = sink.broker.topic(scene.pipeline, scene.within())
        return found.topic_id if found else ""

    first = topic_id()
    delete_topic(broker.bootstrap_servers, scene.pipeline)
    eventually(lambda: sink.broker.topic(scene.pipeline, scene.within()) is None)
    assert first != topic_id() != ""


def test_creating_what_exists_changes_nothing(scene: Scene, sink: RealSink) -> None:
    for partitions in (2, 5):
        sink.broker.create_topic(TopicSpec(scene.pipeline, partitions), scene.within())
    found = sink.broker.topic(scene.pipeline, scene.within())
    assert found is not None
    assert found.partitions == 2


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("impossible name", 1), "TOPIC_EXCEPTION"),
        (TopicSpec("impossible", 1, replication=100), "INVALID_REPLICATION_FACTOR"),
        (TopicSpec("impossible", 1, config={"no.such.setting": "1"}), "INVALID_CONFIG"),
        (TopicSpec("impossible", 0), "INVALID_PARTITIONS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_topic_is_a_matter_of_configuration(
    sink: RealSink, spec: TopicSpec, code: str
) -> None:
    with pytest.raises(ConfigError, match=f"{spec.name}.*{code}"):
        sink.broker.create_topic(spec, sink.within())


def test_a_new_topic_can_be_written_and_read_at_once(scene: Scene, sink: RealSink) -> None:
    sink.broker.create_topic(TopicSpec(scene.pipeline, 50), scene.within())
    bounds = sink.broker.offsets(scene.pipeline, scene.within())
    assert bounds == dict.fromkeys(range(50), (0, 0, 0))


# Offsets


def test_the_last_stable_offset_stays_behind_an_open_transaction(
    scene: Scene, sink: RealSink
) -> None:
    scene.commit(scene.output, record(b"decided"))
    scene.assert_seen(b"decided")  # a commit is answered before its markers are written
    foreign = scene.leave_open(scene.output, record(b"open"), record(b"elsewhere", 1))

    def bounds() -> dict[int, tuple[int, int, int]]:
        return dict(sink.broker.offsets(scene.output, scene.within()))

    assert bounds() == {0: (0, 2, 3), 1: (0, 0, 1), 2: (0, 0, 0)}
    foreign.abort(scene.within())
    eventually(bounds, lambda seen: seen == {0: (0, 4, 4), 1: (0, 2, 2), 2: (0, 0, 0)})


def test_deleted_records_move_the_log_start(
    scene: Scene, sink: RealSink, broker: RunningBroker
) -> None:
    scene.commit(scene.output, *[record(b"x")] * 9)
    delete_before(broker.bootstrap_servers, scene.output, 0, 4)
    eventually(lambda: sink.broker.offsets(scene.output, scene.within())[0] == (4, 10, 10))


def test_a_group_shows_its_members(scene: Scene, sink: RealSink, broker: RunningBroker) -> None:
    assert sink.broker.group_members(scene.group, scene.within()) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": scene.group})
    try:
        consumer.subscribe([scene.output])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment())
        assert sink.broker.group_members(scene.group, scene.within()) == 1
    finally:
        consumer.close()


# Reading


def test_a_range_with_holes_gives_its_committed_records_in_order(
    scene: Scene, sink: RealSink
) -> None:
    for n in range(3):
        scene.commit(scene.output, record(b"a%d" % n), record(b"b%d" % n, 1))
        scene.abort(scene.output, *[record(b"aborted")] * 3)
    scene.initialise(scene.lane)
    bounds = sink.broker.offsets(scene.output, scene.within())
    ranges = {1: (0, bounds[1][2]), 0: (0, bounds[0][2]), 2: (0, 0)}
    read = list(sink.broker.read(scene.output, ranges, scene.within()))
    assert [r.value for r in read] == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    # In partition 0 a marker, three aborted records and their marker follow each of our records.
    assert [(r.partition, r.offset) for r in read] == [
        *((0, offset) for offset in (0, 6, 12)),
        *((1, offset) for offset in (0, 2, 4)),
    ]


def test_a_range_is_half_open_wherever_it_ends(scene: Scene, sink: RealSink) -> None:
    scene.commit(scene.output, record(b"0"), record(b"1"))
    scene.abort(scene.output, record(b"3"), record(b"4"))
    scene.commit(scene.output, record(b"6"))
    visible = (0, 1, 6)  # markers at 2, 5 and 7
    for start in range(9):
        for end in range(start, 9):
            read = sink.broker.read(scene.output, {0: (start, end)}, scene.within())
            assert [r.offset for r in read] == [n for n in visible if start <= n < end]


def test_a_read_waits_for_what_is_open_until_its_deadline(scene: Scene, sink: RealSink) -> None:
    scene.leave_open(scene.output, record(b"open"))
    read = sink.broker.read(scene.output, {0: (0, 1)}, scene.within(1.0))
    with pytest.raises(DeadlineError, match=rf"\[0, 1\) of {scene.output}-0"):
        next(read)


def test_a_range_that_begins_before_what_is_left_is_corruption(
    scene: Scene, sink: RealSink, broker: RunningBroker
) -> None:
    scene.commit(scene.output, *[record(b"x")] * 9)
    delete_before(broker.bootstrap_servers, scene.output, 0, 4)
    read = sink.broker.read(scene.output, {0: (0, 9)}, scene.within())
    with pytest.raises(CorruptionError, match=f"{scene.output}-0"):
        next(read)


def test_a_record_is_read_with_headers_key_and_timestamp(scene: Scene, sink: RealSink) -> None:
    scene.commit(scene.output, record(b"value", 2))
    (read,) = sink.broker.read(scene.output, {2: (0, 1)}, scene.within())
    assert (read.topic, read.partition, read.offset) == (scene.output, 2, 0)
    assert (read.key, read.value, read.timestamp_ms) == (b"key", b"value", 1_700_000_000_123)
    assert read.headers == (("onceflow", b"h" * 32),)


# Writing


def test_published_records_are_acknowledged_and_readable(scene: Scene, sink: RealSink) -> None:
    records = [(b"k%d" % n, b"v%d" % n) for n in range(1000)]
    assert sink.broker.publish(scene.output, [*records, (None, b"keyless")], scene.within()) == 1001
    bounds = sink.broker.offsets(scene.output, scene.within())
    assert sum(end for _, _, end in bounds.values()) == 1001
    assert len(bounds) == PARTITIONS


def test_a_record_that_is_too_large_to_publish_is_told_with_what_was_written(
    scene: Scene, sink: RealSink
) -> None:
    with pytest.raises(RecordError, match=f"{scene.output}.*0 of 1 records were written"):
        sink.broker.publish(scene.output, [(None, bytes(2_000_000))], scene.within())


def test_a_queue_smaller_than_what_is_published_loses_nothing(
    scene: Scene, broker: RunningBroker
) -> None:
    sink = RealSink(broker.bootstrap_servers, {"queue.buffering.max.messages": "100"})
    records = [(None, b"%d" % n) for n in range(5000)]
    assert sink.broker.publish(scene.output, records, sink.within()) == len(records)


def test_what_a_broker_refuses_to_take_is_told_with_what_was_written(
    scene: Scene, sink: RealSink
) -> None:
    too_large = Random(1).randbytes(2 * MAX_RECORD_BYTES)
    with pytest.raises(RecordError, match=f"{scene.output}.*0 of 1 records were written"):
        sink.broker.publish(scene.output, [(b"key", too_large)], scene.within())


def test_publishing_to_nobody_ends_with_the_deadline() -> None:
    sink = RealSink(NOBODY)
    with pytest.raises(DeadlineError):
        sink.broker.publish("topic", [(None, b"x")], sink.within(1.0))
