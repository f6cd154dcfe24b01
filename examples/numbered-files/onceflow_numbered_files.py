"""Reads folders of numbered files, one record per line: a small source that can be read again.

    orders/0/000000.jsonl     a folder for each partition, and in it files, each named after the
    orders/0/000120.jsonl     number of its first line: this one begins with line 120

Write a file under another suffix, then rename it to `.jsonl`: a file that is seen is complete and
never changes. Old files may be deleted, but for the newest of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyarrow as pa
from pydantic import Field

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position, SourceSpec, Split, TopicRanges
from onceflow.contracts.source_block import Capabilities, SourceBlock
from onceflow.errors import ConfigError, CorruptionError
from onceflow_connectors.batches import BatchBuilder, Columns

CHUNK_LINES = 10_000


class NumberedFiles(SourceBlock):
    """The folder whose numbered files are read."""

    capabilities: ClassVar = Capabilities(
        is_replayable=True, has_stable_ranges=True, is_ordered=True, tells_silence=True
    )
    folder: str = Field(
        min_length=1,
        description="In the folder of the pipeline file or below; has a folder for each partition.",
    )

    def planner(self, spec: SourceSpec, connection: Connection) -> FilePlanner:
        return FilePlanner(f"numbered-files:{self.folder}", self._place(spec))

    def reader(self, spec: SourceSpec, connection: Connection) -> FileReader:
        return FileReader(self._place(spec), spec)

    def describe(self) -> str:
        return f"files in {self.folder}"

    def _place(self, spec: SourceSpec) -> Path:
        """Who may write a pipeline file may not read every file of the machine."""
        allowed, place = Path(spec.folder).resolve(), Path(spec.folder, self.folder).resolve()
        if not place.is_relative_to(allowed):
            raise ConfigError(
                "the folder lies outside of that of the pipeline file",
                subject=f"source {spec.name}",
                expected=f"a folder in {allowed}, and no link that leads out of it",
                found=str(place),
            )
        return place


class FilePlanner:
    """Plans batches. A position holds both ends of its batch, so that it needs no other position.

    {"from": {"0": 0, "1": 0}, "to": {"0": 120, "1": 80}}
    """

    def __init__(self, topic: str, place: Path) -> None:
        self._topic = topic
        self._place = place
        self._frozen: Mapping[int, int] | None = None

    def initial_position(self) -> Position:
        if not self._place.is_dir():
            raise ConfigError("the folder of a source does not exist", subject=str(self._place))
        first = {p: min(files(self._place, p), default=0) for p in partitions(self._place)}
        return position(first, first)

    def latest_position(self, start: Position, max_records: int | None) -> Position:
        before = {int(partition): line for partition, line in start["to"].items()}
        known = self._ends() if self._frozen is None else self._frozen
        for partition, line in before.items():
            if known.get(partition, 0) < line:
                raise CorruptionError(
                    "a partition is shorter than what was read of it",
                    subject=f"{self._topic}-{partition}",
                    expected=f"at least {line} lines",
                    found=f"{known.get(partition, 0)}",
                )
        starts = {partition: before.get(partition, 0) for partition in known}
        waiting = {partition: known[partition] - line for partition, line in starts.items()}
        ends, room = dict(starts), sum(waiting.values()) if max_records is None else max_records
        # The shortest first: what it leaves of its share is for the others.
        for number, partition in enumerate(sorted(waiting, key=lambda p: waiting[p])):
            share = -(-room // (len(waiting) - number))
            step = min(waiting[partition], share)
            ends[partition] += step
            room -= step
        return start if ends == before else position(starts, ends)

    def is_silent(self, position: Position) -> bool:
        return self.latest_position(position, None) == position

    def freeze_latest(self) -> None:
        self._frozen = self._ends()

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        before = start["to"] if start is not None else {}
        bounds = {p: (before.get(p, end["from"][p]), line) for p, line in end["to"].items()}
        return {self._topic: {int(partition): bounds[partition] for partition in bounds}}

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        bounds = ranges[self._topic]
        starts = {partition: start for partition, (start, _) in bounds.items()}
        return position(starts, {partition: end for partition, (_, end) in bounds.items()})

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        bounds = self.ranges(start, end)[self._topic]
        return [Split(self._topic, p, low, high) for p, (low, high) in bounds.items() if low < high]

    def close(self) -> None:
        """Nothing is open."""

    def _ends(self) -> Mapping[int, int]:
        found = {}
        for partition in partitions(self._place):
            newest = max(files(self._place, partition).items(), default=None)
            found[partition] = newest[0] + line_count(newest[1]) if newest else 0
        return found


class Line(NamedTuple):
    topic: str
    partition: int
    number: int
    payload: bytes


COLUMNS: Columns[Line] = {
    "_key": lambda line: None,
    "_topic": lambda line: line.topic,
    "_partition": lambda line: line.partition,
    "_offset": lambda line: line.number,
    "_timestamp": lambda line: None,
    "_value": lambda line: line.payload,
    "_headers": lambda line: [],
}


class FileReader:
    def __init__(self, place: Path, spec: SourceSpec) -> None:
        self._place = place
        self._builder = BatchBuilder(spec, COLUMNS)

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            lines = self._lines(split)
            while chunk := [*islice(lines, CHUNK_LINES)]:
                yield self._builder.batch(chunk)

    def _lines(self, split: Split) -> Iterator[Line]:
        at = split.start
        found = sorted(files(self._place, split.partition).items())
        for first, path in found:
            if at >= split.end or first > at:
                break
            if at >= first + line_count(path):
                continue
            with path.open("rb") as file:
                for payload in islice(file, at - first, split.end - first):
                    yield Line(split.topic, split.partition, at, payload.rstrip(b"\n"))
                    at += 1
        if at < split.end:
            raise CorruptionError(
                "lines were deleted before they were read",
                subject=f"lines [{at}, {split.end}) of {split.topic}-{split.partition}",
                found=f"files that begin with lines {', '.join(str(first) for first, _ in found)}",
                then="halting rather than leave them out: restore the files and start again",
            )


def partitions(place: Path) -> list[int]:
    return sorted(int(folder.name) for folder in place.iterdir() if folder.name.isdecimal())


def files(place: Path, partition: int) -> Mapping[int, Path]:
    """Number of the first line -> file; none that a link leads to elsewhere."""
    found = (place / str(partition)).glob("*.jsonl")
    return {int(path.stem): path for path in found if path.resolve().is_relative_to(place)}


@lru_cache(maxsize=1024)
def line_count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def position(starts: Mapping[int, int], ends: Mapping[int, int]) -> Position:
    """Keys in the order of their text, as JSON that is equal has to be."""
    in_order = sorted(map(str, ends))
    return {
        "from": {partition: starts[int(partition)] for partition in in_order},
        "to": {partition: ends[int(partition)] for partition in in_order},
    }
