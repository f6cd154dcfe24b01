"""Computes a batch of the past again, and compares it with the ledger. Writes no record."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from dataclasses import replace

from onceflow.assembly import Assembly, Surroundings, Tools
from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.loader import PipelineFile
from onceflow.protocol.commit import Verdict
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry
from onceflow.protocol.proposal import BatchProposal, HeadProposal
from onceflow.runtime import jvm
from onceflow.runtime.batch import BatchOutcome, BatchRunner, DrainRequestedError
from onceflow.runtime.committer import Payload
from onceflow.runtime.divergence import DivergenceDesk
from onceflow.runtime.query import RunningQuery, start_query
from onceflow.runtime.session import one_call_site
from onceflow.runtime.source import register
from onceflow.runtime.ticks import EventTimeTeller

ONE_BATCH_MS = 24 * 3600 * 1000
"""Between batches: the one behind is not wanted."""
STOP_TIMEOUT_S = 30.0


class Recomputation:
    """One batch of a pipeline, once more.

    It is replayed as a start replays the last one, from a copy of the checkpoint as it was before
    that batch; beside it, so that executors on other machines reach it. The pipeline may run
    meanwhile: nothing of it is written to.

    Args:
        file: of the pipeline.
        around: where it runs.
    """

    def __init__(self, file: PipelineFile, around: Surroundings) -> None:
        self._pipeline = file.pipeline
        self._around = around
        self._assembly = Assembly(file, around)

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
            tools = self._assembly.open_tools(stack)
            tools.broker.brokers(self._assembly.deadline())
            entry = self._entry(tools, batch_id)
            self._check_plan(entry)
            location = f"{self._pipeline.checkpoint_location}.verify-{uuid.uuid4()}"
            copy = self._assembly.checkpoint(location, tools.sources)
            stack.callback(copy.delete)
            tools.checkpoint.copy_before(batch_id, copy)
            self._replay(entry, replace(tools, checkpoint=copy), location, stack)
            return entry

    def _entry(self, tools: Tools, batch_id: int) -> HeadEntry:
        history = [*tools.ledger.history(DRIVER_SLOT, self._assembly.deadline())]
        # An entry with a note repeats a position, and counts nothing.
        own = {
            entry.batch.batch_id: entry
            for entry in history
            if entry.generation == history[-1].generation
            if entry.batch.batch_id != NOTHING_COMMITTED and not entry.note
        }
        if batch_id in own:
            return own[batch_id]
        raise ConfigError(
            "the ledger does not have this batch",
            subject=f"batch {batch_id} of {self._pipeline.name}",
            expected=f"one from {min(own)} to {max(own)}" if own else "one that was committed",
            then="brokers compact older entries away",
        )

    def _check_plan(self, entry: HeadEntry) -> None:
        if changes := self._assembly.plan.changes_since(entry):
            raise ConfigError(
                "this is not the query that wrote the batch",
                subject=f"batch {entry.batch.batch_id} of {self._pipeline.name}",
                expected="what the ledger has recorded",
                found=f"changes of {', '.join(changes)}",
                then="verify it with the pipeline file of that time",
            )

    def _replay(self, entry: HeadEntry, tools: Tools, location: str, stack: ExitStack) -> None:
        session = self._assembly.open_session(stack)
        register(session)
        stack.enter_context(one_call_site(session))
        analysis = self._assembly.analyse(session)
        event_time = EventTimeTeller(self._around.clock)
        stack.callback(event_time.close)
        query = self._assembly.prepare(session, analysis, tools, event_time)
        divergence = DivergenceDesk(
            is_quarantined=False, broker=tools.broker, deadline=self._assembly.deadline
        )
        settings = query.settings(entry, entry.token, entry.run_id, lambda sink: None, divergence)
        done = threading.Event()

        def on_batch(_: BatchOutcome) -> None:
            done.set()

        runner = BatchRunner(settings, tools.checkpoint, _Comparison(), entry, on_batch)
        plan = replace(query.plan(location, entry), trigger_ms=ONE_BATCH_MS)
        running = RunningQuery(
            start_query(plan, runner, query.handle),
            runner,
            tools.checkpoint,
            self._around.clock,
            self._around.session.max_batch_s,
        )
        running.watch(done.is_set, lambda progress: None, [])
        running.drain(STOP_TIMEOUT_S)


class _Comparison:
    """Stands where a run has its committer: judges as that does, and writes nothing."""

    def commit(
        self, proposal: BatchProposal | HeadProposal, head: HeadEntry | None, _: Payload
    ) -> None:
        judgement = proposal.judge(head)
        if judgement.verdict is Verdict.WRITE:
            raise DrainRequestedError  # the batch behind it
        if judgement.verdict is Verdict.HALT:
            raise CorruptionError(
                "a batch of the past computes otherwise now",
                subject=f"batch {proposal.entry.batch.batch_id}",
                expected=judgement.expected,
                found=judgement.found,
                then="nothing was written; a replay after a crash would have halted the pipeline",
            )
