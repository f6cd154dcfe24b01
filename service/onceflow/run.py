"""Builds the parts of one pipeline, for a run and for `ledger verify --batch`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, Connection, Connector
from onceflow.contracts.observer import Observer, Report
from onceflow.contracts.sink import Ledger
from onceflow.errors import NEW_GENERATION, ConfigError
from onceflow.java.s3_jars import require_s3_jars
from onceflow.pipeline.analysis.analysis import Analysis, analyse
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.pipeline.plan.operators import StateOperator, describe_operators
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.process.initial import MAX_BYTES, read_initial
from onceflow.pipeline.query.promises import require_sources
from onceflow.processing.evolution import Evolution, compare_state
from onceflow.processing.runner import Runner
from onceflow.protocol.ledger import HeadEntry, OwnerEntry, SinkState
from onceflow.protocol.order import Order
from onceflow.protocol.query_identity import QueryIdentity, fingerprint
from onceflow.runtime.batch.batch import BatchOutcome, BatchRunner, Commits
from onceflow.runtime.batch.divergence import DivergenceDesk
from onceflow.runtime.batch.executed import Execution, ExecutionReader
from onceflow.runtime.batch.late import LateDesk
from onceflow.runtime.batch.parameters import ParameterDesk
from onceflow.runtime.batch.references import ReferenceDesk
from onceflow.runtime.batch.rejects import RejectDesk
from onceflow.runtime.checkpoint.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.commit.writer import record_limit_bytes
from onceflow.runtime.query.parts import Parts
from onceflow.runtime.query.query import QueryHandle
from onceflow.runtime.records.output import to_record_columns
from onceflow.runtime.records.row_guard import guard_rows
from onceflow.runtime.source.data_source import register
from onceflow.runtime.source.opening import need_workers
from onceflow.runtime.source.ticks import EventTimeTeller
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.s3_files import SCHEME
from onceflow.runtime.spark.session import (
    COUNT_ROWS,
    TIME_ZONE,
    SessionSettings,
    SharedEngine,
    open_session,
)
from onceflow.runtime.state.change import compare_operators
from onceflow.runtime.state.forms import form_written_by
from onceflow.runtime.state.reader import StateReader, opened_state
from onceflow.runtime.state.sampling import StateSampler, require_same
from onceflow.runtime.topics.table import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_UP_TIMEOUT_S = 30.0
"""For one round of look-ups at the brokers; an address without a broker fails sooner."""
INITIAL_TIMEOUT_S = 300.0
"""For all of a topic that a state begins with."""
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class Surroundings:
    """The process that a run runs in, and what it lends it.

    Args:
        before_close: told what a run ends with, None for a good end, before anything is closed.
        engine: Spark that other pipelines of this process use too; None for one of its own.
        checkpoint_waiver: accepts checkpoints that are lost with the process.
        observer: told figures that only programs want.
        beat: called several times a second from the claim on, while the run makes progress.
    """

    connector: Connector
    connection: Connection
    session: SessionSettings
    clock: Clock
    report: Report
    before_close: Callable[[BaseException | None], None] = lambda error: None
    engine: SharedEngine | None = None
    checkpoint_waiver: CheckpointWaiver | None = None
    observer: Observer = field(default_factory=Observer)
    beat: Callable[[], None] = lambda: None


class Run:
    """One pipeline in one process: what it is read, computed and written with.

    Look-ups work once it is entered; what concerns Spark, once the query is analysed.

    Attributes:
        checkpoint: Spark's checkpoint of the pipeline, or a copy of it that lies elsewhere.
        handle: of the query, once it is analysed.
    """

    broker: Broker
    ledger: Ledger
    checkpoint: Checkpoint
    handle: QueryHandle

    def __init__(self, file: PipelineFile, around: Surroundings) -> None:
        self.file = file
        self.pipeline = file.pipeline
        self.around = around
        self.parts = Parts(file.pipeline, around.connector, around.connection, around.session.conf)
        self._sources: dict[str, SourceArithmetic] = {}
        self._event_time = EventTimeTeller(around.clock)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open what the pipeline is looked at with.

        Raises:
            ConfigError: a source cannot keep what `delivery` promises, or cannot have the client
                properties.
            ConfigError, RetriableError: the checkpoint cannot be reached.
        """
        with ExitStack() as stack:
            stack.callback(self._event_time.close)
            around = self.around
            require_sources(self.file)
            sources = self.pipeline.sources.values()
            self._needs_workers = need_workers(sources, around.connection)
            self.broker = around.connector.broker(around.connection)
            stack.callback(self.broker.close)
            self.ledger = around.connector.ledger(self.pipeline.name, around.connection)
            stack.callback(self.ledger.close)
            for name, source in self.pipeline.sources.items():
                spec = self.parts.spec(name, _NO_COLUMNS)
                planner = source.block.planner(spec, around.connection)
                stack.callback(planner.close)
                self._sources[name] = SourceArithmetic(planner.ranges, planner.position)
            self.checkpoint = self.checkpoint_at(self.pipeline.checkpoint_location)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def identity(self) -> QueryIdentity:
        """Everything that results depend on, by name."""
        parts = {name: fingerprint(part) for name, part in self.pipeline.result_parts().items()}
        versions = {
            "spark": version("pyspark"),
            "python": ".".join(map(str, sys.version_info[:2])),
            "time zone": TIME_ZONE,
            # Chosen by cores, they are those of the first start: the checkpoint has pinned them.
            "shuffle partitions": str(self.around.session.shuffle_partitions or "by cores"),
        }
        return QueryIdentity({**parts, **versions})

    def deadline(self) -> Deadline:
        """Time for one round of look-ups."""
        return self.around.clock.within(LOOK_UP_TIMEOUT_S)

    def checkpoint_at(self, location: str) -> Checkpoint:
        """The pipeline's checkpoint, or a copy of it that lies elsewhere.

        Raises:
            ConfigError, RetriableError: it cannot be reached.
        """
        if location.startswith(SCHEME):
            require_s3_jars(location)
        conf = self.around.session.conf
        return Checkpoint(location, self.pipeline.name, self._sources, conf)

    def open_session(self, stack: ExitStack) -> SparkSession:
        """Start Spark; `stack` stops it unless others use it too."""
        pipeline, engine = self.pipeline, self.around.engine
        if engine is not None:
            session = engine.open_session(pipeline.checkpoint_location)
        else:
            session = open_session(
                pipeline.name,
                self.around.session,
                pipeline.checkpoint_location,
                has_processors=pipeline.has_processors,
            )
            # Last: if a look has failed meanwhile, this is undone at once.
            stack.callback(jvm.stop, session)
        if any(source.idle_after_ms is not None for source in pipeline.sources.values()):
            session.conf.set(COUNT_ROWS, "true")  # ticks end when no row waits for them
        return session

    def register(self, session: SparkSession) -> None:
        """Tell Spark of the sources that Python workers read, if there are any."""
        if self._needs_workers:
            register(session)

    def analyse(self, session: SparkSession) -> Analysis:
        """Analyse the query; everything that is wrong with it is found before the claim."""
        self._session = session
        self.analysis = analyse(session, self.file, self.around.clock.unix_ms())
        for warning in self.analysis.warnings:
            self.around.report("warning", text=str(warning))
        guard_rows(session, self.around.session.max_rows)
        self.handle = QueryHandle(ExecutionReader(session, [*self.pipeline.sources]))
        return self.analysis

    def check_state(self) -> Mapping[str, Evolution]:
        """Compare the state that the query and its processors keep with what the checkpoint has.

        Returns:
            What becomes of the state of each operator and each step that has any.
        """
        recorded = self.checkpoint.recorded.operators()
        found: dict[str, Evolution] = {}
        if recorded is not None:
            before = [StateOperator(**each) for each in recorded]
            found.update(compare_operators(before, self.operators))
        elif self.checkpoint.has_state:
            found["query"] = Evolution(kept=["as Spark numbers it; an older release wrote it"])
        for name, runner in self.analysis.processors.items():
            if states := self.checkpoint.recorded.states_of(name):
                found[name] = compare_state(states[-1]["declared"], runner.declared)
                if runner.initial_names and self.checkpoint.recorded.initial_of(name) is None:
                    text = "`initial_state` is read before the first batch only, which is over"
                    found[name].refused.append(text)
        return found

    def require_state(self) -> Mapping[str, Evolution]:
        """The same, if all of it can go on.

        Raises:
            ConfigError: the state of an operator or a step cannot.
        """
        found = self.check_state()
        refused = [f"{name}: {', '.join(e.refused)}" for name, e in found.items() if e.refused]
        if refused:
            raise ConfigError(
                "the state cannot go on under the changed query",
                subject=self.pipeline.name,
                found="; ".join(refused),
                then="nothing was written; undo the change, give the changed state of a processor"
                " another name, carry the state over by `onceflow state migrate --with`, or begin"
                f" without state: {NEW_GENERATION}",
            )
        return found

    @cached_property
    def operators(self) -> Sequence[StateOperator]:
        """The operators of the query that have state, by number."""
        return self.analysis.operators()

    def record_state(self, *, is_changed: bool) -> None:
        """Have the checkpoint name the form of each state, before a batch writes any."""
        if is_changed or self.checkpoint.recorded.operators() is None:
            self.checkpoint.recorded.write_operators([vars(each) for each in self.operators])
        for name, runner in self.analysis.processors.items():
            states = self.checkpoint.recorded.states_of(name)
            now = form_written_by(runner)
            if not states or states[-1] != now:
                self._keep_initial(runner)
                kept = [each for each in states if each != now]
                self.checkpoint.recorded.write_states_of(name, [*kept, now])

    def _keep_initial(self, runner: Runner) -> None:
        """Copy an initial state, so that the first batch finds the same whenever it is replayed."""
        step = self.pipeline.process.get(runner.name)  # not of an aggregate in SQL
        block = step.initial_state if step else None
        if block is None or self.checkpoint.recorded.states_of(runner.name):
            return
        assert runner.initial_columns is not None  # noqa: S101  for the type checker only
        until = self.around.clock.within(INITIAL_TIMEOUT_S)
        source = (
            self.pipeline.folder / block.file
            if block.file
            else read_table(self.broker, block.topic or "", MAX_BYTES, until)
        )
        where = f"step {runner.name}, {block.file or block.topic}"
        rows = read_initial(where, source, runner.initial_columns, runner.keys)
        self.checkpoint.recorded.write_initial_of(runner.name, rows)

    def _with_earlier(self, runner: Runner) -> Runner:
        states = self.checkpoint.recorded.states_of(runner.name)
        return replace(
            runner,
            earlier=tuple(each["schema"] for each in states),
            initial=self.checkpoint.recorded.initial_of(runner.name),
        )

    def check_sample(self, session: SparkSession, head: HeadEntry) -> None:
        """Compare the state with the sample of it in `head`, if there is one.

        Raises:
            CorruptionError: it is another.
        """
        if head.state is not None:
            with self._opened_state(session) as reader:
                unread = require_same(reader, head.state)
            if unread:
                text = f"the state was not compared with its sample: {unread}"
                self.around.report("warning", text=text)

    @contextmanager
    def sampler(self, head: HeadEntry) -> Iterator[StateSampler]:
        """Open what samples the state while the query runs, and no longer than the block."""
        report, clock = self.around.report, self.around.clock
        with (
            self._opened_state(self._session) as reader,
            StateSampler(reader, clock, report, head.state) as sampler,
        ):
            yield sampler

    def _opened_state(self, session: SparkSession) -> AbstractContextManager[StateReader]:
        _ = session.streams  # makes the coordinator that a load of state reports to
        return opened_state(self.checkpoint.location, self.around.session, jvm_of(session))

    def stream(self, head: HeadEntry | None = None) -> DataStreamWriter:
        """The query over its streams, with what the orders of `head` look at; not yet started."""
        columns = self._records(
            [self.analysis.order, *([head.order, head.next_order] if head else [])]
        )
        return columns.writeStream.queryName(f"onceflow.{self.pipeline.name}").outputMode(
            self.pipeline.sink.output_mode
        )

    def describe_state(self, session: Any, location: str, settings: Mapping[str, str]) -> None:
        """Have Spark write what it writes of the query's state before a first batch.

        See `describe_operators`.
        """
        mode = self.pipeline.sink.output_mode
        describe_operators(self._records([self.analysis.order]), mode, session, location, settings)

    def _records(self, orders: Sequence[Order]) -> DataFrame:
        """Make the query over its streams, with its result as records."""
        result = self.parts.result(
            self._session, self.analysis.columns, self._event_time.plan, self._with_earlier
        )
        return to_record_columns(result, self.parts.output(), orders)

    def runner(
        self,
        head: HeadEntry,
        claim: OwnerEntry | HeadEntry,
        committer: Commits,
        check_output: Callable[[SinkState], None],
        report: Callable[[BatchOutcome], None],
    ) -> BatchRunner:
        """Make the runner of the batches after `head`, for the owner with this claim."""
        self._event_time.resume(head.newest_event_ms)
        pipeline, parts = self.pipeline, self.parts
        budget = self.around.session.max_result_bytes
        tables = ReferenceDesk(self._session, self.checkpoint, self.around.clock, self._warn)

        def report_and_sweep(outcome: BatchOutcome) -> None:
            report(outcome)
            tables.sweep(outcome.head.plan)

        return BatchRunner(
            head=head,
            query_id=head.batch.query_id,
            token=claim.token,
            run_id=claim.run_id,
            identity=self.identity,
            waivers=tuple(map(str, self.analysis.waived)),
            order=self.analysis.order,
            delivery=pipeline.mode,
            is_quarantined=pipeline.on_divergence == "quarantine",
            output=parts.output(),
            partition_of=parts.partition_of(head.sink.partitions),
            max_result_bytes=budget,
            sources=self._sources,
            retired={
                name: topics.retired
                for name, source in pipeline.sources.items()
                if (topics := source.block.kafka_topics())
            },
            checkpoint=self.checkpoint,
            read_execution=self._read_execution,
            share_parameters=ParameterDesk(self._session, self._warn).share,
            check_output=check_output,
            rejects=self._reject_desk(),
            late=LateDesk(self._session, pipeline, self._reread, self.handle.query, budget),
            divergence=DivergenceDesk(self.broker, self.deadline),
            committer=committer,
            report=report_and_sweep,
            references=tables.versions,
        )

    def _warn(self, text: str) -> None:
        self.around.report("warning", text=text)

    def _read_execution(self) -> Execution:
        return self._event_time.note(self.handle.read_execution())

    def _reread(self, source: str, execution: Execution) -> DataFrame:
        return self.parts.reread(self._session, source, self.analysis.columns[source], execution)

    def _reject_desk(self) -> RejectDesk:
        connection = self.around.connection
        topics = {
            name: self.broker.topic(name, self.deadline()) for name in self.pipeline.letter_topics
        }

        def max_record_bytes() -> int:
            output = self.broker.topic(self.pipeline.sink.kafka.topic, self.deadline())
            return record_limit_bytes(output, connection)

        return RejectDesk(
            pipeline=self.pipeline,
            reread=self._reread,
            partitions={name: topic.partitions for name, topic in topics.items() if topic},
            letter_bytes={
                name: record_limit_bytes(topic, connection) for name, topic in topics.items()
            },
            max_result_bytes=self.around.session.max_result_bytes,
            max_record_bytes=max_record_bytes,
        )
