"""Proposals for the next `head`: a batch, or an entry that an operator or a start writes.

`judge` of these two classes is the commit decision of protocol section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.protocol.commit import Judgement, Verdict
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    SourceRanges,
)
from onceflow.protocol.references import ReferenceVersion


@dataclass(frozen=True)
class BatchProposal:
    """A micro-batch whose rows are computed and numbered."""

    entry: HeadEntry
    """The `head` that the batch would become."""

    @property
    def delivery(self) -> Delivery:
        """The mode that the batch is written in."""
        return self.entry.delivery

    def judge(self, head: HeadEntry | None) -> Judgement:
        """Skip what is committed and equal, write what follows, halt at anything else.

        What this very run has committed, and does not know yet, is to be finished: no other driver
        will write what comes after its `head`.
        """
        batch = self.entry.batch
        if head is None:
            return Judgement(Verdict.HALT, "a registered ledger", "no head")
        if head.batch.query_id != batch.query_id:
            return _halt(f"query {head.batch.query_id}", f"query {batch.query_id}")
        if head.generation != self.entry.generation:
            return _halt(f"generation {head.generation}", f"generation {self.entry.generation}")
        if head.batch.batch_id == batch.batch_id:
            return self._judge_replay(head)
        if head.batch.batch_id == batch.batch_id - 1:
            return self._judge_successor(head)
        following = head.batch.batch_id + 1
        return _halt(f"batch {following - 1} or {following}", f"batch {batch.batch_id}")

    def _judge_replay(self, head: HeadEntry) -> Judgement:
        mine = self.entry
        if difference := plan_difference(head.plan, mine.plan):
            return _halt(*difference)
        # At most once writes nothing again, so it does not matter what a replay computes.
        if head.digest != mine.digest and self.delivery is not Delivery.AT_MOST_ONCE:
            return Judgement(
                Verdict.DIVERGED,
                f"digest {head.digest} over {head.records.written} records",
                f"digest {mine.digest} over {mine.records.written} records: the query is not"
                " deterministic",
            )
        return Judgement(Verdict.FINISH if head.run_id == mine.run_id else Verdict.SKIP)

    def _judge_successor(self, head: HeadEntry) -> Judgement:
        if head.batch.batch_id == NOTHING_COMMITTED:
            return Judgement(Verdict.WRITE)
        if gap := _gap(head.plan.sources, self.entry.plan.sources):
            return _halt(*gap)
        return Judgement(Verdict.WRITE)


@dataclass(frozen=True)
class HeadProposal:
    """An entry that moves `head` without a batch: registration, adopt, rebuild, new generation.

    Args:
        expected: the `head` that it replaces; None if there must be none.
        entry: the `head` to write.
    """

    expected: HeadEntry | None
    entry: HeadEntry

    @property
    def delivery(self) -> Delivery:
        """It brings no records, so `head` is all of its transaction in every mode."""
        return Delivery.EXACTLY_ONCE

    def judge(self, head: HeadEntry | None) -> Judgement:
        """Write only over the head that the decision was made from."""
        if head == self.entry:
            return Judgement(Verdict.SKIP)
        if head == self.expected:
            return Judgement(Verdict.WRITE)
        return _halt(_name(self.expected), _name(head))


def plan_difference(expected: BatchPlan, found: BatchPlan) -> tuple[str, str] | None:
    """The first thing in which two plans of one batch differ, as (expected, found)."""
    if difference := range_difference(expected.sources, found.sources):
        return difference
    times = {
        "event watermark": (expected.event_watermark_ms, found.event_watermark_ms),
        "batch clock": (expected.batch_timestamp_ms, found.batch_timestamp_ms),
    }
    for what, (wanted_ms, found_ms) in times.items():
        if wanted_ms != found_ms:
            return f"{what} {wanted_ms} ms", f"{what} {found_ms} ms"
    if expected.parameters != found.parameters:
        return f"parameters {dict(expected.parameters)}", f"parameters {dict(found.parameters)}"
    for name in sorted(expected.references.keys() | found.references.keys()):
        wanted, got = expected.references.get(name), found.references.get(name)
        if wanted != got:
            return _version_text(name, wanted), _version_text(name, got)
    return None


def range_difference(expected: SourceRanges, found: SourceRanges) -> tuple[str, str] | None:
    """The first partition of which two plans read different offsets, as (expected, found)."""
    wanted, got = _flat(expected), _flat(found)
    places = [place for place in wanted.keys() | got.keys() if wanted.get(place) != got.get(place)]
    if not places:
        return None
    place = min(places)
    return _range_text(place, wanted.get(place)), _range_text(place, got.get(place))


def _flat(sources: SourceRanges) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {
        (name, topic, partition): bounds
        for name, topics in sources.items()
        for topic, ranges in topics.items()
        for partition, bounds in ranges.items()
    }


def _range_text(place: tuple[str, str, int], bounds: tuple[int, int] | None) -> str:
    name, topic, partition = place
    offsets = "nothing" if bounds is None else f"offsets [{bounds[0]}, {bounds[1]})"
    return f"{offsets} of {topic}-{partition} in source {name}"


def _version_text(name: str, version: ReferenceVersion | None) -> str:
    return f"version {version.of} of reference {name}" if version else f"no reference {name}"


def _gap(before: SourceRanges, after: SourceRanges) -> tuple[str, str] | None:
    """Where `after` does not begin at the end of `before`. New partitions begin where they say."""
    starts = _flat(after)
    for place, (_, end) in sorted(_flat(before).items()):
        name, topic, partition = place
        subject = f"{topic}-{partition} in source {name}"
        if place not in starts:
            return f"{subject} from offset {end}", f"no {subject}"
        if starts[place][0] != end:
            return f"{subject} from offset {end}", f"offset {starts[place][0]}"
    return None


def _name(head: HeadEntry | None) -> str:
    if head is None:
        return "no head"
    return f"batch {head.batch.batch_id} of query {head.batch.query_id}, token {head.token}"


def _halt(expected: str, found: str) -> Judgement:
    return Judgement(Verdict.HALT, expected, found)
