"""Computes an earlier batch again, and compares it with the ledger. Writes no record."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack

from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.protocol.commit import Verdict
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry
from onceflow.protocol.proposal import BatchProposal, HeadProposal
from onceflow.run import Run, Surroundings
from onceflow.runtime.batch.batch import DrainRequestedError
from onceflow.runtime.commit.committer import Payload
from onceflow.runtime.query.query import RunningQuery, start_query
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.session import one_call_site

ONE_BATCH = "24 hours"
"""Between batches: only one is wanted."""
STOP_TIMEOUT_S = 30.0


class Recomputation:
    """One batch of a pipeline, once more.

    It is replayed as a start replays the last one, from a copy of the checkpoint as it was before
    that batch; next to it, so that executors on other machines reach it. The pipeline may run
    meanwhile: nothing of it is written to.
    """

    def __init__(self, file: PipelineFile, around: Surroundings) -> None:
        self._file = file
        self._around = around

    def run(self, batch_id: int) -> HeadEntry:
        """Compute it and compare.

        Returns:
            The ledger's entry, which it agrees with.

        Raises:
            ConfigError: it cannot be computed: ledger or checkpoint do not know it any more, or
                the query is another one.
            CorruptionError: it computes other rows, which are shown; or its records or files of the
                checkpoint are gone.
            RetriableError: Spark has ended meanwhile.
        """
        with ExitStack() as stack, jvm.losses_told():
            run = stack.enter_context(Run(self._file, self._around))
            run.broker.brokers(run.deadline())
            entry = self._entry(run, batch_id)
            self._check_plan(run, entry)
            original = run.checkpoint
            run.checkpoint = run.checkpoint_at(f"{original.location}.verify-{uuid.uuid4()}")
            stack.callback(run.checkpoint.delete)
            original.copy_before(batch_id, run.checkpoint)
            self._replay(run, entry, stack)
            return entry

    def _entry(self, run: Run, batch_id: int) -> HeadEntry:
        history = [*run.ledger.history(DRIVER_SLOT, run.deadline())]
        # An entry with a note repeats a position, and counts nothing.
        own = {
            entry.batch.batch_id: entry
            for entry in history
            if entry.generation == history[-1].generation
            if entry.batch.query_id == history[-1].batch.query_id
            if entry.batch.batch_id != NOTHING_COMMITTED and not entry.note
        }
        if batch_id in own:
            return own[batch_id]
        raise ConfigError(
            "the ledger does not have this batch",
            subject=f"batch {batch_id} of {self._file.pipeline.name}",
            expected=f"one from {min(own)} to {max(own)}" if own else "one that was committed",
            then="brokers compact older entries away",
        )

    def _check_plan(self, run: Run, entry: HeadEntry) -> None:
        if changes := run.identity.changes_since(entry):
            raise ConfigError(
                "this is not the query that wrote the batch",
                subject=f"batch {entry.batch.batch_id} of {self._file.pipeline.name}",
                expected="what the ledger has recorded",
                found=f"changes of {', '.join(changes)}",
                then="verify it with the pipeline file of that time",
            )

    def _replay(self, run: Run, entry: HeadEntry, stack: ExitStack) -> None:
        session = run.open_session(stack)
        run.register(session)
        stack.enter_context(one_call_site(session))
        run.analyse(session)
        done = threading.Event()
        runner = run.runner(entry, entry, _Comparison(), lambda _: None, lambda _: done.set())
        runner.is_quarantined = False
        stream = run.stream(entry).trigger(processingTime=ONE_BATCH)
        query = start_query(stream, run.checkpoint, runner, run.handle)
        max_batch_s = self._around.session.max_batch_s
        running = RunningQuery(query, runner, run.checkpoint, self._around.clock, max_batch_s)
        running.watch(done.is_set, lambda progress: None, [])
        running.drain(STOP_TIMEOUT_S)


class _Comparison:
    """Stands where a run has its committer: judges as that does, and writes nothing."""

    def commit(
        self, proposal: BatchProposal | HeadProposal, head: HeadEntry | None, _: Payload
    ) -> None:
        judgement = proposal.judge(head)
        if judgement.verdict is Verdict.WRITE:
            raise DrainRequestedError  # the next batch
        if judgement.verdict in {Verdict.DIVERGED, Verdict.HALT}:
            raise CorruptionError(
                "an earlier batch now computes different rows",
                subject=f"batch {proposal.entry.batch.batch_id}",
                expected=judgement.expected,
                found=judgement.found,
                then="nothing was written; a replay after a crash would have halted the pipeline",
            )
