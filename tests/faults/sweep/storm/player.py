"""Plays drawn faults for a given time, with quiet phases in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import psutil

from onceflow.clock import Clock
from tests.faults.sweep.storm.draw import NOTHING, Fault
from tests.faults.sweep.storm.hands import HANDS, Hand, NotFiredError, Proof, Stage
from tests.faults.sweep.storm.hands_brokers import BROKER_HANDS
from tests.faults.sweep.storm.hands_network import NETWORK_HANDS

ALL_HANDS: Mapping[str, Hand] = {**HANDS, **BROKER_HANDS, **NETWORK_HANDS}
QUIET_S = 60.0
SETTLE_TIMEOUT_S = 420.0
"""For the faults at work to end and the service to write again, before a quiet phase counts."""
TICK_S = 0.1
MAX_TRIES = 3
"""Of one fault: what it is meant for may be gone when it comes."""
MAX_AT_ONCE = 3
GONE = (NotFiredError, AssertionError, ProcessLookupError, psutil.NoSuchProcess)
"""Errors of a fault that had no target, or not in time. Anything else is a trouble."""


@dataclass(frozen=True)
class Played:
    """One fault, and what shows that it fired; empty if it did not.

    Args:
        begin_s, end_s: since the storm began.
        failure: why it did not fire.
    """

    number: int
    kind: str
    begin_s: float
    end_s: float
    proof: Proof
    failure: str = ""

    @property
    def has_fired(self) -> bool:
        return not self.failure


@dataclass
class Course:
    """The course of a storm.

    Args:
        began_ms: wall clock; the service was at work by then.
        quiet_ms: begin and end of each quiet phase, wall clock.
        troubles: what should not have happened.
    """

    began_ms: int = 0
    played: list[Played] = field(default_factory=list)
    quiet_ms: list[tuple[int, int]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Timing:
    """How long, and how often there is quiet.

    Args:
        seconds: of the whole; begun faults and phases are brought to their end.
        quiet_every_s: from the end of one quiet phase to the begin of the next.
        quiet_s: how long one lasts.
    """

    seconds: float
    quiet_every_s: float
    quiet_s: float = QUIET_S


class Player:
    """Begins each fault when it is due and what it occupies is free.

    Args:
        stage: what faults are played on.
        faults: without end.
        timing: how long.
        tick: called several times a second; returns what is wrong, or nothing.
        tell: told of each fault that has ended.
        hands: what plays each kind.
    """

    def __init__(
        self,
        stage: Stage,
        faults: Iterator[Fault],
        timing: Timing,
        tick: Callable[[], list[str]],
        tell: Callable[[Played], None],
        hands: Mapping[str, Hand] = ALL_HANDS,
    ) -> None:
        self.course = Course(stage.clock.unix_ms())
        self._stage = stage
        self._faults = faults
        self._next = next(faults)
        self._timing = timing
        self._tick = tick
        self._tell = tell
        self._hands = hands
        self._clock: Clock = stage.clock
        self._begin_s = self._clock.monotonic_s()
        self._active: dict[Future[Played], Fault] = {}

    def play(self) -> Course:
        """Returns when the time is over and every fault has ended, or when something is wrong."""
        with ThreadPoolExecutor(MAX_AT_ONCE) as hands:
            while not self._is_over:
                self._rough_phase(hands)
                self._settle()
                if not self._is_over:
                    self._quiet_phase()
        self._collect()
        return self.course

    @property
    def _now_s(self) -> float:
        return self._clock.monotonic_s() - self._begin_s

    @property
    def _is_over(self) -> bool:
        return self._now_s >= self._timing.seconds or bool(self.course.troubles)

    def _rough_phase(self, hands: ThreadPoolExecutor) -> None:
        end_s = self._now_s + self._timing.quiet_every_s
        due_s = self._now_s + self._next.gap_s
        while not self._is_over and self._now_s < end_s:
            self._step()
            if self._now_s >= due_s and self._is_free(self._next):
                self._active[hands.submit(self._play_one, self._next)] = self._next
                self._next = next(self._faults)
                due_s = self._now_s + self._next.gap_s

    def _settle(self) -> None:
        """Wait for what is at work, and until the service has written a batch after it."""
        end_s = self._now_s + SETTLE_TIMEOUT_S
        while self._active and not self.course.troubles:
            self._step()
        written = self._batches()
        while self._batches() == written and not self.course.troubles:
            self._step()
            if self._now_s > end_s:
                self.course.troubles.append(f"nothing was written {SETTLE_TIMEOUT_S:g} s long")

    def _quiet_phase(self) -> None:
        begin_ms, end_s = self._clock.unix_ms(), self._now_s + self._timing.quiet_s
        while self._now_s < end_s and not self.course.troubles:
            self._step()
        self.course.quiet_ms.append((begin_ms, self._clock.unix_ms()))

    def _step(self) -> None:
        self.course.troubles += self._tick()
        self._collect()
        self._clock.sleep(TICK_S)

    def _batches(self) -> tuple[int, int]:
        running = self._stage.drivers.current
        return running.number, running.told["batch"]

    def _is_free(self, fault: Fault) -> bool:
        occupied = {each.kind.occupies for each in self._active.values()} - {NOTHING}
        return len(self._active) < MAX_AT_ONCE and fault.kind.occupies not in occupied

    def _collect(self) -> None:
        for future in [each for each in self._active if each.done()]:
            fault = self._active.pop(future)
            error = future.exception()
            if error is not None:
                self.course.troubles.append(f"#{fault.number} {fault.kind.name}: {error!r}")
                continue
            self.course.played.append(future.result())
            self._tell(future.result())

    def _play_one(self, fault: Fault) -> Played:
        begin_s = self._now_s
        proof: Proof = {}
        failure = ""
        for _ in range(MAX_TRIES):
            try:
                proof, failure = self._hands[fault.kind.name](self._stage, fault), ""
                break
            except GONE as error:
                failure = str(error) or type(error).__name__
        return Played(
            fault.number, fault.kind.name, begin_s, self._now_s, dict(proof), failure[:500]
        )
