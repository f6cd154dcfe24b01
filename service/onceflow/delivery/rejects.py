"""Rejected records: written to the dead-letter topic, dropped and counted, or the end of it.

And the gap records of those that were dropped because the target was too slow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onceflow.clock import Clock
from onceflow.contracts.record import Record
from onceflow.contracts.sink import Appender, OutputRecord
from onceflow.errors import AbortableError, InvariantError, RecordError, RetriableError
from onceflow.pipeline.file.policies import OnReject
from onceflow.protocol.dead_letter import HEADER_PREFIX, DeadLetter

UNREADABLE = "undecodable"
REFUSED = "refused_by_target"
DROPPED = "dropped_when_behind"
SKIPPED = "skipped"
APPEND_TIMEOUT_S = 60.0
_REASONS = {
    UNREADABLE: ("a record does not fit `schema`", "Correct `schema`"),
    REFUSED: ("the target refuses a record", "Correct what it is refused for"),
}
"""What has happened, and what helps, by the code of the rejection."""


class LetterTopic:
    """The dead-letter topic of a delivery.

    Args:
        limit_bytes: the largest letter that the topic takes.
    """

    def __init__(
        self, name: str, partitions: int, limit_bytes: int, appender: Appender, clock: Clock
    ) -> None:
        self._name = name
        self._partitions = partitions
        self._limit_bytes = limit_bytes
        self._appender = appender
        self._clock = clock

    def append(self, letters: Sequence[DeadLetter]) -> None:
        """Write letters and wait until they are acknowledged.

        Raises:
            RetriableError, DeadlineError: not all are; writing them again repeats some.
        """
        records = [
            OutputRecord(
                partition=letter.partition_of(self._partitions),
                key=letter.key,
                value=letter.value,
                more_headers=letter.to_headers(),
            )
            for letter in (each.within(self._limit_bytes) for each in letters)
        ]
        try:
            self._appender.append(self._name, records, self._clock.within(APPEND_TIMEOUT_S))
        except AbortableError as error:
            raise RetriableError(error.what, subject=self._name, found=error.found) from error


class Letters(Protocol):
    """Takes dead letters: `LetterTopic`, or a list in a test."""

    def append(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them durably before it returns."""


@dataclass
class Dropped:
    """Records of one partition that are not delivered."""

    first: Record
    last: Record
    count: int = 1

    def gap(self) -> dict[str, object]:
        """The content of its gap record."""
        return {
            "topic": self.first.topic,
            "partition": self.first.partition,
            "first_offset": self.first.offset,
            "last_offset": self.last.offset,
            "records": self.count,
            "first_timestamp_ms": self.first.timestamp_ms,
            "last_timestamp_ms": self.last.timestamp_ms,
        }


class Rejects:
    """Carries out `on_reject` for one delivery.

    Attributes:
        count: of rejected records since the start; those of a batch that is read again count again.
    """

    def __init__(self, delivery: str, policy: OnReject, letters: Letters | None) -> None:
        self._delivery = delivery
        self._policy = policy
        self._letters = letters
        self.count = 0

    def take(self, code: str, found: Sequence[tuple[Record, str]]) -> None:
        """Deal with records and the reason for each. When it returns, their batch may be written.

        Raises:
            RecordError: the policy is to stop.
        """
        if self._policy == "fail":
            record, reason = found[0]
            what, cure = _REASONS[code]
            raise RecordError(
                what,
                subject=str(record),
                found=reason,
                then=f"it stops before this record. {cure}, or add `dead_letter: {{topic: ...}}` to"
                " the file to set such records aside",
            )
        if self._letters is not None and self._policy == "dead_letter":
            self._letters.append([self._letter(record, code, reason) for record, reason in found])
        self.count += len(found)

    def note(self, dropped: Sequence[Dropped], code: str = DROPPED) -> None:
        """Write a gap record for each range. When it returns, the position may pass them."""
        if self._letters is None:
            raise InvariantError("there is no topic for gap records")
        self._letters.append([self._gap_letter(each, code) for each in dropped])

    def _gap_letter(self, dropped: Dropped, code: str) -> DeadLetter:
        """As of the first record, without its content: the records are in the topic."""
        letter = self._letter(dropped.first, code, f"{dropped.count} records were left out")
        gap = json.dumps(dropped.gap()).encode()
        return replace(letter, key=None, value=gap, headers=())

    def _letter(self, record: Record, code: str, reason: str) -> DeadLetter:
        own = tuple(each for each in record.headers if not each[0].startswith(HEADER_PREFIX))
        return DeadLetter(
            key=record.key,
            value=record.value,
            headers=own,
            reason=code,
            text=reason,
            pipeline=self._delivery,
            batch_id=0,
            # No view: such a letter cannot be sent to its topic again, which has it already.
            source="",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
        )
