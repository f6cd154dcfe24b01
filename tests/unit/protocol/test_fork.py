"""The `head` that a fork begins with, and with which its ledger does."""

from __future__ import annotations

from dataclasses import replace

from onceflow.protocol.digest import digest_of
from onceflow.protocol.fork import begun_from, forked, moved
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import NO_PLAN, HeadEntry, Origin, RecordCounts, SinkState
from onceflow.protocol.order import ARRIVAL
from tests.support.entries import head, plan

ENTRY = replace(
    head(4, 20, 30, query_id="old", generation=3),
    totals=RecordCounts(read=30, written=5),
    newest_event_ms=77,
    lineage=9,
    order=ARRIVAL,
    at_risk={0: (5, 5)},
    waivers=("ND-TIME",),
)
SINK = SinkState("other", 8, Layout(1, 3))
FORK = forked(ENTRY, "fork", "new", SINK)


def test_a_fork_stands_where_its_origin_did_and_counts_nothing() -> None:
    assert (FORK.plan, FORK.newest_event_ms, FORK.order) == (ENTRY.plan, 77, ARRIVAL)
    assert (FORK.pipeline, FORK.batch, FORK.generation) == ("fork", BatchKey("new", 4), 1)
    assert FORK.origin == Origin("views", 3, 9, BatchKey("old", 4))
    assert FORK.note == "forked after batch 4 of views, generation 3"
    assert FORK.records == FORK.totals == RecordCounts()
    assert (FORK.sink.sequence, FORK.at_risk, FORK.waivers, FORK.lineage) == ({}, {}, (), 0)
    assert FORK.sink.next_sequence(0) == 1
    assert HeadEntry.from_json(FORK.to_json()) == FORK


def test_its_first_start_registers_it_under_its_own_lineage() -> None:
    blank = replace(
        head(-1, 0, 0, query_id="new"),
        pipeline="fork",
        plan=NO_PLAN,
        token=FencingToken(2),
        run_id="run-2",
        sink=replace(SINK, topic_id="id"),
        plan_hash="h2",
        lineage=5,
    )
    begun = begun_from(FORK, blank)
    assert (begun.batch, begun.plan, begun.origin) == (FORK.batch, FORK.plan, FORK.origin)
    assert (begun.token, begun.run_id, begun.lineage) == (2, "run-2", 5)
    assert (begun.sink, begun.plan_hash) == (blank.sink, "h2")


def test_moved_state_goes_on_as_the_same_pipeline() -> None:
    after = moved(ENTRY, BatchKey("new", 5), plan(30, 30), "moved")
    assert (after.batch, after.plan, after.note) == (BatchKey("new", 5), plan(30, 30), "moved")
    assert (after.generation, after.lineage, after.totals) == (3, 9, ENTRY.totals)
    assert after.sink.next_sequence(0) == ENTRY.sink.next_sequence(0)
    assert (after.records, after.digest) == (RecordCounts(), digest_of(()))
    assert after.origin == Origin.of(ENTRY)
    assert after.is_moved
    assert not FORK.is_moved


def test_a_fork_of_a_fork_names_the_nearest() -> None:
    origin = forked(replace(FORK, lineage=5), "third", "newer", SINK).origin
    assert origin == Origin("fork", 1, 5, BatchKey("new", 4))
