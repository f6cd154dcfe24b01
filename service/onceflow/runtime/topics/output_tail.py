"""Batches of the pipeline in the output topic, looked for from its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import NamedTuple, TypeAlias

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
from onceflow.errors import ConfigError, CorruptionError
from onceflow.protocol.digest import Row
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.ledger import HeadEntry
from onceflow.protocol.record import HEADER_NAME, BatchOrder, RecordHeader
from onceflow.protocol.tails import OutputTails, Tail

Ours: TypeAlias = tuple[RecordHeader, Record]

FIRST_LOOK_BACK = 1_000
"""Offsets read from the end at first; ten times as many at each further look."""


class LookBack(NamedTuple):
    """How far to look from the end of each partition: at first, and ten times as far each time."""

    first: int
    looks: int
    timeout_s: float


EVERYWHERE = LookBack(FIRST_LOOK_BACK, looks=12, timeout_s=600.0)
"""1,000 x 10^11 offsets: more than any partition holds. For an operator who waits."""
AT_FIRST_START = LookBack(FIRST_LOOK_BACK, looks=3, timeout_s=30.0)
"""100,000 offsets of each partition, where nothing but the output may know the pipeline. A topic
that it shares with others can hold billions of their records, which a first start should not read.
What lies further back is found by `--new-generation`; and readers tell by the lineage that what a
registration writes is none of it."""
AT_EVERY_START = LookBack(10, looks=3, timeout_s=30.0)
"""Mostly the end of the newest batch is there; 1,000 offsets where others or aborted transactions
have written after it."""


def find_written(
    pipeline: str, topic: str, broker: Broker, clock: Clock, look_back: LookBack
) -> Mapping[int, RecordHeader]:
    """Output partition -> the newest record of the pipeline in it; of the first that has one.

    Empty if there is no such topic, or no record as far as it looked.

    Raises:
        ConfigError: we may not read the output.
        DeadlineError: not everything could be read in time.
    """
    deadline = clock.within(look_back.timeout_s)
    with _readable(topic, "nothing tells whether this pipeline has written to its output before"):
        offsets = broker.offsets(topic, deadline)
        bounds = {partition: (start, end) for partition, (start, _, end) in offsets.items()}
        found = _find_newest(pipeline_tag(pipeline), topic, bounds, broker, deadline, look_back)
        return dict(islice(found, 1))


def find_newest(head: HeadEntry, broker: Broker, clock: Clock) -> Mapping[int, RecordHeader]:
    """Output partition -> the newest committed record of the pipeline there.

    A partition is missing whose end holds none. Headers that no version of Onceflow can read are
    passed over; records hidden from readers by another writer's transaction are not looked at. No
    transaction of the pipeline may be open.

    Raises:
        ConfigError: we may not read the output.
        DeadlineError: not everything could be read in time.
    """
    topic, look_back = head.sink.topic, AT_EVERY_START
    deadline = clock.within(look_back.timeout_s)
    with _readable(topic, "nothing tells whether the ledger is as new as the output"):
        offsets = broker.offsets(topic, deadline)
        bounds = {partition: (start, stable) for partition, (start, stable, _) in offsets.items()}
        tag = pipeline_tag(head.pipeline)
        return dict(_find_newest(tag, topic, bounds, broker, deadline, look_back))


@contextmanager
def _readable(topic: str, what: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            what,
            subject=topic,
            expected="the right to read the output",
            found=str(error),
            then="nothing was written; grant the rights of the task `run`, see `onceflow acls`",
        ) from error


def _find_newest(
    tag: int,
    topic: str,
    bounds: Mapping[int, tuple[int, int]],
    broker: Broker,
    deadline: Deadline,
    look_back: LookBack,
) -> Iterator[tuple[int, RecordHeader]]:
    """Partition -> the newest record, of those whose end holds one."""
    left = {partition: ends for partition, ends in bounds.items() if ends[0] < ends[1]}
    for look in range(look_back.looks):
        reach = look_back.first * 10**look
        ranges = {p: (max(start, end - reach), end) for p, (start, end) in left.items()}
        if not ranges:
            return
        # What cannot be read may come from any writer to the topic, and must not keep us from
        # starting. If a newer revision wrote it, the ledger or the lineage tells.
        readable = filter(_is_readable, broker.read(topic, ranges, deadline))
        ours = _read_ours(readable, tag)
        found = set()
        for partition, of in groupby(ours, key=lambda each: each[1].partition):
            found.add(partition)
            yield partition, _newest([header for header, _ in of])
        left = {
            partition: ends
            for partition, ends in left.items()
            if partition not in found and ranges[partition][0] > ends[0]
        }


def read_tails(head: HeadEntry, broker: Broker, deadline: Deadline) -> OutputTails:
    """The end of the pipeline's output, wherever it is in each partition."""

    def is_enough(ours: list[Ours]) -> bool:
        headers = [header for header, _ in ours]
        return bool(headers) and headers[0].batch_order != _newest(headers).batch_order

    tails, is_whole = {}, True
    starts = broker.offsets(head.sink.topic, deadline)
    for partition, ours in _looks(head, broker, deadline, is_enough):
        if ours:
            tails[partition] = _tail([header for header, _ in ours])
        elif starts[partition][0] > 0:
            is_whole = False
    return OutputTails(tails, is_whole)


def read_batch(head: HeadEntry, broker: Broker, deadline: Deadline) -> Iterator[Row]:
    """The rows of `head`'s batch, wherever it is in the output; none of what is deleted.

    Each once: in at_least_once a driver that was taken over may have written them again.
    """
    wanted = head.batch_order

    def is_before(ours: list[Ours]) -> bool:
        return bool(ours) and ours[0][0].batch_order < wanted

    for partition, ours in _looks(head, broker, deadline, is_before):
        last = 0
        for header, record in ours:
            is_wanted = header.batch_order == wanted and header.lineage == head.lineage
            if is_wanted and header.sequence > last:
                last = header.sequence
                yield partition, record.key, record.value


def _looks(
    head: HeadEntry, broker: Broker, deadline: Deadline, is_enough: Callable[[list[Ours]], bool]
) -> Iterator[tuple[int, list[Ours]]]:
    """Partition -> the pipeline's records at its end, as many as are enough."""
    topic, tag = head.sink.topic, pipeline_tag(head.pipeline)
    for partition, (start, _, end) in broker.offsets(topic, deadline).items():
        look_back = FIRST_LOOK_BACK
        for _ in range(EVERYWHERE.looks):
            begin = max(start, end - look_back)
            ours = [*_read_ours(broker.read(topic, {partition: (begin, end)}, deadline), tag)]
            if begin == start or is_enough(ours):
                yield partition, ours
                break
            look_back *= 10


def _read_ours(records: Iterator[Record], tag: int) -> Iterator[Ours]:
    for record in records:
        if packed := record.header_value(HEADER_NAME):
            header = RecordHeader.unpack(packed)
            if header.pipeline_tag == tag:
                yield header, record


def _is_readable(record: Record) -> bool:
    try:
        RecordHeader.unpack(record.header_value(HEADER_NAME) or b"")
    except CorruptionError:
        return False
    return True


def _newest(headers: Sequence[RecordHeader]) -> RecordHeader:
    """Not the last one: in at_least_once an older record may be written again."""
    lineage = headers[-1].lineage
    return max((header for header in headers if header.lineage == lineage), key=_age)


def _age(header: RecordHeader) -> tuple[BatchOrder, int]:
    return header.batch_order, header.sequence


def _tail(headers: Sequence[RecordHeader]) -> Tail:
    newest = _newest(headers)
    batch = newest.batch_order, newest.lineage
    return Tail(newest, min(h.sequence for h in headers if (h.batch_order, h.lineage) == batch))
