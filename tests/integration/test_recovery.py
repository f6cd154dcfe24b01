"""Each effect of the recovery table (docs/protocol.md, "Checkpoint against ledger") on files.

On a real broker; every row is in `tests/unit/protocol/test_compare.py`. A pipeline runs for some
batches; then checkpoint or ledger are changed by hand, as a crash, a restored backup or a person
would; then it starts again. Each ends in the right output or in a refusal that names what is wrong,
with nothing written. Drivers die in the test's own process; those that are killed are in
`tests/faults/test_crash_points.py`, and a plan that is written again in `test_lost_ledger.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceflow.app import LANES
from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.crashpoints import CrashPoint
from onceflow.errors import (
    ConfigError,
    CorruptionError,
    FencedError,
    LineageError,
    RetriableError,
)
from onceflow.protocol.compare import Remedy
from onceflow.run import Run
from tests.faults.history.writes import Expected
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.driver import Driver
from tests.support.drivers.here import (
    Events,
    application,
    run_here,
    run_until_it_fails,
    running_here,
)
from tests.support.drivers.service import QUICK
from tests.support.eventually import eventually
from tests.support.jobs.views import BATCH, MINUTE, ViewsJob
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import delete_topic, ordered_producer

KAFKA_TIMEOUT_S = 55
"""A little less than the time after which Kafka itself aborts a transaction."""


@dataclass
class Started:
    """A job, and the file of its pipeline."""

    job: ViewsJob
    file: Path

    def crash(self, point: CrashPoint, batch: int = 3) -> None:
        """A driver that dies there, at its batch of that number."""
        run_until_it_fails(self.file, self.job.bootstrap_servers, point, batch)

    def again(self, remedy: Remedy | None = None, reason: str = "", **options: Any) -> Events:
        """Start, and run to the end of the input."""
        servers = self.job.bootstrap_servers
        return run_here(self.file, servers, remedy=remedy, reason=reason, **options)

    def refused(self) -> str:
        """Start, expect a refusal, and that it wrote nothing."""
        before = self.snapshot()
        with pytest.raises((LineageError, CorruptionError)) as caught:
            self.again()
        assert self.snapshot() == before
        return str(caught.value)

    def snapshot(self) -> tuple[int, int]:
        """Visible output records and committed heads."""
        servers = self.job.bootstrap_servers
        return (
            len(read_topic(servers, self.job.output_topic)),
            len(read_ledger(servers, self.job.name)),
        )

    def has_open_transaction(self) -> bool:
        """By what Kafka's coordinator says, not by a reader that could come too early."""
        with closing(KafkaAdminClient(bootstrap_servers=self.job.bootstrap_servers)) as admin:
            ours = [f"onceflow.{self.job.name}.s0.l{lane}" for lane in range(LANES)]
            found = admin.describe_transactions(ours)
        return any(each.state == "Ongoing" for each in found.values())

    def newest(self, log: str) -> Path:
        folder = self.job.checkpoint / log
        return max((f for f in folder.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))

    def lose(self, *logs: str) -> None:
        """The newest entry of each of Spark's logs, with Hadoop's checksum of it."""
        for log in logs:
            path = self.newest(log)
            path.unlink()
            _without_checksum(path)

    def overwrite(self, name: str, content: Mapping[str, str]) -> None:
        path = self.job.checkpoint / name
        path.write_text(json.dumps(content))
        _without_checksum(path)

    def finish(self) -> None:
        self.job.close_windows()
        self.again()
        self.job.check()


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> Started:
    return _started(broker, tmp_path)


@pytest.fixture(scope="module")
def settled(
    broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Started, Path]:
    """A pipeline that has caught up, and a copy of its checkpoint; for refusals."""
    folder = tmp_path_factory.mktemp("settled")
    started = _started(broker, folder)
    started.again()
    return started, shutil.copytree(started.job.checkpoint, folder / "copy")


def _started(broker: RunningBroker, folder: Path) -> Started:
    job = ViewsJob(broker.bootstrap_servers, folder)
    job.create_input()
    job.produce(Random(1), records=2_000, seconds=300)
    return Started(job, job.write_file())


@pytest.fixture
def caught_up(settled: tuple[Started, Path]) -> Started:
    started, copy = settled
    shutil.rmtree(started.job.checkpoint, ignore_errors=True)
    shutil.copytree(copy, started.job.checkpoint)
    return started


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_BEGIN, CrashPoint.AFTER_COMMIT])
def test_a_checkpoint_with_nothing_planned_registers_again(job: Started, point: CrashPoint) -> None:
    job.crash(point, batch=1)
    assert not (job.job.checkpoint / "offsets").exists()
    job.finish()
    first = read_ledger(job.job.bootstrap_servers, job.job.name)[0]
    assert (first["batch_id"], first["generation"]) == (-1, 1)


def test_a_batch_that_was_planned_and_not_committed_is_written(job: Started) -> None:
    """From the ranges that were planned, although more has come since; and without waiting for the
    time-out of the transaction that the dead driver left open."""
    job.crash(CrashPoint.BEFORE_COMMIT)
    died_at = SystemClock().monotonic_s()
    assert job.has_open_transaction()
    entry = job.newest("offsets")
    planned, plan = int(entry.name), entry.read_text()
    job.job.produce(Random(2), records=500, seconds=100)
    with running_here(job.file, job.job.bootstrap_servers) as running:
        eventually(lambda: running.events.of_kind("owner"), timeout_s=KAFKA_TIMEOUT_S)
        assert SystemClock().monotonic_s() - died_at < KAFKA_TIMEOUT_S
        running.wait_for_batches(1)
    first = running.events.of_kind("batch")[0]
    assert (first["batch_id"], first["is_skipped"]) == (planned, False)
    assert entry.read_text() == plan
    heads = read_ledger(job.job.bootstrap_servers, job.job.name)
    (head,) = (head for head in heads if head["batch_id"] == planned)
    assert _ends(head["sources"]["clicks"]) == _planned_ends(plan)
    assert head["records"]["read"] <= BATCH
    job.finish()


def test_a_batch_that_kafka_has_and_spark_has_not_is_skipped(job: Started) -> None:
    job.crash(CrashPoint.AFTER_COMMIT)
    events = job.again()
    assert [b["is_skipped"] for b in events.of_kind("batch")][:2] == [True, False]
    job.finish()


def test_a_lost_entry_of_the_commit_log_behind_a_plan_replays_and_skips(job: Started) -> None:
    """The plan is withdrawn, which began on state that no entry of the log names any more."""
    job.crash(CrashPoint.BEFORE_BEGIN, batch=4)
    planned, done = (int(job.newest(log).name) for log in ("offsets", "commits"))
    job.lose("commits")
    assert planned == done + 1 == int(job.newest("commits").name) + 2
    events = job.again()
    assert [(b["batch_id"], b["is_skipped"]) for b in events.of_kind("batch")][:2] == [
        (done, True),
        (planned, False),
    ]
    job.finish()


def test_a_query_that_has_run_is_fenced_before_spark_is_up(
    caught_up: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers wait for the fence where a driver died in mid-transaction, and not for Spark."""
    made, events = application(caught_up.file, caught_up.job.bootstrap_servers)
    open_session = Run.open_session

    def open_late(run: Run, stack: ExitStack) -> SparkSession:
        eventually(lambda: events.of_kind("owner"))
        return open_session(run, stack)

    monkeypatch.setattr(Run, "open_session", open_late)
    made.run()
    assert events.of_kind("caught_up")


def test_a_query_that_spark_refuses_takes_nothing_over(caught_up: Started) -> None:
    job, text = caught_up.job, caught_up.file.read_text()
    owners = read_topic(job.bootstrap_servers, f"onceflow.ledger.{job.name}")
    caught_up.file.write_text(text.replace("sum(ms)", "sum(milis)"))
    try:
        with pytest.raises(ConfigError, match="milis"):
            run_here(
                caught_up.file, job.bootstrap_servers, is_change_accepted=True, reason="in a test"
            )
    finally:
        caught_up.file.write_text(text)
    assert read_topic(job.bootstrap_servers, f"onceflow.ledger.{job.name}") == owners


def test_another_query_is_refused_until_the_change_is_accepted(job: Started) -> None:
    job.again()
    text = job.file.read_text()
    before = job.snapshot()
    job.file.write_text(text.replace("sum(ms)", "max(ms)"))
    with pytest.raises(ConfigError, match="value column 2 is sum bigint, and would be max bigint"):
        job.again(is_change_accepted=True, reason="in a test")
    job.file.write_text(text.replace("sum(ms)", "sum(-ms)"))
    with pytest.raises(ConfigError, match="changes of query;"):
        job.again()
    assert job.snapshot() == before
    old, seen = len(job.job.produced), before[0]
    job.job.produce(Random(2), records=500, seconds=100)
    job.job.close_windows()
    events = job.again(is_change_accepted=True, reason="less in a test")
    (told,) = [e["text"] for e in events.of_kind("warning") if "state of" in e["text"]]
    assert told == (
        "state of aggregation: kept: aggregation of count(1), sum((- clicks.ms)) by clicks.page,"
        " window(clicks.at, 1m); sum(clicks.ms) becomes sum((- clicks.ms))"
    )
    heads = read_ledger(job.job.bootstrap_servers, job.job.name)
    assert [h["note"] for h in heads if h["note"]] == ["less in a test"]
    assert {h["generation"] for h in heads} == {1}
    _check_sequences(job)
    _check_change(job, old, seen)


@pytest.mark.parametrize("is_taken_over", [True, False], ids=["taken-over", "still-the-owner"])
def test_another_driver_that_writes_to_the_checkpoint(job: Started, is_taken_over: bool) -> None:
    """Spark fails. Who was taken over ends as such; anybody else may be started again."""
    servers = job.job.bootstrap_servers
    with running_here(job.file, servers) as running, ExitStack() as stack:
        running.wait_for_batches(3)
        if is_taken_over:
            other = stack.enter_context(Driver(servers, job.job.name, job.job.output_topic))
            other.take_over()
        planned = int(job.newest("offsets").name)
        (job.job.checkpoint / "offsets" / str(planned + 1)).write_text("v1\nof another driver\n")
        job.job.produce(Random(2), records=100, seconds=100)
        error = running.error()
    # Whichever comes first: its own next commit, or Spark's look at the checkpoint.
    assert isinstance(error, FencedError if is_taken_over else RetriableError)
    assert is_taken_over or "another driver wrote to this checkpoint" in str(error)


def test_a_deleted_checkpoint_is_refused_until_a_new_generation(job: Started) -> None:
    job.again()
    shutil.rmtree(job.job.checkpoint)
    errors = job.refused()
    assert "under another checkpoint" in errors
    job.job.close_windows()
    job.again(Remedy.NEW_GENERATION, "checkpoint lost in a test")
    heads = read_ledger(job.job.bootstrap_servers, job.job.name)
    assert [h["note"] for h in heads if h["note"]] == ["checkpoint lost in a test"]
    assert heads[-1]["generation"] == 2
    _check_sequences(job)


REFUSED_CHECKPOINTS: Mapping[str, tuple[Callable[[Started], None], str]] = {
    "a zombie's plan of a batch that is done": (
        lambda job: _move_end(job.newest("offsets"), by=-7),
        "two drivers raced",
    ),
    "older": (
        lambda job: job.lose("commits", "offsets", "commits", "offsets"),
        "older than the output",
    ),
    "entries of the commit log lost": (
        lambda job: job.lose("commits", "commits"),
        "the checkpoint contradicts itself",
    ),
    "of another query": (
        lambda job: job.overwrite("metadata", {"id": "another-query"}),
        "belongs to another query",
    ),
    "of another pipeline": (
        lambda job: job.overwrite("onceflow.json", {"pipeline": "orders"}),
        "another pipeline",
    ),
}


@pytest.mark.parametrize(("damage", "told"), REFUSED_CHECKPOINTS.values(), ids=REFUSED_CHECKPOINTS)
def test_a_checkpoint_that_does_not_fit_is_refused(
    caught_up: Started, damage: Callable[[Started], None], told: str
) -> None:
    damage(caught_up)
    assert told in caught_up.refused()


def test_a_ledger_behind_the_checkpoint_halts(caught_up: Started) -> None:
    heads = read_ledger(caught_up.job.bootstrap_servers, caught_up.job.name)
    _publish_head(caught_up.job, heads[-3])
    try:
        assert "the ledger is older than the output" in caught_up.refused()
    finally:
        _publish_head(caught_up.job, heads[-1])


def test_a_lost_ledger_is_refused_until_it_is_rebuilt(job: Started) -> None:
    job.again()
    delete_topic(job.job.bootstrap_servers, f"onceflow.ledger.{job.job.name}")
    # Not `refused`: there is no ledger that could stay as it is.
    with pytest.raises(CorruptionError, match="ledger is lost"):
        job.again()
    rebuild = ["ledger", "rebuild", str(job.file), "--reason", "deleted in a test"]
    where = ["--bootstrap-servers", job.job.bootstrap_servers]
    told = CliRunner(env=QUICK).invoke(build_app(), [*rebuild, *where])
    assert told.exit_code == 0, told.output
    assert "rebuilt from batch" in told.output
    heads = read_ledger(job.job.bootstrap_servers, job.job.name)
    assert [h["note"] for h in heads] == ["deleted in a test"]
    job.finish()


def _check_change(job: Started, old: int, seen: int) -> None:
    """Output from before the change stays. After it the new query goes on with the state that
    the old one left: what came later is taken away from the sum of a window that was open."""
    views = job.job.produced
    expected = []
    for row in job.job.expected():
        start = datetime.fromisoformat(row["start"])
        mine = [
            (n, v.ms)
            for n, v in enumerate(views)
            if v.page == row["page"] and start <= v.at < start + MINUTE
        ]
        summed = sum(ms for n, ms in mine if n < old)
        later = sum(ms for n, ms in mine if n >= old)
        expected.append({**row, "total_ms": summed - later})
    written = read_topic(job.job.bootstrap_servers, job.job.output_topic)
    assert len(written) > seen
    assert anomalies(written, expected=Expected.of_rows(expected)) == []
    assert any(record.row not in job.job.expected() for record in written)


def _ends(topics: Mapping[str, Mapping[str, tuple[int, int]]]) -> Mapping[str, int]:
    """Partition -> end, of a ledger's entry for a source of one topic."""
    ((_, ranges),) = topics.items()
    return {partition: end for partition, (_, end) in ranges.items()}


def _planned_ends(plan: str) -> Mapping[str, int]:
    """The same of an entry of Spark's offset log."""
    (topic,) = json.loads(plan.splitlines()[-1])["position"].values()
    return dict(topic["partitions"])


def _move_end(entry: Path, by: int) -> None:
    """Give a batch another plan, as a zombie does whose rename comes last."""
    version, metadata, offset = entry.read_text().split("\n")
    plan = json.loads(offset)
    (topic,) = plan["position"].values()
    topic["partitions"]["0"] += by
    text = "\n".join([version, metadata, json.dumps(plan, sort_keys=True, separators=(",", ":"))])
    entry.write_text(text)
    _without_checksum(entry)


def _without_checksum(path: Path) -> None:
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def _check_sequences(job: Started) -> None:
    written = read_topic(job.job.bootstrap_servers, job.job.output_topic)
    assert anomalies(written) == []


def _publish_head(job: ViewsJob, head: dict[str, object]) -> None:
    producer = ordered_producer(job.bootstrap_servers)
    value = json.dumps(head, sort_keys=True, separators=(",", ":"))
    producer.produce(f"onceflow.ledger.{job.name}", value, key=b"head", partition=1)
    assert producer.flush(30) == 0
