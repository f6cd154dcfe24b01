"""A sender with positions of the delivery: what is sent, how often, and in which batches."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace

import pytest

from onceflow.columns import NO_COLUMNS
from onceflow.contracts.target import Batch, Claim, Intent, Mark, Move
from onceflow.delivery.decoding import Decoder
from onceflow.delivery.model import BatchLimits, Retry, WhenKeyExpires
from onceflow.delivery.sending import SendingTarget
from onceflow.errors import AbortableError, RecordError
from onceflow_connectors.consumer import Record
from tests.support.fakes.sender import DOWN, Kept, MemoryPositions, MemorySender, Scripted
from tests.unit.delivery.test_carrier import TOPIC, Crash, Flag, Scene

HOUR_MS = 3_600_000
PLACE = (TOPIC, 0)


class SendingScene(Scene):
    """A topic and a receiver, and the way between them; each run is another process."""

    def __init__(self, key_lifetime_ms: int | None = HOUR_MS) -> None:
        super().__init__()
        self.sender = MemorySender()
        self.kept = MemoryPositions()
        self.key_lifetime_ms = key_lifetime_ms

    def send(
        self,
        when_key_expires: WhenKeyExpires = "stop",
        limits: BatchLimits | None = None,
        policy: str = "dead_letter",
        retry: Retry | None = None,
        stop: Flag | None = None,
    ) -> None:
        self.target = SendingTarget(  # type: ignore[assignment]
            self.sender, self.kept, self.clock, self.key_lifetime_ms, when_key_expires
        )
        as_they_came = Decoder(NO_COLUMNS, frozenset(), (), makes_rows=False)
        self.run(policy, stop, retry, limits, as_they_came)

    def crash(self, step: Scripted, limits: BatchLimits | None = None) -> None:
        """Deliver until this call of the sender, in which the process dies."""
        self.sender.script.append(replace(step, crash=Crash()))
        with pytest.raises(Crash):
            self.send(limits=limits)

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.sender.received]


@pytest.fixture
def scene() -> SendingScene:
    return SendingScene()


def test_each_record_is_sent_once_and_the_position_is_kept(scene: SendingScene) -> None:
    scene.write(*range(1, 6))
    scene.write(*range(1, 4), partition=1)
    scene.send()
    assert sorted(scene.sender.received) == [(0, n) for n in range(5)] + [(1, n) for n in range(3)]
    assert all(attempt == 1 for _, attempt in scene.sender.calls)
    assert {place: kept.mark.offset for place, kept in scene.kept.kept.items() if kept.mark} == {
        (TOPIC, 0): 5,
        (TOPIC, 1): 3,
    }
    assert [kept.intent for kept in scene.kept.kept.values()] == [None, None]
    scene.write(4, 5, 6)
    scene.send()
    assert sorted(scene.offsets)[-1] == 7
    assert len(scene.sender.received) == 9


def test_only_records_without_an_answer_are_sent_again(scene: SendingScene) -> None:
    scene.write(*range(1, 6))
    scene.sender.script = deque([Scripted(answered=2), Scripted(answered=1)])
    scene.send()
    assert scene.sender.calls == [([0, 1, 2, 3, 4], 1), ([2, 3, 4], 2), ([3, 4], 3)]
    assert scene.offsets == [0, 1, 2, 3, 4]


def test_an_intent_is_kept_before_the_first_record_is_sent(scene: SendingScene) -> None:
    scene.write(*range(1, 4))
    seen: list[Kept] = []
    scene.sender.before_send.append(lambda: seen.append(scene.kept.kept[PLACE]))
    scene.send()
    [kept] = seen
    assert kept.intent == Intent(3, scene.clock.unix_ms())
    assert kept.mark is None


@pytest.mark.parametrize("step", [Scripted(0), Scripted(0, lost=2), Scripted(2), Scripted(4)])
def test_after_a_crash_the_same_records_are_sent_as_a_call_of_their_own(
    scene: SendingScene, step: Scripted
) -> None:
    """However many there are by now, and however large batches are by now."""
    scene.write(*range(1, 9))
    scene.crash(step, BatchLimits(max_records=4))
    scene.write(*range(9, 13))
    scene.write(*range(1, 4), partition=1)
    scene.send(limits=BatchLimits(max_records=6))
    first, again, *_ = scene.sender.calls
    assert first == again == ([0, 1, 2, 3], 1)
    sent = {offset for partition, offset in scene.sender.received if partition == 0}
    assert sent == set(range(12))
    later = [n for calls, _ in scene.sender.calls[2:] for n in calls]
    assert not {0, 1, 2, 3} & {n for n in later if n > 3}
    assert scene.kept.kept[PLACE].intent is None


@pytest.mark.parametrize("smaller", [1, 3])
def test_a_batch_that_was_begun_is_whole_also_under_smaller_limits(
    scene: SendingScene, smaller: int
) -> None:
    scene.write(*range(1, 9))
    scene.crash(Scripted(answered=0, lost=3), BatchLimits(max_records=8))
    scene.send(limits=BatchLimits(max_records=smaller))
    assert scene.sender.calls[1] == (list(range(8)), 1)


def test_other_partitions_do_not_fill_the_memory_while_a_begun_batch_is_waited_for(
    scene: SendingScene,
) -> None:
    scene.kept.kept[PLACE] = Kept(1, None, Intent(3, scene.clock.unix_ms()))
    scene.write(*range(1, 50), partition=1)
    scene.send(limits=BatchLimits(max_records=2), stop=Flag(40))
    first, *_ = scene.named("warning")
    assert "others fill the memory: views[0]@3" in first["text"]
    assert scene.events[-1] == ("drained", {})
    assert scene.sender.calls == []
    scene.write(*range(1, 5))
    scene.send()
    assert scene.sender.calls[0] == ([0, 1, 2], 1)


def test_later_batches_are_not_as_old_as_the_one_that_was_begun(scene: SendingScene) -> None:
    scene.key_lifetime_ms = 10_000
    scene.write(*range(1, 7))
    scene.crash(Scripted(answered=0), BatchLimits(max_records=3))
    scene.clock.sleep(6)
    scene.sender.script = deque([Scripted(), Scripted(answered=0)])
    delays = {"delay": "5 seconds", "max_delay": "5 seconds", "jitter": 0.0}
    scene.send(limits=BatchLimits(max_records=3), retry=Retry.model_validate(delays))
    assert [calls for calls, _ in scene.sender.calls[1:]] == [[0, 1, 2], [3, 4, 5], [3, 4, 5]]


def test_a_crash_after_every_answer_repeats_the_batch_and_nothing_else(
    scene: SendingScene,
) -> None:
    scene.write(*range(1, 7))
    scene.crash(Scripted(), BatchLimits(max_records=3))
    scene.send(limits=BatchLimits(max_records=3))
    assert [calls for calls, _ in scene.sender.calls] == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]


def test_a_record_that_the_receiver_refuses_is_set_aside_and_no_other_is_sent_again(
    scene: SendingScene,
) -> None:
    scene.write(*range(1, 6))
    scene.sender.poison = frozenset({1, 3})
    scene.sender.script = deque([Scripted(answered=4)])
    scene.send()
    assert scene.offsets == [0, 2, 4]
    assert [(each.offset, each.text) for each in scene.letters] == [
        (1, "poisoned"),
        (3, "poisoned"),
    ]
    assert [calls for calls, _ in scene.sender.calls] == [[0, 1, 2, 3, 4], [4]]
    mark = scene.kept.kept[PLACE].mark
    assert mark is not None
    assert mark.offset == 5


def test_a_refused_record_stops_a_delivery_that_says_so(scene: SendingScene) -> None:
    scene.write(1, 2, 3)
    scene.sender.poison = frozenset({1})
    with pytest.raises(RecordError, match=r"views\[0\]@1; found poisoned"):
        scene.send(policy="fail")
    assert scene.kept.kept[PLACE].mark is None
    scene.sender.poison = frozenset()
    scene.send(policy="fail")
    assert scene.sender.calls[0] == scene.sender.calls[1]


def test_an_open_intent_that_the_receiver_no_longer_recognises_stops_the_delivery(
    scene: SendingScene,
) -> None:
    scene.write(*range(1, 4))
    scene.crash(Scripted(answered=0, lost=1))
    scene.clock.sleep(HOUR_MS / 1000)
    with pytest.raises(RecordError) as stopped:
        scene.send()
    told = str(stopped.value)
    assert "no longer recognises them: views[0], offsets 0 to 2" in told
    assert "an answer within 3600 s of the first try; found none since 2023-11-14" in told
    assert "retry: {when_key_expires: send}" in told
    assert len(scene.sender.calls) == 1
    scene.send("send")
    assert len(scene.sender.calls) == 2
    assert scene.kept.kept[PLACE].intent is None


def test_what_an_earlier_instance_began_to_send_is_sent_again_however_old_it_is(
    scene: SendingScene,
) -> None:
    scene.key_lifetime_ms = None
    scene.max_age_ms = 60_000
    scene.write(*range(1, 4))
    scene.crash(Scripted(answered=0, lost=1))
    scene.write(*range(4, 7))
    scene.clock.sleep(61)
    scene.send()
    assert [offsets for offsets, _ in scene.sender.calls] == [[0, 1, 2], [0, 1, 2]]
    [gap] = scene.letters
    assert json.loads(gap.value or b"")["first_offset"] == 3


def test_a_retry_is_not_sent_after_the_receiver_has_forgotten_the_first_try(
    scene: SendingScene,
) -> None:
    scene.write(*range(1, 4))
    scene.key_lifetime_ms = 10_000
    scene.sender.script = deque([Scripted(answered=1)] + [Scripted(answered=0)] * 20)
    delays = {"delay": "4 seconds", "max_delay": "4 seconds", "multiplier": 1.0, "jitter": 0.0}
    retry = Retry.model_validate(delays)
    with pytest.raises(RecordError, match="offsets 1 to 2"):
        scene.send(retry=retry)
    # At 0, 4 and 8 s; not at 12.
    assert len(scene.sender.calls) == 3


def test_a_first_try_is_sent_however_long_its_intent_took(scene: SendingScene) -> None:
    scene.write(1)
    scene.key_lifetime_ms = 0
    scene.send()
    assert scene.offsets == [0]


def test_a_receiver_that_recognises_forever_is_sent_to_forever(scene: SendingScene) -> None:
    scene.key_lifetime_ms = None
    scene.write(*range(1, 4))
    scene.crash(Scripted(answered=0, lost=1))
    scene.clock.sleep(1000 * HOUR_MS)
    scene.send()
    assert len(scene.sender.calls) == 2


def test_an_instance_that_was_replaced_sends_nothing_that_it_did_not_intend(
    scene: SendingScene,
) -> None:
    target = SendingTarget(scene.sender, scene.kept, scene.clock, None, "stop")
    old = target.claim(PLACE)
    successor = SendingTarget(scene.sender, scene.kept, scene.clock, None, "stop")
    successor.claim(PLACE)
    record = Record(TOPIC, 0, 0, 0, b"key", b"value")
    with pytest.raises(AbortableError):
        target.write(Batch([record], (), [Move(old, Mark(1, "after"))]))
    assert scene.sender.calls == []


def test_a_part_that_is_through_is_not_sent_again_when_a_later_one_fails(
    scene: SendingScene,
) -> None:
    """Two parts of one partition, as after a crash, and another partition."""
    made = [Record(TOPIC, 0, n, 0, b"key", b"value") for n in range(4)]
    made.append(Record(TOPIC, 1, 0, 0, b"key", b"value"))
    scene.kept.kept[PLACE] = Kept(1, None, Intent(2, 0))
    target = SendingTarget(scene.sender, scene.kept, scene.clock, None, "stop")
    claim, other = target.claim(PLACE), target.claim((TOPIC, 1))
    assert claim == Claim(PLACE, 2, None, Intent(2, 0))
    moves = [Move(claim, Mark(4, "four"), Mark(2, "two")), Move(other, Mark(1, "one"))]
    batch = Batch(made, (), moves)
    scene.sender.script = deque([Scripted(), Scripted(0), Scripted(), Scripted(0), Scripted()])
    for _ in range(2):
        with pytest.raises(type(DOWN)):
            target.write(batch)
    target.write(batch)
    target.write(batch)
    assert [calls for calls, _ in scene.sender.calls] == [[0, 1], [2, 3], [2, 3], [0], [0]]
    assert scene.kept.kept[PLACE].mark == Mark(4, "four")


def test_a_begun_batch_whose_end_is_gone_is_sent_with_what_is_left(scene: SendingScene) -> None:
    """Its last record is one that the filter discards by now; the one after it comes first."""
    scene.write(1, 2)
    scene.write(1)
    scene.write(3)
    scene.kept.kept[PLACE] = Kept(1, None, Intent(3, scene.clock.unix_ms() - 5))
    scene.sender.before_send.append(lambda: seen.append(scene.kept.kept[PLACE].intent))
    seen: list[Intent | None] = []
    scene.send()
    assert scene.sender.calls == [([0, 1, 3], 1)]
    # As old as the one that it replaces.
    assert seen == [Intent(4, scene.clock.unix_ms() - 5)]
