"""Asks a service many questions, several at once, and waits for the answers to all of them.

A loop of asyncio runs as long as a call does, in the thread of the caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from onceflow.clock import Clock
from onceflow.contracts.service import Q, Service
from onceflow.crashpoints import CrashPoint, reach
from onceflow.delivery.pace import Pace
from onceflow.enrichment.answers import Answer
from onceflow.errors import OnceflowError, OutcomeUnknownError, RetriableError

MAX_FAILURES = 10
"""Questions in a row without an answer after which no further one of the call is asked."""

Failure: TypeAlias = OutcomeUnknownError | RetriableError
T = TypeVar("T")


@dataclass(eq=False)
class Inquiry(Generic[Q]):
    """One question, and what became of it. Open as long as there is neither answer nor refusal.

    Args:
        key: equal for questions that one answer is good for.
        lane: questions of one lane are asked one after the other.
        refusal: why there will never be an answer.
    """

    question: Q
    key: Hashable
    lane: Hashable
    answer: Answer | None = None
    refusal: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is to be asked."""
        return self.answer is None and not self.refusal


@dataclass
class Round:
    """The outcome of asking some questions once.

    Args:
        asked: questions that were sent.
        failed: those of them that are still open.
        in_flight: most that waited for an answer at the same time.
        seconds: that all of them waited together; `slowest_s` is the longest of these times.
        failure: the first that leaves a question open.
        error: the first that no retry can change.
    """

    asked: int = 0
    failed: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    failure: Failure | None = None
    error: OnceflowError | None = None
    is_stopped: bool = False
    failed_in_a_row: int = 0

    def note(self, error: OnceflowError) -> None:
        """Take in that a question has no answer."""
        self.failed += 1
        self.failed_in_a_row += 1
        is_about_one = isinstance(error, OutcomeUnknownError)
        if not is_about_one or self.failed_in_a_row >= MAX_FAILURES:
            self.is_stopped = True
        if not isinstance(error, OutcomeUnknownError | RetriableError):
            self.error = self.error or error
        elif self.failure is None:
            self.failure = error


@dataclass
class Asking(Generic[Q]):
    """Asks one service for one enrichment.

    Args:
        read: checks the text of an answer; raises a ValueError if it is of no use.
        concurrency: questions that wait for an answer at the same time.
        pace: of questions.
    """

    service: Service[Q]
    read: Callable[[bytes], bytes]
    concurrency: int
    pace: Pace | None
    clock: Clock
    _runner: asyncio.Runner | None = field(default=None, init=False)

    def ask(self, inquiries: Sequence[Inquiry[Q]]) -> Round:
        """Ask each once, in the order of each lane, and fill in what comes of it.

        After a question of a lane that stays open, later ones of the lane are not asked.
        """
        return self._run(self._asked(inquiries))

    def probe(self) -> None:
        """As `Service.probe`."""
        self._run(self.service.probe())

    def close(self) -> None:
        """Free the connections. Safe to call twice and at any point."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with runner:
                runner.run(self.service.close())

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(doing)
        except OnceflowError:
            raise
        except BaseException:
            self.close()
            raise

    async def _asked(self, inquiries: Sequence[Inquiry[Q]]) -> Round:
        lanes: dict[Hashable, deque[Inquiry[Q]]] = {}
        for inquiry in inquiries:
            lanes.setdefault(inquiry.lane, deque()).append(inquiry)
        ready = deque(lanes.values())
        found = Round()
        flying = 0

        async def fly(lane: deque[Inquiry[Q]]) -> None:
            nonlocal flying
            await self._settle(lane[0], found)
            if not lane.popleft().is_open and lane:
                ready.append(lane)
            flying -= 1
            start()

        def start() -> None:
            nonlocal flying
            while ready and flying < self.concurrency and not found.is_stopped:
                flying += 1
                found.in_flight = max(found.in_flight, flying)
                tasks.create_task(fly(ready.popleft()))

        async with asyncio.TaskGroup() as tasks:
            start()
        return found

    async def _settle(self, inquiry: Inquiry[Q], found: Round) -> None:
        """Ask one question."""
        if self.pace is not None:
            await asyncio.sleep(self.pace.delay_s(1, self.clock.monotonic_s()))
            if found.is_stopped:
                return
        began_s = self.clock.monotonic_s()
        found.asked += 1
        try:
            text = self.read(await self.service.ask(inquiry.question))
            inquiry.answer = Answer(text, self.clock.unix_ms())
        except ValueError as error:
            inquiry.refusal = str(error) or type(error).__name__
        except OnceflowError as error:
            found.note(error)
        seconds = self.clock.monotonic_s() - began_s
        found.seconds += seconds
        found.slowest_s = max(found.slowest_s, seconds)
        if not inquiry.is_open:
            found.failed_in_a_row = 0
            reach(CrashPoint.MID_ASK)
