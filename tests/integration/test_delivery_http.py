"""A delivery by HTTP, end to end: `onceflow run` on a real broker and a real receiver.

The receiver discards repeats by the key, so each record has its effect once, whatever is killed,
frozen or cut on the way.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.consumer_steps import Written
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.jobs.delivery_process import PARTITIONS, DeliveryProcess
from tests.support.outside.history import read_topic
from tests.support.sites.receiver import Receiver, Rule, running_receiver

ROOT = Path(__file__).parents[2]
RECORDS = 200
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: {name}
from: {{topics: [{topic}], takeover_after: 3 seconds}}
to: {{http: {{url: "{url}", timeout: 1 second, idempotency: {{lifetime: 1 hour}}, {more}}}}}
batch: {{max_records: {batch}, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms}}
"""
SEVERAL = "records_per_request: 7, body: ndjson"
POINTS = (
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


@dataclass
class Posting(DeliveryProcess):
    """A topic, and a receiver that remembers keys."""

    receiver: Receiver = None  # type: ignore[assignment]
    more: str = ""

    def set_up(self, *rules: Rule) -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.write_file(batch=40)
        self.receiver.obey(*rules, lifetime_s=3600)
        for partition in range(PARTITIONS):
            self.write(1, RECORDS, partition)

    def write_file(self, batch: int) -> None:
        given = {"name": self.name, "topic": self.topic, "url": self.receiver.url}
        self.file.write_text(FILE.format(**given, batch=batch, more=self.more))

    def stored(self) -> Counter[str]:
        bodies = {
            each.number: each.body.decode()
            for each in self.receiver.requests()
            if each.headers["onceflow-delivery"] == self.name
        }
        numbers = [e["number"] for e in self.receiver.events() if e["event"] == "stored"]
        return Counter(line for n in numbers if n in bodies for line in bodies[n].splitlines())

    def assert_each_record_has_its_effect_once(self) -> None:
        records = read_topic(self.kafka.bootstrap_servers, self.topic)
        assert self.stored() == Counter({(record.value or b"").decode() for record in records})


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture(params=["", SEVERAL], ids=["one", "several"])
def posting(
    broker: RunningBroker,
    topic: Callable[[str], str],
    tmp_path: Path,
    receiver: Receiver,
    request: pytest.FixtureRequest,
) -> Posting:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    return Posting(kafka, tmp_path, topic("posted"), path, receiver, request.param)


def test_each_record_is_posted_once_also_over_restarts(posting: Posting) -> None:
    posting.set_up()
    posting.deliver()
    posting.assert_each_record_has_its_effect_once()
    posting.write(RECORDS - 20, RECORDS + 20)
    posting.deliver()
    posting.assert_each_record_has_its_effect_once()
    assert not posting.waits


def test_whatever_the_receiver_does_each_record_has_its_effect_once(posting: Posting) -> None:
    faults = [Rule(cut="after"), Rule(status=503), Rule(delay_s=2), Rule(cut="before")]
    posting.set_up(*(rule for fault in faults for rule in (Rule(times=9), fault)))
    posting.deliver()
    posting.assert_each_record_has_its_effect_once()
    assert len(posting.waits) >= 3


@pytest.mark.parametrize("foreign", ["drop", "deliver"])
def test_a_record_that_no_pipeline_wrote_is_treated_as_the_file_says(
    posting: Posting, foreign: str
) -> None:
    posting.set_up()
    value = b'{"n": 0, "page": "foreign"}'
    posting.kafka.write(posting.topic, [Written(value)])
    posting.write(RECORDS + 1, RECORDS + 50)
    assert posting.run() == 6
    assert "set `from.foreign` to `deliver` or `drop`" in posting.errors
    assert value.decode() not in posting.stored()
    text = posting.file.read_text()
    posting.file.write_text(text.replace("from: {", f"from: {{foreign: {foreign}, "))
    posting.deliver()
    stored = posting.stored()
    assert stored.pop(value.decode(), 0) == (foreign == "deliver")
    records = read_topic(posting.kafka.bootstrap_servers, posting.topic)
    assert stored == Counter({(each.value or b"").decode() for each in records if each.header})


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_and_repeats_no_effect(
    posting: Posting, point: CrashPoint, random: Random
) -> None:
    posting.set_up()
    posting.die(point, 1 if point is CrashPoint.AFTER_CLAIM else random.randint(1, 8))
    posting.write(RECORDS + 1, RECORDS + 50)
    posting.write_file(batch=random.choice([7, 40, 100]))
    posting.deliver()
    posting.assert_each_record_has_its_effect_once()


@pytest.mark.crash
def test_a_frozen_instance_that_wakes_up_late_has_no_second_effect(posting: Posting) -> None:
    posting.set_up()
    with posting.frozen(CrashPoint.MID_PRODUCE, 3):
        posting.deliver()
    posting.assert_each_record_has_its_effect_once()
