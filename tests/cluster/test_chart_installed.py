"""The chart's examples, run by a real API server and its controllers. `make cluster`.

Their images are nowhere, so their pods do not run. The namespace enforces the restricted pod
standard, so a pod that is made has been found to keep it.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.deploy.chart import CHART, EXAMPLES, RELEASE, helm
from tests.support.eventually import eventually

HELM_TIMEOUT_S = 120
WAIT_S = 60
CLAIM = f"checkpoints-{RELEASE}-0"


def run(api: Cluster, namespace: str, *arguments: str) -> str:
    command = [helm(), "--kubeconfig", str(api.kubeconfig), "--namespace", namespace, *arguments]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HELM_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(api: Cluster, namespace: str, example: str, *flags: str) -> str:
    values = ["--values", str(EXAMPLES[example])]
    return run(api, namespace, "upgrade", "--install", RELEASE, str(CHART), *values, *flags)


def pod(api: Cluster, namespace: str) -> dict[str, Any] | None:
    items = api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    found = [item for item in items if item["metadata"]["name"] == f"{RELEASE}-0"]
    return found[0] if found else None


def image(api: Cluster, namespace: str) -> str:
    sets = api.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{RELEASE}")
    return str(sets["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.parametrize("example", ["local", "local-configmap", "local-standby", "k8s"])
def test_an_example_is_taken_and_its_pods_are_made(
    api: Cluster, namespace: str, example: str
) -> None:
    assert "STATUS: deployed" in install(api, namespace, example)
    found = eventually(lambda: pod(api, namespace), timeout_s=WAIT_S)
    assert found is not None
    security = found["spec"]["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    count = len(api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])
    assert count == (2 if example == "local-standby" else 1)


def test_upgrade_and_rollback(api: Cluster, namespace: str) -> None:
    install(api, namespace, "local", "--set-string", "image.tag=1")
    eventually(lambda: pod(api, namespace), timeout_s=WAIT_S)
    install(api, namespace, "local", "--set-string", "image.tag=2")
    assert image(api, namespace).endswith(":2")
    run(api, namespace, "rollback", RELEASE)
    assert image(api, namespace).endswith(":1")
    history = run(api, namespace, "history", RELEASE)
    assert history.count("superseded") == 2


def test_the_checkpoint_outlives_the_release(api: Cluster, namespace: str) -> None:
    install(api, namespace, "local")
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    eventually(lambda: api.get(claims)["items"], timeout_s=WAIT_S)
    run(api, namespace, "uninstall", RELEASE)
    eventually(lambda: pod(api, namespace), lambda found: found is None, timeout_s=WAIT_S)
    assert [item["metadata"]["name"] for item in api.get(claims)["items"]] == [CLAIM]


def test_the_driver_may_manage_pods_of_its_namespace_and_nothing_else(
    api: Cluster, namespace: str
) -> None:
    install(api, namespace, "k8s")
    account = RELEASE
    for resource in ("pods", "services", "configmaps"):
        assert api.may(account, namespace, "create", resource), resource
        assert not api.may(account, namespace, "create", resource, place="default"), resource
    for resource in ("secrets", "roles", "nodes", "namespaces"):
        assert not api.may(account, namespace, "get", resource), resource


def test_a_pod_that_breaks_the_standard_would_not_be_made(api: Cluster, namespace: str) -> None:
    """So that the tests above can fail."""
    broken = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # Before, there is no service account for it.
    answer = eventually(
        lambda: api.client.post(pods, json=broken), lambda answer: "restricted" in answer.text
    )
    assert answer.status_code == 403
