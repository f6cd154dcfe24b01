"""Reads, and in two named cases writes, Spark's checkpoint: which batches are planned and done.

Layout (Spark's `OffsetSeqLog` and `CommitLog`, version 1 and 2): `metadata` holds the query id,
`offsets/N` what batch N reads, its watermark and its clock, `commits/N` that Spark finished it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from onceflow.contracts.source import Position, TopicRanges
from onceflow.errors import CorruptionError, LineageError
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    canonical_json,
)

_OFFSET_LOG_VERSION = "v1"
_PIPELINE_FILE = "onceflow.json"
"""Beside Spark's own files: which pipeline this checkpoint belongs to."""


@dataclass(frozen=True)
class LoggedBatch:
    """One entry of the offset log.

    Args:
        metadata: watermark, clock and pinned settings, as Spark wrote them.
        positions: source name -> end position.
    """

    metadata: Mapping[str, Any]
    positions: Mapping[str, Position]


@dataclass(frozen=True)
class SourceArithmetic:
    """The pure part of a source that is needed to understand its positions."""

    ranges: Callable[[Position | None, Position], TopicRanges]
    position: Callable[[Position | None, TopicRanges], Position]


class Checkpoint:
    """A checkpoint directory of one pipeline.

    Args:
        location: a path or a URL that pyarrow knows (`file:`, `s3:` and `s3a:`, `hdfs:`).
        pipeline: the name that must be, or is to be, written in it.
        sources: the arithmetic of each source, by name.
    """

    def __init__(
        self, location: str, pipeline: str, sources: Mapping[str, SourceArithmetic]
    ) -> None:
        self._location = location
        self._pipeline = pipeline
        self._sources = sources
        self._files, self._root = _open(location)

    def query_id(self) -> str | None:
        """The query that this checkpoint belongs to; None if there is no checkpoint.

        Raises:
            LineageError: it belongs to another pipeline.
            CorruptionError: the file is damaged.
        """
        owner = self._read_json(_PIPELINE_FILE)
        if owner is not None and owner.get("pipeline") != self._pipeline:
            raise LineageError(
                "this is the checkpoint of another pipeline",
                subject=self._location,
                expected=f"pipeline {self._pipeline}",
                found=f"pipeline {owner.get('pipeline')}",
                then="give each pipeline a checkpoint of its own; nothing was written",
            )
        metadata = self._read_json("metadata")
        if metadata is None:
            self._check_empty()
            return None
        if not isinstance(metadata.get("id"), str):
            raise self._damaged("metadata")
        return str(metadata["id"])

    def create(self, query_id: str) -> None:
        """Make a checkpoint for a new query, before Spark sees it."""
        self._files.create_dir(self._root, recursive=True)
        self._write(_PIPELINE_FILE, canonical_json({"pipeline": self._pipeline}))
        self._write("metadata", canonical_json({"id": query_id}))

    def facts(self) -> CheckpointFacts:
        """What section 7 of the protocol compares with the ledger.

        Raises:
            LineageError, CorruptionError: as `query_id`; or a log file is damaged.
        """
        query_id = self.query_id()
        if query_id is None:
            return CheckpointFacts(None)
        planned, done = self._newest("offsets"), self._newest("commits")
        plans = {n: self.plan(n) for n in {planned, done} if self._has_plan(n)}
        return CheckpointFacts(query_id, planned, done, plans)

    def is_done(self, batch_id: int) -> bool:
        """Whether Spark has logged a batch as done; true for none at all."""
        return batch_id == NOTHING_COMMITTED or self._exists(f"commits/{batch_id}")

    def plan(self, batch_id: int) -> BatchPlan:
        """What Spark pinned for a batch.

        Raises:
            CorruptionError: its entry, or the one before, is missing or damaged.
        """
        entry = self._logged(batch_id)
        if entry is None:
            raise self._damaged(f"offsets/{batch_id}")
        before = self._logged(batch_id - 1) if batch_id > 0 else None
        sources = {}
        for name, position in entry.positions.items():
            start = before.positions.get(name) if before else None
            sources[name] = self._arithmetic(name).ranges(start, position)
        return BatchPlan(
            sources,
            entry.metadata["batchWatermarkMs"],
            entry.metadata["batchTimestampMs"],
        )

    def write_plan(self, head: HeadEntry) -> None:
        """Make `offsets/<head's batch>` say what the ledger committed (repair, adopt).

        The entry it replaces, or the one before, lends the topic ids and the pinned settings.
        """
        batch_id = head.batch.batch_id
        before = self._logged(batch_id - 1) if batch_id > 0 else None
        model = self._logged(batch_id) or before
        metadata = {
            **(model.metadata if model else {"conf": {}}),
            "batchWatermarkMs": head.plan.event_watermark_ms,
            "batchTimestampMs": head.plan.batch_timestamp_ms,
        }
        lines = [_OFFSET_LOG_VERSION, canonical_json(metadata)]
        for name in model.positions if model else head.plan.sources:
            like = model.positions[name] if model else None
            position = self._arithmetic(name).position(like, head.plan.sources[name])
            lines.append(canonical_json({"source": name, "position": position}))
        self._write(f"offsets/{batch_id}", "\n".join(lines))

    def _arithmetic(self, name: str) -> SourceArithmetic:
        if name not in self._sources:
            raise LineageError(
                "the checkpoint has a source that the pipeline lacks",
                subject=name,
                expected=f"sources {', '.join(sorted(self._sources))}",
                then="sources cannot be renamed or removed on an existing checkpoint",
            )
        return self._sources[name]

    def _has_plan(self, batch_id: int) -> bool:
        if batch_id == NOTHING_COMMITTED or not self._exists(f"offsets/{batch_id}"):
            return False
        return batch_id == 0 or self._exists(f"offsets/{batch_id - 1}")

    def _logged(self, batch_id: int) -> LoggedBatch | None:
        name = f"offsets/{batch_id}"
        text = self._read(name)
        if text is None:
            return None
        version, *lines = text.splitlines() or [""]
        if version != _OFFSET_LOG_VERSION or len(lines) != 1 + len(self._sources):
            raise self._damaged(name)
        try:
            metadata, *offsets = (json.loads(line) for line in lines)
            if not {"batchWatermarkMs", "batchTimestampMs"} <= metadata.keys():
                raise self._damaged(name)
            return LoggedBatch(metadata, {o["source"]: o["position"] for o in offsets})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(name) from error

    def _newest(self, log: str) -> int:
        selector = pafs.FileSelector(f"{self._root}/{log}", allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return max((int(name) for name in names if name.isdigit()), default=NOTHING_COMMITTED)

    def _check_empty(self) -> None:
        """A checkpoint without `metadata` is not a new one: Spark would give it a new identity."""
        if self._newest("offsets") != NOTHING_COMMITTED:
            raise self._damaged("metadata")

    def _exists(self, name: str) -> bool:
        found: pafs.FileInfo = self._files.get_file_info(f"{self._root}/{name}")
        return bool(found.type == pafs.FileType.File)

    def _read(self, name: str) -> str | None:
        if not self._exists(name):
            return None
        with self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.readall()).decode(errors="replace")

    def _read_json(self, name: str) -> Mapping[str, Any] | None:
        text = self._read(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self._damaged(name) from error
        if not isinstance(value, dict):
            raise self._damaged(name)
        return value

    def _write(self, name: str, text: str) -> None:
        """Replace a file as a whole. Hadoop's checksum of the old content must not outlive it."""
        folder, _, base = f"{self._root}/{name}".rpartition("/")
        self._files.create_dir(folder, recursive=True)
        with self._files.open_output_stream(f"{folder}/.{base}.tmp") as stream:
            stream.write(text.encode())
        checksum = f"{folder}/.{base}.crc"
        if self._files.get_file_info(checksum).type == pafs.FileType.File:
            self._files.delete_file(checksum)
        self._files.move(f"{folder}/.{base}.tmp", f"{folder}/{base}")

    def _damaged(self, name: str) -> CorruptionError:
        return CorruptionError(
            "a file of the checkpoint is missing or damaged",
            subject=f"{self._location}/{name}",
            expected="what Spark wrote",
            then="halting; restore the file from a backup, or start a new generation",
        )


def _open(location: str) -> tuple[pafs.FileSystem, str]:
    if "://" in location or location.startswith("file:"):
        files, root = pafs.FileSystem.from_uri(location.replace("s3a://", "s3://", 1))
        return files, root.rstrip("/")
    return pafs.LocalFileSystem(), location.rstrip("/")
