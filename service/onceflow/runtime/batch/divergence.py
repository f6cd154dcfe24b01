"""Compares the rows of a replay with those that were committed, where they differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.errors import CorruptionError, DeadlineError
from onceflow.pipeline.query.rejects import Reason
from onceflow.protocol.dead_letter import NOWHERE, DeadLetter
from onceflow.protocol.digest import Row
from onceflow.protocol.ledger import HeadEntry
from onceflow.runtime.topics.output_tail import read_batch

MAX_SHOWN = 3
"""Rows in a message."""
MAX_CHARACTERS = 200
"""Of a value in a message."""


@dataclass(frozen=True)
class Difference:
    """A row that one computation has, and the other has not (None), or with another value."""

    partition: int
    key: bytes | None
    committed: bytes | None
    computed: bytes | None

    def __str__(self) -> str:
        return (
            f"partition {self.partition}, key {_shown(self.key)}:"
            f" committed {_shown(self.committed)}, computed {_shown(self.computed)}"
        )


def differences(committed: Iterable[Row], computed: Iterable[Row]) -> list[Difference]:
    """Rows in which two computations of one batch differ, by partition and key.

    Rows that both have are left out, each as often as both have it. What is left is paired in the
    order of values, so that a row that changed is paired with what it was.
    """
    before, after = Counter(committed), Counter(computed)
    gone, new = _by_key(before - after), _by_key(after - before)
    places = sorted(gone.keys() | new.keys(), key=lambda place: (place[0], place[1] or b""))
    return [
        Difference(partition, key, old, now)
        for partition, key in places
        for old, now in zip_longest(gone.get((partition, key), []), new.get((partition, key), []))
    ]


@dataclass(frozen=True)
class DivergenceDesk:
    """Compares the rows of a replay with those that are committed."""

    broker: Broker
    deadline: Callable[[], Deadline]

    def letters(
        self, head: HeadEntry, rows: Sequence[Row], clock_ms: int
    ) -> tuple[int, list[DeadLetter]]:
        """How many rows differ, and each that the replay computed, as a letter.

        Raises:
            DeadlineError: the committed rows cannot be read.
        """
        found = differences(read_batch(head, self.broker, self.deadline()), rows)
        letters = [
            DeadLetter(
                key=each.key,
                value=each.computed,
                headers=(),
                reason=Reason.DIVERGED.value,
                text=f"a replay computed this; committed is {_shown(each.committed)}",
                pipeline=head.pipeline,
                batch_id=head.batch.batch_id,
                source="",
                topic=head.sink.topic,
                partition=NOWHERE,
                offset=NOWHERE,
                timestamp_ms=clock_ms,
            )
            for each in found
        ]
        return len(found), letters

    def explained(
        self, error: CorruptionError, head: HeadEntry, rows: Sequence[Row]
    ) -> CorruptionError:
        """The same error with the first rows that differ, as far as the output can be read."""
        try:
            found = differences(read_batch(head, self.broker, self.deadline()), rows)
        except DeadlineError as unread:
            text = f"{error.found}; the committed rows could not be read: {unread.what}"
            return _with(error, text)
        if not found:
            return _with(error, f"{error.found}; the rows are the same, in another order")
        shown = "; ".join(str(each) for each in found[:MAX_SHOWN])
        return _with(error, f"{error.found}; {len(found)} rows differ, the first: {shown}")


def _with(error: CorruptionError, found: str) -> CorruptionError:
    return CorruptionError(
        error.what, subject=error.subject, expected=error.expected, found=found, then=error.then
    )


def _by_key(rows: Counter[Row]) -> Mapping[tuple[int, bytes | None], list[bytes | None]]:
    found = defaultdict(list)
    for partition, key, value in sorted(rows.elements(), key=_order):
        found[partition, key].append(value)
    return found


def _order(row: Row) -> tuple[int, bytes, bytes]:
    partition, key, value = row
    return partition, key or b"", value or b""


def _shown(data: bytes | None) -> str:
    if data is None:
        return "nothing"
    text = data.decode("utf-8", errors="backslashreplace")
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
