"""Every example of the chart, rendered by helm, is what it was and what Kubernetes takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pydantic
import pytest
import yaml
from kubeflow_spark_api.models import SparkV1beta2SparkApplication

from onceflow.settings import Settings
from tests.deploy.chart import (
    CHART,
    EXAMPLES,
    EXECUTOR_FILE,
    KUBERNETES,
    REWRITE,
    ROOT,
    Manifest,
    RefusedError,
    Values,
    manifests_in,
    one,
    render,
    rendered_text,
    run_helm,
)
from tests.deploy.operator_kinds import SPECS, faults_of_operator_kind

PIPELINE = "name: orders\ncheckpoint: s3a://checkpoints/orders"
GOLDEN = Path(__file__).parent / "golden"
UPGRADE = "--is-upgrade"

CHANGES: Sequence[Values] = [
    {"image.digest": "", "image.tag": "0.2.0"},
    {"replicas": 0},
    {"spark.heap": "2g", "resources.limits.memory": "5Gi"},
    {"files": {"transforms.py": "a = 1"}},
    {"podLabels": {"a": "b"}},
    {"kafka.bootstrapServers": "kafka:1"},
    {
        "mode": "k8s",
        "persistence.accessMode": "ReadWriteOnce",
        "pipelines.orders": PIPELINE,
        "checkpointRoot": "s3a://checkpoints",
        "executors.secret": "a",
    },
]
"""What people change between a release and the next."""

# It reads and parses a megabyte for each manifest, most of what these tests would take.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)

each_example = pytest.mark.parametrize("example", EXAMPLES)


def faults_of(manifest: Manifest, version: str) -> str:
    """Return what the API server of a version would refuse, such as an unknown key."""
    if manifest["kind"] == "SparkApplication":
        return faults_of_application(manifest)
    if manifest["kind"] in SPECS:
        return faults_of_operator_kind(manifest)
    try:
        kubernetes_validate.validate(dict(manifest), version, strict=True)
    except jsonschema.ValidationError as error:
        return f"{manifest['kind']}: {error.json_path}: {error.message}"
    return ""


def faults_of_application(manifest: Manifest) -> str:
    """By the operator's own models. They drop what they do not know, so that is looked for."""
    try:
        application = SparkV1beta2SparkApplication.from_dict(dict(manifest))
    except pydantic.ValidationError as error:
        return str(error)
    assert application is not None
    return "; ".join(lost(manifest, application.to_dict()))


def lost(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Keys of one document that another, made of it, lacks."""
    if isinstance(given, Mapping):
        for name, below in given.items():
            if name not in kept:
                yield f"unknown key {path}.{name}"
            else:
                yield from lost(below, kept[name], f"{path}.{name}")
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")


def templates_of_executors(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Those that Spark reads from a file."""
    texts = [m["data"].get(EXECUTOR_FILE) for m in manifests if m["kind"] == "ConfigMap"]
    return [yaml.safe_load(text) for text in texts if text]


@each_example
def test_helm_finds_no_fault(example: str) -> None:
    assert "0 chart(s) failed" in run_helm(
        "lint", "--strict", str(CHART), "-f", str(EXAMPLES[example])
    )


@each_example
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_it(example: str, version: str) -> None:
    manifests = manifests_in(rendered_text(example, "--kube-version", version))

    everything = [*manifests, *templates_of_executors(manifests)]

    assert len(manifests) > 3
    assert [fault for manifest in everything if (fault := faults_of(manifest, version))] == []


@each_example
def test_it_is_what_it_was(example: str) -> None:
    """After a change on purpose: `make chart`, and look at the difference."""
    file = GOLDEN / f"{example}.yaml"
    text = rendered_text(example)
    if os.environ.get(REWRITE):
        file.write_text(text)

    assert text == file.read_text()


def test_every_golden_file_has_its_example() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(EXAMPLES)


@each_example
@pytest.mark.parametrize("flags", [[], ["--no-hooks"]], ids=["all", "no-hooks"])
def test_an_upgrade_to_the_same_changes_nothing(example: str, flags: Sequence[str]) -> None:
    assert rendered_text(example, *flags, UPGRADE) == rendered_text(example, *flags)


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(RefusedError, match="incompatible with Kubernetes"):
        rendered_text("local", "--kube-version", "1.29.0")


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("example", "kind", "path"),
    [
        ("local", "StatefulSet", ["template", "spec"]),
        ("local", "StatefulSet", []),
        ("local-operated", "PodMonitor", []),
        ("local-operated", "ServiceMonitor", ["selector"]),
        ("local-operated", "PrometheusRule", []),
        ("operator", "SparkApplication", ["driver"]),
        ("operator", "SparkApplication", ["executor", "template", "spec"]),
    ],
)
def test_the_validation_sees_a_misspelt_key(example: str, kind: str, path: list[str]) -> None:
    manifest = one(manifests_in(rendered_text(example)), kind)
    place = manifest["spec"]
    for name in path:
        place = place[name]
    place["misspelt"] = {}

    assert "misspelt" in faults_of(manifest, KUBERNETES[0])


def test_the_operator_is_told_the_version_of_spark() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    lock = (ROOT / "requirements" / "run.lock").read_text()

    assert f"pyspark=={chart['annotations']['onceflow/spark']} " in lock


@pytest.mark.parametrize("values", CHANGES, ids=",".join)
def test_an_upgrade_changes_nothing_that_kubernetes_holds_fixed(values: Values) -> None:
    before, after = (fixed_parts(render("local-secured", v)) for v in ({}, values))

    assert after == before


def test_a_claim_that_grows_would_be_seen() -> None:
    before, after = (fixed_parts(render("local", v)) for v in ({}, {"persistence.size": "20Gi"}))

    assert after != before


def fixed_parts(manifests: Sequence[Manifest]) -> Any:
    """Fields of a StatefulSet that the API server refuses to change."""
    spec = one(manifests, "StatefulSet")["spec"]
    allowed = {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"}
    return {name: value for name, value in spec.items() if name not in allowed}


def test_a_change_of_what_is_read_at_the_start_restarts_the_pod() -> None:
    changes: Sequence[Values] = [
        {},
        {"spark.heap": "3g"},
        {"files": {"transforms.py": "a = 1"}},
        {"kafka.sasl.username": "another"},
    ]
    templates = [
        json.dumps(one(render("local-secured", values), "StatefulSet")["spec"]["template"])
        for values in changes
    ]

    assert len(set(templates)) == len(changes)
    outside: Sequence[tuple[str, Values]] = [
        ("k8s", {"podLabels": {"a": "b"}}),
        ("local-configmap", {"pipelinesFrom.revision": "1"}),
    ]
    for example, values in outside:
        pods = [one(render(example, v), "StatefulSet")["spec"]["template"] for v in ({}, values)]
        hashes = [pod["metadata"]["annotations"] for pod in pods]
        assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("s3a://checkpoints/", "s3a://checkpoints/page-views"),
        ("/var/lib/onceflow/checkpoints/a", "/var/lib/onceflow/checkpoints/a/page-views"),
        ("", "/var/lib/onceflow/checkpoints/page-views"),
    ],
)
def test_a_checkpoint_that_no_file_names_is_below_the_root(root: str, place: str) -> None:
    data = one(render("local", {"checkpointRoot": root}), "ConfigMap", "-pipeline")["data"]
    assert yaml.safe_load(data["page-views.yaml"])["checkpoint"] == place


def test_a_waiver_puts_the_checkpoint_on_an_emptydir_and_tells_the_service() -> None:
    manifests = render(
        "local",
        {
            "persistence.enabled": False,
            "persistence.ephemeral.reason": "a trial, no more",
            "persistence.ephemeral.until": "2027-03-31",
        },
    )
    spec = one(manifests, "StatefulSet")["spec"]
    (volume,) = [v for v in spec["template"]["spec"]["volumes"] if v["name"] == "checkpoints"]
    settings = next(m for m in manifests if m["metadata"]["name"].endswith("-settings"))
    told = yaml.safe_load(settings["data"]["onceflow.yaml"])["ephemeral_checkpoints"]

    assert volume["emptyDir"] == {"sizeLimit": "10Gi"}
    assert "volumeClaimTemplates" not in spec
    assert told == {"reason": "a trial, no more", "until": "2027-03-31"}


def test_the_service_takes_what_it_is_told_of_transactions_and_columns() -> None:
    told = {"kafka.transactionTimeout": "5 minutes", "control.shownColumns": ["page-views.page"]}
    data = one(render("local-operated", told), "ConfigMap", "-settings")["data"]
    settings = Settings.model_validate(yaml.safe_load(data["onceflow.yaml"]))

    assert settings.transaction_timeout_s == 300
    assert settings.control is not None
    assert settings.control.shown_columns == ["page-views.page"]


@pytest.mark.parametrize(
    ("path", "value"),
    [("kafka.transactionTimeout", "soon"), ("control.shownColumns", ["no-pipeline"])],
)
def test_values_that_the_service_would_refuse_are_refused_by_helm(path: str, value: object) -> None:
    with pytest.raises(RefusedError, match=path.split(".")[1]):
        render("local-operated", {path: value})
