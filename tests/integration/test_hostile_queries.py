"""A query that cannot be bounded before it runs ends by itself; others in the process go on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from onceflow.app import Application, RunOptions
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.errors import ConfigError, OnceflowError, RetriableError
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.run import Surroundings
from onceflow.runtime.spark.session import SharedEngine
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import LOST_WITH_THE_TEST, QUICK, Events
from tests.support.drivers.service import END_TIMEOUT_S
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic, ordered_producer

LIMITED = replace(QUICK, max_rows=1_000_000)
BRIEF = replace(LIMITED, max_batch_s=5)
"""For the one that only time can stop; others take their time on a busy machine."""
ELEMENTS = 300
SLOW_RECORDS = 400
"""Each takes about a second: 300 to the power of three steps."""
PIPELINE = """\
apiVersion: onceflow/v1
name: {name}
sources:
  r: {{kafka: {{topics: [{topic}], max_records_per_batch: 500}}, schema: "n INT, a ARRAY<INT>"}}
query: |
  {query}
sink: {{kafka: {{topic: {name}-out, partitions: 1}}}}
"""
HOSTILE: dict[str, tuple[str, type[OnceflowError], str]] = {
    "explodes": (
        (
            "SELECT count(*) AS k FROM r"
            " LATERAL VIEW explode(a) x AS x LATERAL VIEW explode(a) y AS y"
            " LATERAL VIEW explode(a) z AS z GROUP BY n"
        ),
        ConfigError,
        "makes too many rows; expected at most 1000000 in a task (spark.max_rows)",
    ),
    "multiplies": (
        (
            "SELECT n, x, y FROM (SELECT n, a, explode(a) AS x FROM r)"
            " JOIN (SELECT explode(sequence(1, 100000)) AS y)"
        ),
        ConfigError,
        "(spark.max_rows)",
    ),
    "swells": (
        "SELECT length(aggregate(a, cast(n AS STRING), (s, x) -> concat(s, s))) AS k FROM r",
        RetriableError,
        "Spark has run out of memory",
    ),
    "lasts": (
        "SELECT exists(a, x -> exists(a, y -> exists(a, z -> x + y + z + n < 0))) AS k FROM r",
        ConfigError,
        "at most 5 s (spark.max_batch_s)",
    ),
}


@dataclass
class Shared:
    """Pipelines of one process on one engine."""

    folder: Path
    bootstrap_servers: str
    topic: str
    engine: SharedEngine

    def application(self, name: str, query: str) -> tuple[Application, Events]:
        file = self.folder / f"{name}.yaml"
        own = f"{self.topic}-{name}"
        file.write_text(PIPELINE.format(name=own, topic=self.topic, query=query))
        if "GROUP BY" in query:
            file.write_text(file.read_text().replace("sink: {", "sink: {emit: updates, "))
        events = Events()
        around = Surroundings(
            connector=find_connector("kafka"),
            connection=Connection(self.bootstrap_servers),
            session=BRIEF if name == "lasts" else LIMITED,
            clock=SystemClock(),
            report=events,
            engine=self.engine,
            checkpoint_waiver=LOST_WITH_THE_TEST,
        )
        return Application(load_pipeline(file), RunOptions(), around), events

    def produce(self, first: int, count: int) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        elements = [*range(ELEMENTS)]
        for n in range(first, first + count):
            producer.produce(self.topic, json.dumps({"n": n, "a": elements}).encode())
        assert producer.flush(30) == 0


@pytest.fixture
def shared(broker: RunningBroker, tmp_path: Path) -> Iterator[Shared]:
    engine = SharedEngine(LIMITED)
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, name)
    yield Shared(tmp_path, broker.bootstrap_servers, name, engine)
    engine.stop()


@contextmanager
def running(application: Application) -> Iterator[Future[None]]:
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(application.run)
        try:
            yield result
        finally:
            application.request_drain()
            result.exception(END_TIMEOUT_S)


def test_hostile_queries_fail_alone(shared: Shared) -> None:
    shared.produce(0, SLOW_RECORDS)
    good, events = shared.application("good", "SELECT n FROM r")
    produced = SLOW_RECORDS
    with running(good) as result:
        eventually(lambda: events.of_kind("batch") or result.done(), timeout_s=END_TIMEOUT_S)
        for name, (query, kind, told) in HOSTILE.items():
            hostile, _ = shared.application(name, query)
            with pytest.raises(kind) as failed:
                hostile.run()
            assert told in str(failed.value), name
            assert "nothing of" in str(failed.value), name
            assert shared.engine.loss() is None, name
            # The other one still commits what comes now.
            before = len(events.of_kind("batch"))
            shared.produce(produced, 1)
            produced += 1
            eventually(
                lambda before=before: len(events.of_kind("batch")) > before or result.done(),  # type: ignore[misc]
                timeout_s=END_TIMEOUT_S,
            )
            assert not result.done(), (name, result)
    assert result.exception() is None
    written = read_topic(shared.bootstrap_servers, f"{shared.topic}-good-out")
    assert sorted(json.loads(r.value or b"")["n"] for r in written) == [*range(produced)]
