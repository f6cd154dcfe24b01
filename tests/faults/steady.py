"""A pipeline under a steady load, and what its output has to be. Shares no code with the product.

The input is written by the storm's feeder, a process of its own that neither the pipeline nor a
test slows down.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.sweep.storm.feeder import FeederProcess, feeding
from tests.faults.sweep.storm.figures import Difference, differences
from tests.faults.sweep.storm.reading import count_input
from tests.faults.sweep.storm.workload import (
    INPUT_PARTITIONS,
    Names,
    cell_and_row,
    write_pipeline,
)
from tests.support.eventually import eventually
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import account_faults, anomalies
from tests.support.outside.topics import create_topic, end_of

MAX_RECORDS_PER_BATCH = 100_000


@dataclass(frozen=True)
class SteadyLoad:
    """One pipeline, its input and its feeder.

    Args:
        bootstrap_servers: where.
        names: of its topics.
        file: of the pipeline.
        feeder: writes the input.
    """

    bootstrap_servers: str
    names: Names
    file: Path
    feeder: FeederProcess

    def wait_for_input(self, records: int, timeout_s: float) -> None:
        """Until so many more records are in the input."""
        begin = self._written()
        eventually(lambda: self._written() - begin, lambda n: n >= records, timeout_s=timeout_s)

    def end_input(self) -> None:
        """End the input with records that close every window; nothing of it may be missing."""
        fed = self.feeder.finish()
        assert (fed.unknown, fed.producers) == ([], 1)
        counted = count_input(self.bootstrap_servers, self.names.input_topic)
        assert counted.missing(range(fed.produced)) == []
        assert counted.repeats == {}

    def check(self) -> None:
        """Every record of the input counts once in the output, in its window; none was late."""
        servers = self.bootstrap_servers
        counted = count_input(servers, self.names.input_topic)
        written = read_topic(servers, self.names.output_topic)
        heads = read_ledger(servers, self.names.pipeline)
        rows = [cell_and_row(record.value or b"") for record in written]
        found = differences(counted.closed(), rows)
        assert counted.closed()
        assert found == Difference(), f"{found}; by the ledger: {heads[-1]['totals']}"
        assert anomalies(written, heads) == []
        account = {"read": counted.records, "late": 0, "rejected": 0, "written": len(written)}
        assert account_faults(heads, account) == []

    def _written(self) -> int:
        return end_of(self.bootstrap_servers, self.names.input_topic)


@contextmanager
def steady_load(bootstrap_servers: str, folder: Path, rate: int) -> Iterator[SteadyLoad]:
    """Begin to write the input at `rate` records a second."""
    names = Names(f"steady-{uuid.uuid4().hex[:8]}")
    create_topic(bootstrap_servers, names.input_topic, INPUT_PARTITIONS)
    file = write_pipeline(names, folder, MAX_RECORDS_PER_BATCH)
    with feeding(bootstrap_servers, names.input_topic, rate, folder) as feeder:
        yield SteadyLoad(bootstrap_servers, names, file, feeder)
