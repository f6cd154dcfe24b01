"""Does the output hold exactly what the ledger says? Reads both, writes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
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
    """The result of a comparison: what was compared, and what disagreed."""

    records: int = 0
    """Records of the pipeline that were read."""
    foreign: int = 0
    """Records of others in the same topic."""
    batches: int = 0
    """Batches whose content was compared with their digest."""
    gaps: int = 0
    """Places where sequences are missing; each is a finding, too."""
    repeats: int = 0
    """Records whose sequence was there before; only at_least_once allows them."""
    flagged: int = 0
    """Records of at_least_once under a plan that is not in the ledger: of a driver that was taken
    over."""
    lost: int = 0
    """Records of at_most_once that are missing, where the ledger says that they may be."""
    other_lineages: int = 0
    """Records from before the ledger was lost and the pipeline began again."""
    findings: list[Disagreement] = field(default_factory=list)


def verify(
    broker: Broker,
    history: Sequence[HeadEntry],
    deadline: Deadline,
    newest: Callable[[], HeadEntry | None] = lambda: None,
    deliver: Callable[[Record], object] = lambda _: None,
) -> Verification:
    """Compare the whole output topic with the ledger, and deliver each record without repeats.

    Checked: sequences run without hole or repeat from the first record that still exists; each
    partition ends where the newest `head` says; every batch that is whole in both has the records
    and the digest that its `head` says. What a delivery mode allows is counted, and no finding.

    `history` is every readable `head`, oldest first. `newest` reads the newest one, after the
    output: a pipeline that runs has gone on.
    """
    comparison = _Comparison(history)
    topic = history[-1].sink.topic
    offsets = broker.offsets(topic, deadline)
    for partition, (start, _, high_watermark) in sorted(offsets.items()):
        last = _last_before(history, partition) if start == 0 else None
        for record in broker.read(topic, {partition: (start, high_watermark)}, deadline):
            is_delivered, last = comparison.take(record, last)
            if is_delivered:
                deliver(record)
        if last is not None:
            comparison.ends[partition] = last
    comparison.check_ends(newest() or history[-1])
    if all(start == 0 for start, _, _ in offsets.values()):
        comparison.check_batches()
    return comparison.found


class _Comparison:
    """The output as far as it was read, compared with the ledger."""

    def __init__(self, history: Sequence[HeadEntry]) -> None:
        self._history = history
        self._head = history[-1]
        self._tag = pipeline_tag(self._head.pipeline)
        self._plan_tags = {(e.generation, e.batch.batch_id): e.plan.tag() for e in history}
        self._counts: Counter[tuple[int, int]] = Counter()
        self._digests: defaultdict[tuple[int, int], RunningDigest] = defaultdict(RunningDigest)
        self.ends: dict[int, int] = {}
        self.found = Verification()

    def take(self, record: Record, last: int | None) -> tuple[bool, int | None]:
        """Compare the next record of a partition with the last sequence before it.

        Returns:
            Whether readers deliver it, and the last sequence after it.
        """
        header = self._header_of(record)
        if header is None or self._is_other_lineage(record, header):
            return True, last
        if self._is_surplus(header, last or 0):
            return False, last
        key = header.generation, header.batch_id
        self._counts[key] += 1
        self._digests[key].add((record.partition, record.key, record.value))
        is_delivered = self._is_in_sequence(record, header, last)
        return is_delivered, max(last or 0, header.sequence)

    def check_ends(self, newest: HeadEntry) -> None:
        """Each partition ends between the `head` from before it was read and that from after."""
        if self._head.delivery is Delivery.AT_MOST_ONCE:
            return
        for partition, last in self.ends.items():
            least, most = (e.sink.next_sequence(partition) - 1 for e in (self._head, newest))
            if not least <= last <= most:
                self.found.gaps += last < least
                place = f"{self._head.sink.topic}-{partition}"
                self._disagree(place, f"{least} as the last sequence, as in the ledger", f"{last}")

    def check_batches(self) -> None:
        """Each batch has the records and the digest that its `head` says."""
        for entry, following in zip_longest(self._history, self._history[1:]):
            if entry.batch.batch_id == NOTHING_COMMITTED or entry.note:
                continue
            self.found.batches += 1
            key = entry.generation, entry.batch.batch_id
            place = f"batch {entry.batch.batch_id} of generation {entry.generation}"
            missing = entry.records.written - self._counts[key]
            digest = self._digests[key].hexdigest()
            if missing > 0 and _is_at_risk(entry, following):
                self.found.lost += missing
            elif missing:
                self._disagree(place, f"{entry.records.written} records", f"{self._counts[key]}")
            elif digest != entry.digest:
                self._disagree(place, f"digest {entry.digest}", digest)

    def _header_of(self, record: Record) -> RecordHeader | None:
        """The header of a record of the pipeline; None, and counted, for one of another writer."""
        packed = record.header_value(HEADER_NAME)
        try:
            header = None if packed is None else RecordHeader.unpack(packed)
        except CorruptionError as error:
            self._disagree(_place(record), error.expected, error.found)
            header = None
        is_ours = header is not None and header.pipeline_tag == self._tag
        self.found.records += is_ours
        self.found.foreign += not is_ours
        return header if is_ours else None

    def _is_other_lineage(self, record: Record, header: RecordHeader) -> bool:
        """Tell once that the topic holds two histories of the pipeline; readers stop between."""
        if header.lineage == self._head.lineage:
            return False
        if not self.found.other_lineages:
            expected = f"lineage {self._head.lineage}, in which the ledger counts"
            self._disagree(_place(record), expected, f"lineage {header.lineage}")
        self.found.other_lineages += 1
        return True

    def _is_surplus(self, header: RecordHeader, last: int) -> bool:
        """Whether at_least_once has written a record once more than the ledger says."""
        if Flag.AT_LEAST_ONCE not in header.flags:
            return False
        plan_tag = self._plan_tags.get((header.generation, header.batch_id))
        is_flagged = plan_tag not in {None, header.plan_tag}
        is_repeat = not is_flagged and header.sequence <= last
        self.found.flagged += is_flagged
        self.found.repeats += is_repeat
        return is_flagged or is_repeat

    def _is_in_sequence(self, record: Record, header: RecordHeader, last: int | None) -> bool:
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


def _place(record: Record) -> str:
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


def _is_at_risk(entry: HeadEntry, following: HeadEntry | None) -> bool:
    """Whether a batch may be missing: the entry after it names it, or there is none yet."""
    if entry.delivery is not Delivery.AT_MOST_ONCE:
        return False
    return following is None or all(
        partition in following.at_risk and following.at_risk[partition][0] <= first
        for partition, (first, last) in entry.sink.sequence.items()
        if first <= last
    )
