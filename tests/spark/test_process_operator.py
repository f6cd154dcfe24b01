"""Processors on Spark, many keys at a time and as PySpark does it: the same rows of both."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StructType

from onceflow.pipeline.process import operator, rows

Step: TypeAlias = Callable[..., DataFrame]
Batches: TypeAlias = list[list[tuple[Any, ...]]]

START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INPUT = "card string, at timestamp, amount bigint, _topic string, _partition int, _offset bigint"
OUTPUT = (
    StructType()
    .add("card", "string")
    .add("at", "timestamp")
    .add("total", "long")
    .add("seen", ArrayType(LongType()))
    .add("__reject", "string")
)
ORDER = ["at", "_topic", "_partition", "_offset"]
TIMER = timedelta(minutes=10)


@dataclass(frozen=True)
class Outcome:
    state: bytes | None
    rows: Sequence[tuple[object, ...]]
    wake_before_ms: int | None
    wake_ms: int | None


@dataclass(frozen=True)
class Totals:
    """Adds up amounts of a key, and closes it ten minutes after its last record.

    Its state is the total and the timer, and as many more bytes as asked for.
    """

    bytes_more: int = 0

    def handle(
        self, key: tuple[Any, ...], state: bytes | None, rows: Any, watermark_ms: int
    ) -> Outcome:
        total, wake = struct.unpack(">qq", state[:16]) if state else (0, None)
        assert state is None or len(state) == 16 + self.bytes_more
        if wake is not None and wake <= watermark_ms:
            out: list[tuple[object, ...]] = [(*key, from_ms(wake), total, None, None)]
            if not rows:
                return Outcome(None, out, wake, None)
            total = 0
        else:
            out = []
        if not rows:
            return Outcome(state, out, wake, wake)
        for _, at, amount, *_ in rows:
            assert at.utcoffset() == timedelta(0)
            total += amount
        last = max(row[1] for row in rows)
        out.append((*key, last, total, [row[2] for row in rows], None))
        until = (last + TIMER - EPOCH) // timedelta(milliseconds=1)
        return Outcome(struct.pack(">qq", total, until) + b"x" * self.bytes_more, out, wake, until)


def from_ms(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def record(card: str | None, minute: float, amount: int, place: int = 0) -> tuple[Any, ...]:
    return card, START + timedelta(minutes=minute), amount, "payments", place % 3, place


class Run:
    """A query over files, one for each batch; what each batch gave, by its number."""

    def __init__(self, spark: SparkSession, folder: Path, step: Step, runner: Any) -> None:
        self.spark, self.folder, self.step, self.runner = spark, folder, step, runner
        self.came: dict[int, list[Any]] = {}
        self.more: Callable[[DataFrame], DataFrame] = lambda frame: frame
        self.fails_at: int | None = None
        self.mode = "append"
        (folder / "in").mkdir(exist_ok=True)

    def source(self) -> DataFrame:
        read = self.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
        return read.parquet(str(self.folder / "in")).withWatermark("at", "0 seconds")

    def feed(self, *batches: list[tuple[Any, ...]], files: int = 1) -> None:
        for batch in batches:
            at = len(list((self.folder / "in").glob("*.parquet")))
            made = self.folder / f"made{at}"
            frame = self.spark.createDataFrame(batch, INPUT).coalesce(1)
            frame.write.parquet(str(made))
            [part] = made.glob("*.parquet")
            part.rename(self.folder / "in" / f"{at:03}.parquet")

    def run(self) -> dict[int, list[Any]]:
        frame = self.source().repartition(3)
        made = self.step(frame, ["card"], ORDER, OUTPUT, self.runner)
        query = (
            self.more(made)
            .writeStream.foreachBatch(self.keep)
            .outputMode(self.mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {number: came for number, came in self.came.items() if came}

    def keep(self, frame: DataFrame, number: int) -> None:
        came = [row.asDict(True) for row in frame.collect()]
        assert self.came.setdefault(number, came) == came
        if number == self.fails_at:
            raise RuntimeError("on purpose")


@pytest.fixture(params=[operator.batch_at_a_time, operator.key_at_a_time], ids=["batch", "stock"])
def run(
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    # Workers do not find the tests.
    monkeypatch.setattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", {__name__})
    return Run(spark, tmp_path, request.param, Totals())


BATCHES: Batches = [
    [record(f"c{n % 7}", n % 5, n, n) for n in range(60)],
    [record(f"c{n % 3}", 5 + n % 4, n, 60 + n) for n in range(30)],
    [record("late", 60, 1, 100)],
]


def test_rows(run: Run) -> None:
    run.feed(*BATCHES)
    print(run.run())
