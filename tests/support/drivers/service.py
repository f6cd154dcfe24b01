"""Runs `onceflow run` as users do: a process of its own, killed like one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support.eventually import eventually

CRASH_POINT = "ONCEFLOW_CRASH_POINT"
CRASH_PROOF = "ONCEFLOW_CRASH_PROOF"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a short run, which is most of what tests wait for."""
WAREHOUSE = {"spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "onceflow-warehouse"))}
"""Spark would make a folder in the one from which tests are started."""
QUICK_CONF = {"spark.driver.extraJavaOptions": QUICK_JVM, **WAREHOUSE}
LOST_WITH_THE_TEST = {
    "ONCEFLOW_EPHEMERAL_CHECKPOINTS__REASON": "a test, on a disk in memory or in a container",
    "ONCEFLOW_EPHEMERAL_CHECKPOINTS__UNTIL": "9999-12-31",
}
QUICK = {
    "ONCEFLOW_SPARK__MASTER": "local[2]",
    "ONCEFLOW_SPARK__SHUFFLE_PARTITIONS": "1",
    "ONCEFLOW_MONITORING__PORT": "0",
    "ONCEFLOW_SPARK__CONF": json.dumps(QUICK_CONF),
    **LOST_WITH_THE_TEST,
}
END_TIMEOUT_S = 150.0
"""Starting Spark takes seconds on an idle machine and half a minute on a loaded one."""


class Reporting(ABC):
    """A service that reports in lines of JSON."""

    @property
    @abstractmethod
    def output(self) -> str:
        """All it has reported."""

    @property
    @abstractmethod
    def errors(self) -> str:
        """Its log."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """None while it runs."""

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.output.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def of_kind(self, event: str, pipeline: str | None = None) -> list[dict[str, Any]]:
        """Events; of many pipelines, those of one."""
        return [
            line
            for line in self.events
            if line["event"] == event and pipeline in {None, line.get("pipeline")}
        ]

    def wait_for(
        self,
        event: str,
        count: int = 1,
        pipeline: str | None = None,
        timeout_s: float = END_TIMEOUT_S,
    ) -> None:
        """Until it was reported so often.

        Raises:
            AssertionError: the service ended before, or too much time went by; shows its log.
        """

        def is_over() -> bool:
            return len(self.of_kind(event, pipeline)) >= count or not self.is_running

        with suppress(AssertionError):  # the one below says more
            eventually(is_over, timeout_s=timeout_s)
        if len(self.of_kind(event, pipeline)) < count:
            raise AssertionError(
                f"expected {count} of '{event}' of {pipeline or 'the pipeline'}; "
                f"exit code {self.exit_code}; last events {self._news()[-10:]}; "
                f"the log ends with\n{self.errors[-6000:]}"
            )

    def _news(self) -> list[dict[str, Any]]:
        """Events but those that say every few seconds that nothing is new."""
        return [line for line in self.events if line["event"] != "progress"]


@dataclass
class Service(Reporting):
    """One process of the service."""

    process: subprocess.Popen[bytes]
    folder: Path
    arguments: Sequence[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def wait(self) -> int:
        """Exit code; negative for a signal."""
        return self.process.wait(END_TIMEOUT_S)

    def send(self, number: signal.Signals) -> None:
        """To the driver alone, as an operator or Kubernetes would."""
        self.process.send_signal(number)

    def drain(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask for an end as Kubernetes does, and wait for it."""
        self.send(number)
        assert self.wait() == 0, self.errors[-3000:]

    def kill(self) -> None:
        """The driver and its JVM, as when their machine is lost."""
        self._each("kill")

    def freeze(self) -> None:
        """Stop the driver and all it started, as a paused machine would."""
        self._each("suspend")

    def thaw(self) -> None:
        self._each("resume")

    def children(self) -> list[psutil.Process]:
        """All that the driver has started, and that these have."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait_for_batches(
        self, count: int, pipeline: str | None = None, timeout_s: float = END_TIMEOUT_S
    ) -> None:
        """Until so many were committed since the start; fails if it ends before."""
        self.wait_for("batch", count, pipeline, timeout_s)

    def _each(self, act: str) -> None:
        for process in (psutil.Process(self.process.pid), *self.children()):
            with suppress(psutil.NoSuchProcess):  # a launcher or a worker of Python may have ended
                getattr(process, act)()


@contextmanager
def started(
    folder: Path,
    pipeline_file: Path,
    bootstrap_servers: str,
    *arguments: str,
    crash: str | None = None,
    environment: Mapping[str, str] | None = None,
    command: str = "run",
) -> Iterator[Service]:
    """Start a service; whatever it left is ended with the block.

    Args:
        folder: for its output and the proof of its crash; made if need be.
        crash: `POINT:kill|stop:ARRIVALS`, or None.
        command: of `onceflow`; `serve` takes a folder of files, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {k: v for k, v in os.environ.items() if k not in {CRASH_POINT, CRASH_PROOF}}
    variables |= {**QUICK, **(environment or {})}
    if crash is not None:
        variables |= {CRASH_POINT: crash, CRASH_PROOF: str(folder / "crashed")}
    line = [sys.executable, "-m", "onceflow.cli", command, str(pipeline_file)]
    line += ["--bootstrap-servers", bootstrap_servers, *arguments]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            line, env=variables, stdout=out, stderr=err, start_new_session=True
        )
    try:
        yield Service(process, folder, arguments)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_TIMEOUT_S)


def run_to_crash(
    folder: Path,
    pipeline_file: Path,
    bootstrap_servers: str,
    crash: str,
    environment: Mapping[str, str] | None = None,
) -> Service:
    """Run until the armed crash point kills the process; fails if it did not fire."""
    until = ("--until", "caught-up")
    with started(
        folder, pipeline_file, bootstrap_servers, *until, crash=crash, environment=environment
    ) as service:
        code = service.wait()
    proof = folder / "crashed"
    assert proof.is_file(), f"{crash} did not fire; exit code {code}\n{service.errors[-4000:]}"
    assert code == -signal.SIGKILL
    return service
