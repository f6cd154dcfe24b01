"""A processor on Spark gives what the harness gives: random histories of many keys in one query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from onceflow.aggregates import Max, Sum
from onceflow.columns import parse_columns
from onceflow.pipeline.process import operator
from onceflow.processing import Aggregated, List, Map, Processor, ProcessorHarness, Value
from onceflow.processing.checks import make_runner
from onceflow.processing.parameters import NONE, Parameters
from onceflow.processing.runner import Handled, Runner

Way: TypeAlias = Callable[..., DataFrame]
Row: TypeAlias = tuple[Any, ...]

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS_S = 20
COLUMNS = (
    "run string, card string, level decimal(6,2), since timestamp, do string, n int, at timestamp,"
    " _topic string, _partition int, _offset bigint"
)
NAMES = parse_columns(COLUMNS).names
SCHEMA = pa.schema(parse_columns(COLUMNS).to_arrow())
LEVELS = (
    (Decimal("1.50"), T0),
    (Decimal("0.00"), T0 + timedelta(microseconds=1)),
    (None, T0),
    (Decimal("-1.00"), None),
)
"""Columns of the key; records without one are rejected."""
KEYS, RECORDS, BATCHES = 50, 2_500, 3
WAYS: tuple[Way, ...] = (operator.batch_at_a_time, operator.key_at_a_time)
PLACES = (("a", 0), ("a", 1), ("b", 0))
DOINGS = ("set", "append", "put", "drop", "add", "time", "cancel", "clear", "many", "fail")
RUNS = ("arrival", "watermark", "cut")
"""How a key is handled: as it arrives, once the watermark has passed, and the latter with other
batches in the harness."""


class Everything(Processor):
    """Does what its records say, and tells all of its state after each."""

    key = ("run", "card", "level", "since")
    value = Value("n int, at timestamp", ttl="40 s")
    items = List("int", ttl="25 s")
    places = Map("int", "array<int>", ttl="30 s")
    sums = Aggregated(Sum("int"), ttl="50 s")
    highest = Aggregated(Max("int"))
    count = Value("bigint", default=0)
    output = "run string, card string, level decimal(6,2), since timestamp, what string, n int"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for record in records:
            self.count.set(self.count.get() + 1)
            self.do(record)
            yield self.told(key, f"{record.do} of {len(records)}", record.n)
            if record.do == "many":
                yield from (self.told(key, "more", n) for n in range(record.n or 0))

    def do(self, record: Any) -> None:
        n = record.n
        match record.do:
            case "set":
                self.value.set(n=n, at=record.at)
            case "append":
                self.items.extend([n, None])
            case "put":
                self.places[n or 0] = [*self.places.get(n or 0, []), n]
            case "drop":
                self.places.pop(n or 0, None)
                self.items.drop_first()
            case "add":
                self.sums.add(n)
                self.highest.add(n)
            case "time":
                self.timers.at(record.at + timedelta(seconds=n), f"name-{n % 2}")
            case "cancel":
                self.timers.cancel(f"name-{n % 2}")
            case "clear":
                for each in (self.value, self.items, self.places, self.sums, self.highest):
                    each.clear()
                self.count.clear()
            case "fail":
                self.items.append(n)
                raise ValueError("on purpose")

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        self.items.append(len(self.timers.pending()))
        if self.items[-1] and name == "name-0":
            self.timers.at(at + timedelta(seconds=self.items[-1]), "name-1")
        yield self.told(key, f"{name} at {at:%T}", None)

    def told(self, key: Any, what: str, n: int | None) -> Any:
        state = [self.value.get(), [*self.items], {**self.places}, self.sums.result()]
        state += [self.highest.result(), self.count.get(), self.timers.pending()]
        return (*key, f"{self.now:%T.%f} {what}: {state}", n)


@dataclass(frozen=True)
class EachItsWay:
    """Hands a key to the runner that its first column names."""

    runners: Mapping[str, Runner]
    initial: bytes | None = None
    name: str = "histories"
    parameters: Parameters = NONE
    may_wake: bool = True

    def handle(
        self, key: Any, state: bytes | None, rows: Any, watermark_ms: int, _: Mapping[str, Any]
    ) -> Handled:
        return self.runners[key[0]].handle(key, state, rows, watermark_ms)


def when(run: str) -> Any:
    return "arrival" if run == "arrival" else "watermark"


class Arrivals:
    """Makes records as they arrive: out of order by less than the lateness, and some late."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0

    def record(self, run: str, card: str, at: datetime | None, *doing: Any) -> Row:
        random, self.count = self.random, self.count + 1
        place = random.choice(PLACES)
        levels = random.choices(LEVELS, (46, 46, 4, 4))[0] if card != "clock" else LEVELS[0]
        return (run, card, *levels, *doing, at, *place, self.count)

    def history(self, keys: int, records: int) -> list[Row]:
        random = self.random
        found = []
        for number in range(records):
            run = random.choice(RUNS)
            second = 240 * number // records + random.randrange(LATENESS_S)
            if run != "cut" and random.random() < 0.1:
                second -= random.randrange(80)
            at = T0 + timedelta(seconds=second, microseconds=random.choice((0, 0, 500)))
            n = random.randrange(1, 30) if random.random() < 0.9 else None
            has_time = random.random() < 0.99
            card = f"card-{random.randrange(keys)}"
            doing = random.choice(DOINGS)
            found.append(self.record(run, card, at if has_time else None, doing, n))
        return found

    def clocks(self, runs: Sequence[str], at: datetime) -> list[Row]:
        """A record of each run at the same time, so that their event watermarks are the same."""
        return [self.record(run, "clock", at, "set", 0) for run in runs]


def cut(random: Random, rows: Sequence[Row], pieces: int) -> list[list[Row]]:
    ends = sorted(random.randrange(len(rows)) for _ in range(pieces - 1))
    return [[*rows[start:end]] for start, end in pairwise([0, *ends, len(rows)])]


def newest(rows: Sequence[Row]) -> datetime:
    return max((row[6] for row in rows if row[6] is not None), default=T0)


def by_harness(run: str, batches: Sequence[Sequence[Row]]) -> ProcessorHarness:
    harness = ProcessorHarness(
        Everything,
        COLUMNS,
        event_time="at",
        lateness=f"{LATENESS_S} s",
        when=when(run),
        on_reject="drop",
    )
    for batch in batches:
        harness.send(*(dict(zip(NAMES, row, strict=True)) for row in batch if row[0] == run))
    return harness


def by_spark(
    spark: SparkSession, folder: Path, batches: Sequence[Sequence[Row]]
) -> Mapping[str, list[Any]]:
    """Run a query for each way over the same files; give what came out."""
    came: dict[str, list[Any]] = {}
    (folder / "in").mkdir()
    queries = [started(spark, folder, way, came.setdefault(way.__name__, [])) for way in WAYS]
    try:
        for number, batch in enumerate(batches):
            columns = dict(zip(NAMES, zip(*batch, strict=True), strict=True))
            pq.write_table(pa.table(columns, SCHEMA), folder / "one")
            (folder / "one").rename(folder / "in" / f"{number:03}.parquet")
            for query in queries:
                # Also waits for the batch without data that moves the event watermark.
                query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    return came


def started(spark: SparkSession, folder: Path, way: Way, came: list[Any]) -> StreamingQuery:
    source = spark.readStream.schema(COLUMNS).parquet(str(folder / "in"))
    frame = source.withWatermark("at", f"{LATENESS_S} seconds").repartition(3)
    runners = {run: runner(run) for run in RUNS}
    [first, *_] = runners.values()
    output = StructType.fromDDL(f"{first.output.columns_ddl}, __rejected string")
    made = way(frame, first.keys, first.order_columns, output, EachItsWay(runners))
    writer = made.writeStream.foreachBatch(lambda rows, _: came.extend(rows.collect()))
    return writer.option("checkpointLocation", str(folder / way.__name__)).start()


def runner(run: str) -> Runner:
    columns = parse_columns(COLUMNS)
    step = {"name": run, "columns": columns, "key": None, "time": "at", "output": None}
    return make_runner(Everything, when=when(run), keeps_going=True, **step)  # type: ignore[arg-type]


def by_key(rows: Iterable[Mapping[str, Any]]) -> Mapping[Any, list[Any]]:
    """Output of each key, in order."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        since = row["since"] and row["since"].replace(tzinfo=UTC)
        key = row["run"], row["card"], row["level"], since
        found.setdefault(key, []).append((row["what"], row["n"]))
    return found


def places(rejected: Iterable[str]) -> list[Any]:
    """Which records were rejected. Workers do not know the line of the error: see `by_value`."""
    return sorted(json.loads(each)["offset"] for each in rejected)


@pytest.fixture(autouse=True)
def by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not find the tests."""
    monkeypatch.setattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", {__name__})


def test_random_histories_give_the_rows_of_the_harness(
    spark: SparkSession, tmp_path: Path, random: Random
) -> None:
    arrivals = Arrivals(random)
    arrived = arrivals.history(KEYS, RECORDS)
    end = arrivals.clocks(RUNS, T0 + timedelta(hours=1))
    cuts = cut(random, arrived, BATCHES)
    batches = [*([*batch, *arrivals.clocks(RUNS[:2], newest(batch))] for batch in cuts), end]
    others = [*cut(random, arrived, 3 * BATCHES), end]
    harnesses = [by_harness(run, others if run == "cut" else batches) for run in RUNS]
    rejected = places(each for harness in harnesses for each in harness.rejected)
    expected = by_key(row for harness in harnesses for row in harness.rows)
    assert [bool(harness.late) for harness in harnesses] == [True, True, False]
    assert len(expected) > KEYS
    for way, rows in by_spark(spark, tmp_path, batches).items():
        texts = [row["__rejected"] for row in rows]
        assert places(filter(None, texts)) == rejected != [], way
        came = by_key(row for row in rows if row["__rejected"] is None)
        assert {key: came.get(key) for key in {**expected, **came}} == expected, way
