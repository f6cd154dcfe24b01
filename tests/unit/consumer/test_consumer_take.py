"""To take many records at once gives the same as to poll each, whatever the topic holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.errors import OnceflowError
from onceflow.protocol.record import Flag, RecordHeader
from onceflow_connectors.consumer import FilteringConsumer, Hooks, OnFault, OnForeign, Record, Rules
from onceflow_connectors.consumer.admission import STRICT, Admission, Counters
from onceflow_connectors.consumer.filter import PartitionFilter
from tests.support.contracts.consumer_steps import Written
from tests.support.fakes import consumer as fakes
from tests.support.fakes.consumer import FakeConsumerKafka

TOPIC = "out"
LENIENT = Rules(
    gap=OnFault.REPORT,
    divergence=OnFault.REPORT,
    foreign=OnForeign.DELIVER,
    new_lineage=OnFault.REPORT,
)
ENOUGH = 200
FIRST = RecordHeader(Flag(0), 7, 1, 3, 0, 1, 5)


@pytest.fixture(autouse=True)
def _many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "POLLED_MAX", 50)


headers = st.builds(
    RecordHeader,
    flags=st.sampled_from([Flag(0), Flag.LAST_OF_BATCH, Flag.AT_LEAST_ONCE, Flag.AT_MOST_ONCE]),
    pipeline_tag=st.sampled_from([7, 7, 7, 8]),
    generation=st.sampled_from([1, 1, 1, 2]),
    plan_tag=st.sampled_from([3, 3, 3, 4]),
    batch_id=st.integers(0, 2),
    sequence=st.integers(1, 6),
    lineage=st.sampled_from([5, 5, 5, 0, 6]),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Written]:
    """Mostly records in sequence, as a pipeline writes them, with anything in between."""
    found: list[Written] = []
    for _ in range(draw(st.integers(0, 6))):
        first = draw(headers)
        partition = draw(st.integers(0, 1))
        for n in range(draw(st.integers(0, 8))):
            header = RecordHeader(
                first.flags, 7, first.generation, 3, first.batch_id, first.sequence + n, 5
            )
            found.append(Written(b"", header.pack(), partition))
        other = draw(st.sampled_from([None, None, b"", b"?", first.pack(), b"\x02" + bytes(31)]))
        if draw(st.booleans()):
            found.append(Written(b"", other, partition))
    return found


def outcome(written: Sequence[Written], rules: Rules, most: int) -> Any:
    """Everything that a reader sees; with `most` 0 by polls."""
    kafka = FakeConsumerKafka()
    kafka.create_topic(TOPIC, 2)
    kafka.write(TOPIC, written)
    told: list[str] = []
    hooks = Hooks(
        on_generation=lambda change: told.append(repr(change)),
        on_gap=lambda gap: told.append(repr(gap)),
        on_divergence=lambda divergence: told.append(repr(divergence)),
        on_new_lineage=lambda change: told.append(repr(change)),
        load_position=lambda *_: None,
    )
    delivered: list[Record] = []
    failure = ""
    with kafka.consumer([TOPIC], "g", rules, hooks) as consumer:
        try:
            for _ in range(ENOUGH):
                delivered += some(consumer, most)
        except OnceflowError as error:
            failure = str(error)
        positions = consumer.take_positions()
        counts = consumer.counters
        # A record that is refused is met again, and counts again.
        counted = (counts.delivered, counts.discarded) if failure else counts
        return delivered, failure, told, positions, counted


def some(consumer: FilteringConsumer, most: int) -> Sequence[Record]:
    if most:
        return consumer.take(most, 0)
    record = consumer.poll(0)
    return [] if record is None else [record]


@settings(max_examples=300, deadline=None)
@given(histories(), st.sampled_from([STRICT, LENIENT]), st.sampled_from([1, 3, 100]))
def test_to_take_many_is_to_poll_each(written: list[Written], rules: Rules, most: int) -> None:
    assert outcome(written, rules, most) == outcome(written, rules, 0)


def test_records_of_a_batch_need_no_decision_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing would be quicker."""
    written = [Written(b"", RecordHeader(Flag(0), 7, 1, 3, 0, n, 5).pack()) for n in range(1, 41)]
    kafka = FakeConsumerKafka()
    kafka.create_topic(TOPIC, 1)
    kafka.write(TOPIC, written)
    unpacked: list[bytes] = []
    unpack = RecordHeader.unpack

    def counted(data: bytes) -> RecordHeader:
        unpacked.append(data)
        return unpack(data)

    monkeypatch.setattr(RecordHeader, "unpack", counted)
    with kafka.consumer([TOPIC], "g") as consumer:
        consumer.take(100, 0)
        assert len(consumer.take(100, 0)) == 40
        assert consumer.counters.delivered == 40
    assert len(unpacked) < 5


@pytest.mark.parametrize(
    ("changed", "header", "expected"),
    [
        ({}, {}, 1),
        ({}, {"flags": Flag.LAST_OF_BATCH}, 1),
        ({}, {"sequence": 3}, 0),
        ({}, {"batch_id": 1}, 0),
        ({}, {"plan_tag": 4}, 0),
        ({"partition": 1}, {}, 0),
        ({"topic": "other"}, {}, 0),
        ({"offset": 5}, {}, 0),
        ({"headers": ()}, {}, 0),
        ({"headers": (("onceflow", b"\x02" + FIRST.pack()[1:24] + (2).to_bytes(8)),)}, {}, 0),
        ({"headers": (("onceflow", None),)}, {}, 0),
        ({"headers": (("other", replace(FIRST, sequence=2).pack()),)}, {}, 0),
    ],
)
def test_only_the_next_record_of_the_same_batch_and_partition_follows(
    changed: dict[str, Any], header: dict[str, Any], expected: int
) -> None:
    known = PartitionFilter()
    admission = Admission(STRICT, Hooks(), Counters())
    first = Record(TOPIC, 0, 5, 0, None, b"", (("onceflow", FIRST.pack()),))
    assert admission.admit(first, known)
    packed = replace(FIRST, **{"sequence": 2, **header}).pack()
    later = first._replace(offset=6, headers=(("onceflow", packed),))._replace(**changed)
    assert admission.admit_followers(first, [later], known) == expected
    assert known.track(7).high_water == 1 + expected
