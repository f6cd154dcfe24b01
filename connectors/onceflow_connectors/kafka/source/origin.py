"""Asks the brokers for the Kafka source: topics and their ids, ends, starts, offsets at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, Place, TopicInfo
from onceflow.contracts.source_block import KafkaTopics
from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow_connectors.kafka.admin.administration import (
    HIGH_WATERMARK,
    LAST_STABLE,
    LOG_START,
    NEWEST,
    RETRY_PAUSE_S,
    Administration,
    Bound,
    Spot,
    first_since,
)

ANSWER_TIMEOUT_S = 30.0
"""Time limit for one request with its retries. A leader election is shorter."""
GONE_AFTER_S = 3.0
"""A topic that stays unknown this long is gone: a broker that has just started may not know it."""


class KafkaOrigin:
    """The brokers, as the source sees them: a topic that is gone is an error.

    Every method waits up to `ANSWER_TIMEOUT_S`, and raises

    - `DeadlineError`: no answer in time;
    - `ConfigError`: refused for good;
    - `CorruptionError`: a topic that is read no longer exists.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._administration = Administration(connection)
        self._clock = clock

    def topics(self, wanted: KafkaTopics) -> Mapping[str, TopicInfo]:
        """Return those of the wanted topics that exist, without Kafka's internal ones."""
        deadline = self._clock.within(ANSWER_TIMEOUT_S)
        names = wanted.named
        if wanted.pattern is not None:
            names = tuple(filter(wanted.covers, self._administration.topic_names(deadline)))
        found = self._administration.topics(names, deadline)
        return {name: topic for name, topic in found.items() if not topic.is_internal}

    def known_topics(self, topic_ids: Mapping[str, str]) -> Mapping[str, TopicInfo]:
        """Return the topics that were read before, as they are now.

        An empty id stands for any. Another topic of the same name is a CorruptionError.
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
        """Return the first offsets that still exist."""
        return self._offsets(places, LOG_START)

    def ends(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """Return the last stable offsets: everything before them is decided."""
        return self._offsets(places, LAST_STABLE)

    def high_watermarks(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """Return the next offsets to be written: from the last stable one on, all is undecided."""
        return self._offsets(places, HIGH_WATERMARK)

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> Mapping[Place, Spot | None]:
        """Return the first records that are not older, decided or not; None where there is none."""
        return self._records(places, first_since(timestamp_ms))

    def newest(self, places: Iterable[Place]) -> Mapping[Place, Spot | None]:
        """Return the records with the highest timestamps, as `at_time`."""
        return self._records(places, NEWEST)

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._administration.close()

    def _offsets(self, places: Iterable[Place], bound: Bound) -> Mapping[Place, int]:
        return {place: spot.offset for place, spot in self._look_up(places, bound).items()}

    def _records(self, places: Iterable[Place], bound: Bound) -> Mapping[Place, Spot | None]:
        found = self._look_up(places, bound)
        return {place: spot if spot.offset >= 0 else None for place, spot in found.items()}

    def _look_up(self, places: Iterable[Place], bound: Bound) -> Mapping[Place, Spot]:
        places = [*places]
        deadline = self._clock.within(ANSWER_TIMEOUT_S)
        while (found := self._administration.offsets(places, bound, deadline)) is None:
            self._existing({topic for topic, _ in places})
            deadline.check("the brokers do not agree that a topic exists", subject=places[0][0])
        return found

    def _existing(self, names: Collection[str]) -> Mapping[str, TopicInfo]:
        """Return the topics as they are now. All must exist, after `GONE_AFTER_S` at the latest."""
        patience = self._clock.within(GONE_AFTER_S)
        while True:
            deadline = self._clock.within(ANSWER_TIMEOUT_S)
            found = self._administration.topics(names, deadline)
            missing = sorted(set(names) - found.keys())
            if not missing:
                return found
            if patience.is_over:
                raise CorruptionError(
                    "a topic that is being read no longer exists",
                    subject=", ".join(missing),
                    then="halting; if everything in it was read, name it under `retired` of the"
                    f" source and start again; otherwise restore it, or {NEW_GENERATION}",
                )
            self._clock.sleep(RETRY_PAUSE_S)


def log_is_shorter(place: Place, expected: int, found: int) -> CorruptionError:
    """Return the error for a log that ends before what was read of it."""
    topic, partition = place
    return CorruptionError(
        "the log is shorter than what was read of it",
        subject=f"{topic}-{partition}",
        expected=f"at least {expected} offsets",
        found=f"a log that ends at {found}",
        then="halting; acknowledged records were lost (unclean leader election?)",
    )
