"""The looks at a delivery while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Semaphore
from typing import Any

from onceflow.delivery import watch
from onceflow.delivery.watch import watching
from onceflow.observe.facts import InputFacts
from tests.support.clock import ManualClock

PATIENCE_S = 30


@dataclass
class SlowSurvey:
    """Answers as often as it may."""

    broker: None = None
    asked: Semaphore = field(default_factory=partial(Semaphore, 0))
    answers: Semaphore = field(default_factory=partial(Semaphore, 0))
    is_left: Event = field(default_factory=Event)

    def inputs(self) -> Sequence[InputFacts]:
        self.asked.release()
        assert self.answers.acquire(timeout=PATIENCE_S)
        return ()

    def oldest_waiting_ms(self, seen: Sequence[InputFacts]) -> int | None:
        return None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self
        self.is_left.set()


def test_a_look_is_reported_only_while_the_delivery_runs(monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "JOIN_TIMEOUT_S", 0)
    survey = SlowSurvey()
    events: list[str] = []

    def report(event: str, /, **facts: Any) -> None:
        events.append(event)

    survey.answers.release()
    with watching(survey.opened, ManualClock(), report, interval_s=0.001):
        for _ in range(2):
            assert survey.asked.acquire(timeout=PATIENCE_S)
    survey.answers.release()
    assert survey.is_left.wait(PATIENCE_S)
    assert events == ["progress"]
