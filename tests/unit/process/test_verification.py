"""What the comparison of output and ledger finds, and which records it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.protocol.digest import RunningDigest
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.ledger import HeadEntry, RecordCounts
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow.repair.verification import Verification, verify
from tests.support.clock import ManualClock
from tests.support.entries import head


@dataclass
class Topic:
    """One partition that holds these records, each a batch of its own."""

    name: str
    values: Sequence[tuple[int, bytes]]
    """Sequence, and value; sequence 0: of another writer."""

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        assert topic == self.name
        return {0: (0, len(self.values), len(self.values))}

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[ReadRecord]:
        for offset, (sequence, value) in enumerate(self.values):
            tag = pipeline_tag(HEAD.pipeline)
            header = RecordHeader(Flag(0), tag, 1, 7, sequence - 1, sequence, HEAD.lineage)
            headers = ((HEADER_NAME, header.pack()),) if sequence else ()
            yield ReadRecord(topic, 0, offset, 0, b"k", value, headers)


HEAD = head(-1, 0, 0)
VALUES = [(1, b"a"), (2, b"b"), (3, b"c")]


def entries(count: int) -> list[HeadEntry]:
    """The first `head`, and one for each batch of a record."""
    sink, found = HEAD.sink, [HEAD]
    for number in range(count):
        digest = RunningDigest()
        digest.add((0, b"k", VALUES[number][1]))
        sink = sink.advanced({0: 1})
        found.append(
            replace(
                HEAD,
                batch=replace(HEAD.batch, batch_id=number),
                sink=sink,
                records=RecordCounts(written=1),
                digest=digest.hexdigest(),
                note="",
            )
        )
    return found


def compared(
    values: Sequence[tuple[int, bytes]], known: int = 3, then: int | None = None
) -> tuple[Verification, list[bytes | None]]:
    delivered: list[ReadRecord] = []
    broker = cast("Broker", Topic(HEAD.sink.topic, values))
    newest = entries(known if then is None else then)[-1]
    deadline = Deadline.after(ManualClock(), 60)
    found = verify(broker, entries(known), deadline, lambda: newest, delivered.append)
    return found, [record.value for record in delivered]


def test_what_agrees_is_delivered() -> None:
    found, delivered = compared(VALUES)
    assert (found.records, found.batches, found.findings) == (3, 3, [])
    assert delivered == [b"a", b"b", b"c"]


def test_a_repeat_is_found_and_not_delivered() -> None:
    found, delivered = compared([*VALUES[:2], VALUES[1], VALUES[2]])
    assert (found.repeats, found.gaps) == (1, 0)
    assert "expected sequence 3, found sequence 2" in str(found.findings[0])
    assert delivered == [b"a", b"b", b"c"]


def test_a_gap_is_found() -> None:
    found, delivered = compared([VALUES[0], VALUES[2]])
    assert found.gaps == 1
    assert "expected sequence 2, found sequence 3" in str(found.findings[0])
    assert delivered == [b"a", b"c"]


def test_missing_last_records_are_found() -> None:
    found, _ = compared(VALUES[:2])
    assert found.gaps == 1
    assert "3 as the last sequence" in str(found.findings[0])


def test_another_value_than_committed_is_found() -> None:
    found, _ = compared([*VALUES[:2], (3, b"x")])
    assert [finding.where for finding in found.findings] == ["batch 2 of generation 1"]


def test_a_pipeline_that_goes_on_meanwhile_is_no_finding() -> None:
    found, delivered = compared(VALUES, known=1, then=3)
    assert (found.batches, found.findings) == (1, [])
    assert len(delivered) == 3


def test_output_beyond_the_ledger_is_found() -> None:
    found, _ = compared(VALUES, known=1)
    assert "1 as the last sequence" in str(found.findings[0])


def test_records_of_other_writers_are_delivered_and_counted() -> None:
    found, delivered = compared([(0, b"x"), *VALUES])
    assert (found.foreign, found.records, found.findings) == (1, 3, [])
    assert delivered[0] == b"x"
