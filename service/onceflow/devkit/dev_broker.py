"""Real Kafka brokers from cached jars: for `onceflow dev up`, and for a block of code.

The cluster of `dev up` stays when the command has ended, until `dev down`. A file lock, held by the
cluster's supervisor, tells whether it runs: a crash, or another process with the same id, cannot be
mistaken for it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from onceflow.clock import Clock
from onceflow.devkit.broker_start import (
    ClusterSettings,
    format_storage,
    start_cluster,
    write_settings,
)
from onceflow.devkit.paths import cache_dir
from onceflow.devkit.processes import DetachedProcesses, lock_holder, stop_lock_holder
from onceflow.devkit.supervisor import Spec
from onceflow.errors import ConfigError

LOCK = "running.lock"


@dataclass(frozen=True)
class DevBroker:
    """The cluster that runs, or whose data is kept.

    Args:
        bootstrap_servers: addresses of every broker, comma separated.
        brokers: how many.
    """

    bootstrap_servers: str
    brokers: int


def dev_folder() -> Path:
    """Holds the cluster's data, logs and state."""
    return cache_dir() / "dev"


def running() -> DevBroker | None:
    """The cluster that runs on this machine for this user, if any."""
    return _recorded() if _is_running() else None


def start_detached(brokers: int, clock: Clock) -> DevBroker:
    """Start a cluster that outlives this process; data that was kept is used again.

    Raises:
        ConfigError: it runs already, its kept data is of another number of brokers, or it cannot be
            started.
        DeadlineError: it did not answer in time. Nothing is left running.
    """
    kept = _recorded()
    if _is_running():
        raise ConfigError(
            "the development broker is already running",
            subject=kept.bootstrap_servers if kept else str(dev_folder()),
            then="Use it, or end it with `onceflow dev down`",
        )
    if kept is not None and kept.brokers != brokers:
        raise ConfigError(
            "the kept data is of another cluster",
            subject=str(dev_folder()),
            expected=f"{brokers} brokers",
            found=f"data of {kept.brokers}",
            then="Start that number, or remove the data with `onceflow dev down`",
        )
    folder = dev_folder()
    folder.mkdir(parents=True, exist_ok=True)
    plan, _ = start_cluster(
        lambda: _planned(folder, brokers), lambda plan: _detached(plan, "", clock), clock
    )
    started = DevBroker(plan.bootstrap_servers, brokers)
    _state_file().write_text(json.dumps(asdict(started)))
    return started


def stop_detached(clock: Clock) -> DevBroker | None:
    """End the cluster cleanly and wait until it is gone; its data stays.

    Returns:
        What was ended, or None if nothing ran.

    Raises:
        DeadlineError: it is still there.
    """
    found = running()
    stop_lock_holder(_lock_file(), clock)
    return found


def remove_data() -> None:
    """Delete what a cluster that was stopped has left.

    Raises:
        ConfigError: it still runs; nothing was deleted.
    """
    if _is_running():
        raise ConfigError("the development broker is running", then="Stop it first")
    shutil.rmtree(dev_folder(), ignore_errors=True)


@contextmanager
def temporary_broker(clock: Clock) -> Iterator[str]:
    """Run a broker inside the block. Nothing is left of it, also not after a SIGKILL.

    Returns:
        Its address.

    Raises:
        ConfigError: it cannot be started.
        DeadlineError: it did not answer in time.
    """
    plan, processes = start_cluster(
        _temporary_plan, lambda plan: _detached(plan, str(plan.folder), clock), clock
    )
    try:
        with closing(processes):
            yield plan.bootstrap_servers
    finally:
        shutil.rmtree(plan.folder, ignore_errors=True)


def _temporary_plan() -> ClusterSettings:
    folder = Path(tempfile.mkdtemp(prefix="onceflow-broker-"))
    with ExitStack() as on_failure:
        on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
        plan = _planned(folder, 1)
        on_failure.pop_all()
    return plan


def _planned(folder: Path, brokers: int) -> ClusterSettings:
    plan = write_settings(folder, brokers)
    format_storage(plan)
    return plan


def _detached(plan: ClusterSettings, remove: str, clock: Clock) -> DetachedProcesses:
    spec = Spec(plan.commands, plan.logs, str(plan.folder / LOCK), remove)
    return DetachedProcesses(spec, plan.supervisor_log, clock)


def _state_file() -> Path:
    return dev_folder() / "cluster.json"


def _lock_file() -> Path:
    return dev_folder() / LOCK


def _recorded() -> DevBroker | None:
    try:
        return DevBroker(**json.loads(_state_file().read_text()))
    except FileNotFoundError:
        return None


def _is_running() -> bool:
    return lock_holder(_lock_file()) is not None
