"""Findings about pipeline files as a log in SARIF 2.1.0, for code review and editors.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onceflow.errors import Fault
from onceflow.pipeline.file.rules import SUMMARIES, Rule

VERSION = "2.1.0"
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


class SarifLevel(StrEnum):
    """How bad a finding is, in SARIF's words."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class SarifResult:
    """A fault that names a `Rule`, in a file as the user gave it."""

    path: Path
    level: SarifLevel
    fault: Fault


def sarif_log(findings: Iterable[SarifResult]) -> Mapping[str, Any]:
    """One run with a result for each finding, and the rules that there are."""
    driver = {
        "name": "onceflow",
        "version": version("onceflow"),
        "rules": [
            {"id": rule, "shortDescription": {"text": summary}}
            for rule, summary in SUMMARIES.items()
        ],
    }
    results = [_result(finding) for finding in findings]
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _result(finding: SarifResult) -> Mapping[str, Any]:
    fault = finding.fault
    return {
        "ruleId": fault.rule,
        "ruleIndex": [*SUMMARIES].index(Rule(fault.rule)),
        "level": finding.level,
        # `locations` has the place.
        "message": {"text": str(replace(fault, where="", line=None, file=""))},
        "locations": [_location(finding.path, fault)],
    }


def _location(path: Path, fault: Fault) -> Mapping[str, Any]:
    place = path.parent / fault.file if fault.file else path
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place)}}
    if fault.line is not None:
        physical["region"] = {"startLine": fault.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if fault.where:
        location["logicalLocations"] = [{"fullyQualifiedName": fault.where}]
    return location


def _uri(path: Path) -> str:
    """Relative as long as the path is: a reader resolves it against the root of the sources."""
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
