"""`onceflow run` of a delivery file as a process, to be killed and frozen, and what it said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint
from tests.support.contracts.consumer_steps import Written, sequenced
from tests.support.contracts.real_consumer import RealConsumerKafka
from tests.support.eventually import eventually

RUN_TIMEOUT_S = 240
PARTITIONS = 2
"""Of the topic of a delivery."""


@dataclass
class DeliveryProcess:
    """A topic to read, and a delivery of it in a folder.

    Args:
        environment: of its processes, besides ours.
    """

    kafka: RealConsumerKafka
    folder: Path
    topic: str
    environment: Mapping[str, str] = field(default_factory=dict)
    run_timeout_s: ClassVar[int] = RUN_TIMEOUT_S

    @property
    def name(self) -> str:
        return "d-" + self.topic[-20:].strip("-_").replace("_", "-")

    @property
    def proof(self) -> Path:
        return self.folder / "proof"

    @property
    def file(self) -> Path:
        return self.folder / "delivery.yaml"

    def write(self, first: int, last: int, partition: int = 0) -> None:
        """Records with these sequences, the last of them twice."""
        records = numbered(range(first, last + 1), partition)
        self.kafka.write(self.topic, records)
        self.kafka.write(self.topic, records[-25:])

    def write_much(self, records: int) -> None:
        """So many in every partition, with an aborted transaction at the end of the topic."""
        for partition in range(PARTITIONS):
            self.write(1, records, partition)
        self.kafka.write_aborted(self.topic, numbered(range(9000, 9010), 0))

    @contextmanager
    def running(self, *options: str, crash: str = "", name: str = "out") -> Iterator[Any]:
        """`onceflow run`, ended for good when the block is left."""
        environment = {**os.environ, PROOF_VARIABLE: str(self.proof), **self.environment}
        if crash:
            environment[ENVIRONMENT_VARIABLE] = crash
        command = [sys.executable, "-m", "onceflow.cli", "run", str(self.file), *options]
        command += ["--bootstrap-servers", self.kafka.bootstrap_servers]
        with (
            (self.folder / name).open("wb") as output,
            (self.folder / f"{name}.err").open("wb") as errors,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=output, stderr=errors
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def run(self, crash: str = "") -> int:
        with self.running("--until", "caught-up", crash=crash) as process:
            code: int = process.wait(self.run_timeout_s)
        return code

    def die(self, point: CrashPoint, arrival: int) -> None:
        """Run until it is killed at a point, in this arrival there."""
        assert self.run(f"{point.value}:kill:{arrival}") == -signal.SIGKILL
        assert self.proof.read_text() == point.value

    @contextmanager
    def frozen(self, point: CrashPoint, arrival: int) -> Iterator[Any]:
        """Freeze a run at a point; it wakes up when the block is left, and ends well."""
        crash = f"{point.value}:stop:{arrival}"
        with self.running("--until", "caught-up", crash=crash, name="frozen") as process:
            eventually(self.proof.exists, timeout_s=self.run_timeout_s)
            yield process
            process.send_signal(signal.SIGCONT)
            assert process.wait(self.run_timeout_s) == 0

    def write_until_all_deliver(self, *names: str, settle: Callable[[], object]) -> int:
        """Write to every partition until each of these runs has delivered something.

        Args:
            settle: waits until everything that was written is in the target.

        Returns:
            The last sequence in every partition.
        """
        for last in range(100, 10_001, 100):
            for partition in range(PARTITIONS):
                self.write(last - 99, last, partition)
            settle()
            if all(self.delivered(name) for name in names):
                return last
        raise AssertionError(f"an instance does nothing: {[*map(self.delivered, names)]}")

    def delivered(self, name: str) -> int:
        """How many records a run has delivered so far."""
        return sum(each.get("records", 0) for each in self.events(name) if each["event"] == "batch")

    def deliver(self) -> None:
        assert self.run() == 0, self.errors
        assert self.events()[-1]["event"] == "caught_up"

    def events(self, name: str = "out") -> list[dict[str, Any]]:
        found = []
        for line in (self.folder / name).read_text().splitlines():
            with suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    @property
    def waits(self) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == "waiting"]

    @property
    def errors(self) -> str:
        return (self.folder / "out.err").read_text()


def any_arrival(point: CrashPoint, random: Random) -> int:
    """An arrival at a point that each start comes to: one for each claim, or for each batch."""
    is_claim = point in {CrashPoint.BEFORE_CLAIM, CrashPoint.AFTER_CLAIM}
    return random.randint(1, PARTITIONS if is_claim else 8)


def page_of(number: int, partition: int) -> str:
    return f"{partition}/{number}"


def numbered(numbers: Sequence[int], partition: int) -> list[Written]:
    """Records whose payload names partition and number."""
    return [
        replace(each, value=json.dumps({"n": n, "page": page_of(n, partition)}).encode())
        for n, each in zip(
            numbers, sequenced(*numbers, partition=partition, tag=1 + partition), strict=True
        )
    ]
