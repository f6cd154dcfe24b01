"""The service in pods of real nodes, under load and faults: nothing lost, nothing repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.release import DRIVER, EXECUTOR, JVM, Release, Took
from tests.support.eventually import eventually

Make = Callable[..., Release]
EXECUTORS = 2


def drain_its_node(views: Release) -> None:
    """As before the machine is serviced."""
    node = views.driver()["spec"]["nodeName"]
    views.cluster.kubectl(
        "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", timeout_s=240
    )
    views.cluster.kubectl("uncordon", node)
    eventually(lambda: views.driver()["spec"]["nodeName"] != node)


@pytest.mark.timeout(600)
def test_a_service_in_one_pod_outlives_whatever_ends_it(release: Make, took: Took) -> None:
    views = release()
    views.wait_ready()
    views.wait_for_batches(1)
    for name, fault in {
        "pod deleted by force": views.delete_by_force,
        "JVM killed": lambda: views.kill(views.driver(), JVM),
        "driver killed": lambda: views.kill(views.driver(), DRIVER),
        "node drained": lambda: drain_its_node(views),
    }.items():
        took["local", name] = views.seconds_after(fault)
    views.finish()


@pytest.mark.timeout(900)
def test_a_service_with_executors_outlives_whatever_ends_them(release: Make, took: Took) -> None:
    """With four deaths of the driver in one pod: the names of its executors were used up once."""
    views = release("--set=mode=k8s", "--set=executors.secret=spark", is_shared=True)
    views.wait_ready()
    views.wait_for_batches(1)
    assert len(views.pods("executor")) == EXECUTORS
    for name, fault in {
        "executor killed": lambda: views.kill(views.pods("executor")[0], EXECUTOR),
        "driver killed": lambda: views.kill(views.driver(), DRIVER),
        "driver killed again": lambda: views.kill(views.driver(), DRIVER),
        "JVM killed": lambda: views.kill(views.driver(), JVM),
        "driver killed a fourth time": lambda: views.kill(views.driver(), DRIVER),
        "pod deleted by force": views.delete_by_force,
    }.items():
        took["k8s", name] = views.seconds_after(fault)
    views.finish()
    text = views.kubectl("get", "pods", "-o", "yaml")
    assert views.secret not in text
    eventually(lambda: len(views.pods("executor")), lambda count: count == EXECUTORS)
