"""What the Kafka source asks the brokers: topics and their ids, ends, starts, offsets at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicDescription,
)

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.topic_pattern import topic_pattern
from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow_connectors.kafka.admin.administration import (
    RETRY_PAUSE_S,
    Administration,
    answered,
    list_offsets,
    unless,
)
from onceflow_connectors.kafka.client.failures import kafka_error
from onceflow_connectors.kafka.source.cut import Place

ANSWER_TIMEOUT_S = 30.0
"""For one question with all its tries: longer than brokers need to elect a leader."""
GONE_AFTER_S = 3.0
"""A topic that stays unknown this long is gone: a broker that has just started may not know it."""


@dataclass(frozen=True)
class TopicFacts:
    """A topic as it is now."""

    topic_id: str
    partitions: int


@dataclass(frozen=True)
class Selection:
    """Which topics are read: those in `names`, or if None, those that `pattern` matches whole.

    A pattern never matches a topic of Kafka or Onceflow itself, nor one that is `retired`: a
    pipeline that reads its own ledger makes a record with each batch that it commits.
    """

    names: tuple[str, ...] | None
    pattern: str = ""
    retired: frozenset[str] = frozenset()

    def covers(self, name: str) -> bool:
        """Whether a topic of this name is read."""
        if self.names is not None:
            return name in self.names
        return name not in self.retired and topic_pattern(self.pattern).matches(name)


@dataclass(frozen=True)
class Spot:
    """A record, by its place in the log and in time."""

    offset: int
    timestamp_ms: int


class Origin:
    """Answers of the leaders.

    Every method waits up to `ANSWER_TIMEOUT_S`, and raises

    - `DeadlineError`: no answer in time;
    - `ConfigError`: refused for good;
    - `CorruptionError`: a topic that was asked for by name no longer exists.

    Args:
        connection: how to reach the brokers.
        clock: measures the time-outs.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._administration = Administration(connection)
        self._clock = clock

    def topics(self, selection: Selection) -> Mapping[str, TopicFacts]:
        """Topics of the selection that exist, without Kafka's internal ones."""
        deadline = Deadline.after(self._clock, ANSWER_TIMEOUT_S)
        names = selection.names
        if names is None:
            names = tuple(filter(selection.covers, self._all_names(deadline)))
        found = self._describe(names, deadline)
        return _facts({name: topic for name, topic in found.items() if not topic.is_internal})

    def known_topics(self, topic_ids: Mapping[str, str]) -> Mapping[str, TopicFacts]:
        """Topics that were read before, as they are now.

        Args:
            topic_ids: their ids; empty for any.

        Raises:
            CorruptionError: one is gone, or another topic has its name.
        """
        found = self._existing(topic_ids.keys())
        for topic, topic_id in topic_ids.items():
            if topic_id and found[topic].topic_id != topic_id:
                raise CorruptionError(
                    "a source topic was deleted and created again",
                    subject=topic,
                    expected=f"topic id {topic_id}",
                    found=f"topic id {found[topic].topic_id}",
                    then=f"halting; its offsets mean other records now: {NEW_GENERATION}",
                )
        return found

    def starts(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """The first offset that still exists."""
        found = self._look_up(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        return {place: answer.offset for place, answer in found.items()}

    def ends(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """The last stable offset: everything before it is decided."""
        found = self._look_up(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]
        return {place: answer.offset for place, answer in found.items()}

    def high_watermarks(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """The next offset to be written: beyond the last stable offset, records are undecided."""
        found = self._look_up(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: answer.offset for place, answer in found.items()}

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> Mapping[Place, Spot | None]:
        """The first record that is not older, decided or not; None where there is none."""
        return _spots(self._look_up(places, OffsetSpec.for_timestamp(timestamp_ms)))

    def newest(self, places: Iterable[Place]) -> Mapping[Place, Spot | None]:
        """The record with the highest timestamp, decided or not; None where there is none."""
        return _spots(self._look_up(places, OffsetSpec.max_timestamp()))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Let go of the connection. Safe to call twice."""
        self._administration.close()

    def _look_up(
        self,
        places: Iterable[Place],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Mapping[Place, ListOffsetsResultInfo]:
        """One request for all places."""
        wanted = {TopicPartition(*place): spec for place in places}
        names = {at.topic for at in wanted}
        subject = ", ".join(sorted(names))

        def request(
            client: AdminClient, timeout_s: float
        ) -> Mapping[Place, ListOffsetsResultInfo] | None:
            answers = list_offsets(client, wanted, isolation, timeout_s)
            return {(at.topic, at.partition): answer for at, answer in answers.items()}

        # Without leaders: either a topic is gone, or this will pass.
        asked = unless(request, "_NOENT", "UNKNOWN_TOPIC_OR_PART")
        deadline = Deadline.after(self._clock, ANSWER_TIMEOUT_S)
        what = "cannot look up offsets"
        while wanted:
            found = self._administration.ask(what, subject, asked, deadline)
            if found is not None:
                return found
            self._existing(names)
            deadline.check("a partition has no leader", subject=subject)
            self._clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))
        return {}

    def _existing(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        patience = Deadline.after(self._clock, GONE_AFTER_S)
        while True:
            deadline = Deadline.after(self._clock, ANSWER_TIMEOUT_S)
            found = self._describe(names, deadline)
            missing = sorted(set(names) - found.keys())
            if not missing:
                return _facts(found)
            if patience.is_over:
                raise CorruptionError(
                    "a topic that is being read no longer exists",
                    subject=", ".join(missing),
                    then="halting; if everything in it was read, name it under `retired` of the"
                    f" source and start again; otherwise restore it, or {NEW_GENERATION}",
                )
            self._clock.sleep(RETRY_PAUSE_S)

    def _all_names(self, deadline: Deadline) -> Collection[str]:
        def request(client: AdminClient, timeout_s: float) -> Collection[str]:
            return client.list_topics(timeout=timeout_s).topics.keys()

        return self._administration.ask("cannot list topics", "all topics", request, deadline)

    def _describe(
        self, names: Collection[str], deadline: Deadline
    ) -> Mapping[str, TopicDescription]:
        """Those that exist."""
        if not names:
            return {}

        def request(client: AdminClient, timeout_s: float) -> Mapping[str, TopicDescription]:
            answers = client.describe_topics(
                TopicCollection(list(names)), request_timeout=timeout_s
            )
            found = {name: _known(answer, timeout_s) for name, answer in answers.items()}
            return {name: topic for name, topic in found.items() if topic is not None}

        subject = ", ".join(sorted(names))
        return self._administration.ask("cannot look up topics", subject, request, deadline)


def log_is_shorter(place: Place, expected: int, found: int) -> CorruptionError:
    """To be raised when the log ends before what was read of it."""
    topic, partition = place
    return CorruptionError(
        "the log is shorter than what was read of it",
        subject=f"{topic}-{partition}",
        expected=f"at least {expected} offsets",
        found=f"a log that ends at {found}",
        then="halting; acknowledged records were lost (unclean leader election?)",
    )


def _facts(found: Mapping[str, TopicDescription]) -> Mapping[str, TopicFacts]:
    return {
        name: TopicFacts(str(topic.topic_id), len(topic.partitions))
        for name, topic in sorted(found.items())
    }


def _known(answer: Future[TopicDescription], timeout_s: float) -> TopicDescription | None:
    """None for a topic that does not exist."""
    try:
        return answered(answer, timeout_s)
    except KafkaException as raised:
        if kafka_error(raised).name() == "UNKNOWN_TOPIC_OR_PART":
            return None
        raise


def _spots(found: Mapping[Place, ListOffsetsResultInfo]) -> Mapping[Place, Spot | None]:
    return {
        place: Spot(answer.offset, answer.timestamp) if answer.offset >= 0 else None
        for place, answer in found.items()
    }
