"""A driver without Spark: the product's take-over, lanes and committer, with batches made by hand.

Lets a test hold a driver still between any two steps, which a process can't be made to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.sink import Appender, Incarnation
from onceflow.protocol.compare import CheckpointFacts, Comparison, compare
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import Row, digest_of
from onceflow.protocol.identity import BatchKey, FencingToken, Layout, pipeline_tag
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState, SourceRanges
from onceflow.protocol.proposal import BatchProposal
from onceflow.protocol.query_identity import QueryIdentity
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.commit.committer import Payload
from onceflow.runtime.commit.takeover import Takeover
from onceflow.runtime.commit.writer import Writer
from onceflow.runtime.records.rows import SortedBatch, number_records
from onceflow.runtime.start.registration import first_head, settle

PARTITIONS = 2
QUERY_ID = "query-1"
TIMEOUT_S = 30.0
CLOCK_VARIABLE = "ONCEFLOW_TEST_BATCH_CLOCK_MS"
NOW_MS = int(os.environ.setdefault(CLOCK_VARIABLE, str(SystemClock().unix_ms())))
"""The batches' clock, which processes of a test inherit: it is part of a batch's identity. Far from
now, retention would delete what was just written."""
Wrap = Callable[[Incarnation], Incarnation]


@dataclass
class Driver:
    """One instance of the service, as far as Kafka can see it.

    Args:
        bootstrap_servers: where.
        pipeline: whom it writes for.
        output_topic: with PARTITIONS partitions; must exist.
        lanes: of its layout.
        wrap: put around every incarnation, to inject faults.
        wrap_appender: the same for its appender.
        delivery: mode.
        facts: what its checkpoint says.
        properties: of its clients, beside a short transaction time-out.
    """

    bootstrap_servers: str
    pipeline: str
    output_topic: str
    lanes: int = 3
    wrap: Wrap = lambda incarnation: incarnation
    wrap_appender: Callable[[Appender], Appender] = lambda appender: appender
    delivery: Delivery = Delivery.EXACTLY_ONCE
    facts: Callable[[HeadEntry | None], CheckpointFacts] = lambda head: CheckpointFacts(
        head.batch.query_id if head else QUERY_ID,
        head.batch.batch_id if head else -1,
        head.batch.batch_id if head else -1,
    )
    clock: Clock = field(default_factory=SystemClock)
    transaction_timeout_s: float = TIMEOUT_S
    takeover_timeout_s: float = TIMEOUT_S
    properties: Mapping[str, str] = field(default_factory=dict)
    head: HeadEntry | None = None

    def __post_init__(self) -> None:
        self.connector = find_connector("kafka")
        self._stack = ExitStack()
        connection = self._connection()
        self.ledger = self.connector.ledger(self.pipeline, connection)
        self._stack.callback(self.ledger.close)
        self.writer = _FaultyWriter(
            pipeline=self.pipeline,
            layout=Layout(1, self.lanes),
            connector=self.connector,
            connection=connection,
            ledger=self.ledger,
            clock=self.clock,
            transaction_timeout_s=self.transaction_timeout_s,
            takeover_timeout_s=self.takeover_timeout_s,
        )
        self.writer.driver = self
        self.run_id = self.writer.run_id
        self.takeover: Takeover | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def take_over(self) -> Takeover:
        """Claim, fence, compare, register."""
        self.ledger.create(2, self.deadline())
        self.takeover = self._stack.enter_context(self.writer).claim(self._compare)
        sink = SinkState(self.output_topic, PARTITIONS, Layout(1, self.lanes))
        plan, owner = QueryIdentity({"query": "plan"}), self.takeover.owner
        wanted = first_head(self.pipeline, QUERY_ID, sink, plan, owner).under(self.delivery)
        nowhere: Any = _Nowhere()
        self.head = settle(self.writer, wanted, nowhere, nowhere)
        return self.takeover

    def commit(
        self,
        batch_id: int,
        values: Sequence[bytes],
        sources: SourceRanges | None = None,
        event_watermark_ms: int = 0,
        *,
        clock_ms: int = NOW_MS,
    ) -> HeadEntry:
        """Write a batch of `values`, spread over the partitions; another clock is another plan."""
        assert self.head is not None
        rows: list[Row] = sorted((i % PARTITIONS, b"k", v) for i, v in enumerate(values))
        counts = {p: sum(r[0] == p for r in rows) for p in {r[0] for r in rows}}
        read = {"s": {self.output_topic: {0: (batch_id * 10, batch_id * 10 + 10)}}}
        plan = BatchPlan(sources or read, event_watermark_ms, clock_ms)
        batch = SortedBatch(rows, counts, digest_of(rows))
        token = self.takeover.owner.token if self.takeover else FencingToken(0)
        entry = replace(
            self.head,
            batch=BatchKey(QUERY_ID, batch_id),
            token=token,
            run_id=self.run_id,
            plan=plan,
            sink=self.head.sink.advanced(counts),
            records=RecordCounts(read=10, written=len(rows)),
            digest=batch.digest,
        ).under(self.delivery)
        headers = HeaderPacker(
            pipeline_tag=pipeline_tag(self.pipeline),
            generation=self.head.generation,
            plan_tag=plan.tag(),
            batch_id=batch_id,
            mode=self.delivery.flag,
            lineage=self.head.lineage,
        )
        records = number_records(batch, self.head.sink, headers, clock_ms)
        payload = Payload(self.output_topic, records, {(self.output_topic, 0): batch_id * 10 + 10})
        is_replay = self.head.batch == entry.batch
        self.writer.committer.commit(BatchProposal(entry), self.head, payload)
        if not is_replay:
            self.head = entry.known_to_be_written()
        return self.head

    def _compare(self, head: HeadEntry | None) -> Comparison:
        return compare(self.facts(head), head)

    def _connection(self) -> Connection:
        properties = {"transaction.timeout.ms": "10000", **self.properties}
        return Connection(self.bootstrap_servers, properties)

    def deadline(self) -> Deadline:
        return self.clock.within(TIMEOUT_S)


class _FaultyWriter(Writer):
    """With the faults of its driver, and with a transaction time-out that a test can wait for."""

    driver: Driver

    def open_incarnation(self, transactional_id: str) -> Incarnation:
        return self.driver.wrap(self.connector.incarnation(transactional_id, self.connection))

    def open_appender(self) -> Appender:
        return self.driver.wrap_appender(self.connector.appender(self.connection))


class _Nowhere:
    """A checkpoint that is not there, and an output that holds nothing."""

    def write_plan(self, head: HeadEntry) -> None:
        return None

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        return {}
