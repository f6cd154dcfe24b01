"""Reads dead letters, and sends them again, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, Connection, Connector
from onceflow.contracts.record import Record
from onceflow.contracts.sink import Incarnation, OutputRecord
from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.policies import DeadLetterBlock
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.identity import is_internal_topic, resend_group, resend_transactional_id
from onceflow.texts import text_of

MAX_LETTERS = 10_000
"""Of one transaction: seconds of work, far below its time-out."""
RESENT_HEADER = "onceflow.resent"
"""Header of a record that was a dead letter: which one."""

Filed: TypeAlias = tuple[Record, DeadLetter]
"""A letter, and the record that it is in its topic."""


@dataclass(frozen=True)
class Resent:
    """The result of sending again."""

    sent: int
    """Letters that are now, once, in the topics that they came from."""
    kept: int
    """Rows of a result, which come from no topic, and letters without their content."""


def read_letters(
    broker: Broker, topic: str, starts: Mapping[int, int], deadline: Deadline
) -> Iterator[Filed]:
    """Letters from these offsets on (the oldest, for a partition without), to what is committed.

    Raises:
        ConfigError: the topic does not exist.
        CorruptionError: something else wrote to it.
    """
    bounds = broker.offsets(topic, deadline)
    if not bounds:
        expected = "a pipeline that was started with it"
        raise ConfigError("there is no dead-letter topic yet", subject=topic, expected=expected)
    ranges = {
        partition: (max(first, starts.get(partition, first)), stable_end)
        for partition, (first, stable_end, _) in bounds.items()
    }
    for record in broker.read(topic, ranges, deadline):
        yield record, DeadLetter.from_record(record.key, record.value, record.headers)


def letter_topic_of(kind: str, name: str, block: DeadLetterBlock | None) -> str:
    """The topic that a file names for its dead letters.

    Raises:
        ConfigError: it names none.
    """
    if block is None:
        raise ConfigError(
            f"the {kind} has no dead-letter topic",
            subject=name,
            expected="`dead_letter: {topic: ...}` in its file",
        )
    return block.topic


@contextmanager
def opened_letters(
    pipeline: Pipeline, connector: Connector, connection: Connection, deadline: Deadline
) -> Iterator[Resender]:
    """Open what reads the dead letters of a pipeline, and sends them again.

    Raises:
        ConfigError: the pipeline has no topic for them.
        DeadlineError: no broker answers.
    """
    topic = letter_topic_of("pipeline", pipeline.name, pipeline.dead_letter)
    with closing(connector.broker(connection)) as broker:
        # A question about a topic waits much longer for brokers that are not there.
        broker.brokers(deadline)
        yield Resender(
            pipeline.name,
            topic,
            broker,
            lambda transactional_id: connector.incarnation(transactional_id, connection),
        )


@dataclass(frozen=True)
class Resender:
    """Sends the dead letters of a pipeline to where they came from.

    Each is sent once, however often this is called and wherever it is interrupted: the position in
    the topic of dead letters is committed in the transaction that sends them, as that of a group.
    """

    pipeline: str
    topic: str
    broker: Broker
    open_incarnation: Callable[[str], Incarnation]

    def resend(self, deadline: Deadline) -> Resent:
        """Send all that were not sent before and are committed now.

        What is rejected again meanwhile waits for the next call.

        Raises:
            ConfigError: there is no such topic.
            FencedError: another process does the same at this moment.
            CorruptionError: something else wrote to the topic.
            OutcomeUnknownError: call it again; it goes on where the brokers say that it was.
        """
        ends = {p: end for p, (_, end, _) in self.broker.offsets(self.topic, deadline).items()}
        total = Resent(0, 0)
        while True:  # ends with the letters, of which each turn takes some
            incarnation = self.open_incarnation(resend_transactional_id(self.pipeline))
            try:
                incarnation.initialise(deadline)
                # Only now: before, the transaction of a process that died may still be open.
                letters = self._waiting(ends, deadline)
                if not letters:
                    return total
                sent = self._send(incarnation, letters, deadline)
            finally:
                incarnation.discard()
            total = Resent(total.sent + sent, total.kept + len(letters) - sent)

    def _waiting(self, ends: Mapping[int, int], deadline: Deadline) -> Sequence[Filed]:
        """The next ones that were not sent."""
        found = self.broker.group_offsets(resend_group(self.pipeline), deadline)
        starts = {partition: offset for (_, partition), offset in found.items()}
        letters = read_letters(self.broker, self.topic, starts, deadline)
        return [*islice((f for f in letters if f[0].offset < ends[f[0].partition]), MAX_LETTERS)]

    def _send(self, incarnation: Incarnation, letters: Sequence[Filed], deadline: Deadline) -> int:
        """Send those that have their record, pass over the others; returns how many were sent."""
        own = [filed for filed in letters if filed[1].is_whole]
        internal = [letter.topic for _, letter in own if is_internal_topic(letter.topic)]
        if internal:
            raise CorruptionError(
                "a dead letter names an internal topic as its origin",
                subject=self.topic,
                found=internal[0],
                then="nothing was sent; something else than a pipeline has written to this topic",
            )
        incarnation.begin()
        for filed, letter in own:
            place = f"{filed.topic}-{filed.partition}@{filed.offset}".encode()
            headers = (*letter.headers, (RESENT_HEADER, place))
            # Under the moment of writing: a log whose timestamps go back cannot be read in order.
            record = OutputRecord(letter.partition, letter.key, letter.value, more_headers=headers)
            incarnation.send(letter.topic, [record], deadline)
        position = {(self.topic, filed.partition): filed.offset + 1 for filed, _ in letters}
        incarnation.send_offsets(resend_group(self.pipeline), position, deadline)
        incarnation.commit(deadline)
        return len(own)


def fields_of(filed: Filed) -> Mapping[str, Any]:
    """A letter as plain data, with bytes as text."""
    record, letter = filed
    return {
        "at_partition": record.partition,
        "at_offset": record.offset,
        "reason": letter.reason,
        "text": letter.text,
        "pipeline": letter.pipeline,
        "batch_id": letter.batch_id,
        "source": letter.source,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "left_out_bytes": letter.left_out_bytes,
        "headers": [[name, text_of(value)] for name, value in letter.headers],
        "key": text_of(letter.key),
        "value": text_of(letter.value),
    }
