"""The state that a pipeline keeps, read back with Spark's own reader of state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceflow.crashpoints import CrashPoint
from onceflow.errors import CorruptionError
from onceflow.protocol.state_sample import StateSample
from onceflow.runtime.checkpoint.hadoop_checksum import checksum_name
from onceflow.runtime.spark.session import SessionSettings
from onceflow.runtime.state.reader import opened_state
from onceflow.runtime.state.sampling import require_same
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine, run_here, run_until_it_fails
from tests.support.jobs.views import FIRST, MINUTE, ViewsJob
from tests.support.outside.history import read_ledger

BATCH = 300
RECORDS = 5 * BATCH
SECONDS = 300
COMPARED = 2
"""The newest batches."""
DEATHS = ((CrashPoint.AFTER_COMMIT, 3), (CrashPoint.BEFORE_COMMIT, 2))
"""Where, and at which batch of a start."""

Cell = tuple[str, datetime]


def new_job(broker: RunningBroker, folder: Path) -> ViewsJob:
    folder.mkdir()
    made = ViewsJob(broker.bootstrap_servers, folder)
    made.create_input()
    return made


def kept(spark: SparkSession, job: ViewsJob, batch_id: int) -> Mapping[Cell, tuple[int, int]]:
    """Views and milliseconds of each page and window, as they are after a batch."""
    reader = spark.read.format("statestore").option("batchId", batch_id)
    rows = reader.load(str(job.checkpoint)).selectExpr(
        "key.page", "unix_seconds(key.window.start) AS start", "value.*"
    )
    found = {
        (row[0], datetime.fromtimestamp(row[1], UTC)): (row[2], row[3]) for row in rows.collect()
    }
    assert len(found) == rows.count()
    return found


def counted(job: ViewsJob, from_ms: int) -> Mapping[Cell, tuple[int, int]]:
    """The same by the oracle, of windows that end after a watermark."""
    cells: dict[Cell, tuple[int, int]] = {}
    for view in job.produced:
        start = FIRST + (view.at - FIRST) // MINUTE * MINUTE
        if (start + MINUTE).timestamp() * 1000 > from_ms:
            views, total_ms = cells.get((view.page, start), (0, 0))
            cells[view.page, start] = views + 1, total_ms + view.ms
    return cells


def plans(heads: list[dict[str, Any]]) -> list[Any]:
    return [(h["batch_id"], h["event_watermark_ms"], list(h["sources"].values())) for h in heads]


def change_state(store: Path, version: int) -> None:
    """Replace what a batch has written by what the next one has, as if by a tool for backups."""
    for snapshot in store.glob("*.zip"):
        snapshot.unlink()
    (other,) = store.glob(f"{version + 1}_*.changelog")
    (changed,) = store.glob(f"{version}_*.changelog")
    changed.write_bytes(other.read_bytes())
    (store / checksum_name(changed.name)).unlink()


def test_state_is_kept_per_key_and_is_the_same_whatever_crashed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """Two pipelines of one input: one runs through, one dies at two of its batches."""
    steady, dying = (new_job(broker, tmp_path / name) for name in ("steady", "dying"))
    # A start has another first guess where a batch may end than a run that goes on.
    steady.at_one_moment = BATCH
    steady.produce(Random(1), RECORDS, SECONDS)
    file = dying.write_file(BATCH)
    file.write_text(file.read_text().replace(dying.input_topic, steady.input_topic))
    for point, batch in DEATHS:
        run_until_it_fails(file, dying.bootstrap_servers, point, batch)
    run_here(file, dying.bootstrap_servers)
    run_here(steady.write_file(BATCH), steady.bootstrap_servers)

    heads = read_ledger(steady.bootstrap_servers, steady.name)
    assert plans(read_ledger(dying.bootstrap_servers, dying.name)) == plans(heads)
    last = heads[-1]["batch_id"]
    spark = engine().open_session("")
    for batch_id in range(last - COMPARED + 1, last + 1):
        assert kept(spark, dying, batch_id) == kept(spark, steady, batch_id) != {}
    state = kept(spark, dying, last)
    # Samples of both are of the same state, whatever has died between them.
    for one, other in ((steady, dying), (dying, steady)):
        newest = StateSample.from_json(read_ledger(one.bootstrap_servers, one.name)[-1]["state"])
        assert newest.rows > 0
        with opened_state(str(other.checkpoint), SessionSettings(), engine().jvm()) as reader:
            assert require_same(reader, newest) is None
    # Rows by page and open window, however many records they count.
    assert state == counted(steady, heads[-1]["event_watermark_ms"])
    for job in (steady, dying):
        store = job.checkpoint / "state" / "0" / "0"
        changes = {file.name.partition(".")[0] for file in store.glob("*.changelog")}
        assert len(changes) > len([*store.glob("*.zip")])

    # A start on a state that was changed is refused, and writes nothing.
    change_state(steady.checkpoint / "state/0/0", heads[-1]["state"]["batch_id"] + 1)
    with pytest.raises(CorruptionError, match="state is not the one that was left") as refused:
        run_here(steady.write_file(BATCH), steady.bootstrap_servers)
    assert refused.value.exit_code == 7
    assert read_ledger(steady.bootstrap_servers, steady.name) == heads
