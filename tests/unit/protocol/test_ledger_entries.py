"""Owner and head entries: equal entries are equal bytes, and damage is never read as an entry."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import CorruptionError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    Origin,
    OwnerEntry,
    RecordCounts,
    SinkState,
    canonical_json,
    sources_from_json,
    sources_to_json,
)
from onceflow.protocol.order import ARRIVAL, SORTED, Order, Term
from onceflow.protocol.references import ReferenceVersion
from onceflow.protocol.state_sample import StateSample

Damage: TypeAlias = Callable[[dict[str, Any]], object]

naturals = st.integers(0, 2**63 - 1)
names = st.text(max_size=8)
layouts = st.builds(Layout, st.integers(1, 4), st.integers(1, 5))
ranges = st.dictionaries(st.integers(0, 99), st.tuples(naturals, naturals), max_size=3)
sources = st.dictionaries(names, st.dictionaries(names, ranges, max_size=2), max_size=2)
clocks = st.integers(-(2**63), 2**63 - 1)
plans = st.builds(BatchPlan, sources, clocks, naturals, st.dictionaries(names, names, max_size=3))
sinks = st.builds(SinkState, names, st.integers(1, 99), layouts, ranges, names)
counts = st.builds(RecordCounts, naturals, naturals, naturals, naturals)
orders = st.sampled_from([SORTED, ARRIVAL, Order((Term("at", is_descending=True), Term("n")))])
owners = st.builds(OwnerEntry, naturals.map(FencingToken), names, names, naturals, layouts)
origins = st.builds(Origin, names, naturals, naturals, st.builds(BatchKey, names, naturals))
samples = st.builds(StateSample, naturals, naturals, naturals, naturals, names)
heads = st.builds(
    HeadEntry,
    pipeline=names,
    generation=naturals,
    batch=st.builds(BatchKey, names, st.integers(NOTHING_COMMITTED, 2**40)),
    token=naturals.map(FencingToken),
    run_id=names,
    plan=plans,
    sink=sinks,
    records=counts,
    digest=names,
    plan_hash=names,
    note=names,
    plan_parts=st.dictionaries(names, names, max_size=3),
    newest_event_ms=st.none() | st.integers(),
    order=orders,
    next_order=orders,
    origin=st.none() | origins,
    state=st.none() | samples,
)

OWNER = OwnerEntry(FencingToken(3), "run-3", "host", 1_700_000_000_000, Layout(1, 3))
HEAD = HeadEntry(
    pipeline="page-views",
    generation=1,
    batch=BatchKey("query", 4),
    token=FencingToken(3),
    run_id="run-3",
    plan=BatchPlan({"clicks": {"clicks": {10: (5, 9), 2: (0, 0)}}}, 90_000, 100_000),
    sink=SinkState("out", 4, Layout(1, 3), {0: (6, 7), 1: (3, 2)}, "topic-1"),
    records=RecordCounts(read=4, late=1, rejected=0, written=2),
    digest="d1",
    plan_hash="p1",
)


def test_an_owner_is_written_as_published() -> None:
    assert OWNER.to_json() == (
        b'{"host":"host","max_lanes":3,"max_slots":1,"run_id":"run-3",'
        b'"started_at_ms":1700000000000,"token":3,"v":1}'
    )


def test_a_head_is_written_as_published() -> None:
    assert HEAD.to_json() == (
        b'{"batch_id":4,"batch_timestamp_ms":100000,"digest":"d1","event_watermark_ms":90000,'
        b'"generation":1,"note":"","pipeline":"page-views","plan":"p1","query_id":"query",'
        b'"records":{"diverged":0,"duplicates":0,"late":1,"read":4,"refused":0,"rejected":0,"written":2},'
        b'"run_id":"run-3",'
        b'"sink":{"lanes":3,"partitions":4,"sequence":{"0":[6,7],"1":[3,2]},"slots":1,'
        b'"topic":"out","topic_id":"topic-1"},"sources":{"clicks":{"clicks":{"10":[5,9],"2":[0,0]}}},"token":3,'
        b'"totals":{"diverged":0,"duplicates":0,"late":0,"read":0,"refused":0,"rejected":0,"written":0},"v":1}'
    )


@given(owners)
def test_every_owner_survives_the_ledger(owner: OwnerEntry) -> None:
    assert OwnerEntry.from_json(owner.to_json()) == owner


@given(heads)
def test_every_head_survives_the_ledger(head: HeadEntry) -> None:
    assert HeadEntry.from_json(head.to_json()) == head


def test_a_head_of_a_version_that_recorded_less_is_read() -> None:
    fields = json.loads(HEAD.to_json())
    del fields["totals"], fields["records"]["refused"], fields["sink"]["topic_id"]
    older = replace(HEAD, sink=replace(HEAD.sink, topic_id=""))
    assert HeadEntry.from_json(json.dumps(fields).encode()) == older


@given(sources)
def test_ranges_survive_json(value: Any) -> None:
    assert sources_from_json(json.loads(canonical_json(sources_to_json(value)))) == value


def test_equal_entries_are_equal_bytes_whatever_order_they_were_built_in() -> None:
    turned = replace(HEAD.sink, sequence={1: (3, 2), 0: (6, 7)})
    assert replace(HEAD, sink=turned).to_json() == HEAD.to_json()


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"[]", b"null", b"{}", b'{"v":2}'])
def test_what_is_no_entry_of_this_version_is_refused(data: bytes) -> None:
    for entry in (OwnerEntry, HeadEntry):
        with pytest.raises(CorruptionError, match="expected an entry of version 1"):
            entry.from_json(data)


@pytest.mark.parametrize("field", sorted(json.loads(OWNER.to_json())))
@pytest.mark.parametrize("value", [None, [], {}, 1.5, False])
def test_an_owner_with_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    fields = {**json.loads(OWNER.to_json()), field: value}
    with pytest.raises(CorruptionError, match="unreadable ledger entry: owner"):
        OwnerEntry.from_json(json.dumps(fields).encode())


def _without(field: str) -> Damage:
    return lambda fields: fields.pop(field)


DAMAGES: dict[str, Damage] = {
    "text for a batch id": lambda f: f.update(batch_id="4"),
    "number for a query id": lambda f: f.update(query_id=4),
    "list for a sink": lambda f: f.update(sink=[]),
    "fraction for a partition count": lambda f: f["sink"].update(partitions=4.0),
    "word for a partition": lambda f: f["sink"].update(sequence={"x": [1, 2]}),
    "range of one": lambda f: f["sink"].update(sequence={"0": [1]}),
    "range of three": lambda f: f["sources"]["clicks"].update(clicks={"0": [1, 2, 3]}),
    "range of text": lambda f: f["sources"]["clicks"].update(clicks={"0": "12"}),
    "range of nothing": lambda f: f["sources"]["clicks"].update(clicks={"0": None}),
    "list of sources": lambda f: f.update(sources=[]),
    "unknown count": lambda f: f["records"].update(lost=1),
    "text for a count": lambda f: f["records"].update(read="4"),
    "unknown mode": lambda f: f.update(delivery="twice"),
    "risk of one": lambda f: f.update(at_risk={"0": [1]}),
    "number for a risk": lambda f: f.update(at_risk=1),
    "number for an order": lambda f: f.update(order=1),
    "list of parameters": lambda f: f.update(parameters=[]),
    "number for a parameter": lambda f: f.update(parameters={"limit": 7}),
    "text for an origin": lambda f: f.update(origin="views"),
    "an origin without a batch": lambda f: f.update(origin={"pipeline": "views"}),
    "text for a sample": lambda f: f.update(state="0"),
    "a sample without a digest": lambda f: f.update(
        state={"batch_id": 1, "operator": 0, "partition": 0, "rows": 0}
    ),
    "a sample with text for rows": lambda f: f.update(
        state={"batch_id": 1, "operator": 0, "partition": 0, "rows": "0", "digest": ""}
    ),
    "unknown order": lambda f: f.update(order={"batch": {"by": [], "ties": "chance"}, "next": {}}),
    **{f"no {name}": _without(name) for name in json.loads(HEAD.to_json()).keys() - {"totals"}},
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_damaged_head_is_refused(damage: str) -> None:
    fields = json.loads(HEAD.to_json())
    DAMAGES[damage](fields)
    with pytest.raises(CorruptionError, match=r"unreadable ledger entry: head.*ledger rebuild"):
        HeadEntry.from_json(json.dumps(fields).encode())


@given(heads, st.data())
def test_a_head_that_was_cut_is_refused(head: HeadEntry, data: st.DataObject) -> None:
    whole = head.to_json()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptionError):
        HeadEntry.from_json(whole[:cut])


def test_a_message_shows_only_the_beginning_of_the_entry() -> None:
    with pytest.raises(CorruptionError) as caught:
        OwnerEntry.from_json(b"x" * 10_000)
    assert len(str(caught.value)) < 500


@given(sinks, st.dictionaries(st.integers(0, 99), st.integers(0, 1000), max_size=4))
def test_sequences_go_on_without_hole_or_repeat(sink: SinkState, added: dict[int, int]) -> None:
    after = sink.advanced(added)
    for partition in {*sink.sequence, *added}:
        first, last = after.sequence[partition]
        assert first == sink.next_sequence(partition)
        assert last - first + 1 == added.get(partition, 0)
        assert after.next_sequence(partition) == last + 1
    assert set(after.sequence) == {*sink.sequence, *added}
    assert replace(sink, sequence={}).next_sequence(0) == 1


PLAIN = replace(HEAD, sink=SinkState("out", 3, Layout(1, 3), {0: (5, 7), 1: (3, 2)}))


def test_a_mode_is_told_only_where_it_is_not_exactly_once() -> None:
    fields = json.loads(PLAIN.to_json())
    assert fields == json.loads(PLAIN.under(Delivery.EXACTLY_ONCE).to_json())
    assert not {"delivery", "at_risk"} & set(fields)
    for delivery in (Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE):
        entry = PLAIN.under(delivery)
        assert json.loads(entry.to_json())["delivery"] == delivery.value
        assert HeadEntry.from_json(entry.to_json()) == entry


def test_at_most_once_names_its_own_records_and_those_not_known_to_be_written() -> None:
    first = PLAIN.under(Delivery.AT_MOST_ONCE)
    assert first.at_risk == {0: (5, 7)}
    following = replace(first, sink=first.sink.advanced({0: 2, 1: 1}))
    assert following.under(Delivery.AT_MOST_ONCE).at_risk == {0: (5, 9), 1: (3, 3)}
    known = replace(following.known_to_be_written(), sink=following.sink)
    assert known.under(Delivery.AT_MOST_ONCE).at_risk == {0: (8, 9), 1: (3, 3)}
    assert following.under(Delivery.AT_LEAST_ONCE).at_risk == {0: (5, 7)}


def test_an_order_is_told_only_where_a_version_before_would_have_had_another() -> None:
    assert b"order" not in HEAD.to_json()
    assert HeadEntry.from_json(HEAD.to_json()).order == SORTED

    found = json.loads(replace(HEAD, next_order=ARRIVAL).to_json())["order"]
    content, arrival = {"by": [], "ties": "content"}, {"by": [], "ties": "arrival"}
    assert found == {"batch": content, "next": arrival}


@given(heads)
def test_a_head_that_is_written_again_numbers_and_counts_nothing(head: HeadEntry) -> None:
    again = head.written_again(FencingToken(9), "run-9", "why")

    assert {p: last for p, (_, last) in again.sink.sequence.items()} == {
        p: last for p, (_, last) in head.sink.sequence.items()
    }
    assert all(first == last + 1 for first, last in again.sink.sequence.values())
    assert (again.records.read, again.records.written) == (0, 0)
    assert (again.batch, again.plan, again.digest) == (head.batch, head.plan, head.digest)
    assert (again.token, again.run_id, again.note) == (9, "run-9", "why")


def test_another_order_moves_no_position() -> None:
    head = replace(HEAD, order=ARRIVAL, records=RecordCounts(read=4, written=2, refused=1))
    moved = head.ordering(Order((Term("at"),)), FencingToken(4), "run-4")

    assert moved.batch == head.batch
    assert moved.digest == head.digest
    assert (moved.order, str(moved.next_order)) == (ARRIVAL, "at, content")
    assert moved.records == RecordCounts(refused=1)
    assert [moved.sink.next_sequence(p) for p in range(4)] == [8, 3, 1, 1]
    assert "at, content" in moved.note


def test_head_has_the_version_of_each_reference() -> None:
    plan = replace(HEAD.plan, references={"names": ReferenceVersion("0:7,1:9", "ab")})
    head = replace(HEAD, plan=plan)
    assert HeadEntry.from_json(head.to_json()) == head
    damaged = head.to_json().replace(b'"ab"', b"7")
    with pytest.raises(CorruptionError):
        HeadEntry.from_json(damaged)


def test_the_plan_tag_is_the_crc32_of_ranges_watermark_and_clock() -> None:
    text = (
        b'{"batch_timestamp_ms":100000,"event_watermark_ms":90000,'
        b'"sources":{"clicks":{"clicks":{"10":[5,9],"2":[0,0]}}}}'
    )
    assert HEAD.plan.tag() == zlib.crc32(text)


@pytest.mark.parametrize(
    "other",
    [
        replace(HEAD.plan, sources={"clicks": {"clicks": {10: (5, 8), 2: (0, 0)}}}),
        replace(HEAD.plan, event_watermark_ms=90_001),
        replace(HEAD.plan, batch_timestamp_ms=100_001),
        replace(HEAD.plan, parameters={"limit": "7"}),
        replace(HEAD.plan, references={"names": ReferenceVersion("0:7", "ab")}),
    ],
    ids=["ranges", "watermark", "clock", "parameters", "references"],
)
def test_another_plan_has_another_tag(other: BatchPlan) -> None:
    assert other.tag() != HEAD.plan.tag()
