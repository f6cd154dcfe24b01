"""Windows close although nothing arrives, the same ones whatever becomes of the driver meanwhile.

One pipeline has all kinds of silence: a partition of the left topic never has a record, the right
topic never has one either, and then no record comes any more.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import dying, is_at_rest, running_here
from tests.support.drivers.service import END_TIMEOUT_S
from tests.support.eventually import eventually
from tests.support.everything import some
from tests.support.jobs.views import FIRST, View, ViewsJob
from tests.support.outside.history import read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic

HOUR = timedelta(hours=1)
WINDOW = timedelta(seconds=2)
IDLE_S = 1.0
"""Of the pipeline."""


@dataclass
class IdleJob(ViewsJob):
    """Views per page and window, of two topics of which one stays empty."""

    @property
    def silent_topic(self) -> str:
        return f"{self.name}-silent"

    def create_input(self) -> None:
        super().create_input()
        create_topic(self.bootstrap_servers, self.silent_topic, 2)

    def write_file(self, batch: int = 40, extra: str = "") -> Path:
        path = self.folder / "pipeline.yaml"
        source = """
    kafka: {{topics: [{topic}], max_records_per_batch: {batch}}}
    schema: "page STRING, at TIMESTAMP"
    event_time: at
    lateness: 1 second
    idle_after: 1 second"""
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  clicks:{source.format(topic=self.input_topic, batch=batch)}
  silent:{source.format(topic=self.silent_topic, batch=batch)}
query: |
  SELECT page, window.start AS start, count(*) AS views
  FROM (SELECT * FROM clicks UNION ALL SELECT * FROM silent)
  WHERE page <> '/never' GROUP BY page, window(at, '2 seconds')
sink:
  kafka: {{topic: {self.output_topic}, partitions: 3, key: page}}
checkpoint: {self.checkpoint}
{extra}"""
        )
        return path

    def send_to_first(self, *views: View) -> None:
        """All to one partition."""
        partitions, self.partitions = self.partitions, 1
        self.send(views)
        self.partitions = partitions

    def windows(self) -> Counter[tuple[str, str, int]]:
        """Page, start and count of every window, however late it is."""
        counted = Counter(
            (view.page, FIRST + (view.at - FIRST) // WINDOW * WINDOW) for view in self.produced
        )
        return Counter(
            (page, start.strftime("%Y-%m-%dT%H:%M:%S.000Z"), count)
            for (page, start), count in counted.items()
        )

    def written_windows(self) -> Counter[tuple[str, str, int]]:
        rows = [w.row for w in read_topic(self.bootstrap_servers, self.output_topic)]
        return Counter((row["page"], row["start"], row["views"]) for row in rows)


class Planned:
    """Spark's newest plan, by the checkpoint's offset log."""

    def __init__(self, checkpoint: Path) -> None:
        self._log = checkpoint / "offsets"

    def kind(self) -> str:
        newest = max((int(path.name) for path in self._log.glob("[0-9]*")), default=0)
        if newest == 0:
            return "records"
        before, now = self._offsets(newest - 1), self._offsets(newest)
        if [o["position"] for o in before] != [o["position"] for o in now]:
            return "records"
        return "close" if before == now else "tick"

    def _offsets(self, batch_id: int) -> list[dict[str, Any]]:
        _, _, *offsets = (self._log / str(batch_id)).read_text().splitlines()
        return [json.loads(offset) for offset in offsets]


SOME = 3
BOUNDARIES = [
    (kind, point)
    for kind in ("tick", "close")
    for point in (CrashPoint.AFTER_OFFSET_LOG, CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT)
]
"""Batch, and where a driver dies in it. Each driver finds the batch that killed the one before."""


def test_silence_closes_the_same_windows_wherever_a_driver_dies(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    job = IdleJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    file = job.write_file()
    planned = Planned(job.checkpoint)
    views = [View(f"/{n % 3}", 0, FIRST + n * timedelta(milliseconds=100)) for n in range(100)]
    # The last view is ahead of the others, which the silent topic holds up until it has ticks.
    job.send_to_first(*views, View("/end", 0, FIRST + HOUR))
    chosen = some(BOUNDARIES, SOME, random)
    for boundary in (each for each in BOUNDARIES if each in chosen):
        with (
            dying(lambda point, at=boundary: (planned.kind(), point) == at),  # type: ignore[misc]
            running_here(file, job.bootstrap_servers) as running,
        ):
            running.error()
    with running_here(file, job.bootstrap_servers) as running:
        eventually(lambda: job.windows() == job.written_windows(), timeout_s=END_TIMEOUT_S)
        eventually(lambda: is_at_rest(running, IDLE_S))
    check_ledger(job)


def check_ledger(job: IdleJob) -> None:
    heads = job.heads()
    written = read_topic(job.bootstrap_servers, job.output_topic)
    assert anomalies(written, heads) == []
    counts = [head["records"] for head in heads]
    assert sum(count["read"] for count in counts) == len(job.produced)
    assert sum(count["late"] for count in counts) == 0
    assert [count for count in counts if count["written"] and not count["read"]]
    watermarks = [head["event_watermark_ms"] for head in heads]
    assert watermarks == sorted(watermarks)
    # A tick moves event time and no position: only its clock makes its batch differ from others.
    plans = [(head["event_watermark_ms"], head["batch_timestamp_ms"]) for head in heads]
    assert len(set(plans)) == len(plans)
