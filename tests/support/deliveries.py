"""A delivery as the tests run it: a topic, a store that it fills, and `onceflow run` between them.

Rows are appended, so that one that is written twice shows.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from tests.support.jobs.delivery_process import PARTITIONS, DeliveryProcess, page_of

RUN_TIMEOUT_S = 120
RECORDS = 300
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
class Job(DeliveryProcess):
    """A topic, a store, and a delivery from one to the other."""

    store: Store = field(kw_only=True)
    written: Counter[tuple[int, str]] = field(default_factory=Counter)
    run_timeout_s: ClassVar[int] = RUN_TIMEOUT_S

    def set_up(self, text: str = FILE) -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.store.create(self.name, self.folder)
        self.write_file(text)

    def write_file(self, text: str, to: str = "") -> None:
        values = {"name": self.name, "topic": self.topic, "to": to or self.store.to}
        self.file.write_text(text.format(**values))

    def write(self, first: int, last: int, partition: int = 0) -> None:
        super().write(first, last, partition)
        self.written.update((n, page_of(n, partition)) for n in range(first, last + 1))

    def assert_equal(self) -> None:
        assert self.store.content() == self.written
