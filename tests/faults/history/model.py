"""Observations of a recorder, as data: the only thing that the checks look at.

Shares no code with the product, so that it can contradict it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class Outcome(StrEnum):
    """The outcome of a request to Kafka."""

    OK = "ok"
    FAILED = "failed"
    """It has certainly not happened."""
    UNKNOWN = "unknown"
    """It may have happened, or may yet."""


class Isolation(StrEnum):
    """Isolation level of a reader."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a reader got it. `header` is the one named `onceflow`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    header: bytes | None
    timestamp_ms: int

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Input:
    """A record that was sent to the pipeline's source.

    Args:
        index: of the event; orders all events of a history.
        at_s: when it was handed to the producer, on the recorder's monotonic scale.
        input_id: no other input has it.
        offset: once it was acknowledged or found; None before.
    """

    index: int
    at_s: float
    input_id: str
    topic: str
    key: bytes | None
    value: bytes
    outcome: Outcome
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a driver to commit a batch, as the driver tells it."""

    index: int
    at_s: float
    batch_id: int
    run_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Poll:
    """One answer that a reader got, with where it then stood.

    Args:
        at_s: after the answer was there: all of `records` were visible by then.
        positions: of each partition the next offset to read.
    """

    index: int
    at_s: float
    records: tuple[Record, ...]
    positions: dict[Place, int]


@dataclass
class Reader:
    """A reader that ran during the faults.

    Args:
        goal: what the reader had to reach before it was stopped, by partition.
        errors: what its client reported, the last few; for people.
    """

    name: str
    isolation: Isolation
    polls: list[Poll] = field(default_factory=list)
    goal: dict[Place, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def positions(self) -> dict[Place, int]:
        """Where it stood in the end."""
        return self.polls[-1].positions if self.polls else {}

    def observations(self) -> Iterator[tuple[Poll, Record]]:
        """Each record with the poll that brought it, in the order of arrival."""
        for poll in self.polls:
            for record in poll.records:
                yield poll, record


@dataclass(frozen=True, slots=True)
class Ends:
    """The end of a partition's log, as its leader told it."""

    last_stable_offset: int
    high_watermark: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Probe:
    """The ends of all partitions that answered.

    Args:
        at_s: before the question was asked: the answer is from later.
    """

    index: int
    at_s: float
    ends: dict[Place, Ends]


@dataclass
class FinalPartition:
    """A partition after quiesce.

    Args:
        log_start: the first offset that retention left.
        records: every committed one, by a new reader.
    """

    topic: str
    partition: int
    log_start: int
    last_stable_offset: int
    high_watermark: int
    records: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that was not decided after quiesce. `places` are those it wrote to."""

    transactional_id: str
    state: str
    places: tuple[Place, ...] = ()
