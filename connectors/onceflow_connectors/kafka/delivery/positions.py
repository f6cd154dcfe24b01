"""Positions of deliveries in a compacted topic, fenced by transactional ids.

Each partition that a delivery reads has a transactional id of its own. To write its position is to
initialise that id, to read the newest position, and to write in one transaction: what an older
instance still sends is fenced by the first step, and recognised by the second. Every transaction
has an initialisation of its own, because of what `contracts.sink.Incarnation` says of late answers.
So a zombie may fence a transaction of its healthy successor once, before it reads that it was
replaced; the successor writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from zlib import crc32

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, Place, TopicInfo, TopicSpec
from onceflow.contracts.sink import OutputRecord
from onceflow.contracts.target import Claim, Held, Intent, Mark, Move, is_unwritten
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    Fault,
    FencedError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow.protocol.identity import DELIVERIES_TOPIC, delivery_transactional_id
from onceflow.protocol.ledger import canonical_json
from onceflow_connectors.error_codes import Nature, nature_of_code
from onceflow_connectors.kafka.admin.administration import HIGH_WATERMARK, LOG_START, Administration
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.admin.reading import CommittedReader
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation

PARTITIONS = 8
"""That keys are spread over. Never another number: a key must be found where it was written."""
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # A start reads the whole topic, and the segment that is written is never compacted.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "unclean.leader.election.enable": "false",
}
VERSION = 1
_AGAIN = "the position tells whether it was written; if not, it is written again"
_BEGIN_AGAIN = "nothing was written; to begin again, give the delivery another name"

Output: TypeAlias = tuple[str, Sequence[OutputRecord]]
"""Topic and records that are written in one transaction with a position."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of one partition.

    Args:
        topic_id: of the topic that is read; it changes when that is deleted and created again.
    """

    claim_epoch: int
    topic_id: str
    mark: Mark | None
    intent: Intent | None

    @property
    def held(self) -> Held:
        """The same for `is_unwritten`."""
        return Held(self.claim_epoch, self.mark.offset if self.mark else None)

    def to_json(self) -> bytes:
        """Encode as the value of a record."""
        mark, intent = self.mark, self.intent
        fields: dict[str, Any] = {"v": VERSION, "claim": self.claim_epoch, "topic": self.topic_id}
        fields["position"] = mark and [mark.offset, mark.state]
        fields["intent"] = intent and [intent.until, intent.since_ms]
        return canonical_json(fields).encode()

    @classmethod
    def from_json(cls, value: bytes, subject: str) -> Entry:
        """Decode.

        Raises:
            CorruptionError: it is of another version, or damaged.
        """
        try:
            fields = json.loads(value)
            if fields["v"] == VERSION:
                mark, intent = fields["position"], fields["intent"]
                return cls(
                    int(fields["claim"]),
                    str(fields["topic"]),
                    Mark(int(mark[0]), str(mark[1])) if mark else None,
                    Intent(int(intent[0]), int(intent[1])) if intent else None,
                )
        except (KeyError, TypeError, ValueError, IndexError):
            pass
        raise CorruptionError(
            "a position of a delivery cannot be read",
            subject=subject,
            expected=f"version {VERSION}",
            found=repr(value[:80]),
            then="nothing was written; use the version of Onceflow that wrote it",
        )


NOTHING = Entry(0, "", None, None)
"""Of a partition that was never claimed."""


class KafkaPositions:
    """Implements `contracts.positions.Positions`.

    Args:
        source: brokers of the topics that the delivery reads; left out: those of `connection`.
        topic_id: of the topic of positions, if this process has seen it before.

    Attributes:
        topic_id: the same, known after `check`.
    """

    def __init__(
        self,
        delivery: str,
        connection: Connection,
        source: Connection | None = None,
        topic_id: str | None = None,
    ) -> None:
        self._delivery = delivery
        self._connection = connection
        self._administration = Administration(connection)
        self._source = Administration(source) if source else self._administration
        self._reader = CommittedReader(connection)
        self._entries: dict[Place, Entry] = {}
        self._read_to: dict[int, int] = {}
        self.topic_id = topic_id

    def check(self, deadline: Deadline) -> None:
        broker = KafkaBroker(self._connection)
        try:
            if broker.topic_id(DELIVERIES_TOPIC, deadline) is None:
                self._require_same_topic(None)
                spec = TopicSpec(DELIVERIES_TOPIC, PARTITIONS, config=SETTINGS)
                broker.create_topic(spec, deadline)
            found = broker.topic(DELIVERIES_TOPIC, deadline)
        finally:
            broker.close()
        if found is None:
            raise RetriableError("a new topic is not visible yet", subject=DELIVERIES_TOPIC)
        self._require_same_topic(found.topic_id)
        if faults := tuple(_faults(found)):
            raise ConfigError("unusable topic of positions", subject=found.name, faults=faults)

    def claim(self, place: Place, deadline: Deadline) -> Claim:
        found = self._source.topics([place[0]], deadline).get(place[0])
        if found is None:
            then = "nothing was written; check the name"
            raise ConfigError("the topic does not exist", subject=place[0], then=then)

        def claimed(held: Entry) -> Entry:
            if held.topic_id not in {"", found.topic_id}:
                raise CorruptionError(
                    "the topic was deleted and created again",
                    subject=f"{place[0]}, read by delivery {self._delivery}",
                    expected=f"the topic with id {held.topic_id}, which the position is of",
                    found=f"id {found.topic_id}",
                    then=_BEGIN_AGAIN,
                )
            return replace(held, claim_epoch=held.claim_epoch + 1, topic_id=found.topic_id)

        entry = self._write(place, claimed, deadline)
        return Claim(place, entry.claim_epoch, entry.mark, entry.intent)

    def positions(self, deadline: Deadline) -> Mapping[Place, Mark]:
        for partition in range(PARTITIONS):
            self._refresh(partition, deadline)
        return {place: entry.mark for place, entry in self._entries.items() if entry.mark}

    def intend(self, claim: Claim, intent: Intent, deadline: Deadline) -> None:
        def intended(held: Entry) -> Entry:
            is_unwritten([Move(claim, Mark(intent.until, ""))], {claim.place: held.held})
            return replace(held, intent=intent)

        self._write(claim.place, intended, deadline)

    def move(self, move: Move, deadline: Deadline, output: Output | None = None) -> None:
        """Write `output` in the same transaction."""

        def moved(held: Entry) -> Entry:
            if not is_unwritten([move], {move.claim.place: held.held}):
                return held
            return replace(held, mark=move.to, intent=None)

        self._write(move.claim.place, moved, deadline, output)

    def close(self) -> None:
        self._reader.close()
        self._administration.close()
        self._source.close()

    def _write(
        self,
        place: Place,
        change: Callable[[Entry], Entry],
        deadline: Deadline,
        output: Output | None = None,
    ) -> Entry:
        """Fence, read, and write what `change` makes of it, unless it is the same."""
        name = delivery_transactional_id(self._delivery, *place)
        incarnation = KafkaIncarnation(name, self._connection)
        key = _key(self._delivery, place)
        partition = crc32(key) % PARTITIONS
        try:
            with _reporting():
                incarnation.initialise(deadline)
            self._refresh(partition, deadline)
            held = self._entries.get(place, NOTHING)
            entry = change(held)
            if entry != held:
                record = OutputRecord(partition, key, entry.to_json())
                with _reporting():
                    _commit(incarnation, record, output, deadline)
        except RecordError:
            # Readers need not wait for the time-out. An abort would: librdkafka does not get there
            # while records wait that were sent after the refused one.
            incarnation.discard()
            incarnation = KafkaIncarnation(name, self._connection)
            with suppress(OnceflowError):
                incarnation.initialise(deadline)
            raise
        else:
            return entry
        finally:
            incarnation.discard()

    def _refresh(self, partition: int, deadline: Deadline) -> None:
        """Read what was committed since the last time.

        Goes to the high watermark, and waits there for open transactions: those of others could
        hold the last stable offset below what was committed under our id.
        """
        found = self._administration.topics([DELIVERIES_TOPIC], deadline).get(DELIVERIES_TOPIC)
        self._require_same_topic(found.topic_id if found else None)
        place = (DELIVERIES_TOPIC, partition)
        ends = self._administration.offsets([place], HIGH_WATERMARK, deadline)
        start = self._read_to.get(partition)
        if start is None:
            starts = self._administration.offsets([place], LOG_START, deadline)
            start = starts[place].offset if starts else 0
        if ends is None:
            raise RetriableError("the topic of positions is gone", subject=DELIVERIES_TOPIC)
        end = ends[place].offset
        for message in self._reader.read(*place, (start, end), deadline):
            self._take(message.key(), message.value())
            self._read_to[partition] = int(message.offset() or 0) + 1
        self._read_to[partition] = max(start, end)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        place = _place(self._delivery, key)
        if place is None:
            return
        if value is None:
            self._entries.pop(place, None)
        else:
            self._entries[place] = Entry.from_json(
                value, f"{self._delivery}, {place[0]}[{place[1]}]"
            )

    def _require_same_topic(self, topic_id: str | None) -> None:
        """Keep the id of the topic for as long as this process lives."""
        if self.topic_id not in {None, topic_id}:
            raise CorruptionError(
                "the topic of positions was deleted",
                subject=f"{DELIVERIES_TOPIC}, delivery {self._delivery}",
                expected=f"the topic with id {self.topic_id}",
                found=f"id {topic_id}" if topic_id else "no topic",
                then="nothing was written. Under this name, the delivery would begin at the start"
                " of its topics and repeat everything",
            )
        self.topic_id = topic_id


@contextmanager
def _reporting() -> Iterator[None]:
    """Turn what happened to a transaction into what a delivery must do next."""
    try:
        yield
    except (FencedError, OutcomeUnknownError) as error:
        # By a claim or by the time-out. Neither tells what became of the transaction.
        raise _as(OutcomeUnknownError, error, _AGAIN) from error
    except AbortableError as error:
        if nature_of_code(error.found.partition(":")[0]) is Nature.REFUSED:
            raise _as(ConfigError, error, "nothing of it was written") from error
        raise _as(RetriableError, error, "nothing of it was written; it is tried again") from error


def _as(kind: type[OnceflowError], error: OnceflowError, then: str) -> OnceflowError:
    return kind(error.what, subject=error.subject, found=error.found, then=then)


def _commit(
    incarnation: KafkaIncarnation, position: OutputRecord, output: Output | None, deadline: Deadline
) -> None:
    """Write in one transaction. One that fails ends with the next initialisation of its id."""
    incarnation.begin()
    if output is not None:
        _send(incarnation, output, deadline)
    incarnation.send(DELIVERIES_TOPIC, [position], deadline)
    reach(CrashPoint.BEFORE_COMMIT)
    incarnation.commit(deadline)
    reach(CrashPoint.AFTER_COMMIT)


def _send(incarnation: KafkaIncarnation, output: Output, deadline: Deadline) -> None:
    topic, records = output
    middle = len(records) // 2
    incarnation.send(topic, records[:middle], deadline)
    reach(CrashPoint.MID_PRODUCE)
    incarnation.send(topic, records[middle:], deadline)
    # Before the position: its partition is shared, and its readers wait for the commit.
    incarnation.flush(deadline)
    reach(CrashPoint.AFTER_EFFECT)


def _key(delivery: str, place: Place) -> bytes:
    return canonical_json([delivery, *place]).encode()


def _place(delivery: str, key: bytes | None) -> Place | None:
    """The partition that a key is of; None if it is another delivery's."""
    try:
        name, topic, partition = json.loads(key or b"")
    except (TypeError, ValueError):
        return None
    return (str(topic), int(partition)) if name == delivery else None


def _faults(found: TopicInfo) -> Iterator[Fault]:
    if found.partitions < PARTITIONS:
        expected = f"{PARTITIONS} or more"
        suggestion = "Add partitions; later ones stay empty."
        yield Fault(f"{found.partitions} partitions", found.name, None, expected, suggestion)
    policy = found.config.get("cleanup.policy")
    if policy != SETTINGS["cleanup.policy"]:
        what = f"cleanup.policy is {policy}, which loses positions"
        suggestion = "Change the setting of the topic."
        yield Fault(what, found.name, None, SETTINGS["cleanup.policy"], suggestion)
