"""Messages that a consumer has fetched and that were not read yet, by partition.

A message is a record or an event: the end of a partition, which tells how far it is decided, or a
trouble. Within a partition their order is that of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from onceflow.contracts.connector import Place
from onceflow.errors import require

_END = "_PARTITION_EOF"


class Taken(NamedTuple):
    """The part of a range that an inbox had: either its beginning, or a trouble.

    `decided` is the offset before which everything is decided; the start of the range if nothing is
    here, and its end at most.
    """

    records: Sequence[Message]
    decided: int
    trouble: KafkaError | None


class Inbox:
    """Piles of messages, one for each partition.

    A pile has no holes: once a message did not fit, nothing more is added, and what follows has to
    be fetched again.

    Args:
        limit: messages that may wait for one partition.
        limit_bytes: of all payloads that wait, from where on only `awaited` gets more.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self.awaited: Place | None = None
        """The partition that is read now. There is room for what one fetch brings of it."""
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._piles: dict[Place, list[Message]] = {}
        self._cut_off: set[Place] = set()

    def clear(self) -> None:
        """Drop everything."""
        self._piles = {}
        self._bytes = 0
        self._cut_off = set()

    def add(self, place: Place, messages: Sequence[Message]) -> None:
        """Put messages on the pile of their partition, as many as fit."""
        if place in self._cut_off:
            return
        pile = self._piles.setdefault(place, [])
        is_full = place != self.awaited and self._bytes >= self._limit_bytes
        room = 0 if is_full else max(0, self._limit - len(pile))
        pile += messages[:room]
        self._bytes += _bytes_of(messages[:room])
        if len(messages) > room:
            self._cut_off.add(place)

    def is_cut_off(self, place: Place) -> bool:
        """Whether a message did not fit since the last `clear`, so that nothing follows."""
        return place in self._cut_off

    def take(self, place: Place, start: int, end: int) -> Taken:
        """Take the records of a range, up to the first trouble; if that comes first, it alone.

        Drops what lies before the range. Keeps what lies after it, events too: librdkafka tells an
        end only once.
        """
        pile = self._piles.pop(place, [])
        messages = pile
        if has_events(pile):
            first = next((n for n, m in enumerate(pile) if trouble_of(m)), len(pile))
            if pile and first == 0:
                self._keep(place, pile[:1], pile[1:])
                return Taken((), start, trouble_of(pile[0]))
            messages = pile[:first]
        low = bisect_left(messages, start, key=_offset)
        high = bisect_left(messages, end, key=_offset)
        self._keep(place, pile[:high], pile[high:])
        decided = min(_decided(place, start, messages[low:]), end)
        return Taken(_records_of(messages[low:high]), decided, None)

    def _keep(self, place: Place, taken: Sequence[Message], left: list[Message]) -> None:
        self._bytes -= _bytes_of(taken)
        if left:
            self._piles[place] = left


def _decided(place: Place, start: int, messages: Sequence[Message]) -> int:
    """Return the offset before which everything is decided, by records and by events."""
    if not messages:
        return start
    # An assignment drops what was fetched for another one; a record of it would be a repeat.
    for record in _records_of([messages[0], messages[-1]]):
        require(
            (record.topic(), record.partition()) == place and _offset(record) >= start,
            "a consumer yields what is assigned to it",
            subject=f"offset {start} of {place[0]}-{place[1]}",
            found=f"offset {_offset(record)} of {record.topic()}-{record.partition()}",
        )
    last = messages[-1]
    return _offset(last) + 1 if last.error() is None else _offset(last)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _bytes_of(messages: Iterable[Message]) -> int:
    return sum(map(len, messages))


def has_events(messages: Iterable[Message]) -> bool:
    """Whether any of these is not a record."""
    return any(map(Message.error, messages))  # 18 ns each, less than half of a comprehension


def trouble_of(message: Message) -> KafkaError | None:
    """The error of a message that is neither a record nor the end of a partition."""
    error = message.error()
    return error if error is not None and error.name() != _END else None


def _records_of(messages: Sequence[Message]) -> Sequence[Message]:
    if not has_events(messages):
        return messages
    return [message for message in messages if message.error() is None]
