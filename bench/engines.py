"""The engines as processes: their jobs, their reports, their use of resources."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Self, TextIO

import psutil
import yaml

from bench import counting
from bench.figures import Mark
from bench.workload import COLUMNS, EVENT_TIME, LATENESS_MS, QUERIES, Question
from onceflow.clock import Clock
from onceflow.errors import InvariantError

STOP_TIMEOUT_S = 60.0
"""For the running batch to end. Whatever is left then is killed."""
SAMPLE_S = 1.0
"""Between two looks at memory."""
MB = 1024 * 1024


@dataclass(frozen=True)
class Job:
    """One run of one engine.

    Args:
        input_topic: exists.
        output_topic: exists, empty.
        emit: `final` or `updates`, as in a pipeline file.
        records: to end after, all of which are there; 0 follows the topic.
        folder: empty; for checkpoint and log.
    """

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    emit: str
    records: int
    max_records_per_batch: int
    folder: str


@dataclass(frozen=True)
class Engine:
    """An engine under measurement.

    Args:
        name: in tables and pictures.
        command: what starts it on a job.
        question: what it answers.
    """

    name: str
    command: Callable[[Job], Sequence[str]]
    question: Question = Question.WINDOWS


def _onceflow(job: Job, **settings: object) -> Sequence[str]:
    """Our command line, with its defaults but for some settings of the pipeline."""
    pipeline = {
        "apiVersion": "onceflow/v1",
        "name": job.output_topic,
        "sources": {
            "events": {
                "kafka": {
                    "topics": [job.input_topic],
                    "max_records_per_batch": job.max_records_per_batch,
                },
                "schema": COLUMNS,
                "event_time": EVENT_TIME,
                "lateness": f"{LATENESS_MS} ms",
            }
        },
        "query": QUERIES[Question.WINDOWS],
        "sink": {"kafka": {"topic": job.output_topic, "key": "ad_id"}, "emit": job.emit},
        **settings,
    }
    file = Path(job.folder) / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    command = [sys.executable, "-m", "onceflow.cli", "run", str(file)]
    command += ["--bootstrap-servers", job.bootstrap_servers]
    return [*command, "--until", "caught-up"] if job.records else command


def _processor(job: Job) -> Sequence[str]:
    """The same answer as that of `COUNTS`, by a processor instead of SQL."""
    shutil.copy(str(counting.__file__), job.folder)
    return _onceflow(
        job,
        process={"counts": {"class": "counting:Counter", "input": "events"}},
        query="SELECT * FROM counts",
        sink={"kafka": {"topic": job.output_topic, "key": "ad_id"}},
    )


def _spark(job: Job) -> Sequence[str]:
    return [sys.executable, "-m", "bench.baseline", json.dumps(asdict(job))]


ONCEFLOW = Engine("onceflow", _onceflow)
EAGER = Engine("onceflow-eager", partial(_onceflow, trigger="0 ms"))
"""Does not wait between batches, like Spark's own pair."""
COUNTS = Engine(
    "onceflow-counts", partial(_onceflow, query=QUERIES[Question.COUNTS]), question=Question.COUNTS
)
FILTER = Engine(
    "onceflow-filter",
    partial(_onceflow, query=QUERIES[Question.FILTER]),
    question=Question.FILTER,
)
PROCESSOR = Engine("onceflow-processor", _processor, question=Question.COUNTS)
AT_LEAST_ONCE = Engine("onceflow-at-least-once", partial(_onceflow, delivery="at_least_once"))
AT_MOST_ONCE = Engine("onceflow-at-most-once", partial(_onceflow, delivery="at_most_once"))
SPARK = Engine("spark", _spark)

OF_BACKLOG = (ONCEFLOW, FILTER, COUNTS, PROCESSOR, AT_LEAST_ONCE, AT_MOST_ONCE, SPARK)
"""Whose throughput is measured."""
PACED = (ONCEFLOW, COUNTS, PROCESSOR, EAGER, SPARK)
"""Whose latency is measured."""


@dataclass(frozen=True)
class Usage:
    """CPU and memory of a process tree."""

    cpu_s: float
    rss_mb: float


class EngineRun:
    """An engine at work. Ends with the block that entered it."""

    def __init__(self, engine: Engine, job: Job, clock: Clock) -> None:
        self.rss_mb: list[tuple[float, float]] = []
        """Seconds since the start, and memory then."""
        self._engine = engine
        self._job = job
        self._clock = clock
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._log = Path(job.folder) / "engine.log"
        self._process: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._engine.command(self._job), stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._sampler.join()
        process = self._started()
        tree = _tree(process.pid)
        process.terminate()
        self.drain_lines()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        for left in tree:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        process.wait()
        if self._drain is not None:
            self._drain.join()
        self._lines().close()

    @property
    def peak_rss_mb(self) -> float:
        """So far."""
        return max((mb for _, mb in self.rss_mb), default=0.0)

    def marks(self) -> Iterator[Mark]:
        """One for each batch that read something, as it ends; until the engine ends."""
        records = 0
        for line in self._lines():
            report = json.loads(line)
            if report["event"] != "batch" or not report["records"]["read"]:
                continue
            records += report["records"]["read"]
            yield Mark(records, self._clock.monotonic_s(), self.usage().cpu_s)
        self.check(self._started().wait())

    def drain_lines(self) -> None:
        """Read what the engine reports and forget it, so that it never waits for a reader."""
        if self._drain is None:
            self._drain = threading.Thread(target=self._lines().read, daemon=True)
            self._drain.start()

    def check(self, exit_code: int | None = None) -> None:
        """The engine runs, or has ended well.

        Raises:
            InvariantError: it failed; quotes its log.
        """
        code = self._started().poll() if exit_code is None else exit_code
        if code:
            raise InvariantError(
                "an engine ended",
                subject=self._engine.name,
                found=f"exit code {code}: {self._log.read_text()[-2000:]}",
            )

    def usage(self) -> Usage:
        """Usage of the whole tree since its start; CPU includes children that have ended."""
        cpu_s, rss_bytes = 0.0, 0
        for process in _tree(self._started().pid):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu_s += times.user + times.system + times.children_user + times.children_system
                rss_bytes += process.memory_info().rss
        return Usage(cpu_s, rss_bytes / MB)

    def _sample(self) -> None:
        start_s = self._clock.monotonic_s()
        while not self._is_over.wait(SAMPLE_S):
            self.rss_mb.append((self._clock.monotonic_s() - start_s, self.usage().rss_mb))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise InvariantError("the engine is not started")
        return self._process

    def _lines(self) -> TextIO:
        lines = self._started().stdout
        if lines is None:
            raise InvariantError("the engine reports nowhere")
        return lines  # type: ignore[return-value]


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
