"""Kinds of the Prometheus operator as this chart uses them: closed, so that a typo is seen."""

from __future__ import annotations

from typing import Any

import jsonschema

from tests.deploy.chart import Manifest

GROUP = "monitoring.coreos.com/v1"
DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_SELECTOR = _closed(["matchLabels"], matchLabels=LABELS)
_ENDPOINTS = {
    "type": "array",
    "minItems": 1,
    "items": _closed(["port"], port={"type": "string"}, interval=DURATION),
}
_RULE = _closed(
    ["alert", "expr", "labels", "annotations"],
    alert={"type": "string"},
    expr={"type": "string"},
    labels=LABELS,
    annotations=LABELS,
    **{"for": DURATION},
)
_GROUP = _closed(
    ["name", "rules"], name={"type": "string"}, rules={"type": "array", "items": _RULE}
)
SPECS: dict[str, dict[str, Any]] = {
    "PodMonitor": _closed(
        ["selector", "podMetricsEndpoints"], selector=_SELECTOR, podMetricsEndpoints=_ENDPOINTS
    ),
    "ServiceMonitor": _closed(["selector", "endpoints"], selector=_SELECTOR, endpoints=_ENDPOINTS),
    "PrometheusRule": _closed(["groups"], groups={"type": "array", "items": _GROUP}),
}


def faults_of_operator_kind(manifest: Manifest) -> str:
    """Return a fault that the operator's CRDs would refuse, or an empty string."""
    if manifest["apiVersion"] != GROUP:
        return f"{manifest['kind']}: apiVersion {manifest['apiVersion']}"
    try:
        jsonschema.validate(manifest["spec"], SPECS[manifest["kind"]])
    except jsonschema.ValidationError as error:
        return f"{manifest['kind']}: {error.json_path}: {error.message}"
    return ""
