"""Follows the references of a pipeline, in the process that plans a source.

Which version a batch has goes into the offset of that source, which Spark logs before the batch;
its rows are kept with the checkpoint before that. So a change begins with a batch, and a replay
finds the rows of its batch, whatever has become of the file or the topic.

A version is good as a whole, or the last good one stays.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position, TopicRanges
from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.references.declaration import Reference
from onceflow.pipeline.references.table import (
    MAX_BYTES,
    RefusedTableError,
    changed_table,
    encoded,
    table_of_file,
)
from onceflow.protocol.query_identity import fingerprint
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.reference_files import ReferenceFiles
from onceflow.runtime.source.followed_topic import FollowedTopic

REREAD_AFTER_S = 600.0
"""After the last good look at a topic. By default, Kafka keeps deletions for a day."""

Told = Mapping[str, Any]
"""What an offset says of one reference: `of` and `rows` as in `ReferenceVersion`; a mark of what
was `declared`; and in `refused` what is wrong with what came since."""


@dataclass(frozen=True)
class FollowedReference:
    """One reference, for the process that plans.

    Args:
        file: absolute; empty if it is a topic.
        every_ms: shortest time between two looks.
    """

    reference: Reference
    file: str
    topic: str
    every_ms: int

    @property
    def place(self) -> str:
        """The file or the topic."""
        return self.file or self.topic

    @property
    def declared(self) -> str:
        """A mark of the declaration: rows that were kept under another one are of no use."""
        return fingerprint(asdict(self.reference))


@dataclass(frozen=True)
class ReferenceSettings:
    """All of a pipeline.

    Args:
        location: of the checkpoint.
        conf: how that is reached; may have secrets.
    """

    followed: Mapping[str, FollowedReference]
    location: str
    conf: Mapping[str, str]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ReferenceSettings:
        """Inverse of `asdict`."""
        followed = {
            name: FollowedReference(_reference(each["reference"]), *map(each.get, _REST))
            for name, each in told["followed"].items()
        }
        return cls(followed, told["location"], told["conf"])


_REST = ("file", "topic", "every_ms")


def _reference(told: Mapping[str, Any]) -> Reference:
    return Reference(told["ddl"], tuple(told["key"]), told["valid_from"])


class _Follower(Protocol):
    """Looks at a file or a topic."""

    def next(self, told: Told | None, *, is_last: bool) -> Told | None:
        """Tell what the next offset says; None if nothing has changed, and `told` is not None.

        Args:
            told: by the offset before.
            is_last: whether this is the last look.

        Raises:
            RefusedTableError: what is there cannot be used.
        """

    def close(self) -> None:
        """Let go of connections."""


class ReferenceFollower:
    """Finds the newest good version of each reference.

    Args:
        connection: to the pipeline's brokers.
    """

    def __init__(self, settings: ReferenceSettings, connection: Connection, clock: Clock) -> None:
        kept = ReferenceFiles(CheckpointFiles(settings.location, settings.conf))
        self._clock, self._settings, self._kept = clock, settings, kept
        self._followers: Mapping[str, _Follower] = {
            name: TopicFollower(each, connection, kept, clock)
            if each.topic
            else FileFollower(each, kept)
            for name, each in settings.followed.items()
        }
        self._next_look: dict[str, Deadline] = {}
        self._is_frozen = False

    def next(self, told: Mapping[str, Told] | None) -> Mapping[str, Told]:
        """The part of an offset that follows another; the same one if nothing has changed.

        Raises:
            ConfigError: a reference has never had a good version, and has none now.
        """
        before = told or {}
        found = {name: self._next(name, before.get(name)) for name in self._followers}
        return before if found == before else found

    def freeze(self) -> None:
        """From now on, look once more and not again."""
        self._is_frozen = True
        self._next_look.clear()

    def close(self) -> None:
        """Let go of connections."""
        for each in self._followers.values():
            each.close()

    def _next(self, name: str, told: Told | None) -> Told:
        look, followed = self._next_look.get(name), self._settings.followed[name]
        if told is not None and look is not None and (self._is_frozen or not look.is_over):
            return told
        if look is None and told is not None and not self._is_usable(followed, told):
            told = None
        self._next_look[name] = self._clock.within(followed.every_ms / 1000)
        try:
            found = self._followers[name].next(told, is_last=self._is_frozen)
        except (RefusedTableError, ConfigError) as error:
            if told is None:
                raise _unusable(name, followed, str(error)) from error
            return {**told, "refused": str(error)}
        if found is not None:
            return {**found, "declared": followed.declared}
        assert told is not None  # noqa: S101  for the type checker only
        return told

    def _is_usable(self, followed: FollowedReference, told: Told) -> bool:
        is_as_declared = told.get("declared") == followed.declared
        return is_as_declared and self._kept.read(told["rows"]) is not None


class FileFollower:
    """Reads a file whenever it is another one than before, and has been left alone for a look."""

    def __init__(self, followed: FollowedReference, kept: ReferenceFiles) -> None:
        self._reference, self._path = followed.reference, Path(followed.file)
        self._kept = kept
        self._seen: object = None
        self._judged: tuple[object, Told | RefusedTableError] | None = None

    def next(self, told: Told | None, *, is_last: bool) -> Told | None:
        """As of `_Follower`."""
        mark, before = self._mark(), self._seen
        self._seen = mark
        if told is not None and self._judged is not None and self._judged[0] == mark:
            if isinstance(self._judged[1], RefusedTableError):
                raise self._judged[1]
            if told["rows"] == self._judged[1]["rows"] and "refused" not in told:
                return None
        is_settled = mark == before
        if told is not None and not is_settled and not is_last:
            return None
        content = self._content(mark)
        if content is None:
            if told is None:
                raise RefusedTableError("it changes while it is read")
            return None
        try:
            found: Told | RefusedTableError = self._version(content, told)
        except RefusedTableError as error:
            found = error
        # What changes so soon after a look that a clock cannot tell is found by the next one.
        self._judged = (mark, found) if is_settled else None
        if isinstance(found, RefusedTableError):
            raise found
        return found

    def close(self) -> None:
        """As of `_Follower`."""

    def _mark(self) -> object:
        try:
            found = self._path.stat()
        except OSError as error:
            raise RefusedTableError(f"it cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise RefusedTableError("it is not a regular file")
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _content(self, mark: object) -> bytes | None:
        """All of the file; None if it has changed meanwhile."""
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise RefusedTableError(f"it cannot be read: {error.strerror}") from error
        return content if self._mark() == mark else None

    def _version(self, content: bytes, told: Told | None) -> Told:
        of = hashlib.sha256(content).hexdigest()
        if told is not None and of == told["of"]:
            return {"of": of, "rows": told["rows"]}
        table = table_of_file(self._reference, self._path.suffix, content)
        return {"of": of, "rows": self._kept.write(encoded(table))}


class TopicFollower:
    """Applies what is new on a topic to the table of what was there before.

    Reads the whole topic at first, and after a pause: brokers forget deletions after a time
    (`delete.retention.ms`), so that a reader that goes on where it was may miss one.
    """

    def __init__(
        self,
        followed: FollowedReference,
        connection: Connection,
        kept: ReferenceFiles,
        clock: Clock,
    ) -> None:
        self._reference = followed.reference
        self._kept, self._clock = kept, clock
        self._topic = FollowedTopic("reference", followed.topic, connection, clock)
        self._table: pa.Table | None = None
        self._of = self._rows = ""
        self._reached: Position | None = None
        self._refused: tuple[Position, RefusedTableError] | None = None
        """The end of what could not be used, and why."""
        self._is_fresh_until = clock.within(0)

    def next(self, told: Told | None, *, is_last: bool) -> Told | None:
        """As of `_Follower`."""
        if self._is_fresh_until.is_over:
            self._table, self._reached = None, None
        try:
            is_new = self._follow()
        except CorruptionError:
            # Another topic, or one whose older records were deleted: it says itself what is there.
            self._table, self._reached = None, None
            is_new = self._follow()
        self._is_fresh_until = self._clock.within(REREAD_AFTER_S)
        if told is not None and told["rows"] == self._rows and "refused" not in told:
            return None
        if not is_new:  # a version that no batch has yet; it must stay young
            self._kept.write(encoded(self._table))
        return {"of": self._of, "rows": self._rows}

    def close(self) -> None:
        """As of `_Follower`."""
        self._topic.close()

    def _follow(self) -> bool:
        """Bring the table to the end of the topic, and keep its rows.

        Returns:
            Whether the topic had more.

        Raises:
            RefusedTableError: what is there cannot be used; the table is as it was.
        """
        planner = self._topic.planner
        begin = self._reached or planner.initial_position()
        end = planner.latest_position(begin, None)
        if self._table is not None and end == begin:
            return False
        if self._refused is not None and self._refused[0] == end:
            raise self._refused[1]
        try:
            table = changed_table(self._reference, self._table, self._changes(begin, end))
        except RefusedTableError as error:
            self._refused = end, error
            raise
        self._of = _offsets(planner.ranges(begin, end))
        self._table, self._reached = table, end
        self._rows = self._kept.write(encoded(table))
        return True

    def _changes(self, begin: Position, end: Position) -> Mapping[bytes, bytes | None]:
        """The last record of each key between two positions."""
        changes: dict[bytes, bytes | None] = {}
        size = 0
        for record in self._topic.read(begin, end):
            key, value = record.key, record.value
            if key is None:
                what = "deletes nothing" if value is None else "is the row of no key"
                raise RefusedTableError(f"a record without a key {what}")
            size += len(value or b"") - len(changes.get(key) or b"")
            if size > MAX_BYTES:
                raise RefusedTableError(f"it has more than {MAX_BYTES // 2**20} MiB")
            changes[key] = value
        return changes


def _offsets(ranges: TopicRanges) -> str:
    ends = [(partition, end) for each in ranges.values() for partition, (_, end) in each.items()]
    return ",".join(f"{partition}:{end}" for partition, end in sorted(ends))


def _unusable(name: str, followed: FollowedReference, found: str) -> ConfigError:
    return ConfigError(
        "a reference cannot be read",
        subject=f"{name} ({followed.place})",
        expected=f"rows with {followed.reference.columns.columns_ddl}, one for each"
        f" {', '.join(followed.reference.row_key)}",
        found=found,
        then="no batch was planned; correct it, and start again",
    )
