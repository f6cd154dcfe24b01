"""Executors that come and go, and keep their state in a bucket. `make drill`."""

from __future__ import annotations

import pytest

from tests.cluster.drill import Drill
from tests.cluster.release import READY_TIMEOUT_S, Release
from tests.support.eventually import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FEWEST = 1


def test_their_number_follows_the_load_and_state_outlives_them_all(bucket: Drill) -> None:
    (views,) = bucket.releases.values()
    views.wait_ready()
    # What is there from the beginning is more than one can do at once.
    eventually(lambda: len(views.pods("executor")) > FEWEST, timeout_s=READY_TIMEOUT_S)
    views.wait_for_batches(1)
    bucket.befall("executor evicted, state in a bucket", Release.evict_executor)
    bucket.befall("all executors killed, state in a bucket", Release.kill_executors)
    bucket.befall("driver's pod deleted by force, state in a bucket", Release.delete_by_force)
    eventually(
        lambda: len(views.pods("executor")),
        lambda count: count == FEWEST,
        timeout_s=READY_TIMEOUT_S,
    )
    bucket.finish()
    # A minute without records ends the workers that Spark plans with, which does no harm.
    assert "Traceback" not in views.log_of(views.driver())
    assert all("WARNING" not in views.log_of(pod) for pod in views.pods("executor"))
