"""How a release is watched and controlled: probes, monitors, alerts, dashboard, doors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from onceflow.config import load_settings
from onceflow.settings import Settings
from tests.deploy.chart import (
    CHART,
    EXAMPLES,
    Values,
    manifests_in,
    one,
    pods,
    render,
    rendered_text,
)
from tests.deploy.operator_kinds import GROUP

OPERATED = "local-operated"
RULES = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())


def container(example: str, values: Values | None = None) -> Any:
    if example == "operator":
        application = one(render(example, values), "SparkApplication")
        return application["spec"]["driver"]["template"]["spec"]["containers"][0]
    kind = "Deployment" if example == "deliveries" else "StatefulSet"
    pod = one(render(example, values), kind)["spec"]["template"]
    return pod["spec"]["containers"][0]


def settings_of(example: str, tmp_path: Any, values: Values | None = None) -> Settings:
    data = one(render(example, values), "ConfigMap", "-settings")["data"]
    file = tmp_path / "onceflow.yaml"
    file.write_text(data["onceflow.yaml"])
    return load_settings({}, {}, file)


@pytest.mark.parametrize("example", EXAMPLES)
def test_probes_ask_where_the_service_answers(example: str, tmp_path: Any) -> None:
    found = container(example)
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    assert ports["monitoring"] == settings_of(example, tmp_path).monitoring.port
    paths = {probe: found[probe]["httpGet"]["path"] for probe in found if probe.endswith("Probe")}
    assert paths == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    startup = found["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 300


START_S = 20
"""From the start of a container until it is ready again, on a node that is not overloaded."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_pod_that_hangs_is_back_within_a_minute_and_one_that_drains_has_its_time(
    example: str,
) -> None:
    """A probe that begins just before a pod freezes is answered; SIGTERM is not heard."""
    found = container(example)
    probe = found["livenessProbe"]
    silent_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    pod = next(pod for _, pod in pods(render(example)) if found in pod["spec"]["containers"])

    assert silent_s + probe["terminationGracePeriodSeconds"] + START_S <= 60
    assert silent_s >= 25, "a pod that is short of processor time would be killed"
    assert found["startupProbe"]["terminationGracePeriodSeconds"] <= 10
    assert "terminationGracePeriodSeconds" not in found["readinessProbe"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 180


def test_monitors_find_the_pod() -> None:
    manifests = render(OPERATED)
    pod = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    service = one(manifests, "Service", "-monitoring")
    for monitor, labels, endpoints in (
        ("PodMonitor", pod, "podMetricsEndpoints"),
        ("ServiceMonitor", service["metadata"]["labels"], "endpoints"),
    ):
        found = one(manifests, monitor)
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert [each["port"] for each in found["spec"][endpoints]] == ["monitoring"]
        assert found["metadata"]["labels"]["release"] == "prometheus"
    assert service["spec"]["selector"].items() <= pod.items()
    assert service["spec"]["ports"][0]["name"] == "monitoring"


def test_alerts_are_those_of_the_file_with_links_into_the_handbook() -> None:
    found = one(render(OPERATED), "PrometheusRule")["spec"]
    text = json.dumps(found)
    assert "RUNBOOK" not in text
    links = text.replace("https://wiki.example/onceflow/operations", "RUNBOOK")
    assert json.loads(links) == RULES


def test_a_cluster_that_has_the_operator_needs_no_force() -> None:
    flags = ["--api-versions", GROUP, "--set", "monitoring.force=false"]
    kinds = {manifest["kind"] for manifest in manifests_in(rendered_text(OPERATED, *flags))}
    assert {"PodMonitor", "ServiceMonitor", "PrometheusRule"} <= kinds


@pytest.mark.parametrize(("certificate", "address"), [("", "127.0.0.1"), ("tls", "0.0.0.0")])
def test_orders_are_taken_from_outside_only_with_a_certificate(
    certificate: str, address: str, tmp_path: Any
) -> None:
    values: Values = {
        "control": {"enabled": True, "tokensSecret": "a", "certificateSecret": certificate}
    }
    found = settings_of("local", tmp_path, values).control
    assert found is not None
    assert found.address == address
    services = [m for m in render("local", values) if m["metadata"]["name"].endswith("-control")]
    assert bool(services) is bool(certificate)
    ports = {port["name"] for port in container("local", values)["ports"]}
    assert ("control" in ports) is bool(certificate)


def test_every_pipeline_has_a_file_and_a_checkpoint_of_its_own() -> None:
    data = one(render(OPERATED), "ConfigMap", "-pipeline")["data"]
    assert set(data) == {"page-views.yaml", "errors.yaml"}
    checkpoints = [yaml.safe_load(text)["checkpoint"] for text in data.values()]
    assert len(set(checkpoints)) == 2
    mounts = {mount["mountPath"] for mount in container(OPERATED)["volumeMounts"]}
    assert {f"/etc/onceflow/pipeline/{name}" for name in data} <= mounts
    assert container(OPERATED)["args"] == ["serve", "/etc/onceflow/pipeline"]
