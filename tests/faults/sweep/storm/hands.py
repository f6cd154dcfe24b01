"""Causes faults on a driver, on its workers and from foreign clients. Each proves that it fired."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import psutil
from confluent_kafka import KafkaException, Producer

from onceflow.clock import Clock
from tests.chaos import ChaosProxy
from tests.faults.sweep.storm.draw import Fault
from tests.faults.sweep.storm.drivers import Drivers, Running
from tests.faults.sweep.storm.workload import Names
from tests.support.brokers.cluster import FaultyCluster
from tests.support.eventually import eventually

START_TIMEOUT_S = 300.0
"""Starting Spark takes ten seconds, and minutes on a machine that others use as well."""
END_TIMEOUT_S = 240.0
FENCED = 4
AT_WORK = 0.7
"""Share of the kills that wait for a batch: one that is always killed at its start shows little."""
LANES = 3
HIJACKS = 5
HIJACK_INTERVAL_S = 1.0
HIJACK_TIMEOUT_S = 30.0

Proof: TypeAlias = Mapping[str, object]
"""What shows that a fault fired."""


class NotFiredError(Exception):
    """The target of the fault was not there, or did not notice."""


@dataclass(frozen=True)
class Stage:
    """The scene of the faults. The service reaches the brokers through the proxy alone."""

    cluster: FaultyCluster
    proxy: ChaosProxy
    drivers: Drivers
    names: Names
    clock: Clock


Hand: TypeAlias = Callable[[Stage, Fault], Proof]


def kill_driver(stage: Stage, fault: Fault) -> Proof:
    """At work, or at any instant of its start."""
    running = _working(stage) if fault.pick < AT_WORK else stage.drivers.current
    running.may_end_with.add(-signal.SIGKILL)
    age_s = (stage.clock.unix_ms() - running.started_ms) / 1000
    if fault.is_hard:
        os.killpg(running.service.process.pid, signal.SIGKILL)
    else:
        running.service.send(signal.SIGKILL)
    code = running.service.process.wait(END_TIMEOUT_S)
    require(code == -signal.SIGKILL, f"it had ended with {code}")
    return {"driver": running.number, "age_s": age_s, "batches": running.told["batch"]}


def freeze_driver(stage: Stage, fault: Fault) -> Proof:
    running = _working(stage)
    # Its transaction may be aborted meanwhile; it is still the owner, and has to go on.
    running.service.freeze()
    try:
        is_frozen = psutil.Process(running.service.process.pid).status() == psutil.STATUS_STOPPED
        stage.clock.sleep(fault.hold_s)
    finally:
        running.service.thaw()
    require(is_frozen, "it was not stopped")
    return {"driver": running.number, "for_s": fault.hold_s}


def zombie_driver(stage: Stage, fault: Fault) -> Proof:
    """Frozen, taken over, and thawed when its successor has committed."""
    zombie = _working(stage)
    zombie.service.freeze()
    try:
        successor = stage.drivers.start()
        _wait_for(stage, successor, "batch")
    finally:
        zombie.may_end_with.add(FENCED)
        zombie.service.thaw()
    code = zombie.service.process.wait(END_TIMEOUT_S)
    return {"zombie": zombie.number, "successor": successor.number, "ended_with": code}


def second_driver(stage: Stage, fault: Fault) -> Proof:
    first = _working(stage)
    first.may_end_with.add(FENCED)
    second = stage.drivers.start()
    _wait_for(stage, second, "owner")
    code = first.service.process.wait(END_TIMEOUT_S)
    return {"first": first.number, "second": second.number, "ended_with": code}


def drain_driver(stage: Stage, fault: Fault) -> Proof:
    running = _working(stage)
    running.may_end_with.add(0)
    running.service.send(signal.SIGTERM)
    code = running.service.process.wait(END_TIMEOUT_S)
    running.read_events()
    require(code == 0, f"it ended with {code}")
    return {"driver": running.number, "was": "drained" if running.told["drained"] else "cut off"}


def hijack_ids(stage: Stage, fault: Fault) -> Proof:
    """A foreign client initialises every lane of the pipeline, once or several times."""
    rounds = HIJACKS if fault.is_hard else 1
    for number in range(rounds):
        for lane in range(LANES):
            _initialise(stage, f"onceflow.{stage.names.pipeline}.s0.l{lane}")
        if number + 1 < rounds:
            stage.clock.sleep(HIJACK_INTERVAL_S)
    return {"initialised": rounds * LANES}


def require(has_fired: bool, otherwise: str) -> None:
    if not has_fired:
        raise NotFiredError(otherwise)


def _initialise(stage: Stage, transactional_id: str) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": stage.cluster.bootstrap_servers,
        "transactional.id": transactional_id,
        "log_level": 2,
    }
    try:
        Producer(settings).init_transactions(HIJACK_TIMEOUT_S)
    except KafkaException as error:
        raise NotFiredError(f"{transactional_id} could not be initialised: {error}") from error


def _working(stage: Stage) -> Running:
    """The current driver, once it has committed a batch; it may be another one by then."""
    eventually(lambda: stage.drivers.current.told["batch"], timeout_s=START_TIMEOUT_S)
    return stage.drivers.current


def _wait_for(stage: Stage, running: Running, event: str) -> None:
    eventually(
        lambda: running.told[event] or running.exit_code is not None, timeout_s=START_TIMEOUT_S
    )
    require(bool(running.told[event]), f"driver {running.number} ended before `{event}`")


HANDS: Mapping[str, Hand] = {
    "kill-driver": kill_driver,
    "freeze-driver": freeze_driver,
    "freeze-driver-long": freeze_driver,
    "zombie-driver": zombie_driver,
    "second-driver": second_driver,
    "drain-driver": drain_driver,
    "hijack-ids": hijack_ids,
}
