"""Executors and Python workers that are killed, on a Spark cluster of two executors."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish
from tests.support.drivers.service import QUICK_CONF, QUICK_JVM, Service, started
from tests.support.eventually import eventually
from tests.support.everything import some
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.orders import OrdersJob
from tests.support.jobs.views import ViewsJob
from tests.support.processes import command_of

pytestmark = pytest.mark.crash

TWO_EXECUTORS = {
    "ONCEFLOW_TRANSFORMS": "true",
    "ONCEFLOW_SPARK__MASTER": "local-cluster[2,1,1024]",
    "ONCEFLOW_SPARK__CONF": json.dumps(
        {**QUICK_CONF, "spark.executor.extraJavaOptions": QUICK_JVM}
    ),
}
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_DAEMON = "-m onceflow.runtime.spark.worker_daemon"
START_TIMEOUT_S = 90.0
FIRST_BATCHES_TIMEOUT_S = 300.0
"""Four JVMs start at once, on two cores that other tests use as well."""
SOME = 1
"""Victim of each kind in a short run. An executor takes half a minute to come back."""

Processes = Sequence[psutil.Process]


def executors(service: Service) -> Processes:
    return [each for each in service.children() if EXECUTOR in command_of(each)]


def python_daemons(service: Service) -> Processes:
    """They fork the workers."""
    daemons = [each for each in service.children() if PYTHON_DAEMON in command_of(each)]
    return [each for each in daemons if each.parent() not in daemons]


def python_workers(service: Service) -> Processes:
    """They run processors."""
    return [worker for daemon in python_daemons(service) for worker in daemon.children()]


PYTHON: Sequence[Callable[[Service], Processes]] = (
    python_workers,
    lambda service: python_daemons(service)[:1],
)
JVMS: Sequence[Callable[[Service], Processes]] = (
    lambda service: executors(service)[:1],
    executors,
)


@pytest.mark.timeout(900)
def test_a_pipeline_goes_on_when_what_runs_its_tasks_is_killed(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    """Three of them: windows and processors lose no record; without state, order is kept."""
    (files := tmp_path / "pipelines").mkdir()
    job = ViewsJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(random, records=400, seconds=100)
    file = job.write_file(batch=200).rename(files / "views.yaml")
    orders = OrdersJob(broker.bootstrap_servers, tmp_path, f"order-{job.name}")
    orders.create_input()
    orders.produce(random, 200)
    orders.write_file().rename(files / "orders.yaml")
    cards = CardsJob(broker.bootstrap_servers, tmp_path)
    cards.create_input()
    cards.produce(random, 400, 100)
    of_cards = cards.write_file(200).rename(files / "cards.yaml")
    for module in tmp_path.glob("cards_*.py"):
        module.rename(files / module.name)
    with started(
        tmp_path / "run", files, job.bootstrap_servers, environment=TWO_EXECUTORS, command="serve"
    ) as service:
        names = (job.name, orders.name, cards.name)
        for name in names:
            service.wait_for_batches(2, name, FIRST_BATCHES_TIMEOUT_S)
        for victims in [*some(PYTHON, SOME, random), *some(JVMS, SOME, random)]:
            eventually(lambda: len(executors(service)) == 2, timeout_s=START_TIMEOUT_S)
            killed = eventually(lambda v=victims: v(service), timeout_s=START_TIMEOUT_S)  # type: ignore[misc]
            before = {name: len(service.of_kind("batch", name)) for name in names}
            # In the middle of the batches that these records make.
            job.produce(random, records=400, seconds=100)
            orders.produce(random, 300)
            cards.produce(random, 400, 100)
            for process in killed:
                process.send_signal(signal.SIGKILL)
            _, alive = psutil.wait_procs(killed, START_TIMEOUT_S)
            assert not alive
            for name in names:
                service.wait_for_batches(before[name] + 2, name)
        eventually(lambda: len(orders.written()) >= len([*orders.expected()]))
        service.drain()
    finish(job, file)
    finish(cards, of_cards)
    orders.check_order()
