"""Every example of the chart keeps the policies, and each policy sees a breach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceflow.config import load_settings
from onceflow.delivery.loader import load_delivery
from onceflow.errors import ConfigError
from onceflow.gateway.loader import load_gateway
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.runtime.spark.session import check_conf
from onceflow.settings import Settings
from tests.deploy import policies
from tests.deploy.chart import (
    EXAMPLES,
    EXECUTOR_FILE,
    NAMESPACE,
    Manifest,
    Values,
    one,
    pods,
    render,
)
from tests.deploy.policies import POLICIES, Policy
from tests.support.pipelines import pipeline_text

each_example = pytest.mark.parametrize("example", EXAMPLES)

Breach = Callable[[Sequence[Manifest]], None]


def driver(manifests: Sequence[Manifest]) -> Any:
    return one(manifests, "StatefulSet")["spec"]["template"]["spec"]


def container(manifests: Sequence[Manifest]) -> Any:
    return driver(manifests)["containers"][0]


def network(manifests: Sequence[Manifest]) -> Any:
    return one(manifests, "NetworkPolicy")["spec"]


SECRET_VARIABLE = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
EVERYTHING = {"kind": "Role", "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}]}

BREACHES: Sequence[tuple[Policy, Breach]] = [
    (policies.is_restricted, lambda m: driver(m)["securityContext"].pop("runAsNonRoot")),
    (policies.is_restricted, lambda m: driver(m)["securityContext"].update(runAsUser=0)),
    (policies.is_restricted, lambda m: driver(m)["securityContext"].pop("seccompProfile")),
    (policies.is_restricted, lambda m: driver(m).update(hostNetwork=True)),
    (policies.is_restricted, lambda m: container(m).pop("securityContext")),
    (policies.is_restricted, lambda m: driver(m).update(initContainers=[{"name": "a"}])),
    (policies.no_foreign_settings, lambda m: driver(m).pop("enableServiceLinks")),
    (policies.secrets_are_files, lambda m: container(m)["env"].append(SECRET_VARIABLE)),
    (policies.secrets_are_files, lambda m: container(m).update(envFrom=[])),
    (
        policies.secrets_are_files,
        lambda m: one(m, "ConfigMap", "-settings")["data"].update(
            {policies.SETTINGS: "sasl: {password: a}"}
        ),
    ),
    (policies.rights_are_few, lambda m: driver(m).update(automountServiceAccountToken=True)),
    (policies.rights_are_few, lambda m: one(m, "StatefulSet").update(EVERYTHING)),
    (policies.rights_are_few, lambda m: one(m, "StatefulSet").update(kind="ClusterRole")),
    (policies.resources_are_bounded, lambda m: container(m)["resources"].pop("limits")),
    (policies.resources_are_bounded, lambda m: container(m)["resources"].pop("requests")),
    (policies.resources_are_bounded, lambda m: driver(m)["volumes"][0].update(emptyDir={})),
    (policies.traffic_is_bounded, lambda m: network(m)["egress"].append({})),
    (policies.traffic_is_bounded, lambda m: network(m)["egress"][1].pop("to")),
    (policies.traffic_is_bounded, lambda m: network(m).update(policyTypes=["Ingress"])),
    (
        policies.traffic_is_bounded,
        lambda m: network(m)["podSelector"]["matchLabels"].update(a="another pod"),
    ),
    (policies.mounts_are_volumes, lambda m: driver(m)["volumes"].pop()),
    (policies.mounts_are_volumes, lambda m: container(m)["volumeMounts"].pop()),
    (policies.one_image, lambda m: container(m).update(image="another")),
]


def executor_with(m: Sequence[Manifest], old: str, new: str) -> None:
    data = one(m, "ConfigMap", "-settings")["data"]
    assert old in data[EXECUTOR_FILE]
    data[EXECUTOR_FILE] = data[EXECUTOR_FILE].replace(old, new)


def add_sidecar(m: Sequence[Manifest], volume: str) -> None:
    sidecar = {"name": "a", "volumeMounts": [{"name": volume, "mountPath": "/a"}]}
    driver(m)["containers"].append(sidecar)


EXECUTOR_BREACHES: Sequence[tuple[Policy, Breach]] = [
    (policies.is_restricted, lambda m: executor_with(m, "runAsNonRoot: true", "a: b")),
    (policies.no_foreign_settings, lambda m: executor_with(m, "enableServiceLinks: false", "a: b")),
    (policies.rights_are_few, lambda m: executor_with(m, "Token: false", "Token: true")),
    (policies.rights_are_few, lambda m: one(m, "Role")["rules"][0]["verbs"].append("*")),
    (policies.rights_are_few, lambda m: driver(m).update(automountServiceAccountToken=True)),
    (policies.rights_are_few, lambda m: add_sidecar(m, "account")),
    (policies.mounts_are_volumes, lambda m: executor_with(m, "/etc/onceflow/ca,", "/elsewhere,")),
    (policies.traffic_is_bounded, lambda m: executor_with(m, "instance: page-views", "a: b")),
    (policies.one_image, lambda m: executor_with(m, "onceflow:0.1.0", "onceflow:0.2.0")),
]


@each_example
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_every_policy_is_kept(example: str, policy: Policy) -> None:
    manifests = render(example)

    assert list(pods(manifests)) != []
    assert list(policy(manifests)) == []


@pytest.mark.parametrize(
    ("example", "policy", "breach"),
    [
        *(("local-secured", policy, breach) for policy, breach in BREACHES),
        *(("k8s", policy, breach) for policy, breach in EXECUTOR_BREACHES),
    ],
)
def test_every_breach_is_seen(example: str, policy: Policy, breach: Breach) -> None:
    manifests = render(example)
    breach(manifests)

    assert list(policy(manifests)) != []


def test_every_policy_has_a_breach() -> None:
    assert {policy for policy, _ in BREACHES} == set(POLICIES)


@each_example
def test_the_service_takes_its_settings(example: str, tmp_path: Path) -> None:
    """By the very code that reads them in the pod."""
    for number, manifest in enumerate(render(example)):
        if manifest["kind"] != "ConfigMap" or policies.SETTINGS not in manifest["data"]:
            continue
        file = tmp_path / f"{number}.yaml"
        file.write_text(manifest["data"][policies.SETTINGS])
        settings = load_settings({}, {}, file)
        check_conf(settings.spark.conf)

        assert settings.bootstrap_servers.startswith("kafka")


@each_example
def test_the_service_takes_its_pipeline(example: str, tmp_path: Path) -> None:
    manifests = render(example)
    found = [m for m in manifests if m["metadata"]["name"].endswith("-pipeline")]
    for manifest in found:
        for name, text in manifest["data"].items():
            (tmp_path / name).write_text(text)
    for file in tmp_path.glob("*.yaml"):
        pipeline = load_pipeline(file).pipeline
        place = pipeline.checkpoint_location

        assert pipeline.name == file.stem
        assert "://" in place or place.startswith("/var/lib/onceflow/checkpoints/")
        settings_of(manifests).require_allowed(load_pipeline(file), is_trusted=True)
    # The job that grants rights is there before everything else, and has its own.
    others = {"local-configmap": 0, "local-secured": 2, "deliveries": 0, "gateways": 0}
    assert len(found) == others.get(example, 1)


def test_the_service_takes_its_deliveries(tmp_path: Path) -> None:
    manifests = render("deliveries")
    data = one(manifests, "ConfigMap", "-deliveries")["data"]
    [(name, text)] = data.items()
    (tmp_path / name).write_text(text)
    delivery = load_delivery(tmp_path / name).delivery
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}

    assert delivery.name == Path(name).stem
    assert container["args"] == ["serve", "/etc/onceflow/deliveries"]
    assert mounts[f"/etc/onceflow/deliveries/{name}"]["subPath"] == name
    secret = mounts[str(Path(yaml.safe_load(text)["to"]["postgres"]["dsn_file"]).parent)]
    assert {"name": secret["name"], "secret": {"secretName": "postgres", "defaultMode": 0o440}} in (
        pod["volumes"]
    )
    [variable] = [each for each in container["env"] if each["name"] == "ONCEFLOW_CONFIG"]
    settings = one(manifests, "ConfigMap", "-settings")["data"]
    (tmp_path / "light.yaml").write_text(settings[Path(variable["value"]).name])
    found = load_settings({}, {}, tmp_path / "light.yaml")
    assert (found.bootstrap_servers, found.monitoring.port) == ("kafka:9092", 9464)


def test_the_service_takes_its_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = render("gateways")
    [(name, text)] = one(manifests, "ConfigMap", "-gateways")["data"].items()
    (tmp_path / name).write_text(text)
    gateway = load_gateway(tmp_path / name)
    pods = one(manifests, "StatefulSet")
    [container] = pods["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert gateway.name == Path(name).stem
    assert container["args"] == ["serve", "/etc/onceflow/gateways"]
    assert mounts[f"/etc/onceflow/gateways/{name}"]["subPath"] == name

    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    file = tmp_path / Path(variables["ONCEFLOW_CONFIG"]).name
    file.write_text(one(manifests, "ConfigMap", "-settings")["data"][file.name])
    advertise = variables["ONCEFLOW_GATEWAY__ADVERTISE"].replace("$(POD_NAME)", "shop-0")
    found = load_settings({"ONCEFLOW_GATEWAY__ADVERTISE": advertise}, {}, file).gateway
    assert found.tokens_file is not None
    assert {str(Path(found.tokens_file).parent), "/etc/onceflow/gateway"} <= {*mounts}
    peers = one(manifests, "Service", "-peers")
    assert pods["spec"]["serviceName"] == peers["metadata"]["name"]
    host = f"shop-0.{peers['metadata']['name']}.{NAMESPACE}.svc"
    assert found.address_for_others(1) == f"https://{host}:{found.port}"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["gateway"] == found.port
    # It is ready when every slot has an owner, and has longer to end than a post may wait.
    ready = container["readinessProbe"]["httpGet"]
    assert ready == {"path": "/readyz", "port": "gateway", "scheme": "HTTPS"}
    grace_s = pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    pause_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert grace_s - pause_s > gateway.limits.answer_within_ms / 1000


@pytest.mark.parametrize("callers", [[], [{"podSelector": {"matchLabels": {"app": "web"}}}]])
def test_callers_and_other_instances_reach_a_gateway(callers: list[Any]) -> None:
    manifests = render("gateways", {"gateway.allowedFrom": callers})
    policy = one(manifests, "NetworkPolicy", "-gateway-shop")["spec"]
    labels = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    peer = {"podSelector": policy["podSelector"]}
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    # Without a restriction, the rule lets in other instances, too.
    allowed = [rule.get("from") for rule in policy["ingress"]]
    assert allowed == ([callers, [peer]] if callers else [None])
    assert policy["egress"][0]["to"] == [peer]
    for service in (one(manifests, "Service", "-shop"), one(manifests, "Service", "-peers")):
        assert service["spec"]["selector"].items() <= labels.items()


def test_a_gateway_without_autoscaling_and_ingress() -> None:
    values: Values = {"gateway.autoscaling.maxReplicas": 0, "gateway.ingress.hosts.shop": ""}
    kinds = Counter(each["kind"] for each in render("gateways"))
    fewer = render("gateways", {**values, "gateway.replicas": 3})
    assert one(fewer, "StatefulSet")["spec"]["replicas"] == 3
    assert kinds - Counter(each["kind"] for each in fewer) == Counter(
        ["HorizontalPodAutoscaler", "Ingress"]
    )


def test_a_release_may_have_pipelines_deliveries_and_enrichments() -> None:
    deliveries = yaml.safe_load(EXAMPLES["deliveries"].read_text())
    given = {"deliveries": deliveries["deliveries"], "light": deliveries["light"]}
    given["enrichments"] = {"rates": "kind: enrichment\nname: rates\n"}
    manifests = render("local", given)
    names = [m["metadata"]["name"] for m in manifests if m["kind"] == "Deployment"]
    assert Counter(each["kind"] for each in manifests)["StatefulSet"] == 1
    assert names == ["page-views-deliveries", "page-views-enrichments"]


def settings_of(manifests: Sequence[Manifest]) -> Settings:
    (text,) = [
        m["data"][policies.SETTINGS]
        for m in manifests
        if m["metadata"]["name"].endswith("-settings")
    ]
    return Settings.model_validate(yaml.safe_load(text))


def test_a_checkpoint_elsewhere_is_refused_by_the_service(tmp_path: Path) -> None:
    """The chart cannot see what a ConfigMap says."""
    settings = settings_of(render("local-configmap"))
    file = tmp_path / "views.yaml"
    for place in ("/tmp/x", "/var/lib/onceflow/checkpoints/../x", "s3a://elsewhere/x"):
        file.write_text(f"{pipeline_text()}checkpoint: {place}\n")
        with pytest.raises(ConfigError, match="checkpoint: not at"):
            settings.require_allowed(load_pipeline(file), is_trusted=True)


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("https://issuer.example/token", 443), ("https://issuer.example:8443/token", 8443)],
)
def test_tokens_can_be_fetched(endpoint: str, port: int) -> None:
    manifests = render("local-standby", {"kafka.sasl.tokenEndpoint": endpoint})
    policy = next(m for m in manifests if m["kind"] == "NetworkPolicy")
    allowed = {p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]}
    assert port in allowed
