"""The player of a storm: what may overlap, what counts as fired, what ends it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from tests.faults.sweep.storm.draw import BROKER, DRIVER, Fault, Kind, faults
from tests.faults.sweep.storm.hands import Hand, NotFiredError, Proof, Stage
from tests.faults.sweep.storm.player import MAX_TRIES, Course, Player, Timing
from tests.support.clock import ManualClock

KINDS = (Kind("of-a-broker", BROKER), Kind("of-a-driver", DRIVER), Kind("of-neither", ""))
TIMING = Timing(seconds=300, quiet_every_s=60, quiet_s=20)
EVERY_S = 3.0
COMPANY_TIMEOUT_S = 30.0


class PassingClock(ManualClock):
    """Lets other threads do something meanwhile."""

    def sleep(self, seconds: float) -> None:
        threading.Event().wait(0.0005)
        super().sleep(seconds)


@dataclass
class Driver:
    """One that writes a batch at each look."""

    number: int = 1
    batches: int = 0

    @property
    def told(self) -> Counter[str]:
        self.batches += 1
        return Counter({"batch": self.batches})


@dataclass
class Scene:
    """Counts what is at work at once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at_work: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def play(self, stage: Stage, fault: Fault) -> Proof:
        with self.lock:
            self.at_work[fault.kind.occupies] += 1
            self.most[fault.kind.occupies] = max(
                self.most[fault.kind.occupies], self.at_work[fault.kind.occupies]
            )
        threading.Event().wait(0.03)
        with self.lock:
            self.at_work[fault.kind.occupies] -= 1
        return {"number": fault.number}


def played(hand: Hand, kinds: tuple[Kind, ...] = KINDS, wrong: str = "") -> Course:
    stage = cast(
        "Stage", SimpleNamespace(clock=PassingClock(), drivers=SimpleNamespace(current=Driver()))
    )
    player = Player(
        stage,
        faults(1, EVERY_S, kinds),
        TIMING,
        tick=lambda: [wrong] if wrong else [],
        tell=lambda _: None,
        hands=dict.fromkeys((kind.name for kind in kinds), hand),
    )
    return player.play()


def test_two_faults_of_one_thing_never_overlap() -> None:
    scene = Scene()
    course = played(scene.play)

    assert scene.most[BROKER] == scene.most[DRIVER] == 1
    assert not course.troubles


def test_there_are_quiet_phases_without_faults() -> None:
    course = played(Scene().play)

    assert len(course.quiet_ms) >= 3
    for begin_ms, end_ms in course.quiet_ms:
        assert end_ms - begin_ms >= 20_000


def test_a_fault_that_finds_nobody_is_tried_again_and_then_told() -> None:
    tries: Counter[int] = Counter()

    def miss(stage: Stage, fault: Fault) -> Proof:
        tries[fault.number] += 1
        raise NotFiredError("no target is there")

    course = played(miss, KINDS[:1])

    assert set(tries.values()) == {MAX_TRIES}
    assert {each.failure for each in course.played} == {"no target is there"}
    assert not any(each.has_fired for each in course.played)
    assert not course.troubles


def test_what_a_fault_did_not_expect_ends_the_storm() -> None:
    def break_down(stage: Stage, fault: Fault) -> Proof:
        raise ZeroDivisionError("by surprise")

    course = played(break_down)

    assert "ZeroDivisionError('by surprise')" in course.troubles[0]
    assert len(course.played) == 0


def test_what_the_tick_finds_ends_the_storm() -> None:
    course = played(Scene().play, wrong="the driver ended with 7")

    assert course.troubles[0] == "the driver ended with 7"
    assert course.quiet_ms == []
