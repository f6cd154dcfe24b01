"""What the end of the output tells of a pipeline whose ledger is lost. Pure."""

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
    """The newest batch of the pipeline in one output partition.

    Args:
        header: of its last record.
        first_sequence: of its first record.
    """

    header: RecordHeader
    first_sequence: int

    @property
    def batch(self) -> BatchOrder:
        """The batch that this is the end of."""
        return self.header.batch_order


@dataclass(frozen=True)
class OutputTails:
    """The end of the pipeline's output.

    Args:
        tails: partition -> its tail; without partitions that hold no record of the pipeline.
        is_whole: whether such a partition never held one. False if its oldest records were removed,
            so that nobody knows where its sequences stood.
    """

    tails: Mapping[int, Tail]
    is_whole: bool = True

    @property
    def newest(self) -> BatchOrder | None:
        """The newest batch that has a record in the output."""
        return max((tail.batch for tail in self.tails.values()), default=None)

    def of_batch(self, batch: BatchOrder) -> Mapping[int, Tail]:
        """The tails that are the end of this very batch."""
        return {p: tail for p, tail in self.tails.items() if tail.batch == batch}

    def sequence(self, batch: BatchOrder | None) -> Mapping[int, Range]:
        """`SinkState.sequence` after a batch: every other tail only says where it stands."""
        return {
            partition: (
                tail.first_sequence if tail.batch == batch else tail.header.sequence + 1,
                tail.header.sequence,
            )
            for partition, tail in self.tails.items()
        }

    def lineage(self, fresh: int) -> int:
        """The lineage to go on in.

        It is kept only where every partition proves where its sequences stand. Otherwise readers
        have to be told that numbers come again, which `fresh` does.
        """
        found = {tail.header.lineage for tail in self.tails.values()}
        return found.pop() if self.is_whole and len(found) == 1 else fresh


def last_batch(tails: OutputTails, facts: CheckpointFacts, generation: int) -> BatchOrder:
    """The last batch that was committed, by what output and checkpoint tell.

    Args:
        tails: of the output.
        facts: of the checkpoint.
        generation: where the output tells none.

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
    """A registration whose sequences go on where the output stands after `batch`."""
    sequence = {**blank.sink.sequence, **tails.sequence(batch)}
    lineage = tails.lineage(fresh=lineage_of(blank.run_id))
    return replace(blank, sink=replace(blank.sink, sequence=sequence), lineage=lineage)


def new_generation(blank: HeadEntry, before: HeadEntry | None, tails: OutputTails) -> HeadEntry:
    """The registration of a new generation. Its sequences go on where the output stands.

    Args:
        blank: a registration of this pipeline, with the sequences of `before`.
        before: the `head` of the ledger. It decides, unless the output is further: then the ledger
            was set back, or records were written outside a transaction.
        tails: of the output.

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
