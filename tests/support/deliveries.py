"""A delivery as the tests run it: a topic, a store that it fills, and `onceflow run` between them.

Rows are appended, so that one that is written twice shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE
from tests.support.contracts.consumer_steps import Written, sequenced
from tests.support.contracts.real_consumer import RealConsumerKafka

RUN_TIMEOUT_S = 120
RECORDS = 300
PARTITIONS = 2
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: {name}
from:
  topics: [{topic}]
  schema: "n BIGINT NOT NULL, page STRING"
  takeover_after: 3 seconds
to:
  {to}
batch: {{max_records: 40, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms}}
"""


class Store(Protocol):
    """Where one delivery writes to."""

    @property
    def to(self) -> str:
        """The block of the target in the delivery file, in one line."""

    @property
    def scope(self) -> str:
        """The words of the guarantee after its level."""

    def create(self, name: str, folder: Path) -> None:
        """Make it, empty, under a name of its own, and write files that the delivery needs."""

    def content(self) -> Counter[tuple[int, str]]:
        """How often each row is in it."""

    def away(self) -> AbstractContextManager[None]:
        """Let it be down inside the block."""


@dataclass
class Job:
    """A topic, a store, and a delivery from one to the other."""

    kafka: RealConsumerKafka
    store: Store
    folder: Path
    topic: str
    written: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.topic[-20:].strip("-_").replace("_", "-")

    @property
    def file(self) -> Path:
        return self.folder / "delivery.yaml"

    @property
    def proof(self) -> Path:
        return self.folder / "proof"

    def set_up(self, text: str = FILE) -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.store.create(self.name, self.folder)
        self.write_file(text)

    def write_file(self, text: str, to: str = "") -> None:
        values = {"name": f"d-{self.name}", "topic": self.topic, "to": to or self.store.to}
        self.file.write_text(text.format(**values))

    def write(self, first: int, last: int, partition: int = 0) -> None:
        """Records with these sequences, the last of them twice."""
        numbers = range(first, last + 1)
        records = views(numbers, partition)
        self.kafka.write(self.topic, records)
        self.kafka.write(self.topic, records[-25:])
        self.written.update((n, page_of(n, partition)) for n in numbers)

    def write_much(self) -> None:
        """In every partition, with an aborted transaction at the end of the topic."""
        for partition in range(PARTITIONS):
            self.write(1, RECORDS, partition)
        self.kafka.write_aborted(self.topic, views(range(9000, 9010), 0))

    @contextmanager
    def running(self, *options: str, crash: str = "", name: str = "out") -> Iterator[Any]:
        """`onceflow run`, ended for good when the block is left."""
        environment = {**os.environ, PROOF_VARIABLE: str(self.proof)}
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

    @property
    def errors(self) -> str:
        return (self.folder / "out.err").read_text()

    def assert_equal(self) -> None:
        assert self.store.content() == self.written

    @property
    def waits(self) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == "waiting"]


def page_of(number: int, partition: int) -> str:
    return f"{partition}/{number}"


def views(numbers: Sequence[int], partition: int) -> list[Written]:
    return [
        replace(each, value=json.dumps({"n": n, "page": page_of(n, partition)}).encode())
        for n, each in zip(
            numbers,
            sequenced(*numbers, partition=partition, tag=1 + partition),
            strict=True,
        )
    ]
