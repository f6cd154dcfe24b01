"""The comparison of output and ledger: its findings, and the records that it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
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
    ) -> Iterator[Record]:
        for offset, (sequence, value) in enumerate(self.values):
            tag = pipeline_tag(HEAD.pipeline)
            header = RecordHeader(Flag(0), tag, 1, 7, sequence - 1, sequence, HEAD.lineage)
            headers = ((HEADER_NAME, header.pack()),) if sequence else ()
            yield Record(topic, 0, offset, 0, b"k", value, headers)


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
    delivered: list[Record] = []
    broker = cast("Broker", Topic(HEAD.sink.topic, values))
    newest = entries(known if then is None else then)[-1]
    deadline = ManualClock().within(60)
    found = verify(broker, entries(known), deadline, lambda: newest, delivered.append)
    return found, [record.value for record in delivered]


@pytest.mark.parametrize(
    ("values", "counts", "finding", "delivered"),
    [
        (VALUES, {"records": 3, "batches": 3}, "", b"abc"),
        (
            [*VALUES[:2], VALUES[1], VALUES[2]],
            {"repeats": 1, "gaps": 0},
            "found sequence 2",
            b"abc",
        ),
        ([VALUES[0], VALUES[2]], {"gaps": 1, "repeats": 0}, "found sequence 3", b"ac"),
        (VALUES[:2], {"gaps": 1}, "3 as the last sequence", b"ab"),
        ([*VALUES[:2], (3, b"x")], {"gaps": 0}, "batch 2 of generation 1", b"abx"),
        ([(0, b"x"), *VALUES], {"foreign": 1, "records": 3}, "", b"xabc"),
    ],
    ids=["all agrees", "a repeat", "a gap", "the last is missing", "another value", "of others"],
)
def test_the_output_is_compared(
    values: Sequence[tuple[int, bytes]], counts: Mapping[str, int], finding: str, delivered: bytes
) -> None:
    found, read = compared(values)
    assert {name: getattr(found, name) for name in counts} == counts
    assert finding in str([*map(str, found.findings)])
    assert bool(found.findings) == bool(finding)
    assert b"".join(value or b"" for value in read) == delivered


@pytest.mark.parametrize(("then", "is_found"), [(3, False), (1, True)])
def test_output_beyond_the_ledger_is_found_unless_the_pipeline_went_on(
    then: int, is_found: bool
) -> None:
    found, delivered = compared(VALUES, known=1, then=then)
    assert (found.batches, len(delivered)) == (1, 3)
    assert ("1 as the last sequence" in str([*map(str, found.findings)])) is is_found
