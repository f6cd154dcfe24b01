"""Run in the background during the faults: a reader for each level, and the probe."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.faults.history.clients import (
    Clock,
    ends_of,
    open_admin,
    open_consumer,
    places_of,
    record_of,
)
from tests.faults.history.model import Isolation, Place, Poll, Probe, Reader, Record
from tests.faults.history.pool import Pool

POLL_S = 0.2
POLL_RECORDS = 1000
PROBE_EVERY_S = 0.5
MAX_ERRORS = 50
"""Different errors of a reader's client that are kept for people."""


class Events:
    """Numbers events in the order in which they happened, and tells their time."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._index = 0
        self._clock = clock
        self._start_s = clock()

    def now_s(self) -> float:
        """Since the recorder was made."""
        return self._clock() - self._start_s

    def number(self) -> int:
        """The next one."""
        with self._lock:
            self._index += 1
            return self._index


class Places:
    """Partitions known so far; topics may be created and may grow during a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[Place, ...] = ()

    def add(self, places: list[Place]) -> None:
        """Remember those that are new."""
        with self._lock:
            self._known += tuple(place for place in places if place not in self._known)

    def known(self) -> tuple[Place, ...]:
        """In the order in which they were found."""
        return self._known


class ProbeLoop:
    """Asks again and again what partitions there are and where they end."""

    def __init__(self, topics: list[str], places: Places, events: Events) -> None:
        self.probes: list[Probe] = []
        self._topics = topics
        self._places = places
        self._events = events

    def run(self, bootstrap_servers: str, stop: threading.Event) -> None:
        """Until it is told to stop."""
        with open_admin(bootstrap_servers) as admin:
            while not stop.is_set():
                self._probe(admin)
                stop.wait(PROBE_EVERY_S)

    def _probe(self, admin: AdminClient) -> None:
        try:
            self._places.add(places_of(admin, self._topics))
            asked_s = self._events.now_s()
            ends = ends_of(admin, self._places.known())
        except KafkaException:
            return  # no broker answers: that is what the faults are for
        if ends:
            self.probes.append(Probe(self._events.number(), asked_s, ends))


class ReaderLoop:
    """One reader from the beginning of every partition."""

    def __init__(self, reader: Reader, places: Places, events: Events, pool: Pool) -> None:
        self.reader = reader
        self.positions: dict[Place, int] = {}
        self._places = places
        self._events = events
        self._pool = pool

    def run(self, bootstrap_servers: str, stop: threading.Event) -> None:
        """Until it is told to stop."""
        consumer = open_consumer(bootstrap_servers, self.reader.isolation)
        try:
            while not stop.is_set():
                self._poll(consumer, stop)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer, stop: threading.Event) -> None:
        assigned = self._assign_new(consumer)
        if not assigned:
            stop.wait(POLL_S)
            return
        messages = consumer.consume(POLL_RECORDS, POLL_S)
        at_s = self._events.now_s()
        records = tuple(self._kept(messages))
        positions = {
            (tp.topic, tp.partition): tp.offset
            for tp in consumer.position([TopicPartition(*place) for place in assigned])
            if tp.offset >= 0
        }
        if records or positions != self.positions:
            self.reader.polls.append(Poll(self._events.number(), at_s, records, positions))
        self.positions = positions

    def _assign_new(self, consumer: Consumer) -> tuple[Place, ...]:
        known = self._places.known()
        assigned = consumer.assignment()
        if len(known) != len(assigned):
            consumer.assign(
                [
                    TopicPartition(*place, self.positions.get(place, OFFSET_BEGINNING))
                    for place in known
                ]
            )
        return known

    def _kept(self, messages: list[Message]) -> Iterator[Record]:
        for message in messages:
            error = message.error()
            if error is None:
                yield self._pool.share(record_of(message))
            else:
                self._note(error)

    def _note(self, error: KafkaError) -> None:
        text = str(error)
        if text not in self.reader.errors and len(self.reader.errors) < MAX_ERRORS:
            self.reader.errors.append(text)


def new_reader(isolation: Isolation) -> Reader:
    """Named after its level."""
    return Reader(f"the {isolation} reader", isolation)
