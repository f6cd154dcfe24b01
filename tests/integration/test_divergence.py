"""A query that differs in a way that nobody can see in its source is caught at its first replay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.errors import CorruptionError
from tests.support.brokers import RunningBroker
from tests.support.here import run_here, run_until_it_fails
from tests.support.history import read_ledger, read_topic
from tests.support.views_job import ViewsJob

CLOCK_IN_C = """\
import ctypes
from pyspark.sql.functions import udf

def stamp(page):
    return f"{page} at {ctypes.CDLL(None).time(None)}"

def stamped(clicks):
    return clicks.select("page", udf(stamp)("page").alias("stamped"))
"""


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> ViewsJob:
    made = ViewsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.produce(Random(1), records=30, seconds=30)
    return made


def test_a_replay_with_a_clock_in_c_halts_and_shows_the_rows(job: ViewsJob) -> None:
    module = f"clock_{job.name.replace('-', '_')}"
    (job.folder / f"{module}.py").write_text(CLOCK_IN_C)
    file = job.write_file()
    before, _, after = file.read_text().partition("query: |")
    rest = after[after.index("sink:") :]
    file.write_text(f"{before}transform: {module}:stamped\n{rest}")
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 2)
    written = read_topic(job.bootstrap_servers, job.output_topic)
    heads = read_ledger(job.bootstrap_servers, job.name)

    with pytest.raises(CorruptionError) as halted:
        run_here(file, job.bootstrap_servers)

    told = str(halted.value)
    assert "batch 0" in told
    assert "30 rows differ, the first: partition " in told
    assert told.count("committed {") == told.count("computed {") == 3
    assert read_topic(job.bootstrap_servers, job.output_topic) == written
    assert read_ledger(job.bootstrap_servers, job.name) == heads
