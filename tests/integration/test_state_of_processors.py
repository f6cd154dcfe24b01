"""State of processors that is read by key and as a whole, compared with the harness and Spark."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError, CorruptionError
from onceflow.processing.harness import ProcessorHarness
from onceflow.runtime.spark.session import SessionSettings
from onceflow.runtime.state.reader import StateReader, opened_state
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine, run_here, running_here
from tests.support.jobs.cards import CardsJob, Payment
from tests.support.states import upload_snapshots

WAIT_S = 60.0
COLUMNS = "card STRING, shop STRING, amount BIGINT, at TIMESTAMP"
SECOND_SOURCE = f"""\
  again:
    kafka: {{topics: [TOPIC]}}
    schema: "{COLUMNS}"
    event_time: at
    lateness: 5 seconds
"""
SECOND_STEP = """\
  others:
    class: MODULE:Cards
    input: again
query: SELECT * FROM others UNION ALL SELECT * FROM cards
"""


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> CardsJob:
    return new_job(broker, tmp_path)


@pytest.fixture(scope="module")
def ended(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> CardsJob:
    """A pipeline that has ended, and stays as it is."""
    job = new_job(broker, tmp_path_factory.mktemp("ended"))
    run_here(job.write_file(100), job.bootstrap_servers)
    return job


def new_job(broker: RunningBroker, folder: Path) -> CardsJob:
    made = CardsJob(broker.bootstrap_servers, folder)
    made.create_input()
    made.produce(Random(7), 400, 100)
    return made


@contextmanager
def reading(checkpoint: Path) -> Iterator[StateReader]:
    with opened_state(str(checkpoint), SessionSettings(), engine().jvm()) as reader:
        yield reader


def harness_of(job: CardsJob) -> ProcessorHarness:
    """The same records, in one batch."""
    name = job.name.replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, job.folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = ProcessorHarness(
        module.Cards,
        COLUMNS,
        event_time="at",
        lateness="5 seconds",
        when="watermark",
        on_reject="drop",
    )
    made.send(*map(asdict, job.produced))
    return made


def of_harness(harness: ProcessorHarness, card: str) -> Mapping[str, Any]:
    state = harness.state(card)
    n, total = state["total"]
    return {
        "total": {"n": n, "sum": total},
        "recent": state["recent"],
        "shops": state["shops"],
        "_timers": [{"at": at.isoformat(), "name": name} for at, name in harness.timers(card)],
    }


def alive(value: Mapping[str, Any], harness: ProcessorHarness) -> Mapping[str, Any]:
    """State that was read, as the harness shows it: without what has ended meanwhile."""
    now = harness.event_watermark.isoformat()
    recent = [each["value"] for each in value["recent"] if each["expires"] > now]
    shown = {name: each for name, each in value.items() if name != "_waiting"}
    # What is not set is null: the default is the class's.
    return {**shown, "recent": recent, "total": value["total"] or {"n": 0, "sum": 0}}


def oracle(job: CardsJob, batch: int) -> dict[str, Any]:
    """By Spark's own source, and Avro: the state of each card, with the partition."""
    spark = SparkSession.builder.getOrCreate()
    source = spark.read.format("statestore").option("stateVarName", "s").option("batchId", batch)
    rows = source.load(str(job.checkpoint)).collect()
    [form] = json.loads((job.checkpoint / "processors/cards.json").read_text())["states"]
    return {
        row["key"]["card"]: (
            row["partition_id"],
            fastavro.schemaless_reader(
                io.BytesIO(row["value"]["__processor_cards"][10:]), form["schema"], None
            ),
        )
        for row in rows
    }


def test_state_is_what_the_harness_and_sparks_own_source_have(job: CardsJob) -> None:
    file = job.write_file(30)
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(13)
        # A key is looked up in one, and in the changes after it.
        upload_snapshots(SparkSession.builder.getOrCreate())
        assert [*job.checkpoint.glob("state/0/*/*.zip")]
        with reading(job.checkpoint) as reader:
            found = reader.operator("cards")
            batch = reader.layout.require_batch(found, None)
            deadline = SystemClock().within(WAIT_S)
            rows = reader.get(found, {}, batch, deadline)
            [one] = reader.get(found, {"card": rows[0]["key"]["card"]}, batch, deadline)
            assert one == rows[0]
    # In its batch, the event watermark has passed everything but the newest records.
    job.send([Payment("last", "last", 1, max(each.at for each in job.produced))])
    run_here(file, job.bootstrap_servers)
    harness = harness_of(job)
    with reading(job.checkpoint) as reader:
        found = reader.operator(None)
        assert (found.name, found.kind) == ("cards", "processor")
        batch = reader.layout.require_batch(found, None)
        expected = oracle(job, batch)
        assert expected.keys() == {card for (card,) in harness.keys}
        for card, (partition, stored) in expected.items():
            [row] = reader.get(found, {"card": card}, batch, SystemClock().within(WAIT_S))
            assert (row["key"], row["partition"]) == ({"card": card}, partition)
            assert alive(row["value"], harness) == of_harness(harness, card)
            assert row["value"]["_waiting"] == len(stored["_waiting"])
        none = reader.get(found, {"card": "card-none"}, batch, SystemClock().within(WAIT_S))
        assert not none
        [size] = reader.sizes(found, batch)
        digest, before = reader.digest(found, batch), reader.digest(found, 0)
        changes = [*reader.diff(found, 0, batch)]
    assert size.rows == digest.rows == len(expected)
    assert digest.total != before.total
    assert all(change["before"] != change["after"] for change in changes) is bool(changes)
    assert {change["key"]["card"] for change in changes} == expected.keys()


@pytest.fixture
def command(ended: CardsJob, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs `onceflow state` in the JVM that is there."""

    @contextmanager
    def here(memory: str) -> Iterator[Any]:
        yield engine().jvm()

    monkeypatch.setattr("onceflow.runtime.state.bare_jvm.bare_jvm", here)
    monkeypatch.setenv("COLUMNS", "300")

    def run(verb: str, *options: str) -> str:
        arguments = ["state", verb, str(ended.folder / "pipeline.yaml"), *options]
        return CliRunner().invoke(build_app(), arguments, catch_exceptions=False).output

    return run


def test_commands_show_the_state_by_name(command: Callable[..., str], tmp_path: Path) -> None:
    [listed] = map(json.loads, command("list", "-o", "json").splitlines())
    assert listed["name"] == "cards"
    assert listed["variables"] == [
        {
            "variable": "",
            "key": {"card": "string"},
            "value": {
                "total": "struct<n:bigint,sum:bigint>",
                "recent": "array<bigint>",
                "shops": "map<string,bigint>",
                "_timers": "array<struct<at:timestamp,name:string>>",
                "_waiting": "bigint",
            },
        }
    ]
    assert "cards" in command("list")
    got = command("get", "--operator", "cards", "--key", "card=card-3")
    assert "total.n" in got
    assert "shops.shop-1" in got
    out = tmp_path / "out"
    command("export", "--out", str(out))
    [table] = [pq.read_table(each) for each in out.iterdir()]
    [line] = command("get", "--key", "card=card-3", "-o", "json").splitlines()
    rows = {row["key"]["card"]: json.loads(row["value"]) for row in table.to_pylist()}
    assert rows["card-3"] == json.loads(line)["value"]
    assert command("size").count("cards") == 1
    assert "after.total.n" in command("diff", "--from", "0", "--to", "1")


def test_state_of_a_form_that_is_not_named_is_not_guessed(ended: CardsJob, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(ended.checkpoint, tmp_path / "checkpoint")
    (checkpoint / "processors/cards.json").unlink()
    with reading(checkpoint) as reader:
        found = reader.operator(None)
        batch = reader.layout.require_batch(found, None)
        with pytest.raises(CorruptionError, match="does not name the form") as refused:
            reader.get(found, {"card": "card-1"}, batch, SystemClock().within(WAIT_S))
    assert "processors/cards.json" in str(refused.value)


def test_operators_have_the_names_of_their_steps(job: CardsJob) -> None:
    job.source = SECOND_SOURCE.replace("TOPIC", job.input_topic)
    file = job.write_file(100)
    step = SECOND_STEP.replace("MODULE", job.name.replace("-", "_"))
    file.write_text(file.read_text().replace("query: SELECT * FROM cards\n", step))
    run_here(file, job.bootstrap_servers)
    with reading(job.checkpoint) as reader:
        operators = reader.layout.operators()
        assert {each.name for each in operators} == {"cards", "others"}
        for each in operators:
            batch = reader.layout.require_batch(each, None)
            [row] = reader.get(each, {"card": "card-1"}, batch, SystemClock().within(WAIT_S))
            # Only a step that waits for the watermark counts what waits.
            assert ("_waiting" in row["value"]) is (each.name == "cards")
        with pytest.raises(ConfigError, match=r"say which state.*(cards|others) \(0\)"):
            reader.operator(None)
