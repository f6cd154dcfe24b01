"""A pipeline keeps to the interval and to the size of batches that its file gives."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tests.support.drivers.here import running_here
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger

TRIGGER_MS = 700
BATCH = 100
BATCHES = 4


def test_no_batch_is_larger_or_sooner_than_its_file_says(job: ViewsJob) -> None:
    job.produce(Random(1), records=(BATCHES + 1) * BATCH, seconds=100)
    file = job.write_file(BATCH, extra=f"trigger: {TRIGGER_MS} ms\n")
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(BATCHES)
    full = [h for h in read_ledger(job.bootstrap_servers, job.name) if h["records"]["read"]]
    assert len(full) >= BATCHES
    assert max(head["records"]["read"] for head in full) <= BATCH
    # Spark begins batches at whole intervals; only the first waits for none.
    begun = [head["batch_timestamp_ms"] // TRIGGER_MS for head in full[1:]]
    assert all(one < two for one, two in pairwise(begun))
