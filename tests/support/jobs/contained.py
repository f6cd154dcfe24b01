"""A job for the service in a container: its input, its command, and when all of it is written."""

from __future__ import annotations

from random import Random

from tests.support.drivers.service import Reporting
from tests.support.eventually import eventually
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger

RECORDS_PER_STEP = 600


def prepared(job: ViewsJob) -> ViewsJob:
    job.create_input()
    job.produce(Random(1), records=1_500, seconds=150)
    return job


def command(job: ViewsJob, name: str = "serve") -> list[str]:
    file = str(job.write_file(batch=100))
    return [name, file, "--bootstrap-servers", job.bootstrap_servers]


def has_read_all(job: ViewsJob) -> bool:
    heads = read_ledger(job.bootstrap_servers, job.name)
    return bool(sum(head["records"]["read"] for head in heads) == len(job.produced))


def wait_for_all(job: ViewsJob, service: Reporting) -> None:
    """Until all that was produced is committed; fails if the service ends before."""
    eventually(lambda: has_read_all(job) or not service.is_running, timeout_s=120)
    assert has_read_all(job), service.output[-2000:] + service.errors[-2000:]
