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
from typing import TYPE_CHECKING

from onceflow.assembly import Assembly, Surroundings, Tools
from onceflow.clock import Deadline
from onceflow.contracts.sink import Ledger
from onceflow.errors import CorruptionError, FencedError, LineageError, OnceflowError
from onceflow.ops.bulletins import Bulletins, beating
from onceflow.ops.retention import RetentionGuard
from onceflow.ops.standby import Standby
from onceflow.pipeline.analysis import Analysis
from onceflow.pipeline.loader import PipelineFile
from onceflow.pipeline.ordering import next_order
from onceflow.protocol.compare import NOT_WRITTEN, Comparison, Decision, Remedy, compare
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import HeadEntry, OwnerEntry
from onceflow.protocol.order import Order
from onceflow.protocol.plan_identity import change_error
from onceflow.protocol.tails import new_generation
from onceflow.protocol.takeover import Claimant, is_mine
from onceflow.runtime import jvm
from onceflow.runtime.batch import BatchOutcome, BatchRunner
from onceflow.runtime.checkpoint_disk import require_lasting
from onceflow.runtime.clock_watch import ClockWatch
from onceflow.runtime.committer import Committer, CommitTimeouts, CommitTools
from onceflow.runtime.divergence import DivergenceDesk
from onceflow.runtime.lanes import LanePool, LaneSettings
from onceflow.runtime.look import LOOK_TIMEOUT_S, look
from onceflow.runtime.output_tail import (
    AT_FIRST_START,
    EVERYWHERE,
    find_newest,
    find_written,
    read_tails,
)
from onceflow.runtime.output_topic import OutputTopic
from onceflow.runtime.preflight import PreflightReport, TopicNeeds, preflight
from onceflow.runtime.progress import ProgressReporter
from onceflow.runtime.query import RunningQuery, start_query
from onceflow.runtime.rebuild import rebuild_head
from onceflow.runtime.registration import Registration, Repairs, settle
from onceflow.runtime.session import import_ahead, one_call_site, pooled
from onceflow.runtime.source import register
from onceflow.runtime.spark_errors import SharedCheckpointError
from onceflow.runtime.takeover import Takeover, TakeoverPlan, confirm_owner, take_over
from onceflow.runtime.ticks import EventTimeTeller
from onceflow.runtime.warm_up import warm_up, with_small_batches
from onceflow.runtime.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 1
LEDGER_PARTITIONS = 1 + SLOTS


@dataclass(frozen=True)
class RunOptions:
    """What an operator says at a start.

    Args:
        is_until_caught_up: end when everything that existed at the start is processed.
        remedy: what to do about a start that would be refused.
        is_change_accepted: go on although the query is another one than before.
        reason: why; recorded in the ledger.
        lanes: transactional ids used in turn.
        transaction_timeout_s: budget of one batch's transaction.
        takeover_timeout_s: budget to claim and fence.
        drain_timeout_s: how long a drain waits for the running batch.
        is_standby: wait, warmed up, until no other instance runs the pipeline.
    """

    is_until_caught_up: bool = False
    remedy: Remedy | None = None
    is_change_accepted: bool = False
    reason: str = ""
    lanes: int = 3
    transaction_timeout_s: float = 60.0
    takeover_timeout_s: float = 90.0
    drain_timeout_s: float = 120.0
    is_standby: bool = False


class Application:
    """One run of one pipeline. Not reusable: a further run is a further take-over."""

    def __init__(self, file: PipelineFile, options: RunOptions, around: Surroundings) -> None:
        self._file = file
        self._pipeline = file.pipeline
        self._options = options
        self._around = around
        self._assembly = Assembly(file, around)
        self._deadline = self._assembly.deadline
        self._drain_requested = threading.Event()
        self._layout = Layout(SLOTS, options.lanes)
        self._replays_skipped = 0
        self._writers = Writers(around.connector, around.connection, options.transaction_timeout_s)
        self._event_time = EventTimeTeller(around.clock)

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
            stack.callback(self._event_time.close)
            self._run(stack)

    def repair(self) -> HeadEntry:
        """Take over, carry out the remedy, and end without running the query.

        Returns:
            The `head` that the next run starts from.
        """
        with ExitStack() as stack:
            tools = self._open_tools(stack)
            seen = self._look(tools)
            found = self._preflight(tools, seen)
            owned = self._become_owner(tools, found, seen, stack)
            return self._settle(owned, tools, found, order=None)

    @contextmanager
    def _told_of_the_end(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._around.before_close(error)
            raise
        self._around.before_close(None)

    def _run(self, stack: ExitStack) -> None:
        tools = self._open_tools(stack)
        # Spark takes seconds to start; brokers, ledger and checkpoint are looked at meanwhile.
        meanwhile = stack.enter_context(ThreadPoolExecutor(1))
        starting = meanwhile.submit(self._assembly.open_session, stack)
        # While the query is analysed. If it fails, so does the same call before a stream is opened.
        registering = meanwhile.submit(lambda: register(starting.result()))
        # A start that is refused need not wait for it.
        stack.callback(registering.cancel)
        seen = self._look(tools)
        found = self._preflight(tools, seen)
        if self._options.is_standby:
            self._stand_by(starting, stack)
            if self._drain_requested.is_set():
                self._around.report("drained")
                return
            seen = self._look(tools)
            found = self._preflight(tools, seen)
        with beating(self._around.beat, self._around.clock):
            query = self._start(tools, starting, stack, seen, found)
        self._watch(query)

    def _start(
        self,
        tools: Tools,
        starting: Future[SparkSession],
        stack: ExitStack,
        seen: HeadEntry | None,
        found: PreflightReport,
    ) -> _Started:
        owned = None
        if seen is not None and seen.plan_hash == self._assembly.plan.hash:
            # It has run as it is, so Spark will not refuse it: no need to wait for that with the
            # fence, which is what readers wait for if a driver died in mid-transaction.
            owned = self._become_owner(tools, found, seen, stack)
        import_ahead()
        session = starting.result()
        stack.enter_context(pooled(session, self._pipeline.name))
        stack.enter_context(one_call_site(session))
        analysis = self._assembly.analyse(session)
        owned = owned or self._become_owner(tools, found, seen, stack)
        seen, facts = owned.takeover.head, tools.checkpoint.facts()
        order = next_order(analysis.order, analysis.output, seen, facts)
        head = self._settle(owned, tools, found, order)
        return self._start_query(session, analysis, head, tools, owned)

    def _stand_by(self, starting: Future[SparkSession], stack: ExitStack) -> None:
        """Be ready, and wait until the other instance is gone or a drain is asked for."""
        around, name = self._around, self._pipeline.name
        import_ahead()
        session = starting.result()
        if around.session.is_local:
            # Executors elsewhere could not reach the checkpoint that is thrown away.
            self._warm_up(session)
        board = around.connector.bulletin_board(name, around.connection)
        stack.callback(board.close)
        around.report("standby", pipeline=name)
        if why := Standby(board, around.clock).wait(self._is_drained_with_spark):
            around.report("taking_over", pipeline=name, why=why)

    def _is_drained_with_spark(self) -> bool:
        jvm.require_spark()
        return self._drain_requested.is_set()

    def _warm_up(self, session: SparkSession) -> None:
        around = self._around
        trial = Assembly(with_small_batches(self._file), around)
        with ExitStack() as stack:
            event_time = EventTimeTeller(around.clock)
            stack.callback(event_time.close)
            tools = trial.open_tools(stack)
            query = trial.prepare(session, trial.analyse(session), tools, event_time)
            warm_up(query.plan(""), query.handle, around.session.max_result_bytes)

    def _open_tools(self, stack: ExitStack) -> Tools:
        around = self._around
        require_lasting(self._file, around.checkpoint_waiver, around.clock.unix_ms())
        return self._assembly.open_tools(stack)

    def _look(self, tools: Tools) -> HeadEntry | None:
        # Whether anybody answers is told within seconds; a read would wait out its whole deadline.
        tools.broker.brokers(self._deadline())
        return look(tools.ledger, lambda head: self._compare(tools, head), self._around.clock)

    def _compare(self, tools: Tools, head: HeadEntry | None) -> Comparison:
        facts = tools.checkpoint.facts()
        written = NOT_WRITTEN
        if head is not None:
            written = find_newest(head, tools.broker, self._around.clock)
        elif facts.is_blank:
            # Nothing else knows the pipeline. Who asks for a remedy waits for a longer look.
            name, topic = self._pipeline.name, self._pipeline.sink.kafka.topic
            look_back = EVERYWHERE if self._options.remedy else AT_FIRST_START
            written = find_written(name, topic, tools.broker, self._around.clock, look_back)
        found = compare(facts, head, self._options.remedy, written)
        if head is None or found.decision not in {Decision.GO_ON, Decision.REPAIR_PLAN}:
            return found
        is_accepted = self._options.is_change_accepted
        error = change_error(self._assembly.plan, head, facts, is_accepted=is_accepted)
        return Comparison(Decision.HALT, error) if error else found

    def _preflight(self, tools: Tools, head: HeadEntry | None) -> PreflightReport:
        pipeline, kafka = self._pipeline, self._pipeline.sink.kafka
        is_new = self._options.remedy is Remedy.NEW_GENERATION
        needs = TopicNeeds(
            pipeline=pipeline.name,
            inputs=[t for source in pipeline.sources.values() for t in source.kafka.named],
            output=kafka.topic,
            beside=self._assembly.parts.beside,
            partitions=kafka.partitions,
            recorded=head.sink if head and not is_new else None,
            transaction_timeout_ms=self._writers.timeout_ms,
        )
        found = preflight(tools.broker, needs, self._deadline())
        self._writers.max_batch_bytes = found.max_batch_bytes
        for warning in found.warnings:
            self._around.report("warning", text=str(warning))
        return found

    def _become_owner(
        self, tools: Tools, found: PreflightReport, seen: HeadEntry | None, stack: ExitStack
    ) -> _Owned:
        takeover = self._take_over(tools, found, seen)
        return _Owned(takeover, self._committer(takeover, tools, stack))

    def _take_over(self, tools: Tools, found: PreflightReport, seen: HeadEntry | None) -> Takeover:
        """Create what is missing, then claim and fence; check what the look could not see."""
        for topic in found.create:
            tools.broker.create_topic(topic, self._deadline())
        tools.ledger.create(LEDGER_PARTITIONS, self._deadline())
        claimant = Claimant(
            run_id=str(uuid.uuid4()),
            host=socket.gethostname(),
            started_at_ms=self._around.clock.unix_ms(),
            layout=self._layout,
        )
        takeover = take_over(
            TakeoverPlan(
                pipeline=self._pipeline.name,
                claimant=claimant,
                open_incarnation=self._writers.incarnation,
                ledger=tools.ledger,
                compare=lambda head: self._compare(tools, head),
                clock=self._around.clock,
                timeout_s=self._options.takeover_timeout_s,
            )
        )
        if seen is None and takeover.head is not None:
            self._preflight(tools, takeover.head)
        self._around.report(
            "owner",
            pipeline=self._pipeline.name,
            token=takeover.owner.token,
            run_id=takeover.owner.run_id,
        )
        return takeover

    def _committer(self, takeover: Takeover, tools: Tools, stack: ExitStack) -> Committer:
        around, options, name = self._around, self._options, self._pipeline.name
        # The pool reads `owner` from its own threads, the committer from Spark's.
        pool_ledger = around.connector.ledger(name, around.connection)
        stack.callback(pool_ledger.close)
        settings = LaneSettings(
            pipeline=name,
            layout=self._layout,
            run_id=takeover.owner.run_id,
            open_incarnation=self._writers.incarnation,
            ledger=pool_ledger,
            clock=around.clock,
            settle_timeout_s=options.transaction_timeout_s,
        )
        pool = LanePool(settings)
        stack.callback(pool.close)
        pool.start(takeover.lanes)
        appender = self._writers.appender()
        stack.callback(appender.close)
        return Committer(
            CommitTools(
                name,
                settings.run_id,
                pool,
                appender,
                tools.ledger,
                around.clock,
                CommitTimeouts(options.transaction_timeout_s, options.takeover_timeout_s),
                around.observer,
            )
        )

    def _settle(
        self, owned: _Owned, tools: Tools, found: PreflightReport, order: Order | None
    ) -> HeadEntry:
        query_id = tools.checkpoint.query_id()
        if query_id is None:
            query_id = str(uuid.uuid4())
            tools.checkpoint.create(query_id)
        topic = self._pipeline.sink.kafka.topic
        wanted = Registration(
            pipeline=self._pipeline.name,
            query_id=query_id,
            topic=topic,
            topic_id=found.topic_id or tools.broker.topic_id(topic, self._deadline()) or "",
            partitions=found.partitions,
            layout=self._layout,
            plan=self._assembly.plan,
            reason=self._options.reason,
            is_change_accepted=self._options.is_change_accepted,
            delivery=self._pipeline.mode,
            order=order,
        )
        deadline = Deadline.after(self._around.clock, EVERYWHERE.timeout_s)
        repairs = Repairs(
            lambda: confirm_owner(
                wanted.pipeline, tools.ledger, owned.takeover.owner, self._deadline()
            ),
            tools.checkpoint.write_plan,
            lambda blank: rebuild_head(blank, tools.broker, tools.checkpoint, deadline),
            lambda blank, before: new_generation(
                blank, before, read_tails(blank, tools.broker, deadline)
            ),
        )
        try:
            return settle(owned.takeover, wanted, repairs, owned.committer)
        except (CorruptionError, LineageError) as error:
            raise self._cause(error, owned.takeover.owner, tools.ledger) from error

    def _start_query(
        self,
        session: SparkSession,
        analysis: Analysis,
        head: HeadEntry,
        tools: Tools,
        owned: _Owned,
    ) -> _Started:
        options, owner = self._options, owned.takeover.owner
        query = self._assembly.prepare(session, analysis, tools, self._event_time)
        output = OutputTopic(tools.broker, self._around.clock, options.transaction_timeout_s)
        is_quarantined = self._pipeline.on_divergence == "quarantine"
        divergence = DivergenceDesk(is_quarantined, tools.broker, self._deadline)
        settings = query.settings(head, owner.token, owner.run_id, output.check, divergence)
        runner = BatchRunner(settings, tools.checkpoint, owned.committer, head, self._on_batch)
        plan = replace(
            query.plan(self._pipeline.checkpoint_location, head),
            is_until_caught_up=options.is_until_caught_up,
        )
        running = RunningQuery(
            start_query(plan, runner, query.handle),
            runner,
            tools.checkpoint,
            self._around.clock,
            self._around.session.max_batch_s,
        )
        return _Started(running, runner, tools, owner)

    def _watch(self, started: _Started) -> None:
        query, runner, tools = started.query, started.runner, started.tools
        head, report, clock = runner.head, self._around.report, self._around.clock
        report("running", query_id=head.batch.query_id, batch_id=head.batch.batch_id)
        self._around.observer.position(head)
        guard = RetentionGuard(
            tools.broker, lambda: runner.head, clock, lambda text: report("warning", text=text)
        )
        progress = ProgressReporter(
            report, tools.broker, lambda: runner.head, guard.left_s, clock, self._around.observer
        )
        watches: list[Callable[[], None]] = [ClockWatch(clock), guard, self._around.beat]
        try:
            query.watch(self._drain_requested.is_set, progress, watches)
        except SharedCheckpointError as error:
            raise self._cause(error, started.owner, tools.ledger) from error
        if self._drain_requested.is_set():
            report("draining")
            with beating(self._around.beat, self._around.clock):
                is_whole = query.drain(self._options.drain_timeout_s)
            report("drained" if is_whole else "cut_off")
        else:
            report("caught_up")

    def _cause(self, error: OnceflowError, owner: OwnerEntry, ledger: Ledger) -> OnceflowError:
        """Before any halt: whoever was taken over sees what its successor moves."""
        try:
            found = ledger.read_owner(Deadline.after(self._around.clock, LOOK_TIMEOUT_S))
        except OnceflowError:
            return error
        if is_mine(found, owner.run_id):
            return error
        return FencedError.by_newer_instance(self._pipeline.name, owner.run_id, found=str(error))

    def _on_batch(self, outcome: BatchOutcome) -> None:
        head = outcome.head
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


@dataclass(frozen=True)
class _Owned:
    """What a take-over gives."""

    takeover: Takeover
    committer: Committer


@dataclass(frozen=True)
class _Started:
    """A query that runs, and what it is watched with."""

    query: RunningQuery
    runner: BatchRunner
    tools: Tools
    owner: OwnerEntry


def with_bulletins(
    file: PipelineFile,
    options: RunOptions,
    around: Surroundings,
    before_close: Callable[[BaseException | None], None],
) -> Application:
    """A run whose bulletins are posted beside what it reports.

    Args:
        file: of the pipeline.
        options: of the run.
        around: of the process; told what happens as well.
        before_close: told what the run ends with, before that is posted.
    """
    board = around.connector.bulletin_board(file.pipeline.name, around.connection)
    budget_bytes = around.session.driver_memory_bytes
    bulletins = Bulletins(board, socket.gethostname(), budget_bytes, around.clock, around.report)

    def end(error: BaseException | None) -> None:
        before_close(error)
        bulletins.end(error)

    posting = replace(around, report=bulletins, before_close=end, beat=bulletins.beat)
    return Application(file, options, posting)
