"""Renders the chart with the real `helm`, as a user's install or upgrade would."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "onceflow"
EXAMPLES = {file.stem: file for file in sorted((CHART / "examples").glob("*.yaml"))}
RELEASE, NAMESPACE = "page-views", "streams"
REWRITE = "ONCEFLOW_TEST_REWRITE_GOLDEN"
RUN_TIMEOUT_S = 30
KUBERNETES = ("1.30.0", "1.34.0", "1.37.0")
"""The oldest that Chart.yaml allows, one between, and the newest whose schemas we have."""

EXECUTOR = "executor"
EXECUTOR_FILE = "executor.yaml"

Manifest = Mapping[str, Any]
Values = Mapping[str, object]
"""By their paths: `{"kafka.tls.enabled": True}`."""


class RefusedError(Exception):
    """helm did not render; its message."""


@cache
def helm() -> str:
    """The binary of `make setup`, or the one on the path."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.is_file() else shutil.which("helm")
    if found is None:
        pytest.fail("helm is missing; `make setup` installs it")
    return found


def run_helm(*arguments: str) -> str:
    done = subprocess.run(
        [helm(), *arguments], check=False, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


@cache
def rendered_text(example: str, *flags: str, release: str = RELEASE) -> str:
    values = str(EXAMPLES[example])
    place = ["--namespace", NAMESPACE, "--values", values]
    return run_helm("template", release, str(CHART), *place, *flags)


def manifests_in(text: str) -> list[Manifest]:
    documents = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [document for document in documents if document]


def render(example: str, values: Values | None = None, *, release: str = RELEASE) -> list[Manifest]:
    """Render an example, with some values changed."""
    flags = [f"--set-json={path}={json.dumps(value)}" for path, value in (values or {}).items()]
    return manifests_in(rendered_text(example, *flags, release=release))


def one(manifests: Sequence[Manifest], kind: str, ending: str = "") -> Any:
    """The only manifest of a kind whose name has this ending."""
    (found,) = [
        m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(ending)
    ]
    return found


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Any]]:
    """Every pod that comes of them: its place, and a mapping with its metadata and its spec."""
    for manifest in manifests:
        kind, spec = manifest["kind"], manifest.get("spec", {})
        if kind == "Pod":
            yield kind, manifest
        elif kind in {"Deployment", "Job", "StatefulSet"}:
            yield kind, spec["template"]
        elif kind == "SparkApplication":
            yield "operator's driver", spec["driver"]["template"]
            yield EXECUTOR, spec["executor"]["template"]
        elif kind == "ConfigMap" and EXECUTOR_FILE in manifest["data"]:
            yield EXECUTOR, yaml.safe_load(manifest["data"][EXECUTOR_FILE])
