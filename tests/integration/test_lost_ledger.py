"""The ledger is lost, and the checkpoint with it: nothing leads to records taken for repeats.

On a real broker and real Spark, with readers of both flavours that have read and committed before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.app import RunOptions
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.crashpoints import CrashPoint
from onceflow.errors import CorruptionError, LineageError
from onceflow.protocol.compare import Remedy
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.repair.verification import Verification, verify
from onceflow_connectors.consumer import Hooks, LineageChange, OnFault, Rules
from onceflow_connectors.consumer.admission import STRICT
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.consumer_steps import expect_error, take
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.drivers.here import application, run_here, run_until_it_fails
from tests.support.jobs.copies import OUTPUT_PARTITIONS, CopyJob, values_of
from tests.support.outside.history import read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import (
    create_topic,
    delete_before,
    delete_topic,
    find_topic,
    ordered_producer,
)

OLD, NEW, NEWER = 300, 50, 20


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> CopyJob:
    made = CopyJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    return made


def read(job: CopyJob, flavour: str, count: int, rules: Rules = STRICT) -> list[str]:
    """The next `count` records of a group for this flavour, which then commits."""
    told: list[LineageChange] = []
    kafka = RealConsumerKafka(job.bootstrap_servers, FLAVOURS[flavour])
    group, hooks = f"{job.name}-{flavour}", Hooks(on_new_lineage=told.append)
    with kafka.consumer([job.output_topic], group, rules, hooks) as records:
        taken = take(records, count)
        records.commit()
        assert records.counters.discarded == 0
        assert bool(told) == (rules is not STRICT)
    return values_of([record.value for record in taken])


def lose_ledger_and_checkpoint(job: CopyJob) -> None:
    delete_topic(job.bootstrap_servers, job.ledger_topic)
    shutil.rmtree(job.checkpoint)
    job.forget_input()


def verified(job: CopyJob) -> Verification:
    connector, connection = find_connector("kafka"), Connection(job.bootstrap_servers)
    deadline = SystemClock().within(60.0)
    ledger, broker = connector.ledger(job.name, connection), connector.broker(connection)
    try:
        return verify(broker, [*ledger.history(DRIVER_SLOT, deadline)], deadline)
    finally:
        ledger.close()
        broker.close()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_what_is_written_after_ledger_and_checkpoint_were_lost_is_delivered(
    job: CopyJob, delivery: str
) -> None:
    servers, file = job.bootstrap_servers, job.write_file(f"delivery: {delivery}\n")
    old = job.produce("old", OLD)
    run_here(file, servers)
    for flavour in FLAVOURS:
        assert read(job, flavour, OLD) == sorted(old)

    # The output is kept: a plain start is refused, and the remedy that it names numbers on.
    lose_ledger_and_checkpoint(job)
    new = job.produce("new", NEW)
    with pytest.raises(LineageError, match="which neither ledger nor checkpoint know") as caught:
        run_here(file, servers)
    assert "`--new-generation --reason ...`" in str(caught.value)
    assert len(job.written()) == OLD
    assert find_topic(servers, job.ledger_topic) is None
    run_here(file, servers, remedy=Remedy.NEW_GENERATION, reason="all lost in a test")
    assert [(h["generation"], h["note"]) for h in job.heads()][:2] == [
        (2, "all lost in a test"),
        (2, ""),
    ]
    assert anomalies(job.written()) == []
    for flavour in FLAVOURS:
        assert read(job, flavour, NEW) == sorted(new)
    assert (verified(job).findings, verified(job).records) == ([], OLD + NEW)

    # The output is trimmed as well: what was written is unknown, and readers learn it.
    lose_ledger_and_checkpoint(job)
    newer = job.produce("newer", NEWER)
    ends = {n: 1 + max(w.offset for w in job.written() if w.partition == n) for n in (0, 1)}
    for partition, end in ends.items():
        delete_before(servers, job.output_topic, partition, end)
    run_here(file, servers)
    assert {w.sequence for w in job.written()} >= {1}
    for flavour in FLAVOURS:
        kafka = RealConsumerKafka(servers, FLAVOURS[flavour])
        with kafka.consumer([job.output_topic], f"{job.name}-{flavour}") as records:
            expect_error(records, LineageError, f"pipeline {job.name}; expected sequence")
        assert read(job, flavour, NEWER, Rules(new_lineage=OnFault.REPORT)) == sorted(newer)
    assert verified(job).findings == []


def test_a_backup_of_ledger_and_checkpoint_is_refused_when_the_output_is_further(
    job: CopyJob,
) -> None:
    servers, file = job.bootstrap_servers, job.write_file()
    old = job.produce("old", OLD)
    run_here(file, servers)
    backup = read_topic(servers, job.ledger_topic)
    shutil.copytree(job.checkpoint, job.folder / "backup")
    new = job.produce("new", NEW)
    run_here(file, servers)
    assert read(job, "confluent", OLD + NEW) == sorted(old + new)

    delete_topic(servers, job.ledger_topic)
    create_topic(servers, job.ledger_topic, 2, {"cleanup.policy": "compact"})
    producer = ordered_producer(servers)
    for entry in backup:
        producer.produce(job.ledger_topic, entry.value, entry.key, entry.partition)
    assert producer.flush(30) == 0
    shutil.rmtree(job.checkpoint)
    shutil.copytree(job.folder / "backup", job.checkpoint)
    with pytest.raises(CorruptionError, match="the ledger is older than the output") as caught:
        run_here(file, servers)
    assert len(job.written()) == OLD + NEW

    # As the message says.
    assert "name an empty directory as `checkpoint`" in str(caught.value)
    job.forget_input()
    newer = job.produce("newer", NEWER)
    job.checkpoints += 1
    run_here(job.write_file(), servers, remedy=Remedy.NEW_GENERATION, reason="restored in a test")
    assert anomalies(job.written()) == []
    assert read(job, "confluent", NEWER) == sorted(newer)


def test_of_partitions_of_which_one_was_trimmed_all_begin_another_lineage(job: CopyJob) -> None:
    """The sequences of the trimmed one begin again: under the same lineage they would be repeats"""
    servers, file = job.bootstrap_servers, job.write_file()
    job.produce("old", OLD)
    run_here(file, servers)
    read(job, "confluent", OLD)
    lose_ledger_and_checkpoint(job)
    end = 1 + max(w.offset for w in job.written() if w.partition == 0)
    delete_before(servers, job.output_topic, 0, end)
    new = job.produce("new", NEW)
    run_here(file, servers, remedy=Remedy.NEW_GENERATION, reason="in a test")
    first = {n: min(w.sequence for w in job.written() if w.partition == n) for n in range(2)}
    assert first == {0: 1, 1: 1}
    assert read(job, "confluent", NEW, Rules(new_lineage=OnFault.REPORT)) == sorted(new)
    (finding,) = verified(job).findings
    assert "lineage" in finding.expected
    assert len(first) == OUTPUT_PARTITIONS


def test_a_ledger_is_rebuilt_for_the_newest_of_two_generations(job: CopyJob) -> None:
    """The first has the larger batch ids, and a partition into which the second did not write."""
    servers, produced = job.bootstrap_servers, job.produce("first", OLD)
    run_here(job.write_file(), servers)
    job.forget_input()
    job.checkpoints += 1
    produced += job.produce("second", NEW, key="one")
    run_here(job.write_file(), servers, remedy=Remedy.NEW_GENERATION, reason="in a test")
    assert [h["batch_id"] for h in job.heads()] == [-1, 0, 1, 2, -1, 0]
    lineage = job.heads()[0]["lineage"]
    delete_topic(servers, job.ledger_topic)
    options = RunOptions(remedy=Remedy.REBUILD, reason="deleted in a test")
    head = application(job.write_file(), servers, options)[0].repair()
    assert (head.generation, head.batch.batch_id, head.lineage) == (2, 0, lineage)
    produced += job.produce("third", NEWER)
    run_here(job.write_file(), servers)
    assert job.values() == sorted(produced)
    assert anomalies(job.written()) == []


def _lacks_the_new_topic(job: CopyJob, plan: Path) -> None:
    """Give the batch the plan of a zombie that has not seen the new topic."""
    *rest, offset = plan.read_text().split("\n")
    fields = json.loads(offset)
    del fields["position"][job.input_topic("b")]
    plan.write_text("\n".join([*rest, json.dumps(fields, sort_keys=True, separators=(",", ":"))]))
    _without_checksum(plan)


def _is_gone(_: CopyJob, plan: Path) -> None:
    plan.unlink()
    _without_checksum(plan)


def _without_checksum(plan: Path) -> None:
    (plan.parent / f".{plan.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("damage", "remedy"), [(_lacks_the_new_topic, None), (_is_gone, Remedy.ADOPT)]
)
def test_a_plan_is_written_again_though_its_batch_brought_a_new_topic(
    job: CopyJob, damage: Callable[[CopyJob, Path], None], remedy: Remedy | None
) -> None:
    servers, file = job.bootstrap_servers, job.write_file()
    produced = job.produce("a", NEW)
    run_here(file, servers)
    job.create_input("b")
    produced += job.produce("a2", NEW) + job.produce("b", NEW, "b")
    run_until_it_fails(file, servers, CrashPoint.AFTER_COMMIT, 1)
    plans = [f for f in (job.checkpoint / "offsets").iterdir() if f.name.isdigit()]
    newest = max(plans, key=lambda f: int(f.name))
    assert job.input_topic("b") in newest.read_text()
    damage(job, newest)
    if remedy:
        with pytest.raises(CorruptionError, match=r"offset log lost its newest entry(.|\n)*adopt"):
            run_here(file, servers)
    events = run_here(file, servers, remedy=remedy, reason="in a test" if remedy else "")
    assert events.of_kind("batch")[0]["is_skipped"]
    assert job.values() == sorted(produced)
