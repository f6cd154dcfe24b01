"""Does the output hold exactly what the ledger says? Reads both, writes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
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
    """The result of a comparison: what was compared, and what disagreed.

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
    comparison = _Comparison(history, deliver)
    topic = history[-1].sink.topic
    offsets = broker.offsets(topic, deadline)
    for partition, (start, _, high_watermark) in sorted(offsets.items()):
        records = broker.read(topic, {partition: (start, high_watermark)}, deadline)
        comparison.take(partition, records, is_whole=start == 0)
    comparison.check_ends(newest() or history[-1])
    if all(start == 0 for start, _, _ in offsets.values()):
        comparison.check_batches()
    return comparison.found


class _Comparison:
    """Takes in the output, partition by partition, and compares it with the ledger."""

    def __init__(
        self, history: Sequence[HeadEntry], deliver: Callable[[ReadRecord], object]
    ) -> None:
        self._history = history
        self._head = history[-1]
        self._deliver = deliver
        self._tag = pipeline_tag(self._head.pipeline)
        self._plan_tags = {(e.generation, e.batch.batch_id): e.plan.tag() for e in history}
        self._counts: Counter[tuple[int, int]] = Counter()
        self._digests: defaultdict[tuple[int, int], RunningDigest] = defaultdict(RunningDigest)
        self._ends: dict[int, int] = {}
        self.found = Verification()

    def take(self, partition: int, records: Iterable[ReadRecord], *, is_whole: bool) -> None:
        """Take in all records of a partition, which may lack its oldest."""
        last = _last_before(self._history, partition) if is_whole else None
        for record in records:
            header = self._header_of(record)
            if header is None:
                self.found.foreign += 1
                self._deliver(record)
                continue
            self.found.records += 1
            if header.lineage != self._head.lineage:
                self._note_lineage(record, header)
                self._deliver(record)
                continue
            if self._is_surplus(header, last or 0):
                continue
            if self._is_in_sequence(record, header, last):
                self._deliver(record)
            last = max(last or 0, header.sequence)
            key = header.generation, header.batch_id
            self._counts[key] += 1
            self._digests[key].add((partition, record.key, record.value))
        if last is not None:
            self._ends[partition] = last

    def check_ends(self, newest: HeadEntry) -> None:
        """Each partition ends between the `head` from before it was read and that from after."""
        if self._head.delivery is Delivery.AT_MOST_ONCE:
            return
        for partition, last in self._ends.items():
            least, most = (e.sink.next_sequence(partition) - 1 for e in (self._head, newest))
            if not least <= last <= most:
                self.found.gaps += last < least
                place = f"{self._head.sink.topic}-{partition}"
                self._disagree(place, f"{least} as the last sequence, as in the ledger", f"{last}")

    def check_batches(self) -> None:
        """Each batch has the records and the digest that its `head` says."""
        for number, entry in enumerate(self._history):
            if entry.batch.batch_id == NOTHING_COMMITTED or entry.note:
                continue
            self.found.batches += 1
            key = entry.generation, entry.batch.batch_id
            place = f"batch {entry.batch.batch_id} of generation {entry.generation}"
            missing = entry.records.written - self._counts[key]
            digest = self._digests[key].hexdigest()
            if missing > 0 and _is_at_risk(entry, self._history[number + 1 :][:1]):
                self.found.lost += missing
            elif missing:
                self._disagree(place, f"{entry.records.written} records", f"{self._counts[key]}")
            elif digest != entry.digest:
                self._disagree(place, f"digest {entry.digest}", digest)

    def _header_of(self, record: ReadRecord) -> RecordHeader | None:
        """The header of a record of the pipeline; None for one of another writer."""
        packed = record.header(HEADER_NAME)
        if packed is None:
            return None
        try:
            header = RecordHeader.unpack(packed)
        except CorruptionError as error:
            self._disagree(_place(record), error.expected, error.found)
            return None
        return header if header.pipeline_tag == self._tag else None

    def _note_lineage(self, record: ReadRecord, header: RecordHeader) -> None:
        """Tell once that the topic holds two histories of the pipeline; readers stop between."""
        if not self.found.other_lineages:
            expected = f"lineage {self._head.lineage}, in which the ledger counts"
            self._disagree(_place(record), expected, f"lineage {header.lineage}")
        self.found.other_lineages += 1

    def _is_surplus(self, header: RecordHeader, last: int) -> bool:
        """Whether at_least_once has written a record once more than the ledger says."""
        if Flag.AT_LEAST_ONCE not in header.flags:
            return False
        plan_tag = self._plan_tags.get((header.generation, header.batch_id))
        if plan_tag not in {None, header.plan_tag}:
            self.found.flagged += 1
            return True
        is_repeat = header.sequence <= last
        self.found.repeats += is_repeat
        return is_repeat

    def _is_in_sequence(self, record: ReadRecord, header: RecordHeader, last: int | None) -> bool:
        """Note a gap or a repeat; returns whether readers deliver the record."""
        if last is None or Flag.AT_MOST_ONCE in header.flags:
            return True  # what is missing of at_most_once, or late, is reported batch by batch
        is_repeat = header.sequence <= last
        if header.sequence != last + 1:
            self.found.repeats += is_repeat
            self.found.gaps += not is_repeat
            self._disagree(_place(record), f"sequence {last + 1}", f"sequence {header.sequence}")
        return not is_repeat

    def _disagree(self, where: str, expected: str, found: str) -> None:
        self.found.findings.append(Disagreement(where, expected, found))


def _place(record: ReadRecord) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"


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
