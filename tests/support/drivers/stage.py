"""One output topic, and any number of drivers without Spark that write to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.drivers.driver import PARTITIONS, Driver
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic

VALUES = [b'{"n":%d}' % n for n in range(40)]
"""Values of every batch, unless a test needs others."""
HASTY = {"socket.timeout.ms": "2000"}
"""An unanswered request is tried again after this time; the default is ten seconds."""
BUDGET_S = 25.0
"""For a transaction of a hasty driver: longer than two unanswered requests, and than the
four seconds after which a dead broker is missed, with its successors' start."""
MAX_NAME = 60
"""Names of pipelines are short; the end of a test's name tells it from the others."""


@dataclass(frozen=True)
class Stage:
    """One pipeline, as its drivers and its readers see it.

    Args:
        bootstrap_servers: where a sceptic reads.
        name: of the pipeline and of its output topic.
        through: where drivers connect; a proxy, for instance.
    """

    bootstrap_servers: str
    name: str
    through: str
    stack: ExitStack

    def driver(self, **settings: Any) -> Driver:
        """One that has not taken over yet."""
        return self.stack.enter_context(Driver(self.through, self.name, self.name, **settings))

    def hasty_driver(self, **settings: Any) -> Driver:
        """One with a single lane that soon tries again; has not taken over yet."""
        return self.driver(
            **{"transaction_timeout_s": BUDGET_S, "properties": HASTY, "lanes": 1, **settings}
        )

    def check(self, batches: int) -> None:
        """Batches 0, 1, ... of VALUES are there: each once, in order, whole; the ledger agrees."""
        written = read_topic(self.bootstrap_servers, self.name)
        heads = read_ledger(self.bootstrap_servers, self.name)
        assert Counter(w.batch_id for w in written) == dict.fromkeys(range(batches), len(VALUES))
        assert Counter(w.value for w in written) == dict.fromkeys(VALUES, batches)
        assert anomalies(written, heads) == []


@contextmanager
def open_stage(bootstrap_servers: str, name: str, through: str | None = None) -> Iterator[Stage]:
    """Create the output topic of a pipeline with (nearly) that name."""
    allowed = re.sub("[^a-z0-9-]", "-", name.lower())[-MAX_NAME:].strip("-")
    create_topic(bootstrap_servers, allowed, PARTITIONS)
    with ExitStack() as stack:
        yield Stage(bootstrap_servers, allowed, through or bootstrap_servers, stack)
