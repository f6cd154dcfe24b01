"""The committed records of a topic from a position on, read without a consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.errors import ConfigError

ANSWER_TIMEOUT_S = 60.0
"""For one look-up or one slice of records."""
IDLE_PAUSE_S = 0.2
"""Between two looks for new records: quick for a person, nothing for a broker."""
SLICE_OFFSETS = 20_000
"""Offsets of one partition that are read before another partition has its turn."""


@dataclass
class TopicTail:
    """The committed records of a topic from a position on, without a consumer group.

    Args:
        broker: to read from.
        topic: to read.
        clock: to wait with.
    """

    broker: Broker
    topic: str
    clock: Clock
    position: dict[int, int] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)

    def open(self, *, from_beginning: bool) -> None:
        """Take the position up.

        Raises:
            ConfigError: the topic does not exist.
            DeadlineError: nobody answers at the address.
        """
        self.broker.brokers(Deadline.after(self.clock, ANSWER_TIMEOUT_S))
        bounds = self._bounds()
        if not bounds:
            raise ConfigError("the topic does not exist", subject=self.topic)
        first = {p: start if from_beginning else end for p, (start, end) in bounds.items()}
        self._first, self.position = first, dict(first)

    def is_emptied(self, partition: int) -> bool:
        """Whether records of a partition were removed and none was read since."""
        return 0 < self._first.get(partition, 0) == self.position.get(partition)

    def follow(self, timeout_s: float | None) -> Iterator[ReadRecord]:
        """Records as they come, until none has come for `timeout_s`; for ever without one."""
        last_s = self.clock.monotonic_s()
        while timeout_s is None or self.clock.monotonic_s() - last_s < timeout_s:
            for record in self.to_end():
                yield record
                last_s = self.clock.monotonic_s()
            self.clock.sleep(IDLE_PAUSE_S)

    def to_end(self) -> Iterator[ReadRecord]:
        """Records up to what is committed at the time of the call."""
        ends = {p: end for p, (_, end) in self._bounds().items()}
        while ranges := self._slices(ends):
            deadline = Deadline.after(self.clock, ANSWER_TIMEOUT_S)
            yield from self.broker.read(self.topic, ranges, deadline)
            self.position |= {p: end for p, (_, end) in ranges.items()}

    def _slices(self, ends: Mapping[int, int]) -> Mapping[int, tuple[int, int]]:
        """What to read next: a slice of each partition that is not at its end."""
        return {
            p: (start, min(ends[p], start + SLICE_OFFSETS))
            for p, start in self.position.items()
            if start < ends[p]
        }

    def _bounds(self) -> Mapping[int, tuple[int, int]]:
        offsets = self.broker.offsets(self.topic, Deadline.after(self.clock, ANSWER_TIMEOUT_S))
        return {p: (start, stable_end) for p, (start, stable_end, _) in offsets.items()}
