"""Batches of the pipeline in the output topic, looked for from its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.errors import ConfigError
from onceflow.protocol.digest import Row
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.ledger import HeadEntry
from onceflow.protocol.record import HEADER_NAME, RecordHeader
from onceflow.protocol.tails import BatchOrder, OutputTails, Tail, order_of

Ours: TypeAlias = tuple[RecordHeader, ReadRecord]

FIRST_LOOK_BACK = 1_000
"""Offsets read from the end at first; ten times as many at each further look."""


class LookBack(NamedTuple):
    """How far to look from the end of each partition.

    Args:
        looks: at most; each reads ten times as many offsets as the one before.
        timeout_s: for everything.
    """

    looks: int
    timeout_s: float


EVERYWHERE = LookBack(looks=12, timeout_s=600.0)
"""1,000 x 10^11 offsets: more than any partition holds. Somebody waits for it."""
AT_FIRST_START = LookBack(looks=3, timeout_s=30.0)
"""100,000 offsets of each partition, where nothing but the output may know the pipeline. A topic
that it shares with others can hold billions of their records, which a first start should not read.
What lies further back is found by `--new-generation`; and readers tell by the lineage that what a
registration writes is none of it."""


def find_written(
    pipeline: str, topic: str, broker: Broker, clock: Clock, look_back: LookBack
) -> Mapping[int, RecordHeader]:
    """Output partition -> the newest record of the pipeline in it; of the first that has one.

    Empty if there is no such topic, or no record as far as it looked.

    Args:
        pipeline: name.
        topic: where its output is, or would be.
        broker: to read with.
        clock: to end by.
        look_back: how far.

    Raises:
        ConfigError: we may not read the output.
        DeadlineError: not everything could be read in time.
    """
    deadline = Deadline.after(clock, look_back.timeout_s)
    try:
        return _find_written(pipeline_tag(pipeline), topic, broker, deadline, look_back.looks)
    except ConfigError as error:
        raise ConfigError(
            "nothing tells whether this pipeline has written to its output before",
            subject=topic,
            expected="a ledger, a checkpoint, or the right to read the output",
            found=str(error),
            then="nothing was written; grant the rights of the task `verify`, see `onceflow acls`",
        ) from error


def _find_written(
    tag: int, topic: str, broker: Broker, deadline: Deadline, looks: int
) -> Mapping[int, RecordHeader]:
    for partition, (start, _, end) in sorted(broker.offsets(topic, deadline).items()):
        for look in range(looks):
            begin = max(start, end - FIRST_LOOK_BACK * 10**look)
            ours = _read_ours(broker.read(topic, {partition: (begin, end)}, deadline), tag)
            if ours:
                return {partition: _newest(ours)}
            if begin == start:
                break
    return {}


def read_tails(head: HeadEntry, broker: Broker, deadline: Deadline) -> OutputTails:
    """The end of the pipeline's output, wherever it is in each partition.

    Args:
        head: names pipeline and topic.
        broker: to read with.
        deadline: for reading everything.
    """

    def is_enough(ours: list[Ours]) -> bool:
        return bool(ours) and order_of(ours[0][0]) != order_of(_newest(ours))

    tails, is_whole = {}, True
    starts = broker.offsets(head.sink.topic, deadline)
    for partition, ours in _looks(head, broker, deadline, is_enough):
        if ours:
            tails[partition] = _tail(ours)
        elif starts[partition][0] > 0:
            is_whole = False
    return OutputTails(tails, is_whole)


def read_batch(head: HeadEntry, broker: Broker, deadline: Deadline) -> Iterator[Row]:
    """The rows of `head`'s batch, wherever it is in the output; none of what is deleted.

    Each once: in at_least_once a driver that was taken over may have written them again.

    Args:
        head: of the batch.
        broker: to read with.
        deadline: for reading everything behind it.
    """
    wanted = head.generation, head.batch.batch_id

    def is_before(ours: list[Ours]) -> bool:
        return bool(ours) and order_of(ours[0][0]) < wanted

    for partition, ours in _looks(head, broker, deadline, is_before):
        last = 0
        for header, record in ours:
            is_wanted = order_of(header) == wanted and header.lineage == head.lineage
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
            ours = _read_ours(broker.read(topic, {partition: (begin, end)}, deadline), tag)
            if begin == start or is_enough(ours):
                yield partition, ours
                break
            look_back *= 10


def _read_ours(records: Iterator[ReadRecord], tag: int) -> list[Ours]:
    found = []
    for record in records:
        if packed := record.header(HEADER_NAME):
            header = RecordHeader.unpack(packed)
            if header.pipeline_tag == tag:
                found.append((header, record))
    return found


def _newest(ours: list[Ours]) -> RecordHeader:
    """Not the last one: in at_least_once an older record may be written again."""
    last = ours[-1][0]
    return max((header for header, _ in ours if header.lineage == last.lineage), key=_age)


def _age(header: RecordHeader) -> tuple[BatchOrder, int]:
    return order_of(header), header.sequence


def _tail(ours: list[Ours]) -> Tail:
    newest = _newest(ours)
    batch = order_of(newest), newest.lineage
    return Tail(newest, min(h.sequence for h, _ in ours if (order_of(h), h.lineage) == batch))
