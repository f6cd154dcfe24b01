"""One storm from its begin to its verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onceflow.clock import Clock
from onceflow.errors import OnceflowError
from tests.chaos import ChaosProxy
from tests.faults.history.recorded import History
from tests.faults.history.recorder import Recorder
from tests.faults.sweep.storm.draw import Kind, faults
from tests.faults.sweep.storm.drivers import MAY_ALWAYS_END_WITH, Drivers
from tests.faults.sweep.storm.feeder import Fed, FeederProcess, feeding
from tests.faults.sweep.storm.hands import Stage
from tests.faults.sweep.storm.hands_brokers import heal
from tests.faults.sweep.storm.player import Course, Played, Player, Timing
from tests.faults.sweep.storm.verdict import Seen, Verdict, judge
from tests.faults.sweep.storm.workload import INPUT_PARTITIONS, Names, write_pipeline
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.drivers.service import started
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic

FIRST_BATCH_TIMEOUT_S = 420.0
CATCH_UP_TIMEOUT_S = 600.0
"""For what has gathered while brokers and drivers were gone."""
DRAIN_TIMEOUT_S = 180.0
MAX_LAST_STARTS = 3
"""A busy machine may exceed a deadline, but not forever."""
RESULT = "storm.json"


@dataclass(frozen=True)
class Options:
    """The options of a storm.

    Args:
        seed: of the faults.
        seconds: how long.
        every_s: the average time between two faults.
        quiet_every_s: how long it storms between two quiet phases.
        rate: input records per second.
        kinds: of faults.
        max_records_per_batch: of the pipeline.
    """

    seed: int
    seconds: float
    every_s: float
    quiet_every_s: float
    rate: int
    kinds: Sequence[Kind]
    max_records_per_batch: int = 50_000


@dataclass
class Report:
    """The report on a storm; as JSON it is a result of the sweep."""

    seed: int
    seconds: float
    every_s: float
    rate: int
    began_ms: int
    ended_ms: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    played: list[Played] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return bool(self.ended_ms) and not self.verdict.anomalies

    def write(self, folder: Path) -> None:
        told = {**asdict(self), "is_clean": self.is_clean}
        (folder / RESULT).write_text(json.dumps(told, indent=1))


class Storm:
    """Everything that runs while it storms.

    Args:
        options: what it shall be.
        folder: for all that is kept; made.
        clock: of everything here.
        tell: told in words what happens.
    """

    def __init__(
        self, options: Options, folder: Path, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._options = options
        self._folder = folder
        self._clock = clock
        self._tell = tell
        self._names = Names(f"storm-{options.seed}")

    def run(self) -> Report:
        """Returns with a verdict, whatever happens to the service and the brokers."""
        options = self._options
        self._folder.mkdir(parents=True)
        report = Report(
            options.seed, options.seconds, options.every_s, options.rate, self._clock.unix_ms()
        )
        with ExitStack() as stack:
            cluster = stack.enter_context(ChildProcessCluster(ClusterOptions(brokers=3)))
            servers = cluster.bootstrap_servers
            create_topic(servers, self._names.input_topic, INPUT_PARTITIONS)
            file = write_pipeline(self._names, self._folder, options.max_records_per_batch)
            feeder = stack.enter_context(
                feeding(servers, self._names.input_topic, options.rate, self._folder)
            )
            began_ms = self._clock.unix_ms()
            recorder = stack.enter_context(
                Recorder(servers, self._names.output_topic, self._names.pipeline)
            )
            proxy = stack.enter_context(ChaosProxy(servers))
            drivers = stack.enter_context(
                Drivers(self._folder, file, proxy.bootstrap_servers, self._clock)
            )
            stage = Stage(cluster, proxy, drivers, self._names, self._clock)
            eventually(lambda: self._has_begun(stage), timeout_s=FIRST_BATCH_TIMEOUT_S)
            course = self._weather(stage, feeder)
            report.played = course.played
            for trouble in course.troubles:
                self._tell(f"TROUBLE {trouble}")
            self._tell("healing")
            _attempt(course, lambda: heal(cluster))
            fed = self._end(stage, feeder, course, file)
            self._tell("reading everything back")
            seen = Seen(self._folder, fed, course, _history(recorder), began_ms)
            report.verdict = judge(stage, seen)
            report.ended_ms = self._clock.unix_ms()
            report.write(self._folder)
        if report.is_clean:
            shutil.rmtree(self._folder / "checkpoint", ignore_errors=True)
        return report

    def _has_begun(self, stage: Stage) -> bool:
        stage.drivers.supervise()
        return bool(stage.drivers.current.told["batch"])

    def _weather(self, stage: Stage, feeder: FeederProcess) -> Course:
        options = self._options

        def tick() -> list[str]:
            known = len(stage.drivers.anomalies)
            stage.drivers.supervise()
            for anomaly in stage.drivers.anomalies[known:]:
                self._tell(f"ANOMALY {anomaly}")
            troubles = []
            if stage.drivers.is_stuck:
                troubles.append("the service ends again and again")
            if not feeder.is_running:
                troubles.append("the feeder has ended")
            return troubles

        def tell(played: Played) -> None:
            what = f"{played.proof}" if played.has_fired else f"did not fire: {played.failure}"
            self._tell(f"{played.begin_s:7.1f} s  #{played.number} {played.kind}: {what}")

        drawn = faults(options.seed, options.every_s, options.kinds)
        timing = Timing(options.seconds, options.quiet_every_s)
        return Player(stage, drawn, timing, tick, tell).play()

    def _end(self, stage: Stage, feeder: FeederProcess, course: Course, file: Path) -> Fed:
        """Close all windows, let the service catch up and end."""
        fed = feeder.finish()
        self._tell(f"{fed.produced} records produced; catching up")
        # Also after a trouble: what it cost is seen only when everything could be written.
        _attempt(course, lambda: stage.drivers.drain(DRAIN_TIMEOUT_S))
        course.troubles += stage.drivers.anomalies
        _attempt(course, lambda: self._catch_up(file, stage.cluster.bootstrap_servers))
        return fed

    def _catch_up(self, file: Path, servers: str) -> None:
        ends: list[int] = []
        for number in range(MAX_LAST_STARTS):
            folder = self._folder / f"last-{number}"
            with started(folder, file, servers, "--until", "caught-up") as service:
                ends.append(service.process.wait(CATCH_UP_TIMEOUT_S))
            if ends[-1] == 0:
                return
            if ends[-1] not in MAY_ALWAYS_END_WITH:
                break
        raise AssertionError(f"the last starts ended with {ends}: {service.errors[-2000:]}")


def _attempt(course: Course, step: Callable[[], object]) -> None:
    """Note a failure as a trouble of the storm: it must still be judged."""
    try:
        step()
    except (AssertionError, subprocess.TimeoutExpired, OnceflowError) as error:
        course.troubles.append(repr(error))


def _history(recorder: Recorder) -> History | None:
    try:
        recorder.quiesce()
    except TimeoutError:
        return None
    return recorder.history()
