"""What one pipeline is made of, for whoever runs it or computes a batch of it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, Connection, Connector
from onceflow.contracts.observer import Observer
from onceflow.contracts.sink import Ledger
from onceflow.java.s3_jars import require_s3_jars
from onceflow.pipeline.analysis import Analysis, analyse
from onceflow.pipeline.loader import PipelineFile
from onceflow.pipeline.promises import require_sources
from onceflow.pipeline.waivers import CheckpointWaiver
from onceflow.protocol.identity import FencingToken
from onceflow.protocol.ledger import HeadEntry, SinkState
from onceflow.protocol.plan_identity import PlanIdentity, fingerprint
from onceflow.runtime import jvm
from onceflow.runtime.batch import BatchSettings
from onceflow.runtime.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.divergence import DivergenceDesk
from onceflow.runtime.executed import ExecutionReader
from onceflow.runtime.late import RereadingLateDesk
from onceflow.runtime.output import to_record_columns
from onceflow.runtime.parts import Parts
from onceflow.runtime.progress import Report
from onceflow.runtime.query import QueryHandle, QueryPlan
from onceflow.runtime.rejects import RejectDesk, RejectSettings
from onceflow.runtime.row_guard import guard_rows
from onceflow.runtime.s3_files import SCHEME
from onceflow.runtime.session import TIME_ZONE, SessionSettings, SharedEngine, open_session
from onceflow.runtime.ticks import EventTimeTeller
from onceflow.runtime.writers import record_limit_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_UP_TIMEOUT_S = 30.0
"""For one round of look-ups at the brokers; an address at which nobody is fails sooner."""
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class Surroundings:
    """What a run is given by the process it runs in.

    Args:
        connector_name: of its entry point, for the processes that read sources.
        connector: the one of that name.
        connection: to the brokers.
        session: Spark settings.
        clock: the process's clock.
        report: told what happens.
        before_close: told what a run ends with, None for a good end, before anything is closed.
        engine: Spark that other pipelines of this process use too; None for one of its own.
        checkpoint_waiver: by which somebody answers for checkpoints that are lost with the process.
        observer: told figures that only programs want.
        beat: called several times a second from the claim on, while the run makes progress.
    """

    connector_name: str
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


@dataclass(frozen=True)
class Tools:
    """What a pipeline is looked at with."""

    broker: Broker
    ledger: Ledger
    checkpoint: Checkpoint
    sources: Mapping[str, SourceArithmetic]


class Assembly:
    """Makes the parts of one pipeline.

    Args:
        file: of the pipeline.
        around: where it runs.
    """

    def __init__(self, file: PipelineFile, around: Surroundings) -> None:
        self._file = file
        self._pipeline = file.pipeline
        self._around = around
        self.parts = Parts(
            file.pipeline, around.connector_name, around.connector, around.connection
        )

    @cached_property
    def plan(self) -> PlanIdentity:
        """What results depend on, by name."""
        parts = {name: fingerprint(part) for name, part in self._pipeline.result_parts().items()}
        versions = {
            "spark": version("pyspark"),
            "python": ".".join(map(str, sys.version_info[:2])),
            "time zone": TIME_ZONE,
            # Chosen by cores, they are those of the first start: the checkpoint has pinned them.
            "shuffle partitions": str(self._around.session.shuffle_partitions or "by cores"),
        }
        return PlanIdentity({**parts, **versions})

    def deadline(self) -> Deadline:
        """For one round of look-ups."""
        return Deadline.after(self._around.clock, LOOK_UP_TIMEOUT_S)

    def open_tools(self, stack: ExitStack) -> Tools:
        """Open what a pipeline is looked at with; `stack` closes it.

        Raises:
            ConfigError: a source cannot keep what `delivery` promises.
            ConfigError, RetriableError: the checkpoint cannot be reached.
        """
        around, name = self._around, self._pipeline.name
        require_sources(self._file, around.connector)
        broker = around.connector.broker(around.connection)
        stack.callback(broker.close)
        ledger = around.connector.ledger(name, around.connection)
        stack.callback(ledger.close)
        sources = {}
        for source_name in self._pipeline.sources:
            source = around.connector.source(
                self.parts.spec(source_name, _NO_COLUMNS), around.connection
            )
            stack.callback(source.close)
            sources[source_name] = SourceArithmetic(source.ranges, source.position)
        checkpoint = self.checkpoint(self._pipeline.checkpoint_location, sources)
        return Tools(broker, ledger, checkpoint, sources)

    def checkpoint(self, location: str, sources: Mapping[str, SourceArithmetic]) -> Checkpoint:
        """The pipeline's checkpoint, or a copy of it that lies elsewhere.

        Raises:
            ConfigError, RetriableError: it cannot be reached.
        """
        if location.startswith(SCHEME):
            require_s3_jars(location)
        return Checkpoint(location, self._pipeline.name, sources, self._around.session.conf)

    def open_session(self, stack: ExitStack) -> SparkSession:
        """Start Spark; `stack` stops it unless others use it too."""
        pipeline, engine = self._pipeline, self._around.engine
        if engine is not None:
            return engine.open_session(pipeline.checkpoint_location)
        session = open_session(pipeline.name, self._around.session, pipeline.checkpoint_location)
        # Last: if a look has failed meanwhile, this is undone at once.
        stack.callback(jvm.stop, session)
        return session

    def analyse(self, session: SparkSession) -> Analysis:
        """Analyse the query; everything that is wrong with it is found before the claim."""
        analysis = analyse(session, self._file, self._around.clock.unix_ms())
        for warning in analysis.warnings:
            self._around.report("warning", text=str(warning))
        return analysis

    def prepare(
        self, session: SparkSession, analysis: Analysis, tools: Tools, event_time: EventTimeTeller
    ) -> PreparedQuery:
        """Everything that the query's batches need, except an owner."""
        return PreparedQuery(self, self._around, session, analysis, tools, event_time)


class PreparedQuery:
    """A query that may start. Made by `Assembly.prepare`.

    Attributes:
        handle: of the query, once it runs.
    """

    def __init__(
        self,
        assembly: Assembly,
        around: Surroundings,
        session: SparkSession,
        analysis: Analysis,
        tools: Tools,
        event_time: EventTimeTeller,
    ) -> None:
        self._assembly = assembly
        self._pipeline = assembly.parts.pipeline
        self._around = around
        self._session = session
        self._analysis = analysis
        self._tools = tools
        self._event_time = event_time
        guard_rows(session, around.session.max_rows)
        self.handle = QueryHandle(ExecutionReader(session, [*self._pipeline.sources]))

    def plan(self, checkpoint: str, head: HeadEntry | None = None) -> QueryPlan:
        """The query over its streams, as it goes on until it is stopped.

        Args:
            checkpoint: location of Spark's checkpoint.
            head: the ledger's position, if batches are written or compared in the orders it names.
        """
        pipeline, parts = self._pipeline, self._assembly.parts
        result = parts.result(self._session, self._analysis.columns, self._event_time.plan)
        orders = [self._analysis.order, *([head.order, head.next_order] if head else [])]
        return QueryPlan(
            name=pipeline.name,
            frame=to_record_columns(result, parts.output(), orders),
            output_mode=pipeline.sink.output_mode,
            checkpoint=checkpoint,
            trigger_ms=pipeline.trigger_ms,
            is_until_caught_up=False,
        )

    def settings(
        self,
        head: HeadEntry,
        token: FencingToken,
        run_id: str,
        check_output: Callable[[SinkState], None],
        divergence: DivergenceDesk,
    ) -> BatchSettings:
        """What the batches from `head` on need, of a run with this claim."""
        parts = self._assembly.parts
        rejects = self._reject_settings()
        self._event_time.resume(head.newest_event_ms)
        return BatchSettings(
            pipeline=self._pipeline.name,
            query_id=head.batch.query_id,
            token=token,
            run_id=run_id,
            plan=self._assembly.plan,
            waivers=tuple(map(str, self._analysis.waived)),
            order=self._analysis.order,
            delivery=self._pipeline.mode,
            output=parts.output(),
            max_result_bytes=self._around.session.max_result_bytes,
            partition_of=parts.partition_of(head.sink.partitions),
            sources=self._tools.sources,
            read_execution=lambda: self._event_time.note(self.handle.read_execution()),
            check_output=check_output,
            rejects=RejectDesk(self._session, rejects),
            late=RereadingLateDesk(self._session, rejects, self.handle.query),
            divergence=divergence,
            retired={name: s.kafka.retired for name, s in self._pipeline.sources.items()},
        )

    def _reject_settings(self) -> RejectSettings:
        broker, deadline = self._tools.broker, self._assembly.deadline
        beside = self._assembly.parts.beside
        topics = {name: broker.topic(name, deadline()) for name in beside}

        def max_record_bytes() -> int:
            output = broker.topic(self._pipeline.sink.kafka.topic, deadline())
            return record_limit_bytes(output, self._around.connection)

        return RejectSettings(
            parts=self._assembly.parts,
            columns=self._analysis.columns,
            partitions={name: topic.partitions for name, topic in topics.items() if topic},
            letter_bytes={
                name: record_limit_bytes(topic, self._around.connection)
                for name, topic in topics.items()
            },
            max_result_bytes=self._around.session.max_result_bytes,
            max_record_bytes=max_record_bytes,
        )
