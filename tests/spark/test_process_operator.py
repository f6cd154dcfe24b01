"""Processors on Spark, many keys at a time and as PySpark does it: the same rows of both."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructType

from onceflow.errors import ConfigError
from onceflow.pipeline.process import operator
from onceflow.processing.parameters import LOCAL_PROPERTY, NONE, Parameter, Parameters

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
    parameters: Parameters = NONE
    name: str = "totals"
    initial: bytes | None = None
    may_wake: bool = True

    def handle(
        self, key: tuple[Any, ...], state: bytes | None, rows: Any, watermark_ms: int, _: Any
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
        self.event_time = ""
        self.keys = ["card"]
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
        made = self.step(frame, self.keys, ORDER, OUTPUT, self.runner)
        made = operator.with_event_time(made, self.event_time) if self.event_time else made
        query = (
            self.more(made)
            .writeStream.foreachBatch(self.keep)
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


@pytest.fixture(autouse=True)
def by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not find the tests."""
    monkeypatch.setattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", {__name__})


WAYS = [
    pytest.param(operator.batch_at_a_time, id="batch"),
    # `test_processing_as_harness.py` goes it each time.
    pytest.param(operator.key_at_a_time, id="stock", marks=pytest.mark.long),
]


@pytest.fixture(params=WAYS)
def run(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    return Run(spark, tmp_path, request.param, Totals())


@pytest.fixture
def quick(spark: SparkSession, tmp_path: Path) -> Run:
    """Only the way that pipelines go."""
    return Run(spark, tmp_path, operator.batch_at_a_time, Totals())


BATCHES: Batches = [
    [record(f"c{n % 7}", n % 5, n, n) for n in range(60)],
    [record(f"c{n % 3}", 5 + n % 4, n, 60 + n) for n in range(30)],
    [record("late", 60, 1, 100)],
]


def by_oracle(batches: Batches) -> dict[int, list[Any]]:
    """Compute what `Totals` gives; in one more batch without data, timers go off."""
    totals: dict[str, tuple[int, datetime]] = {}
    event_watermark = EPOCH
    came: dict[int, list[Any]] = {}
    for number, batch in enumerate([*batches, []]):
        out: list[Any] = []
        for card in sorted({r[0] for r in batch} | {*totals}):
            total, until = totals.get(card, (0, None))
            if until is not None and until <= event_watermark:
                out.append((card, until, total, None))
                totals.pop(card)
                total = 0
            mine = sorted((r for r in batch if r[0] == card), key=lambda r: (r[1], *r[3:]))
            if mine:
                total += sum(r[2] for r in mine)
                totals[card] = (total, mine[-1][1] + TIMER)
                out.append((card, mine[-1][1], total, [r[2] for r in mine]))
        came[number] = sorted(out, key=str)
        event_watermark = max([event_watermark, *(r[1] for r in batch)])
    return came


def rows_of(came: dict[int, list[Any]]) -> list[Any]:
    return [rows for _, rows in sorted(plain(came).items()) if rows]


def plain(came: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {
        number: sorted(
            ((r["card"], r["at"].replace(tzinfo=UTC), r["total"], r["seen"]) for r in rows),
            key=str,
        )
        for number, rows in came.items()
    }


def test_records_come_in_order_and_timers_in_a_batch_without_data(run: Run) -> None:
    run.feed(*BATCHES)
    came = plain(run.run())
    assert came == by_oracle(BATCHES)
    assert len(came[3]) == 7


def test_a_batch_that_failed_gives_the_same_rows_again(run: Run) -> None:
    run.feed(*BATCHES[:2])
    run.run()
    run.feed(BATCHES[2])
    for run.fails_at in (3, 4):
        with pytest.raises(StreamingQueryException):
            run.run()
    run.fails_at = None
    # `keep` compares what comes again.
    assert rows_of(run.run()) == [*by_oracle(BATCHES).values()]


def test_the_other_way_takes_over_the_state(run: Run) -> None:
    run.feed(*BATCHES[:2])
    run.run()
    ways = {operator.batch_at_a_time, operator.key_at_a_time}
    [run.step] = ways - {run.step}
    run.feed(BATCHES[2])
    assert rows_of(run.run()) == [*by_oracle(BATCHES).values()]


def test_large_states_go_through(run: Run) -> None:
    run.runner = Totals(bytes_more=20_000_000)
    batches = [[record(f"c{n}", minute, n, n) for n in range(1)] for minute in (0, 1)]
    run.feed(*batches)
    assert plain(run.run())[1] == by_oracle(batches)[1]


@dataclass(frozen=True)
class Keys:
    """Gives its key as text when records come, and again when its timer goes off."""

    parameters: Parameters = NONE
    name: str = "keys"
    initial: bytes | None = None
    may_wake: bool = True

    def handle(
        self, key: tuple[Any, ...], state: bytes | None, rows: Any, watermark_ms: int, _: Any
    ) -> Outcome:
        out = [("", EPOCH, len(rows), None, repr(key))]
        if not rows:
            return Outcome(None, out, struct.unpack(">q", state)[0] if state else 0, None)
        wake = watermark_ms + 1
        return Outcome(struct.pack(">q", wake), out, None, wake)


def test_keys_of_any_type_are_the_same_with_records_and_with_timers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifted = F.col("at") + F.expr("interval 0 seconds")
    keys = [shifted.alias("k0"), F.col("at").cast("date").alias("k1")]
    keys += [F.lit(1.5).cast("decimal(9,2)").alias("k2"), F.lit("x").cast("binary").alias("k3")]
    keys += [F.lit(None).cast("string").alias("k4"), F.lit(2.5).alias("k5")]
    keys += [F.col("at").cast("timestamp_ntz").alias("k6"), F.lit(True).alias("k7")]
    plain_source = run.source
    monkeypatch.setattr(run, "source", lambda: plain_source().select("*", *keys))
    run.keys, run.runner = [f"k{n}" for n in range(8)], Keys()
    run.feed([record("c", 0, 1, 1), record("c", 0, 2, 2)], [record("c", 60, 1, 3)])
    came = [(row["total"], row["__reject"]) for rows in run.run().values() for row in rows]
    text = "(datetime.datetime({}), datetime.date(2024, 1, 1), Decimal('1.50'), b'x', None, 2.5,"
    text += " datetime.datetime({}), True)"
    early, late = "2024, 1, 1, 0, 0", "2024, 1, 1, 1, 0"
    [early, late] = [text.format(f"{at}, tzinfo=datetime.timezone.utc", at) for at in (early, late)]
    assert sorted(came) == sorted([(2, early), (1, late), (0, early), (0, late)])


LIMIT = Parameters({"limit": Parameter("bigint", "100")})


@dataclass(frozen=True)
class Limits:
    """Gives the limit of the batch with records, and again when the timer goes off."""

    parameters: Parameters = LIMIT
    name: str = "limits"
    initial: bytes | None = None
    may_wake: bool = True

    def handle(
        self,
        key: tuple[Any, ...],
        state: bytes | None,
        rows: Any,
        watermark_ms: int,
        parameters: Mapping[str, Any],
    ) -> Outcome:
        out = [(*key, EPOCH, parameters["limit"], None, None)]
        return Outcome(b"s" if rows else None, out, None, watermark_ms + 1 if rows else None)


def test_records_and_timers_see_the_parameters_of_their_batch(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(frame: DataFrame, number: int) -> None:
        kept = {"limit": str(number)} if number else {}
        run.spark.sparkContext.setLocalProperty(LOCAL_PROPERTY, json.dumps(kept))
        run.came[number] = [row["total"] for row in frame.collect()]

    monkeypatch.setattr(run, "keep", keep)
    run.runner = Limits()
    run.feed(*([record(f"c{n}", minute, n, n) for n in range(3)] for minute in (0, 1)))
    # No record comes in the last batch: timers go off.
    assert {number: {*seen} for number, seen in run.run().items()} == {0: {100}, 1: {1}, 2: {2}}


def test_an_error_of_the_runner_is_told(run: Run) -> None:
    run.runner = Totals(bytes_more=-1)
    run.feed(BATCHES[0], BATCHES[1])
    with pytest.raises(StreamingQueryException, match="AssertionError"):
        run.run()


def test_rows_may_go_on_to_windows(quick: Run) -> None:
    quick.more = lambda frame: frame.groupBy(F.window("at", "5 minutes")).count()
    quick.event_time = "at"
    quick.feed(*BATCHES)
    rows = [r for rows in quick.run().values() for r in rows]
    counts = {r["window"]["start"].minute: r["count"] for r in rows}
    assert counts == {0: 7, 5: 3, 10: 4, 15: 3}


def test_rows_that_are_late_for_a_window_do_not_end_the_query(quick: Run) -> None:
    def early(*parts: Any) -> DataFrame:
        made = operator.batch_at_a_time(*parts)
        return made.withColumn("at", F.col("at") - F.expr("interval 1 day"))

    quick.step, quick.event_time = early, "at"
    quick.more = lambda frame: frame.groupBy(F.window("at", "5 minutes")).count()
    quick.feed(*BATCHES)
    # As of the third batch, the event watermark of the one before is later than its rows.
    assert sum(r["count"] for rows in quick.run().values() for r in rows) == 10


def test_rows_may_go_on_to_another_processor(quick: Run) -> None:
    def again(frame: DataFrame) -> DataFrame:
        places = [F.lit("first").alias("_topic"), F.lit(0).alias("_partition")]
        columns: list[Any] = ["card", "at", F.col("total").alias("amount"), *places]
        columns.append(F.lit(0).cast("bigint").alias("_offset"))
        return quick.step(frame.select(*columns), ["card"], ORDER, OUTPUT, Totals())

    quick.more, quick.event_time = again, "at"
    quick.feed(*BATCHES)
    came = rows_of(quick.run())
    first = [
        [(card, at, total, "first", 0, 0) for card, at, total, _ in rows]
        for rows in by_oracle(BATCHES).values()
    ]
    # A timer of the second that is due at once is the runner's to fire; this one has none.
    handled = [[r for r in rows if r[3]] for rows in by_oracle(first).values()]
    assert [[r for r in rows if r[3]] for rows in came] == handled[:4]


def test_rows_may_be_joined(quick: Run) -> None:
    quick.event_time = "at"

    def joined(frame: DataFrame) -> DataFrame:
        other = quick.source().select(F.col("card").alias("c"), F.col("at").alias("t"), "amount")
        same = (frame.card == F.col("c")) & (frame.at == F.col("t"))
        return frame.join(other, same, "left_outer").select("card", "at", "total", "amount")

    quick.more = joined
    quick.feed(*BATCHES)
    rows = [r for rows in quick.run().values() for r in rows]
    pairs = [(r["card"], r["at"].replace(tzinfo=UTC), r["total"], r["amount"]) for r in rows]
    amounts: dict[Any, list[int]] = {}
    for batch in BATCHES:
        for card, at, amount, *_ in batch:
            amounts.setdefault((card, at), []).append(amount)
    expected = [
        (*row, amount)
        for came in by_oracle(BATCHES).values()
        for *row, _ in came
        for amount in amounts.get((row[0], row[1]), [None])
    ]
    assert sorted(pairs, key=str) == sorted(expected, key=str)


def test_the_fallback_is_taken_with_a_warning(quick: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operator._NAMES, "pyspark.util", ["PythonEvalType.GONE"])
    assert operator.missing_names() == ["pyspark.util.PythonEvalType.GONE"]
    with pytest.warns(RuntimeWarning, match="a key at a time.*GONE"):
        made = operator.process(quick.source(), ["card"], ORDER, OUTPUT, quick.runner)
    assert made.isStreaming
    with pytest.raises(ConfigError, match=r"an initial state cannot be taken.*GONE"):
        operator.process(quick.source(), ["card"], ORDER, OUTPUT, Totals(initial=b""))  # type: ignore[arg-type]
    monkeypatch.setattr(operator, "KNOWN_PYSPARK", "9.9.9")
    assert operator.missing_names() == ["what PySpark 9.9.9 has (it is 4.2.0)"]


def test_nothing_is_missing() -> None:
    assert operator.missing_names() == []
