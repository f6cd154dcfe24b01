"""A query that differs in a way that its source does not show is caught at its first replay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.errors import CorruptionError
from tests.support.drivers.here import run_here, run_until_it_fails
from tests.support.jobs.clock_in_c import write_clock_in_c
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger, read_topic


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    job.produce(Random(1), records=30, seconds=30)
    return job


@pytest.fixture
def file(job: ViewsJob) -> Path:
    """A batch is committed, and Spark does not know yet."""
    written = write_clock_in_c(job)
    run_until_it_fails(written, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 2)
    return written


def test_a_replay_with_a_clock_in_c_halts_and_shows_the_rows(job: ViewsJob, file: Path) -> None:
    output = read_topic(job.bootstrap_servers, job.output_topic)
    heads = read_ledger(job.bootstrap_servers, job.name)

    with pytest.raises(CorruptionError) as halted:
        run_here(file, job.bootstrap_servers)

    told = str(halted.value)
    assert "batch 0" in told
    assert "30 rows differ, the first: partition " in told
    assert told.count("committed {") == told.count("computed {") == 3
    assert read_topic(job.bootstrap_servers, job.output_topic) == output
    assert read_ledger(job.bootstrap_servers, job.name) == heads


def test_a_replay_that_differs_is_put_aside_once_and_what_is_committed_stays(
    job: ViewsJob, file: Path
) -> None:
    servers, aside = job.bootstrap_servers, f"{job.name}-aside"
    output = read_topic(servers, job.output_topic)
    text = file.read_text()
    file.write_text(f"{text}dead_letter: {{topic: {aside}}}\non_divergence: quarantine\n")

    run_until_it_fails(file, servers, CrashPoint.AFTER_COMMIT, 1)
    letters = read_topic(servers, aside)
    run_here(file, servers)

    assert read_topic(servers, job.output_topic) == output
    assert read_topic(servers, aside) == letters
    facts = [dict(letter.headers) for letter in letters]
    assert [each["onceflow.dead_letter.reason"] for each in facts] == [b"diverged"] * 30
    committed = {record.value for record in output}
    for letter, each in zip(letters, facts, strict=True):
        told = each["onceflow.dead_letter.text"] or b""
        assert letter.value not in committed
        assert told.partition(b"committed is ")[2] in committed
    head = read_ledger(servers, job.name)[-1]
    assert head["totals"]["diverged"] == head["records"]["diverged"] == 30
    job.produce(Random(2), records=10, seconds=10)
    run_here(file, servers)
    assert len(read_topic(servers, job.output_topic)) == len(output) + 10
