"""A rewindable source over one small file: it keeps every promise of `onceflow.testing.sources`.

It has everything that makes Kafka's logs difficult (transactions, compaction, retention, identity,
growth) and, being a file, can be read by other processes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field, ImportString

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position, SourceSpec, Split, TopicRanges
from onceflow.contracts.source_block import Capabilities, SourceBlock
from onceflow.errors import CorruptionError
from onceflow.testing.sources import Record

TOPIC = "log:entries"
BATCH_ROWS = 4
COMMITTED, OPEN, ABORTED = "committed", "open", "aborted"


@dataclass
class LogFile:
    """The log: `{"id", "partitions": [{"start", "entries": [...]}], "transactions": {...}}`."""

    path: Path

    def create(self) -> None:
        partitions = [{"start": 0, "entries": []} for _ in range(2)]
        self.save(
            {"id": uuid.uuid4().hex, "partitions": partitions, "transactions": {"": COMMITTED}}
        )

    def load(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def save(self, log: dict[str, Any]) -> None:
        """In one step: Spark's processes read it all the time."""
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps(log))
        written.replace(self.path)


class LogOrigin:
    """An origin of `onceflow.testing.sources` that can do everything."""

    def __init__(self, file: LogFile, block: LogBlock) -> None:
        self._file = file
        self.block = block

    def append(self, partition: int, records: Sequence[Record], transaction: str = "") -> None:
        log = self._file.load()
        log["partitions"][partition]["entries"] += [
            {"key": key.decode(), "value": value.decode(), "transaction": transaction}
            for key, value in records
        ]
        self._file.save(log)

    def begin(self, partition: int, records: Sequence[Record]) -> LogTransaction:
        transaction = LogTransaction(self._file, partition, uuid.uuid4().hex)
        transaction.decide(OPEN)
        self.append(partition, records, transaction.name)
        return transaction

    def compact(self) -> None:
        log = self._file.load()
        for partition in log["partitions"]:
            entries = partition["entries"]
            newest = {entry["key"]: offset for offset, entry in enumerate(entries)}
            partition["entries"] = [
                entry if newest[entry["key"]] == offset else None
                for offset, entry in enumerate(entries)
            ]
        self._file.save(log)

    def delete_before(self, partition: int, offset: int) -> None:
        log = self._file.load()
        log["partitions"][partition]["start"] = offset
        self._file.save(log)

    def recreate(self) -> None:
        self._file.create()

    def add_partition(self) -> int:
        log = self._file.load()
        log["partitions"].append({"start": 0, "entries": []})
        self._file.save(log)
        return len(log["partitions"]) - 1


@dataclass
class LogTransaction:
    """Implements `onceflow.testing.sources.Transaction`."""

    file: LogFile
    partition: int
    name: str

    def commit(self) -> None:
        self.decide(COMMITTED)

    def abort(self) -> None:
        self.decide(ABORTED)

    def decide(self, state: str) -> None:
        log = self.file.load()
        log["transactions"][self.name] = state
        if state != OPEN:  # the marker
            log["partitions"][self.partition]["entries"].append(None)
        self.file.save(log)


class LogBlock(SourceBlock):
    """A log in a file."""

    capabilities: ClassVar = Capabilities(
        is_replayable=True, has_stable_ranges=True, is_ordered=True, tells_silence=True
    )
    path: str
    planner_class: ImportString[Any] = Field(
        default="tests.support.fakes.log_source.LogPlanner", validate_default=True
    )
    reader_class: ImportString[Any] = Field(
        default="tests.support.fakes.log_source.LogReader", validate_default=True
    )

    def planner(self, spec: SourceSpec, connection: Connection) -> LogPlanner:
        made: LogPlanner = self.planner_class(LogFile(Path(self.path)))
        return made

    def reader(self, spec: SourceSpec, connection: Connection) -> LogReader:
        made: LogReader = self.reader_class(LogFile(Path(self.path)))
        return made

    def describe(self) -> str:
        return f"log {self.path}"


class LogPlanner:
    """Implements `contracts.source.Planner`.

    A position is `{"ends": {"0": 5, "1": 3}, "id": ..., "starts": {}}`. Partitions enter at 0, so
    only a position that was made from ranges needs `starts`.
    """

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.frozen: dict[str, int] = {}

    def initial_position(self) -> Position:
        return {"ends": {}, "id": self.file.load()["id"], "starts": {}}

    def latest_position(self, start: Position, max_records: int | None) -> Position:
        log = self.checked_log(start["id"])
        known = self.frozen or self.stable_ends(log)
        ends = {number: start["ends"].get(number, 0) for number in sorted(known)}
        room = max_records if max_records is not None else sum(known.values())
        for number, end in ends.items():
            step = min(room, known[number] - end)
            ends[number] += step
            room -= step
        return start if ends == start["ends"] else {"ends": ends, "id": start["id"], "starts": {}}

    def is_silent(self, position: Position) -> bool:
        written = self.file.load()["partitions"]
        return {str(n): len(p["entries"]) for n, p in enumerate(written) if p["entries"]} == {
            n: end for n, end in position["ends"].items() if end
        }

    def freeze_latest(self) -> None:
        self.frozen = self.stable_ends(self.file.load())

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        begin = {**(start["ends"] if start else {}), **end["starts"]}
        bounds = {int(n): (begin.get(n, 0), high) for n, high in end["ends"].items()}
        return {TOPIC: bounds}

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        bounds = sorted(ranges[TOPIC].items())
        return {
            "ends": {str(number): high for number, (_, high) in bounds},
            "id": (like or self.initial_position())["id"],
            "starts": {str(number): low for number, (low, _) in bounds},
        }

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        bounds = self.ranges(start, end)[TOPIC]
        return [
            Split(TOPIC, number, low, high, end["id"])
            for number, (low, high) in bounds.items()
            if low < high
        ]

    def close(self) -> None:
        pass

    def checked_log(self, log_id: str) -> dict[str, Any]:
        return checked(self.file, log_id)

    def stable_ends(self, log: dict[str, Any]) -> dict[str, int]:
        """Up to the first entry of an open transaction."""
        return {
            str(number): next(
                (
                    offset
                    for offset, entry in enumerate(partition["entries"])
                    if entry and log["transactions"][entry["transaction"]] == OPEN
                ),
                len(partition["entries"]),
            )
            for number, partition in enumerate(log["partitions"])
        }


def checked(file: LogFile, log_id: str) -> dict[str, Any]:
    """The log, if it is still the one of this id."""
    log = file.load()
    if log["id"] != log_id:
        raise CorruptionError("the log was replaced", expected=log_id, found=log["id"])
    return log


class LogReader:
    """Implements `contracts.source.Reader`."""

    def __init__(self, file: LogFile) -> None:
        self.file = file

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            log = self.checked_log(split.topic_id)
            values = [value for _, value in self.visible(log, split)]
            for low in range(0, len(values), BATCH_ROWS):
                column = pa.array(values[low : low + BATCH_ROWS], pa.binary())
                yield pa.RecordBatch.from_arrays([column], names=["value"])

    def checked_log(self, log_id: str) -> dict[str, Any]:
        return checked(self.file, log_id)

    def visible(self, log: dict[str, Any], split: Split) -> list[tuple[int, bytes]]:
        """Offset and value of the committed records of a split."""
        partition = log["partitions"][split.partition]
        if split.start < partition["start"]:
            raise CorruptionError("records were deleted", subject=f"offset {split.start}")
        return [
            (offset, partition["entries"][offset]["value"].encode())
            for offset in range(split.start, split.end)
            if (entry := partition["entries"][offset])
            and log["transactions"][entry["transaction"]] == COMMITTED
        ]


@contextmanager
def open_log(folder: Path, **classes: str) -> Iterator[LogOrigin]:
    """A fresh origin, read by other classes if these are named."""
    file = LogFile(folder / f"{uuid.uuid4().hex}.json")
    file.create()
    block = LogBlock.model_validate({"path": str(file.path), **classes})
    yield LogOrigin(file, block)
