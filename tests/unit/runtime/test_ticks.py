"""When a silent source gets a tick, which event time it has, and what becomes of it in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import TICK_COLUMN, SourceSpec
from onceflow.contracts.source_block import Capabilities
from onceflow.errors import ConfigError
from onceflow.runtime.batch.executed import Execution
from onceflow.runtime.source.data_source import SourceHandle, SourceReader
from onceflow.runtime.source.ticks import TICKS_PER_IDLE, EventTimeTeller, Ticker, TickSettings
from tests.support.clock import ManualClock
from tests.support.fakes.log_source import LogBlock, LogOrigin, open_log

IDLE_MS = 20_000
STEP_MS = IDLE_MS // TICKS_PER_IDLE
NEWEST_MS = 1_600_000_000_000
"""Years before the clock of these tests."""
LATENESS_MS = 12_000
"""More than a step: so ticks are due before the longest pause that is covered ends."""


def batch(
    newest_ms: int | None = None, *, read: int = 0, state_rows: int = 1, event_watermark_ms: int = 0
) -> Execution:
    return Execution(event_watermark_ms, 0, {}, {"s": (read, 0)}, 0, state_rows, newest_ms)


class Query:
    """A driver and the planning of one silent source."""

    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self.clock = ManualClock()
        self.teller = EventTimeTeller(self.clock)
        plan = self.teller.plan(idle_ms)
        assert plan is not None
        self.plan = plan
        self.ticker = Ticker(plan, self.clock)
        self.last_ms: int | None = None

    def note(self, newest_ms: int) -> None:
        self.teller.note(batch(newest_ms, read=1))

    def after(self, silence_ms: int) -> int | None:
        """The tick after so much more silence."""
        self.clock.sleep(silence_ms / 1000)
        due_ms = self.ticker.due_ms(self.last_ms)
        self.last_ms = self.last_ms if due_ms is None else due_ms
        return due_ms


@pytest.fixture
def query() -> Iterator[Query]:
    query = Query()
    yield query
    query.teller.close()


def test_event_time_goes_on_by_steps_from_the_newest_record(query: Query) -> None:
    """By no clock on the wall: that is years ahead here."""
    query.note(NEWEST_MS)
    assert query.after(IDLE_MS - 1) is None
    assert query.after(1) == NEWEST_MS + STEP_MS
    assert query.after(STEP_MS - 1) is None
    assert query.after(1) == NEWEST_MS + 2 * STEP_MS
    assert query.after(10 * STEP_MS) == NEWEST_MS + 12 * STEP_MS


def test_records_of_any_source_take_event_time_with_them(query: Query) -> None:
    """The source itself stays silent."""
    query.note(NEWEST_MS)
    assert query.after(IDLE_MS) == NEWEST_MS + STEP_MS
    query.note(NEWEST_MS + 3_600_000)
    assert query.after(0) == NEWEST_MS + 3_600_000 - (IDLE_MS - STEP_MS)


def test_event_time_stands_where_the_records_are_however_slow_they_come(query: Query) -> None:
    query.note(NEWEST_MS)
    for second in range(100):
        query.clock.sleep(10)
        query.note(NEWEST_MS + second * 1000)
    assert query.after(0) == NEWEST_MS + 99_000 - (IDLE_MS - STEP_MS)


def test_older_records_do_not_take_event_time_back(query: Query) -> None:
    query.note(NEWEST_MS)
    query.clock.sleep(IDLE_MS / 1000)
    query.note(NEWEST_MS - 1_000_000)
    assert query.after(0) == NEWEST_MS - (IDLE_MS - STEP_MS)


def test_a_record_of_the_source_ends_its_silence(query: Query) -> None:
    query.note(NEWEST_MS)
    query.clock.sleep(IDLE_MS / 1000)
    query.ticker.note_records()
    assert query.after(IDLE_MS - 1) is None
    assert query.after(1) is not None


def test_ticks_are_not_taken_for_records(query: Query) -> None:
    """Else event time would stand still with each of them."""
    query.note(NEWEST_MS)
    tick_ms = query.after(IDLE_MS)
    query.teller.note(batch(tick_ms))
    assert query.after(IDLE_MS) == NEWEST_MS + IDLE_MS + STEP_MS


def test_where_nothing_waits_for_event_time_there_are_no_ticks(query: Query) -> None:
    query.note(NEWEST_MS)
    query.teller.note(batch(state_rows=0))
    assert query.after(10 * IDLE_MS) is None
    query.teller.note(batch(NEWEST_MS, read=1))
    assert query.after(0) is not None


def test_without_any_event_time_there_are_no_ticks(query: Query) -> None:
    query.teller.resume(None)
    query.teller.note(batch(None, read=5))
    query.teller.note(batch())
    assert query.after(10 * IDLE_MS) is None


def test_a_run_goes_on_where_the_one_before_stood(query: Query) -> None:
    query.clock.sleep(7)
    query.teller.resume(NEWEST_MS)
    query.last_ms = NEWEST_MS - STEP_MS
    query.ticker.note_records()
    assert query.after(IDLE_MS) == NEWEST_MS + STEP_MS


def test_a_planner_that_outlives_its_driver_makes_no_ticks(query: Query) -> None:
    query.note(NEWEST_MS)
    query.teller.close()
    assert query.after(IDLE_MS) is None


def test_nothing_is_told_that_nobody_asked_for() -> None:
    teller = EventTimeTeller(ManualClock())
    assert teller.plan(None) is None
    teller.resume(NEWEST_MS)
    assert teller.note(batch(NEWEST_MS, read=1)).read == 1
    teller.close()


pauses = st.lists(st.integers(10, 3 * IDLE_MS), max_size=10)


@given(pauses)
def test_a_pause_that_lateness_and_idle_after_cover_makes_nothing_late(looks: list[int]) -> None:
    """Whatever the moments at which a batch is planned: what comes after the pause is on time."""
    query = Query()
    query.note(NEWEST_MS)
    paused_ms = 0
    for look in looks:
        paused_ms += look
        query.after(look)
        event_watermark_ms = (query.last_ms or 0) - LATENESS_MS
        if paused_ms <= IDLE_MS - STEP_MS + LATENESS_MS:
            assert event_watermark_ms <= NEWEST_MS
        # And whatever comes with the delay that the newest record had.
        assert event_watermark_ms <= NEWEST_MS + paused_ms - LATENESS_MS
    query.teller.close()


@given(st.integers(1, 2 * IDLE_MS), st.integers(500, 3_000))
def test_a_window_closes_no_more_than_idle_after_late(end_ms: int, trigger_ms: int) -> None:
    """Later than with records, and by batches: one may just have been planned."""
    query = Query()
    query.note(NEWEST_MS)
    silence_ms = 0
    while query.last_ms is None or query.last_ms < NEWEST_MS + end_ms:
        silence_ms += trigger_ms
        query.after(trigger_ms)
    query.teller.close()
    assert silence_ms <= end_ms + IDLE_MS + trigger_ms


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[LogOrigin]:
    with open_log(tmp_path) as origin:
        yield origin


def handle(block: LogBlock, ticks: TickSettings | None = None) -> SourceHandle:
    spec = SourceSpec("log", "binary", pa.schema([("value", pa.binary())]))
    return SourceHandle("log", block, spec, Connection(""), ticks)


class Reading:
    """The adapter over a log, behind whose driver event time has come to NEWEST_MS."""

    def __init__(self, query: Query, origin: LogOrigin) -> None:
        self.query = query
        self.reader = SourceReader(handle(origin.block, query.plan), query.clock)
        self.offset = self.reader.initialOffset()
        query.note(NEWEST_MS)

    def plan(self, silence_ms: int = 0) -> dict[str, Any]:
        """The next batch's end."""
        self.query.clock.sleep(silence_ms / 1000)
        self.offset = self.reader.latestOffset(self.offset, ReadAllAvailable())
        return self.offset

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        tasks = self.reader.partitions(start, end)
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.fixture
def reading(query: Query, origin: LogOrigin) -> Reading:
    made = Reading(query, origin)
    made.plan()  # the first position of a log names its partitions, which is new
    return made


def test_a_tick_is_in_the_offset_and_makes_one_row(reading: Reading, origin: LogOrigin) -> None:
    origin.append(0, [(b"k", b"a")])
    before = reading.plan()
    assert "tick_ms" not in before
    ticked = reading.plan(IDLE_MS)
    assert ticked["position"] == before["position"]
    assert list(ticked) == sorted(ticked)
    (row,) = reading.rows(before, ticked)
    assert row["value"] is None
    assert row[TICK_COLUMN].timestamp() * 1000 == ticked["tick_ms"]


def test_records_are_no_ticks(reading: Reading, origin: LogOrigin) -> None:
    """Also those that follow a tick, whose offset stays."""
    ticked = reading.plan(IDLE_MS)
    origin.append(0, [(b"k", b"a")])
    then = reading.plan(IDLE_MS)
    assert then["tick_ms"] == ticked["tick_ms"]
    assert reading.rows(ticked, then) == [{"value": b"a", TICK_COLUMN: None}]
    assert reading.rows(then, then) == []


def test_records_end_the_silence(reading: Reading, origin: LogOrigin) -> None:
    origin.append(0, [(b"k", b"a")])
    reading.plan(10 * IDLE_MS)
    assert "tick_ms" not in reading.plan(IDLE_MS - 1_000)
    assert "tick_ms" in reading.plan(1_000)


def test_a_replay_has_the_same_tick(reading: Reading, origin: LogOrigin) -> None:
    start = reading.offset
    ticked = reading.plan(IDLE_MS)
    first = reading.rows(start, ticked)
    origin.append(0, [(b"k", b"later")])
    another = SourceReader(handle(origin.block, reading.query.plan), ManualClock())
    tasks = another.partitions(start, ticked)
    assert [b.to_pylist() for task in tasks for b in another.read(task)] == [first]


def test_what_is_written_and_not_decided_is_no_silence(reading: Reading, origin: LogOrigin) -> None:
    transaction = origin.begin(0, [(b"k", b"open")])
    assert "tick_ms" not in reading.plan(10 * IDLE_MS)
    transaction.abort()
    reading.plan()
    assert "tick_ms" in reading.plan(IDLE_MS)


def test_until_caught_up_there_are_no_ticks(reading: Reading) -> None:
    """They would never end; one that an earlier run has logged stays."""
    ticked = reading.plan(IDLE_MS)
    reading.reader.prepareForTriggerAvailableNow()
    assert reading.plan(10 * IDLE_MS) == ticked


def test_without_idle_after_earlier_ticks_mean_nothing(reading: Reading, origin: LogOrigin) -> None:
    start = reading.offset
    ticked = reading.plan(IDLE_MS)
    reading.reader = SourceReader(handle(origin.block), reading.query.clock)
    assert reading.rows(start, ticked) == []
    origin.append(0, [(b"k", b"a")])
    assert reading.rows(ticked, reading.plan()) == [{"value": b"a"}]


def test_a_source_that_cannot_tell_silence_gets_no_ticks(
    origin: LogOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Capabilities(is_replayable=True, has_stable_ranges=True, is_ordered=True)
    monkeypatch.setattr(LogBlock, "capabilities", silent)
    with pytest.raises(ConfigError, match="cannot tell whether it is silent"):
        SourceReader(handle(origin.block, TickSettings(IDLE_MS, "nowhere")), ManualClock())
    assert SourceReader(handle(origin.block), ManualClock()).initialOffset()
