"""`produce` and `consume` against a real broker, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError, CorruptionError, RecordError
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from tests.support.brokers import RunningBroker

Cli = Callable[..., Result]
Topic = Callable[[str], str]


@pytest.fixture
def cli(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs one command line against the broker."""
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def cli(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(build_app(), arguments, input=stdin)

    return cli


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_what_is_produced_is_consumed(cli: Cli, topic: Topic, tmp_path: Path) -> None:
    name = topic("lines")
    (tmp_path / "lines").write_text('{"user": "ann"}\n\n{"user": "bob"}\n')

    written = cli("produce", name, str(tmp_path / "lines"), "--key", "user", "--partitions", "3")
    read = records(cli("consume", name, "--from-beginning", "--max", "2"))

    assert written.stdout == f"2 records written to {name}\n"
    assert sorted((r["key"], r["value"]) for r in read) == [
        ("ann", '{"user": "ann"}'),
        ("bob", '{"user": "bob"}'),
    ]


def test_lines_come_from_standard_input(cli: Cli, topic: Topic) -> None:
    name = topic("stdin")

    cli("produce", name, "--partitions", "1", stdin="a\nb\n")
    read = cli("consume", name, "--from-beginning", "--timeout", "0.5", "-o", "text")

    assert read.stdout.splitlines() == ["0@0  a", "0@1  b"]


def test_without_from_beginning_only_later_records_are_read(cli: Cli, topic: Topic) -> None:
    name = topic("later")
    cli("produce", name, "--partitions", "1", stdin="before\n")

    assert records(cli("consume", name, "--timeout", "0.3")) == []


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
    assert records(cli("consume", name, "--from-beginning", "--timeout", "0.3")) == []


def test_nobody_at_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")

    result = CliRunner().invoke(build_app(), ["consume", "any"])

    assert isinstance(result.exception, ConfigError)
    assert "127.0.0.1:1" in str(result.exception)


def write_output(broker: RunningBroker, topic: str, sequences: list[int]) -> None:
    """Records as a pipeline `views` would write them; each sequence is a batch of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for sequence in sequences:
        header = RecordHeader(Flag(0), pipeline_tag("views"), 1, 77 + sequence, sequence, sequence)
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


def test_verify_discards_repeats(cli: Cli, broker: RunningBroker, output: str) -> None:
    write_output(broker, output, [1, 2, 2, 3])

    result = cli("consume", output, "--verify")

    assert [r["value"] for r in records(result)] == ["row 1", "row 2", "row 3"]
    summary = json.loads(result.stderr)
    assert (summary["records"], summary["repeats_discarded"], summary["gaps"]) == (3, 1, 0)
    assert summary["ledger"] == "absent"


def test_verify_finds_a_gap(cli: Cli, broker: RunningBroker, output: str) -> None:
    write_output(broker, output, [1, 2, 5])

    result = cli("consume", output, "--verify")

    assert isinstance(result.exception, CorruptionError)
    assert "sequences 3 to 4 missing" in str(result.exception)
    assert json.loads(result.stderr)["gaps"] == 1
