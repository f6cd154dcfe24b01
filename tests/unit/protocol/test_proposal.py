"""The commit decision: write what follows, skip what is committed and equal, halt at the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.protocol.commit import Judgement, Verdict
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import FencingToken
from onceflow.protocol.ledger import NOTHING_COMMITTED, BatchPlan, HeadEntry, SourceRanges
from onceflow.protocol.proposal import (
    BatchProposal,
    HeadProposal,
    plan_difference,
    range_difference,
)
from onceflow.protocol.references import ReferenceVersion
from tests.support.entries import head, plan

BATCH = head(4, 20, 30)
WRITE, SKIP = Judgement(Verdict.WRITE), Judgement(Verdict.SKIP)
FINISH = Judgement(Verdict.FINISH)

offsets = st.integers(0, 9)
ranges = st.dictionaries(st.integers(0, 2), st.tuples(offsets, offsets), max_size=3)
sources = st.dictionaries(
    st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["t", "u"]), ranges), max_size=2
)


def sourced(entry: HeadEntry, wanted: SourceRanges) -> HeadEntry:
    return replace(entry, plan=replace(entry.plan, sources=wanted))


@pytest.mark.parametrize(
    ("before", "judgement"),
    [
        (head(3, 10, 20), WRITE),
        (head(4, 20, 30), FINISH),
        (replace(head(4, 20, 30), run_id="another", token=FencingToken(9)), SKIP),
        (head(NOTHING_COMMITTED, 0, 0), Judgement(Verdict.HALT, "batch -1 or 0", "batch 4")),
        (head(2, 0, 10), Judgement(Verdict.HALT, "batch 2 or 3", "batch 4")),
        (head(5, 30, 40), Judgement(Verdict.HALT, "batch 5 or 6", "batch 4")),
        (None, Judgement(Verdict.HALT, "a registered ledger", "no head")),
        (head(3, 10, 20, query_id="p"), Judgement(Verdict.HALT, "query p", "query q")),
        (head(3, 10, 20, generation=2), Judgement(Verdict.HALT, "generation 2", "generation 1")),
        (
            head(3, 10, 19),
            Judgement(Verdict.HALT, "input-0 in source clicks from offset 19", "offset 20"),
        ),
        (
            head(4, 20, 31),
            Judgement(
                Verdict.HALT,
                "offsets [20, 31) of input-0 in source clicks",
                "offsets [20, 30) of input-0 in source clicks",
            ),
        ),
    ],
)
def test_a_batch_is_judged_by_the_head(before: HeadEntry | None, judgement: Judgement) -> None:
    assert BatchProposal(BATCH).judge(before) == judgement


def test_a_replay_with_another_digest_has_diverged() -> None:
    judgement = BatchProposal(BATCH).judge(replace(BATCH, digest="other"))
    assert judgement.verdict is Verdict.DIVERGED
    assert judgement.expected == "digest other over 1 records"
    assert "not deterministic" in judgement.found


@pytest.mark.parametrize("run_id", [BATCH.run_id, "another"])
def test_at_most_once_does_not_ask_what_a_replay_computes_but_what_it_reads(run_id: str) -> None:
    proposal = BatchProposal(replace(BATCH, delivery=Delivery.AT_MOST_ONCE, run_id="r"))
    before = replace(BATCH, digest="other", run_id=run_id)
    assert proposal.judge(before) == (FINISH if run_id == "r" else SKIP)
    other = replace(before, plan=plan(20, 31))
    assert proposal.judge(other).verdict is Verdict.HALT


def test_a_head_without_a_batch_is_one_transaction_in_every_mode() -> None:
    entry = replace(BATCH, delivery=Delivery.AT_MOST_ONCE)
    assert HeadProposal(None, entry).delivery is Delivery.EXACTLY_ONCE
    assert BatchProposal(entry).delivery is Delivery.AT_MOST_ONCE


@pytest.mark.parametrize("change", [{"watermark_ms": 6}, {"clock_ms": 10}])
def test_a_replay_under_another_watermark_or_clock_halts(change: dict[str, int]) -> None:
    other = replace(BATCH, plan=plan(20, 30, **change))
    assert BatchProposal(BATCH).judge(other).verdict is Verdict.HALT


def test_the_first_batch_begins_wherever_it_says() -> None:
    registered = head(NOTHING_COMMITTED, 0, 0)
    assert BatchProposal(head(0, 100, 200)).judge(registered) == WRITE


def test_a_batch_may_bring_a_partition_and_drop_none() -> None:
    one = head(3, 10, 20)
    two = sourced(BATCH, {"clicks": {"input": {0: (20, 30), 1: (7, 8)}}})
    assert BatchProposal(two).judge(one) == WRITE
    lost = BatchProposal(replace(head(5, 30, 40))).judge(two)
    expected = "input-1 in source clicks from offset 8"
    assert lost == Judgement(Verdict.HALT, expected, "no input-1 in source clicks")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, Verdict.HALT),
        (head(3, 10, 20), Verdict.WRITE),
        (BATCH, Verdict.SKIP),
        (head(5, 30, 40), Verdict.HALT),
    ],
)
def test_an_entry_replaces_only_what_it_was_decided_over(
    found: HeadEntry | None, verdict: Verdict
) -> None:
    assert HeadProposal(head(3, 10, 20), BATCH).judge(found).verdict is verdict


def test_a_first_entry_replaces_nothing() -> None:
    proposal = HeadProposal(None, BATCH)
    assert proposal.judge(None) == WRITE
    assert proposal.judge(BATCH) == SKIP
    assert proposal.judge(head(3, 10, 20)) == Judgement(
        Verdict.HALT, "no head", "batch 3 of query q, token 1"
    )


@given(sources, sources)
def test_plans_differ_where_some_partition_differs(one: SourceRanges, two: SourceRanges) -> None:
    def flat(wanted: SourceRanges) -> set[tuple[object, ...]]:
        return {
            (s, t, p, r) for s, ts in wanted.items() for t, ps in ts.items() for p, r in ps.items()
        }

    difference = range_difference(one, two)
    assert (difference is None) == (flat(one) == flat(two))
    assert difference == plan_difference(BatchPlan(one, 1, 2), BatchPlan(two, 1, 2))


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (plan(1, 2), None),
        (plan(1, 2, watermark_ms=6), ("event watermark 5 ms", "event watermark 6 ms")),
        (plan(1, 2, clock_ms=10), ("batch clock 9 ms", "batch clock 10 ms")),
        (
            replace(plan(1, 2), parameters={"limit": "7"}),
            ("parameters {}", "parameters {'limit': '7'}"),
        ),
        (
            replace(plan(1, 2), references={"names": ReferenceVersion("0:7", "ab")}),
            ("no reference names", "version 0:7 of reference names"),
        ),
        (
            BatchPlan({"clicks": {"input": {}}}, 5, 9),
            ("offsets [1, 2) of input-0 in source clicks", "nothing of input-0 in source clicks"),
        ),
    ],
)
def test_the_first_difference_is_named(
    other: BatchPlan, difference: tuple[str, str] | None
) -> None:
    assert plan_difference(plan(1, 2), other) == difference
