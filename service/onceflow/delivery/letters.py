"""Delivers dead letters: reads them as a carrier reads the topics of its delivery.

The target keeps the position in the topic of letters as that of any other topic, so each letter has
its effect once, wherever it is interrupted. A delivery may have written a letter twice, around a
crash; the second is passed over as long as the topic has the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.carrier import Carrier
from onceflow.delivery.model import Delivery
from onceflow.delivery.rejects import DROPPED
from onceflow.delivery.run import Around, rejects_of
from onceflow.errors import ConfigError
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.record import HEADER_NAME
from onceflow.repair.dead_letters import Resent, letter_topic_of, read_letters
from onceflow_connectors.consumer import Counters, Hooks, Partition, Position

ATTEMPTS = 5
"""Failures of the target in a row after which the command ends; what was delivered stays so."""


@dataclass
class LetterReader:
    """Reads the letters that are there now, instead of a consumer.

    Args:
        deadline: for all of it.
        kept: letters that are not delivered: records that were dropped, or that lack their content.
    """

    broker: Broker
    topic: str
    hooks: Hooks
    deadline: Deadline
    kept: int = 0
    counters: Counters = field(default_factory=Counters)
    _next: dict[int, int] = field(default_factory=dict)
    _moved: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Claim every partition, and find where to go on.

        Raises:
            ConfigError: there is no such topic.
            CorruptionError: something else wrote to it.
        """
        self._ends: dict[int, int] = {}
        self._seen: set[tuple[str, int, int]] = set()
        for partition, (first, end, _) in self.broker.offsets(self.topic, self.deadline).items():
            position = self.hooks.load_position and self.hooks.load_position(self.topic, partition)
            self._next[partition] = max(first, position.offset) if position else first
            self._ends[partition] = end
        self._letters = read_letters(self.broker, self.topic, {}, self.deadline)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hold nothing."""

    def take(self, most: int, timeout_s: float) -> Sequence[Record]:
        """The next letter as the record that it was; nothing if there is none."""
        for filed, letter in self._letters:
            place = (letter.topic, letter.partition, letter.offset)
            is_repeat = place in self._seen
            self._seen.add(place)
            partition, offset = filed.partition, filed.offset
            if not self._next[partition] <= offset < self._ends[partition]:
                continue
            self._next[partition] = offset + 1
            self._moved.add(partition)
            if letter.left_out_bytes is not None or letter.reason == DROPPED:
                self.kept += 1
            elif is_repeat:
                self.counters.discarded += 1
            else:
                return [_record(filed, letter)]
        return []

    def take_positions(self) -> Sequence[Position]:
        """Positions of the partitions that moved since this was last called."""
        moved, self._moved = sorted(self._moved), set()
        return [self.position(self.topic, partition) for partition in moved]

    def position(self, topic: str, partition: int) -> Position:
        """The position after the last letter that was read."""
        return Position(topic, partition, self._next[partition], "")

    def next_offset(self, topic: str, partition: int) -> int | None:
        """The next offset to read."""
        return self._next[partition]

    def assignment(self) -> Sequence[Partition]:
        """All partitions."""
        return [(self.topic, partition) for partition in self._next]


def deliver_letters(delivery: Delivery, around: Around, deadline: Deadline) -> Resent:
    """Deliver the letters that are there now and were not delivered before, each once.

    Those that are rejected again become new letters, for the next call.

    Raises:
        ConfigError: the delivery names no topic for them, it does not exist, or the target takes no
            records out of their order.
        OnceflowError: as `Carrier.run`. Call it again: it goes on.
    """
    topic = letter_topic_of("delivery", delivery.name, delivery.dead_letter)
    if why := delivery.to.block.refuses_letters:
        raise ConfigError(
            "the dead letters of this delivery cannot be delivered later",
            subject=delivery.name,
            found=why,
            then="nothing was sent. Correct what rejects them, and start a delivery of another name"
            " into an empty target: it delivers all that the topics still have",
        )
    source = delivery.source.model_copy(update={"topics": (topic,)})
    again = delivery.model_copy(update={"source": source})
    attempts = min(delivery.retry.attempts or ATTEMPTS, ATTEMPTS)
    patience = delivery.retry.model_copy(update={"attempts": attempts})
    counts = {"records": 0, "rejected": 0}
    readers: list[LetterReader] = []

    def count(event: str, /, **facts: Any) -> None:
        if event == "batch":
            for name in counts:
                counts[name] += facts[name]

    with ExitStack() as stack:
        broker = around.connector.broker(around.connection)
        stack.callback(broker.close)
        broker.brokers(deadline)
        target = again.target(around)
        stack.callback(target.close)

        def read(hooks: Hooks) -> LetterReader:
            readers.append(LetterReader(broker, topic, hooks, deadline))
            return readers[-1]

        Carrier(
            consumer=read,
            target=target,
            claim=target.claim,
            decoder=again.decoder(),
            rejects=rejects_of(again, around, broker, stack),
            limits=again.limits,
            breaker=Breaker(patience, around.random),
            pace=around.paces.of(again.rate) if again.rate else None,
            max_age_ms=None,
            clock=around.clock,
            report=count,
            stop=around.stop,
            is_finished=lambda *, is_idle: is_idle,
        ).run()
    kept = sum(reader.kept for reader in readers)
    return Resent(counts["records"], kept + counts["rejected"])


def _record(filed: Record, letter: DeadLetter) -> Record:
    """Name the letter's place: its own sequence is behind that of the topic it came from."""
    headers = tuple(each for each in letter.headers if each[0] != HEADER_NAME)
    return filed._replace(
        timestamp_ms=letter.timestamp_ms,
        key=letter.key,
        value=letter.value,
        headers=headers,
    )
