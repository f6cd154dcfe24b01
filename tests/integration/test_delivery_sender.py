"""A delivery to a receiver that keeps no position, end to end: `onceflow run` on a real broker.

The receiver is a file that keeps whatever comes, so that what is sent twice shows.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.protocol.identity import DELIVERIES_TOPIC
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.eventually import eventually
from tests.support.fakes import file_sender
from tests.support.jobs.delivery_process import (
    PARTITIONS,
    RUN_TIMEOUT_S,
    DeliveryProcess,
    any_arrival,
)
from tests.support.outside.history import read_topic

ROOT = Path(__file__).parents[2]
RECORDS = 200
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: {name}
from: {{topics: [{topic}], takeover_after: 3 seconds}}
to: {{receiver: {{path: received, {more}}}}}
batch: {{max_records: {batch}, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms, {retry}}}
"""
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


@dataclass
class Sending(DeliveryProcess):
    """A topic, and a file that records are sent to."""

    def set_up(self) -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.write_file()

    def write_file(self, batch: int = 40, more: str = "", retry: str = "") -> None:
        given = {"name": self.name, "topic": self.topic, "batch": batch, "more": more}
        self.file.write_text(FILE.format(**given, retry=retry))

    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "received"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def counts(self) -> Counter[str]:
        return Counter(value for call in self.calls() for value in call["values"])

    def expected(self) -> set[str]:
        records = read_topic(self.kafka.bootstrap_servers, self.topic)
        return {(record.value or b"").decode() for record in records}

    def assert_repeats_only_what_was_under_way(self) -> None:
        """Every record is there; what is there twice was sent twice as the same call."""
        assert {*self.counts()} == self.expected()
        sent = Counter((call["partition"], *call["offsets"]) for call in self.calls())
        again = {call for call, times in sent.items() if times > 1}
        assert max(sent.values()) <= 2
        # One for each partition of the batch that was under way.
        assert len(again) <= PARTITIONS
        once = [offset for call in sent for offset in ((call[0], n) for n in call[1:])]
        assert len(once) == len({*once})


@pytest.fixture
def sending(broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path) -> Sending:
    file_sender.install(tmp_path)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Sending(kafka, tmp_path, topic("sent"), {"PYTHONPATH": path})


def test_each_record_is_sent_once_also_over_restarts(sending: Sending) -> None:
    sending.set_up()
    sending.write_much(RECORDS)
    sending.deliver()
    assert sending.counts() == Counter(sending.expected())
    sending.write(RECORDS - 20, RECORDS + 20)
    sending.deliver()
    assert sending.counts() == Counter(sending.expected())
    keys = {r.key for r in read_topic(sending.kafka.bootstrap_servers, DELIVERIES_TOPIC)}
    ours = {json.dumps([sending.name, sending.topic, n], separators=(",", ":")) for n in (0, 1)}
    assert {key.encode() for key in ours} <= keys


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_no_record_and_repeats_only_the_batch_under_way(
    sending: Sending, point: CrashPoint, random: Random
) -> None:
    """After the kill there are more records, and batches may be larger."""
    sending.set_up()
    sending.write_much(RECORDS)
    sending.die(point, any_arrival(point, random))
    sending.write(RECORDS + 1, RECORDS + 50)
    sending.write_file(batch=random.choice([7, 40, 100]))
    sending.deliver()
    sending.assert_repeats_only_what_was_under_way()


@pytest.mark.crash
@pytest.mark.parametrize("point", [CrashPoint.MID_PRODUCE, CrashPoint.AFTER_EFFECT])
def test_a_frozen_instance_that_wakes_up_late_moves_no_position(
    sending: Sending, point: CrashPoint
) -> None:
    """It may still send what it was about to send; it never sends what comes after."""
    sending.set_up()
    sending.write_much(RECORDS)
    with sending.frozen(point, 3) as frozen:
        sending.deliver()
    pid = frozen.pid
    sending.assert_repeats_only_what_was_under_way()
    late = [call for call in sending.calls() if call["process"] == pid]
    assert len(late) == 3
    sending.write(RECORDS + 1, RECORDS + 50)
    sending.deliver()
    sending.assert_repeats_only_what_was_under_way()


@pytest.mark.crash
def test_two_instances_share_the_partitions_and_one_goes_on_alone(sending: Sending) -> None:
    sending.set_up()
    with sending.running(name="one") as one, sending.running(name="two") as two:
        for end in (100, 200):
            for partition in range(PARTITIONS):
                sending.write(end - 99, end, partition)
        eventually(lambda: len(sending.counts()) == 400, timeout_s=RUN_TIMEOUT_S)
        one.kill()
        for partition in range(PARTITIONS):
            sending.write(201, 300, partition)
        eventually(lambda: len(sending.counts()) == 600, timeout_s=RUN_TIMEOUT_S)
        two.send_signal(signal.SIGTERM)
        assert two.wait(RUN_TIMEOUT_S) == 0
    sending.assert_repeats_only_what_was_under_way()


def test_what_the_receiver_no_longer_recognises_stops_the_delivery_until_told(
    sending: Sending,
) -> None:
    sending.set_up()
    sending.write(1, 30)
    sending.write_file(more="key_lifetime: 1 ms")
    sending.die(CrashPoint.AFTER_EFFECT, 1)
    assert sending.run() == 6
    assert "records may have been sent, and the receiver no longer recognises" in sending.errors
    assert len(sending.calls()) == 1
    sending.write_file(more="key_lifetime: 1 ms", retry="when_key_expires: send")
    sending.deliver()
    assert {*sending.counts()} == sending.expected()
    first, again, *_ = sending.calls()
    assert first["offsets"] == again["offsets"]
