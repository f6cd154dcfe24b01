"""Reconstructs the position of a pipeline from the end of its output. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onceflow.errors import NEW_GENERATION, CorruptionError, LineageError
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.identity import lineage_of
from onceflow.protocol.ledger import HeadEntry, Range
from onceflow.protocol.record import BatchOrder, RecordHeader


@dataclass(frozen=True)
class Tail:
    """The newest batch of the pipeline in one output partition: its last record, and its first."""

    header: RecordHeader
    first_sequence: int

    @property
    def batch(self) -> BatchOrder:
        """The batch that this tail ends."""
        return self.header.batch_order


@dataclass(frozen=True)
class OutputTails:
    """The end of the pipeline's output.

    Args:
        tails: partition -> its tail; without partitions that hold no record of the pipeline.
        is_whole: whether every partition without a tail never held a record. False if its oldest
            records were removed, so that the last sequence is unknown.
    """

    tails: Mapping[int, Tail]
    is_whole: bool = True

    @property
    def newest(self) -> BatchOrder | None:
        """The newest batch that has a record in the output."""
        return max((tail.batch for tail in self.tails.values()), default=None)

    def of_batch(self, batch: BatchOrder) -> Mapping[int, Tail]:
        """The tails that end exactly this batch."""
        return {p: tail for p, tail in self.tails.items() if tail.batch == batch}

    def sequence(self, batch: BatchOrder | None) -> Mapping[int, Range]:
        """`SinkState.sequence` after a batch; partitions that it did not touch are empty ranges."""
        return {
            partition: (
                tail.first_sequence if tail.batch == batch else tail.header.sequence + 1,
                tail.header.sequence,
            )
            for partition, tail in self.tails.items()
        }

    def lineage(self, fresh: int) -> int:
        """Choose the lineage to continue with.

        It is kept only if every partition proves its last sequence. Otherwise numbers may come
        again, and `fresh` tells readers so.
        """
        found = {tail.header.lineage for tail in self.tails.values()}
        return found.pop() if self.is_whole and len(found) == 1 else fresh


def last_batch(tails: OutputTails, facts: CheckpointFacts, generation: int) -> BatchOrder:
    """Find the last committed batch; `generation` counts if the output holds no record.

    Raises:
        CorruptionError: the checkpoint has not planned the newest batch of the output.
    """
    generation, newest = tails.newest or (generation, facts.done)
    # A batch without output leaves no trace in the topic, but Spark logged it after its commit.
    batch_id = max(newest, facts.done)
    if batch_id > facts.planned:
        raise unlike(
            "the checkpoint is older than the output; the ledger cannot be rebuilt",
            f"generation {generation}",
            f"offsets/{batch_id} in the checkpoint",
            f"planned batch {facts.planned}",
        )
    return generation, batch_id


def numbered_on(blank: HeadEntry, tails: OutputTails, batch: BatchOrder | None) -> HeadEntry:
    """A registration that continues the sequences of the output after `batch`."""
    sequence = {**blank.sink.sequence, **tails.sequence(batch)}
    lineage = tails.lineage(fresh=lineage_of(blank.run_id))
    return replace(blank, sink=replace(blank.sink, sequence=sequence), lineage=lineage)


def new_generation(blank: HeadEntry, before: HeadEntry | None, tails: OutputTails) -> HeadEntry:
    """Give a `blank` registration the next generation, and the sequences of the output.

    It has the sequences of `before`, the `head` of the ledger, which decides unless the output is
    ahead of it: then the ledger was set back, or records were written outside a transaction.

    Raises:
        LineageError: there is no `head`, and the output holds no record of the pipeline any more.
    """
    newest = tails.newest
    if before is not None and (newest is None or newest <= before.batch_order):
        return replace(blank, generation=before.generation + 1)
    if newest is None:
        raise LineageError(
            "the output holds no record of this pipeline any more",
            subject=blank.sink.topic,
            then="nothing was written; start again without `--new-generation`",
        )
    return replace(numbered_on(blank, tails, None), generation=newest[0] + 1)


def unlike(what: str, subject: str, expected: str, found: str) -> CorruptionError:
    """The refusal of a rebuild."""
    return CorruptionError(
        what,
        subject=subject,
        expected=expected,
        found=found,
        then=f"nothing was written; use the newer checkpoint, or {NEW_GENERATION}",
    )
