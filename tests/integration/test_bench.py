"""The benchmark's own machinery, on sizes that measure nothing."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from bench import peers
from bench.engines import FILTER, ONCEFLOW, PROCESSOR, Engine
from bench.runs import Laboratory, Sizes
from bench.workload import Workload
from onceflow.clock import SystemClock
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service import QUICK
from tests.support.everything import some

pytestmark = pytest.mark.long

SIZES = Sizes(
    backlog_records=40_000,
    warm_up_share=0.25,
    max_records_per_batch=10_000,
    rate=100,
    warm_up_s=1,
    latency_s=5,
    memory_s=0,
)


@pytest.fixture
def laboratory(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    return Laboratory(broker.bootstrap_servers, Workload(50, 2), SIZES, SystemClock())


def backlog(laboratory: Laboratory, engine: Engine = ONCEFLOW) -> None:
    found = laboratory.measure_throughput(engine, *laboratory.write_backlog())
    assert found.records_per_s > 0
    assert found.cpu_s_per_million > 0


def paced_load(laboratory: Laboratory, engine: Engine = ONCEFLOW) -> None:
    found = laboratory.measure_latency(engine)
    assert found.records == SIZES.rate * SIZES.latency_s
    assert 0 < found.p50_ms <= found.p95_ms <= found.p99_ms


def test_an_engine_is_measured_and_its_output_checked(
    laboratory: Laboratory, random: Random
) -> None:
    """Every record of a paced load has a latency. One of them, for each takes a start."""
    measures = [partial(m, engine=e) for m in (backlog, paced_load) for e in (ONCEFLOW, PROCESSOR)]
    measures += [partial(backlog, engine=e) for e in (FILTER, *peers.OF_BACKLOG)]
    measures += [partial(paced_load, engine=e) for e in peers.PACED]
    for measure in some(measures, 1, random):
        measure(laboratory)
