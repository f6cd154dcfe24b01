"""Aggregates in Python that SQL calls by name, on streams: they must agree with those of Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.query.query import assemble
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES = """\
  payments:
    kafka: {topics: [payments]}
    schema: "card STRING, merchant STRING, amount INT, weight DOUBLE, at TIMESTAMP"
    event_time: at
    lateness: 1 minute
"""
DECLARED = """\
aggregates:
  n: onceflow.aggregates:Count('string')
  top: onceflow.aggregates:TopK('amount int, merchant string', 2)
  own: OWN:Longest
"""
LONGEST = """\
from onceflow.aggregates import Aggregate

class Longest(Aggregate):
    input = accumulator = output = "string"

    def zero(self):
        return None

    def add(self, acc, value):
        return self.merge(acc, value)

    def merge(self, a, b):
        return max(a, b, key=lambda text: (len(text or ""), text or ""))

    def result(self, acc):
        return acc
"""
NAMES = ["card", "merchant", "amount", "weight", "at"]
Rows = Sequence[tuple[Any, ...]]


SINK = "kafka: {topic: out, partitions: 1}"


class Run:
    """A pipeline over files, one for each batch."""

    def __init__(self, spark: SparkSession, folder: Path, text: str) -> None:
        self.spark, self.folder = spark, folder
        self.file = write_pipeline(folder, text)
        self.emitted: dict[int, list[Any]] = {}
        (folder / "in").mkdir(exist_ok=True)

    def feed(self, *batches: Rows) -> None:
        for batch in batches:
            at = len(list((self.folder / "in").iterdir()))
            lines = (json.dumps(dict(zip(NAMES, row, strict=True)), default=str) for row in batch)
            file = self.folder / "in" / f"{at:03}.json"
            file.write_text("\n".join(lines))
            # Spark reads files by their age.
            os.utime(file, (at, at))

    def load(self, _: str, __: Source, columns: StructType) -> DataFrame:
        read = self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        # Several tasks, so that one group is folded in more than one.
        return read.json(str(self.folder / "in")).repartition(3)

    def run(self) -> dict[int, list[Any]]:
        """Go on from the checkpoint; what each batch emitted."""
        columns = analyse(self.spark, self.file, NOW_MS).columns
        frame = assemble(self.spark, self.file.pipeline, columns, self.load)
        query = (
            frame.writeStream.foreachBatch(self.keep)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .outputMode(self.file.pipeline.sink.output_mode)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.emitted

    def keep(self, batch: DataFrame, number: int) -> None:
        if rows := batch.collect():
            self.emitted[number] = sorted(rows, key=repr)


def payment(card: str | None, minute: float, amount: int | None, merchant: str | None = "m") -> Any:
    return card, merchant, amount, float(amount or 0), START + timedelta(minutes=minute)


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path, module: Path) -> Callable[..., Run]:
    module.write_text(LONGEST)

    def make(query: str, sink: str = SINK, name: str = "a") -> Run:
        folder = tmp_path / name
        folder.mkdir()
        (folder / module.name).symlink_to(module)
        text = pipeline_text(query, sources=SOURCES, sink=sink)
        return Run(spark, folder, DECLARED.replace("OWN", module.stem) + text)

    return make


OURS = """\
SELECT card, window.start AS start, n(merchant) AS n, top(amount, merchant) AS top,
  own(merchant) AS longest
FROM payments GROUP BY card, window(at, '10 minutes', '5 minutes') HAVING n(merchant) > 0"""
SPARKS = """\
SELECT card, window.start AS start, count(merchant) AS n,
  slice(sort_array(collect_list(CASE WHEN amount IS NOT NULL OR merchant IS NOT NULL
    THEN struct(amount, merchant) END), false), 1, 2) AS top,
  max(struct(length(merchant), merchant)).merchant AS longest
FROM payments GROUP BY card, window(at, '10 minutes', '5 minutes') HAVING count(merchant) > 0"""
BATCHES: list[Rows] = [
    [payment("a", 0, 1), payment("a", 1, 5, "long"), payment(None, 2, 3), payment("b", 4, None)],
    [payment("a", 3, 2), payment("a", 9, 7), payment("b", 16, 1, None)],
    [payment("a", 2, 9, "late"), payment("a", 8, 4), payment("c", 26, 1)],
    [payment("c", 10, 1, "late"), payment("c", 60, 2), payment("c", 60.5, 2)],
]


RUNNING = "SELECT card, n(merchant) AS n, own(merchant) AS longest FROM payments GROUP BY card"
SPARKS_RUNNING = """\
SELECT card, count(merchant) AS n, max(struct(length(merchant), merchant)).merchant AS longest
FROM payments GROUP BY card"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("ours", "sparks", "sink"),
    [(OURS, SPARKS, SINK), (RUNNING, SPARKS_RUNNING, f"{SINK}\nemit: updates")],
    ids=["windows, with late records", "running totals"],
)
def test_each_batch_emits_what_it_would_by_aggregates_of_spark(
    runs: Callable[..., Run], ours: str, sparks: str, sink: str
) -> None:
    emitted = []
    for run in (runs(ours, sink, "ours"), runs(sparks, sink, "sparks")):
        run.feed(*BATCHES[:2])
        run.run()
        run.feed(*BATCHES[2:])
        emitted.append(run.run())  # again, from the checkpoint
    assert emitted[0] == emitted[1]
    assert sum(map(len, emitted[0].values())) > 6


def test_rows_are_folded_before_they_are_exchanged(runs: Callable[..., Run]) -> None:
    run = runs(RUNNING, f"{SINK}\nemit: updates")  # a processor exchanges the rows of its input
    columns = analyse(run.spark, run.file, NOW_MS).columns
    frame = assemble(run.spark, run.file.pipeline, columns, run.load)
    plan = frame._jdf.queryExecution().analyzed().toString()
    assert plan.index("TransformWithState") < plan.index("MapInArrow") < plan.index("Repartition")


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("SELECT card, n(merchant), count(*) FROM payments GROUP BY card, {w}", ["`count` cannot"]),
        ("SELECT n(DISTINCT card) FROM payments GROUP BY {w}", ["DISTINCT"]),
        ("SELECT n(card) FILTER (WHERE amount > 1) FROM payments GROUP BY {w}", ["FILTER"]),
        ("SELECT n(card) FROM payments", ["without GROUP BY"]),
        ("SELECT n(card) FROM payments GROUP BY merchant", ["nothing says when a group of `n`"]),
        ("SELECT n(amount) FROM payments GROUP BY {w}", ["`n` is called with INT", "STRING"]),
        ("SELECT top(weight, card) FROM payments GROUP BY {w}", ["called with DOUBLE, STRING"]),
        ("SELECT top(1, card, 2) FROM payments GROUP BY {w}", ["called with INT, STRING, INT"]),
        ("SELECT n(card) FROM payments GROUP BY session_window(at, '1 hour')", ["session_window"]),
        ("SELECT n(card) FROM payments GROUP BY {w}, array(card)", ["values without parts"]),
        ("SELECT card, m(merchant) FROM payments GROUP BY card, {w}", ["unknown function `m`"]),
        ("SELECT n(card) OVER (PARTITION BY card) FROM payments", ["OVER"]),
    ],
)
def test_a_query_that_cannot_call_aggregates_so_is_refused(
    runs: Callable[..., Run], query: str, texts: list[str]
) -> None:
    run = runs(query.format(w="window(at, '1 hour')"))
    with pytest.raises(ConfigError) as refused:
        analyse(run.spark, run.file, NOW_MS)
    told = str(refused.value)
    assert [text for text in texts if text not in told] == []
    assert {fault.line for fault in refused.value.faults} == {8}


def test_what_is_declared_is_called_under_its_name_by_this_pipeline_alone(
    runs: Callable[..., Run], spark: SparkSession
) -> None:
    run = runs(OURS)
    assert [*analyse(spark, run.file, NOW_MS).processors] == ["aggregates_1"]
    assert not spark.catalog.functionExists("top")
