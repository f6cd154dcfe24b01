"""The conformance kit lets a right source pass, and finds what is wrong with each wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow.contracts.source import Position, Split, TopicRanges
from onceflow.devkit.conformance import Outcome, check_source
from onceflow.devkit.conformance_cases import CASES, Case
from tests.support.log_source import ABORTED, TOPIC, LogOrigin, LogSource, open_log


def case(name: str) -> Case:
    return next(case for case in CASES if str(case) == name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_source_that_keeps_its_promises_passes(case: Case, tmp_path: Path) -> None:
    (result,) = check_source(partial(open_log, tmp_path), [case])
    assert result.outcome is Outcome.PASSED, str(result)


class Unsorted(LogSource):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        end = super().latest_position(start, max_records)
        return {name: end[name] for name in sorted(end, reverse=True)}


class Restless(LogSource):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        end = super().latest_position(start, max_records)
        return {**end, "polls": start.get("polls", 0) + 1}


class Deaf(LogSource):
    def is_silent(self, position: Position) -> bool:
        return True


class Unaware(LogSource):
    """Takes what it cannot read yet for nothing."""

    def is_silent(self, position: Position) -> bool:
        return self.latest_position(position, None) == position


class Greedy(LogSource):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        return super().latest_position(start, None)


class Stuck(LogSource):
    def latest_position(self, start: Position, max_records: int | None) -> Position:
        return super().latest_position(start, max_records and max_records - 1)


class Thawed(LogSource):
    def freeze_latest(self) -> None:
        pass


class Overlapping(LogSource):
    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        bounds = super().ranges(start, end)[TOPIC]
        return {TOPIC: {p: (max(0, low - 1), high) for p, (low, high) in bounds.items()}}


class ToTheNewest(LogSource):
    """Reads to wherever the log ends by now."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        end = len(log["partitions"][split.partition]["entries"])
        return super().visible(log, replace(split, end=end))


class Remembering(LogSource):
    """Goes on where the last read of the partition ended."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        places = self.__dict__.setdefault("places", {})
        start = max(split.start, places.get(split.partition, 0))
        places[split.partition] = split.end
        return super().visible(log, replace(split, start=start))


class FirstOnly(LogSource):
    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return super().read(splits[:1])


class Forgetful(LogSource):
    """Knows in memory only what it planned; a copy has another memory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Forgetful, (self.file,))

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        self.__dict__["planned"] = True
        return super().splits(start, end)

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return super().read(splits) if self.__dict__.get("planned") else iter(())


class Unpicklable(LogSource):
    def __reduce__(self) -> tuple[Any, ...]:
        return (Unpicklable, (self.file, {"0": 0}))

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return iter(()) if self.frozen else super().read(splits)


class AskingAgain(LogSource):
    """A replay depends on where a new pipeline would start."""

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        if start is None:
            ends = self.file.load()["partitions"]
            return {TOPIC: {n: (len(p["entries"]), 0) for n, p in enumerate(ends)}}
        return super().ranges(start, end)


class Unrepairable(LogSource):
    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        return {**super().position(like, ranges), "starts": {}}


class Uncommitted(LogSource):
    """Reads to the end of the log, decided or not."""

    def stable_ends(self, log: dict[str, Any]) -> dict[str, int]:
        return {str(n): len(p["entries"]) for n, p in enumerate(log["partitions"])}


class ReadingVoid(LogSource):
    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        decided = {
            name: "committed" if state == ABORTED else state
            for name, state in log["transactions"].items()
        }
        return super().visible({**log, "transactions": decided}, split)


class StoppingAtHoles(LogSource):
    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        found = super().visible(log, split)
        return [(at, value) for n, (at, value) in enumerate(found) if at == split.start + n]


class Resetting(LogSource):
    """Jumps to where the log starts now."""

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        start = max(split.start, log["partitions"][split.partition]["start"])
        return super().visible(log, replace(split, start=start))


class Credulous(LogSource):
    def checked_log(self, log_id: str) -> dict[str, Any]:
        return self.file.load()


class ShortSighted(LogSource):
    """Sees the two partitions that it began with."""

    def stable_ends(self, log: dict[str, Any]) -> dict[str, int]:
        return {n: end for n, end in super().stable_ends(log).items() if n in {"0", "1"}}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Unsorted, "positions_are_canonical"),
        (Restless, "rest_is_rest"),
        (Deaf, "silence_is_told"),
        (Unaware, "undecided_is_no_silence"),
        (Greedy, "limit_holds"),
        (Stuck, "limit_holds"),
        (Thawed, "frozen_end"),
        (Overlapping, "everything_once_in_order"),
        (ToTheNewest, "parts_of_a_split"),
        (Remembering, "same_split_same_records"),
        (Remembering, "abandoned_read"),
        (FirstOnly, "splits_read_together"),
        (Forgetful, "killed_reader"),
        (Unpicklable, "pickled_copy"),
        (AskingAgain, "replay_needs_the_log_only"),
        (Unrepairable, "repaired_position"),
        (Uncommitted, "undecided_is_unread"),
        (ReadingVoid, "void_records_leave_holes"),
        (StoppingAtHoles, "void_records_leave_holes"),
        (StoppingAtHoles, "compaction_leaves_holes"),
        (Resetting, "lost_to_retention"),
        (Credulous, "replaced_origin"),
        (ShortSighted, "new_partition"),
    ],
)
def test_a_broken_promise_is_found(
    kind: type[LogSource], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Records that are missing never come: no need to wait for them.
    monkeypatch.setattr("onceflow.devkit.conformance_origin.SETTLE_TIMEOUT_S", 0.0)
    (result,) = check_source(partial(open_log, tmp_path, kind), [case(name)])
    assert result.outcome is Outcome.FAILED, str(result)


def test_every_promise_is_broken_by_one_of_these() -> None:
    (marks,) = test_a_broken_promise_is_found.pytestmark  # type: ignore[attr-defined]
    assert {name for _, name in marks.args[1]} == {str(case) for case in CASES}


def test_what_an_origin_cannot_do_is_passed_over(tmp_path: Path) -> None:
    @contextmanager
    def open_plain() -> Iterator[LogOrigin]:
        with open_log(tmp_path) as origin:
            origin.features = frozenset()
            yield origin

    needy = [case for case in CASES if case.needs]
    results = check_source(open_plain, needy)
    assert {result.outcome for result in results} == {Outcome.NOT_APPLICABLE}
