"""Values that the chart refuses to render, with a message that says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.chart import CHART, EXAMPLES, RefusedError, Values, render

PIPELINE = yaml.safe_load(EXAMPLES["local"].read_text())["pipelines"]["page-views"]
TWIN = "name: other\ncheckpoint: /var/lib/onceflow/checkpoints/page-views"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())

FREE = {"nodeAffinity", "podAffinity", "podAntiAffinity", "labelSelector", "global"} | {
    "fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "to", "ports", "allowedFrom",
    "brokers", "dns", "apiServer", "tokenIssuers",
    "startupProbe", "livenessProbe", "readinessProbe", "lifecycle",
    "configMap", "secret", "projected", "downwardAPI", "csi", "ephemeral", "persistentVolumeClaim",
}  # fmt: skip
"""Objects of Kubernetes, which it checks itself."""

SIGNING_IN: Values = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "a",
    "kafka.sasl.existingSecret": "b",
}

GATEWAY: Values = {
    "gateways": {"a": "kind: gateway\nname: a"},
    "gateway.tokensSecret": "a",
    "gateway.allowClearText": True,
}

GUARDS: Sequence[tuple[Values, str]] = [
    *(
        ({"deliveries": {"a": text}, "light.egress": [{}]}, told)
        for text, told in (
            ("name: a", "deliveries.a: expected a file with kind: delivery; found kind: pipeline"),
            (
                "kind: delivery\nname: b",
                "deliveries.a: the key must be its name; the file says name: b",
            ),
            ("kind: [", "deliveries.a: not a YAML file"),
        )
    ),
    (
        {"deliveries": {"a": "kind: delivery\nname: a"}},
        "light.egress: empty, so deliveries would reach the brokers and nothing else",
    ),
    *(
        ({**GATEWAY, **values}, told)
        for values, told in (
            ({"gateways": {"a": "name: a"}}, "gateways.a: expected a file with kind: gateway"),
            ({"gateway.tokensSecret": ""}, "so everyone on the network could post"),
            ({"gateway.allowClearText": False}, "tokens would cross the network in clear text"),
            ({"gateway.certificateSecret": "a"}, "allowClearText would be left unused"),
            ({"gateway.ingress.hosts": {"b": "b.example"}}, "no such gateway; expected one of a"),
            ({"gateway.ingress.hosts": {"a": "a.example"}}, "reach the Ingress in clear text"),
            ({"gateway.autoscaling.maxReplicas": 1}, "is less than gateway.replicas 2"),
        )
    ),
    (
        {"extraVolumes": [{"name": "secret-a", "configMap": {"name": "a"}}]},
        "extraVolumes: the chart has a volume secret-a of its own",
    ),
    ({"standby": True}, "standby: a second pod would not see the checkpoint"),
    (
        {
            **SIGNING_IN,
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.tls.enabled": True,
        },
        "kafka.sasl.tokenEndpoint: belongs to mechanism OAUTHBEARER",
    ),
    ({"kafka.sasl.tokenEndpoint": "https://a/b"}, "kafka.sasl.tokenEndpoint: belongs to"),
    ({"replicas": 2}, "replicas: 2 instances would fence one another"),
    ({"kafka.bootstrapServers": ""}, "kafka.bootstrapServers: expected host:port"),
    ({"kafka.bootstrapServers": "kafka"}, 'separated by commas; found "kafka"'),
    ({"kafka.sasl.mechanism": "PLAIN"}, "needs kafka.sasl.username"),
    ({"kafka.sasl.username": "a"}, "username and Secret would be left unused"),
    ({"kafka.tls.caSecret": "a"}, "would be left unused"),
    ({"pipelines.other": TWIN}, "is that of other and of page-views; expected one for each"),
    ({"pipelines": None, "example": "never"}, "pipelines: nothing to run"),
    ({"pipelines": None, "files": {"a.py": ""}}, "pipelines: nothing to run"),
    (
        {"extraVolumes": [{"name": "scratch", "configMap": {"name": "a"}}]},
        "extraVolumes: the chart has a volume scratch of its own",
    ),
    *(
        ({"extraVolumeMounts": [{"name": "a", "mountPath": path}]}, f"{path} would hide {ours}")
        for path, ours in [
            ("/", "/etc/onceflow"),
            ("/etc", "/etc/onceflow"),
            ("/etc/onceflow/pipeline/", "/etc/onceflow"),
            ("/mnt/../etc/onceflow", "/etc/onceflow"),
            ("/var/lib/onceflow", "/var/lib/onceflow/checkpoints"),
            ("/opt/onceflow", "/opt/onceflow/bin"),
            ("/tmp", "/tmp"),
            ("/var/run/secrets/a", "/var/run/secrets"),
        ]
    ),
    ({"files": {"schema.yaml": "a: 1"}}, "files.schema.yaml: would be taken for a pipeline"),
    ({"control.enabled": True}, "control.tokensSecret: empty, so no user could sign in"),
    ({"control.tokensSecret": "a"}, "control.enabled: false, so the Secrets"),
    ({"monitoring.podMonitor": True}, "does not know the kinds of monitoring.coreos.com/v1"),
    ({"monitoring.prometheusRule": True}, "or monitoring.force to true"),
    ({"pipelines.page-views": "name: other"}, "must be the pipeline's name; the file says name: o"),
    ({"pipelines.page-views": "a: [b"}, "pipelines.page-views: not a YAML file"),
    ({"pipelinesFrom.configMap": "a"}, "replaces pipelines and files"),
    ({"pipelinesFrom.configMap": "a", "pipelines": None}, "pipelinesFrom.files: expected"),
    ({"pipelines.page-views": f"{PIPELINE}checkpoint: here"}, "here would not outlive the pod"),
    ({"pipelines.page-views": f"{PIPELINE}checkpoint: /data"}, "/data would not outlive"),
    (
        {"pipelines.page-views": f"{PIPELINE}checkpoint: /var/lib/onceflow/checkpoints/../../x"},
        "leads out of its folder",
    ),
    ({"pipelines.page-views": f"{PIPELINE}checkpoint: s3a://a/../b"}, "leads out of its folder"),
    (
        {"pipelines.page-views": f"{PIPELINE}checkpoint: s3a://a/b"},
        "is not below /var/lib/onceflow",
    ),
    (
        {"pipelines.page-views": f"{PIPELINE}checkpoint: s3a://ab/c", "checkpointRoot": "s3a://a"},
        "s3a://ab/c is not below s3a://a",
    ),
    ({"checkpointRoot": "/data"}, "/data would not outlive the pod"),
    (SIGNING_IN, "would cross the network in clear text"),
    ({"persistence.enabled": False}, "the checkpoint would be lost with the pod"),
    ({"persistence.ephemeral.reason": "a trial, no more"}, "persistence.ephemeral: half a waiver"),
    (
        {
            "persistence.ephemeral.reason": "a trial, no more",
            "persistence.ephemeral.until": "2027-03-31",
        },
        "persistence.ephemeral: a waiver that nothing needs",
    ),
    ({"resources.limits": None}, "could take the memory of its whole node"),
    ({"resources.limits.memory": "3Gi"}, "spark.heap 2g = 3456Mi"),
    ({"spark.heap": "3g"}, "resources.limits.memory: 4Gi is less than memory.jvm 384Mi"),
    ({"spark.maxResult": "1 GiB"}, "half of spark.heap 2g or more"),
]

EXECUTOR_GUARDS: Sequence[tuple[str, Values, str]] = [
    ("k8s", {"standby": True}, "standby: true, which mode k8s does not do"),
    ("local-secured", {"transforms": False}, "names Python code, which pipeline files may not"),
    ("local-configmap", {"topicJob.grantTo": "User:a"}, "topicJob.grantTo: the Job cannot see"),
    ("k8s-shared-volume", {"persistence.accessMode": "ReadWriteOnce"}, "on a ReadWriteOnce volume"),
    ("operator", {"persistence.accessMode": "ReadWriteOncePod"}, "a ReadWriteOncePod volume; let"),
    ("local", {"mode": "k8s"}, "executors on other nodes would not see /var/lib/onceflow"),
    ("local", {"mode": "operator"}, "executors on other nodes would not see /var/lib/onceflow"),
    ("local-configmap", {"mode": "k8s", "pipelinesFrom.checkpoint": ""}, "mode k8s needs to know"),
    ("k8s", {"executors.secret": ""}, "executors.secret: empty; expected a Secret by which"),
    ("local-standby", {"networkPolicy.tokenIssuers": []}, "so no token could be fetched"),
    ("k8s", {"executors.memoryOverhead": "1400m"}, "executors.memoryOverhead: 1400m is less than"),
    ("k8s", {"resources.limits.memory": "3Gi"}, "memory.python 768Mi + spark.heap 2g = 3200Mi"),
    ("operator", {"resources.limits": None}, "resources.limits.memory: not set"),
    (
        "k8s",
        {"spark.conf": {"spark.kubernetes.executor.podNamePrefix": "a"}},
        "spark.conf: spark.kubernetes.executor.podNamePrefix would give executors of each start",
    ),
    (
        "k8s",
        {"executors.dynamic.max": 1},
        "executors.dynamic.max: 1 is less than executors.instances 3",
    ),
]

SIDECAR = {"name": "a", "image": "b", "resources": {"limits": {"memory": "64Mi"}}}


def sidecar(**changes: object) -> Values:
    return {"extraContainers": [{**SIDECAR, **changes}]}


def volume(**kinds: object) -> Values:
    return {"extraVolumes": [{"name": "a", **kinds}]}


NOT_RESTRICTED: Sequence[tuple[Values, str]] = [
    ({"securityContext.allowPrivilegeEscalation": True}, "/securityContext/allowPrivilege"),
    ({"securityContext.allowPrivilegeEscalation": None}, "/securityContext"),
    ({"securityContext.capabilities": {"add": ["SYS_ADMIN"]}}, "/securityContext/capabilities"),
    ({"securityContext.capabilities.drop": ["CHOWN"]}, "/securityContext/capabilities/drop"),
    ({"podSecurityContext.runAsNonRoot": False}, "/podSecurityContext/runAsNonRoot"),
    ({"podSecurityContext.runAsNonRoot": None}, "/podSecurityContext"),
    ({"podSecurityContext.seccompProfile": None}, "/podSecurityContext"),
    ({"podSecurityContext.seccompProfile.type": None}, "/podSecurityContext/seccompProfile"),
    ({"podSecurityContext.seccompProfile.type": "Unconfined"}, "/seccompProfile/type"),
    (sidecar(securityContext={"privileged": True}), "/securityContext/privileged"),
    (sidecar(securityContext={"allowPrivilegeEscalation": True}), "/allowPrivilegeEscalation"),
    (sidecar(securityContext={"capabilities": {"drop": ["CHOWN"]}}), "/capabilities/drop"),
    (sidecar(securityContext={"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}), "/add/0"),
    (sidecar(securityContext={"runAsUser": 0}), "/securityContext/runAsUser"),
    (sidecar(securityContext={"runAsNonRoot": False}), "/securityContext/runAsNonRoot"),
    (sidecar(securityContext={"procMount": "Unmasked"}), "'procMount' not allowed"),
    (sidecar(securityContext={"seccompProfile": {"type": "Unconfined"}}), "/seccompProfile/type"),
    (sidecar(ports=[{"containerPort": 1, "hostPort": 1}]), "'hostPort' not allowed"),
    (sidecar(volumeDevices=[]), "'volumeDevices' not allowed"),
    (sidecar(resources={"limits": {}}), "/extraContainers/0/resources/limits"),
    ({"extraInitContainers": [{"name": "a", "image": "b"}]}, "'resources'"),
    (volume(hostPath={"path": "/"}), "'hostPath' not allowed"),
    (volume(nfs={"server": "a", "path": "/"}), "'nfs' not allowed"),
    (volume(emptyDir={}), "/extraVolumes/0/emptyDir"),
    (volume(emptyDir={"sizeLimit": "1Gi", "medium": "Memory"}), "'medium' not allowed"),
    (volume(), "/extraVolumes/0"),
    ({"extraVolumeMounts": [{"name": "a", "mountPath": "b"}]}, "/mountPath"),
]
"""What the restricted pod standard refuses, or what would take the node's memory or disk."""

REFUSED_BY_SCHEMA: Sequence[tuple[Values, str]] = [
    ({"replica": 1}, "'replica' not allowed"),
    ({"kafka.bootstrap": "a"}, "'bootstrap' not allowed"),
    ({"mode": "cluster"}, "/mode"),
    ({"replicas": -1}, "/replicas"),
    ({"spark.heap": "2Gi"}, "/spark/heap"),
    ({"kafka.sasl.tokenEndpoint": "http://a/b"}, "/kafka/sasl/tokenEndpoint"),
    ({"kafka.sasl.mechanism": "GSSAPI"}, "/kafka/sasl/mechanism"),
    ({"securityContext.privileged": True}, "/securityContext/privileged"),
    ({"podSecurityContext.runAsUser": 0}, "/podSecurityContext/runAsUser"),
    ({"extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}, "'secretKeyRef' not"),
    ({"files": {"../a": ""}}, "invalid propertyName '../a'"),
    ({"example": "maybe"}, "/example"),
    ({"executors.requestCores": "half"}, "/executors/requestCores"),
    *NOT_RESTRICTED,
]


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema of an object, with the path to its values."""
    if schema.get("type") == "object":
        yield path, schema
    for name, below in [*schema.get("properties", {}).items(), *definitions(schema)]:
        yield from objects(below, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from objects(schema["items"], f"{path}[]")


def definitions(schema: Any) -> list[tuple[str, Any]]:
    return [(f"{name}[]", below) for name, below in schema.get("definitions", {}).items()]


def keys(values: Any, path: str = "") -> Iterator[str]:
    for name, below in values.items():
        here = f"{path}.{name}".lstrip(".")
        yield here
        if isinstance(below, dict):
            yield from keys(below, here)


@pytest.mark.parametrize(
    ("example", "values", "message"),
    [*(("local", *each) for each in (*GUARDS, *REFUSED_BY_SCHEMA)), *EXECUTOR_GUARDS],
)
def test_what_is_refused_says_what_is_wrong(example: str, values: Values, message: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(message)):
        render(example, values)


def test_zero_replicas_stop_it() -> None:
    (found,) = [m for m in render("local", {"replicas": 0}) if m["kind"] == "StatefulSet"]

    assert found["spec"]["replicas"] == 0


def test_the_schema_is_closed_everywhere() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    found = dict(objects(SCHEMA))
    opened = {
        path for path, schema in found.items() if schema.get("additionalProperties", True) is True
    }

    assert len(found) > 20
    assert {path.replace("[]", "").rpartition(".")[2] for path in opened} == FREE


def test_the_schema_knows_every_value_and_no_other() -> None:
    """Keys that are named by users, or that Kubernetes has, need no default."""
    named = {path: s["properties"] for path, s in objects(SCHEMA) if "properties" in s}
    known = {f"{path}.{name}".lstrip(".") for path, ps in named.items() for name in ps}
    contexts = ("podSecurityContext", "securityContext")
    foreign = (
        *contexts,
        "resources",
        "light.resources.",
        "gateway.resources.",
        "affinity",
        "global",
    )

    def ours(paths: set[str]) -> set[str]:
        return {path for path in paths if not path.startswith(foreign) and "[]" not in path}

    assert ours(known) == ours(set(keys(DEFAULTS)))
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(DEFAULTS)) == []
