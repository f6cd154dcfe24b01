"""`onceflow run` of a delivery file as a process, to be killed and frozen, and what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE
from tests.support.contracts.consumer_steps import Written, sequenced
from tests.support.contracts.real_consumer import RealConsumerKafka

RUN_TIMEOUT_S = 240


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
            code: int = process.wait(RUN_TIMEOUT_S)
        return code

    def deliver(self) -> None:
        assert self.run() == 0, self.errors
        assert self.events()[-1]["event"] == "caught_up"

    def events(self, name: str = "out") -> list[dict[str, Any]]:
        found = []
        for line in (self.folder / name).read_text().splitlines():
            with suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    def waits(self) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == "waiting"]

    @property
    def errors(self) -> str:
        return (self.folder / "out.err").read_text()


def numbered(numbers: Sequence[int], partition: int) -> list[Written]:
    """Records whose payload names partition and number."""
    return [
        replace(each, value=json.dumps({"n": n, "page": f"{partition}/{n}"}).encode())
        for n, each in zip(
            numbers, sequenced(*numbers, partition=partition, tag=1 + partition), strict=True
        )
    ]
