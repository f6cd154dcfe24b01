"""Reads, and in two named cases writes, Spark's checkpoint: which batches are planned and done.

Layout (Spark's `OffsetSeqLog` and `CommitLog`, version 1 and 2): `metadata` holds the query id,
`offsets/N` what batch N reads, its watermark and its clock, `commits/N` that Spark finished it.

A start verifies what it reads first: by the checksums of local files, by its form, and by comparing
the two logs. A refusal names the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onceflow.contracts.source import Position, TopicRanges
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import ConfigError, CorruptionError, LineageError
from onceflow.processing.parameters import carrier_of
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    canonical_json,
)
from onceflow.protocol.references import ReferenceVersion, versions_from_json
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.reference_files import FOLDER, ReferenceFiles
from onceflow.runtime.checkpoint.state_files import find_copy, find_damage, version_of
from onceflow.runtime.checkpoint.state_record import StateRecord

_OFFSET_LOG_VERSION = "v1"
_COMMIT_LOG_VERSIONS = ("v1", "v2", "v3")
_COMMIT_FIELDS = {"nextBatchWatermarkMs", "stateUniqueIds"}
"""Fields of versions 1 and 2. Without the second, Spark would look for state under other names."""
_COMMIT_CURE = "delete both: its batch is computed again, compared with the ledger, and skipped"
_PIPELINE_FILE = "onceflow.json"
"""Next to Spark's own files: which pipeline this checkpoint belongs to."""
_COPIED_FILE = "copied.json"
"""In a copy, before anything else is: the `head` that a query begins from there."""
_OWN_FILES = {_PIPELINE_FILE, _COPIED_FILE, "metadata"}
"""Of one query; a copy has others."""


@dataclass(frozen=True)
class LoggedBatch:
    """One entry of the offset log."""

    metadata: Mapping[str, Any]
    positions: Mapping[str, Position]
    parameters: Mapping[str, Any]
    """What the offset of one source says of them; only `values` before any has been set."""
    references: Mapping[str, Mapping[str, Any]]
    """What it says of them, by name."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of Spark that a later batch must not change; a later version may add some."""
        settings: Mapping[str, str] = self.metadata.get("conf", {})
        return settings


@dataclass(frozen=True)
class SourceArithmetic:
    """The pure part of a source that is needed to understand its positions."""

    ranges: Callable[[Position | None, Position], TopicRanges]
    position: Callable[[Position | None, TopicRanges], Position]


class Checkpoint:
    """A checkpoint directory of one pipeline.

    Args:
        location: a path or a URL that pyarrow knows (`file:`, `hdfs:`), or of S3 (`s3a:`).
        pipeline: the name that must be, or is to be, written in it.
        conf: Spark's settings, which say how S3 is reached.

    Raises:
        ConfigError: of an object store: no such bucket, or the keys are refused. From any method.
        RetriableError: no server answers. From any method.
    """

    def __init__(
        self,
        location: str,
        pipeline: str,
        sources: Mapping[str, SourceArithmetic],
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.location = location
        self._pipeline = pipeline
        self._sources = sources
        self._files = CheckpointFiles(location, conf or {})
        self.recorded = StateRecord(self._files)
        self.references = ReferenceFiles(self._files)

    def query_id(self) -> str | None:
        """The query that this checkpoint belongs to; None if there is no checkpoint.

        Raises:
            LineageError: it belongs to another pipeline.
            CorruptionError: the file is damaged.
        """
        owner = self._files.read_json(_PIPELINE_FILE)
        if owner is not None and owner.get("pipeline") != self._pipeline:
            raise LineageError(
                "this is the checkpoint of another pipeline",
                subject=self._files.path(_PIPELINE_FILE),
                expected=f"pipeline {self._pipeline}",
                found=f"pipeline {owner.get('pipeline')}",
                then="give each pipeline a checkpoint of its own; nothing was written",
            )
        if self.is_unfinished:
            raise LineageError(
                "the command that copies this checkpoint has not finished",
                subject=self._files.path(_COPIED_FILE),
                then="nothing was written; run the same `onceflow fork` or `onceflow state migrate`"
                " again",
            )
        metadata = self._files.read_json("metadata")
        if metadata is None:
            if self._newest("offsets") != NOTHING_COMMITTED:
                # Not a new one: Spark would give it a new identity.
                raise self._files.damaged("metadata")
            return None
        if not isinstance(metadata.get("id"), str):
            raise self._files.damaged("metadata")
        return str(metadata["id"])

    def copied(self) -> HeadEntry | None:
        """The `head` that a query begins from, if this is a copy of another checkpoint.

        Raises:
            CorruptionError: the file is damaged.
        """
        text = self._files.read(_COPIED_FILE)
        if text is None:
            return None
        try:
            return HeadEntry.from_json(text.encode())
        except CorruptionError as error:
            raise self._files.damaged(_COPIED_FILE) from error

    @property
    def is_unfinished(self) -> bool:
        """Whether a command has begun to copy to here, and not ended."""
        copied, metadata = self.copied(), self._files.read_json("metadata")
        return copied is not None and (metadata or {}).get("id") != copied.batch.query_id

    @property
    def is_empty(self) -> bool:
        """Whether there is no file at all."""
        return not self._files.names("")

    def create(self, query_id: str) -> None:
        """Make a checkpoint for a new query, before Spark sees it."""
        # Without a checksum: only Onceflow reads it, and refuses any other content.
        owner = canonical_json({"pipeline": self._pipeline})
        self._files.write_alone(_PIPELINE_FILE, owner.encode())
        self._files.write("metadata", canonical_json({"id": query_id}))

    def facts(self) -> CheckpointFacts:
        """Collect what section 7 of the protocol compares with the ledger.

        Raises:
            LineageError, CorruptionError: as `query_id`; or a log file is damaged.
        """
        query_id = self.query_id()
        if query_id is None:
            return CheckpointFacts(None)
        planned, done = self._newest("offsets"), self._newest("commits")
        copied = self.copied()
        if copied is not None and planned < copied.batch.batch_id:
            raise self._files.damaged(f"offsets/{copied.batch.batch_id}")
        if planned > 0:
            self._check_planned(planned, is_begun=copied is None or planned > copied.batch.batch_id)
        if done != NOTHING_COMMITTED:
            self._check_done(done)
            self._check_state()
        self.recorded.verify()
        plans = {n: self.plan(n) for n in {planned, done} if self.has_plan(n)}
        return CheckpointFacts(query_id, planned, done, plans, copied)

    def is_done(self, batch_id: int) -> bool:
        """Whether Spark has logged a batch as done; true for none at all."""
        return batch_id == NOTHING_COMMITTED or self._files.exists(f"commits/{batch_id}")

    def has_plan(self, batch_id: int) -> bool:
        """Whether the offset log still tells what a batch read, its start included."""
        if batch_id == NOTHING_COMMITTED or not self._files.exists(f"offsets/{batch_id}"):
            return False
        return batch_id == 0 or self._files.exists(f"offsets/{batch_id - 1}")

    def plan(self, batch_id: int) -> BatchPlan:
        """Read what Spark pinned for a batch.

        Raises:
            CorruptionError: its entry, or the one before, is missing or damaged.
        """
        entry = self._logged(batch_id)
        if entry is None:
            raise self._files.damaged(f"offsets/{batch_id}")
        before = self._logged(batch_id - 1) if batch_id > 0 else None
        sources = {}
        for name, position in entry.positions.items():
            start = before.positions.get(name) if before else None
            try:
                sources[name] = self._arithmetic(name).ranges(start, position)
            except CorruptionError as error:
                raise self._files.damaged(f"offsets/{batch_id}") from error
        return BatchPlan(
            sources,
            entry.metadata["batchWatermarkMs"],
            entry.metadata["batchTimestampMs"],
            entry.parameters["values"],
            versions_from_json(entry.references),
        )

    def write_plan(self, head: HeadEntry) -> None:
        """Make `offsets/<head's batch>` say what the ledger committed (repair, adopt).

        The entry it replaces, or the one before, lends the topic ids and the pinned settings. While
        the batch is not done, what was planned after it is withdrawn: it is not committed, and
        Spark would run it without running this one again.
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
        kept = {"position": None, "refused": [0, ""], **(model.parameters if model else {})}
        is_told = kept["position"] is not None or head.plan.parameters
        told = {"parameters": {**kept, "values": dict(head.plan.parameters)}} if is_told else {}
        logged = model.references if model else {}
        versions = {n: _as_logged(v, logged.get(n, {})) for n, v in head.plan.references.items()}
        told |= {"references": versions} if versions else {}
        for name in model.positions if model else head.plan.sources:
            like = model.positions[name] if model else None
            position = self._arithmetic(name).position(like, head.plan.sources[name])
            more = told if name == carrier_of(self._sources) else {}
            lines.append(canonical_json({"source": name, "position": position, **more}))
        # Asked again: a driver that took over may have logged this batch and planned more.
        if self._newest("commits") < batch_id:
            for later in self._files.numbers("offsets"):
                if later > batch_id:
                    self._files.delete_file(f"offsets/{later}")
        self._files.write(f"offsets/{batch_id}", "\n".join(lines))

    def copy_before(self, batch_id: int, copy: Checkpoint) -> None:
        """Make `copy` what this checkpoint was when the batch was planned and not computed.

        Raises:
            ConfigError: its plan is not here any more.
            CorruptionError: files vanished meanwhile, or are damaged.
        """
        planned = [n for n in self._files.numbers("offsets") if self.has_plan(n)]
        if batch_id not in planned:
            raise ConfigError(
                "the checkpoint does not have this batch",
                subject=self._files.path(f"offsets/{batch_id}"),
                expected=f"one from {min(planned)} to {max(planned)}" if planned else "any batch",
                then="Spark removes older ones",
            )
        for name in self._files.names(""):
            # Versions of references are read where they are.
            if _is_before(name, batch_id) and not name.startswith(f"{FOLDER}/"):
                self._files.copy(name, copy._files)

    def references_in(self, batch_id: int) -> Collection[str]:
        """The kept rows that a batch needs; none if its plan is not here any more."""
        logged = self._logged(batch_id)
        return {each["rows"] for each in logged.references.values()} if logged else ()

    def planned_batches(self) -> Sequence[int]:
        """The batches in the offset log."""
        return self._files.numbers("offsets")

    def ended_batches(self) -> Sequence[int]:
        """The batches after which the checkpoint can be forked, in order."""
        done = self._files.numbers("commits")
        return sorted(batch_id for batch_id in done if self.has_plan(batch_id))

    @property
    def has_state(self) -> bool:
        """Whether a batch has kept any."""
        return bool(self._files.names("state"))

    def copy_after(
        self, batch_id: int, copy: Checkpoint, head: HeadEntry, *, with_state: bool = True
    ) -> None:
        """Make `copy` what this checkpoint was when a batch had ended, for the query of `head`.

        No query starts on it before `begin`. Without the state, not before `end_batch` either.

        Raises:
            ConfigError: it is on other storage.
            CorruptionError: files vanished meanwhile, or are damaged.
        """
        if not self._files.can_copy(copy._files):
            raise ConfigError(
                "a checkpoint can be copied within one storage only",
                subject=copy.location,
                expected=f"a place of the kind of {self.location}",
                then="nothing was written",
            )
        after = batch_id + 1
        copy._files.write_alone(_COPIED_FILE, head.to_json())
        left_out = {*_OWN_FILES, f"offsets/{after}"}
        for name in self._files.names(""):
            is_wanted = with_state or not name.startswith("state/")
            if is_wanted and _is_before(name, after) and _without_checksum(name) not in left_out:
                reach(CrashPoint.MID_FORK)
                self._files.copy(name, copy._files)

    def settings_of(self, batch_id: int) -> Mapping[str, str]:
        """Those of Spark that it has pinned.

        Raises:
            CorruptionError: the batch is not there, or damaged.
        """
        logged = self._logged(batch_id)
        if logged is None:
            raise self._files.damaged(f"offsets/{batch_id}")
        return logged.settings

    def end_batch(
        self,
        batch_id: int,
        settings: Mapping[str, str],
        ids: Mapping[int, Sequence[Sequence[str]]],
    ) -> None:
        """Have a batch without input follow the one before, and end with other state.

        Args:
            batch_id: of the one that is made.
            settings: of Spark, that are pinned from now on.
            ids: for each operator and partition, those of the files of each of its stores.
        """
        before = batch_id - 1
        version, line, *positions = (self._files.read(f"offsets/{before}") or "").splitlines()
        fields = {**json.loads(line), "conf": dict(settings)}
        self._files.write(f"offsets/{batch_id}", "\n".join([version, _line(fields), *positions]))
        version, line = (self._files.read(f"commits/{before}") or "").splitlines()
        of_state = {str(operator): [[*each] for each in ids[operator]] for operator in ids}
        fields = {**json.loads(line), "stateUniqueIds": of_state}
        self._files.write(f"commits/{batch_id}", f"{version}\n{_line(fields)}")

    def begin(self, head: HeadEntry) -> None:
        """Let a query start on a copy, at the position of `head`."""
        self._files.write_alone(_COPIED_FILE, head.to_json())
        self.create(head.batch.query_id)

    def delete(self) -> None:
        """Remove it; fine if it is not there."""
        self._files.delete()

    @property
    def state_path(self) -> str:
        """Where Spark keeps the state, in a user's words."""
        return self._files.path("state")

    def damaged_state_files(self) -> list[str]:
        """Paths of state files that are damaged, newest first. Reads all of them: it may last."""
        names = self._files.names("state")
        return [self._files.path(n) for n in find_damage(names, self._files.read_unverified)]

    def _arithmetic(self, name: str) -> SourceArithmetic:
        if name not in self._sources:
            raise LineageError(
                "the checkpoint has a source that the pipeline lacks",
                subject=name,
                expected=f"sources {', '.join(sorted(self._sources))}",
                then="sources cannot be renamed or removed on an existing checkpoint",
            )
        return self._sources[name]

    def _check_planned(self, batch_id: int, *, is_begun: bool) -> None:
        """Check the two newest entries of the offset log.

        Settings never change once a query has begun; a copy begins with other partitions of state.
        """
        newest, before = self._logged(batch_id), self._logged(batch_id - 1)
        if before is None:
            raise self._files.damaged(f"offsets/{batch_id - 1}")
        if newest is None:
            raise self._files.damaged(f"offsets/{batch_id}")
        if is_begun and not before.settings.items() <= newest.settings.items():
            raise self._files.damaged(f"offsets/{batch_id}")

    def _check_state(self) -> None:
        if self._files.has_checksums:
            copy = find_copy(self._files.names("state"), self._files.read_unverified)
            if copy is not None:
                raise self._files.damaged(copy)

    def _check_done(self, batch_id: int) -> None:
        """Check the newest entry of the commit log: Spark reads the watermark and state file names.

        The batch before any crash may be computed again, so a damaged entry may simply be deleted.
        """
        name = f"commits/{batch_id}"
        version, _, line = (self._files.read(name, _COMMIT_CURE) or "").partition("\n")
        logged = self._logged(batch_id)
        least_ms = logged.metadata["batchWatermarkMs"] if logged else 0
        try:
            fields = json.loads(line)
            is_sound = fields["nextBatchWatermarkMs"] >= least_ms
        except (ValueError, KeyError, TypeError) as error:
            raise self._files.damaged(name, _COMMIT_CURE) from error
        is_known = version in _COMMIT_LOG_VERSIONS and (
            version == "v3" or fields.keys() <= _COMMIT_FIELDS
        )
        if not (is_sound and is_known):
            raise self._files.damaged(name, _COMMIT_CURE)

    def _logged(self, batch_id: int) -> LoggedBatch | None:
        name = f"offsets/{batch_id}"
        text = self._files.read(name)
        if text is None:
            return None
        version, *lines = text.splitlines() or [""]
        if version != _OFFSET_LOG_VERSION or len(lines) != 1 + len(self._sources):
            raise self._files.damaged(name)
        try:
            metadata, *offsets = (json.loads(line) for line in lines)
            if not {"batchWatermarkMs", "batchTimestampMs"} <= metadata.keys():
                raise self._files.damaged(name)
            positions = {each["source"]: each["position"] for each in offsets}
            told = [each["parameters"] for each in offsets if "parameters" in each]
            parameters = told[0] if told else {"values": {}}
            if not isinstance(parameters["values"], dict):
                raise self._files.damaged(name)
            references: Mapping[str, Any] = next(
                (o["references"] for o in offsets if "references" in o), {}
            )
            versions_from_json(references)
            return LoggedBatch(metadata, positions, parameters, references)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._files.damaged(name) from error

    def _newest(self, log: str) -> int:
        return max(self._files.numbers(log), default=NOTHING_COMMITTED)


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _as_logged(version: ReferenceVersion, logged: Mapping[str, Any]) -> Mapping[str, Any]:
    """With where its topic stands, if that is known; it is read from its beginning otherwise."""
    plain = asdict(version)
    return logged if plain.items() <= logged.items() else plain


def _is_before(name: str, batch_id: int) -> bool:
    """Whether a file was there when a batch was planned and not computed.

    Batch N reads version N of the state and writes version N + 1.
    """
    folder, _, base = _without_checksum(name).rpartition("/")
    if folder in {"offsets", "commits"} and base.isdigit():
        return int(base) < batch_id + (folder == "offsets")
    return not folder.startswith("state/") or version_of(base) <= batch_id


def _without_checksum(name: str) -> str:
    """The file that Hadoop keeps this checksum of; any other file itself."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base[1:-4]}" if base.endswith(".crc") else name
