"""The service in pods of real nodes, under load: nothing lost, nothing repeated. `make cluster`."""

from __future__ import annotations

from operator import methodcaller

import pytest

from tests.cluster.drill import Drill
from tests.cluster.release import DRIVER, FIRST, JVM, Release
from tests.support.eventually import eventually

EXECUTORS = 2


@pytest.mark.timeout(900)
def test_processes_and_pods_that_are_killed(drill: Drill) -> None:
    """Three deaths in one pod: the names of its executors were used up once."""
    drill.befall("pod deleted by force", Release.delete_by_force)
    for fault, name in (
        ("JVM killed", JVM),
        ("driver killed", DRIVER),
        ("first process of the container killed", FIRST),
    ):
        drill.befall(fault, methodcaller("kill_in_driver", name))
    drill.only("k8s").befall("executor killed", Release.kill_executor)
    drill.finish()
    views = drill.releases["k8s"]
    assert views.secret not in views.kubectl("get", "pods", "-o", "yaml")
    eventually(lambda: len(views.pods("executor")), lambda count: count == EXECUTORS)


@pytest.mark.timeout(600)
def test_a_node_that_is_drained(drill: Drill) -> None:
    """As before the machine is serviced."""
    node = drill.part_from_broker()

    def drain() -> None:
        ignored = ["--ignore-daemonsets", "--delete-emptydir-data", "--force"]
        drill.cluster.kubectl("drain", node.name, *ignored, timeout_s=300)
        drill.cluster.kubectl("uncordon", node.name)

    drill.befall_all("node drained", drain)
    assert drill.node_of_drivers() is not node
    drill.finish()
