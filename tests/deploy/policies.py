"""Policies for everything that the chart renders. Each gives its findings, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from tests.deploy.chart import CHART, EXECUTOR, Manifest, pods

Policy = Callable[[Sequence[Manifest]], Iterator[str]]
SETTINGS = "onceflow.yaml"
GUARDS = CHART / "templates" / "_guards.tpl"
SIZED_BY_SPARK = {EXECUTOR, "operator's driver"}
"""From its settings, which guards compare with what a pod needs."""
OURS = {
    *("onceflow", "deliveries", "enrichments", "gateway", "topics", "round-trip"),
    *("spark-kubernetes-driver", "spark-kubernetes-executor"),
}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "Secret", "Namespace"}


def is_restricted(manifests: Sequence[Manifest]) -> Iterator[str]:
    """The restricted standard of Kubernetes, and for our pods a read-only root file system."""
    for place, pod in pods(manifests):
        whole = pod["spec"].get("securityContext", {})
        if whole.get("runAsNonRoot") is not True or not whole.get("runAsUser", 1):
            yield f"{place}: may run as root"
        if whole.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{place}: any system call"
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod["spec"].get(key):
                yield f"{place}: {key}"
        for container in containers(pod):
            own = container.get("securityContext", {})
            if own.get("allowPrivilegeEscalation") is not False:
                yield f"{place}/{container['name']}: may gain privileges"
            is_ours = container in of_the_chart(pod)
            if is_ours and own.get("readOnlyRootFilesystem") is not True:
                yield f"{place}/{container['name']}: may write to its root file system"
            if own.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{place}/{container['name']}: has capabilities"


def no_foreign_settings(manifests: Sequence[Manifest]) -> Iterator[str]:
    """A Service named `onceflow` would give every pod ONCEFLOW_PORT, which is refused."""
    for place, pod in pods(manifests):
        if pod["spec"].get("enableServiceLinks") is not False:
            yield f"{place}: variables of services"


def secrets_are_files(manifests: Sequence[Manifest]) -> Iterator[str]:
    """No secret in a variable, an argument or our own object. A user's sidecar may have one."""
    for place, pod in pods(manifests):
        for container in of_the_chart(pod):
            if "envFrom" in container:
                yield f"{place}: envFrom"
            variables = container.get("env", [])
            secret = [v["name"] for v in variables if "secretKeyRef" in v.get("valueFrom", {})]
            yield from (f"{place}: {name} from a Secret" for name in secret)
    for settings in settings_in(manifests):
        if "password" in settings.get("sasl", {}):
            yield "a password in the settings"


def rights_are_few(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Nothing beyond the namespace, and no token for who has no use of it."""
    has_roles = any(manifest["kind"] == "Role" for manifest in manifests)
    for manifest in manifests:
        if manifest["kind"] in CLUSTER_WIDE:
            yield f"a {manifest['kind']}"
        if manifest["kind"] == "ServiceAccount" and manifest["automountServiceAccountToken"]:
            yield "a token in every pod of the service account"
        for rule in manifest.get("rules", []):
            if "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]:
                yield f"{manifest['kind']}: everything"
    for place, pod in pods(manifests):
        if pod["spec"].get("automountServiceAccountToken") is not False:
            yield f"{place}: a token in every container"
        holders = [container["name"] for container in containers(pod) if _has_token(pod, container)]
        wanted = [c["name"] for c in of_the_chart(pod)] if has_roles and is_driver(pod) else []
        if holders != wanted:
            yield f"{place}: a token in {holders}, expected in {wanted}"


def _has_token(pod: Any, container: Any) -> bool:
    """Whether it mounts a volume with a token of the service account."""
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    return any(
        "serviceAccountToken" in source
        for volume in pod["spec"].get("volumes", [])
        if volume["name"] in mounted
        for source in volume.get("projected", {}).get("sources", [])
    )


def resources_are_bounded(manifests: Sequence[Manifest]) -> Iterator[str]:
    for place, pod in pods(manifests):
        for container in containers(pod):
            given = container.get("resources", {})
            if place in SIZED_BY_SPARK and container in of_the_chart(pod):
                continue
            if not {"cpu", "memory"} <= set(given.get("requests", {})):
                yield f"{place}/{container['name']}: no requests"
            if "memory" not in given.get("limits", {}):
                yield f"{place}/{container['name']}: no limit of memory"
        for volume in pod["spec"].get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{place}: {volume['name']} may fill the node"


def traffic_is_bounded(manifests: Sequence[Manifest]) -> Iterator[str]:
    """A network policy, where there is one, holds for every pod, in both directions."""
    for policy in (m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"):
        if "Egress" not in policy["policyTypes"] and "Ingress" not in policy["policyTypes"]:
            yield "it bounds nothing"
        for rule in [*policy.get("ingress", []), *policy.get("egress", [])]:
            if not rule or not rule.get("ports"):
                yield "a rule for every port"
        for rule in policy.get("egress", []):
            if not rule.get("to"):
                yield "a way out to anywhere"
    chosen = [m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"]
    for place, pod in pods(manifests) if chosen else ():
        directions = {d for p in chosen if matches(p, pod) for d in p["policyTypes"]}
        if directions != {"Egress", "Ingress"}:
            yield f"{place}: no bound on {sorted({'Egress', 'Ingress'} - directions)}"


def mounts_are_volumes(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Every mount has its volume and every volume its mount; files of settings are mounted."""
    for place, pod in pods(manifests):
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        if place == "StatefulSet":
            volumes |= set(claims_of(manifests))
        mounts = [mount for c in containers(pod) for mount in c.get("volumeMounts", [])]
        used = {mount["name"] for mount in mounts}
        if unknown := used - volumes:
            yield f"{place}: no volume for {sorted(unknown)}"
        if unused := volumes - used:
            yield f"{place}: no use of {sorted(unused)}"
        folders = {mount["mountPath"] for mount in mounts}
        for path in files_of_settings(manifests, pod, place):
            if str(PurePosixPath(path).parent) not in folders:
                yield f"{place}: {path} is not mounted"


def one_image(manifests: Sequence[Manifest]) -> Iterator[str]:
    """All our images are of one version."""
    images = {c["image"] for _, pod in pods(manifests) for c in of_the_chart(pod)}
    if len(images) != 1:
        yield f"images: {sorted(images)}"


POLICIES: Sequence[Policy] = [
    is_restricted,
    no_foreign_settings,
    secrets_are_files,
    rights_are_few,
    resources_are_bounded,
    traffic_is_bounded,
    mounts_are_volumes,
    one_image,
]


def containers(pod: Any) -> Iterator[Any]:
    yield from pod["spec"].get("initContainers", [])
    yield from pod["spec"]["containers"]


def of_the_chart(pod: Any) -> list[Any]:
    """Containers that users do not bring."""
    return [c for c in containers(pod) if c["name"] in OURS]


def claims_of(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        for claim in manifest.get("spec", {}).get("volumeClaimTemplates", []):
            yield claim["metadata"]["name"]


def is_driver(pod: Any) -> bool:
    return bool(pod["metadata"]["labels"].get("app.kubernetes.io/component") == "driver")


def matches(policy: Mapping[str, Any], pod: Any) -> bool:
    return selects(policy["podSelector"], pod)


def selects(selector: Mapping[str, Any], pod: Any) -> bool:
    wanted = selector.get("matchLabels", {})
    return bool(wanted.items() <= pod["metadata"]["labels"].items())


def settings_in(manifests: Sequence[Manifest]) -> Iterator[Any]:
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and SETTINGS in manifest["data"]:
            yield yaml.safe_load(manifest["data"][SETTINGS])


def files_of_settings(manifests: Sequence[Manifest], pod: Any, place: str) -> Iterator[str]:
    """Files that the settings of a pod name. An executor gets them by the driver's settings, but
    the password as such."""
    mounted = {v.get("configMap", {}).get("name") for v in pod["spec"].get("volumes", [])}
    chosen = [m for m in manifests if m["metadata"]["name"] in mounted]
    blocks = ["tls"] if place == EXECUTOR else ["sasl", "tls"]
    for settings in settings_in(manifests if place == EXECUTOR else chosen):
        for block in blocks:
            given = settings.get(block, {})
            yield from (path for key, path in given.items() if key.endswith("_file"))
