"""Does the output hold exactly what the ledger says? Reads both, writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.errors import CorruptionError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import RunningDigest
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader


@dataclass(frozen=True)
class Disagreement:
    """One place where output and ledger disagree."""

    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"


@dataclass
class Verification:
    """What was compared, and what disagreed.

    Args:
        records: records of the pipeline that were read.
        foreign: records of others in the same topic.
        batches: batches whose content was compared with their digest.
        gaps: places where sequences are missing; each is a finding, too.
        repeats: records whose sequence was there before; only at_least_once allows them.
        flagged: records of at_least_once under a plan that is not in the ledger: of a driver that
            was taken over.
        lost: records of at_most_once that are missing, where the ledger says that they may be.
        other_lineages: records from before the ledger was lost and the pipeline began again.
        findings: every disagreement.
    """

    records: int = 0
    foreign: int = 0
    batches: int = 0
    gaps: int = 0
    repeats: int = 0
    flagged: int = 0
    lost: int = 0
    other_lineages: int = 0
    findings: list[Disagreement] = field(default_factory=list)


def verify(
    broker: Broker,
    history: Sequence[HeadEntry],
    deadline: Deadline,
    newest: Callable[[], HeadEntry | None] = lambda: None,
    deliver: Callable[[ReadRecord], object] = lambda _: None,
) -> Verification:
    """Compare the whole output topic with the ledger.

    Checked: sequences run without hole or repeat from the first record that still exists; each
    partition ends where the newest `head` says; every batch that is whole in both has the records
    and the digest that its `head` says. What a delivery mode allows is counted, and no finding.

    Args:
        broker: to read the output with.
        history: every readable `head`, oldest first; at least one.
        deadline: for reading everything.
        newest: reads the newest `head`, after the output: a pipeline that runs has gone on.
        deliver: given each record once, without repeats.
    """
    head = history[-1]
    result = Verification()
    digests: dict[tuple[int, int], RunningDigest] = {}
    counts: Counter[tuple[int, int]] = Counter()
    plan_tags = {(e.generation, e.batch.batch_id): e.plan.tag() for e in history}
    ends: dict[int, int] = {}
    offsets = broker.offsets(head.sink.topic, deadline)
    is_whole = all(start == 0 for start, _, _ in offsets.values())
    for partition, (start, _, high_watermark) in sorted(offsets.items()):
        records = broker.read(head.sink.topic, {partition: (start, high_watermark)}, deadline)
        last = _last_before(history, partition) if start == 0 else None
        for record, header in _read(records, head, result):
            if header is None:
                deliver(record)
                continue
            key = header.generation, header.batch_id
            if header.lineage != head.lineage:
                _note_lineage(result, record, header, head)
                deliver(record)
                continue
            if _is_surplus(result, header, last or 0, plan_tags.get(key)):
                continue
            if _is_in_sequence(result, record, header, last):
                deliver(record)
            last = max(last or 0, header.sequence)
            counts[key] += 1
            digests.setdefault(key, RunningDigest()).add((partition, record.key, record.value))
        if last is not None:
            ends[partition] = last
    if head.delivery is not Delivery.AT_MOST_ONCE:
        _check_ends(result, head, newest() or head, ends)
    if is_whole:
        _check_batches(result, history, counts, digests)
    return result


def _note_lineage(
    result: Verification, record: ReadRecord, header: RecordHeader, head: HeadEntry
) -> None:
    """Tell once that the topic holds two histories of the pipeline. Readers stop between them."""
    if not result.other_lineages:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        expected = f"lineage {head.lineage}, in which the ledger counts"
        result.findings.append(Disagreement(place, expected, f"lineage {header.lineage}"))
    result.other_lineages += 1


def _is_surplus(
    result: Verification, header: RecordHeader, last: int, plan_tag: int | None
) -> bool:
    """Whether at_least_once has written a record once more than the ledger says."""
    if Flag.AT_LEAST_ONCE not in header.flags:
        return False
    if plan_tag not in {None, header.plan_tag}:
        result.flagged += 1
        return True
    is_repeat = header.sequence <= last
    result.repeats += is_repeat
    return is_repeat


def _read(
    records: Iterator[ReadRecord], head: HeadEntry, result: Verification
) -> Iterator[tuple[ReadRecord, RecordHeader | None]]:
    """Records with their header; None for those of other writers."""
    tag = pipeline_tag(head.pipeline)
    for record in records:
        packed = record.header(HEADER_NAME)
        header = _unpacked(packed, record, result) if packed is not None else None
        is_ours = header is not None and header.pipeline_tag == tag
        result.records += is_ours
        result.foreign += not is_ours
        yield record, header if is_ours else None


def _unpacked(packed: bytes, record: ReadRecord, result: Verification) -> RecordHeader | None:
    try:
        return RecordHeader.unpack(packed)
    except CorruptionError as error:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        result.findings.append(Disagreement(place, error.expected, error.found))
        return None


def _is_in_sequence(
    result: Verification, record: ReadRecord, header: RecordHeader, last: int | None
) -> bool:
    """Note a gap or a repeat; returns whether readers deliver the record."""
    if last is None or Flag.AT_MOST_ONCE in header.flags:
        return True  # what is missing of at_most_once, or late, is told batch by batch
    is_repeat = header.sequence <= last
    if header.sequence != last + 1:
        result.repeats += is_repeat
        result.gaps += not is_repeat
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        result.findings.append(
            Disagreement(place, f"sequence {last + 1}", f"sequence {header.sequence}")
        )
    return not is_repeat


def _last_before(history: Sequence[HeadEntry], partition: int) -> int | None:
    """Last sequence before the first record of the topic; None if the ledger no longer tells.

    Not always 0: a new generation may have begun to write to another topic, or to this one after
    the ledger was lost.
    """
    first = next(entry for entry in history if entry.sink.topic == history[-1].sink.topic)
    is_begun_from_output = first is history[0] and first.generation > 1
    if first.batch.batch_id != NOTHING_COMMITTED or is_begun_from_output:
        return None
    return first.sink.next_sequence(partition) - 1


def _check_ends(
    result: Verification, head: HeadEntry, newest: HeadEntry, ends: Mapping[int, int]
) -> None:
    """Each partition ends between the `head` from before it was read and that from after."""
    for partition, last in ends.items():
        least, most = (entry.sink.next_sequence(partition) - 1 for entry in (head, newest))
        if not least <= last <= most:
            result.gaps += last < least
            result.findings.append(
                Disagreement(
                    f"{head.sink.topic}-{partition}",
                    f"{least} as the last sequence, as in the ledger",
                    f"{last}",
                )
            )


def _check_batches(
    result: Verification,
    history: Sequence[HeadEntry],
    counts: Counter[tuple[int, int]],
    digests: dict[tuple[int, int], RunningDigest],
) -> None:
    for number, entry in enumerate(history):
        if entry.batch.batch_id == NOTHING_COMMITTED or entry.note:
            continue
        result.batches += 1
        key = entry.generation, entry.batch.batch_id
        place = f"batch {entry.batch.batch_id} of generation {entry.generation}"
        missing = entry.records.written - counts[key]
        if missing > 0 and _is_at_risk(entry, history[number + 1 :][:1]):
            result.lost += missing
            continue
        if missing:
            wanted, found = f"{entry.records.written} records", f"{counts[key]}"
            result.findings.append(Disagreement(place, wanted, found))
            continue
        digest = digests.get(key, RunningDigest()).hexdigest()
        if digest != entry.digest:
            result.findings.append(Disagreement(place, f"digest {entry.digest}", digest))


def _is_at_risk(entry: HeadEntry, after: Sequence[HeadEntry]) -> bool:
    """Whether a batch may be missing: the entry after it names it, or there is none yet."""
    if entry.delivery is not Delivery.AT_MOST_ONCE:
        return False
    return all(
        partition in following.at_risk and following.at_risk[partition][0] <= first
        for following in after
        for partition, (first, last) in entry.sink.sequence.items()
        if first <= last
    )
