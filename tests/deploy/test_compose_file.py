"""Checks what docker/compose.yaml gives to Grafana, which cannot start here, and to the outside.

tests/system/test_compose.py starts the others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from tests.deploy.chart import ROOT
from tests.support.sites.compose_project import FILE, services

MONITORING = ROOT / "docker" / "monitoring"
PROVISIONING = PurePosixPath("/etc/grafana/provisioning")


def mounts(service: str) -> dict[PurePosixPath, Path]:
    """Path in the container -> file here; without volumes, and files that a user may choose."""
    found = {}
    for text in services()[service].get("volumes", ()):
        source, place, *_ = text.split(":")
        if source.startswith("."):
            found[PurePosixPath(place)] = (FILE.parent / source).resolve()
    return found


def loaded(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("service", services())
def test_what_is_mounted_is_there(service: str) -> None:
    """The engine would make a folder of this name."""
    assert [str(file) for file in mounts(service).values() if not file.is_file()] == []


@pytest.mark.parametrize("service", services())
def test_nothing_is_published_but_to_this_machine(service: str) -> None:
    ports = services()[service].get("ports", [])
    assert [port for port in ports if not re.match(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+$", port)] == []


def test_grafana_finds_the_dashboard_where_its_provider_looks() -> None:
    given = mounts("grafana")
    (provider,) = loaded(given[PROVISIONING / "dashboards" / "onceflow.yaml"])["providers"]
    (dashboard,) = [place for place in given if place.suffix == ".json"]
    assert dashboard.parent == PurePosixPath(provider["options"]["path"])
    assert provider["type"] == "file"
    assert json.loads(given[dashboard].read_text())["uid"]


def test_grafana_asks_the_prometheus_that_runs_and_the_dashboard_asks_it() -> None:
    given = mounts("grafana")
    (source,) = loaded(given[PROVISIONING / "datasources" / "onceflow.yaml"])["datasources"]
    (published,) = services()["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{published.rpartition(':')[2]}"
    (dashboard,) = [
        json.loads(file.read_text()) for file in given.values() if file.suffix == ".json"
    ]
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    # A variable of this type begins with the default source of the kind that it asks for.
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == source["type"] == "prometheus"
    assert source["isDefault"] is True
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
