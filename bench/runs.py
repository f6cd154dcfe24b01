"""One measured and checked run of one engine."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.engines import Engine, EngineRun, Job
from bench.figures import (
    Latency,
    Memory,
    Throughput,
    latencies_ms,
    memory,
    percentile,
    throughput,
)
from bench.traffic import OutputTail, PacedLoad, create_topic, read_payloads, write_backlog
from bench.workload import Oracle, Question, Result, Workload, check_filtered
from onceflow.clock import Clock

SETTLE_TIMEOUT_S = 120.0
"""For the last records of a paced run to show."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Args:
        warm_up_share: of the backlog that does not count.
    """

    backlog_records: int
    warm_up_share: float
    max_records_per_batch: int
    rate: int
    warm_up_s: float
    latency_s: float
    memory_s: float


@dataclass
class Laboratory:
    """Where runs take place: a broker, and topics of their own for each run."""

    bootstrap_servers: str
    workload: Workload
    sizes: Sizes
    clock: Clock

    def write_backlog(self) -> tuple[str, Oracle]:
        """Make the topic that every throughput run reads, and its answer."""
        topic = self._topic("backlog")
        records = self.sizes.backlog_records
        return topic, write_backlog(self.bootstrap_servers, topic, self.workload, records)

    def measure_throughput(self, engine: Engine, topic: str, oracle: Oracle) -> Throughput:
        """Let an engine work off the backlog."""
        sizes = self.sizes
        emit = "updates" if engine.question is Question.COUNTS else "final"
        with self._job(engine, topic, emit, sizes.backlog_records) as job:
            with EngineRun(engine, job, self.clock) as run:
                marks = list(run.marks())
            output, partitions = job.output_topic, self.workload.partitions
            found = read_payloads(self.bootstrap_servers, output, partitions, self.clock)
            if engine.question is Question.FILTER:
                check_filtered(found, self.workload, sizes.backlog_records)
            elif engine.question is Question.WINDOWS:
                oracle.check_final(map(Result.from_payload, found))
            else:
                oracle.by_key().check_updates(map(Result.from_payload, found))
        return throughput(marks, sizes.backlog_records, sizes.warm_up_share, run.peak_rss_mb)

    def measure_latency(self, engine: Engine) -> Latency:
        """Let an engine follow a paced load."""
        return self._follow(engine, self.sizes.latency_s)[0]

    def measure_memory(self, engine: Engine) -> Memory:
        """As `measure_latency`, for longer."""
        return memory(self._follow(engine, self.sizes.memory_s)[1])

    def _follow(
        self, engine: Engine, measured_s: float
    ) -> tuple[Latency, list[tuple[float, float]]]:
        topic = self._topic("paced")
        load = PacedLoad(
            self.bootstrap_servers,
            topic,
            self.workload,
            self.sizes.rate,
            Oracle(engine.question is Question.WINDOWS),
            self.clock,
        )
        with (
            self._job(engine, topic, "updates", 0) as job,
            OutputTail(
                self.bootstrap_servers, job.output_topic, self.workload.partitions, self.clock
            ) as tail,
            EngineRun(engine, job, self.clock) as run,
        ):
            run.drain_lines()
            load.run(self.sizes.warm_up_s)
            from_ms, from_s = self.clock.unix_ms(), self.clock.monotonic_s()
            cpu_before_s = run.usage().cpu_s
            load.run(measured_s)
            cpu_s = run.usage().cpu_s - cpu_before_s
            passed_s = self.clock.monotonic_s() - from_s
            run.check()
            tail.wait_for(load.oracle, self.clock.within(SETTLE_TIMEOUT_S))
        load.oracle.check_updates(result for _, result in tail.seen)
        found = latencies_ms(load.produced_ms, tail.seen, from_ms)
        latency = Latency(
            p50_ms=percentile(found, 0.5),
            p95_ms=percentile(found, 0.95),
            p99_ms=percentile(found, 0.99),
            cores=cpu_s / passed_s,
            peak_rss_mb=run.peak_rss_mb,
            records=len(found),
        )
        return latency, run.rss_mb

    @contextmanager
    def _job(self, engine: Engine, topic: str, emit: str, records: int) -> Iterator[Job]:
        output = self._topic(f"{engine.name}-{emit}")
        with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
            yield Job(
                self.bootstrap_servers,
                topic,
                output,
                emit,
                records,
                self.sizes.max_records_per_batch,
                folder,
            )

    def _topic(self, name: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        create_topic(self.bootstrap_servers, topic, self.workload.partitions)
        return topic
