"""A rejected record, as it is written to the dead-letter topic and read there.

Key, value and headers are those of the record. What is known about the rejection is in further
headers after them; to send the record again is to write it without these.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from onceflow.errors import CorruptionError
from onceflow.protocol.identity import is_kafka_topic

HEADER_PREFIX = "onceflow.dead_letter."
"""Prefix of our headers. A record that is rejected must not have headers with it."""
_HEADER_BYTES = 8
"""Two lengths in front of each header, at most."""
NOWHERE = -1
"""Partition and offset of a row of the result, which comes from no single record."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class DeadLetter:
    """One rejected record, or one row that the output topic did not take.

    Under exactly once each record is written once. Where it may be written again (at least once),
    `topic`, `partition` and `offset` are the same.

    Args:
        value: unchanged; for a row of the result, as it would have been written.
        reason: a code; `text` says the same of this record.
        source: the view; empty for a row of the result.
        topic: input topic; the output topic for a row of the result.
        partition: in that topic, or NOWHERE.
        offset: in that partition, or NOWHERE.
        timestamp_ms: of the record; the batch's clock for a row of the result.
        event_time_ms: only for late records.
        event_watermark_ms: the watermark when a late record came.
        left_out_bytes: size of the content that did not fit into the dead-letter topic; None if all
            of it is here.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str
    text: str
    pipeline: str
    batch_id: int
    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    event_time_ms: int | None = None
    event_watermark_ms: int | None = None
    left_out_bytes: int | None = None

    @property
    def lateness_ms(self) -> int | None:
        """How far a late record is behind the event watermark."""
        if self.event_time_ms is None or self.event_watermark_ms is None:
            return None
        return self.event_watermark_ms - self.event_time_ms

    @property
    def is_whole(self) -> bool:
        """Whether it is a record of a topic, with its content, so that it can be sent again."""
        is_from_topic = bool(self.source) and is_kafka_topic(self.topic)
        return is_from_topic and self.left_out_bytes is None

    @property
    def size_bytes(self) -> int:
        """Size of key, value and headers."""
        headers = ((name.encode(), value or b"") for name, value in self.to_headers())
        framing = sum(len(name) + len(value) + _HEADER_BYTES for name, value in headers)
        return len(self.key or b"") + len(self.value or b"") + framing

    def within(self, limit_bytes: int) -> DeadLetter:
        """Drop the value if the letter is larger than the limit; then key and headers too."""
        if self.size_bytes <= limit_bytes:
            return self
        bare = replace(self, value=None, left_out_bytes=len(self.value or b""))
        if bare.size_bytes <= limit_bytes:
            return bare
        empty = replace(bare, key=None, headers=())
        return replace(empty, left_out_bytes=self.size_bytes - empty.size_bytes)

    def to_headers(self) -> Headers:
        """The record's own headers, followed by ours."""
        facts = {name: getattr(self, name) for name in (*_KNOWN, *_OF_SOME, _LATENESS)}
        known = [(n, str(fact).encode()) for n, fact in facts.items() if fact is not None]
        return (*self.headers, *((HEADER_PREFIX + name, value) for name, value in known))

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None, headers: Headers) -> DeadLetter:
        """Inverse of `to_headers`.

        Raises:
            CorruptionError: not a dead letter; something else wrote to the topic.
        """
        own = tuple(each for each in headers if not each[0].startswith(HEADER_PREFIX))
        try:
            known = {
                name.removeprefix(HEADER_PREFIX): (found or b"").decode()
                for name, found in headers
                if name.startswith(HEADER_PREFIX)
            }
            known.pop(_LATENESS, None)
            numbers = {name: int(known.pop(name)) for name in _NUMBERS}
            numbers |= {name: int(known.pop(name)) for name in _OF_SOME if name in known}
            return cls(key=key, value=value, headers=own, **known, **numbers)  # type: ignore[arg-type]
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptionError(
                "a record is not a dead letter",
                expected=f"headers {', '.join(HEADER_PREFIX + name for name in _KNOWN)}",
                found=", ".join(name for name, _ in headers) or "no headers",
            ) from error

    def partition_of(self, partitions: int) -> int:
        """Partition to write to: letters of one input partition stay together, in their order."""
        return zlib.crc32(f"{self.topic}-{self.partition}".encode()) % partitions


_NUMBERS = ("batch_id", "partition", "offset", "timestamp_ms")
_OF_SOME = ("event_time_ms", "event_watermark_ms", "left_out_bytes")
_LATENESS = "lateness_ms"
_KNOWN = ("reason", "text", "pipeline", "source", "topic", *_NUMBERS)


def in_order(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Sort letters into the order in which every attempt writes them."""
    # Rows of the result have no offset.
    return sorted(
        letters, key=lambda x: (x.topic, x.partition, x.offset, x.key or b"", x.value or b"")
    )
