"""Reads the final state: ends, every committed record, transactions that are still open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError

from tests.faults.history.clients import (
    Clock,
    ends_of,
    open_admin,
    open_consumer,
    places_of,
    record_of,
    starts_of,
    until,
)
from tests.faults.history.model import (
    Ends,
    FinalPartition,
    Isolation,
    OpenTransaction,
    Place,
)
from tests.faults.history.pool import Pool
from tests.faults.history.producers import ID_HEADER

ANSWER_S = 60.0
"""Within which the leaders of all partitions have to answer when everything is quiet."""
NO_PROGRESS_S = 30.0
"""Without a record or a new position, after which the final reader gives up."""
POLL_S = 0.1
POLL_RECORDS = 1000
DECIDED = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


def await_ends(
    bootstrap_servers: str,
    topics: list[str],
    clock: Clock,
    *,
    settle_s: float,
) -> dict[Place, Ends]:
    """The ends of all partitions once nothing is open, or as they are after `settle_s`.

    Raises:
        TimeoutError: not every leader answered: nothing can be said of this run.
    """
    found: dict[Place, Ends] = {}
    wake = threading.Event()
    with open_admin(bootstrap_servers) as admin:

        def all_answer() -> bool:
            places = places_of(admin, topics)
            found.update(ends_of(admin, places))
            return bool(places) and set(places) <= found.keys()

        def all_decided() -> bool:
            return all_answer() and all(
                end.last_stable_offset >= end.high_watermark for end in found.values()
            )

        if not until(all_decided, settle_s, clock, wake):
            found.clear()
            if not until(all_answer, ANSWER_S, clock, wake):
                raise TimeoutError(f"not every partition of {topics} answered in {ANSWER_S:g} s")
    return found


def read_final(
    bootstrap_servers: str, ends: dict[Place, Ends], pool: Pool, clock: Clock
) -> dict[Place, FinalPartition]:
    """Every committed record up to the high watermark, or up to where committed readers are held.

    Raises:
        TimeoutError: a partition could not be read to its end.
    """
    starts = _await_starts(bootstrap_servers, ends, clock)
    final = {}
    for place in sorted(ends):
        start, end = starts[place], ends[place]
        messages = _read_up_to(bootstrap_servers, place, start, end.last_stable_offset, clock)
        records = [pool.share(record_of(message)) for message in messages]
        final[place] = FinalPartition(
            *place, start, end.last_stable_offset, end.high_watermark, records
        )
    return final


def find_inputs(
    bootstrap_servers: str, wanted: Mapping[str, str], clock: Clock
) -> dict[str, tuple[int, int]]:
    """Partition and offset of those inputs that are in their topics, by id.

    Args:
        wanted: id -> topic.

    Raises:
        TimeoutError: a topic could not be read to its end.
    """
    if not wanted:
        return {}
    topics = sorted(set(wanted.values()))
    ends = await_ends(bootstrap_servers, topics, clock, settle_s=0)
    starts = _await_starts(bootstrap_servers, ends, clock)
    found = {}
    for place, end in ends.items():
        stable = end.last_stable_offset
        for message in _read_up_to(bootstrap_servers, place, starts[place], stable, clock):
            input_id, offset = dict(message.headers() or []).get(ID_HEADER), message.offset()
            if isinstance(input_id, bytes) and input_id.decode() in wanted and offset is not None:
                found[input_id.decode()] = place[1], offset
    return found


def _await_starts(
    bootstrap_servers: str, places: Collection[Place], clock: Clock
) -> dict[Place, int]:
    starts: dict[Place, int] = {}
    with open_admin(bootstrap_servers) as admin:

        def all_answer() -> bool:
            starts.update(starts_of(admin, places))
            return set(places) <= starts.keys()

        if not until(all_answer, ANSWER_S, clock, threading.Event()):
            raise TimeoutError(f"not every partition of {list(places)} answered in {ANSWER_S:g} s")
    return starts


def _read_up_to(
    bootstrap_servers: str, place: Place, start: int, end: int, clock: Clock
) -> Iterator[Message]:
    """Committed messages of a partition, by a new client.

    Raises:
        TimeoutError: its position stood still for NO_PROGRESS_S.
    """
    consumer = open_consumer(bootstrap_servers, Isolation.COMMITTED)
    try:
        consumer.assign([TopicPartition(*place, start)])
        position, moved_s = start, clock()
        while position < end:
            # Wait for the first only: asked for many, it would wait for the last of them.
            yield from _before(end, consumer.consume(1, POLL_S))
            yield from _before(end, consumer.consume(POLL_RECORDS, 0))
            before, position = position, max(position, _position(consumer, place))
            if position > before:
                moved_s = clock()
            elif clock() - moved_s > NO_PROGRESS_S:
                raise TimeoutError(f"{place} cannot be read from {position} up to {end}")
    finally:
        consumer.close()


def open_transactions(
    bootstrap_servers: str,
    concerns: Callable[[OpenTransaction], bool],
    clock: Clock,
    *,
    settle_s: float,
) -> list[OpenTransaction]:
    """Those of the caller's concern that are still not decided after `settle_s`.

    Raises:
        TimeoutError: not every coordinator has answered.
    """
    answers: list[list[OpenTransaction]] = []
    wake = threading.Event()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers.split(","))

    def none_is_open() -> bool:
        try:
            answers.append([one for one in _undecided(admin) if concerns(one)])
        except KafkaPythonError:
            return False  # a coordinator moves or loads
        return not answers[-1]

    try:
        if not until(none_is_open, settle_s, clock, wake):
            until(lambda: bool(answers) or none_is_open(), ANSWER_S, clock, wake)
    finally:
        admin.close()
    if not answers:
        raise TimeoutError(f"no list of transactions within {ANSWER_S:g} s")
    return answers[-1]


def _undecided(admin: KafkaAdminClient) -> list[OpenTransaction]:
    states = {
        listed.transactional_id: str(listed.state.value)
        for listing in admin.list_transactions().values()
        for listed in listing
    }
    undecided = {name: state for name, state in states.items() if state not in DECIDED}
    described = admin.describe_transactions(list(undecided))
    return [
        OpenTransaction(
            name,
            undecided[name],
            tuple(sorted((tp.topic, tp.partition) for tp in described[name].topic_partitions)),
        )
        for name in sorted(undecided)
    ]


def _before(end: int, messages: Sequence[Message]) -> Iterator[Message]:
    for message in messages:
        offset = message.offset()
        if message.error() is None and offset is not None and offset < end:
            yield message


def _position(consumer: Consumer, place: Place) -> int:
    (found,) = consumer.position([TopicPartition(*place)])
    return int(found.offset)
