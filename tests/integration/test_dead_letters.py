"""Records that the query cannot use: each is kept as it came, once, with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, Message
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.crashpoints import CrashPoint
from onceflow.errors import RecordError
from onceflow.runtime.batch.executed import Execution, ExecutionReader
from tests.support.drivers.here import run_here, run_until_it_fails
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import Written, read_ledger, read_topic
from tests.support.outside.topics import create_topic, ordered_producer, set_topic

PREFIX = "onceflow.dead_letter."
BOUNDS = """\
    min_event_time: 2020-01-01T00:00:00Z
    max_ahead: 36500 days
    required: [page]
"""
"""A hundred years ahead of any clock that this may run under."""


@dataclass(frozen=True)
class Bad:
    """A record that is sent, and the reason that it must be given."""

    value: bytes | None
    reason: str
    text: str

    key: bytes | None = b"some key"
    headers: Sequence[tuple[str, bytes]] = (("trace", b"\x00\xff"), ("trace", b"again"))


def view(**changes: object) -> bytes:
    fields = {"page": "/bad", "ms": 1, "at": "2026-03-01T00:00:30Z", **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


BAD = [
    Bad(b"\xff\xfe not JSON", "undecodable", "not JSON"),
    Bad(view(ms="many"), "undecodable", "many"),
    Bad(None, "undecodable", "no payload", key=None, headers=()),
    Bad(view(page=None), "null_value", "page is null"),
    Bad(view(at=None), "no_event_time", "the event time is null"),
    Bad(view(at="1999-12-31T23:59:59Z"), "event_time_too_old", "1999-12-31 23:59:59 is before"),
    Bad(view(at="2999-01-01T00:00:00Z"), "event_time_ahead", "2999-01-01 00:00:00 is more than"),
]


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    job.produce(Random(1), records=400, seconds=120)
    return job


def send_bad(job: ViewsJob, bad: Sequence[Bad] = tuple(BAD)) -> dict[tuple[str, int, int], Bad]:
    """Returns them by their places."""
    placed: dict[tuple[str, int, int], Bad] = {}

    def on_delivery(each: Bad) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None
            place = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
            placed[place] = each

        return delivered

    producer = ordered_producer(job.bootstrap_servers)
    for number, each in enumerate(bad):
        producer.produce(
            job.input_topic,
            each.value,
            each.key,
            number % job.partitions,
            on_delivery=on_delivery(each),
            headers=[*each.headers],
        )
    assert producer.flush(30) == 0
    assert len(placed) == len(bad)
    return placed


def write_file(job: ViewsJob, policy: str = "", batch: int = 10_000, sink: str = "") -> Path:
    text = job.write_file(batch, f"dead_letter: {{topic: {job.name}-dead}}\n").read_text()
    text = text.replace("    lateness: 5 seconds\n", f"    lateness: 5 seconds\n{BOUNDS}{policy}")
    path = job.folder / "pipeline.yaml"
    path.write_text(text.replace("key: page}\n", f"key: page}}\n{sink}"))
    return path


def dead(job: ViewsJob) -> list[Written]:
    return read_topic(job.bootstrap_servers, f"{job.name}-dead")


def fact(letter: Written, name: str) -> str:
    (value,) = [value for key, value in letter.headers if key == PREFIX + name]
    assert value is not None
    return value.decode()


def check(job: ViewsJob, placed: dict[tuple[str, int, int], Bad]) -> None:
    """Every bad record is a letter, once, as it came; every other one is in the output, once."""
    job.check()
    letters = dead(job)
    places = [
        (fact(x, "topic"), int(fact(x, "partition")), int(fact(x, "offset"))) for x in letters
    ]
    assert sorted(places) == sorted(placed)
    for letter, place in zip(letters, places, strict=True):
        bad = placed[place]
        assert (letter.key, letter.value) == (bad.key, bad.value)
        own = [each for each in letter.headers if not each[0].startswith(PREFIX)]
        assert own == [*bad.headers]
        assert fact(letter, "reason") == bad.reason
        assert bad.text in fact(letter, "text")
        assert fact(letter, "pipeline") == job.name
        assert fact(letter, "source") == "clicks"
    heads = read_ledger(job.bootstrap_servers, job.name)
    assert sum(head["records"]["rejected"] for head in heads) == len(placed)
    assert sum(head["records"]["read"] for head in heads) == len(job.produced) + len(placed)
    assert sum(head["records"]["late"] for head in heads) == 0
    batches = {fact(x, "batch_id") for x in letters}
    assert batches <= {str(head["batch_id"]) for head in heads if head["records"]["rejected"]}


def test_every_kind_of_bad_record_is_kept_as_it_came_also_through_crashes(job: ViewsJob) -> None:
    placed = send_bad(job)
    job.close_windows()
    file = write_file(job, batch=150)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_HEAD, arrivals=2)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, arrivals=2)
    run_here(file, job.bootstrap_servers)
    check(job, placed)
    # A later run goes on counting.
    totals = read_ledger(job.bootstrap_servers, job.name)[-1]["totals"]
    more = send_bad(job, BAD[:2])
    run_here(file, job.bootstrap_servers)
    check(job, {**placed, **more})
    after = read_ledger(job.bootstrap_servers, job.name)[-1]["totals"]
    assert after["rejected"] == totals["rejected"] + 2
    assert after["read"] == totals["read"] + 2


_read = ExecutionReader.read


def counted_twice(reader: ExecutionReader, query: StreamingQuery) -> Execution:
    """As Spark counts what it computes again because an executor was lost."""
    found = _read(reader, query)
    twice = {name: (2 * read, 2 * rejected) for name, (read, rejected) in found.counts.items()}
    return replace(found, counts=twice, is_doubtful=True)


def test_what_shall_stop_or_be_dropped_is_named_or_counted(job: ViewsJob) -> None:
    (place,) = send_bad(job, BAD[-1:])
    job.close_windows()
    with pytest.raises(RecordError) as caught:
        run_here(write_file(job, "    on_reject: fail\n"), job.bootstrap_servers)
    assert f"offset {place[2]} of {place[0]}-{place[1]}" in str(caught.value)
    assert "event_time_ahead" in str(caught.value)
    # Nothing is lost: told otherwise, the same pipeline goes on.
    send_bad(job, BAD[:2])
    with patch.object(ExecutionReader, "read", counted_twice):
        run_here(write_file(job, "    on_reject: drop\n"), job.bootstrap_servers)
    job.check()
    assert dead(job) == []
    totals = read_ledger(job.bootstrap_servers, job.name)[-1]["totals"]
    assert (totals["rejected"], totals["read"]) == (3, len(job.produced) + 3)


def test_rows_that_the_output_does_not_take_and_what_status_tells(job: ViewsJob) -> None:
    """A key that is null, and a row that is larger than the topic allows."""
    create_topic(job.bootstrap_servers, job.output_topic, 3, {"max.message.bytes": "2000"})
    job.close_windows()
    file = write_file(job)
    columns = f"SELECT nullif(page, '/1') AS page, {BIG}, first(ms) AS some,"
    file.write_text(file.read_text().replace("SELECT page,", columns) + WAIVER)
    # A replay computes them, too; no limit tells it any more which ones were refused.
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, arrivals=3)
    set_topic(job.bootstrap_servers, job.output_topic, {"max.message.bytes": "2000000"})
    run_here(file, job.bootstrap_servers)
    rows = [record.row["page"] for record in read_topic(job.bootstrap_servers, job.output_topic)]
    assert {*rows} == {f"/{n}" for n in (0, 3, 4, 5, 6)}
    letters = dead(job)
    reasons = {fact(x, "reason"): x for x in letters}
    assert {*reasons} == {"null_key", "too_large"}
    assert reasons["too_large"].row["page"] == "/2"
    assert len(reasons["too_large"].value or b"") > 12_800
    head = read_ledger(job.bootstrap_servers, job.name)[-1]["totals"]
    assert head["refused"] == len(letters)
    assert head["written"] == len(rows)
    told = CliRunner().invoke(
        build_app(),
        ["status", job.name, "-o", "json", "--bootstrap-servers", job.bootstrap_servers],
    )
    status = json.loads(told.stdout)
    assert status["totals"] == head
    assert status["totals"]["read"] == len(job.produced)
    (waiver,) = status["waivers"]
    assert waiver.startswith("ND-AGG at 'query: first' until 2999-01-01: any of them will do")


WAIVER = """\
waivers:
  - {rule: ND-AGG, place: "query: first", reason: any of them will do, until: 2999-01-01}
"""
BIG = (
    "if(page = '/2', array_join(transform(sequence(1, 200), i -> sha2(page || i, 256)), ''), '')"
    " AS big"
)
"""12,800 characters that no compression makes small: the limit is on what arrives."""
