"""The alerts, by Prometheus's own tools; the dashboard, by the names that are exported."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboard import text as dashboard_text
from onceflow.delivery.metrics import DeliveryMetrics
from onceflow.enrichment.metrics import EnrichmentMetrics
from onceflow.gateway.metrics import GatewayMetrics
from onceflow.serve.metrics import Metrics
from tests.deploy.chart import ROOT
from tests.support.clock import ManualClock

FILES = ROOT / "deploy" / "helm" / "onceflow" / "files"
RULES = FILES / "alerts.yaml"
UNIT_TESTS = Path(__file__).with_name("alerts.yaml")
HANDBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        ["promtool", *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def exported() -> set[str]:
    """Names of every metric, as Prometheus stores them."""
    of_pipelines = Metrics(ManualClock(), list, {"version": "1"}).registry.collect()
    of_deliveries = DeliveryMetrics(list, {"version": "1"}).registry.collect()
    of_enrichments = EnrichmentMetrics(list, {"version": "1"}).registry.collect()
    of_gateways = GatewayMetrics("shop", list, {"version": "1"}).registry.collect()
    names = set()
    for family in (*of_pipelines, *of_deliveries, *of_enrichments, *of_gateways):
        suffixes = {"counter": ("_total",), "info": ("_info",), "histogram": HISTOGRAM_PARTS}
        names |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    return names


def asked_for(expression: str) -> set[str]:
    return set(re.findall(r"\bonceflow_\w+", expression))


def test_prometheus_understands_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(UNIT_TESTS.read_text().replace("RULES", str(RULES)))
    assert "SUCCESS" in promtool("test", "rules", str(file))
    tested = {
        check["alertname"]
        for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]
        for check in test["alert_rule_test"]
        if check.get("exp_alerts")
    }
    assert tested == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_asks_for_what_is_exported_and_has_a_page(rule: dict[str, Any]) -> None:
    assert asked_for(rule["expr"]) <= exported()
    anchor = rule["annotations"]["runbook_url"].removeprefix("RUNBOOK#")
    assert anchor == rule["alert"].lower()
    assert f"\n### {rule['alert']}\n" in HANDBOOK


def expressions(panel: dict[str, Any]) -> Iterator[str]:
    for target in panel.get("targets", ()):
        yield target["expr"]
    for inner in panel.get("panels", ()):
        yield from expressions(inner)


def test_the_dashboard_shows_what_is_exported() -> None:
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    texts = [text for panel in dashboard["panels"] for text in expressions(panel)]
    shown = {name for text in texts for name in asked_for(text)}
    assert shown <= exported()
    assert exported() - shown - {"onceflow_build_info"} == set()
    assert (FILES / "dashboard.json").read_text() == dashboard_text(), "make chart"
