"""Plain clients of Kafka, as the recorder uses them: quiet about brokers that are gone."""

from __future__ import annotations

import threading
import time  # noqa: TID251 - the recorder shares no code with the product
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeAlias

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from tests.faults.history.model import Ends, Isolation, Place, Record

HEADER = "onceflow"
Clock: TypeAlias = Callable[[], float]
"""Seconds on a monotonic scale."""
system_clock: Clock = time.monotonic
REQUEST_TIMEOUT_S = 5.0
"""A broker that is stopped does not answer; then others are asked again."""
QUEUED_KIB = 16_384
"""That a client fetches ahead; bounds its memory."""
RETRY_S = 0.25
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


def open_admin(bootstrap_servers: str) -> AbstractContextManager[AdminClient]:
    """Ends with its block."""
    admin: AbstractContextManager[AdminClient] = AdminClient(_config(bootstrap_servers))
    return admin


def open_consumer(bootstrap_servers: str, isolation: Isolation) -> Consumer:
    """Without a group of its own: it commits nothing and is assigned by hand."""
    return Consumer(
        {
            **_config(bootstrap_servers),
            "group.id": "onceflow-history",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": isolation.value,
            # To begin elsewhere in silence would be to miss what is looked for.
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": QUEUED_KIB,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 2000,
        }
    )


def record_of(message: Message) -> Record:
    """Keep of a message only what a history needs."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    header = dict(message.headers() or []).get(HEADER)
    return Record(
        topic,
        partition,
        offset,
        _bytes(message.key()),
        _bytes(message.value()),
        _bytes(header),
        message.timestamp()[1],
    )


def places_of(admin: AdminClient, topics: Iterable[str]) -> list[Place]:
    """Partitions of those topics that exist. Creates none.

    Raises:
        KafkaException: no broker answers.
    """
    known = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return [
        (topic, number) for topic in topics if topic in known for number in known[topic].partitions
    ]


def ends_of(admin: AdminClient, places: Iterable[Place]) -> dict[Place, Ends]:
    """Return the ends of the partitions whose leader answers."""
    wanted = list(places)
    stable = _offsets(admin, wanted, LATEST, IsolationLevel.READ_COMMITTED)
    high = _offsets(admin, wanted, LATEST, IsolationLevel.READ_UNCOMMITTED)
    return {
        place: Ends(stable[place].offset, high[place].offset, _epoch(stable[place]))
        for place in wanted
        if place in stable and place in high
    }


def starts_of(admin: AdminClient, places: Iterable[Place]) -> dict[Place, int]:
    """The first offset that is left, of those partitions whose leader answers."""
    wanted = list(places)
    found = _offsets(admin, wanted, EARLIEST, IsolationLevel.READ_UNCOMMITTED)
    return {place: info.offset for place, info in found.items()}


def until(
    condition: Callable[[], bool], timeout_s: float, clock: Clock, wake: threading.Event
) -> bool:
    """Ask again and again; whether it came true in time. An exception of a client is a no."""
    end_s = clock() + timeout_s
    while True:
        try:
            if condition():
                return True
        except KafkaException:
            pass
        if clock() >= end_s:
            return False
        wake.wait(RETRY_S)


def _offsets(
    admin: AdminClient, places: list[Place], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[Place, ListOffsetsResultInfo]:
    if not places:
        return {}
    answers = admin.list_offsets(
        {TopicPartition(*place): spec for place in places},
        isolation_level=isolation,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    found = {(tp.topic, tp.partition): _answer(future) for tp, future in answers.items()}
    return {place: info for place, info in found.items() if info is not None}


def _answer(future: Future[ListOffsetsResultInfo]) -> ListOffsetsResultInfo | None:
    try:
        return future.result(2 * REQUEST_TIMEOUT_S)
    except KafkaException:
        return None


def _epoch(info: ListOffsetsResultInfo) -> int:
    return -1 if info.leader_epoch is None else info.leader_epoch


def _config(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 2,
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1000,
    }


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"a client gave {value!r} for bytes")
