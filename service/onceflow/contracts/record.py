"""A record of a topic, as the broker holds it."""

from __future__ import annotations

from typing import NamedTuple

from onceflow.protocol.record import HEADER_NAME, RecordHeader


class Record(NamedTuple):
    """One record of a topic. A tuple, because it takes a third of the time to make.

    Attributes:
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
        packed = self.header_value(HEADER_NAME)
        return None if packed is None else RecordHeader.unpack(packed)

    def header_value(self, name: str) -> bytes | None:
        """The value of the last header with this name; empty bytes if it has none."""
        for each, data in reversed(self.headers):
            if each == name:
                return data or b""
        return None

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"
