"""The weaker delivery modes with Spark: what a replay does, and what the ledger says about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError
from onceflow.protocol.record import Flag, RecordHeader
from tests.faults.history.writes import Expected
from tests.support.drivers.here import run_here, run_until_it_fails
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import Written, read_ledger, read_topic
from tests.support.outside.judge import anomalies


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    job.produce(Random(1), records=600, seconds=300)
    job.close_windows()
    return job


def flags(written: Sequence[Written]) -> set[Flag]:
    return {RecordHeader.unpack(w.header or b"").flags & ~Flag.LAST_OF_BATCH for w in written}


def test_at_least_once_writes_a_replay_again_with_the_same_sequences(job: ViewsJob) -> None:
    file = job.write_file(batch=300, extra="delivery: at_least_once\n")
    # The first is that of the registration.
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 3)
    run_here(file, job.bootstrap_servers)
    written = read_topic(job.bootstrap_servers, job.output_topic)
    once = {(w.partition, w.sequence): w for w in written}
    assert len(once) < len(written)
    assert anomalies([*once.values()], expected=Expected.of_rows(job.expected())) == []
    assert flags(written) == {Flag.AT_LEAST_ONCE}

    file = job.write_file(batch=300)
    with pytest.raises(ConfigError, match="changes of delivery"):
        run_here(file, job.bootstrap_servers)


def test_at_most_once_skips_a_replay_and_names_what_it_lost(job: ViewsJob) -> None:
    file = job.write_file(batch=300, extra="delivery: at_most_once\n")
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 3)
    (*_, struck) = read_ledger(job.bootstrap_servers, job.name)
    run_here(file, job.bootstrap_servers)
    written = read_topic(job.bootstrap_servers, job.output_topic)
    heads = read_ledger(job.bootstrap_servers, job.name)
    found = Counter(a.name for a in anomalies(written, expected=Expected.of_rows(job.expected())))
    assert found["lost_write"] == struck["records"]["written"] > 0
    assert found["duplicate"] == 0
    assert flags(written) == {Flag.AT_MOST_ONCE}
    (behind,) = (h for h in heads if h["batch_id"] == struck["batch_id"] + 1)
    for partition, (first, last) in struck["sink"]["sequence"].items():
        if first <= last:
            assert behind["at_risk"][partition][0] <= first
