"""Records, and positions that can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from onceflow.protocol.record import HEADER_NAME, RecordHeader

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""


def name_of(partition: Partition) -> str:
    """The partition as messages show it."""
    topic, number = partition
    return f"{topic}[{number}]"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic, as the broker holds it.

    Args:
        timestamp_ms: unix milliseconds; for Onceflow's output the clock of its batch.
        headers: in the order they were written; a name may occur more than once.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def header(self) -> RecordHeader | None:
        """Place of the record in its pipeline's history; None if Onceflow did not write it.

        Raises:
            CorruptionError: there is a header of that name, but no known version can read it.
        """
        for name, data in reversed(self.headers):
            if name == HEADER_NAME:
                return RecordHeader.unpack(data or b"")
        return None

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a reader in one partition. Store all four fields, or none.

    Args:
        offset: next offset to read.
        state: of the filter, in ASCII, at most `filter.STATE_BYTES_MAX` long; empty only if
            another program committed the offset.
    """

    topic: str
    partition: int
    offset: int
    state: str
