"""Each cause that `why-stuck` names, really made: topics, transactions, drivers of a real Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.cli.operate import why_stuck
from onceflow.cli.shared.findings import FOUND
from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.errors import FencedError, OnceflowError, RecordError
from onceflow.observe import diagnosis
from onceflow.observe.diagnosis import SILENT_AFTER_MS, Cause, Diagnosis, diagnose
from onceflow.observe.facts import Facts
from onceflow.observe.survey import Survey
from onceflow.protocol.bulletin import RUNNING_KIND, Bulletin
from onceflow.protocol.ledger import SourceRanges
from onceflow.serve.bulletins import Bulletins
from tests.support.brokers.choice import RunningBroker
from tests.support.clock import ManualClock
from tests.support.drivers.driver import PARTITIONS, Driver
from tests.support.eventually import eventually
from tests.support.outside.topics import (
    add_partitions,
    create_topic,
    delete_before,
    delete_topic,
    ordered_producer,
    set_topic,
)

HOUR_MS = 3_600_000
RECORDS = 20
Topic = Callable[[str], str]


class Stage:
    """A pipeline that reads two sources of one partition each, and who looks at it.

    Args:
        address: of the brokers.
        topic: makes names.
    """

    def __init__(self, address: str, topic: Topic) -> None:
        self.address = address
        self.name = topic("p")[-40:].replace("_", "-").strip("-")
        self.inputs = [topic("left"), topic("right")]
        self.output = topic("out")
        self.now_ms = SystemClock().unix_ms()
        self.read_to: tuple[int, ...] = ()
        self._stack = ExitStack()
        self.connector = find_connector("kafka")
        self.board = self.connector.bulletin_board(self.name, Connection(address))
        self._stack.callback(self.board.close)
        for name in self.inputs:
            create_topic(address, name)
        create_topic(address, self.output, PARTITIONS)

    def close(self) -> None:
        self._stack.close()

    def driver(self) -> Driver:
        driver = self._stack.enter_context(Driver(self.address, self.name, self.output))
        driver.take_over()
        return driver

    def produce(self, topic: str, age_ms: int, records: int = RECORDS) -> None:
        producer = ordered_producer(self.address)
        for _ in range(records):
            producer.produce(topic, b"x", timestamp=self.now_ms - age_ms)
        assert producer.flush(30) == 0

    def reads(self, *positions: int) -> SourceRanges:
        """On to these positions, one for each source."""
        before, self.read_to = self.read_to, positions
        return {
            f"s{n}": {self.inputs[n]: {0: (before[n] if before else 0, end)}}
            for n, end in enumerate(positions)
        }

    def tells(self, driver: Driver, **figures: Any) -> None:
        """A bulletin, as a run of this driver posts it."""
        bulletin = Bulletin(driver.run_id, "here", self.now_ms, batch_id=1, batch_at_ms=self.now_ms)
        self.board.post(RUNNING_KIND, replace(bulletin, **figures).to_json())
        self.board.settle(driver.deadline())

    def ends(self, driver: Driver, error: OnceflowError) -> None:
        """As a run of this driver ends with an error."""
        board = self.connector.bulletin_board(self.name, Connection(self.address))
        run = Bulletins(board, "here", 0, SystemClock(), lambda event, /, **facts: None)
        run("owner", run_id=driver.run_id)
        run.end(error)

    def facts(self, clock: Clock | None = None, timed: frozenset[str] | None = None) -> Facts:
        connection = Connection(self.address)
        with (
            closing(self.connector.ledger(self.name, connection)) as ledger,
            closing(self.connector.broker(connection)) as broker,
        ):
            survey = Survey(self.name, ledger, broker, self.board, clock or SystemClock(), timed)
            return survey.watched(survey.facts(), 0.1)

    def causes(self, later_s: float = 0.0, timed: frozenset[str] | None = None) -> list[Diagnosis]:
        """The findings some time from now."""
        facts = self.facts(ManualClock(SystemClock().unix_ms() + round(later_s * 1000)), timed)
        assert facts.blind == {}
        return diagnose(facts)


@pytest.fixture
def stage(broker: RunningBroker, topic: Topic) -> Iterator[Stage]:
    made = Stage(broker.bootstrap_servers, topic)
    yield made
    made.close()


def only(findings: list[Diagnosis], cause: Cause) -> Diagnosis:
    assert [finding.cause for finding in findings] == [cause], findings
    return findings[0]


def test_a_pipeline_that_has_read_all_of_a_busy_input_is_not_stuck(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.produce(stage.inputs[0], age_ms=0)
    stage.driver().commit(0, [b"a"], stage.reads(RECORDS))
    assert stage.causes() == []
    monkeypatch.setattr(why_stuck, "WATCH_S", 0.1)
    # However long this machine takes until here, the input is still busy.
    monkeypatch.setattr(diagnosis, "QUIET_AFTER_MS", 120_000)
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", stage.address)
    result = CliRunner().invoke(build_app(), ["why-stuck", stage.name, "-o", "json"])
    assert (result.exit_code, json.loads(result.stdout)["causes"]) == (0, [])


def test_no_input(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=2 * HOUR_MS)
    stage.driver().commit(0, [b"a"], stage.reads(RECORDS))
    found = only(stage.causes(), Cause.NO_INPUT)
    assert f"the newest record, in {stage.inputs[0]}-0, is 2 h old" in found.evidence


def test_a_partition_that_no_batch_has_read_lags_by_what_is_left_of_it(stage: Stage) -> None:
    stage.driver().commit(0, [b"a"], stage.reads(0))
    new = 1
    add_partitions(stage.address, stage.inputs[0], new + 1)
    producer = ordered_producer(stage.address)
    for _ in range(RECORDS):
        producer.produce(stage.inputs[0], b"x", partition=new)
    assert producer.flush(30) == 0
    delete_before(stage.address, stage.inputs[0], new, RECORDS - 2)
    assert stage.facts().lag == 2


def test_lag_with_its_end(stage: Stage) -> None:
    driver = stage.driver()
    driver.commit(0, [b"a"], stage.reads(5))
    stage.produce(stage.inputs[0], age_ms=0, records=1_005)
    stage.tells(driver, records_per_second=10.0)
    found = only(stage.causes(), Cause.LAG)
    assert "1,000 records: caught up in 100 s" in found.what
    assert "reads 10 records/s" in found.evidence


def test_lag_while_as_much_comes_in_never_ends(stage: Stage) -> None:
    """Records come in while the input is watched."""
    driver = stage.driver()
    driver.commit(0, [b"a"], stage.reads(0))
    stage.produce(stage.inputs[0], age_ms=0)
    stage.tells(driver, records_per_second=1.0)

    class Busy(ManualClock):
        def sleep(self, seconds: float) -> None:
            stage.produce(stage.inputs[0], age_ms=0)
            super().sleep(seconds)

    facts = stage.facts(Busy(SystemClock().unix_ms()))
    assert facts.arrivals_per_s == RECORDS / 0.1
    assert "never catches up" in only(diagnose(facts), Cause.LAG).what


def open_transaction(stage: Stage, transactional_id: str, age_ms: int = 0) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": stage.address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.inputs[0], b"open", timestamp=stage.now_ms - age_ms)
    assert producer.flush(30) == 0
    return producer


def test_a_hung_transaction_is_named_with_its_producer(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=0)
    stage.driver().commit(0, [b"a"], stage.reads(RECORDS))
    producer = open_transaction(stage, f"upstream-{stage.name}")
    try:
        assert stage.causes() == []  # a transaction that is open for a moment
        found = only(stage.causes(later_s=20), Cause.HUNG_TRANSACTION)
        (transaction,) = stage.facts().transactions
        held, holder = found.evidence
        assert f"last stable offset {RECORDS}, 1 offsets before the high watermark" in held
        assert f"transactional id upstream-{stage.name}, producer id" in holder
        named = f"producer id {transaction.producer_id}, producer epoch 0"
        # A busy machine may take some seconds more between the transaction and the look.
        assert re.search(rf"{named}, open for 2\d s", holder)
        assert f"coordinator: broker {transaction.coordinator}" in holder
        assert re.search(r"does so in (40|3\d) s", found.cure)
        assert f"--start-offset {RECORDS}" in found.cure
    finally:
        producer.abort_transaction(30)
    eventually(lambda: stage.facts().inputs[0].undecided, lambda undecided: undecided == 0)
    assert Cause.HUNG_TRANSACTION not in {found.cause for found in stage.causes(later_s=20)}


def test_idle_input_that_holds_the_watermark(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=HOUR_MS)
    stage.produce(stage.inputs[1], age_ms=0)
    driver = stage.driver()
    for batch_id in range(3):
        driver.commit(batch_id, [b"a"], stage.reads(RECORDS, RECORDS), event_watermark_ms=7)
    # The markers of the newest batch may still be on their way.
    found = only(eventually(stage.causes), Cause.IDLE_INPUT)
    assert "source s0 is idle and holds the watermark" in found.what
    assert f"in {stage.inputs[0]}-0, 60 min older" in found.evidence[0]
    # The same without an event time in one of the two: nothing waits for it.
    assert stage.causes(timed=frozenset({"s1"})) == []


def test_a_driver_that_was_fenced(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=0)
    first = stage.driver()
    stage.tells(first)
    second = stage.driver()
    second.commit(0, [b"a"], stage.reads(RECORDS))
    found = only(stage.causes(), Cause.FENCED)
    assert "no longer owns" in found.what
    with pytest.raises(FencedError) as caught:
        first.commit(0, [b"b"], stage.reads(RECORDS))
    stage.ends(first, caught.value)
    stage.tells(second)
    found = only(stage.causes(), Cause.FENCED)
    assert "a newer instance owns this pipeline" in found.evidence[1]
    assert second.run_id in found.evidence[0]


def test_a_sink_that_takes_no_record_of_that_size(stage: Stage) -> None:
    driver = stage.driver()
    driver.commit(0, [b"a"], stage.reads(0))
    stage.produce(stage.inputs[0], age_ms=0)
    stage.tells(driver)
    with pytest.raises(RecordError) as caught:
        driver.commit(1, [Random(1).randbytes(2_000_000)], stage.reads(RECORDS))
    stage.ends(driver, caught.value)
    findings = stage.causes()
    assert [finding.cause for finding in findings] == [Cause.SINK_REFUSES, Cause.STOPPED]
    assert "RecordError" in findings[0].evidence[0]
    assert "cannot write" in findings[0].evidence[0]


def test_an_output_without_replicas_and_one_that_is_gone(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=0)
    stage.driver().commit(0, [b"a"], stage.reads(RECORDS))
    set_topic(stage.address, stage.output, {"min.insync.replicas": "2"})
    found = only(stage.causes(), Cause.SINK_REFUSES)
    assert found.evidence == ("1 replicas in sync; min.insync.replicas is 2",)
    delete_topic(stage.address, stage.output)
    found = only(stage.causes(), Cause.SINK_REFUSES)
    assert "there is no topic" in found.evidence[0]


def test_nobody_runs_it(stage: Stage) -> None:
    stage.produce(stage.inputs[0], age_ms=0)
    driver = stage.driver()
    driver.commit(0, [b"a"], stage.reads(5))
    stage.tells(driver)
    found = only(stage.causes(later_s=1.5 * SILENT_AFTER_MS / 1000), Cause.STOPPED)
    assert f"{RECORDS - 5} records wait" in found.evidence


def test_retention_that_is_near_and_that_has_overtaken(stage: Stage) -> None:
    set_topic(stage.address, stage.inputs[0], {"retention.ms": str(HOUR_MS)})
    stage.produce(stage.inputs[0], age_ms=50 * 60_000)
    driver = stage.driver()
    driver.commit(0, [b"a"], stage.reads(5))
    found = stage.causes()[0]
    assert found.cause is Cause.RETENTION
    assert f"retention.ms overtakes {stage.inputs[0]}-0 in 10 min" in found.evidence
    # As long as it runs and does not stand still, its own forecast counts.
    stage.tells(driver)
    assert Cause.RETENTION not in {finding.cause for finding in stage.causes()}
    delete_before(stage.address, stage.inputs[0], 0, 8)
    assert "has overtaken" in stage.causes()[0].what


def test_the_command_line_says_the_same(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why_stuck, "WATCH_S", 0.1)
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", stage.address)
    stage.produce(stage.inputs[0], age_ms=0)
    stage.driver().commit(0, [b"a"], stage.reads(RECORDS))
    producer = open_transaction(stage, f"upstream-{stage.name}")
    try:
        status = CliRunner().invoke(build_app(), ["status", stage.name, "-o", "json"])
        assert status.exit_code == 0, status.exception
        shown = json.loads(status.stdout)
        assert [row["undecided"] for row in shown["sources"]] == [1]
        (transaction,) = shown["open_transactions"]
        assert transaction["transactional_id"] == f"upstream-{stage.name}"
        assert shown["watermark_holder"]["source"] == "s0"
        as_text = CliRunner().invoke(build_app(), ["status", stage.name])
        assert f"open transaction: upstream-{stage.name}" in as_text.stdout
    finally:
        producer.abort_transaction(30)
    delete_topic(stage.address, stage.output)
    stuck = CliRunner().invoke(build_app(), ["why-stuck", stage.name, "-o", "json"])
    assert stuck.exit_code == FOUND
    assert json.loads(stuck.stdout)["causes"][0]["cause"] == "sink refuses"
    as_text = CliRunner().invoke(build_app(), ["why-stuck", stage.name])
    assert "sink refuses: " in as_text.stdout
    assert "fix: " in as_text.stdout


def test_a_name_that_nobody_has_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", stage.address)
    for command in ("status", "why-stuck"):
        result = CliRunner().invoke(build_app(), [command, "missing"])
        assert "was never started at these brokers: missing" in str(result.exception)
