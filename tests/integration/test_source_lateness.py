"""A backlog loses nothing to lateness, however differently its partitions are filled.

Spark's event watermark follows the partition that is furthest ahead. The same backlog, read in
proportion instead of in time, does lose records: so this test can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import META_COLUMNS, SourceSpec
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.source.opening import open_stream
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_origin import KafkaOrigin
from tests.support.drivers.here import engine, run_here
from tests.support.jobs.views import FIRST, View, ViewsJob
from tests.support.outside.history import read_ledger
from tests.support.outside.topics import ordered_producer

BEGIN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
WINDOW_MS = 60_000
LATENESS_MS = 1_000
LIMIT = 400

Backlog = Mapping[int, Sequence[int]]
"""partition -> timestamps of its records."""


def backlog(random: Random) -> Backlog:
    """An hour. One partition has a hundred times the records of the other, and they begin apart.

    Partition 0 is dense in its last quarter, 1 is sparse all the time; both have bursts of equal
    timestamps.
    """
    dense = [BEGIN_MS + HOUR_MS * 3 // 4 + random.randrange(HOUR_MS // 4) for _ in range(3_000)]
    burst = [BEGIN_MS + HOUR_MS * 7 // 8] * 900
    sparse = [BEGIN_MS + random.randrange(HOUR_MS) for _ in range(30)]
    return {0: sorted(dense + burst), 1: sorted([*sparse, *[BEGIN_MS + HOUR_MS // 2] * 9])}


def expected_counts(records: Backlog) -> Counter[int]:
    """Start of each window -> records in it."""
    stamps = (stamp for partition in records.values() for stamp in partition)
    return Counter(stamp // WINDOW_MS * WINDOW_MS for stamp in stamps)


def produce(origin: KafkaOrigin, records: Backlog) -> None:
    producer = ordered_producer(origin.bootstrap_servers)
    for partition, stamps in records.items():
        for stamp in stamps:
            producer.produce(origin.topic, b"x", partition=partition, timestamp=stamp)
    assert producer.flush(30) == 0


def counts(frame: DataFrame, checkpoint: Path) -> Counter[int]:
    """Spark's counts in each window, by the time that the backlog is read and closed."""
    found: Counter[int] = Counter()

    def collect(batch: DataFrame, batch_id: int) -> None:
        for row in batch.collect():
            found[int(row.start.timestamp() * 1000)] += row.records

    windowed = (
        frame.withWatermark("_timestamp", f"{LATENESS_MS} milliseconds")
        .groupBy(F.window("_timestamp", f"{WINDOW_MS} milliseconds"))
        .agg(F.count("*").alias("records"))
        .select("window.start", "records")
    )
    writer = windowed.writeStream.foreachBatch(collect).option(
        "checkpointLocation", str(checkpoint)
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


@pytest.fixture(scope="module")
def session() -> SparkSession:
    return engine().open_session("")


@pytest.mark.parametrize("lateness_ms", [LATENESS_MS, None], ids=["in time", "in proportion"])
def test_a_backlog_of_uneven_partitions_loses_nothing_to_lateness(
    lateness_ms: int | None,
    session: SparkSession,
    broker: RunningBroker,
    topic: Callable[[str], str],
    tmp_path: Path,
    random: Random,
) -> None:
    origin = KafkaOrigin(broker.bootstrap_servers, topic("uneven"))
    origin.create()
    records = backlog(random)
    # One more far ahead closes every window before it.
    produce(origin, {**records, 0: [*records[0], BEGIN_MS + 2 * HOUR_MS]})
    schema = pa.schema([("_timestamp", META_COLUMNS["_timestamp"])])
    block = origin.block.with_limit(LIMIT)
    spec = SourceSpec("uneven", "binary", schema, lateness_ms=lateness_ms)
    handle = SourceHandle("kafka", block, spec, Connection(broker.bootstrap_servers))
    found = counts(open_stream(session, handle), tmp_path / "checkpoint")
    if lateness_ms is not None:
        assert found == expected_counts(records)
    else:
        lost = expected_counts(records) - found
        assert lost.total() > 0, "the naive plan loses nothing: this test proves nothing"


def test_late_rows_are_counted_in_the_ledger(broker: RunningBroker, tmp_path: Path) -> None:
    """In whichever batch of a run they are: the counters are found again in each new plan."""
    job = ViewsJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    file = job.write_file(batch=100)
    job.produce(Random(1), records=100)
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.produce(Random(2), records=300)
    job.send([View(f"/late/{number}", 1, FIRST) for number in range(3)])
    job.produce(Random(3), records=100)
    run_here(file, job.bootstrap_servers)
    counts = [head["records"] for head in read_ledger(job.bootstrap_servers, job.name)]
    assert sum(count["late"] for count in counts) == 3
    assert sum(count["read"] for count in counts) == len(job.produced)
