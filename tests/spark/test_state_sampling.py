"""Samples of the state, in `head`, tell whether a query finds the state that it left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import CorruptionError
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.protocol.state_sample import StateSample
from onceflow.runtime.checkpoint.hadoop_checksum import checksum_name
from onceflow.runtime.spark.session import SessionSettings
from onceflow.runtime.state.reader import opened_state
from onceflow.runtime.state.sampling import StateSampler, next_sample, require_same
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.states import LAST, WAIT_S, running, windows


@pytest.fixture(scope="module")
def left(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the state of windows."""
    folder = tmp_path_factory.mktemp("left")
    with running(windows(spark), folder):
        pass
    return folder


@pytest.fixture
def checkpoint(left: Path, tmp_path: Path) -> Path:
    return shutil.copytree(left, tmp_path / "checkpoint")


def sample(
    spark: SparkSession, checkpoint: Path, last: StateSample | None = None, batch: int = LAST
) -> StateSample:
    with opened_state(str(checkpoint), SessionSettings(), jvm_of(spark)) as reader:
        found = next_sample(reader, batch, last)
    assert found is not None
    return found


def compare(spark: SparkSession, checkpoint: Path, recorded: StateSample) -> str | None:
    with opened_state(str(checkpoint), SessionSettings(), jvm_of(spark)) as reader:
        return require_same(reader, recorded)


def test_partitions_take_turns_and_are_found_again(spark: SparkSession, checkpoint: Path) -> None:
    first = sample(spark, checkpoint)
    second = sample(spark, checkpoint, first)
    assert [each.partition for each in (first, second)] == [0, 1]
    assert sample(spark, checkpoint, second) == first
    assert first.rows > 0
    for each in (first, second):
        assert compare(spark, checkpoint, each) is None
    # Spark has removed it since: there is nothing to compare it with.
    assert compare(spark, checkpoint, replace(first, batch_id=LAST + 100, digest="")) is None


def change_a_file(store: Path) -> None:
    """Replace what a batch has written by what the next one has, as if by a tool for backups."""
    (batch_2,), (batch_3,) = store.glob("3_*.changelog"), store.glob("4_*.changelog")
    batch_2.write_bytes(batch_3.read_bytes())
    (store / checksum_name(batch_2.name)).unlink()


def lose_a_file(store: Path) -> None:
    next(store.glob("3_*.changelog")).unlink()


def lose_a_partition(store: Path) -> None:
    shutil.rmtree(store)


def lose_the_operator(store: Path) -> None:
    shutil.rmtree(store.parent)


def cut_the_metadata(store: Path) -> None:
    file = store.parent / "_metadata/metadata"
    file.write_bytes(file.read_bytes()[:10])


@pytest.mark.parametrize(
    "damage", [lose_a_file, lose_a_partition, lose_the_operator, cut_the_metadata]
)
def test_a_state_that_cannot_be_read_is_left_to_spark(
    spark: SparkSession, checkpoint: Path, damage: Callable[[Path], None]
) -> None:
    recorded = sample(spark, checkpoint, sample(spark, checkpoint))
    damage(checkpoint / "state/0/1")
    told = compare(spark, checkpoint, recorded)
    assert told is not None
    assert told.startswith("partition 1 of operator 0 as of batch")


def test_a_state_that_is_another_is_refused(spark: SparkSession, checkpoint: Path) -> None:
    recorded = sample(spark, checkpoint, sample(spark, checkpoint))
    change_a_file(checkpoint / "state/0/1")
    with pytest.raises(CorruptionError, match="partition 1 of operator 0 as of batch") as refused:
        compare(spark, checkpoint, recorded)
    assert refused.value.exit_code == 7
    assert recorded.digest in str(refused.value)


def test_a_sampler_takes_them_beside_the_batches(spark: SparkSession, checkpoint: Path) -> None:
    told: list[object] = []
    first = sample(spark, checkpoint, batch=LAST - 1)
    second = sample(spark, checkpoint, first)
    with (
        opened_state(str(checkpoint), SessionSettings(), jvm_of(spark)) as reader,
        # No time passes by this clock, so each batch is sampled.
        StateSampler(
            reader, ManualClock(), lambda *all_of_it, **_: told.append(all_of_it)
        ) as taken,
    ):
        taken.begin(-1)
        assert taken.rows is None
        taken.begin(LAST - 1)
        assert eventually(lambda: taken.newest, timeout_s=WAIT_S) == first
        # The other partition was not sampled yet, and counts as this one.
        eventually(lambda: not taken.is_busy, timeout_s=WAIT_S)
        assert taken.rows == 2 * first.rows
        taken.begin(LAST)
        eventually(lambda: not taken.is_busy, timeout_s=WAIT_S)
        assert taken.newest == second
        assert taken.rows == first.rows + second.rows
    assert not told
