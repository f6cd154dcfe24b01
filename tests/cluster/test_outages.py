"""Outages of nodes, disks, brokers and the API server, for minutes. `make drill`."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conftest import install, volumes
from tests.cluster.drill import Drill, Took, outage
from tests.cluster.programs import NEXT_TAG
from tests.cluster.release import DRIVER, EXECUTOR, JVM, READY_TIMEOUT_S, Release
from tests.support.brokers.small_disk import SmallDisk
from tests.support.eventually import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LOST = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
"""How people say that a node does not come back (Kubernetes: Non-graceful node shutdown)."""
DEATHS = 5
STANDS_BY = '"event": "standby"'
"""Of what a driver writes into its log."""
WAKES_UP = {"local": '"error": "FencedError"', "k8s": "KubernetesClientException"}
"""The same, by mode. One without executors meets its successor at the next batch. The other gets no
executors any more, with the account of a pod that was deleted: it waits, and writes nothing."""


def until_told(release: Release, pod: dict[str, object], text: str, times: int = 1) -> None:
    """Until the driver in this pod has written this so many times.

    Raises:
        AssertionError: it did not; has the end of what it wrote.
    """
    try:
        eventually(lambda: release.log_of(pod).count(text) >= times, timeout_s=READY_TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(release.log_of(pod)[-5_000:]) from error


def until_any_told(release: Release, text: str) -> None:
    """The same of whatever pod there is: it may be replaced meanwhile."""
    eventually(
        lambda: any(text in release.log_of(pod) for pod in release.pods("driver")),
        timeout_s=READY_TIMEOUT_S,
    )


def test_a_driver_that_dies_again_and_again(drill: Drill) -> None:
    """In one pod: each has executors of its own name, and removes those of the one before."""
    for death in range(1, DEATHS + 1):
        kill = methodcaller("kill_in_driver", DRIVER)
        drill.befall(f"driver killed, time {death} of {DEATHS}", kill)
    drill.finish()


def test_an_api_server_that_is_away_for_two_minutes(drill: Drill) -> None:
    """Pipelines go on meanwhile, and executors that are killed after it are replaced."""

    def away() -> None:
        before = {mode: release.committed() for mode, release in drill.releases.items()}
        with drill.cluster.api_away():
            outage()
            for mode, release in drill.releases.items():
                assert release.committed() > before[mode]

    drill.befall_all("API server away for two minutes", away)
    drill.only("k8s").befall("executor killed", Release.kill_executor)
    drill.finish()


def test_memory_that_is_used_up(drill: Drill) -> None:
    drill.befall(
        "driver's container out of memory", lambda views: views.exhaust_memory(views.driver(), JVM)
    )
    drill.only("k8s").befall(
        "executor out of memory",
        lambda views: views.exhaust_memory(views.pods("executor")[0], EXECUTOR),
    )
    drill.finish()


def test_a_volume_that_is_full(drill: Drill) -> None:
    disks = {mode: SmallDisk(release.volume) for mode, release in drill.releases.items()}

    def fill() -> None:
        pods = {mode: release.driver() for mode, release in drill.releases.items()}
        for disk in disks.values():
            disk.fill()
        for mode, release in drill.releases.items():
            until_told(release, pods[mode], "a disk is full")
        for disk in disks.values():
            disk.free()

    drill.befall_all("volume full, then room again", fill)
    drill.finish()


def test_upgrades_and_rollbacks(drill: Drill) -> None:
    def rolled_out(change: Callable[[Release], object]) -> Callable[[Release], None]:
        def strike(release: Release) -> None:
            change(release)
            release.kubectl(
                "rollout", "status", f"statefulset/{release.name}", timeout_s=READY_TIMEOUT_S
            )

        return strike

    def change_query(release: Release) -> None:
        """It is refused, and the release is brought back."""
        release.install(edit=lambda text: text.replace("sum(ms)", "max(ms)"))
        until_any_told(release, "--accept-change")
        release.helm("rollback", release.name)

    tag = f"--set=image.tag={NEXT_TAG}"
    drill.befall("image upgraded", rolled_out(lambda release: release.install(tag)))
    for release in drill.releases.values():
        image = release.driver()["spec"]["containers"][0]["image"]
        assert image.endswith(f":{NEXT_TAG}")
    drill.befall(
        "image rolled back", rolled_out(lambda release: release.helm("rollback", release.name))
    )
    drill.befall("query changed, refused, rolled back", rolled_out(change_query))
    drill.finish()


def test_a_node_that_is_cut_off_for_two_minutes(drill: Drill) -> None:
    """Without any order: its pods are where they were."""
    node = drill.part_from_broker()

    def cut_off() -> None:
        node.cut_off()
        try:
            outage()
        finally:
            node.connect()

    drill.befall_all("node cut off for two minutes", cut_off)
    drill.finish()


def test_a_node_that_is_frozen_for_two_minutes(drill: Drill) -> None:
    """Others have taken over when the old drivers wake up, in the middle of a batch."""
    node = drill.part_from_broker()
    old = {mode: release.driver() for mode, release in drill.releases.items()}

    def freeze() -> None:
        node.freeze()
        # Kubernetes takes it for ready a while longer, and would put the next pods there.
        drill.cluster.kubectl("cordon", node.name)
        for release in drill.releases.values():
            release.delete_by_force()

    try:
        drill.befall_all("node frozen, pods deleted by force", freeze)
        outage()
        told = {mode: each.log_of(old[mode]) for mode, each in drill.releases.items()}
        node.thaw_all_but_kubelet()
        for mode, release in drill.releases.items():
            word = WAKES_UP[mode]
            until_told(release, old[mode], word, told[mode].count(word) + 1)
    finally:
        node.thaw()
        drill.cluster.kubectl("uncordon", node.name)
        drill.cluster.wait_until_ready()
    drill.finish()


def test_a_broker_that_is_moved(drill: Drill) -> None:
    def move() -> None:
        with drill.cluster.cordoned(drill.cluster.node_of_broker()):
            drill.cluster.kubectl("-n", "kafka", "delete", "pod", "kafka-0", timeout_s=120)
            drill.cluster.kubectl(
                "-n", "kafka", "rollout", "status", "statefulset/kafka", timeout_s=120
            )

    drill.befall_all("broker moved to the other node", move)
    drill.finish()


@pytest.fixture
def standby(
    api: Cluster, namespace: str, bootstrap_servers: str, took: Took, tmp_path: Path
) -> Drill:
    release = install(api, namespace, bootstrap_servers, tmp_path, "standby")
    return Drill(api, {"standby": release}, took)


def test_a_standby_takes_over(standby: Drill) -> None:
    """By itself, when the node of the leader is cut off; the old leader then stands by in turn."""
    (release,) = standby.releases.values()
    broker = standby.cluster.node_of_broker()
    eventually(lambda: any(map(release.has_led, release.pods("driver"))), timeout_s=READY_TIMEOUT_S)
    pods = {pod["spec"]["nodeName"]: pod for pod in release.pods("driver")}
    assert len(pods) == len(standby.cluster.nodes)
    near, leader = pods.pop(broker.name), pods.popitem()[1]
    if release.has_led(near):
        release.kubectl("delete", "pod", near["metadata"]["name"], timeout_s=200)
    eventually(lambda: release.has_led(leader), timeout_s=READY_TIMEOUT_S)
    node = standby.cluster.node(leader["spec"]["nodeName"])
    stood_by = release.log_of(leader).count(STANDS_BY)
    try:
        standby.befall_all("leader's node cut off", node.cut_off)
        outage()
    finally:
        node.connect()
    until_told(release, leader, STANDS_BY, stood_by + 1)
    standby.finish()


def test_a_node_that_is_gone_for_good_with_its_volume(drill: Drill) -> None:
    """The volumes are replaced, and new generations begin."""
    node = drill.part_from_broker()

    def lose() -> None:
        node.freeze()
        node.cut_off()
        drill.cluster.kubectl("taint", "node", node.name, LOST)
        for release in drill.releases.values():
            release.replace_volume(volumes())
            until_any_told(release, "under another checkpoint")
            release.begin_generation("the volume is lost")

    try:
        drill.befall_all("node gone for good with its volume", lose)
    finally:
        node.connect()
        node.thaw()
        drill.cluster.kubectl("taint", "node", node.name, f"{LOST}-")
    drill.cluster.wait_until_ready()
    for release in drill.releases.values():
        release.finish(generation=2)
