"""A driver without Spark: the product's take-over, lanes and committer, with batches made by hand.

Lets a test hold a driver still between any two steps, which a process can't be made to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onceflow.clock import Deadline, SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.sink import Appender, Incarnation
from onceflow.protocol.compare import CheckpointFacts, Remedy, compare
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import Row, digest_of
from onceflow.protocol.identity import BatchKey, Layout, pipeline_tag
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


def _in_step_with(head: HeadEntry | None) -> CheckpointFacts:
    if head is None:
        return CheckpointFacts(QUERY_ID, -1, -1)
    return CheckpointFacts(head.batch.query_id, head.batch.batch_id, head.batch.batch_id)


class Driver(Writer):
    """One instance of the service, as far as Kafka can see it.

    Args:
        output_topic: with PARTITIONS partitions; must exist.
        wrap: put around every incarnation, to inject faults.
        facts: what its checkpoint says.
        remedy: what an operator asks for.
        properties: of its clients, besides a short transaction time-out.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        pipeline: str,
        output_topic: str,
        *,
        lanes: int = 3,
        wrap: Callable[[Incarnation], Incarnation] = lambda incarnation: incarnation,
        wrap_appender: Callable[[Appender], Appender] = lambda appender: appender,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        facts: Callable[[HeadEntry | None], CheckpointFacts] = _in_step_with,
        remedy: Remedy | None = None,
        properties: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        connector = find_connector("kafka")
        connection = Connection(
            bootstrap_servers, {"transaction.timeout.ms": "10000", **(properties or {})}
        )
        usual = {
            "clock": SystemClock(),
            "transaction_timeout_s": TIMEOUT_S,
            "takeover_timeout_s": TIMEOUT_S,
        }
        super().__init__(
            pipeline=pipeline,
            layout=Layout(1, lanes),
            connector=connector,
            connection=connection,
            ledger=connector.ledger(pipeline, connection),
            **{**usual, **settings},
        )
        self.lanes = lanes
        self.head: HeadEntry | None = None
        self._output_topic = output_topic
        self._wrap = wrap
        self._wrap_appender = wrap_appender
        self._delivery = delivery
        self._facts = facts
        self._remedy = remedy
        self._stack.callback(self.ledger.close)

    def open_incarnation(self, transactional_id: str) -> Incarnation:
        """Without the writer's time-out: one that a test can wait for."""
        return self._wrap(self.connector.incarnation(transactional_id, self.connection))

    def open_appender(self) -> Appender:
        return self._wrap_appender(self.connector.appender(self.connection))

    def take_over(self) -> Takeover:
        """Claim, fence, compare, register."""
        self.ledger.create(2, self.deadline())
        self.claim(lambda head: compare(self._facts(head), head, self._remedy))
        sink = SinkState(self._output_topic, PARTITIONS, self.layout)
        plan, owner = QueryIdentity({"query": "plan"}), self.takeover.owner
        wanted = first_head(self.pipeline, QUERY_ID, sink, plan, owner).under(self._delivery)
        nowhere: Any = _Nowhere()
        self.head = settle(self, wanted, nowhere, nowhere)
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
        read = {"s": {self._output_topic: {0: (batch_id * 10, batch_id * 10 + 10)}}}
        plan = BatchPlan(sources or read, event_watermark_ms, clock_ms)
        batch = SortedBatch(rows, counts, digest_of(rows))
        entry = replace(
            self.head,
            batch=BatchKey(QUERY_ID, batch_id),
            token=self.takeover.owner.token,
            run_id=self.run_id,
            plan=plan,
            sink=self.head.sink.advanced(counts),
            records=RecordCounts(read=10, written=len(rows)),
            digest=batch.digest,
        ).under(self._delivery)
        headers = HeaderPacker(
            pipeline_tag=pipeline_tag(self.pipeline),
            generation=self.head.generation,
            plan_tag=plan.tag(),
            batch_id=batch_id,
            mode=self._delivery.flag,
            lineage=self.head.lineage,
        )
        records = number_records(batch, self.head.sink, headers, clock_ms)
        payload = Payload(
            self._output_topic, records, {(self._output_topic, 0): batch_id * 10 + 10}
        )
        is_replay = self.head.batch == entry.batch
        self.committer.commit(BatchProposal(entry), self.head, payload)
        if not is_replay:
            self.head = entry.known_to_be_written()
        return self.head

    def deadline(self) -> Deadline:
        return self.clock.within(TIMEOUT_S)


class _Nowhere:
    """A checkpoint that is not there, and an output that holds nothing."""

    def write_plan(self, head: HeadEntry) -> None:
        return None

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        return {}
