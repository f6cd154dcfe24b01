"""Users' additions to pods, and how pods are spread, protected and named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.deploy import policies
from tests.deploy.chart import EXAMPLES, Manifest, Values, one, pods, render

EXTENDED = "local-extended"
HOST = "kubernetes.io/hostname"
WITH_EXTRAS: Values = {
    "extraVolumes": [
        {"name": "trust", "configMap": {"name": "a"}},
        {"name": "logs", "emptyDir": {"sizeLimit": "1Gi"}},
    ],
    "extraVolumeMounts": [{"name": "trust", "mountPath": "/mnt/trust"}],
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraContainers": [
        {
            "name": "shipper",
            "image": "b",
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "1Mi"}},
            "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        }
    ],
}


def driver(example: str, values: Values | None = None) -> Any:
    for _, pod in pods(render(example, values)):
        if policies.is_driver(pod):
            return pod["spec"]
    raise AssertionError(example)


def kinds(manifests: Sequence[Manifest], kind: str) -> list[Any]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


@pytest.mark.parametrize("example", [name for name in EXAMPLES if name != EXTENDED])
def test_every_pod_gets_them_and_keeps_to_the_policies(example: str) -> None:
    manifests = render(example, WITH_EXTRAS)
    for place, pod in pods(manifests):
        (container,) = policies.of_the_chart(pod)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}

        assert mounts["trust"] == "/mnt/trust", place
        assert {"name": "A", "value": "b"} in container["env"], place
        assert ("logs" in {volume["name"] for volume in pod["spec"]["volumes"]}) is (
            policies.is_driver(pod)
        )
    assert [fault for policy in policies.POLICIES for fault in policy(manifests)] == []


def test_a_sidecar_has_our_limits_unless_it_says_otherwise() -> None:
    spec = driver(EXTENDED)
    ours, shipper = spec["containers"]
    (tunnel,) = spec["initContainers"]

    assert tunnel["securityContext"] == ours["securityContext"]
    assert tunnel["restartPolicy"] == "Always"
    assert shipper["securityContext"] == {
        **ours["securityContext"],
        "readOnlyRootFilesystem": False,
    }


def test_sidecars_run_beside_the_operators_driver_as_well() -> None:
    sidecars: Values = {**WITH_EXTRAS, "extraInitContainers": WITH_EXTRAS["extraContainers"]}
    spec = driver("operator", sidecars)

    assert [c["name"] for c in spec["containers"]] == ["spark-kubernetes-driver", "shipper"]
    assert [c["name"] for c in spec["initContainers"]] == ["shipper"]


def test_no_volume_of_ours_can_be_taken_by_a_users() -> None:
    """The guard names them all: they are read from what is rendered."""
    (guard,) = re.findall(r"\$volumes := list ([^}]+) -", policies.GUARDS.read_text())
    rendered = {
        volume["name"]
        for example in EXAMPLES
        for _, pod in pods(render(example))
        for volume in pod["spec"].get("volumes", [])
        # Of Secrets that files name.
        if not volume["name"].startswith("secret-")
    } - {"trust", "logs"}

    assert set(guard.replace('"', "").split()) == rendered | {"checkpoints"}


def test_what_the_service_mounts_cannot_be_hidden() -> None:
    """Each of our folders is in one that the guard knows."""
    (guard,) = re.findall(r"\$folders := list (.+) -", policies.GUARDS.read_text())
    known = [*re.findall(r'"(/[^"]+)"', guard), "/var/lib/onceflow/checkpoints"]
    for example in EXAMPLES:
        for _, pod in pods(render(example)):
            for mount in policies.of_the_chart(pod)[0]["volumeMounts"]:
                path = f"{mount['mountPath']}/"
                assert mount["name"] == "trust" or any(path.startswith(f"{k}/") for k in known), (
                    path
                )


def test_pods_are_spread_among_their_own_kind() -> None:
    constraint = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    chosen = {"matchLabels": {"a": "b"}}
    values: Values = {
        "topologySpreadConstraints": [constraint, {**constraint, "labelSelector": chosen}]
    }
    for example in ("k8s", "operator", "local", "deliveries", "gateways"):
        for place, pod in pods(render(example, values)):
            spread = pod["spec"].get("topologySpreadConstraints")
            component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
            if component not in {"driver", "executor", "deliveries", "gateways"}:
                assert spread is None, place
                continue
            own, theirs = spread
            assert own["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            assert own["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
            assert theirs["labelSelector"] == chosen


def test_a_pod_that_stands_by_prefers_another_node() -> None:
    manifests = render("local-standby")
    pod = one(manifests, "StatefulSet")["spec"]["template"]
    affinity = pod["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]

    assert set(affinity) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert term["podAffinityTerm"]["topologyKey"] == HOST
    chosen = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert chosen.items() <= pod["metadata"]["labels"].items()
    assert chosen["app.kubernetes.io/component"] == "driver"


def test_an_affinity_of_the_user_stands_alone() -> None:
    theirs = {"nodeAffinity": {"a": "b"}}

    assert driver("local-standby", {"affinity": theirs})["affinity"] == theirs
    assert "affinity" not in driver("local")


@pytest.mark.parametrize(
    ("example", "values", "budgets"),
    [
        ("local", {}, {}),
        ("local-standby", {}, {"page-views": ("maxUnavailable", 1)}),
        ("local-standby", {"replicas": 0}, {}),
        ("local-standby", {"podDisruptionBudget.enabled": False}, {}),
        ("k8s", {}, {"page-views-executors": ("minAvailable", 2)}),
        ("operator", {}, {"page-views-executors": ("minAvailable", 1)}),
        ("k8s", {"executors.instances": 1}, {}),
    ],
)
def test_a_drain_takes_one_of_several_and_is_never_blocked(
    example: str, values: Values, budgets: dict[str, tuple[str, int]]
) -> None:
    manifests = render(example, values)
    found = kinds(manifests, "PodDisruptionBudget")

    assert {b["metadata"]["name"] for b in found} == set(budgets)
    for budget in found:
        kind, count = budgets[budget["metadata"]["name"]]
        assert budget["spec"][kind] == count
        chosen = [p for _, p in pods(manifests) if policies.selects(budget["spec"]["selector"], p)]
        assert len(chosen) == 1


@pytest.mark.parametrize("example", ["k8s", "operator"])
def test_a_users_setting_of_spark_takes_the_place_of_the_charts(example: str) -> None:
    manifests = render(
        example,
        {
            "spark.conf": {
                "spark.io.encryption.enabled": False,
                "spark.blockManager.port": 0,
                "spark.sql.autoBroadcastJoinThreshold": 10_000_000,
            }
        },
    )
    if example == "operator":
        conf = one(manifests, "SparkApplication")["spec"]["sparkConf"]
    else:
        conf = next(policies.settings_in(manifests))["spark"]["conf"]

    assert conf["spark.io.encryption.enabled"] == "false"
    assert conf["spark.blockManager.port"] == "0"
    assert conf["spark.sql.autoBroadcastJoinThreshold"] == "10000000"
    assert conf["spark.network.crypto.enabled"] == "true"


def test_executors_may_ask_for_less_than_a_core() -> None:
    values: Values = {"executors.requestCores": "300m"}
    settings = next(policies.settings_in(render("k8s", values)))["spark"]["conf"]
    application = one(render("operator", values), "SparkApplication")["spec"]["executor"]

    assert settings["spark.kubernetes.executor.request.cores"] == "300m"
    assert application["coreRequest"] == "300m"
    whole = one(render("operator", {"executors.requestCores": ""}), "SparkApplication")["spec"]
    assert "coreRequest" not in whole["executor"]


def test_only_a_driver_that_makes_executors_may_delete_those_that_were_left() -> None:
    """tests/deploy/test_executor_pods.py compares what it deletes with what Spark makes."""
    (verbs,) = [rule["verbs"] for rule in one(render("k8s"), "Role")["rules"]]
    assert "deletecollection" in verbs
    for example in ("local", "operator"):
        names = {v["name"] for v in driver(example)["containers"][0]["env"]}
        assert "LEFTOVER_EXECUTORS" not in names
