"""`onceflow dead-letter` against a real broker: nothing is sent twice, whatever interrupts it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError, CorruptionError, OutcomeUnknownError
from onceflow.protocol.dead_letter import NOWHERE, DeadLetter
from onceflow.repair import dead_letters
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from tests.support.brokers.choice import RunningBroker
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import create_topic, ordered_producer

HEADERS = (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None))
COUNT = 25
HOSTILE = "\x1b[2J[/]\nreason          forged"


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ViewsJob:
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    made = ViewsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.write_file(extra=f"dead_letter: {{topic: {made.name}-dead}}\n")
    return made


@pytest.fixture
def cli(job: ViewsJob) -> Callable[..., Result]:
    """Runs `dead-letter` on the job's file."""

    def run(command: str, *arguments: str) -> Result:
        file = str(job.folder / "pipeline.yaml")
        return CliRunner().invoke(build_app(), ["dead-letter", command, file, *arguments])

    return run


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def letter(job: ViewsJob, number: int, source: str = "clicks") -> DeadLetter:
    return DeadLetter(
        key=None if number % 2 else b"key %d" % number,
        value=b"\xff value %d" % number,
        headers=HEADERS,
        reason="undecodable" if number % 5 else "null_value",
        text=f"text: {number}",
        pipeline=job.name,
        batch_id=number // 10,
        source=source,
        topic=job.input_topic if source else job.output_topic,
        partition=number % job.partitions if source else NOWHERE,
        offset=number if source else NOWHERE,
        timestamp_ms=1_700_000_000_000 + number,
    )


def file_letters(job: ViewsJob, *letters: DeadLetter) -> None:
    producer = ordered_producer(job.bootstrap_servers)
    for each in letters:
        headers: Any = [*each.to_headers()]
        producer.produce(
            f"{job.name}-dead", each.value, each.key, each.partition_of(3), headers=headers
        )
    assert producer.flush(30) == 0


def arrived(job: ViewsJob) -> list[Written]:
    return read_topic(job.bootstrap_servers, job.input_topic)


def test_letters_are_listed_and_shown_as_they_came(
    job: ViewsJob, cli: Callable[..., Result]
) -> None:
    create_topic(job.bootstrap_servers, f"{job.name}-dead", 3)
    file_letters(job, *(letter(job, n) for n in range(COUNT)))
    listed = lines(cli("list", "-o", "json"))
    assert sorted(each["text"] for each in listed) == sorted(f"text: {n}" for n in range(COUNT))
    assert len(lines(cli("list", "--reason", "null_value", "-o", "json"))) == COUNT // 5
    assert len(lines(cli("list", "--max", "3", "-o", "json"))) == 3
    assert "undecodable" in cli("list").stdout
    hostile = replace(letter(job, COUNT), text=HOSTILE, value=HOSTILE.encode())
    file_letters(job, hostile)
    (place,) = [each for each in lines(cli("list", "-o", "json")) if each["text"] == HOSTILE]
    where = str(place["at_partition"]), str(place["at_offset"])
    for told in (cli("list"), cli("show", *where)):
        assert told.exit_code == 0, told.exception
        assert r"\x1b[2J" in told.stdout
        assert "\x1b" not in told.stdout
    reasons = [line for line in told.stdout.splitlines() if line.startswith("reason ")]
    assert len(reasons) == 1, "no field that a record made up"
    one = listed[7]
    (shown,) = lines(cli("show", str(one["at_partition"]), str(one["at_offset"]), "-o", "json"))
    assert shown == one
    number = int(one["text"].removeprefix("text: "))
    assert shown["value"] == f"\\xff value {number}"
    assert shown["headers"] == [["trace", "\x00\\xff"], ["trace", "again"], ["none", None]]
    assert (shown["topic"], shown["offset"]) == (job.input_topic, number)
    missing = cli("show", "0", "9999")
    assert isinstance(missing.exception, ConfigError)
    assert "there is no dead letter" in str(missing.exception)


def test_what_is_sent_again_arrives_once_whatever_interrupts_it(
    job: ViewsJob, cli: Callable[..., Result]
) -> None:
    create_topic(job.bootstrap_servers, f"{job.name}-dead", 3)
    file_letters(job, *(letter(job, n) for n in range(COUNT)), letter(job, 1, source=""))
    commit = KafkaIncarnation.commit

    def commit_and_die(incarnation: KafkaIncarnation, *rest: Any) -> None:
        commit(incarnation, *rest)
        raise OutcomeUnknownError("no answer, on purpose")

    def die(*_: Any) -> None:
        raise OutcomeUnknownError("nothing sent, on purpose")

    with patch.object(dead_letters, "MAX_LETTERS", 4):
        for fault in (die, commit_and_die, die, commit_and_die):
            with patch.object(KafkaIncarnation, "commit", fault):
                assert isinstance(cli("replay").exception, OutcomeUnknownError)
        (rest,) = lines(cli("replay", "-o", "json"))
    # Which partition is read first hangs on the topic's name, and with it who keeps the last one.
    assert rest["sent"] + rest["kept"] == COUNT + 1 - 8
    assert lines(cli("replay", "-o", "json")) == [{"sent": 0, "kept": 0}]
    found = Counter(
        (each.partition, each.key, each.value, each.headers[:-1]) for each in arrived(job)
    )
    wanted = [letter(job, n) for n in range(COUNT)]
    assert found == Counter((x.partition, x.key, x.value, x.headers) for x in wanted)
    assert {each.headers[-1][0] for each in arrived(job)} == {"onceflow.resent"}
    # What comes later is sent, too, and nothing else again.
    file_letters(job, letter(job, COUNT))
    assert lines(cli("replay", "-o", "json")) == [{"sent": 1, "kept": 0}]
    assert len(arrived(job)) == COUNT + 1


def test_what_is_no_dead_letter_is_refused(job: ViewsJob, cli: Callable[..., Result]) -> None:
    assert "there is no dead-letter topic yet" in str(cli("list").exception)
    create_topic(job.bootstrap_servers, f"{job.name}-dead")
    producer = ordered_producer(job.bootstrap_servers)
    producer.produce(f"{job.name}-dead", b"foreign")
    assert producer.flush(30) == 0
    assert isinstance(cli("list").exception, CorruptionError)
    assert isinstance(cli("replay").exception, CorruptionError)
    job.write_file()
    assert "has no dead-letter topic" in str(cli("list").exception)
