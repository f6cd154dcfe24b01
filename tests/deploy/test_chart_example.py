"""The chart with the address of its brokers and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from onceflow.pipeline.file.loader import load_pipeline
from tests.deploy.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    RefusedError,
    helm,
    manifests_in,
    one,
    render,
    run_helm,
)

ONLY = ["--set", "kafka.bootstrapServers=kafka:9092"]
UPGRADE = "--is-upgrade"


def rendered(chart: Path, *flags: str) -> str:
    return run_helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, *ONLY, *flags)


def test_a_packed_chart_with_nothing_but_brokers_runs_the_example(tmp_path: Path) -> None:
    subprocess.run(
        [helm(), "package", str(CHART), "--destination", str(tmp_path)], check=True, timeout=30
    )
    (packed,) = tmp_path.glob("*.tgz")
    manifests = manifests_in(rendered(packed))
    data = one(manifests, "ConfigMap", "-pipeline")["data"]
    file = tmp_path / "page-views-example.yaml"
    file.write_text(data[file.name])
    pipeline = load_pipeline(file).pipeline
    script = one(manifests, "Job")["spec"]["template"]["spec"]["containers"][0]["args"][0]

    assert list(data) == [file.name]
    assert manifests == render("trial")
    assert one(manifests, "StatefulSet")["spec"]["replicas"] == 1
    # Its topics, as it must not share them, or its ledger, with another release.
    assert pipeline.name == "page-views-example"
    topics = set(re.findall(r"page-views-example\.\w+", file.read_text()))
    assert topics == {"page-views-example.clicks", "page-views-example.views"}
    assert "onceflow produce page-views-example.clicks" in script


def test_an_upgrade_that_forgets_the_pipelines_is_refused() -> None:
    """Otherwise the example would take the place of what has been running."""
    with pytest.raises(RefusedError, match="at an upgrade again; or set example to always"):
        rendered(CHART, UPGRADE)
    assert "page-views-example" in rendered(CHART, UPGRADE, "--set", "example=always")


@pytest.mark.parametrize(
    "flags",
    [
        ["--set", "pipelines.a=name: a"],
        ["--set", "pipelinesFrom.configMap=a,pipelinesFrom.files={a.yaml}"],
    ],
)
def test_who_gives_a_pipeline_gets_no_example(flags: list[str]) -> None:
    text = rendered(CHART, *flags, "--set", "example=always")

    assert "example" not in text
    assert [m for m in manifests_in(text) if m["kind"] == "Job"] == []


def test_the_notes_lead_to_its_output() -> None:
    flags = ["--dry-run=client", "--namespace", "streams", *ONLY]
    notes = run_helm("install", "views", str(CHART), *flags).partition("NOTES:")[2]

    assert "exec views-0 -- onceflow consume views-example.views --from-beginning" in notes
    assert "--set-file pipelines.NAME=pipeline.yaml" in notes


def test_the_job_of_topics_makes_the_users_topics_beside_the_examples() -> None:
    values = {"topicJob.topics": [{"name": "b", "partitions": 2}]}
    manifests = render("trial", values)
    script = one(manifests, "Job")["spec"]["template"]["spec"]["containers"][0]["args"][0]

    assert "onceflow produce b /dev/null --partitions 2" in script
    assert yaml.safe_load(one(manifests, "ConfigMap", "-topics")["data"]["onceflow.yaml"])
