"""A run's reports between its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceflow.clock import Deadline
from onceflow.contracts.observer import Observer
from onceflow.errors import DeadlineError
from tests.support.clock import ManualClock
from tests.support.entries import head

progress = pytest.importorskip("onceflow.runtime.query.progress")


@dataclass
class Run:
    """One whose position and brokers a test sets."""

    clock: ManualClock = field(default_factory=ManualClock)
    sources: Mapping[str, Any] = field(default_factory=dict)
    is_deaf: bool = False
    rows: int | None = None
    told: list[Mapping[str, object]] = field(default_factory=list)

    def offsets(self, topic: str, _: Deadline) -> Mapping[int, tuple[int, int, int]]:
        if self.is_deaf:
            raise DeadlineError("no answer")
        return {0: (0, 400, 450), 1: (0, 7, 7)}

    def report(self, event: str, /, **facts: object) -> None:
        assert event == "progress"
        self.told.append(facts)

    def lag(self, records: Mapping[tuple[str, int], int]) -> None:
        self.told.append({"metrics": dict(records)})

    def position(self) -> Any:
        newest = head(3, 0, 150)
        return replace(newest, plan=replace(newest.plan, sources=self.sources))

    def look(self, newest: Any = None) -> list[Mapping[str, object]]:
        """Reports and metrics of one look."""
        made = progress.ProgressReporter(
            self.report,
            cast("Any", self),
            self.position,
            lambda: self.rows,
            lambda: None,
            self.clock,
            cast("Observer", self),
        )
        made(newest)
        return self.told


def test_lag_is_counted_from_the_position_to_what_is_decided() -> None:
    run = Run(sources={"clicks": {"clicks-in": {0: (0, 150), 1: (0, 7)}}})
    counted = {("clicks-in", 0): 250, ("clicks-in", 1): 0}
    assert run.look() == [{"metrics": counted}, {"lag": 250, "retention_left_s": None}]


def test_lag_is_unknown_before_the_first_batch() -> None:
    assert Run().look() == [{"metrics": {}}, {"lag": None, "retention_left_s": None}]


def test_lag_is_unknown_while_no_broker_answers() -> None:
    run = Run(sources={"clicks": {"clicks-in": {0: (0, 150)}}}, is_deaf=True)
    assert run.look() == [{"lag": None, "retention_left_s": None}]


def test_rows_of_the_state_are_those_of_the_samples() -> None:
    newest = SimpleNamespace(
        batchId=3, processedRowsPerSecond=1.0, durationMs={}, stateOperators=[], observedMetrics={}
    )
    run = Run()
    assert run.look(newest)[-1]["state_rows"] is None
    run.rows = 12
    assert run.look(newest)[-1]["state_rows"] == 12
