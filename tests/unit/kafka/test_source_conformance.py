"""A right source passes `onceflow.testing.sources`; each wrong one fails what it breaks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ConfigDict

from onceflow.contracts.source import Position, Split, TopicRanges
from onceflow.errors import OnceflowError
from onceflow.testing.sources import (
    CompactionPromises,
    GrowthPromises,
    IdentityPromises,
    RetentionPromises,
    SourceContract,
    SourceUnderTest,
    TransactionPromises,
)
from tests.support.fakes.log_source import (
    ABORTED,
    TOPIC,
    LogBlock,
    LogOrigin,
    LogPlanner,
    LogReader,
    open_log,
)


class TestLog(
    SourceContract,
    TransactionPromises,
    CompactionPromises,
    RetentionPromises,
    IdentityPromises,
    GrowthPromises,
):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[LogOrigin]:
        with open_log(tmp_path) as origin:
            yield origin


class Unsorted(LogPlanner):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        end = super().latest_position(start, max_records)
        return {name: end[name] for name in sorted(end, reverse=True)}


class Restless(LogPlanner):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        end = super().latest_position(start, max_records)
        return {**end, "polls": start.get("polls", 0) + 1}


class Deaf(LogPlanner):
    def is_silent(self, position: Position) -> bool:
        return True


class Unaware(LogPlanner):
    """Takes what it cannot read yet for nothing."""

    def is_silent(self, position: Position) -> bool:
        return self.latest_position(position, None) == position


class Greedy(LogPlanner):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        return super().latest_position(start, None)


class Stuck(LogPlanner):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        return super().latest_position(start, max_records and max_records - 1)


class Thawed(LogPlanner):
    def freeze_latest(self) -> None:
        pass


class Overlapping(LogPlanner):
    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        bounds = super().ranges(start, end)[TOPIC]
        return {TOPIC: {p: (max(0, low - 1), high) for p, (low, high) in bounds.items()}}


class ToTheNewest(LogReader):
    """Reads to wherever the log ends by now."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        end = len(log["partitions"][split.partition]["entries"])
        return super().visible(log, replace(split, end=end))


class Remembering(LogReader):
    """Goes on where the last read of the partition ended."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        places = self.__dict__.setdefault("places", {})
        start = max(split.start, places.get(split.partition, 0))
        places[split.partition] = split.end
        return super().visible(log, replace(split, start=start))


class FirstOnly(LogReader):
    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return super().read(splits[:1])


class AskingAgain(LogPlanner):
    """A replay depends on where a new pipeline would start."""

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        if start is None:
            ends = self.file.load()["partitions"]
            return {TOPIC: {n: (len(p["entries"]), 0) for n, p in enumerate(ends)}}
        return super().ranges(start, end)


class Unrepairable(LogPlanner):
    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        return {**super().position(like, ranges), "starts": {}}


class Uncommitted(LogPlanner):
    """Reads to the end of the log, decided or not."""

    def stable_ends(self, log: dict[str, Any]) -> dict[str, int]:
        return {str(n): len(p["entries"]) for n, p in enumerate(log["partitions"])}


class ReadingVoid(LogReader):
    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        decided = {
            name: "committed" if state == ABORTED else state
            for name, state in log["transactions"].items()
        }
        return super().visible({**log, "transactions": decided}, split)


class StoppingAtHoles(LogReader):
    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        found = super().visible(log, split)
        return [(at, value) for n, (at, value) in enumerate(found) if at == split.start + n]


class Resetting(LogReader):
    """Jumps to where the log starts now."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        start = max(split.start, log["partitions"][split.partition]["start"])
        return super().visible(log, replace(split, start=start))


class Credulous(LogPlanner):
    def checked_log(self, log_id: str) -> dict[str, Any]:
        return self.file.load()


class ShortSighted(LogPlanner):
    """Sees the two partitions that it began with."""

    def stable_ends(self, log: dict[str, Any]) -> dict[str, int]:
        return {n: end for n, end in super().stable_ends(log).items() if n in {"0", "1"}}


class Dying(LogReader):
    """Reads in the process that it knows, and in no other."""

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        if multiprocessing.parent_process() is not None:
            os._exit(1)
        return super().read(splits)


class Lax(LogBlock):
    model_config = ConfigDict(extra="allow")


class LikeATopic(LogPlanner):
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return [replace(split, topic="log") for split in super().splits(start, end)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Unsorted, "test_positions_are_canonical"),
        (Restless, "test_rest_is_rest"),
        (Deaf, "test_silence_is_told"),
        (Unaware, "test_undecided_is_no_silence"),
        (Greedy, "test_limit_holds"),
        (Stuck, "test_limit_holds"),
        (Thawed, "test_frozen_end"),
        (Overlapping, "test_everything_once_in_order"),
        (ToTheNewest, "test_parts_of_a_split"),
        (Remembering, "test_same_split_same_records"),
        (Remembering, "test_abandoned_read"),
        (FirstOnly, "test_splits_read_together"),
        (Dying, "test_killed_reader"),
        (Lax, "test_unknown_keys_are_refused"),
        (LikeATopic, "test_only_topics_are_named_like_topics"),
        (AskingAgain, "test_replay_needs_the_log_only"),
        (Unrepairable, "test_repaired_position"),
        (Uncommitted, "test_undecided_is_unread"),
        (ReadingVoid, "test_void_records_leave_holes"),
        (StoppingAtHoles, "test_void_records_leave_holes"),
        (StoppingAtHoles, "test_compaction_leaves_holes"),
        (Resetting, "test_lost_to_retention"),
        (Credulous, "test_replaced_origin"),
        (ShortSighted, "test_new_partition"),
    ],
)
def test_a_broken_promise_is_found(
    kind: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Records that are missing never come: no need to wait for them.
    monkeypatch.setattr("onceflow.testing.sources.reading.SETTLE_TIMEOUT_S", 0.0)
    role = "reader_class" if issubclass(kind, LogReader) else "planner_class"
    classes = {} if issubclass(kind, LogBlock) else {role: f"{__name__}.{kind.__name__}"}
    with open_log(tmp_path, **classes) as origin:
        if issubclass(kind, LogBlock):
            origin.block = kind.model_validate(origin.block.written)
        with pytest.raises((AssertionError, OnceflowError, pytest.fail.Exception)):
            getattr(TestLog(), name)(origin, SourceUnderTest(origin.block))


def test_every_promise_is_broken_by_one_of_these() -> None:
    (marks,) = test_a_broken_promise_is_found.pytestmark  # type: ignore[attr-defined]
    assert {name for _, name in marks.args[1]} == {n for n in dir(TestLog) if n.startswith("test_")}
