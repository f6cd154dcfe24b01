"""Long faults: a pipeline that is stopped while its input goes on, and brokers that are all gone.

With everything asked for, as `make faults` does, a pipeline stands still for ten minutes and the
brokers are gone for one. `make test` kills all brokers in the middle of a transaction (row 11).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.clock import SystemClock
from onceflow.devkit.broker_start import answers
from tests.faults.steady import steady_load
from tests.support.brokers.choice import RunningBroker
from tests.support.brokers.cluster import FaultyCluster
from tests.support.drivers.here import run_here, running_here
from tests.support.drivers.service import started
from tests.support.eventually import eventually
from tests.support.everything import is_everything

pytestmark = pytest.mark.long

STOPPED_S, STOPPED_RATE = (600, 5_000) if is_everything() else (3, 1_000)
OUTAGE_S, OUTAGE_RATE = (60, 1_000) if is_everything() else (4, 500)
SLOWNESS = 3
"""A feeder on a busy machine may fall behind its rate so far."""
RECOVERY_S = 240
IMPATIENT = {
    "ONCEFLOW_TRANSACTION_TIMEOUT": "15 s",
    "ONCEFLOW_MONITORING__PORT": "0",
}
"""The minute without brokers is longer than a transaction may last."""
RESTART = "restart: {delay: 1 s, max_delay: 2 s, attempts: 100}\n"


@pytest.mark.timeout(3 * STOPPED_S + 300)
@pytest.mark.parametrize("seconds", [STOPPED_S])
def test_a_stopped_pipeline_under_load_loses_nothing_and_hinders_no_producer(
    broker: RunningBroker, tmp_path: Path, seconds: int
) -> None:
    with steady_load(broker.bootstrap_servers, tmp_path, STOPPED_RATE) as load:
        with running_here(load.file, load.bootstrap_servers) as running:
            running.wait_for_batches(2)
        load.wait_for_input(seconds * STOPPED_RATE, timeout_s=seconds * SLOWNESS + 30)
        with running_here(load.file, load.bootstrap_servers) as running:
            running.wait_for_batches(1)
        load.end_input()
        run_here(load.file, load.bootstrap_servers)
        load.check()


@pytest.mark.timeout(10 * OUTAGE_S + 600)
@pytest.mark.parametrize("seconds", [OUTAGE_S])
def test_a_pipeline_goes_on_by_itself_after_an_outage_of_all_brokers(
    cluster: FaultyCluster, tmp_path: Path, seconds: int
) -> None:
    """All are killed at once in the middle of a steady flow; the input waits for them, too."""
    with steady_load(cluster.bootstrap_servers, tmp_path, OUTAGE_RATE) as load:
        load.file.write_text(load.file.read_text() + RESTART)
        with started(
            tmp_path / "serve",
            load.file,
            load.bootstrap_servers,
            command="serve",
            environment=IMPATIENT,
        ) as service:
            service.wait_for_batches(3)
            for each in cluster.brokers:
                each.kill()
            outage = SystemClock().within(seconds)
            eventually(lambda: outage.is_over, timeout_s=2 * seconds)
            assert not any(answers(each.address, 1) for each in cluster.brokers)
            before = len(service.of_kind("batch"))
            cluster.heal()
            eventually(lambda: len(service.of_kind("batch")) > before, timeout_s=RECOVERY_S)
            service.drain()
        # Not before: one that drains after the last records, and before the batch without records
        # that Spark makes for them, leaves their windows open until others come.
        load.end_input()
        run_here(load.file, load.bootstrap_servers)
        load.check()
