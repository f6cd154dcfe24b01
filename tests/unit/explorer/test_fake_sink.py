"""The fake keeps the sink's contract, and its faults do what they say."""

from __future__ import annotations

import pytest

from onceflow.contracts.sink import Incarnation
from onceflow.errors import (
    AbortableError,
    DeadlineError,
    FencedError,
    InvariantError,
    OnceflowError,
    OutcomeUnknownError,
)
from tests.support.clock import ManualClock
from tests.support.contracts.appender import AppenderContract
from tests.support.contracts.sink import Scene, SinkContract, head, head_record, record
from tests.support.fakes.sink import APPENDER, FakeKafka, Fault


class TestFakeSink(SinkContract):
    @pytest.fixture
    def kafka(self) -> FakeKafka:
        return FakeKafka(ManualClock())


class TestFakeAppender(AppenderContract):
    @pytest.fixture
    def kafka(self) -> FakeKafka:
        return FakeKafka(ManualClock())


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka(ManualClock())


@pytest.fixture
def scene(kafka: FakeKafka) -> Scene:
    return Scene(kafka)


def written(scene: Scene) -> Incarnation:
    """An incarnation with one head in its open transaction."""
    incarnation = scene.begin(scene.lane)
    incarnation.send(scene.ledger_topic, [head_record(0)], scene.within())
    return incarnation


@pytest.mark.parametrize(
    ("fault", "error", "is_committed"),
    [
        (Fault.DELIVERY_FAILED, AbortableError, False),
        (Fault.COMMIT_REQUEST_LOST, OutcomeUnknownError, False),
        (Fault.COMMIT_REQUEST_LATE, OutcomeUnknownError, False),
        (Fault.COMMIT_ANSWER_LOST, OutcomeUnknownError, True),
        (Fault.COMMIT_ANSWERED_FENCED, FencedError, True),
    ],
)
def test_a_fault_of_a_commit_is_decided_as_it_says(
    kafka: FakeKafka, scene: Scene, fault: Fault, error: type[OnceflowError], is_committed: bool
) -> None:
    kafka.arm(fault, scene.lane)
    with pytest.raises(error):
        written(scene).commit(scene.within())
    assert kafka.fired == [(fault, scene.lane)]
    scene.initialise(scene.lane)
    assert scene.head() == (head(0) if is_committed else None)


def test_a_fault_happens_once(kafka: FakeKafka, scene: Scene) -> None:
    kafka.arm(Fault.COMMIT_REQUEST_LOST, scene.lane)
    with pytest.raises(OutcomeUnknownError):
        written(scene).commit(scene.within())
    written(scene).commit(scene.within())


@pytest.mark.parametrize("fault", [Fault.PRODUCE_REFUSED, Fault.OFFSETS_REFUSED])
def test_after_a_refusal_a_commit_is_a_bug(kafka: FakeKafka, scene: Scene, fault: Fault) -> None:
    incarnation = scene.begin(scene.lane)
    kafka.arm(fault, scene.lane)

    def send_all() -> None:
        incarnation.send(scene.ledger_topic, [head_record(0)], scene.within())
        incarnation.send_offsets(scene.group, {}, scene.within())

    with pytest.raises(AbortableError):
        send_all()
    with pytest.raises(InvariantError):
        incarnation.commit(scene.within())


def test_a_late_commit_commits_if_nothing_came_between(kafka: FakeKafka, scene: Scene) -> None:
    kafka.arm(Fault.COMMIT_REQUEST_LATE, scene.lane)
    with pytest.raises(OutcomeUnknownError):
        written(scene).commit(scene.within())
    kafka.deliver_late_requests()
    assert scene.head() == head(0)


def test_a_late_commit_cannot_end_a_later_transaction(kafka: FakeKafka, scene: Scene) -> None:
    kafka.arm(Fault.COMMIT_REQUEST_LATE, scene.lane)
    with pytest.raises(OutcomeUnknownError):
        written(scene).commit(scene.within())
    later = written(scene)
    kafka.deliver_late_requests()
    later.abort(scene.within())
    assert scene.head() is None


def test_an_unanswered_initialisation_fences_all_the_same(kafka: FakeKafka, scene: Scene) -> None:
    zombie = written(scene)
    kafka.arm(Fault.INITIALISE_UNANSWERED, scene.lane)
    with pytest.raises(DeadlineError):
        scene.initialise(scene.lane)
    with pytest.raises(FencedError):
        zombie.commit(scene.within())


def test_an_expired_transaction_is_aborted_and_its_writer_fenced(
    kafka: FakeKafka, scene: Scene
) -> None:
    slow = written(scene)
    kafka.expire(scene.lane)
    assert scene.head() is None
    with pytest.raises(FencedError):
        slow.commit(scene.within())


def test_held_markers_hide_what_was_acknowledged_until_they_land(
    kafka: FakeKafka, scene: Scene
) -> None:
    kafka.are_markers_held = True
    written(scene).commit(scene.within())
    with pytest.raises(DeadlineError):
        scene.head()
    with pytest.raises(DeadlineError):
        scene.initialise(scene.lane)
    kafka.are_markers_held = False
    assert scene.head() == head(0)


def test_a_reader_that_does_not_wait_misses_what_was_just_acknowledged(
    kafka: FakeKafka, scene: Scene
) -> None:
    scene.commit(scene.output, record(b"one"))
    assert kafka.committed(scene.output) == []
    assert [seen.value for seen in kafka.committed(scene.output)] == [b"one"]


def test_an_append_that_is_refused_has_written_half_of_it(kafka: FakeKafka, scene: Scene) -> None:
    kafka.arm(Fault.APPEND_REFUSED, APPENDER)
    with pytest.raises(AbortableError):
        scene.appender.append(scene.output, [record(b"one"), record(b"two")], scene.within())
    assert [seen.value for seen in kafka.committed(scene.output)] == [b"one"]


def test_a_full_queue_uses_up_the_deadline(kafka: FakeKafka, scene: Scene) -> None:
    incarnation = scene.begin(scene.lane)
    kafka.is_queue_full = True
    with pytest.raises(DeadlineError):
        incarnation.send(scene.output, [record(b"one")], kafka.clock.within(1.0))
