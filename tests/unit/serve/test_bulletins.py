"""Bulletins: what a run leaves for others to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from onceflow.clock import Deadline
from onceflow.contracts.connector import MAX_BULLETIN_BYTES
from onceflow.errors import CorruptionError, DeadlineError, FencedError, RecordError
from onceflow.protocol.bulletin import (
    END_KIND,
    RUNNING_KIND,
    Bulletin,
    Ending,
    StateFigures,
)
from onceflow.runtime.query.progress import figures
from onceflow.runtime.spark.session import SessionSettings
from onceflow.serve.bulletins import END_TIMEOUT_S, POST_INTERVAL_S, Bulletins
from tests.support.clock import ManualClock

FIGURES: dict[str, Any] = {
    "spark_batch_id": 4,
    "records_per_second": 12.5,
    "duration_ms": {"triggerExecution": 300},
    "state_rows": 7,
    "state_memory_bytes": 8,
    "state_commit_ms": 9,
    "state_upload_ms": 3,
}


class Board:
    """Remembers what was posted. The real one is tested with a real Kafka."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, str]] = []
        self.is_closed = False
        self.is_deaf = False
        self.waited_s = 0.0

    def post(self, kind: int, text: str) -> None:
        if self.is_deaf:
            raise DeadlineError("no answer")
        self.posted.append((kind, text))

    def settle(self, deadline: Deadline) -> None:
        self.waited_s = deadline.remaining_s()

    def read(self, deadline: Deadline) -> Mapping[int, str]:
        return dict(self.posted)

    def close(self) -> None:
        self.is_closed = True


class Run:
    def __init__(self) -> None:
        self.board, self.clock = Board(), ManualClock()
        self.heard: list[str] = []
        self.report = Bulletins(
            self.board, "here", 99, self.clock, lambda event, /, **facts: self.heard.append(event)
        )

    def bulletins(self) -> list[Bulletin]:
        return [
            Bulletin.from_json(text) for kind, text in self.board.posted if kind == RUNNING_KIND
        ]


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_bulletin_has_the_figures_of_the_run(run: Run) -> None:
    run.report("owner", run_id="run-1", token=1)
    run.report("progress", **{**FIGURES, "state_rows": 5})
    run.report("batch")
    run.clock.sleep(POST_INTERVAL_S)
    run.report("progress", **FIGURES, retention_left_s=60.0)
    assert run.heard == ["owner", "progress", "batch", "progress"]
    assert len(run.bulletins()) == 2
    assert run.bulletins()[-1] == Bulletin(
        run_id="run-1",
        host="here",
        at_ms=run.clock.unix_ms(),
        batch_id=4,
        batch_at_ms=run.clock.unix_ms(),
        records_per_second=12.5,
        duration_ms={"triggerExecution": 300},
        state=StateFigures(7, 8, 9, 3),
        first_state_rows=5,
        memory_budget_bytes=99,
        retention_left_s=60.0,
    )


def test_bulletins_are_paced_and_the_last_batch_keeps_its_time(run: Run) -> None:
    run.report("progress", **FIGURES)
    began_ms = run.clock.unix_ms()
    for _ in range(10):
        run.clock.sleep(POST_INTERVAL_S / 2)
        run.report("progress", lag=5)
    told = run.bulletins()
    assert len(told) == 6
    assert told[-1].batch_at_ms == began_ms
    assert told[-1].at_ms == run.clock.unix_ms()


def test_beats_show_that_it_goes_on(run: Run) -> None:
    run.report("owner", run_id="run-1", token=1)
    for _ in range(30):
        run.report.beat()
        run.clock.sleep(POST_INTERVAL_S / 5)
    told = run.bulletins()
    assert len(told) == 6
    assert len({bulletin.at_ms for bulletin in told}) == 6
    assert {bulletin.run_id for bulletin in told} == {"run-1"}
    assert run.heard == ["owner"]


@pytest.mark.parametrize(
    ("error", "exit_code", "name"),
    [
        (None, 0, ""),
        (FencedError("fenced"), 4, "FencedError"),
        (ValueError("odd"), 70, "ValueError"),
    ],
)
def test_an_end_is_told(run: Run, error: Exception | None, exit_code: int, name: str) -> None:
    run.report("owner", run_id="run-1")
    run.report.end(error)
    text = dict(run.board.posted)[END_KIND]
    ending = Ending.from_json(text)
    assert (ending.exit_code, ending.error, ending.run_id) == (exit_code, name, "run-1")
    assert json.loads(text)["v"] == 1
    assert (run.board.waited_s, run.board.is_closed) == (END_TIMEOUT_S, True)


def test_no_bulletin_is_too_large_to_be_kept(run: Run) -> None:
    run.report("owner", run_id="x" * 36)
    run.report.host = "h" * 253
    run.report.end(RecordError("\N{SNOWMAN}" * 5_000, found="\N{SNOWMAN}" * 5_000))
    run.report("progress", **{**FIGURES, "duration_ms": {f"step{n}": 10**9 for n in range(30)}})
    assert all(len(text.encode()) < MAX_BULLETIN_BYTES for _, text in run.board.posted)
    assert len(run.board.posted) == 2


def test_a_board_that_cannot_be_used_stops_nothing(run: Run) -> None:
    run.board.is_deaf = True
    run.report("progress", **FIGURES)
    run.report.end(None)
    assert (run.heard, run.board.is_closed) == (["progress"], True)


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"v":2}', '{"v":1,"no":1}', '{"v":1}'])
@pytest.mark.parametrize("kind", [Bulletin, Ending])
def test_what_cannot_be_read_is_told(kind: type[Bulletin] | type[Ending], text: str) -> None:
    with pytest.raises(CorruptionError, match="unreadable bulletin"):
        kind.from_json(text)


def test_times_of_the_state_are_per_task() -> None:
    operator = SimpleNamespace(
        operatorName="stateStoreSave",
        numRowsUpdated=4,
        numRowsDroppedByWatermark=1,
        memoryUsedBytes=20,
        allUpdatesTimeMs=100,
        allRemovalsTimeMs=50,
        commitTimeMs=50,
        numShufflePartitions=4,
        customMetrics={"rocksdbCommitFileSyncLatencyMs": 40},
    )
    progress = SimpleNamespace(
        batchId=3,
        processedRowsPerSecond=1.0,
        durationMs={"addBatch": 9},
        stateOperators=[operator, operator],
        observedMetrics={
            "onceflow.clicks": Row(read=7, rejected=0),
            "onceflow.of-the-query": Row(most=1),
            "onceflow-view.clicks": Row(count=1),
        },
    )
    found = figures(progress)
    assert (found["state_commit_ms"], found["state_upload_ms"]) == (100, 20)
    assert found["state_memory_bytes"] == 40
    told = {"name": "stateStoreSave", "updated": 4, "dropped": 1}
    assert found["operators"] == [told, told]
    assert found["source_records"] == {"clicks": 7}


@pytest.mark.parametrize(("text", "size"), [("2g", 2 << 30), ("512m", 512 << 20), ("9K", 9 << 10)])
def test_the_driver_s_memory_is_a_number(text: str, size: int) -> None:
    assert SessionSettings(driver_memory=text).driver_memory_bytes == size
