"""The life of one pipeline: preflight, take over, run, drain. Wires; decides nothing.

Where what is decided: whether to start in `protocol.compare`, whether a batch is written in
`protocol.proposal`, what follows an error in `protocol.commit`.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onceflow.errors import CorruptionError, FencedError, LineageError, OnceflowError
from onceflow.observe.retention import RetentionGuard, positions_of
from onceflow.pipeline.analysis.ordering import next_order
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.protocol.compare import NOT_WRITTEN, Comparison, Decision, Remedy, compare
from onceflow.protocol.fork import begun_from
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import HeadEntry, Origin, OwnerEntry, SinkState
from onceflow.protocol.order import SORTED, Order
from onceflow.protocol.query_identity import change_error
from onceflow.protocol.takeover import is_mine
from onceflow.run import Run, Surroundings
from onceflow.runtime.batch.batch import BatchOutcome
from onceflow.runtime.checkpoint.disk import require_lasting
from onceflow.runtime.commit.writer import Writer
from onceflow.runtime.query.clock_watch import ClockWatch
from onceflow.runtime.query.progress import ProgressReporter
from onceflow.runtime.query.query import RunningQuery, start_query
from onceflow.runtime.query.warm_up import warm_up, with_small_batches
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.errors import SharedCheckpointError
from onceflow.runtime.spark.session import import_ahead, one_call_site, pooled
from onceflow.runtime.start.look import LOOK_TIMEOUT_S, look
from onceflow.runtime.start.preflight import PreflightReport, preflight
from onceflow.runtime.start.registration import first_head, settle
from onceflow.runtime.state.sampling import StateSampler
from onceflow.runtime.topics.output_tail import (
    AT_FIRST_START,
    EVERYWHERE,
    find_newest,
    find_written,
)
from onceflow.runtime.topics.output_topic import OutputTopic
from onceflow.serve.bulletins import Bulletins, beating
from onceflow.serve.standby import Standby

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS, LANES = 1, 3
LEDGER_PARTITIONS = 1 + SLOTS
TAKEOVER_TIMEOUT_S = 90.0
"""To claim and fence."""
DRAIN_TIMEOUT_S = 120.0
"""For the running batch to end."""
_GOING_ON = {Decision.REGISTER, Decision.GO_ON, Decision.REPAIR_PLAN}


@dataclass(frozen=True)
class RunOptions:
    """Choices of an operator for one run.

    Args:
        is_until_caught_up: end when everything that existed at the start is processed.
        remedy: what to do about a start that would be refused.
        is_change_accepted: go on although the query is another one than before.
        reason: why; recorded in the ledger.
        is_standby: wait, warmed up, until no other instance runs the pipeline.
    """

    is_until_caught_up: bool = False
    remedy: Remedy | None = None
    is_change_accepted: bool = False
    reason: str = ""
    transaction_timeout_s: float = 60.0
    is_standby: bool = False


class Application:
    """One run of one pipeline. Not reusable: another run is another take-over."""

    def __init__(self, file: PipelineFile, options: RunOptions, around: Surroundings) -> None:
        self._run = Run(file, around)
        self._pipeline = file.pipeline
        self._options = options
        self._around = around
        self._drain_requested = threading.Event()
        self._replays_skipped = 0

    def request_drain(self) -> None:
        """End after the running batch. Safe in a signal handler; a second call changes nothing."""
        self._drain_requested.set()

    def run(self) -> None:
        """Run until caught up, drained, or failed.

        Raises:
            ConfigError: refused; nothing was written.
            FencedError: a newer instance took over.
            OnceflowError: as its class says.
        """
        with ExitStack() as stack, self._told_of_the_end(), jvm.losses_told():
            self._go(stack)

    def repair(self) -> HeadEntry:
        """Take over, carry out the remedy, and end without running the query.

        Returns:
            The `head` that the next run starts from.
        """
        with ExitStack() as stack:
            self._open(stack)
            seen, found = self._look()
            writer = self._open_writer(seen, found, stack)
            return self._settle(writer, found)

    @contextmanager
    def _told_of_the_end(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._around.before_close(error)
            raise
        self._around.before_close(None)

    def _go(self, stack: ExitStack) -> None:
        self._open(stack)
        # Spark takes seconds to start; brokers, ledger and checkpoint are looked at meanwhile.
        meanwhile = stack.enter_context(ThreadPoolExecutor(1))
        starting = meanwhile.submit(self._run.open_session, stack)
        # While the query is analysed. If it fails, so does the same call before a stream is opened.
        registering = meanwhile.submit(lambda: self._run.register(starting.result()))
        # A start that is refused need not wait for it.
        stack.callback(registering.cancel)
        seen, found = self._look()
        if self._options.is_standby:
            self._stand_by(starting, stack)
            if self._drain_requested.is_set():
                self._around.report("drained")
                return
            seen, found = self._look()
        checking = meanwhile.submit(self._check_sample, starting, seen)
        with beating(self._around.beat, self._around.clock):
            writer = None
            if seen is not None and seen.plan_hash == self._run.identity.hash:
                # It has run as it is, so Spark will not refuse it: no need to wait for that with
                # the fence, which readers wait for if a driver died in mid-transaction.
                writer = self._open_writer(seen, found, stack)
            self._analyse(starting, stack)
            checking.result()
            writer = writer or self._open_writer(seen, found, stack)
            query, sampler = self._start_query(writer, found, stack)
        self._watch(query, sampler, writer)

    def _open(self, stack: ExitStack) -> None:
        around = self._around
        require_lasting(self._run.file, around.checkpoint_waiver, around.clock.unix_ms())
        stack.enter_context(self._run)

    def _look(self) -> tuple[HeadEntry | None, PreflightReport]:
        """Look before the claim. Writes nothing, so a refused start stops no other instance."""
        run = self._run
        # Fails within seconds if no broker answers; a read would wait for its whole deadline.
        run.broker.brokers(run.deadline())
        seen = look(run.ledger, self._compare, self._around.clock)
        return seen, self._preflight(seen)

    def _analyse(self, starting: Future[SparkSession], stack: ExitStack) -> None:
        import_ahead()
        session = starting.result()
        stack.enter_context(pooled(session, self._pipeline.name))
        stack.enter_context(one_call_site(session))
        self._run.analyse(session)
        if self._options.is_change_accepted:
            for name, change in self._run.require_state().items():
                self._around.report("warning", text=f"state of {name}: {change}")

    def _check_sample(self, starting: Future[SparkSession], seen: HeadEntry | None) -> None:
        if seen is not None and seen.batch.query_id == self._run.checkpoint.query_id():
            self._run.check_sample(starting.result(), seen)

    def _stand_by(self, starting: Future[SparkSession], stack: ExitStack) -> None:
        """Be ready, and wait until the other instance is gone or a drain is asked for."""
        around, name = self._around, self._pipeline.name
        import_ahead()
        session = starting.result()
        if around.session.is_local:
            # Executors elsewhere could not reach the checkpoint that is thrown away.
            with Run(with_small_batches(self._run.file), around) as trial:
                trial.analyse(session)
                warm_up(trial.stream(), trial.handle, around.session.max_result_bytes)
        board = around.connector.bulletin_board(name, around.connection)
        stack.callback(board.close)
        around.report("standby", pipeline=name)
        if why := Standby(board, around.clock).wait(self._is_drained_with_spark):
            around.report("taking_over", pipeline=name, why=why)

    def _is_drained_with_spark(self) -> bool:
        jvm.require_spark()
        return self._drain_requested.is_set()

    def _compare(self, head: HeadEntry | None) -> Comparison:
        broker, clock = self._run.broker, self._around.clock
        facts = self._run.checkpoint.facts()
        written = NOT_WRITTEN
        if head is not None:
            written = find_newest(head, broker, clock)
        elif facts.is_blank or facts.beginning:
            # Nothing else knows the pipeline. Who asks for a remedy waits for a longer look.
            name, topic = self._pipeline.name, self._pipeline.sink.kafka.topic
            look_back = EVERYWHERE if self._options.remedy else AT_FIRST_START
            written = find_written(name, topic, broker, clock, look_back)
        found = compare(facts, head, self._options.remedy, written)
        # A copy goes on from a position as well, although its ledger does not have it yet.
        position = facts.beginning if found.decision is Decision.REGISTER else head
        if position is None or found.decision not in _GOING_ON:
            return found
        is_accepted = self._options.is_change_accepted
        error = change_error(self._run.identity, position, facts, is_accepted=is_accepted)
        return Comparison(Decision.HALT, error) if error else found

    def _preflight(self, head: HeadEntry | None) -> PreflightReport:
        run, is_new = self._run, self._options.remedy is Remedy.NEW_GENERATION
        recorded = head.sink if head and not is_new else None
        copied = run.checkpoint.copied()
        if head and recorded and copied and copied.origin == Origin.of(head):
            # With its state, the output may move to other partitions.
            wanted = self._pipeline.sink.kafka.partitions or recorded.partitions
            recorded = replace(recorded, partitions=wanted)
        timeout_ms = int(self._options.transaction_timeout_s * 1000)
        found = preflight(run.broker, self._pipeline, recorded, timeout_ms, run.deadline())
        for warning in found.warnings:
            self._around.report("warning", text=str(warning))
        return found

    def _open_writer(
        self, seen: HeadEntry | None, found: PreflightReport, stack: ExitStack
    ) -> Writer:
        """Create what is missing, then claim and fence; check what the look could not see."""
        run, around, options = self._run, self._around, self._options
        for topic in found.create:
            run.broker.create_topic(topic, run.deadline())
        run.ledger.create(LEDGER_PARTITIONS, run.deadline())
        writer = Writer(
            pipeline=self._pipeline.name,
            layout=Layout(SLOTS, LANES),
            connector=around.connector,
            connection=around.connection,
            ledger=run.ledger,
            clock=around.clock,
            transaction_timeout_s=options.transaction_timeout_s,
            takeover_timeout_s=TAKEOVER_TIMEOUT_S,
            observer=around.observer,
            max_batch_bytes=found.max_batch_bytes,
        )
        takeover = stack.enter_context(writer).claim(self._compare)
        if seen is None and takeover.head is not None:
            writer.max_batch_bytes = self._preflight(takeover.head).max_batch_bytes
        around.report(
            "owner",
            pipeline=self._pipeline.name,
            token=takeover.owner.token,
            run_id=takeover.owner.run_id,
        )
        return writer

    def _settle(
        self, writer: Writer, found: PreflightReport, order: Order | None = None
    ) -> HeadEntry:
        run, owner, head = self._run, writer.takeover.owner, writer.takeover.head
        query_id = run.checkpoint.query_id()
        if query_id is None:
            query_id = str(uuid.uuid4())
            run.checkpoint.create(query_id)
        topic = self._pipeline.sink.kafka.topic
        topic_id = found.topic_id or run.broker.topic_id(topic, run.deadline()) or ""
        sink = SinkState(topic, found.partitions, writer.layout, topic_id=topic_id)
        wanted = replace(
            first_head(self._pipeline.name, query_id, sink, run.identity, owner),
            note=self._options.reason,
            delivery=self._pipeline.mode,
            next_order=order or (head.next_order if head else SORTED),
        )
        copied = run.checkpoint.copied()
        if copied is not None and writer.takeover.comparison.decision is Decision.REGISTER:
            wanted = begun_from(copied, wanted)
        is_accepted = self._options.is_change_accepted
        try:
            return settle(
                writer, wanted, run.checkpoint, run.broker, is_change_accepted=is_accepted
            )
        except (CorruptionError, LineageError) as error:
            raise self._cause(error, owner) from error

    def _start_query(
        self, writer: Writer, found: PreflightReport, stack: ExitStack
    ) -> tuple[RunningQuery, StateSampler]:
        run, around, options = self._run, self._around, self._options
        facts, analysis = run.checkpoint.facts(), run.analysis
        order = next_order(analysis.order, analysis.output, writer.takeover.head, facts)
        head = self._settle(writer, found, order)
        output = OutputTopic(run.broker, around.clock, options.transaction_timeout_s)
        owner, committer = writer.takeover.owner, writer.committer
        sampler = stack.enter_context(run.sampler(head))
        # A run may have one batch only.
        self._sample(sampler, facts.done)
        on_batch = partial(self._on_batch, sampler)
        runner = run.runner(head, owner, committer, output.check, on_batch)
        runner.state_sample = lambda: sampler.newest
        pause = f"{self._pipeline.trigger_ms} milliseconds"
        run.record_state(is_changed=options.is_change_accepted)
        stream = run.stream(head)
        if options.is_until_caught_up:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=pause)
        query = start_query(stream, run.checkpoint, runner, run.handle)
        most_s = around.session.max_batch_s
        return RunningQuery(query, runner, run.checkpoint, around.clock, most_s), sampler

    def _watch(self, query: RunningQuery, sampler: StateSampler, writer: Writer) -> None:
        broker, report, clock = self._run.broker, self._around.report, self._around.clock
        head = query.head
        report("running", query_id=head.batch.query_id, batch_id=head.batch.batch_id)
        self._around.observer.position(head)
        guard = RetentionGuard(
            broker,
            lambda: positions_of(query.head),
            clock,
            lambda text: report("warning", text=text),
        )
        progress = ProgressReporter(
            report,
            broker,
            lambda: query.head,
            lambda: sampler.rows if self._run.analysis.is_stateful else 0,
            guard.left_s,
            clock,
            self._around.observer,
        )
        watches: list[Callable[[], None]] = [ClockWatch(clock), guard, self._around.beat]
        try:
            query.watch(self._drain_requested.is_set, progress, watches)
        except SharedCheckpointError as error:
            raise self._cause(error, writer.takeover.owner) from error
        if self._drain_requested.is_set():
            report("draining")
            with beating(self._around.beat, clock):
                is_whole = query.drain(DRAIN_TIMEOUT_S)
            report("drained" if is_whole else "cut_off")
        else:
            report("caught_up")

    def _cause(self, error: OnceflowError, owner: OwnerEntry) -> OnceflowError:
        """Before any halt: an instance that was taken over sees what its successor moves."""
        try:
            found = self._run.ledger.read_owner(self._around.clock.within(LOOK_TIMEOUT_S))
        except OnceflowError:
            return error
        if is_mine(found, owner.run_id):
            return error
        return FencedError.by_newer_instance(self._pipeline.name, owner.run_id, found=str(error))

    def _sample(self, sampler: StateSampler, batch_id: int) -> None:
        if self._run.analysis.is_stateful:
            sampler.begin(batch_id)

    def _on_batch(self, sampler: StateSampler, outcome: BatchOutcome) -> None:
        head = outcome.head
        # Spark has not logged this batch as done yet.
        self._sample(sampler, head.batch.batch_id - 1)
        self._replays_skipped += outcome.is_skipped
        self._around.observer.position(head)
        self._around.report(
            "batch",
            batch_id=head.batch.batch_id,
            is_skipped=outcome.is_skipped,
            replays_skipped=self._replays_skipped,
            records=asdict(head.records),
            batch_timestamp_ms=head.plan.batch_timestamp_ms,
            event_watermark_ms=head.plan.event_watermark_ms,
            newest_event_ms=head.newest_event_ms,
        )


def with_bulletins(
    file: PipelineFile,
    options: RunOptions,
    around: Surroundings,
    before_close: Callable[[BaseException | None], None],
) -> Application:
    """A run that also posts bulletins; `before_close` gets its end before that is posted."""
    board = around.connector.bulletin_board(file.pipeline.name, around.connection)
    budget_bytes = around.session.driver_memory_bytes
    bulletins = Bulletins(board, socket.gethostname(), budget_bytes, around.clock, around.report)

    def end(error: BaseException | None) -> None:
        before_close(error)
        bulletins.end(error)

    posting = replace(around, report=bulletins, before_close=end, beat=bulletins.beat)
    return Application(file, options, posting)
