"""`produce` and `consume` against a real broker, as a user types them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.errors import ConfigError, DeadlineError, RecordError
from onceflow.protocol.identity import (
    BatchKey,
    FencingToken,
    Layout,
    head_partition,
    ledger_topic,
    pipeline_tag,
)
from onceflow.protocol.ledger import HEAD_KEY, BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic, end_of, ordered_producer

Cli = Callable[..., Result]
Topic = Callable[[str], str]


class StandardInput(io.BytesIO):
    """With a descriptor, which Typer's has not and real ones have."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor


@pytest.fixture
def cli(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs one command line against the broker."""
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def cli(*arguments: str, stdin: str = "") -> Result:
        (tmp_path / "stdin").write_text(stdin)
        with (tmp_path / "stdin").open("rb") as file, monkeypatch.context() as patched:
            made = StandardInput(file.fileno())
            patched.setattr("typer.testing.make_input_stream", lambda *_: made)
            return CliRunner().invoke(build_app(), arguments)

    return cli


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.exception
    return shown_in(result)


def shown_in(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_what_is_produced_is_consumed(cli: Cli, topic: Topic, tmp_path: Path) -> None:
    name = topic("lines")
    (tmp_path / "lines").write_text('{"user": "ann"}\n\n{"user": "bob"}\n')

    written = cli("produce", name, str(tmp_path / "lines"), "--key", "user", "--partitions", "3")
    read = records(cli("consume", name, "--from-beginning", "--max", "2", "-o", "json"))

    assert written.stdout == f"2 records written to {name}\n"
    assert sorted((r["key"], r["value"]) for r in read) == [
        ("ann", '{"user": "ann"}'),
        ("bob", '{"user": "bob"}'),
    ]


def test_lines_come_from_standard_input(cli: Cli, topic: Topic) -> None:
    name = topic("stdin")

    cli("produce", name, "--partitions", "1", stdin="a\nb\n")
    read = cli("consume", name, "--from-beginning", "--timeout", "0.5")

    assert read.stdout.splitlines() == ["0@0  a", "0@1  b"]


def test_a_slow_feed_is_written_as_it_comes(broker: RunningBroker, topic: Topic) -> None:
    name = topic("slow")
    create_topic(broker.bootstrap_servers, name, 1)
    command = [sys.executable, "-m", "onceflow.cli", "produce", name]
    command += ["--bootstrap-servers", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in (1, 2):
            process.stdin.write(b"a line\n")
            process.stdin.flush()
            eventually(lambda n=number: end_of(broker.bootstrap_servers, name) == n, timeout_s=60)  # type: ignore[misc]
        told, _ = process.communicate(b"the last", timeout=60)
    assert told.decode() == f"3 records written to {name}\n"
    assert end_of(broker.bootstrap_servers, name) == 3


def test_a_record_passes_for_nothing_but_a_record(cli: Cli, topic: Topic, tmp_path: Path) -> None:
    """Neither escape sequences, nor a line end that begins a record that there is not."""
    name = topic("hostile")
    cli("produce", name, "--partitions", "1", stdin="a\n")
    producer = ordered_producer(os.environ["ONCEFLOW_BOOTSTRAP_SERVERS"])
    value = "\x1b]0;owned\x07\x9b2J\u202e\n0@9  forged"
    producer.produce(name, value.encode(), key=b"\x1b[1A", partition=0)
    assert producer.flush(30) == 0

    read = cli("consume", name, "--from-beginning", "--timeout", "0.5")
    parsed = records(cli("consume", name, "--from-beginning", "--timeout", "0.5", "-o", "json"))

    shown = r"\x1b]0;owned\x07\x9b2J\u202e\n0@9  forged"
    assert read.stdout.splitlines() == ["0@0  a", rf"0@1  \x1b[1A  {shown}"]
    assert parsed[1]["value"] == value


def test_without_from_beginning_only_later_records_are_read(cli: Cli, topic: Topic) -> None:
    name = topic("later")
    cli("produce", name, "--partitions", "1", stdin="before\n")

    assert records(cli("consume", name, "--timeout", "0.3", "-o", "json")) == []


def test_a_topic_that_does_not_exist_is_refused(cli: Cli, topic: Topic) -> None:
    name = topic("absent")

    for command in (["produce", name], ["consume", name]):
        result = cli(*command, stdin="a\n")
        assert isinstance(result.exception, ConfigError)
        assert str(result.exception).startswith(f"the topic does not exist: {name}")


def test_a_line_without_its_key_writes_nothing_of_its_chunk(cli: Cli, topic: Topic) -> None:
    name = topic("keyless")

    result = cli("produce", name, "--key", "k", "--partitions", "1", stdin='{"k": 1}\n{}\n')

    assert isinstance(result.exception, RecordError)
    assert records(cli("consume", name, "--from-beginning", "--timeout", "0.3", "-o", "json")) == []


def test_nobody_at_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")

    result = CliRunner().invoke(build_app(), ["consume", "any"])

    assert isinstance(result.exception, DeadlineError)
    assert "127.0.0.1:1" in str(result.exception)


def write_output(
    broker: RunningBroker,
    topic: str,
    sequences: list[int],
    pipeline: str = "views",
    lineage: int = 0,
) -> None:
    """Records as a pipeline would write them; each sequence is a batch of its own."""
    producer = ordered_producer(broker.bootstrap_servers)
    for sequence in sequences:
        tag = pipeline_tag(pipeline)
        header = RecordHeader(Flag(0), tag, 1, 77 + sequence, sequence, sequence, lineage)
        producer.produce(
            topic,
            f"row {sequence}".encode(),
            b"k",
            partition=0,
            headers=[(HEADER_NAME, header.pack())],
        )
    assert producer.flush(30) == 0


@pytest.fixture
def output(cli: Cli, topic: Topic) -> str:
    name = topic("output")
    cli("produce", name, "--partitions", "1")
    return name


@pytest.fixture
def ledger(broker: RunningBroker, topic: Topic) -> Callable[..., str]:
    """Writes a ledger that says how many records the output has; returns the pipeline's name."""

    def ledger(output: str, last: int, lineage: int = 0) -> str:
        name = topic("p")[:60].rstrip("-").replace("_", "-")
        connection = Connection(broker.bootstrap_servers)
        with closing(find_connector("kafka").ledger(name, connection)) as entries:
            entries.create(2, SystemClock().within(30))
        sink = SinkState(output, 1, Layout(1, 1), {0: (last, last)})
        head = HeadEntry(
            pipeline=name,
            generation=1,
            batch=BatchKey("q", last),
            token=FencingToken(1),
            run_id="r",
            plan=BatchPlan({}, 0, 0),
            sink=sink,
            records=RecordCounts(),
            digest="",
            plan_hash="",
            note="only sequences are compared",
            lineage=lineage,
        )
        producer = ordered_producer(broker.bootstrap_servers)
        producer.produce(ledger_topic(name), head.to_json(), HEAD_KEY, head_partition(0))
        assert producer.flush(30) == 0
        return name

    return ledger


def test_verify_discards_repeats_and_tells_them(
    cli: Cli, broker: RunningBroker, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger(output, 3)
    write_output(broker, output, [1, 2, 2, 3], name)
    result = cli("consume", output, "--verify", "--pipeline", name, "-o", "json")
    assert [row["value"] for row in shown_in(result)] == ["row 1", "row 2", "row 3"]
    summary = json.loads(result.stderr)
    assert (summary["records"], summary["repeats"], summary["gaps"]) == (4, 1, 0)
    assert result.exit_code == 7, "exactly_once allows no repeat"


def test_verify_finds_a_gap(
    cli: Cli, broker: RunningBroker, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger(output, 5)
    write_output(broker, output, [1, 2, 5], name)
    result = cli("consume", output, "--verify", "--pipeline", name)
    assert result.exit_code == 7
    assert f"{output}: 3 records, 0 repeats discarded, 1 gaps; ledger: disagrees" in result.stderr
    assert "expected sequence 3, found sequence 5" in result.stderr


def test_verify_finds_a_pipeline_that_began_again_and_shows_all_of_it(
    cli: Cli, broker: RunningBroker, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger(output, 2, lineage=6)
    write_output(broker, output, [1, 2, 3], name, lineage=5)
    write_output(broker, output, [1, 2], name, lineage=6)
    result = cli("consume", output, "--verify", "--pipeline", name, "-o", "json")
    assert [row["value"] for row in shown_in(result)] == [f"row {n}" for n in (1, 2, 3, 1, 2)]
    summary = json.loads(result.stderr)
    assert (summary["other_lineages"], summary["repeats"]) == (3, 0)
    assert result.exit_code == 7


def test_verify_agrees_with_a_ledger_that_has_seen_the_same(
    cli: Cli, broker: RunningBroker, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger(output, 3)
    write_output(broker, output, [1, 2, 3], name)
    result = cli("consume", output, "--verify", "--pipeline", name)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == f"{output}: 3 records, 0 repeats discarded, 0 gaps; ledger: agrees\n"


def test_verify_finds_that_the_last_records_are_missing(
    cli: Cli, broker: RunningBroker, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger(output, 5)
    write_output(broker, output, [1, 2, 3], name)
    result = cli("consume", output, "--verify", "--pipeline", name)
    assert result.exit_code == 7
    assert "expected 5 as the last sequence, as in the ledger, found 3" in result.stderr


def test_verify_refuses_the_ledger_of_another_output(
    cli: Cli, output: str, ledger: Callable[..., str]
) -> None:
    name = ledger("elsewhere", 1)
    result = cli("consume", output, "--verify", "--pipeline", name)
    assert isinstance(result.exception, ConfigError)
    assert "this pipeline writes to another topic" in str(result.exception)


def test_verify_needs_a_ledger(cli: Cli, output: str) -> None:
    result = cli("consume", output, "--verify", "--pipeline", "missing")
    assert "this pipeline was never started at these brokers: missing" in str(result.exception)
