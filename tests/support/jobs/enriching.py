"""An enrichment as a process, and a check of what it wrote.

The service numbers its answers and logs each request. So a checker that shares no code with the
product can tell for each record of the output which request its answer came from, that it was about
this record, and that there is one answer for each record of the input, in the order of the input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import PARTITIONS, RUN_TIMEOUT_S, DeliveryProcess
from tests.support.outside.history import Written, read_topic
from tests.support.sites.receiver import ALWAYS, Receiver, Rule

HEADER = "onceflow.answer"
JSON = {"Content-Type": "application/json"}
GET = ("GET",)
GOOD = Rule(times=ALWAYS, methods=GET, headers=JSON, body='{"serial": $number, "path": "$path"}')
FILE = """\
apiVersion: onceflow/v1
kind: enrichment
name: {name}
from:
  topics: [{topic}]
  schema: "n BIGINT NOT NULL, page STRING"
  takeover_after: 3 seconds
ask:
  http: {{url: "{url}/{{n}}?page={{page}}", timeout: 1 second}}
  {ask}
answer: {{as: answer, schema: "serial BIGINT NOT NULL, path STRING"}}
to: {{topic: {topic}-out, create: true}}
batch: {{max_records: 40, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms}}
{more}
"""


@dataclass
class Enriching(DeliveryProcess):
    """A topic, a service, and the topic of records with answers."""

    service: Receiver = None  # type: ignore[assignment]

    @property
    def output(self) -> str:
        return f"{self.topic}-out"

    def set_up(self, ask: str = "order: none", more: str = "") -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        url = self.service.url.replace("/records", f"/{self.name}")
        given = {"name": self.name, "topic": self.topic, "url": url, "ask": ask, "more": more}
        self.file.write_text(FILE.format(**given))
        self.service.obey(GOOD)

    def requests(self) -> dict[int, str]:
        """Number of each question that this test's process asked, and its path."""
        found = self.service.questions()
        return {seen.number: seen.path for seen in found if f"/{self.name}/" in seen.path}

    def input(self) -> list[Written]:
        """Each record of the topic as often as a reader that discards repeats sees it."""
        seen: set[tuple[int, bytes | None]] = set()
        found = []
        for record in read_topic(self.kafka.bootstrap_servers, self.topic):
            if (record.partition, record.header) not in seen:
                seen.add((record.partition, record.header))
                found.append(record)
        return found

    def written(self) -> list[Written]:
        return [*read_topic(self.kafka.bootstrap_servers, self.output)]

    def write_on(self, end: int) -> int:
        """Write some more records to each partition, and wait until they are in the output."""
        for partition in range(PARTITIONS):
            self.write(end + 1, end + 25, partition)
        wait_for(self, PARTITIONS * (end + 25))
        return end + 25

    def has_written(self, name: str) -> bool:
        """Whether an instance has written a batch."""
        return "batch" in [each["event"] for each in self.events(name)]

    def assert_each_record_has_one_answer(self, without: Sequence[int] = ()) -> None:
        requests = self.requests()
        expected = [each for each in self.input() if content_of(each)["n"] not in without]
        found = self.written()
        assert [_place_of(each) for each in found] == [_place_of(each) for each in expected]
        for given, made in zip(expected, found, strict=True):
            fields = content_of(made)
            answer = fields.pop("answer")
            assert fields == content_of(given)
            path = f"/{self.name}/{fields['n']}?page={quote(fields['page'], safe='')}"
            assert answer["path"] == requests[answer["serial"]] == path
            *headers, (name, value) = made.headers
            assert headers == [*given.headers]
            assert name == HEADER
            told = json.loads(value or b"")
            assert (told["enrichment"], told["how"]) == (self.name, "asked")


def content_of(record: Written) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.value or b"")
    return found


def _place_of(record: Written) -> tuple[object, ...]:
    return record.partition, record.key, record.timestamp_ms


def wait_for(enriching: Enriching, count: int) -> Sequence[object]:
    return eventually(enriching.written, lambda found: len(found) >= count, timeout_s=RUN_TIMEOUT_S)
