"""Spark's JVM is ended under its driver: by the kernel for want of memory, or by an operator."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish
from tests.support.drivers.service import Service, started
from tests.support.eventually import eventually
from tests.support.everything import some
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob
from tests.support.processes import command_of

pytestmark = pytest.mark.crash

START_AGAIN = 3
TRUSTED = {"ONCEFLOW_TRANSFORMS": "true"}
"""`serve` runs no processor otherwise."""
SOME = 1
"""Way to run that is played in a short run: a cold start takes ten seconds."""
START_TIMEOUT_S = 60.0
SPARK = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class Way:
    """To run, and to lose its JVM."""

    command: str
    arguments: tuple[str, ...]
    number: signal.Signals


WAYS = (
    Way("serve", (), signal.SIGKILL),
    Way("run", (), signal.SIGKILL),
    # In good order: Spark's context stops, and its queries end as if they were through.
    Way("run", ("--until", "caught-up"), signal.SIGTERM),
)


def jvm_of(service: Service) -> psutil.Process:
    def found() -> list[psutil.Process]:
        return [each for each in service.children() if SPARK in command_of(each)]

    return eventually(found, timeout_s=START_TIMEOUT_S)[0]


def end_jvm(service: Service, number: signal.Signals) -> None:
    """And with it the service, which says why and asks to be started again."""
    jvm_of(service).send_signal(number)
    assert service.wait() == START_AGAIN, service.errors[-3000:]
    (told,) = [line for line in service.errors.splitlines() if line.startswith("onceflow:")]
    assert f"Spark has ended; found its JVM was ended by signal {number.value}" in told
    assert ("out of memory" in told) == (number is signal.SIGKILL)
    if number is signal.SIGKILL:
        # Each line is one that a log collector understands. A JVM that shuts down prints others.
        assert [line for line in service.errors.splitlines() if not _is_json(line)] == [told]
    assert not service.of_kind("caught_up")
    printed = (service.folder / "stdout").read_text().splitlines()
    assert len(printed) == len(service.events), printed


@pytest.mark.timeout(300)
def test_without_its_jvm_a_service_ends_to_be_started_again_and_loses_nothing(
    broker: RunningBroker, tmp_path: Path, random: Random, stateful: type[ViewsJob | CardsJob]
) -> None:
    job = stateful(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(random, records=3_000, seconds=300)
    file = job.write_file(batch=50)
    with started(
        tmp_path / "starting", file, job.bootstrap_servers, environment=TRUSTED, command="serve"
    ) as service:
        end_jvm(service, signal.SIGKILL)
        assert not service.of_kind("batch")
    for number, way in enumerate(some(WAYS, SOME, random)):
        folder = tmp_path / f"running-{number}"
        with started(
            folder,
            file,
            job.bootstrap_servers,
            *way.arguments,
            environment=TRUSTED,
            command=way.command,
        ) as service:
            service.wait_for_batches(2)
            end_jvm(service, way.number)
    job.write_file()
    finish(job, file)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
