"""Ticks close windows under Spark, and leave no other trace: over the log connector, in real time.

What a tick is, and when it is due: `tests/unit/runtime/test_ticks.py`. With Kafka and crashes:
`tests/integration/test_idle_sources.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec
from onceflow.pipeline.analysis.analysis import analyse, to_arrow
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.query.query import assemble
from onceflow.pipeline.query.rejects import accepted, with_reason
from onceflow.runtime.batch.executed import Execution, ExecutionReader, observed, shielded
from onceflow.runtime.query.query import QueryHandle
from onceflow.runtime.source.data_source import SourceHandle, open_stream
from onceflow.runtime.source.ticks import EventTimeTeller
from onceflow.runtime.spark.session import COUNT_ROWS
from tests.support.eventually import eventually
from tests.support.fakes import log_connector
from tests.support.fakes.log_source import LogOrigin, open_log
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

IDLE_MS = 400
"""Less than a user may ask for, so that the tests are quick."""
SECOND_MS = 1_000
SOURCE = """\
  {name}:
    kafka: {{topics: [{name}]}}
    format: binary
    schema: "value BINARY"
    event_time: timestamp_millis(cast(cast(value AS STRING) AS BIGINT))
    lateness: 100 ms
    idle_after: 1 s
"""
"""A record is its own event time."""
COUNT = """\
SELECT window.start AS start, value, count(*) AS n, count(value) AS values
FROM {source} GROUP BY value, window(_event_time, '100 milliseconds')"""


@dataclass
class Run:
    """A query over logs, and what it did."""

    spark: SparkSession
    folder: Path
    origins: Mapping[str, LogOrigin]
    query: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    newest_ms: int | None = None

    @contextmanager
    def started(self, idle_ms: int | None = IDLE_MS) -> Iterator[None]:
        """Run until the block ends; a further run goes on where it was."""
        sources = "".join(SOURCE.format(name=name) for name in self.origins)
        file = write_pipeline(self.folder, pipeline_text(self.query, sources=sources))
        teller = EventTimeTeller(SystemClock())

        def load(name: str, source: Source, columns: StructType) -> DataFrame:
            spec = SourceSpec(name, "binary", to_arrow(columns))
            block, ticks = self.origins[name].block, teller.plan(idle_ms)
            handle = SourceHandle(log_connector.KIND, block, spec, Connection("nowhere:1"), ticks)
            stream = open_stream(self.spark, handle)
            return accepted(observed(with_reason(source, stream, F.current_timestamp()), name))

        columns = analyse(self.spark, file, NOW_MS).columns
        frame = assemble(self.spark, file.pipeline, columns, load, watch=shielded)
        handle = QueryHandle(ExecutionReader(self.spark, [*self.origins]))
        teller.resume(self.newest_ms)
        writer = (
            frame.writeStream.foreachBatch(partial(self._collect, teller, handle))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(processingTime="50 milliseconds")
        )
        with ExitStack() as stack:
            stack.callback(teller.close)
            self.spark.conf.set(COUNT_ROWS, "true")
            stack.callback(self.spark.conf.unset, COUNT_ROWS)
            query = writer.start()
            stack.callback(query.stop)
            handle.set(query)
            yield
            if error := query.exception():
                raise error

    def _collect(
        self, teller: EventTimeTeller, handle: QueryHandle, frame: DataFrame, _: int
    ) -> None:
        self.rows += [row.asDict() for row in frame.collect()]
        execution = teller.note(handle.read_execution())
        self.newest_ms = execution.newest_since(self.newest_ms)
        self.executions.append(execution)

    def append(self, name: str, *event_times_ms: int) -> None:
        self.origins[name].append(0, [(b"k", b"%d" % at) for at in event_times_ms])

    def values(self) -> list[int]:
        return sorted(int(bytes(row["value"])) for row in self.rows)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Callable[..., Mapping[str, LogOrigin]]]:
    with ExitStack() as stack:
        yield lambda *names: {name: stack.enter_context(open_log(tmp_path)) for name in names}


BEGIN_MS = 1_700_000_000_000
"""Years ago: a source whose event time is not that of the wall clock."""


@pytest.mark.usefixtures("plugin")
@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "condition",
    ["", "WHERE value <> 'x' AND value IS NOT NULL AND cast(value AS STRING) LIKE '1%'"],
    ids=["all", "filtered"],
)
def test_windows_close_over_a_silent_source_whatever_the_query_filters(
    spark: SparkSession,
    tmp_path: Path,
    logs: Callable[..., Mapping[str, LogOrigin]],
    condition: str,
) -> None:
    """Spark pushes filters that do not name the event time to below the watermark."""
    query = COUNT.format(source=f"(SELECT * FROM clicks {condition})")
    run = Run(spark, tmp_path, logs("clicks"), query)
    written = [BEGIN_MS, BEGIN_MS + 30, BEGIN_MS + 270]
    run.append("clicks", *written)
    with run.started():
        eventually(run.values, until=lambda values: values == written)
        eventually(lambda: run.executions[-1].state_rows == 0)
    assert all((row["n"], row["values"]) == (1, 1) for row in run.rows)
    assert sum(execution.read for execution in run.executions) == len(written)
    assert sum(execution.late for execution in run.executions) == 0


JOIN = """\
SELECT l.value AS value, r.value AS other FROM left l LEFT JOIN right r
ON l.value = r.value AND r._event_time BETWEEN l._event_time AND l._event_time + INTERVAL '1' SECOND
"""
UNION = COUNT.format(source="(SELECT * FROM left UNION ALL SELECT * FROM right)")


@pytest.mark.usefixtures("plugin")
@pytest.mark.drawn(1)
@pytest.mark.parametrize("query", [JOIN, UNION], ids=["join", "union"])
def test_a_silent_source_of_two_holds_up_nothing(
    spark: SparkSession,
    tmp_path: Path,
    logs: Callable[..., Mapping[str, LogOrigin]],
    query: str,
) -> None:
    """Spark's event watermark is that of the source that is furthest behind.

    The right source never has a record, and left goes on by its own records alone.
    """
    run = Run(spark, tmp_path, logs("left", "right"), query)
    run.append("left", BEGIN_MS)
    with run.started():
        eventually(lambda: run.executions)
        # Far ahead: the wall clock alone would take this long to get there.
        run.append("left", BEGIN_MS + 3_600_000, BEGIN_MS + 7_200_000)
        eventually(lambda: BEGIN_MS + 3_600_000 in run.values())
    assert run.values()[:2] == [BEGIN_MS, BEGIN_MS + 3_600_000]
    assert sum(execution.read for execution in run.executions) == 3
    assert sum(execution.late for execution in run.executions) == 0


@pytest.mark.usefixtures("plugin")
def test_after_a_restart_the_event_watermark_stands_where_it_was_and_goes_on(
    spark: SparkSession, tmp_path: Path, logs: Callable[..., Mapping[str, LogOrigin]]
) -> None:
    """The right source is silent all the time, the left one but for a record at the restart."""
    run = Run(spark, tmp_path, logs("left", "right"), UNION)
    run.append("left", BEGIN_MS, BEGIN_MS + 300)
    with run.started():
        eventually(lambda: run.executions and run.executions[-1].event_watermark_ms)
        run.append("left", BEGIN_MS + 5_000)
        eventually(lambda: run.executions[-1].read)
    reached_ms = run.executions[-1].event_watermark_ms
    known = len(run.executions)
    # A slow machine may have closed every window already: this one is left in any case.
    run.append("left", BEGIN_MS + 10_000)
    with run.started():
        eventually(run.values, until=lambda values: len(values) == 4)
    again = [execution.event_watermark_ms for execution in run.executions[known:]]
    assert again == sorted(again)
    assert again[0] >= reached_ms
    assert run.values() == [BEGIN_MS + after for after in (0, 300, 5_000, 10_000)]
