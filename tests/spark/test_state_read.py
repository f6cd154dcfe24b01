"""State that is read by key and as a whole, compared with Spark's own source of state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError, CorruptionError, RetriableError
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.spark.session import SessionSettings
from onceflow.runtime.state.bare_jvm import bare_jvm
from onceflow.runtime.state.forms import plain
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.reader import Row, StateReader, opened_state
from tests.support.pipelines import pipeline_text
from tests.support.states import (
    BATCHES,
    LAST,
    SNAPSHOT,
    WAIT_S,
    numbers,
    running,
    windows,
)


def sessions(spark: SparkSession) -> DataFrame:
    by = numbers(spark).groupBy(F.session_window("at", "10 seconds"), "page")
    return by.agg(F.count("*").alias("n"))


def first_of_each(spark: SparkSession) -> DataFrame:
    return numbers(spark).dropDuplicatesWithinWatermark(["page"])


def total(spark: SparkSession) -> DataFrame:
    by = numbers(spark).groupBy(F.window("at", "1 day"))
    return by.agg(F.sum("value").alias("a"), F.sum(-F.col("value")).alias("b"))


def joined(spark: SparkSession) -> DataFrame:
    left = numbers(spark)
    right = numbers(spark, 20).select(F.col("at").alias("at2"), F.col("page").alias("page2"))
    near = F.expr("page = page2 AND at2 >= at AND at2 <= at + INTERVAL 10 SECONDS")
    return left.join(right, near, "leftOuter")


QUERIES: Mapping[str, Callable[[SparkSession], DataFrame]] = {
    "aggregation": windows,
    "sessions": sessions,
    "deduplication": first_of_each,
    "join": joined,
}


@contextmanager
def reading(spark: SparkSession, checkpoint: Path) -> Iterator[StateReader]:
    with opened_state(str(checkpoint), SessionSettings(), jvm_of(spark)) as reader:
        yield reader


def exported(reader: StateReader, operator: Operator, batch: int) -> list[Row]:
    """Every row, with the columns of Spark's source."""
    return [
        {"store": store.name, "partition": partition, **plain(row)}
        for store, partition, table in reader.export(operator, batch)
        for row in table.to_pylist()
    ]


def oracle(spark: SparkSession, checkpoint: Path, operator: Operator, batch: int) -> list[Row]:
    """The same by Spark's own source, which reads a whole store."""
    found: list[Row] = []
    for store in operator.stores:
        source = spark.read.format("statestore").option("batchId", batch)
        rows = source.option("storeName", store.name).load(str(checkpoint)).toArrow().to_pylist()
        found += [
            {
                "store": store.name,
                "partition": row["partition_id"],
                "key": plain(row["key"]),
                "value": plain(row["value"]),
            }
            for row in rows
        ]
    return found


def in_order(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def texts(key: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str | None]]:
    """A key as a user gives it."""
    for name, value in key.items():
        if isinstance(value, dict):
            yield from texts(value, f"{path}{name}.")
        elif name not in {"sessionStartTime", "index"}:
            yield f"{path}{name}", value


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a query over windows that has ended."""
    folder = tmp_path_factory.mktemp("state") / "checkpoint"
    with running(windows(spark), folder):
        pass
    return folder


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", QUERIES)
def test_state_is_what_sparks_own_source_reads_while_the_query_runs_and_after(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    with running(QUERIES[name](spark), tmp_path), reading(spark, tmp_path) as reader:
        check_against_the_oracle(spark, reader, tmp_path, name)
    with reading(spark, tmp_path) as reader:
        check_against_the_oracle(spark, reader, tmp_path, name)


def check_against_the_oracle(
    spark: SparkSession, reader: StateReader, checkpoint: Path, name: str
) -> None:
    operator = reader.operator(None)
    assert operator.name == name
    assert [*reader.layout.batches(operator)][:BATCHES] == [*range(BATCHES)]
    for batch in (1, LAST):
        expected = oracle(spark, checkpoint, operator, batch)
        assert expected
        assert in_order(exported(reader, operator, batch)) == in_order(expected)
    deadline = SystemClock().within(WAIT_S)
    for row in expected[:5] + expected[-5:]:
        found = reader.get(operator, dict(texts(row["key"])), LAST, deadline)
        wanted = {part: row[part] for part in ("partition", "key", "value")}
        assert wanted in [{p: each[p] for p in wanted} for each in found]
        group = dict(texts(row["key"]))
        assert all(dict(texts(each["key"])) == group for each in found)
        # The same rows are found by looking at all of them.
        whole = [r for r in expected if dict(texts(r["key"])) == group]
        assert len(found) == len(whole)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("has_snapshots", [True, False])
def test_a_key_is_looked_up_in_the_changes_since_the_newest_snapshot_or_the_first_batch(
    spark: SparkSession, tmp_path: Path, *, has_snapshots: bool
) -> None:
    with running(windows(spark), tmp_path, has_snapshots=has_snapshots):
        pass
    # Spark may have made more meanwhile: it looks once a minute.
    assert (len([*tmp_path.glob("state/0/*/*.zip")]) >= 2) is has_snapshots
    deadline = SystemClock().within(WAIT_S)
    with reading(spark, tmp_path) as reader:
        operator = reader.operator(None)
        states = [oracle(spark, tmp_path, operator, batch) for batch in range(BATCHES)]
        keys = {json.dumps(row["key"]): row["key"] for state in states for row in state}
        for batch, state in enumerate(states):
            expected = {json.dumps(row["key"]): [row["value"]] for row in state}
            for text, key in keys.items():
                found = reader.get(operator, dict(texts(key)), batch, deadline)
                assert [row["value"] for row in found] == expected.get(text, [])
    # Deleted after the snapshot.
    assert {json.dumps(row["key"]) for row in states[SNAPSHOT]} - {*expected}


def test_a_part_of_the_key_finds_all_rows_that_have_it(
    spark: SparkSession, checkpoint: Path
) -> None:
    deadline = SystemClock().within(WAIT_S)
    with reading(spark, checkpoint) as reader:
        operator = reader.operator("0")
        found = reader.get(operator, {"page": "3"}, LAST, deadline)
        rows = exported(reader, operator, LAST)
        few = reader.get(operator, {"page": "3"}, LAST, deadline, most=1)
        nothing = reader.get(operator, {"page": "x"}, LAST, deadline)
        null = reader.get(operator, {"page": None}, LAST, deadline)
    assert len(found) == sum(row["key"]["page"] == "3" for row in rows) > 1
    assert len(few) == 1
    assert [*nothing, *null] == []


def test_a_difference_is_that_of_the_two_states(spark: SparkSession, checkpoint: Path) -> None:
    with reading(spark, checkpoint) as reader:
        operator = reader.operator("aggregation")
        changes = [*reader.diff(operator, 1, LAST)]
        before, after = (
            {json.dumps(row["key"]): row["value"] for row in exported(reader, operator, batch)}
            for batch in (1, LAST)
        )
    expected = {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
    assert {json.dumps(row["key"]): (row["before"], row["after"]) for row in changes} == expected
    assert {None} < {row["before"] is None or None for row in changes}


def test_a_reader_whose_jvm_has_ended_says_so_and_closes(checkpoint: Path) -> None:
    before = {*psutil.Process().children()}
    with (
        bare_jvm("512m") as jvm,
        opened_state(str(checkpoint), SessionSettings(), jvm) as reader,
    ):
        operator, batch = reader.find(None, None)
        assert [*reader.export(operator, batch)]
        (process,) = {*psutil.Process().children()} - before
        process.kill()
        process.wait(WAIT_S)
        # The first call finds a connection that is broken, later ones find none.
        for _ in range(2):
            with pytest.raises(RetriableError, match="the state cannot be read now"):
                reader.sizes(operator, batch).__next__()


def test_sizes_count_every_row(spark: SparkSession, checkpoint: Path) -> None:
    with reading(spark, checkpoint) as reader:
        operator = reader.operator(None)
        sizes = [*reader.sizes(operator, LAST)]
        rows = exported(reader, operator, LAST)
    assert {size.partition: size.rows for size in sizes} == {
        place: sum(row["partition"] == place for row in rows) for place in (0, 1)
    }
    assert all(size.bytes > 16 * size.rows for size in sizes)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["aggregation", "join"])
def test_a_digest_tells_states_apart_and_knows_no_partitions(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    digests = []
    for partitions in (2, 3):
        folder = tmp_path / str(partitions)
        with running(QUERIES[name](spark), folder, partitions):
            pass
        with reading(spark, folder) as reader:
            operator = reader.operator(None)
            assert operator.partitions == partitions
            digests.append([reader.digest(operator, batch) for batch in range(BATCHES)])
            parts = [reader.digest(operator, LAST, [place]) for place in range(partitions)]
            assert sum(part.total for part in parts) == digests[-1][LAST].total
    assert digests[0] == digests[1]
    assert len({digest.total for digest in digests[0]}) == BATCHES


def test_columns_of_one_name_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    with running(total(spark), tmp_path), reading(spark, tmp_path) as reader:
        operator = reader.operator(None)
        columns = reader.columns(operator)[""]["value"]
        (row,) = exported(reader, operator, LAST)
    assert [*columns] == ["sum", "sum_2"] == [*row["value"]]
    assert row["value"]["sum"] == -row["value"]["sum_2"]


@pytest.mark.parametrize(
    ("operator", "key", "batch", "told"),
    [
        ("agregation", {}, LAST, "Did you mean `aggregation`?"),
        (None, {"pag": "3"}, LAST, "Did you mean `page`?"),
        (None, {"window.start": "yesterday morning"}, LAST, "expected a timestamp"),
        (None, {}, 4_000, "expected one from 0 to"),
    ],
)
def test_a_wrong_question_is_told_what_there_is(
    spark: SparkSession,
    checkpoint: Path,
    operator: str | None,
    key: Mapping[str, str],
    batch: int,
    told: str,
) -> None:
    def ask(reader: StateReader) -> None:
        found = reader.operator(operator)
        as_of = reader.layout.require_batch(found, batch)
        reader.get(found, key, as_of, SystemClock().within(WAIT_S))

    with reading(spark, checkpoint) as reader, pytest.raises(ConfigError) as refused:
        ask(reader)
    assert told in str(refused.value)


def test_no_checkpoint_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with reading(spark, tmp_path) as reader, pytest.raises(ConfigError, match="no checkpoint"):
        reader.operator(None)


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with running(windows(spark), tmp_path):
        pass
    damaged = next(iter((tmp_path / "state/0/1").glob("2_*.changelog")))
    damaged.write_bytes(damaged.read_bytes()[:40])
    with reading(spark, tmp_path) as reader:
        operator = reader.operator(None)
        with pytest.raises(CorruptionError, match=damaged.name) as refused:
            reader.digest(operator, LAST, [1])
        reader.digest(operator, LAST, [0])
    assert refused.value.exit_code == 7


def test_a_batch_whose_files_are_gone_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    with running(windows(spark), tmp_path):
        pass
    with reading(spark, tmp_path) as reader:
        operator = reader.operator(None)
        reader.digest(operator, LAST)
        next(iter((tmp_path / "state/0/1").glob("1_*.changelog"))).unlink()
        with pytest.raises(ConfigError, match="cannot be read") as refused:
            reader.digest(operator, LAST)
    assert "files are all there" in str(refused.value)


@pytest.fixture
def command(
    spark: SparkSession, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs `onceflow state` in the JVM that the tests have."""

    @contextmanager
    def here(memory: str) -> Iterator[Any]:
        yield jvm_of(spark)

    monkeypatch.setattr("onceflow.runtime.state.bare_jvm.bare_jvm", here)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "views.yaml"
    file.write_text(pipeline_text() + f"checkpoint: {checkpoint}\n")

    def run(verb: str, *options: str) -> Result:
        arguments = ["state", verb, str(file), *options]
        return CliRunner().invoke(build_app(), arguments, catch_exceptions=False)

    return run


def test_commands_show_tables(command: Callable[..., Result], tmp_path: Path) -> None:
    shown = command("list").output
    assert "aggregation" in shown
    assert "window.start timestamp, window.end timestamp, page string" in shown
    heading, *rows = command("get", "--key", "page=3", "--batch", str(LAST)).output.splitlines()
    assert heading.split() == [
        "partition", "key.window.start", "key.window.end", "key.page", "count", "sum",
    ]  # fmt: skip
    assert rows
    assert "no such key" in command("get", "--key", "page").output
    assert command("size").output.count("aggregation") == 2
    out = tmp_path / "out"
    assert "rows in 2 files" in command("export", "--out", str(out)).output
    tables = [pq.read_table(file) for file in sorted(out.iterdir())]
    assert {name for table in tables for name in table.column_names} == {"key", "value"}
    with pytest.raises(ConfigError, match="something in it"):
        command("export", "--out", str(out))
    changed = command("diff", "--from", "1", "--to", str(LAST)).output
    assert "after.count" in changed


def test_commands_answer_programs(command: Callable[..., Result]) -> None:
    (listed,) = map(json.loads, command("list", "-o", "json").output.splitlines())
    assert (listed["name"], listed["partitions"], listed["first_batch"]) == ("aggregation", 2, 0)
    found = command("get", "--key", "page=3", "--batch", "2", "-o", "json").output.splitlines()
    assert {json.loads(line)["batch"] for line in found} == {2}
    sizes = map(json.loads, command("size", "-o", "json").output.splitlines())
    assert {size["partition"] for size in sizes} == {0, 1}
    changes = command("diff", "--from", "1", "--to", "2", "-o", "json").output.splitlines()
    assert all({"before", "after"} < json.loads(line).keys() for line in changes)


def test_a_dead_pipeline_is_read_without_a_session(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(pipeline_text() + f"checkpoint: {checkpoint}\n")
    command = [sys.executable, "-m", "onceflow.cli", "state", "get", str(file), "-o", "json"]
    command += ["--key", "page=3", "--batch", str(LAST)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["key"]["page"] for row in rows} == {"3"}
