"""Decisions of a slot about posts, with a scripted writer."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from onceflow.clock import Deadline, SystemClock
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import (
    AbortableError,
    CorruptionError,
    FencedError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
)
from onceflow.gateway.memory import Memory
from onceflow.gateway.posts import Answer, KeyOf
from onceflow.gateway.slots import Fate, KeyedPost, Slot
from onceflow_connectors.kafka.gateway.slot import Entry, Part, Place
from tests.support.eventually import eventually

HOUR_MS = 3_600_000


@dataclass
class Script:
    """Replaces a `SlotWriter`. What is committed is found by the next `take`."""

    fates: deque[tuple[str, OnceflowError | None]] = field(default_factory=deque)
    """Of the next writes: `commit` or `lose`, and what is raised."""
    takes: deque[OnceflowError] = field(default_factory=deque)
    committed: list[Entry] = field(default_factory=list)
    groups: list[list[Any]] = field(default_factory=list)
    may_write: threading.Event = field(default_factory=threading.Event)
    taken: int = 0
    begun: int = 0
    is_another: bool = False
    is_closed: bool = False
    offset: int = 0

    def take(self, deadline: Deadline) -> Iterator[Entry]:
        self.taken += 1
        if self.takes:
            raise self.takes.popleft()
        yield from self.committed

    def write(
        self,
        parts: Sequence[Part],
        entries_of: Callable[[Sequence[Sequence[Place]]], Sequence[Entry]],
        deadline: Deadline,
    ) -> None:
        self.begun += 1
        assert self.may_write.wait(10)
        self.groups.append([record.value for part in parts for record in part.records])
        places: list[list[Place]] = []
        for part in parts:
            places.append([(0, self.offset + n) for n in range(len(part.records))])
            self.offset += len(part.records)
        entries = entries_of(places)
        fate, error = self.fates.popleft() if self.fates else ("commit", None)
        if fate == "commit":
            self.committed += entries
        if error is not None:
            raise error

    def is_claimed_by_another(self, deadline: Deadline) -> bool:
        return self.is_another

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Bench:
    """A slot that runs, and the answers so far, by the name of each post."""

    script: Script = field(default_factory=Script)
    answers: dict[str, Answer] = field(default_factory=dict)
    failures: list[OnceflowError] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    at_most: int = 100

    def start(self) -> Slot:
        self.slot = Slot(
            0,
            cast("Any", self.script),
            Memory(HOUR_MS, self.at_most),
            SystemClock(),
            lambda event, /, **facts: self.reports.append(f"{event} {facts}"),
            self.settle,
            self.failures.append,
            lambda: 0.01,
        )
        self.slot.start()
        return self.slot

    def settle(self, fates: Sequence[Fate]) -> None:
        for post, answer in fates:
            name = str(cast("Any", post.waiter))
            assert name not in self.answers, f"{name} is answered twice"
            self.answers[name] = answer

    def post(self, name: str, key: str = "", digest: str = "d", within_s: float = 30.0) -> bool:
        return self.slot.submit(
            KeyedPost(
                KeyOf((key or name).encode(), digest),
                "views",
                [OutputRecord(-1, None, name.encode())],
                10,
                SystemClock().within(within_s),
                cast("asyncio.Future[Answer]", name),
            )
        )

    def answer(self, name: str) -> Answer:
        return eventually(lambda: self.answers.get(name), lambda found: found is not None)  # type: ignore[return-value]

    def go_on(self) -> None:
        self.script.may_write.set()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.start()
    yield made
    made.go_on()
    made.slot.end(10)


def test_posts_that_come_together_share_a_transaction(bench: Bench) -> None:
    bench.post("a")
    eventually(lambda: bench.script.begun)
    for name in "bcd":
        bench.post(name)
    bench.go_on()
    assert {bench.answer(name).status for name in "abcd"} == {202}
    assert bench.script.groups == [[b"a"], [b"b", b"c", b"d"]]


def test_a_repeat_gets_the_same_answer_and_writes_nothing(bench: Bench) -> None:
    bench.go_on()
    bench.post("a", key="k")
    first = bench.answer("a")
    bench.post("again", key="k")
    assert bench.answer("again").fields == first.fields
    assert bench.script.groups == [[b"a"]]


def test_a_repeat_that_comes_while_the_first_is_written_waits_for_it(bench: Bench) -> None:
    for name in ("a", "again", "other"):
        bench.post(name, key="k", digest="e" if name == "other" else "d")
    assert not bench.answers
    bench.go_on()
    assert bench.answer("again").fields == bench.answer("a").fields
    assert bench.answer("other").status == 422
    assert bench.script.groups == [[b"a"]]


@pytest.mark.parametrize("error", [OutcomeUnknownError, FencedError])
def test_a_commit_without_an_answer_that_happened_is_found_and_not_written_again(
    bench: Bench, error: type[OnceflowError]
) -> None:
    bench.script.fates.append(("commit", error("no answer")))
    bench.go_on()
    bench.post("a")
    assert bench.answer("a").status == 202
    assert bench.script.groups == [[b"a"]]
    assert bench.script.taken == 2


@pytest.mark.parametrize("error", [OutcomeUnknownError, FencedError, AbortableError])
def test_what_did_not_happen_is_written_after_taking_the_slot_again(
    bench: Bench, error: type[OnceflowError]
) -> None:
    bench.script.fates.append(("lose", error("no answer")))
    bench.go_on()
    bench.post("a")
    assert bench.answer("a").fields["written"] == [{"partition": 0, "offset": 1, "count": 1}]
    assert bench.script.groups == [[b"a"], [b"a"]]


def test_a_record_that_no_broker_takes_is_found_among_others(bench: Bench) -> None:
    wrong = RecordError("refused", found="INVALID_RECORD")
    bench.script.fates += [("commit", None), ("lose", wrong), ("lose", wrong)]
    bench.post("first")
    eventually(lambda: bench.script.begun)
    bench.post("bad")
    bench.post("good")
    bench.go_on()
    bench.answer("first")
    assert (bench.answer("bad").status, bench.answer("good").status) == (422, 202)
    assert bench.script.groups == [[b"first"], [b"bad", b"good"], [b"bad"], [b"good"]]


def test_when_memory_is_full_new_keys_are_refused_and_known_ones_answered() -> None:
    bench = Bench(at_most=1)
    slot = bench.start()
    bench.go_on()
    bench.post("a", key="k")
    bench.answer("a")
    bench.post("b")
    bench.post("again", key="k")
    assert (bench.answer("b").status, bench.answer("b").retry_after_s) == (503, 60)
    assert bench.answer("again").status == 202
    slot.end(10)


def test_who_leaves_a_slot_answers_those_that_wait(bench: Bench) -> None:
    bench.post("a")
    eventually(lambda: bench.script.begun)
    threading.Thread(target=bench.slot.end, args=[10]).start()
    bench.post("b")
    bench.go_on()
    assert bench.answer("a").status == 202
    eventually(lambda: bench.script.is_closed)
    assert bench.answer("b").is_moved
    assert not bench.post("late")


def test_late_posts_are_answered_while_the_slot_cannot_be_taken() -> None:
    bench = Bench(Script(takes=deque([OutcomeUnknownError("no broker")] * 20)))
    slot = bench.start()
    bench.post("a", within_s=0.2)
    answer = bench.answer("a")
    assert (answer.status, answer.retry_after_s, answer.is_moved) == (503, 1, False)
    assert not bench.script.groups
    slot.end(10)


def test_who_was_replaced_waits_before_it_claims_the_slot_again() -> None:
    bench = Bench(Script(is_another=True, takes=deque([FencedError("another owns it")])))
    slot = bench.start()
    eventually(lambda: any(each.startswith("warning") for each in bench.reports))
    slot.end(10)
    assert bench.script.taken == 1


def test_contradictions_end_the_process() -> None:
    bench = Bench(Script(takes=deque([CorruptionError("the topic was deleted")])))
    slot = bench.start()
    eventually(lambda: bench.failures)
    assert not bench.post("a")
    slot.end(10)
