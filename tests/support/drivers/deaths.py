"""Ends a driver that runs in the test's own process, so that nothing of it is left behind.

From its crash point on, nothing that it still does reaches Kafka, which it talks to through a proxy
that is cut, or its checkpoint, which is put back as it was at that instant. A process that is
killed for real (`service.run_to_crash`) shows the same at ten times the cost: its Spark is cold.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from onceflow import app
from onceflow.crashpoints import CrashPoint
from onceflow.errors import OnceflowError
from tests.chaos import ChaosProxy
from tests.support.drivers.here import dying, run_here
from tests.support.jobs.job import Job

PATIENT_S = 20.0
"""A renewal of a lane that was under way waits for an answer that never comes."""
SHORT_S = 10.0
"""A driver that dies while it fences or sends always waits for answers, and for no longer."""


class _Driver:
    """Lives until its crash point.

    Args:
        kept: where the checkpoint is kept as it was.
    """

    def __init__(
        self, point: CrashPoint, arrivals: int, proxy: ChaosProxy, checkpoint: Path, kept: Path
    ) -> None:
        self.is_dead = False
        self._point = point
        self._arrivals_left = arrivals
        self._proxy = proxy
        self._checkpoint = checkpoint
        self._kept = kept
        self._lock = threading.Lock()

    def dies_at(self, point: CrashPoint) -> bool:
        """Whether it is dead from this crash point on, or was before."""
        with self._lock:
            if not self.is_dead and point is self._point:
                self._arrivals_left -= 1
                if self._arrivals_left == 0:
                    self._die()
            return self.is_dead

    def _die(self) -> None:
        self._proxy.cut()
        self.is_dead = True
        if self._checkpoint.exists():
            shutil.copytree(self._checkpoint, self._kept, copy_function=_copy_unless_gone)


def _copy_unless_gone(source: str, target: str) -> None:
    """Copy a file; Spark, which knows nothing of the death, may rename one meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def die_here(file: Path, job: Job, point: CrashPoint, arrivals: int) -> None:
    """Run a job until it dies at a crash point; fails if it does not come there so often."""
    checkpoint = job.checkpoint
    kept = checkpoint.with_name(f"{checkpoint.name}-kept")
    with ChaosProxy(job.bootstrap_servers) as proxy, ExitStack() as patches:
        driver = _Driver(point, arrivals, proxy, checkpoint, kept)
        patches.enter_context(dying(driver.dies_at))
        takeover_s = SHORT_S if point is CrashPoint.MID_FENCE else PATIENT_S
        patches.enter_context(patch.object(app, "TAKEOVER_TIMEOUT_S", takeover_s))
        batch_s = SHORT_S if point is CrashPoint.MID_PRODUCE else PATIENT_S
        with pytest.raises(OnceflowError) as ended:
            run_here(file, proxy.bootstrap_servers, transaction_timeout_s=batch_s)
    if not driver.is_dead:
        raise AssertionError(f"{point.value} was not reached {arrivals} times") from ended.value
    shutil.rmtree(checkpoint, ignore_errors=True)
    if kept.exists():
        kept.rename(checkpoint)
