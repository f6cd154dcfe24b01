"""docker/compose.yaml as its header says, without Grafana, of which no image can be had.

tests/deploy/test_compose_file.py looks at what Grafana is given.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.chart import ROOT
from tests.faults.history.writes import Expected
from tests.support.brokers import image as kafka_container
from tests.support.eventually import eventually
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import anomalies
from tests.support.sites.compose_project import ComposeProject, compose_project, services

EXAMPLE = ROOT / "examples" / "page-views"
FILES = ROOT / "deploy" / "helm" / "onceflow" / "files"
STARTED = [name for name in services() if name != "grafana"]
FRIGHTENING = re.compile("traceback|warn|deprecat|error|exception", re.IGNORECASE)
TIMEOUT_S = 240
BUILD_TIMEOUT_S = 900
"""Of the broker's image, if it was never built."""

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S)


@pytest.fixture(scope="module")
def trial() -> Iterator[ComposeProject]:
    # Has the same layers as the broker here, so that building that one takes no time.
    kafka_container.provide_image()
    fetch = ["onceflow.devkit", "fetch", "broker", "--into", "docker/broker/jars"]
    subprocess.run([sys.executable, "-m", *fetch], cwd=ROOT, check=True, capture_output=True)
    with compose_project() as project:
        try:
            project.compose("up", "--build", "--detach", *STARTED)
        except AssertionError as error:
            error.add_note(project.compose("logs", "--no-color", "--tail", "30"))
            raise
        yield project


@pytest.fixture(scope="module")
def prometheus(trial: ComposeProject) -> Iterator[httpx.Client]:
    """Its API."""
    address = f"http://127.0.0.1:{trial.prometheus_port}/api/v1/"
    with httpx.Client(base_url=address, timeout=10) as client:
        yield client


def asked(prometheus: httpx.Client, what: str, **parameters: str) -> dict[str, Any]:
    """Return the body of its answer."""
    answer = prometheus.get(what, params=parameters).json()
    assert answer["status"] == "success", answer
    data: dict[str, Any] = answer["data"]
    return data


def test_the_example_gives_what_it_must(trial: ComposeProject) -> None:
    """Read at the published port, with a plain client."""
    sent = (EXAMPLE / "data" / "clicks.jsonl").read_text().splitlines()
    lines = (EXAMPLE / "expected" / "page-views.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in lines]
    eventually(
        lambda: len(read_topic(trial.bootstrap_servers, "page-views")),
        lambda count: count >= len(expected),
        timeout_s=TIMEOUT_S,
    )
    heads = read_ledger(trial.bootstrap_servers, "page-views")
    written = read_topic(trial.bootstrap_servers, "page-views")
    assert sum(head["records"]["read"] for head in heads) == len(sent)
    assert anomalies(written, heads, Expected.of_rows(expected)) == []


def test_what_the_documents_tell_to_type_shows_it(trial: ComposeProject) -> None:
    told = trial.compose("exec", "-T", "service", "onceflow", "consume", "page-views", "--verify")
    assert "/cart" in told


def test_another_start_sends_nothing_again(trial: ComposeProject) -> None:
    before = trial.container("clicks").attrs["State"]["StartedAt"]
    sent = read_topic(trial.bootstrap_servers, "clicks")
    trial.compose("up", "--detach", *STARTED)
    assert trial.container("clicks").attrs["State"]["StartedAt"] > before
    assert read_topic(trial.bootstrap_servers, "clicks") == sent


def test_prometheus_watches_it_and_is_content(prometheus: httpx.Client) -> None:
    (target,) = eventually(
        lambda: asked(prometheus, "targets")["activeTargets"],
        lambda targets: [each["health"] for each in targets] == ["up"],
        timeout_s=TIMEOUT_S,
    )
    assert target["labels"]["job"] == "onceflow"
    wanted = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    loaded = asked(prometheus, "rules")["groups"]
    assert names_of(loaded, "name") == names_of(wanted, "alert")
    # That nothing answered, before the service did, is over as soon as it does.
    eventually(lambda: asked(prometheus, "alerts")["alerts"], lambda alerts: alerts == [])


def names_of(groups: list[dict[str, Any]], key: str) -> list[str]:
    return [rule[key] for group in groups for rule in group["rules"]]


def test_prometheus_takes_each_expression_of_the_dashboard(prometheus: httpx.Client) -> None:
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    texts = [
        target["expr"].replace("$pipeline", "page-views")
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    of_pipelines = [text for text in texts if "page-views" in text]
    assert 0 < len(of_pipelines) < len(texts)
    # A pipeline that has just started has no batch yet, and Prometheus asks it now and then.
    eventually(
        lambda: {text: len(asked(prometheus, "query", query=text)["result"]) for text in texts},
        lambda found: sum(bool(found[text]) for text in of_pipelines) > len(of_pipelines) / 2,
        timeout_s=TIMEOUT_S,
    )


def test_it_runs_as_the_chart_runs_it(trial: ComposeProject) -> None:
    host = trial.container("service").attrs["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]


def test_nothing_frightens_a_newcomer(trial: ComposeProject) -> None:
    eventually(
        lambda: trial.container("service").attrs["State"]["Health"]["Status"],
        lambda health: health == "healthy",
        timeout_s=TIMEOUT_S,
    )
    for name in STARTED:
        attributes = trial.container(name).attrs
        assert attributes["RestartCount"] == 0, name
        assert attributes["State"]["ExitCode"] == 0, name
        assert attributes["State"]["Running"] == (name != "clicks"), name
    said = trial.compose("logs", "--no-color").splitlines()
    assert [line for line in said if FRIGHTENING.search(line)] == []
