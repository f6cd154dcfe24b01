"""Asking: how many at once, in which order, what a failure stops, and that nothing is repeated."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Mark, Move, Values
from onceflow.delivery.pace import Pace
from onceflow.enrichment.answers import HEADER_NAME
from onceflow.enrichment.asking import MAX_FAILURES, Asking, Inquiry
from onceflow.enrichment.cache import AnswerCache
from onceflow.enrichment.target import EnrichingTarget, Terms
from onceflow.errors import (
    ConfigError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from tests.support.clock import ManualClock
from tests.support.fakes.target import Failure, MemoryTarget, Store

LATE = OutcomeUnknownError("no answer")
DOWN = RetriableError("down")
NEVER = ValueError("404")
TOPIC = "orders"


@dataclass
class FakeService:
    """Answers each question by a number of its own, after some turns of the loop."""

    failures: dict[Hashable, deque[BaseException]] = field(default_factory=dict)
    probes: deque[OnceflowError] = field(default_factory=deque)
    asked: list[Hashable] = field(default_factory=list)
    flying: set[Hashable] = field(default_factory=set)
    most_flying: int = 0
    together: list[frozenset[Hashable]] = field(default_factory=list)

    def question(self, _record: Record, row: Values) -> int:
        if row[0] is None:
            raise ValueError("n: null")
        return int(row[0])

    async def ask(self, question: Hashable) -> bytes:
        self.asked.append(question)
        self.flying.add(question)
        self.together.append(frozenset(self.flying))
        self.most_flying = max(self.most_flying, len(self.flying))
        number = len(self.asked)
        for _ in range(3 + number % 5):
            await asyncio.sleep(0)
        self.flying.discard(question)
        if self.failures.get(question):
            raise self.failures[question].popleft()
        return json.dumps({"serial": number}).encode()

    async def probe(self) -> None:
        if self.probes:
            raise self.probes.popleft()

    async def close(self) -> None:
        """Nothing is held."""


def asking_of(service: FakeService, concurrency: int = 4, pace: Pace | None = None) -> Asking[Any]:
    return Asking(service, bytes, concurrency, pace, ManualClock())


def inquiries(*lanes: str) -> list[Inquiry[Any]]:
    """A question for each letter, numbered; equal letters are one lane."""
    return [Inquiry(n, n, lane) for n, lane in enumerate("".join(lanes))]


def test_so_many_are_asked_at_once_and_lanes_keep_their_order() -> None:
    service, found = FakeService(), inquiries("aabcdbaaefgh")
    asking = asking_of(service)
    result = asking.ask(found)
    asking.close()
    assert service.most_flying == result.in_flight == 4
    assert result.asked == len(found) == len({each.answer.text for each in found if each.answer})
    for lane in "abcdefgh":
        of_lane = [each.question for each in found if each.lane == lane]
        assert [n for n in service.asked if n in of_lane] == of_lane
        assert all(len(set(of_lane) & each) <= 1 for each in service.together)


def test_a_question_without_an_answer_holds_up_its_lane_alone() -> None:
    service, found = FakeService({1: deque([LATE])}), inquiries("abacb")
    asking = asking_of(service)
    assert asking.ask(found).failure is LATE
    assert [each.is_open for each in found] == [False, True, False, False, True]
    again = asking.ask([each for each in found if each.is_open])
    asking.close()
    assert again.failure is None
    assert not any(each.is_open for each in found)
    assert Counter(service.asked) == Counter({0: 1, 1: 2, 2: 1, 3: 1, 4: 1})


@pytest.mark.parametrize("error", [DOWN, ConfigError("401")])
def test_a_service_that_takes_no_questions_is_left_alone(error: OnceflowError) -> None:
    service, found = FakeService({2: deque([error])}), inquiries("abcdefghij")
    asking = asking_of(service, concurrency=1)
    result = asking.ask(found)
    asking.close()
    assert service.asked == [0, 1, 2]
    assert (result.failure or result.error) is error


def test_many_failures_in_a_row_stop_a_round_and_single_ones_do_not() -> None:
    failures: dict[Hashable, deque[BaseException]] = {n: deque([LATE]) for n in range(0, 40, 2)}
    asking = asking_of(service := FakeService(failures), concurrency=1)
    asking.ask([Inquiry(n, n, n) for n in range(40)])
    assert len(service.asked) == 40
    asking.ask([Inquiry(n, n, n) for n in range(100, 100 + MAX_FAILURES)])
    service.failures = {n: deque([LATE]) for n in range(200, 240)}
    asking.ask([Inquiry(n, n, n) for n in range(200, 240)])
    asking.close()
    assert len([n for n in service.asked if isinstance(n, int) and n >= 200]) == MAX_FAILURES


class CountingPace(Pace):
    """Lets everything pass at once, and counts."""

    taken = 0

    def delay_s(self, records: int, _now_s: float) -> float:
        self.taken += records
        return 0.0


def test_each_question_keeps_the_pace() -> None:
    service, pace = FakeService({1: deque([LATE])}), CountingPace(1)
    asking = asking_of(service, pace=pace)
    asking.ask(found := inquiries("aabc"))
    asking.ask([each for each in found if each.is_open])
    asking.close()
    assert pace.taken == len(service.asked) == 5


def test_a_refusal_is_final() -> None:
    service, found = FakeService({0: deque([NEVER])}), inquiries("aa")
    asking = asking_of(service)
    result = asking.ask(found)
    asking.close()
    assert result.failure is None
    assert (found[0].refusal, found[1].refusal) == ("404", "")
    assert found[1].answer is not None


def test_an_answer_of_no_use_is_a_refusal() -> None:
    def read(_text: bytes) -> bytes:
        raise ValueError("answer, rate: expected a value, found null")

    asking: Asking[Any] = Asking(FakeService(), read, 1, None, ManualClock())
    asking.ask(found := inquiries("a"))
    asking.close()
    assert "found null" in found[0].refusal


@dataclass
class Scene:
    """A target that enriches, on a target in memory."""

    terms: Mapping[str, Any] = field(default_factory=dict)
    cache: AnswerCache | None = None
    service: FakeService = field(default_factory=FakeService)
    store: Store = field(default_factory=Store)
    clock: ManualClock = field(default_factory=ManualClock)
    events: list[dict[str, Any]] = field(default_factory=list)
    inner: MemoryTarget = field(init=False)
    target: EnrichingTarget = field(init=False)

    def __post_init__(self) -> None:
        self.inner = MemoryTarget(self.store)
        given = {"order": "key", "on_error": "reject", **self.terms}
        self.target = EnrichingTarget(
            inner=self.inner,
            asking=Asking(self.service, bytes, 4, None, self.clock),
            cache=self.cache,
            terms=Terms("rates", "rate", **given),
            clock=self.clock,
            report=lambda event, /, **facts: self.events.append({"event": event, **facts}),
        )
        self.claim = self.target.claim((TOPIC, 0))

    def batch(self, *numbers: int | None, first: int = 0) -> Batch:
        records = [
            Record(
                TOPIC,
                0,
                first + n,
                7,
                b"k%d" % n,
                json.dumps({"n": number}).encode(),
                (("h", b"1"),),
            )
            for n, number in enumerate(numbers)
        ]
        move = Move(self.claim, Mark(first + len(numbers), ""))
        return Batch(records, [(number,) for number in numbers], [move])

    def answers(self) -> list[Any]:
        return [json.loads(record.value or b"")["rate"] for record in self.store.records]

    def how(self) -> list[str]:
        return [json.loads(r.header_value(HEADER_NAME) or b"")["how"] for r in self.store.records]

    def total(self, fact: str) -> int:
        return sum(each[fact] for each in self.events)


@pytest.fixture
def closing(request: pytest.FixtureRequest) -> Callable[[Scene], Scene]:
    def closed(scene: Scene) -> Scene:
        request.addfinalizer(scene.target.close)
        return scene

    return closed


Closing = Callable[[Scene], Scene]


def test_records_are_written_in_order_each_with_its_answer(closing: Closing) -> None:
    scene = closing(Scene())
    scene.target.write(scene.batch(5, 3, 5))
    serials = {n: n for n in (1, 2, 3)}
    assert sorted(each["serial"] for each in scene.answers()) == [*serials]
    first = scene.store.records[0]
    assert (first.key, first.timestamp_ms, first.headers[0]) == (b"k0", 7, ("h", b"1"))
    assert [json.loads(record.value or b"")["n"] for record in scene.store.records] == [5, 3, 5]
    assert scene.how() == ["asked"] * 3
    assert (scene.total("asked"), scene.total("cached"), scene.total("failed")) == (3, 0, 0)


def test_equal_offsets_of_two_partitions_are_two_questions(closing: Closing) -> None:
    scene = closing(Scene({"order": "none"}))
    place = scene.target.claim((TOPIC, 1))
    here = scene.batch(1, 2)
    there = [record._replace(partition=1, value=b'{"n": 9}') for record in here.records]
    moves = [*here.moves, Move(place, Mark(2, ""))]
    scene.target.write(Batch([*here.records, *there], [(1,), (2,), (8,), (9,)], moves))
    asked = dict(enumerate(scene.service.asked, start=1))
    assert [asked[each["serial"]] for each in scene.answers()] == [1, 2, 8, 9]


def test_an_answer_that_came_is_not_asked_for_again(closing: Closing) -> None:
    scene = closing(Scene())
    scene.service.failures = {2: deque([LATE])}
    batch = scene.batch(1, 2, 3)
    with pytest.raises(OutcomeUnknownError):
        scene.target.write(batch)
    assert not scene.store.records
    scene.inner.writes.extend([Failure(LATE, is_applied=True), Failure(DOWN)])
    for _ in range(2):
        with pytest.raises(OnceflowError):
            scene.target.write(batch)
    scene.target.write(batch)
    assert Counter(scene.service.asked) == Counter({1: 1, 2: 2, 3: 1})
    assert len(scene.store.records) == 3


def test_a_cache_asks_once_as_long_as_the_answer_is_young(closing: Closing) -> None:
    scene = closing(Scene(cache=AnswerCache(10, 100)))
    scene.target.write(scene.batch(5, 3, 5))
    scene.claim = scene.target.claim((TOPIC, 0))
    scene.clock.sleep(9)
    scene.target.write(scene.batch(5, 4, first=3))
    assert Counter(scene.service.asked) == Counter({5: 1, 3: 1, 4: 1})
    assert scene.how() == ["asked", "asked", "asked", "cached", "asked"]
    assert scene.total("cached") == 2
    scene.claim = scene.target.claim((TOPIC, 0))
    scene.clock.sleep(5)
    scene.target.write(scene.batch(5, 4, first=5))
    assert scene.service.asked.count(5) == 2
    assert scene.service.asked.count(4) == 1


def test_questions_may_be_equal_by_columns(closing: Closing) -> None:
    scene = closing(Scene({"by": ()}, AnswerCache(10, 100)))
    scene.target.write(scene.batch(1, 2, 3))
    assert len(scene.service.asked) == 1
    assert [each["serial"] for each in scene.answers()] == [1, 1, 1]


def test_refusals_are_rejected_and_others_keep_their_answers(closing: Closing) -> None:
    scene = closing(Scene())
    scene.service.failures = {2: deque([NEVER])}
    batch = scene.batch(1, 2, None, 4)
    with pytest.raises(RecordError):
        scene.target.write(batch)
    assert scene.target.refused(batch) == {1: "404", 2: "n: null"}
    kept = Batch([batch.records[0], batch.records[3]], [(1,), (4,)], batch.moves)
    scene.target.write(kept)
    assert Counter(scene.service.asked) == Counter({1: 1, 2: 1, 4: 1})
    assert [json.loads(record.value or b"")["n"] for record in scene.store.records] == [1, 4]


def test_null_is_written_where_the_file_says_so_but_for_a_record_without_room(
    closing: Closing,
) -> None:
    scene = closing(Scene({"on_error": "write_null"}))
    scene.service.failures = {2: deque([NEVER])}
    scene.target.write(scene.batch(1, 2, None))
    assert [each is None for each in scene.answers()] == [False, True, True]
    assert scene.how() == ["asked", "none", "none"]
    taken = Record(TOPIC, 0, 3, 7, b"k", b'{"n": 1, "rate": 2}')
    batch = Batch([taken], [(1,)], [Move(scene.target.claim((TOPIC, 0)), Mark(4, ""))])
    with pytest.raises(RecordError):
        scene.target.write(batch)
    assert scene.target.refused(batch) == {0: "the record has a field `rate` already"}


def test_a_refusal_can_be_asked_about_until_there_is_an_answer(closing: Closing) -> None:
    scene = closing(Scene({"on_error": "retry"}))
    scene.service.failures = {2: deque([NEVER, NEVER])}
    batch = scene.batch(1, 2)
    for _ in range(2):
        with pytest.raises(RetriableError):
            scene.target.write(batch)
    scene.target.write(batch)
    assert scene.service.asked == [1, 2, 2, 2]


@pytest.mark.parametrize("on_error", ["reject", "write_null"])
def test_a_service_that_never_answers_is_given_up(closing: Closing, on_error: str) -> None:
    scene = closing(Scene({"on_error": on_error, "attempts": 3}))
    scene.service.failures = {1: deque([DOWN] * 9), 2: deque([DOWN] * 9)}
    scene.service.probes.extend([DOWN])
    batch = scene.batch(1, 2)
    with pytest.raises(RetriableError):
        scene.target.write(batch)
    with pytest.raises(RetriableError):
        scene.target.probe()
    if on_error == "reject":
        with pytest.raises(RecordError):
            scene.target.write(batch)
        assert [*scene.target.refused(batch)] == [0, 1]
        assert "given up after 3 tries" in scene.target.refused(batch)[0]
    else:
        scene.target.write(batch)
        assert scene.answers() == [None, None]


def test_progress_and_a_new_batch_begin_the_attempts_again(closing: Closing) -> None:
    scene = closing(Scene({"attempts": 2, "on_error": "write_null"}))
    scene.service.failures = {n: deque([LATE] * n) for n in (1, 2, 3)}
    batch = scene.batch(0, 1, 2, 3)
    for _ in range(3):
        with pytest.raises(OutcomeUnknownError):
            scene.target.write(batch)
    scene.target.write(batch)
    assert None not in scene.answers()


def test_without_attempts_a_service_is_asked_until_it_answers(closing: Closing) -> None:
    scene = closing(Scene({"on_error": "write_null"}))
    scene.service.failures = {1: deque([DOWN] * 30)}
    batch = scene.batch(1)
    for _ in range(30):
        with pytest.raises(RetriableError):
            scene.target.write(batch)
    scene.target.write(batch)
    assert scene.how() == ["asked"]


def test_what_no_retry_changes_ends_it(closing: Closing) -> None:
    scene = closing(Scene({"on_error": "write_null"}))
    scene.service.failures = {1: deque([ConfigError("401")])}
    with pytest.raises(ConfigError, match="401"):
        scene.target.write(scene.batch(1))
    assert not scene.store.records
