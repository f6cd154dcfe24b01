"""Duplicates of a source: what Spark's operator makes of `deduplicate`, and what the analysis says.

To the record, with Kafka, crashes, late records and ticks: `tests/integration/test_deduplicate.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onceflow.errors import Fault
from onceflow.pipeline.analysis.analysis import Analysis, analyse
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.query.query import assemble
from onceflow.pipeline.query.rejects import accepted, with_reason
from onceflow.runtime.batch.executed import Execution, ExecutionReader, observed, shielded
from onceflow.runtime.query.query import QueryHandle
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

EVENTS = """\
  events:
    kafka: {topics: [events]}
    schema: "id STRING, user STRING, n BIGINT, at TIMESTAMP, tags ARRAY<STRING>, _offset BIGINT,
      _key BINARY, _timestamp TIMESTAMP"
    event_time: at
    lateness: 0 seconds
    deduplicate: {key: id, within: 1 minute}
"""
Analyse = Callable[..., Analysis]
Faults = Callable[..., tuple[Fault, ...]]


@dataclass
class Run:
    """A query over lots of records: each lot is one batch at least."""

    spark: SparkSession
    folder: Path
    query: str
    sources: str = EVENTS
    transform: str = ""
    rows: list[str] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)

    def __call__(self, *lots: Sequence[str]) -> list[str]:
        """The rows that follow, each as text; goes on where an earlier call has left off.

        A record is written as "id second", or "id second n".
        """
        lot_folder = self.folder / "lots"
        lot_folder.mkdir(exist_ok=True)
        for lot in lots:
            lines = [json.dumps(_record(text)) for text in lot]
            number = len([*lot_folder.iterdir()])
            path = lot_folder / f"{number:03}.json"
            path.write_text("\n".join(lines))
            # Spark takes files in this order.
            os.utime(path, (number, number))
        text = pipeline_text(self.query, sources=self.sources, transform=self.transform)
        file = write_pipeline(self.folder, text)

        def load(name: str, source: Source, columns: StructType) -> DataFrame:
            read = self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
            marked = with_reason(source, read.json(str(lot_folder)), F.current_timestamp())
            return accepted(observed(marked, name))

        columns = analyse(self.spark, file, NOW_MS).columns
        frame = assemble(self.spark, file.pipeline, columns, load, watch=shielded)
        handle = QueryHandle(ExecutionReader(self.spark, ["events"]))
        before = len(self.rows)

        def collect(batch: DataFrame, _: int) -> None:
            self.rows += sorted(" ".join(map(str, row)) for row in batch.collect())
            self.executions.append(handle.read_execution())

        writer = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        handle.set(query)
        query.awaitTermination()
        return self.rows[before:]

    @property
    def duplicates(self) -> int:
        return sum(execution.duplicates for execution in self.executions)

    @property
    def late(self) -> int:
        return sum(execution.late for execution in self.executions)


def _record(text: str) -> dict[str, object]:
    key, second, *n = text.split()
    at = f"2026-03-01T00:{int(second) // 60:02}:{int(second) % 60:02}Z"
    return {"id": None if key == "-" else key, "at": at, "n": int(n[0]) if n else 0}


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Run]:
    return lambda query, sources=EVENTS: Run(spark, tmp_path, query, sources)


def test_a_key_is_known_until_event_time_has_passed_it_by_within(
    run: Callable[..., Run],
) -> None:
    """Also over a restart; and no longer, so that state does not grow forever."""
    ids = run("SELECT id FROM events")
    assert ids(["a 0", "a 0", "b 30"], ["a 0", "c 59"]) == ["a", "b", "c"]
    assert ids(["a 0", "d 60"], ["e 61"]) == ["d", "e"]
    assert (ids.duplicates, ids.late) == (3, 0)
    # The watermark is at 61: `a` of 0 is forgotten, and a record of that time may be one of those.
    assert ids(["a 0", "b 30", "a 2", "f 1", "g 62"]) == ["a", "g"]
    assert (ids.duplicates, ids.late) == (4, 2)
    assert all(execution.state_rows == 0 for execution in ids.executions)


def test_what_is_behind_the_watermark_still_has_its_open_window(run: Callable[..., Run]) -> None:
    """`deduplicate` makes `lateness` no stricter, and the windows are those without duplicates."""
    counts = run("SELECT window.end, count(*) FROM events GROUP BY window(at, '1 minute')")
    lots = (["a 1", "b 50", "b 50"], ["d 70"], ["b 50", "e 65", "e 65"], ["f 200"])
    assert counts(*lots) == ["2026-03-01 00:01:00 2", "2026-03-01 00:02:00 2"]
    assert (counts.duplicates, counts.late) == (3, 0)


def test_a_key_of_two_columns_takes_both_and_one_of_them_may_be_null(
    run: Callable[..., Run],
) -> None:
    pairs = run("SELECT id, n FROM events", EVENTS.replace("key: id", "key: [id, n]"))
    assert pairs(["a 0 1", "a 0 2", "a 0 1", "- 0 1", "- 0 1"]) == ["None 1", "a 1", "a 2"]
    assert pairs.duplicates == 2


def test_a_record_without_a_key_is_rejected(run: Callable[..., Run]) -> None:
    ids = run("SELECT id FROM events")
    assert ids(["- 0", "- 0", "a 0"]) == ["a"]
    (execution,) = ids.executions[:1]
    assert (execution.read, execution.rejected, execution.duplicates) == (3, 2, 0)


def test_what_the_query_drops_itself_is_not_in_the_account(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "drops_duplicates.py").write_text(
        "def per_n(events):\n    return events.dropDuplicatesWithinWatermark(['n']).select('n')\n"
    )
    numbers = run("")
    numbers.transform = "drops_duplicates:per_n"
    assert numbers(["a 0 1", "b 0 1", "b 0 1", "c 0 2", "d 0 2"]) == ["1", "2"]
    assert numbers.duplicates == 1


@pytest.mark.parametrize(
    ("query", "differing"),
    [
        ("SELECT id, _offset FROM events", "_offset"),
        ("SELECT id, _key FROM events WHERE _timestamp > at", "_key, _timestamp"),
        (
            "SELECT window.end, max(_offset) FROM events GROUP BY window(at, '1 minute')",
            "_offset",
        ),
    ],
)
def test_a_query_that_looks_at_where_duplicates_differ_is_refused(
    faults: Faults, query: str, differing: str
) -> None:
    (fault,) = faults(query, sources=EVENTS)
    assert fault.rule is Rule.ND_ORDER
    assert fault.what == (
        "deduplicate of events: which one stays depends on their order, and they differ in"
        f" {differing}"
    )
    assert 'waive ND-ORDER at "query: deduplicate of events"' in fault.suggestion


@pytest.mark.parametrize("event_time", ["_timestamp", "_timestamp - INTERVAL 1 SECOND"])
def test_an_event_time_in_which_duplicates_differ_is_refused_if_it_is_used(
    faults: Faults, analysed: Analyse, event_time: str
) -> None:
    sources = EVENTS.replace("event_time: at", f"event_time: {event_time}")
    time = "_timestamp" if event_time == "_timestamp" else "_event_time"
    (fault,) = faults(
        f"SELECT count(*) FROM events GROUP BY window({time}, '1 minute')", sources=sources
    )
    assert fault.what.endswith("they differ in _timestamp")
    assert analysed("SELECT id FROM events", sources=sources).warnings == ()


@pytest.mark.parametrize(
    ("query", "sources"),
    [
        ("SELECT id, user, n FROM events", EVENTS),
        ("SELECT id, _offset FROM events", EVENTS.replace("key: id", "key: [id, _offset]")),
        ("SELECT id FROM events", EVENTS + "    max_ahead: 1 h\n"),
    ],
    ids=["payload", "in the key", "bounds"],
)
def test_what_duplicates_have_in_common_may_be_used(
    analysed: Analyse, query: str, sources: str
) -> None:
    assert analysed(query, sources=sources).warnings == ()


def test_columns_are_read_for_the_key_and_the_event_time_and_none_else(analysed: Analyse) -> None:
    columns = analysed("SELECT n FROM events", sources=EVENTS).columns
    assert columns["events"].names == ["id", "n", "at"]


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("idd", "the schema has no column `idd`"),
        ("tags", "the column `tags` is ARRAY<STRING>"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(faults: Faults, key: str, what: str) -> None:
    (fault,) = faults("SELECT id FROM events", sources=EVENTS.replace("key: id", f"key: {key}"))
    assert (fault.what, fault.where) == (what, "sources.events.deduplicate.key")
